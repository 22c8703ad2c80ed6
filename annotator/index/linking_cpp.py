"""What each identifier of a C++ or CUDA file leads to, as far as names tell.

No preprocessor and no types but those that a declaration names: a name is looked up in the functions, classes and
namespaces around it, a member in the class that its object is declared with; overloads are told apart by how many
arguments they take. Such a link is ``inferred``, never ``exact``. What declares a name is ``scopes_cpp``'s.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from annotator.index.languages import normal, parse
from annotator.index.model import Raw
from annotator.index.scopes_cpp import File, Token, bare

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDARD = {
    "size_t", "ptrdiff_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
    "uintptr_t", "intptr_t", "nullptr_t", "static_cast", "reinterpret_cast", "const_cast", "dynamic_cast", "uint",
    "memcpy", "memset", "memmove", "assert", "printf", "abort", "exit",
}  # fmt: skip
CUDA = re.compile(
    r"(?:threadIdx|blockIdx|blockDim|gridDim|warpSize|dim3|half2?|(?:u?char|u?short|u?int|u?long(?:long)?|float|double)[1-4]"
    r"|make_\w+[1-4]|(?:cuda|cublas|cusparse|cudnn|hip|nccl|nvtx|curand)[A-Z_]\w*|_mm\d*_\w+|CU[a-z]\w+|CU_\w+|__\w+"
    r"|atomic(?:Add|Max|Min|CAS|Exch|Sub|Or|And|Xor|Inc|Dec)|Py[A-Z_]\w*|vec_\w+|v[a-z]+q?_[a-z]+\d+)$"
)
"""Names of CUDA, of compilers' intrinsics and of Python's own interface."""

LIBRARIES = {"cutlass", "cute", "cub", "thrust", "cooperative_groups", "nvcuda", "hipcub", "hip", "rocwmma", "py", "cg",
             "boost", "ck", "flashinfer", "dnnl", "torch_npu"}  # fmt: skip
HELD = {"torch": ("at", "c10"), "at": ("c10",)}
"""Namespaces that hold the names of others by ``using namespace``."""

Files = dict[int, tuple[str, str]]

VISIBLE = "torch"
"""The pin whose headers the others include."""

SCOPES = ("class", "struct", "enum", "typedef", "macro")
"""What may stand before ``::`` and is no namespace."""

LISTS = "RegistrationDeclarations.h"
"""A generated list of all operators' declarations, outside of every namespace; nothing includes it."""

SHADERS = "/mps/kernels/"
"""Headers of Metal's shaders, which only these include."""

BY_NAME = "by its qualified name"
NOTHING = "nothing in the sources defines this name"
DEEPEST = 5
FUNCTIONS = ("function", "method")


class Name(NamedTuple):
    """A definition that may be meant, as the index of names has it."""

    file: int
    ordinal: int
    qualname: str


class Found(NamedTuple):
    """A definition that may be meant."""

    file: int
    ordinal: int
    name: str
    qualname: str
    hint: str
    pin: str
    line: int
    column: int
    kind: str
    path: str


def links(connection: sqlite3.Connection, number: int, pin: str, data: bytes, files: Files | None = None) -> list[Raw]:
    """A link for each identifier, in the order of the source; ``files`` are those of the store, if they are at hand."""
    source = normal(data)
    file = File(source, parse(data, "cpp").root_node)
    linker = Linker(file, Known(connection, number, pin, files or cpp_files(connection)))
    plain = [linker.plain(token) for token in file.tokens]
    linker.known.load({token.name for token, link in zip(file.tokens, plain, strict=True) if link is None})
    return [link or linker.link(token) for token, link in zip(file.tokens, plain, strict=True)]


def cpp_files(connection: sqlite3.Connection) -> Files:
    """Pin and path of the C++ files by their numbers."""
    statement = "SELECT id, pin, path FROM files WHERE language != 'python'"
    return {number: (pin, path) for number, pin, path in connection.execute(statement)}


