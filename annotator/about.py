"""`annotator find`: all that is known about a name, gathered from the index, the anchors and the readings.

Apart from the index because readings and contracts come after it in the chain. Imports nothing heavy: it must answer at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from annotator.console import bold, dim
from annotator.errors import AnnotatorError, SymbolNotFound, did_you_mean
from annotator.index import Call, Definition, Index, Link
from annotator.readings import read_anchors
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.pins import Progress

Row = dict[str, Any]


def about(workspace: Workspace, name: str, *, pin: str | None, kind: str | None, uses: bool, limit: int) -> list[Row]:
    """The definitions that ``name`` may mean, best first, the uses of the best, and the steps and contracts about each.

    Raises:
        SymbolNotFound: there is none; near matches are suggested.
    """
    steps = _steps(workspace)
    with Index.open(workspace) as index:
        found = index.find(name, pin=pin, kind=kind, limit=limit)
        if not found:
            raise SymbolNotFound(name, index.near(pin or "", name))
        rows = [_row(item, steps.get(item.symbol, [])) for item in found]
        if uses:
            rows[0]["uses"] = [asdict(use) for use in index.uses(found[0], limit=limit)]
        if found[0].language != "python":
            from annotator.index.declarations import counterparts

            has_body, others = counterparts(index, found[0])
            rows[0]["declared" if has_body else "defined"] = [asdict(item) for item in others[:limit]]
    for row in (row for part in (rows, *map(rows[0].get, ("uses", "declared", "defined"))) for row in part or ()):
        row["place"] = f"{workspace.place(row['pin'], row['path'])}:{row['line']}"
    return rows


def calls(workspace: Workspace, name: str, *, pin: str | None, kind: str | None, to: bool, limit: int) -> Row:
    """The best definition of ``name`` with the calls ``to`` it, or else those that it makes.

    Raises:
        SymbolNotFound: there is none; near matches are suggested.
    """
    from annotator.index.calls import callees, callers, partial

    with Index.open(workspace) as index:
        found = _best(index, name, pin, kind)
        made = callers(index, found, limit + 1) if to else callees(index, found)
        cut = to and len(made) <= limit and partial(index, found)
    calls = [_call(workspace, call) for call in made[:limit]]
    return {
        "symbol": found.symbol,
        "kind": found.kind,
        "calls": calls,
        "more": len(made) > limit,
        "partial": cut,
    }


def implementations(workspace: Workspace, name: str, *, pin: str | None, kind: str | None, limit: int) -> Row:
    """The best definition of ``name``, a class or a method, with the classes below and what each has for it.

    Raises:
        SymbolNotFound: there is none; near matches are suggested.
        IndexFileError: it is neither a class nor a method.
    """
    from annotator.index.implementations import implementations as derived

    with Index.open(workspace) as index:
        found = _best(index, name, pin, kind)
        made = derived(index, found)
    rows = [
        {"class": one.of.symbol, "symbol": one.definition.symbol, "overrides": one.overrides, "steps": one.steps}
        | {"place": f"{workspace.place(one.definition.pin, one.definition.path)}:{one.definition.line}"}
        for one in made[:limit]
    ]
    return {"symbol": found.symbol, "kind": found.kind, "implementations": rows, "more": len(made) > limit}


def implementation_lines(row: Row) -> Iterator[str]:
    """Implementations for a terminal, a line each: the class, whether it overrides, and where."""
    yield f"{bold(row['symbol'])}  {dim(row['kind'])}"
    for one in row["implementations"]:
        word = "derives" if row["kind"] == "class" else "overrides" if one["overrides"] else "inherits"
        yield dim(f"  {word:<9} {one['steps']} up  ") + f"{one['place']}  {one['class']}"
    if row["more"]:
        yield dim("  … and more; --limit shows them")
    if not row["implementations"]:
        yield "  no class of the pins derives from it"


def registered(workspace: Workspace, name: str, *, pin: str | None) -> list[Row]:
    """Where a name is registered, and what stands behind it.

    Raises:
        AnnotatorError: nowhere; strings that are spelt like it are suggested.
    """
    from annotator.index.registries import near
    from annotator.index.registries import registered as registrations

    with Index.open(workspace) as index:
        found = registrations(index, name, pin)
        if not found:
            remedy = did_you_mean([each for each in near(index, name) if registrations(index, each, pin)])
            raise AnnotatorError(name, expected="a name that is registered", found="none of that name", remedy=remedy)
    return [
        asdict(item)
        | {"target": item.target and item.target.symbol, "place": f"{workspace.place(item.pin, item.path)}:{item.line}"}
        for item in found
    ]


def registration_lines(rows: list[Row]) -> Iterator[str]:
    """Registrations for a terminal: what stands behind the name, then where and with what it is registered."""
    for row in rows:
        group = row["how"] == "group"
        role = f", {row['role']}" if row["role"] else ""
        unknown = "entry points of this group are loaded here" if group else "what it is is not plain"
        yield bold(row["target"] or unknown) + dim(f"  {row['certainty']}{role}")
        plain_member = row["how"] == "member" and "register" not in row["registry"].lower()
        word = "of" if row["how"].startswith("entry") or plain_member else "by"
        yield f"  {row['place']}  {row['how']} {word} {row['registry']}"


def at(workspace: Workspace, place: str) -> Row:
    """What each identifier on a line leads to, how sure that is, and why it is no surer.

    Raises:
        IndexFileError: the index has no such place; near paths are suggested.
    """
    from annotator.index.certainty import line_at

    with Index.open(workspace) as index:
        found = line_at(index, place)
    links = [_link(workspace, link) for link in found.links]
    return {"place": f"{workspace.place(found.pin, found.path)}:{found.line}", "text": found.text, "links": links}


def _link(workspace: Workspace, link: Link) -> Row:
    row = asdict(link) | {"target": link.target and link.target.symbol, "kind": link.target and link.target.kind}
    if link.target:
        row["place"] = f"{workspace.place(link.target.pin, link.target.path)}:{link.target.line}"
    return row


def at_lines(row: Row) -> Iterator[str]:
    """The links of a line for a terminal."""
    yield f"{bold(row['place'])}  {row['text'].strip()}"
    width = max((len(link["name"]) for link in row["links"]), default=0)
    for link in row["links"]:
        where = link["target"] or link["external"] or ""
        why = f"  ({link['reason']})" if link["reason"] and where else f"  {link['reason']}"
        certainty = dim(f"{link['certainty']:<10}")
        yield f"  {link['column']:>3} {link['name']:<{width}}  {certainty} {where}{why}".rstrip()
        if link["target"]:
            yield dim(f"  {'':>3} {'':<{width}}  {'':<10} {link['place']}")
    if not row["links"]:
        yield "  no identifier stands there"


def certainties(workspace: Workspace, pins: Sequence[str], *, sample: int | None, progress: Progress) -> list[Row]:
    """How sure the links of the pins are, by language, with the commonest reasons why not."""
    from annotator.index.certainty import tallies

    with Index.open(workspace) as index:
        found = [tally for pin in pins or index.pins() for tally in tallies(index, pin, sample, progress)]
    shares = ("exact", "inferred", "unresolved")
    return [
        {"pin": one.pin, "language": one.language, "files": one.files, "of": one.of, "identifiers": one.identifiers}
        | {name: one.share(name) for name in shares}
        | {"reasons": dict(one.reasons.most_common())}
        for one in found
    ]


def certainty_lines(rows: list[Row]) -> Iterator[str]:
    """The shares for a terminal, each with the three commonest reasons."""
    for row in rows:
        shares = ", ".join(f"{row[name]:.1%} {name}" for name in ("exact", "inferred", "unresolved"))
        files = f"{row['files']:,} of {row['of']:,} files, {row['identifiers']:,} identifiers"
        yield f"{bold(row['pin'])} {row['language']}: {shares}  {dim(f'({files})')}"
        for reason, count in list(row["reasons"].items())[:3]:
            yield dim(f"  {count / row['identifiers']:.1%}") + f" {reason}"


def configured(workspace: Workspace, key: str, *, pin: str | None, limit: int) -> Row:
    """Where a configuration key is declared, and what reads it.

    Raises:
        AnnotatorError: nowhere; keys that are spelt like it are suggested.
    """
    from annotator.index.configuration import configured as answer
    from annotator.index.configuration import near

    with Index.open(workspace) as index:
        found = answer(index, key, pin)
        if not found.declared:
            remedy = did_you_mean(near(index, key, pin))
            raise AnnotatorError(key, expected="a configuration key", found="none of that name", remedy=remedy)
    declared, reads = ([_placed(workspace, item) for item in items] for items in (found.declared, found.reads))
    for row, item in zip(declared, found.declared, strict=True):
        row["target"] = item.target and item.target.symbol
    return {"key": key, "declared": declared, "reads": reads[:limit], "more": len(reads) > limit}


def measured(workspace: Workspace, name: str, *, pin: str | None, limit: int) -> Row:
    """Where a metric is logged, each with the lines that lead back to what computes it.

    Raises:
        AnnotatorError: nowhere; names that are spelt like it are suggested.
    """
    from annotator.index.metrics import measured as answer
    from annotator.index.metrics import near

    with Index.open(workspace) as index:
        found = answer(index, name, pin)
        if not found:
            remedy = did_you_mean(near(index, name, pin))
            raise AnnotatorError(name, expected="a metric that is logged", found="none of that name", remedy=remedy)
    rows = [
        _placed(workspace, item) | {"hops": [_placed(workspace, hop) for hop in item.hops]} for item in found[:limit]
    ]
    return {"metric": name, "logged": rows, "more": len(found) > limit}


def metric_lines(row: Row) -> Iterator[str]:
    """A metric for a terminal: each place that logs it, and below it the way back to the line that computes it."""
    for item in row["logged"]:
        yield f"{bold(item['name'])}  {dim(item['certainty'] + ', ' + item['reason'])}"
        yield f"  {item['place']}"
        yield f"      {item['text']}"
        for hop in item["hops"]:
            yield dim(f"  {hop['reason']}, {hop['certainty']}  ") + hop["place"]
            yield f"      {hop['text']}"
    if row["more"]:
        yield dim("… and more; --limit shows them")


def _placed(workspace: Workspace, item: Any) -> Row:
    row = asdict(item)
    return row | {"place": f"{workspace.place(row['pin'], row['path'])}:{row['line']}"}


def configuration_lines(row: Row) -> Iterator[str]:
    """A configuration key for a terminal: its declarations, then what reads it."""
    for item in row["declared"]:
        value = {"yaml": f" = {item['text']}", "mount": f" is {item['text']}"}.get(item["how"], "")
        yield f"{bold(item['key'])}{value}  {dim(item['how'])}"
        yield f"  {item['place']}" + (dim(f"  {item['note']}") if item["note"] else "")
        if item["how"] in ("field", "option"):
            yield f"  {item['text']}"
        if item["target"]:
            yield f"  {'taken from' if item['how'] == 'field' else 'becomes'} {item['target']}"
        yield from (f"  refers to {each}" for each in item["refers"])
    for read in row["reads"]:
        verb = "set" if read["how"] == "set" else "read"
        yield dim(f"  {verb + ', ' + read['certainty']:<15}") + f" {read['place']}  {dim(read['reason'])}"
        yield f"      {read['text']}"
    if row["more"]:
        yield dim("  … and more; --limit shows them")
    if not row["reads"]:
        yield "  no read found; what goes through a dictionary of keys or an object of another name is not followed"


def operator(workspace: Workspace, name: str, *, pin: str | None) -> list[Row]:
    """The operators of PyTorch that a name may mean, each with its places.

    Raises:
        AnnotatorError: there is none; operators that are spelt like it are suggested.
    """
    from annotator.index.operators import near, operators

    with Index.open(workspace) as index:
        found = operators(index, name, pin)
        if not found:
            remedy = did_you_mean(near(index, name))
            raise AnnotatorError(name, expected="an operator", found="none of that name", remedy=remedy)
    rows = [asdict(item) for item in found]
    for part in (part for row in rows for part in row["parts"]):
        part["place"] = f"{workspace.place(part['pin'], part['path'])}:{part['line']}"
    return rows


def operator_lines(rows: list[Row]) -> Iterator[str]:
    """Operators for a terminal: each place with its certainty, what stands there, and why it is not exact."""
    for row in rows:
        yield bold(row["name"])
        for part in row["parts"]:
            what = f"{part['role']} {part['key']}".strip()
            yield f"  {what}  {part['place']}  {dim(part['certainty'])}"
            yield f"      {part['symbol'].partition(':')[2] or part['text'] or 'no plain name'}"
            if part["reason"]:
                yield dim(f"      {part['reason']}")


def path(workspace: Workspace, start: str, goal: str, progress: Progress | None = None) -> Row:
    """The shortest chain of calls between the best definitions of two names; its ``calls`` are None if there is none.

    Raises:
        SymbolNotFound: one of them names nothing; near matches are suggested.
    """
    from annotator.index.paths import WIDEST
    from annotator.index.paths import path as chain

    with Index.open(workspace) as index:
        first, last = _best(index, start), _best(index, goal)
        made = chain(index, first, last, progress=progress)
    found = None if made is None else [_call(workspace, call) for call in made]
    return {"from": first.symbol, "to": last.symbol, "calls": found, "within": WIDEST}


def _best(index: Index, name: str, pin: str | None = None, kind: str | None = None) -> Definition:
    found = index.find(name, pin=pin, kind=kind, limit=1)
    if not found:
        raise SymbolNotFound(name, index.near(pin or "", name))
    return found[0]


def _call(workspace: Workspace, call: Call) -> Row:
    return asdict(call) | {"place": f"{workspace.place(call.pin, call.path)}:{call.line}"}


def call_lines(row: Row, *, to: bool) -> Iterator[str]:
    """The calls of a definition for a terminal, each with its line of source."""
    yield f"{bold(row['symbol'])}  {dim(row['kind'])}"
    for call in row["calls"]:
        word, other = ("called", call["caller"]) if to else ("calls", call["callee"])
        yield dim(f"  {word}, {call['certainty']:<9}") + f"{call['place']}  {other.partition(':')[2]}{_why(call)}"
        yield f"      {call['text']}"
    if row["more"]:
        yield dim("  … and more; --limit shows them")
    if row["partial"]:
        yield dim("  … and perhaps more: of many places that may call it indirectly, not all were asked")
    if not row["calls"]:
        yield "  no call found; what goes through C++ or an object of unknown class is not followed"


def path_lines(row: Row) -> Iterator[str]:
    """A chain of calls for a terminal, a line a hop."""
    if row["calls"] is None:
        yield (
            f"no chain of calls from {row['from']} to {row['to']} within the nearest {row['within']:,} definitions; "
            "what goes through C++ or an object of unknown class is not followed"
        )
        return
    yield bold(row["from"])
    for call in row["calls"]:
        place, callee = call["place"], call["callee"].partition(":")[2]
        yield dim(f"  calls, {call['certainty']:<9}") + f"{place}  {callee}{_why(call)}"


def _why(call: Row) -> str:
    """Why a call is inferred."""
    return dim(f"  ({call['reason']})") if call["certainty"] != "exact" and call["reason"] else ""


def _steps(workspace: Workspace) -> dict[str, list[Row]]:
    """Symbol → the steps of readings about it, from the anchors' lock."""
    steps: dict[str, list[Row]] = {}
    for key, record in read_anchors(workspace).items():
        reading, _, step = key.partition("#")
        steps.setdefault(record.symbol, []).append({"reading": reading, "step": step, "contract": record.contract})
    return steps


