"""C++ functions have two places: where they are declared and where their bodies are. From either to the other.

Overloads are told apart by the types of their parameters as they are written; a declaration that writes them otherwise
counts only if none writes them alike, and if it takes as many.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from annotator.index.lookup import Index
    from annotator.index.model import Definition

NAMED = re.compile(r"(.*[\s&*>\]])([A-Za-z_]\w*)((?:\[[^\]]*\])*)$")


def counterparts(index: Index, definition: Definition) -> tuple[bool, list[Definition]]:
    """Whether a C++ function has a body; then its declarations, else the bodies that it may have, near ones first."""
    from annotator.index.lookup import COLUMNS, SOURCE, definition_of
    from annotator.index.seams import shared

    if definition.language == "python" or definition.kind not in ("function", "method"):
        return False, []
    statement = (
        f"SELECT {COLUMNS}, d.hint {SOURCE} WHERE d.name=? AND f.pin=? AND d.qualname=? AND f.language != 'python' "
        "AND d.kind IN ('function', 'method')"
    )
    values = (definition.name, definition.pin, definition.qualname)
    rows = [(definition_of(row), row[-1] == "body") for row in index.connection.execute(statement, values)]
    has_body = (definition, True) in rows
    others = [one for one, body in rows if body != has_body]
    wanted = parameter_types(definition)
    same = [one for one in others if parameter_types(one) == wanted]
    alike = [one for one in others if len(parameter_types(one)) == len(wanted)]
    return has_body, sorted(same or alike, key=lambda one: (-shared(one.path, definition.path), one.path, one.line))


def parameter_types(definition: Definition) -> tuple[str, ...]:
    """The types of the parameters as written, without names, defaults, comments and white space."""
    from annotator.index.linking_cpp import top_level

    start = definition.signature.find(f"{definition.name}(")
    if start < 0:
        return ()
    text = definition.signature[start + len(definition.name) + 1 :]
    return tuple(_type(part) for part in top_level(text) if part.strip() not in ("", "void"))


def _type(parameter: str) -> str:
    plain = parameter.split("=")[0].strip()
    match = NAMED.match(plain)
    kept = f"{match[1]}{match[3]}" if match and match[1].strip() not in ("const", "unsigned", "struct") else plain
    return "".join(kept.split())