class Known:
    """C++ definitions by their names, loaded when first asked for."""

    def __init__(self, connection: sqlite3.Connection, number: int, pin: str, files: Files) -> None:
        self.connection, self.number, self.pin, self.files = connection, number, pin, files
        self.folders = files[number][1].split("/")[:-1] if number in files else []
        statement = "SELECT line, column, ordinal FROM definitions WHERE file=?"
        self.here = {(line, column): ordinal for line, column, ordinal in connection.execute(statement, (number,))}
        self.names: dict[str, list[Name]] = {}
        self.found: dict[Name, Found] = {}

    def load(self, names: Iterable[str]) -> None:
        """Loads the qualified names of several names at once: popular names have thousands of definitions."""
        ordered = sorted(names)
        for start in range(0, len(ordered), 500):
            part = ordered[start : start + 500]
            marks = ",".join("?" * len(part))
            for name in part:
                self.names[name] = []
            statement = f"SELECT name, file, ordinal, qualname FROM definitions WHERE name IN ({marks})"
            for name, *rest in self.connection.execute(statement, part):
                if rest[0] in self.files and self.files[rest[0]][0] in (self.pin, VISIBLE):
                    self.names[name].append(Name(*rest))

    def whole(self, rows: list[Name]) -> list[Found]:
        """Definitions with all that is known of them: bodies first; then those of this file, this pin, near folders."""
        statement = "SELECT name, qualname, hint, line, column, kind FROM definitions WHERE file=? AND ordinal=?"
        for one in rows:
            if one not in self.found:
                name, qualname, hint, line, column, kind = self.connection.execute(statement, one[:2]).fetchone()
                pin, path = self.files[one.file]
                where = (pin, line, column, kind, path)
                self.found[one] = Found(one.file, one.ordinal, name, qualname, hint, *where)
        return sorted((self.found[one] for one in rows), key=self.likelihood)

    def signature(self, one: Found) -> str:
        """The signature of a definition."""
        statement = "SELECT signature FROM definitions WHERE file=? AND ordinal=?"
        row = self.connection.execute(statement, (one.file, one.ordinal)).fetchone()
        return str(row[0])

    def likelihood(self, one: Found) -> tuple[object, ...]:
        """Sort key of a definition."""
        declared = one.kind in FUNCTIONS and one.hint != "body"
        own = one.file == self.number
        return declared, not own, one.pin != self.pin, -self.nearness(one.path), one.file, one.ordinal

    def nearness(self, path: str) -> int:
        """How many folders a path shares with this file's."""
        count = 0
        for left, right in zip(self.folders, path.split("/")[:-1], strict=False):
            if left != right:
                break
            count += 1
        return count

    def __getitem__(self, name: str) -> list[Name]:
        if name not in self.names:
            self.load([name])
        return self.names[name]


