"""Sources that hypothesis makes up: statements and declarations in any nesting, wrecked a little, in odd encodings.

Unlike ``inputs`` nothing here comes from a file, so what no author of the pins would write is as likely as the rest.
"""

from __future__ import annotations

import codecs
from functools import cache

from hypothesis import strategies as st

Text = st.SearchStrategy[str]

NAMES = st.sampled_from(["a", "b", "C", "D", "self", "cls", "x1", "é", "𝔘", "_", "__init__", "match", "type", "print"])
LITERALS = st.sampled_from(["1", "1.", "'s'", '"""d\n. A e.g. B"""', "rb'\\x'", "f'{a!r:>{b}}'", "...", "None", "b''"])
WRECKS = st.sampled_from(
    ["", "\x00", "\ufeff", "\f", "\t", "\\\n", "'", '"""', "(", "}", "\u2028", "#", "/*", "<", ":"]
)


def shaped(parts: Text, *forms: str) -> Text:
    """One of some forms, each ``%`` in it replaced by a part."""

    def filled(form: str) -> Text:
        first, *others = form.split("%")
        return st.tuples(*(parts for _ in others)).map(
            lambda made: first + "".join(part + rest for part, rest in zip(made, others, strict=True))
        )

    return st.one_of(*map(filled, forms))


def indented(text: str) -> str:
    """A block."""
    return "\n".join(f"    {line}" for line in text.split("\n"))


@cache
def python() -> Text:
    """Python, mostly."""
    expressions = st.recursive(
        NAMES | LITERALS,
        lambda inner: shaped(
            inner, "%.%", "%(%, %=%)", "%[%]", "lambda %: %", "(% := %)", "[% for % in % if %]", "{%: %, **%}",
            "% if % else %", "await %", "(yield %)", "*%", "-%", "% @ %", "(%, %)", "not %", "super().%(%)",
        ),
        max_leaves=6,
    )  # fmt: skip
    simple = shaped(
        expressions | NAMES, "% = %", "%: % = %", "self.% = %", "%, % = %", "%", "return %", "import %.% as %",
        "from . import %", "from ..% import (% as %, %)", "from % import *", "global %", "del %", "raise % from %",
        "type % = %", "print >>%, %", "exec % in %", "# %", "assert %, %", "'%'", "% += %",
    )  # fmt: skip
    heads = shaped(
        expressions, "if %:", "for % in %:", "while %:", "with % as %:", "try:", "else:", "except % as %:", "match %:",
        "case %:", "async for % in %:", "finally:",
    ) | shaped(
        NAMES, "def %(%, /, %: % = 1, *%, **%) -> '%':", "class %(%, metaclass=%):", "async def %():", "@%.%(%)",
        "class %:", "def %[%](%: '%.%'): ",
    )  # fmt: skip
    statements = st.recursive(
        simple,
        lambda inner: st.builds(
            lambda head, body: f"{head}\n{indented(body)}",
            heads,
            st.lists(inner, min_size=1, max_size=3).map("\n".join),
        ),
        max_leaves=8,
    )
    return st.lists(statements, max_size=5).map("\n".join)


@cache
def cpp() -> Text:
    """C++ and CUDA, mostly."""
    types = st.recursive(
        st.sampled_from(["int", "auto", "at::Tensor", "C", "std::vector<int>", "a::b::D", "void", "const C&", "T..."]),
        lambda inner: shaped(inner, "%*", "% const&", "C<%>", "std::pair<%, %>", "%::a", "decltype(%)", "%&&"),
        max_leaves=3,
    )
    expressions = st.recursive(
        NAMES | LITERALS,
        lambda inner: shaped(
            inner, "%.%", "%->%(%)", "%::%", "%<%>(%)", "%[%]", "[&](% a) { return %; }", "%<<<%, %>>>(%)", "(%)%",
            "% < %", "new %{%}", "&%", "sizeof(%)", "this->%", "operator%", "%{%, %}",
        ),
        max_leaves=6,
    )  # fmt: skip
    simple = shaped(
        expressions, "%;", "return %;", "auto % = %;", "#define %(%) % \\\n  %", "#include <%>", "using % = %;",
        "using namespace %;", "namespace % = %;", "#if %", "#else", "#endif", "// %", "/* % */", "F(%)", "goto %;",
        'TORCH_LIBRARY(%, m) { m.def("%(Tensor x) -> Tensor"); m.impl("%", torch::kCUDA, &%); }',
    ) | st.builds(
        lambda form, kind, name: form.replace("%", kind).replace("$", name),
        st.sampled_from(["% $;", "% $(% a, % b = 1);", "typedef % $;", "% C::$() const;", "% operator<(%);", "~$();",
                         "C10_EXPORT % $(%);", "friend % $(%);", "template <> struct $<%>;",
                         "enum class $ : % { a };"]),
        types, NAMES,
    )  # fmt: skip
    heads = shaped(
        NAMES, "namespace %::% {", "namespace {", "class % : public %, private % {", "struct % {",
        "template <class %> ",
        'extern "C" {', "void %::%(% x) {", "__global__ void __launch_bounds__(1) %(int* %) {", "if (%) {", "enum % {",
        "#if %\nint f() {\n#else\nint g() {\n#endif", "union {",
    )  # fmt: skip
    blocks = st.recursive(
        simple,
        lambda inner: st.builds(
            lambda head, body, close: f"{head}\n{body}\n{close}",
            heads, st.lists(inner, max_size=3).map("\n".join), st.sampled_from(["}", "};", "}", "", "} a;"]),
        ),
        max_leaves=8,
    )  # fmt: skip
    return st.lists(blocks, max_size=5).map("\n".join)


@st.composite
def sources(draw: st.DrawFn, language: str) -> bytes:
    """A whole file as bytes."""
    text = draw(python() if language == "python" else cpp())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        begin, end = sorted(draw(st.integers(0, len(text))) for _ in range(2))
        end = min(end, begin + 6)
        text = text[:begin] + draw(WRECKS) + text[end:]
    form = draw(st.sampled_from(["utf-8", "utf-8", "utf-8", "bom", "latin", "latin-said", "utf-16", "crlf", "cr"]))
    if form == "bom":
        return codecs.BOM_UTF8 + text.encode()
    if form.startswith("latin"):
        return (b"# coding: latin-1\n" if form.endswith("said") else b"") + text.encode("latin-1", "replace")
    if form == "utf-16":
        return text.encode("utf-16")
    return {"crlf": text.replace("\n", "\r\n"), "cr": text.replace("\n", "\r")}.get(form, text).encode()
