"""What holds for every contract of the catalogue: stages arrive, breaks are real, rewritings raise no alarm."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from annotator import catalog
from annotator.contracts import conform, refuse
from annotator.contracts.comparison import error
from annotator.contracts.conforming import references, unavailable
from annotator.contracts.kills import breaks_are_real
from annotator.contracts.oracle import at
from annotator.contracts.running import run
from annotator.contracts.sampling import draw
from annotator.contracts.staging import whole
from annotator.contracts.structure import entry_of

ROOT = Path(__file__).parents[2]
CONTRACTS = {name: catalog.contract(name) for name in catalog.names()}
STAGED = [name for name, contract in CONTRACTS.items() if contract.stages]
BREAKING = [
    (name, item.name) for name, contract in CONTRACTS.items() for item in contract.implementations if item.breaks
]
TORCH = [
    name
    for name, contract in CONTRACTS.items()
    if any(item.role == "minimal" and item.backend == "torch" for item in contract.implementations)
]


def minimal(contract):
    return next(item for item in contract.implementations if item.role == "minimal" and item.backend == "torch")


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_states_what_it_is_believed_by(name):
    contract = CONTRACTS[name]
    assert len(contract.deviations) >= 4
    assert contract.rewritings, "no equivalent rewriting stands beside it"
    assert contract.probes or contract.kind == "trace", "no probe that needs no reference"


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_implementation_in_torch_conforms(name):
    """`annotator conform` runs them all, on more cases; here none waits for JAX to compile."""
    contract = CONTRACTS[name]
    names = [item.name for item in contract.implementations if item.backend != "jax"]
    findings = conform(contract, names=names, examples=6)
    assert any(finding.passed for finding in findings)
    for finding in findings:
        assert finding.passed or finding.status == "not run", "\n".join([finding.line(), *finding.witness_lines()])


@pytest.mark.parametrize("name", STAGED)
def test_the_stages_arrive_at_the_output(name):
    contract = CONTRACTS[name]
    item, reference = minimal(contract), references(contract)[0]
    ends = {output.name for output in contract.outputs}
    assert contract.stages[-1].name in ends
    moved = [at(case, reference.dialect) for case in draw(contract, 6)]
    seen = 0
    for case in (case for case in moved if item.accepts(case) is None and reference.accepts(case) is None):
        right = run(contract, item.call, item.backend, case, gradient=False).outputs
        for output, value in whole(contract, case).items():
            assert error(np.asarray(value, dtype=float), right[output].astype(float), condition=1.0) < 1e-12, (
                output,
                case,
            )
            seen += 1
    assert seen >= 3


@pytest.mark.parametrize("name", STAGED)
def test_a_deviation_names_the_stage_at_which_it_leaves_the_path(name):
    contract = CONTRACTS[name]
    places = {item.name for item in (*contract.stages, *contract.outputs)}
    assert {item.name for item in contract.deviations if item.stage not in places} == set()


@pytest.mark.parametrize(("name", "implementation"), BREAKING)
def test_a_declared_break_is_real(name, implementation):
    assert breaks_are_real(CONTRACTS[name], implementation, examples=10) == []


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_deviation_is_caught_and_no_rewriting(name):
    contract = CONTRACTS[name]
    if any(unavailable(item, "cpu") for item in references(contract)):
        pytest.skip("a reference cannot be run here")
    refuse(contract, examples=8)


@pytest.mark.parametrize("name", TORCH)
def test_the_minimal_version_can_be_shown_beside_other_code(name):
    assert entry_of(minimal(CONTRACTS[name])) is not None


def row(contract):
    """Its row in the table of walkthroughs/contracts.md."""
    own = [item for item in contract.implementations if item.role == "minimal"]
    entry = next((found for found in map(entry_of, own) if found), (own[0].symbols[0], ""))
    topic = re.sub(r"^minimal/|(_torch|_jax)?\.py$", "", entry[0])
    held = ", ".join(item.name for item in references(contract))
    return (
        f"| [`{contract.name}`](methods/{contract.name}.md) | {contract.kind} | {contract.title} | {held} | `{topic}` |"
    )


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_page_on_contracts_has_its_row(name):
    assert row(CONTRACTS[name]) in (ROOT / "walkthroughs/contracts.md").read_text("utf-8").splitlines()


def test_the_page_on_minimal_has_every_module():
    modules = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "minimal").glob("*/*.py")
    }
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "walkthroughs/api/minimal").glob("*.md"))
    shown = re.findall(r"^::: (\S+)", pages, re.MULTILINE)
    assert {name for name in modules if not name.endswith("__init__")} == set(shown)
