"""A verdict as one HTML file that loads nothing: the answer, the witness with its difference, what it rests on."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from annotator.contracts.findings import Witness, compact, sized
from annotator.contracts.structure import Row, Statement
from annotator.contracts.verdicts import Comparison, Verdict

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title><style>
:root { color-scheme: light dark; --line: #8884; --bad: #c33; --good: #2a7; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; border-left: .4rem solid var($colour); padding-left: .8rem; }
h2 { font-size: 1rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { border: 1px solid var(--line); padding: .2rem .6rem; text-align: right; }
th, td:first-child { text-align: left; } .off { color: var(--bad); font-weight: 600; }
pre, td, code { font-family: ui-monospace, monospace; font-size: .85rem; } .wide { overflow-x: auto; }
td pre { margin: 0; text-align: left; white-space: pre-wrap; overflow-wrap: anywhere; min-width: 12rem; }
td { vertical-align: top; } .line { color: #888; user-select: none; }
</style></head><body>
<h1>$title</h1>
$body
</body></html>
""")


def report(verdict: Verdict) -> str:
    """The page."""
    parts = []
    if not (verdict.explanation or verdict.equal or verdict.agrees_with):
        parts.append(f"<p>No dialect and no deviation explains it ({verdict.tried} candidates tried).</p>")
    told = [*(verdict.explanation.lines() if verdict.explanation else []), *verdict.told()]
    parts += [_list(line.strip() for line in told)] if told else []
    if verdict.witness:
        parts += ["<h2>Smallest input on which it differs</h2>", _witness(verdict.witness)]
    if verdict.structure:
        parts += ["<h2>Step by step</h2>", _structure(verdict.structure)]
    parts += ["<h2>What it rests on</h2>", _comparisons(verdict.comparisons)]
    notes = [*(f"not run: {reason}" for reason in verdict.not_run), *verdict.notes]
    parts += [_list(notes)] if notes else []
    parts += ["<h2>The function</h2>", _source(verdict.file)]
    colour = "--good" if verdict.equal else "--bad"
    return _PAGE.substitute(title=escape(verdict.headline()), colour=colour, body="\n".join(parts))


def _list(items: Any) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Cells are HTML already."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{top}</tr>{body}</table></div>'


def _witness(shown: Witness) -> str:
    given = [[escape(name), escape(compact(array))] for name, array in shown.case.inputs.items()]
    given += [[escape(name), escape(repr(value))] for name, value in shown.case.knobs.items()]
    parts = [_table(["input", "value"], given), f"<p><code>{escape(shown.part)}</code> {escape(shown.reason)}</p>"]
    if shown.expected is not None and shown.found is not None and shown.expected.shape == shown.found.shape:
        parts.append(_entries(shown, shown.expected, shown.found))
    elif shown.expected is not None and shown.found is not None:
        parts.append(_list([f"expected {compact(shown.expected)}", f"found {compact(shown.found)}"]))
    return "\n".join(parts)


def _entries(shown: Witness, expected: np.ndarray, found: np.ndarray, limit: int = 64) -> str:
    rows = []
    for index in list(np.ndindex(expected.shape))[:limit]:
        right, mine = expected[index], found[index]
        differs = not (right == mine or (right != right and mine != mine))
        marked = f'<span class="off">{mine:.12g}</span>' if differs else f"{mine:.12g}"
        rows.append([f"[{', '.join(map(str, index))}]", f"{right:.12g}", marked])
    return _table(["entry", "expected", "found"], rows)


def _structure(rows: tuple[Row, ...]) -> str:
    """Three columns: the user's code, the minimal version, the reference; what differs is marked."""

    def cell(items: tuple[Statement, ...]) -> str:
        told = (f'<span class="line">{item.first}</span> {escape(item.text)}' for item in items)
        return f"<pre>{'<br>'.join(told)}</pre>"

    def status(row: Row) -> str:
        told = escape(row.status) + (f": {escape(row.note)}" if row.note else "")
        return told if row.status == "same" else f'<span class="off">{told}</span>'

    body = [[status(row), cell(row.yours), cell(row.minimal), cell(row.reference)] for row in rows]
    return _table(["step", "yours", "minimal version", "reference"], body)


def _comparisons(items: tuple[Comparison, ...]) -> str:
    rows = [
        [
            escape(item.reference),
            escape(", ".join(f"{k}={v!r}" for k, v in item.dialect.items())),
            item.dtype,
            f"{item.differing} of {item.cases}",
            f"{sized(item.error)} (at most {item.bound:.1e})",
            "" if item.gradient_error is None else f"{sized(item.gradient_error)} (at most {item.gradient_bound:.1e})",
            escape(item.ran),
        ]
        for item in items
    ]
    return _table(["reference", "at", "dtype", "cases that differ", "error", "gradient error", "what was run"], rows)


def _source(file: str) -> str:
    return f"<pre class=wide>{escape(Path(file).read_text(errors='replace'))}</pre>"