def _row(item: Definition, steps: list[Row]) -> Row:
    contracts = dict.fromkeys(step["contract"] for step in steps if step["contract"])
    return asdict(item) | {"symbol": item.symbol, "readings": steps, "contracts": list(contracts)}


def lines(rows: list[Row]) -> Iterator[str]:
    """The rows for a terminal: the best in full, a line for each of the others."""
    yield from _whole(rows[0])
    if len(rows) > 1:
        yield dim("also")
        for row in rows[1:]:
            yield f"  {row['symbol']}  {dim(row['kind'])}  {row['place']}"


def _whole(row: Row) -> Iterator[str]:
    yield f"{bold(row['symbol'])}  {dim(row['kind'])}"
    yield f"  {row['place']}"
    yield from (f"  {part}" for part in (row["signature"], row["doc"]) if part)
    for reading in dict.fromkeys(step["reading"] for step in row["readings"]):
        ids = ", ".join(step["step"] for step in row["readings"] if step["reading"] == reading)
        yield f"  read in walkthroughs/{reading}.md, steps {ids}"
    yield from (f"  shown by the contract {name}" for name in row["contracts"])
    for word in ("declared", "defined"):
        yield from (f"  {word} in {item['place']}" for item in row.get(word, []))
    yield from _uses(row)


def _uses(row: Row) -> Iterator[str]:
    for use in row.get("uses", []):
        inside = f"  in {use['within'].partition(':')[2]}" if use["within"] else ""
        yield dim(f"  used, {use['certainty']:<9}") + f" {use['place']}{inside}"
