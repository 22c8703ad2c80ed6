"""``prefix-cache``: vLLM's manager and the minimal version go the same way, and every deviation leaves it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from annotator.catalog import contract, prefix_cache
from annotator.contracts import conform
from annotator.contracts.running import run
from annotator.contracts.tracing import rows

CONTRACT = contract("prefix-cache")
EDGES = {case.label: case for case in CONTRACT.edges()}
DEVIATIONS = {item.name: item for item in CONTRACT.deviations}
PROBES = {probe.name: probe for probe in CONTRACT.probes}


def outputs(call, case):
    return run(CONTRACT, call, "numpy", case).outputs


def seen(name, *words, **knobs):
    """What an implementation shows after the last of some operations."""
    case = replace(EDGES["a new weight"], inputs={"operations": rows(words, CONTRACT.operations, prefix_cache.LONGEST)})
    case = replace(case, knobs={**case.knobs, **knobs})
    return {key: array[-1].tolist() for key, array in outputs(CONTRACT.implementation(name).call, case).items()}


@pytest.mark.parametrize("name", ["vllm", "minimal"])
def test_every_implementation_conforms(name):
    for finding in conform(CONTRACT, names=(name,), examples=15):
        assert finding.passed, "\n".join([finding.line(), *finding.witness_lines()])


def test_a_deviation_in_an_implementations_place_does_not_conform():
    impostor = replace(CONTRACT.implementation("minimal"), call=DEVIATIONS["no-query-left"].call)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("vllm"), impostor))
    (finding,) = conform(broken, names=("minimal",), examples=5)
    assert not finding.passed
    assert finding.witness is not None
    assert any("allocate(request=" in line or "lookup(tokens=" in line for line in finding.witness.lines())


@pytest.mark.parametrize(
    ("probe", "deviation"),
    [
        ("injection", "cache-survives-update"),
        ("questions", "lookup-touches"),
        ("query-left", "no-query-left"),
    ],
)
def test_a_probe_sees_what_it_is_for(probe, deviation):
    def worst(call):
        errors = (
            PROBES[probe].relation(lambda case: run(CONTRACT, call, "numpy", case), case) for case in EDGES.values()
        )
        return max(error for error in errors if error is not None)

    assert worst(CONTRACT.implementation("minimal").call) == 0
    assert worst(DEVIATIONS[deviation].call) > 0


@pytest.mark.parametrize("name", ["vllm", "minimal"])
def test_the_last_token_is_always_computed(name):
    prompt = [0, 0, 1, 1]
    found = seen(name, ("allocate", 0, prompt), ("free", 0), ("allocate", 1, prompt))
    assert (found["cached_tokens"], found["query_tokens"]) == (2, 2)
    assert found["block_table"][:2] == [1, 3]


@pytest.mark.parametrize("name", ["vllm", "minimal"])
def test_vllm_refuses_a_reset_while_a_request_runs(name, capfd):
    prompt, asked = ("allocate", 0, [0, 0, 1, 1]), ("lookup", [0, 0, 1, 1, 0])
    assert seen(name, prompt, ("reset",), asked)["cached_tokens"] == 4
    assert seen(name, prompt, ("free", 0), ("reset",), asked)["cached_tokens"] == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["vllm", "minimal"])
def test_a_block_without_a_hash_is_given_out_next(name):
    found = seen(name, ("allocate", 0, [0, 0, 1]), ("free", 0))
    assert found["eviction_order"] == [2, 3, 4, 5, 6, 7, 1, -1]


def test_the_operations_of_cases_all_occur():
    """The pool runs dry, prompts are hit, and every operation is drawn: else the cases would show little."""
    from annotator.contracts.sampling import draw

    drawn = [case for case in draw(CONTRACT, 60) if not case.label]
    names = {int(row[0]) for case in drawn for row in case.inputs["operations"]}
    shown = [outputs(CONTRACT.implementation("minimal").call, case) for case in drawn]
    assert names == set(range(len(CONTRACT.operations)))
    assert sum(bool((found["cached_tokens"] > 0).any()) for found in shown) > 15
    assert sum(bool((found["free_blocks"] == 0).any()) for found in shown) > 15