class Linker:
    """Links the tokens of one file."""

    def __init__(self, file: File, known: Known) -> None:
        self.file, self.known = file, known
        self.bases_of: dict[str, list[str]] = {}

    @cached_property
    def spaces(self) -> set[str]:
        """Names of the namespaces and classes that hold something of a name that occurs here."""
        holders = {one.qualname.rpartition("::")[0] for rows in self.known.names.values() for one in rows}
        return {part for holder in holders for part in holder.split("::")}

    def plain(self, token: Token) -> Raw | None:
        """The link of a name that is defined where it stands, or by a function or a template around it."""
        ordinal = self.known.here.get((token.line, token.column))
        if ordinal is not None:
            return Raw(token.line, token.column, token.end, token.name, self.known.number, ordinal, "", "exact", "")
        if token.begin in self.file.own:
            return self.nothing(token, "local", "exact")
        if token.is_member or self.file.local(token.begin, token.name) is None or self.file.qualifier(token.begin):
            return None
        return self.nothing(token, "local", "exact")

    def link(self, token: Token) -> Raw:
        """The link of another identifier."""
        return self.member(token) if token.is_member else self.named(token, self.file.qualifier(token.begin))

    def named(self, token: Token, before: str) -> Raw:
        """The link of a name that is no member of an object."""
        head = before.partition("::")[0]
        before = self.file.full(before)
        if before.split("::")[0] == "std" or token.name == "std" or (not before and token.name in STANDARD):
            external = f"{before or 'std'}::{token.name}" if token.name != "std" else "std"
            return self.outside(token, external, "the standard library is not read")
        inside = scopes(self.file.around(token.begin))
        fitting = self.choose(self.file.full(token.name) if not before else f"{before}::{token.name}", inside)
        if not fitting and not before:
            fitting = self.inherited(self.file.classes_around(token.begin), token.name)
        if token.kind == "namespace_identifier":
            fitting = [one for one in fitting if one.kind in SCOPES]
        if fitting:
            return self.best(token, fitting)
        if token.kind == "namespace_identifier" and token.name in self.spaces:
            return self.outside(token, token.name, "a namespace, which has no one definition")
        if head in LIBRARIES or token.name in LIBRARIES or before.split("::")[0] in LIBRARIES:
            return self.outside(
                token, f"{before}::{token.name}" if before else token.name, "a library that is not read"
            )
        if not before and CUDA.match(token.name):
            return self.outside(token, token.name, "CUDA, the compiler or Python itself, which are not read")
        return self.nothing(token, self.why(token.name))

    def why(self, name: str) -> str:
        """Why a name leads nowhere."""
        count = len(self.known[name])
        return f"none of the definitions of the name fits: {count}" if count else NOTHING

    # Members

    def member(self, token: Token) -> Raw:
        """The link of a member, by the class that its object is declared with."""
        owner = self.owner(token)
        if not owner:
            return self.nothing(token, "the class of the object is not plain")
        if owner.startswith("std::"):
            return self.outside(token, f"{owner}::{token.name}", "the standard library is not read")
        fitting = self.inherited([owner], token.name)
        if not fitting:
            return self.nothing(token, f"its class and bases define no such member: {owner}::{token.name}")
        return self.best(token, fitting, "a member of the class as which the object is declared")

    def owner(self, token: Token) -> str:
        """The qualified name of the class of the object before a member."""
        classes = self.file.classes_around(token.begin)
        if token.object == "this":
            return classes[0] if classes else ""
        declared = self.file.local(token.begin, token.object) if token.object else None
        if declared is None and token.object:
            declared = self.field(classes, token.object)
        return self.class_named(bare(declared, token.arrow), token.begin) if declared else ""

    def field(self, classes: list[str], name: str) -> str:
        """The type that a field of the class around is declared with."""
        found = [one for one in self.inherited(classes, name) if one.kind == "attribute"]
        signature = self.known.signature(found[0]) if found else ""
        match = re.match(rf"(.*?)[\s&*]*\b{re.escape(name)}\b", signature)
        return match[1] if match else ""

    def class_named(self, text: str, at: int) -> str:
        """The qualified name of the class that a type names."""
        text = self.file.full(text)
        if text.startswith("std::"):
            return text
        fitting = [one for one in self.choose(text, scopes(self.file.around(at))) if one.kind in ("class", "struct")]
        return fitting[0].qualname if text and fitting else ""

    def inherited(self, classes: list[str], name: str) -> list[Found]:
        """Members of a name in the first of some classes, or of their bases, that has one."""
        seen, waiting = set(classes), [(one, 0) for one in classes]
        rows = self.known[name]
        while waiting and rows:
            current, depth = waiting.pop(0)
            if found := [one for one in rows if one.qualname == f"{current}::{name}"]:
                return self.known.whole(found)
            for base in self.bases(current) if depth < DEEPEST else ():
                if base not in seen:
                    seen.add(base)
                    waiting.append((base, depth + 1))
        return []

    def bases(self, qualname: str) -> list[str]:
        """The classes that a class names as its bases."""
        if qualname not in self.bases_of:
            short = qualname.rpartition("::")[2]
            rows = self.known.whole([one for one in self.known[short] if one.qualname == qualname])
            hints = [one.hint for one in rows if one.hint and one.kind in ("class", "struct")]
            self.bases_of[qualname] = [
                found[0].qualname
                for name in base_names(hints[0] if hints else "")
                if (found := self.choose(name, scopes(qualname)))
            ]
        return self.bases_of[qualname]

    # Choosing

    def choose(self, wanted: str, inside: list[str]) -> list[Found]:
        """Definitions that a name means: all of the first scope, from the inside out, in which it is defined."""
        head, _, rest = wanted.partition("::")
        rows = self.known[wanted.rpartition("::")[2]] if wanted else []
        forms = [wanted, *(f"{other}::{rest}" for other in HELD.get(head, ()) if rest)]
        if not rest:
            forms += [f"{space}::{wanted}" for space in self.file.used]
        for form in forms if rows else ():
            for scope in inside:
                full = f"{scope}::{form}" if scope else form
                named = [one for one in rows if one.qualname == full]
                if found := [one for one in self.known.whole(named) if not self.hidden(one)]:
                    return found
        return []

    def hidden(self, one: Found) -> bool:
        """Whether it cannot be meant from here: another file's own, or outside every namespace of another pin."""
        if one.file == self.known.number or one.kind == "macro":
            return False
        if one.path.endswith(LISTS) or ("::" not in one.qualname and one.pin != self.known.pin):
            return True
        if SHADERS in one.path:
            return SHADERS not in f"{'/'.join(self.known.folders)}/"
        if one.path.endswith(("h", "hpp", "inl")) or one.kind == "method":
            return False
        return one.kind != "function" or self.known.signature(one).startswith("static ")

    def best(self, token: Token, fitting: list[Found], why: str = BY_NAME) -> Raw:
        """The link to the likeliest of several definitions of one name, told apart by the arguments of a call."""
        if token.arguments is not None and len(fitting) > 1:
            taking = self.taking(fitting, token.arguments)
            if taking and len(taking) < len(fitting):
                fitting, why = taking, f"{why} and the number of arguments"
        rivals = {(one.file, one.line) for one in fitting if one.hint == "body" or one.kind not in FUNCTIONS}
        if len(rivals) > 1:
            why = f"{why}, the first of several definitions: {len(rivals)}"
        return self.made(token, fitting[0], "inferred", why)

    def taking(self, fitting: list[Found], count: int) -> list[Found]:
        """Those that may be called with so many arguments; defaults may stand in another declaration alone."""
        bounds = [parameters(self.known.signature(one), one.name) for one in fitting]
        most = {bound[1] for bound in bounds if bound and bound[0] <= count <= bound[1]}
        return [one for one, bound in zip(fitting, bounds, strict=True) if bound is None or bound[1] in most]

    def made(self, token: Token, one: Found, certainty: str, why: str) -> Raw:
        """A link to a definition."""
        return Raw(token.line, token.column, token.end, token.name, one.file, one.ordinal, "", certainty, why)

    def outside(self, token: Token, external: str, why: str) -> Raw:
        """A link to something that is not in the pins."""
        return Raw(token.line, token.column, token.end, token.name, 0, -1, external, "inferred", why)

    def nothing(self, token: Token, why: str, certainty: str = "unresolved") -> Raw:
        """A link to nothing: a local name, or an unresolved one."""
        return Raw(token.line, token.column, token.end, token.name, 0, -1, "", certainty, why)


