"""``rejection-sampling``: vLLM's kernels follow the paper's law, and every deviation leaves it."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

from annotator.catalog import contract
from annotator.contracts import conform
from annotator.contracts.running import run

CONTRACT = contract("rejection-sampling")
EDGES = {case.label: case for case in CONTRACT.edges()}
DEVIATIONS = {item.name: item for item in CONTRACT.deviations}
PROBES = {probe.name: probe for probe in CONTRACT.probes}


def outputs(name, case, dtype="float32"):
    item = CONTRACT.implementation(name)
    return run(CONTRACT, item.call, item.backend, case, dtype=dtype, gradient=False).outputs


def test_a_deviation_in_an_implementations_place_does_not_conform():
    wrong = DEVIATIONS["draft-probabilities-ignored"]
    impostor = replace(CONTRACT.implementation("minimal-torch"), call=wrong.call, sample=wrong.sample)
    broken = replace(CONTRACT, implementations=(CONTRACT.implementation("vllm"), impostor))
    (finding,) = conform(broken, names=("minimal-torch",), dtypes=("float32",), examples=5)
    assert not finding.passed


@pytest.mark.parametrize(
    ("deviation", "holds"),
    [
        ("draft-probabilities-ignored", False),
        ("recovered-from-target", False),
        ("accepted-where-likelier", False),
        ("one-uniform-number", True),  # each token alone is right, together they are not
    ],
)
def test_the_expectation_is_the_targets(deviation, holds):
    def worst(call):
        relation = PROBES["expectation"].relation
        errors = (relation(lambda c: run(CONTRACT, call, "torch", c, gradient=False), case) for case in EDGES.values())
        return max(error for error in errors if error is not None)

    assert worst(CONTRACT.implementation("minimal-torch").call) < 1e-10
    assert (worst(DEVIATIONS[deviation].call) < 1e-10) is holds


@pytest.mark.parametrize("label", ["a draft that is certain", "the second one falls", "greedy beside random", "ragged"])
def test_the_law_found_in_vllms_kernels_is_the_oracles(label):
    right = run(CONTRACT, CONTRACT.oracle, "numpy", EDGES[label], gradient=False).outputs
    found = outputs("vllm", EDGES[label])
    np.testing.assert_allclose(found["probabilities"], right["probabilities"], atol=1e-6)
    assert (found["output_token_ids"] == right["output_token_ids"]).all()


def test_without_draft_probabilities_a_draft_is_certain():
    from annotator.catalog import rejection_sampling

    call = functools.partial(rejection_sampling._vllm_call, certain=True)
    without, one_hot = (
        run(CONTRACT, each, "torch", EDGES["a draft that is certain"], dtype="float32", gradient=False).outputs
        for each in (call, CONTRACT.implementation("vllm").call)
    )
    np.testing.assert_allclose(without["probabilities"], one_hot["probabilities"], atol=1e-6)
    assert (without["output_token_ids"] == one_hot["output_token_ids"]).all()


def test_why_the_logits_come_after_the_filters():
    """The way by which vLLM spreads temperatures over drafts writes into a copy on the CPU, and returns what was there.

    Once this fails the contract may take temperatures itself.
    """
    import torch

    from annotator.catalog import rejection_sampling

    module = rejection_sampling._vllm()
    dispatcher = __import__("vllm.triton_utils.dispatcher", fromlist=["register_kernels"])
    kernels = __import__("vllm.utils.cpu_triton_utils", fromlist=["_expand_kernel_impl"])
    with rejection_sampling._environment():  # its search through all modules meets deprecated ones
        dispatcher.register_kernels({f"{module.__name__}.expand_kernel": kernels._expand_kernel_impl})
    held = torch.zeros(3)  # what an uninitialised buffer happens to hold
    x, ends = torch.tensor([0.5, 2.0]), torch.tensor([2, 3], dtype=torch.int32)
    module._expand(held, x, ends, 0, 1)
    assert held.tolist() == [0.0, 0.0, 0.0]


def test_a_sampler_leaves_torchs_generator_alone():
    import torch

    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    case = EDGES["ragged"]
    given = {name: torch.as_tensor(array) for name, array in case.inputs.items()}
    given = {name: a.float() if a.is_floating_point() else a for name, a in given.items()}
    drawn = [CONTRACT.implementation("vllm").sample(**given, draws=50, seed=1) for _ in range(2)]
    assert torch.equal(*drawn)
    assert torch.rand(1) == expected
