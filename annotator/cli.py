"""The command line: one verb a function, each a thin layer over the package that does the work.

Packages are imported inside the verbs, so that `annotator find` starts without them. Exit codes: 0 done, 1 the answer
is no (a check failed, an implementation differs), 2 it could not be done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from annotator import __version__
from annotator.console import Bar, bold, dim, emit, verdict
from annotator.errors import AnnotatorError, did_you_mean, near_matches
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from annotator.readings import Reading

F = TypeVar("F", bound=Callable[..., Any])


class _Verbs(click.Group):
    """The verbs in the order of a user's way through them; an unknown one brings near matches."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            hint = did_you_mean(near_matches(args[0], self.commands)) or f"verbs: {', '.join(self.commands)}"
            raise AnnotatorError(args[0], expected="a verb", found="none of that name", remedy=hint)
        return super().resolve_command(ctx, args)


def _json(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")(function)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="annotator")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option("-C", "root", type=click.Path(exists=True, file_okay=False), help="Work on this checkout.")
@click.pass_context
def cli(ctx: click.Context, debug: bool, root: str | None) -> None:
    """Read production RL code beside code that is shown to behave the same, and compare your own with it."""
    ctx.meta["debug"] = debug
    ctx.meta["root"] = root


def _workspace() -> Workspace:
    from pathlib import Path

    root = click.get_current_context().meta.get("root")
    return Workspace.find(Path(root) if root else None)


def main() -> None:
    """Run the command line. Errors become one line on standard error, without a traceback unless ``--debug``."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = 2
    except AnnotatorError as error:
        if "--debug" in sys.argv:
            raise
        click.echo(f"{click.style('error:', fg='red')} {' '.join(str(error).split())}", err=True)
        code = error.exit_code
    except BrokenPipeError:
        code = 141
    sys.exit(code if isinstance(code, int) else 0)


@cli.command()
@click.argument("pins", nargs=-1)
@click.option("--offline", is_flag=True, help="Use only what is cached.")
@click.option("--mirror", "mirrors", multiple=True, metavar="NAME=PATH_OR_URL", help="Take a git pin from this clone.")
@click.option("--verify", is_flag=True, help="Also re-read every file that is there against the lock, and repair.")
@click.option(
    "--relock", is_flag=True, help="Print the digests of the named pins, for a maintainer to write into the lock."
)
@_json
def fetch(
    pins: tuple[str, ...], offline: bool, mirrors: tuple[str, ...], verify: bool, relock: bool, as_json: bool
) -> None:
    """Fetch, verify and unpack the pins (all that are not optional, or those named)."""
    from annotator import pins as package

    workspace = _workspace()
    given = _pairs(mirrors, "--mirror")
    if relock:
        for name in pins:
            with Bar() as bar:
                click.echo(package.relock(workspace, name, mirror=given.get(name), progress=bar))
        return
    with Bar() as bar:
        done = package.fetch(workspace, list(pins) or None, offline=offline, mirrors=given, progress=bar, repair=verify)
    if as_json:
        emit([_plain(item) for item in done])
        return
    width = _widest(item.name for item in done)
    for item in done:
        size = "already here" if item.skipped else f"{item.received / 1e6:.1f} MB in {item.seconds:.1f} s"
        click.echo(f"{bold(f'{item.name:<{width}}')} {size}{', verified' if verify else ''}")


def _pairs(items: tuple[str, ...], option: str) -> dict[str, str]:
    for item in items:
        if "=" not in item:
            raise AnnotatorError(option, expected="NAME=VALUE", found=repr(item))
    return dict(item.split("=", 1) for item in items)


def _widest(names: Iterable[str]) -> int:
    """The width of a column of names."""
    return max(map(len, names), default=0)


def _plain(item: Any) -> Any:
    from dataclasses import asdict

    return asdict(item)


@cli.command()
@click.argument("pins", nargs=-1)
@click.option("--jobs", type=click.IntRange(min=1), help="Worker processes (default: the machine's cores).")
@click.option("--fresh", is_flag=True, help="Build all of it anew.")
@click.option("--unresolved", is_flag=True, help="Then show how many identifiers stay unresolved, and why.")
@click.option("--sample", default=50, show_default=True, help="Files of each pin and language for that; 0: all.")
@_json
def index(pins: tuple[str, ...], jobs: int | None, fresh: bool, unresolved: bool, sample: int, as_json: bool) -> None:
    """Build or refresh the index of the fetched pins."""
    from annotator import index as package

    if fresh and pins:
        raise click.UsageError("expected --fresh without pins: it builds all of the index")
    workspace = _workspace()
    with Bar("files") as bar:
        report = package.build(workspace, list(pins) or None, progress=bar, jobs=jobs, fresh=fresh)
    if unresolved:
        from annotator import about

        with Bar("files") as bar:
            rows = about.certainties(workspace, pins, sample=sample or None, progress=bar)
        emit(rows) if as_json else click.echo("\n".join(about.certainty_lines(rows)))
        return
    with package.Index.open(workspace) as opened:
        stats = opened.stats()
    if as_json:
        emit(_plain(report) | {"pins": stats})
        return
    width = _widest(stats)
    for name, row in stats.items():
        counted = (f"{row[what]:>9,} {what}" for what in ("files", "lines", "definitions"))
        click.echo(f"{bold(f'{name:<{width}}')} {' '.join(counted)}{_resolved(row)}")
    click.echo(f"{report.parsed:,} files parsed, {report.removed:,} removed, in {report.seconds:.1f} s")
    for line in report.skipped:
        click.echo(f"not read: {line}", err=True)


def _resolved(row: dict[str, int | float]) -> str:
    if not row.get("linked_files"):
        return ""
    return f" {row['unresolved_share']:>6.1%} unresolved in the {row['linked_files']:,} files looked into"


@cli.command()
@click.argument("name", required=False)
@click.option("--pin", help="Only in this pin.")
@click.option("--kind", help="Only this kind: module, class, function, method, …")
@click.option("--uses/--no-uses", default=True, help="Show where it is used.")
@click.option("--callers", is_flag=True, help="Show who calls it.")
@click.option("--callees", is_flag=True, help="Show what it calls.")
@click.option("--implementations", is_flag=True, help="Show the classes below it, or what they have for a method.")
@click.option("--registered", is_flag=True, help="NAME is a string: show what is registered under it.")
@click.option("--operator", is_flag=True, help="NAME is an operator of PyTorch: schema, kernels, derivative, callers.")
@click.option("--at", metavar="PATH:LINE[:COLUMN]", help="What each identifier there leads to, and how sure that is.")
@click.option("--config", metavar="KEY", help="Where a configuration key is declared, and what reads it.")
@click.option("--metric", metavar="NAME", help="Where a metric is logged, and which lines compute it.")
@click.option("--path", nargs=2, metavar="FROM TO", help="The shortest chain of calls between two names.")
@click.option("--limit", default=10, show_default=True, help="Most definitions, and most uses or calls of each.")
@_json
def find(
    name: str | None,
    pin: str | None,
    kind: str | None,
    uses: bool,
    callers: bool,
    callees: bool,
    implementations: bool,
    registered: bool,
    operator: bool,
    at: str | None,
    config: str | None,
    metric: str | None,
    path: tuple[str, str] | None,
    limit: int,
    as_json: bool,
) -> None:
    """Definition, signature, docstring head and uses of NAME; which readings and contracts are about it.

    With --path, exit code 1 says that no chain was found.
    """
    from annotator import about as package

    given = [value is not None for value in (name, path, at, config, metric)]
    if sum(given) != 1 or sum((callers, callees, implementations, registered, operator, name is None)) > 1:
        raise click.UsageError(
            "expected NAME, with --callers, --callees, --implementations, --registered or --operator at most, or "
            "--path FROM TO, --at PATH:LINE, --config KEY or --metric NAME"
        )
    workspace = _workspace()
    if at is not None:
        here = package.at(workspace, at)
        emit(here) if as_json else click.echo("\n".join(package.at_lines(here)))
        return
    if path is not None:
        with Bar("definitions") as bar:
            chain = package.path(workspace, *path, progress=bar)
        emit(chain) if as_json else click.echo("\n".join(package.path_lines(chain)))
        sys.exit(chain["calls"] is None)
    if config is not None:
        key = package.configured(workspace, config, pin=pin, limit=limit)
        emit(key) if as_json else click.echo("\n".join(package.configuration_lines(key)))
        return
    if metric is not None:
        logged = package.measured(workspace, metric, pin=pin, limit=limit)
        emit(logged) if as_json else click.echo("\n".join(package.metric_lines(logged)))
        return
    assert name is not None
    if registered:
        found = package.registered(workspace, name, pin=pin)
        emit(found) if as_json else click.echo("\n".join(package.registration_lines(found)))
        return
    if operator:
        operators = package.operator(workspace, name, pin=pin)
        emit(operators) if as_json else click.echo("\n".join(package.operator_lines(operators)))
        return
    if implementations:
        below = package.implementations(workspace, name, pin=pin, kind=kind, limit=limit)
        emit(below) if as_json else click.echo("\n".join(package.implementation_lines(below)))
        return
    if callers or callees:
        row = package.calls(workspace, name, pin=pin, kind=kind, to=callers, limit=limit)
        emit(row) if as_json else click.echo("\n".join(package.call_lines(row, to=callers)))
        return
    rows = package.about(workspace, name, pin=pin, kind=kind, uses=uses, limit=limit)
    if as_json:
        emit(rows)
        return
    for line in package.lines(rows):
        click.echo(line)


@cli.command()
@click.argument("reading", required=False)
@click.option("--all", "whole", is_flag=True, help="Print every step without waiting.")
@_json
def read(reading: str | None, whole: bool, as_json: bool) -> None:
    """Guided tour of READING in the terminal; without a name, the list of readings."""
    from annotator import readings as package
    from annotator.tour import tour

    workspace = _workspace()
    known = {item.name: item for item in package.load(workspace) if item.steps}
    if reading is None:
        _list_readings(known, as_json)
        return
    name = reading.removeprefix("walkthroughs/").removesuffix(".md")
    chosen = known.get(name) or next((item for key, item in known.items() if key.split("/")[-1] == name), None)
    if chosen is None:
        hint = did_you_mean(near_matches(name, known)) or f"readings: {', '.join(known)}"
        raise AnnotatorError(reading, expected="a reading", found="none of that name", remedy=hint)
    tour(workspace, chosen, pause=sys.stdout.isatty() and sys.stdin.isatty() and not whole, as_json=as_json)


def _list_readings(known: dict[str, Reading], as_json: bool) -> None:
    if as_json:
        emit([{"reading": name, "title": item.title, "steps": len(item.steps)} for name, item in known.items()])
        return
    for name, item in known.items():
        click.echo(f"{bold(name):<32} {item.title} {dim(f'({len(item.steps)} steps)')}")


@cli.command()
@_json
def anchors(as_json: bool) -> None:
    """Write the redundant form of every anchor to walkthroughs/anchors.lock."""
    from annotator.readings import write_anchors

    workspace = _workspace()
    workspace.ask_for_checkout("annotator anchors")
    written = write_anchors(workspace)
    emit(written) if as_json else click.echo("\n".join(written))


@cli.command()
@click.argument("names", metavar="[READING]...", nargs=-1)
@click.option("--list", "listing", is_flag=True, help="List the readings that have a scenario.")
@_json
def observe(names: tuple[str, ...], listing: bool, as_json: bool) -> None:
    """Run the pinned code of readings (all that have a scenario) and record what their lines make."""
    from annotator import observations as package

    workspace = _workspace()
    if listing:
        known = package.scenarios(workspace)
        emit(known) if as_json else click.echo("\n".join(known))
        return
    workspace.ask_for_checkout("annotator observe")
    done: list[dict[str, Any]] = []
    for name in names or package.scenarios(workspace):
        with Bar("runs") as bar:
            made = package.observe(workspace, name.removeprefix("walkthroughs/").removesuffix(".md"), progress=bar)
        file = package.write(workspace, made.observed)
        done.append({"reading": made.observed.reading, "file": os.path.relpath(file), **made.figures()})
        if not as_json:
            row = done[-1]
            click.echo(
                f"{bold(row['reading'])} {row['steps']} steps, {row['values']} values, {row['gradients']} gradients "
                + dim(f"recording took {row['slowdown']:.1f} times as long as running")
            )
    if as_json:
        emit(done)


@cli.command()
@click.option("--strict/--no-strict", default=True, help="A warning is an error.")
@click.option("--full", is_flag=True, help="A source page for every file of the index (a gigabyte of pages).")
@_json
def build(strict: bool, full: bool, as_json: bool) -> None:
    """Build the static site into site/."""
    from annotator import site as package

    with Bar("pages") as bar:
        folder = package.build(_workspace(), strict=strict, full=full, progress=bar)
    emit({"site": str(folder)}) if as_json else click.echo(f"the site is at {os.path.relpath(folder)}/index.html")


@cli.command()
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8000, show_default=True)
def serve(host: str, port: int) -> None:
    """Serve the site and rebuild it while readings change."""
    from annotator import site as package

    package.serve(_workspace(), host=host, port=port)


@cli.command()
@_json
def check(as_json: bool) -> None:
    """Whether every anchor, link, claim and proof holds."""
    from annotator.checking import check as run
    from annotator.checking import notes

    problems = run(_workspace())
    if as_json:
        emit([_plain(problem) for problem in problems])
    else:
        for problem in problems:
            click.echo(f"{problem.place}: {problem.message}")
        for note in notes(_workspace()):
            click.echo(dim(f"note: {note.place}: {note.message}"))
        click.echo(verdict(not problems, "everything holds" if not problems else f"{len(problems)} problems"))
    sys.exit(1 if problems else 0)


@cli.command()
@click.argument("contracts", nargs=-1)
@click.option("--impl", "names", multiple=True, help="Only this implementation (may be repeated).")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    type=click.Choice(["float64", "float32", "bfloat16", "float16"]),
    help="Only this dtype (may be repeated). Without it: all four on a GPU, the first two on the CPU.",
)
@click.option("--device", default="cpu", show_default=True, help="cpu, or cuda.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes.")
@click.option("--ray", metavar="ADDRESS", help="Spread over this Ray cluster; local starts one here.")
@click.option("--examples", default=40, show_default=True, help="Generated cases, besides the named edge cases.")
@click.option("--power", is_flag=True, help="Show which probe catches each deviation.")
@click.option("--record", is_flag=True, help="Write the proofs to tests/proofs/.")
@click.option("--list", "listing", is_flag=True, help="List the contracts.")
@_json
def conform(
    contracts: tuple[str, ...],
    names: tuple[str, ...],
    dtypes: tuple[str, ...],
    device: str,
    jobs: int,
    ray: str | None,
    examples: int,
    power: bool,
    record: bool,
    listing: bool,
    as_json: bool,
) -> None:
    """Run contracts: every implementation against the float64 oracle."""
    from annotator import catalog
    from annotator import contracts as package

    chosen = [catalog.contract(name) for name in (contracts or catalog.names())]
    if listing:
        _list_contracts(chosen, as_json)
        return
    if record:
        _workspace().ask_for_checkout("annotator conform --record")
    if power:
        sys.exit(_power(chosen, record, as_json))
    findings: list[Any] = []
    path = None
    with Bar("cases") as bar:
        runs = package.conform_all(
            chosen,
            jobs=jobs,
            ray=ray,
            names=names,
            device=device,
            dtypes=dtypes,
            examples=examples,
            progress=bar,
        )
        for item, found in runs:
            findings += found
            if record and any(finding.passed for finding in found):  # at once: a later one may outlast the machine
                path = package.proofs.record(_workspace(), found)
            if not as_json:
                _show_findings(item.name, found)
    if as_json:
        emit([finding.to_json() for finding in findings])
    if record:
        click.echo(f"recorded in {path}" if path else "nothing passed, hence nothing is recorded", err=True)
    sys.exit(0 if all(finding.passed for finding in findings) else 1)


def _list_contracts(chosen: list[Any], as_json: bool) -> None:
    if as_json:
        emit([{"contract": item.name, "kind": item.kind, "title": item.title} for item in chosen])
        return
    width = _widest(item.name for item in chosen)
    for item in chosen:
        click.echo(f"{bold(f'{item.name:<{width}}')} {item.kind:<13} {item.title}")


def _show_findings(name: str, findings: list[Any]) -> None:
    click.echo(bold(name))
    for finding in findings:
        click.echo("  " + finding.line())
        if not finding.passed and finding.witness:
            click.echo("    " + "\n    ".join(finding.witness_lines()))


def _power(chosen: list[Any], record: bool, as_json: bool) -> int:
    from annotator import contracts as package
    from annotator.contracts import powers

    tables = {}
    with Bar("contracts") as bar:
        bar.start("power", len(chosen))
        for item in chosen:
            tables[item.name] = package.power(item)
            if record and all(row.caught for row in tables[item.name] if row.kind == "deviation"):
                powers.record(_workspace(), item, tables[item.name])
            bar.advance("power", 1)
        bar.finish("power")
    if as_json:
        emit({name: [_plain(row) for row in rows] for name, rows in tables.items()})
    else:
        for name, rows in tables.items():
            _show_matrix(name, rows)
    return 0 if all(row.sound for rows in tables.values() for row in rows) else 1


def _show_matrix(name: str, rows: list[Any]) -> None:
    """The kill matrix: a row a deviation and dtype, a column a probe; rewritings below, where nothing may stand."""
    from annotator.contracts.kills import columns

    probes = columns(rows)
    width = _widest(row.deviation for row in rows)
    click.echo(bold(f"{name}  ({', '.join(probes)})"))
    for row in rows:
        marks = " ".join((probe if probe in row.probes else "·").center(len(probe)) for probe in probes)
        told = "" if row.sound else "  SURVIVES" if row.kind == "deviation" else "  FALSE ALARM"
        click.echo(f"  {row.deviation:<{width}} {row.dtype:<8} {marks}  at {row.reference}: {row.facts()}{told}")
    deviations, rewritings = ([row for row in rows if row.kind == kind] for kind in ("deviation", "rewriting"))
    caught = sum(row.caught for row in deviations)
    alarms = sum(row.caught for row in rewritings)
    click.echo(f"  {caught} of {len(deviations)} caught, {alarms} false alarms on {len(rewritings)} rewritings")


@cli.command()
@click.argument("target", metavar="FILE:FUNC", required=False)
@click.argument("contract", required=False)
@click.option("--map", "mapping", multiple=True, metavar="THEIRS=OURS", help="Rename a parameter or output.")
@click.option("--init", multiple=True, metavar="KEY=VALUE", help="Argument of the class in FILE:Class.method.")
@click.option("--backend", type=click.Choice(["torch", "jax", "numpy"]), help="What your function computes with.")
@click.option("--timeout", default=20.0, show_default=True, help="Seconds that one call may take.")
@click.option("--memory", default=8.0, show_default=True, help="GiB that your code may use.")
@click.option("--examples", default=40, show_default=True, help="Generated cases, besides the named edge cases.")
@click.option("--template", metavar="CONTRACT", help="Print a starting file for this contract.")
@click.option("--emit", "emitted", type=click.Path(dir_okay=False), help="Write the witness as a pytest file.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report that loads nothing.")
@click.option(
    "--structure", is_flag=True, help="Show the code step by step: yours, the minimal version, the reference."
)
@_json
def diff(
    target: str | None,
    contract: str | None,
    mapping: tuple[str, ...],
    init: tuple[str, ...],
    backend: str | None,
    timeout: float,
    memory: float,
    examples: int,
    template: str | None,
    emitted: str | None,
    html: str | None,
    structure: bool,
    as_json: bool,
) -> None:
    """Whether your function FILE:FUNC (or FILE:Class.method) does the same as the references of CONTRACT.

    If not: the dialect or the deviation that explains it, and the smallest input that shows the difference.
    """
    from annotator import catalog
    from annotator import contracts as package
    from annotator.contracts import diffing

    if template:
        click.echo(package.template(catalog.contract(template)))
        return
    if not target or not contract or ":" not in target:
        remedy = "for example: annotator diff my.py:advantages grpo-advantage"
        raise AnnotatorError(
            "annotator diff", expected="FILE:FUNC CONTRACT", found=f"{target} {contract}", remedy=remedy
        )
    file, function = target.rsplit(":", 1)
    with Bar("cases") as bar:
        answer = package.diff(
            file,
            function,
            catalog.contract(contract),
            mapping=_pairs(mapping, "--map"),
            init=diffing.literals(_pairs(init, "--init")),
            backend=backend,
            timeout=timeout,
            memory=int(memory * 2**30),
            examples=examples,
            progress=bar,
        )
    if as_json:
        emit(answer.to_json())
    else:
        for line in answer.render(structure=structure):
            click.echo(line)
    for line in diffing.write(answer, catalog.contract(contract), emitted=emitted, html=html):
        click.echo(line, err=True)
    sys.exit(0 if answer.equal else 1)


if __name__ == "__main__":
    main()