def scopes(around: str) -> list[str]:
    """Scopes to look in, from the inside out."""
    parts = around.split("::") if around else []
    return ["::".join(parts[:count]) for count in range(len(parts), -1, -1)]


def base_names(hint: str) -> list[str]:
    """The names in a list of bases, without access and template arguments."""
    text = hint
    while (shorter := re.sub(r"<[^<>]*>", "", text)) != text:
        text = shorter
    words = (re.sub(r"\b(public|private|protected|virtual)\b", "", part).strip() for part in text.split(","))
    return [word for word in words if re.fullmatch(r"[\w:]+", word)]


@cache
def parameters(signature: str, name: str) -> tuple[int, int] | None:
    """How many arguments a function takes at least and at most; ``None`` where its signature does not say."""
    start = signature.find(f"{name}(")
    if start < 0 or signature.endswith("…"):
        return None
    parts = list(top_level(signature[start + len(name) + 1 :]))
    if any("..." in part for part in parts):
        return 0, 1000
    named = [part for part in parts if part.strip() not in ("", "void")]
    return sum("=" not in part for part in named), len(named)


def top_level(text: str) -> Iterator[str]:
    """The parameters of a list, up to its closing parenthesis."""
    depth = start = 0
    for at, mark in enumerate(text):
        if mark in "([{<":
            depth += 1
        elif mark in ")]}>" and depth:
            depth -= 1
        elif mark == ")":
            yield text[start:at]
            return
        elif mark == "," and not depth:
            yield text[start:at]
            start = at + 1
