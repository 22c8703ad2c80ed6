"""The proof card: what is missing or stale is said in red; nothing is invented."""

import json
from typing import Any

import pytest

from annotator import catalog
from annotator.contracts import powers, proofs
from annotator.errors import ReadingError
from annotator.site import proof, step
from annotator.workspace import Workspace

from .conftest import write

NAME = "grpo-advantage"


def entries(workspace: Workspace, **changes: Any) -> list[dict[str, Any]]:
    """A proof for everything that the contract promises, on paper."""
    contract = catalog.contract(NAME)
    return [
        {
            "contract": NAME,
            "implementation": implementation,
            "reference": reference,
            "dtype": dtype,
            "device": "cpu",
            "error": 3.14e-16,
            "bound": 1e-10,
            "gradient_error": 0.0,
            "date": "2026-01-02",
            "versions": {"torch": "9.9.9"},
            "digests": {},
            **changes,
        }
        for _, implementation, reference, dtype in proofs.expected(contract)
    ]


def power(**changes: Any) -> dict[str, Any]:
    """Everything caught, on paper."""
    contract = catalog.contract(NAME)
    caught = {item.name: {"float64": "value edge", "float32": "value"} for item in contract.deviations}
    quiet = {item.name: {"float64": "", "float32": ""} for item in contract.rewritings}
    return {"deviations": caught, "rewritings": quiet, "date": "2026-01-03", "versions": {}, "digests": {}, **changes}


def card(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    recorded: dict[str, list[dict[str, Any]]],
    stale: str = "",
    **caught: Any,
) -> proof.Card:
    write(workspace.proofs / "power/cpu.json", json.dumps({NAME: power(**caught)}))
    for device, found in recorded.items():
        write(workspace.proofs / f"{device}.json", json.dumps({"device": device, "entries": found}))
    monkeypatch.setattr(proofs, "stale", lambda *_: stale)
    monkeypatch.setattr(powers, "stale", lambda *_: stale)
    return proof.card(workspace, NAME, "walkthroughs/a/run.md:1")


def html(found: proof.Card, full_at: str = "") -> str:
    return step.environment().get_template("proof.html").render(card=found, full_at=full_at, method="")


def test_no_proof_is_said_in_red(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(workspace, monkeypatch, {})
    assert found.problems == ("No proof is recorded.",)
    assert '<p class="bad">No proof is recorded.</p>' in html(found)
    assert "<code>annotator conform grpo-advantage</code>" in html(found)


def test_a_full_proof_shows_numbers_and_no_red(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(workspace, monkeypatch, {"cpu": entries(workspace)})
    assert found.problems == ()
    assert 'class="bad"' not in html(found)
    assert "3.1e-16" in html(found)
    assert "Recorded 2026-01-02 on cpu with torch 9.9.9." in found.facts
    assert found.remarks == ("Not yet run on a GPU.",)


def test_later_steps_of_a_page_show_a_sentence_and_lead_to_the_table(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = card(workspace, monkeypatch, {"cpu": entries(workspace)})
    short = html(found, "#step-first")
    assert "<table" not in short
    assert '<a href="#step-first">All results</a>' in short
    assert f"{len(found.rows)} of {len(found.rows)} results hold, on cpu: " in short


def test_a_gpu_proof_takes_the_remark_away(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(workspace, monkeypatch, {"cpu": entries(workspace), "some-gpu": entries(workspace, device="cuda")})
    assert found.remarks == ()
    assert "some-gpu" in html(found)


def test_what_a_gpu_has_not_shown_is_said(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    partly = [item for item in entries(workspace, device="cuda") if item["implementation"] != "trl"]
    found = card(workspace, monkeypatch, {"cpu": entries(workspace), "some-gpu": partly})
    assert found.remarks == ("Not shown on some-gpu: trl.",)
    assert found.problems == ()


def test_a_missing_result_is_said_in_red(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(workspace, monkeypatch, {"cpu": entries(workspace)[1:]})
    assert found.problems == ("Missing: 1 results that this contract promises are not recorded.",)


def test_a_stale_result_is_said_in_red(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(
        workspace, monkeypatch, {"cpu": entries(workspace)}, stale="minimal/x.py changed since it was recorded"
    )
    assert [problem.partition(";")[0].partition(" of ")[0] for problem in found.problems] == [
        f"Stale: {len(found.rows)}",
        "Stale: which deviations it catches",
    ]
    assert "minimal/x.py changed" in html(found)
    assert '<span class="bad">stale</span>' in html(found)


def test_deviations_caught_are_counted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = card(workspace, monkeypatch, {"cpu": entries(workspace)})
    told = "It caught 14 of 14 deviations, in float64 and float32, and let 1 of 1 equal rewritings pass."
    assert found.caught is not None
    assert found.caught.summary == told
    assert told in html(found)
    assert "Recorded 2026-01-03." in html(found)
    assert "<code>annotator conform grpo-advantage --power</code>" in html(found)
    assert told not in html(found, "#step-first")


def test_deviations_that_were_not_tried_are_said_in_red(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {name: held for name, held in power()["deviations"].items() if name != "no-eps"}
    found = card(workspace, monkeypatch, {"cpu": entries(workspace)}, deviations=fewer)
    assert found.problems == ("Missing: it is not recorded whether it catches no-eps.",)
    (workspace.proofs / "power/cpu.json").unlink()
    found = proof.card(workspace, NAME, "walkthroughs/a/run.md:1")
    assert found.problems == ("Missing: it is not recorded which deviations it catches.",)
    assert 'class="bad">Missing' in html(found)


def test_a_false_alarm_is_said_in_red(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    alarmed = {"pairwise": {"float64": "", "float32": "edge"}}
    found = card(workspace, monkeypatch, {"cpu": entries(workspace)}, rewritings=alarmed)
    assert found.problems == ("False alarm: equal code was held to be wrong: pairwise in float32 by edge.",)
    assert found.caught is not None
    assert "let 0 of 1 equal rewritings pass" in found.caught.summary
    assert found.short == "false alarm"


def test_an_unknown_contract_names_the_step(workspace: Workspace) -> None:
    with pytest.raises(ReadingError, match=r"^walkthroughs/a/run\.md:1: expected a contract of the catalogue"):
        proof.card(workspace, "grpo-advantagee", "walkthroughs/a/run.md:1")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.0, "0"), (3.14e-16, "3.1e-16"), (2.0, "2.0e+0"), (1e-6, "1.0e-6")]
)
def test_numbers(value: float | None, text: str) -> None:
    assert proof.number(value) == text
