"""`token-sampling`: vLLM's sampler, the twins and the oracle agree, and every deviation is caught.

Beside it what makes the reference the reference: the surprises that the contract's text states, run on the pinned code.
"""

from __future__ import annotations

import numpy as np
import pytest

from annotator.catalog import contract, token_sampling
from annotator.contracts.running import run
from annotator.contracts.sampling import draw
from annotator.errors import AnnotatorError
from tests.catalog.seen import seen_by

CONTRACT = contract("token-sampling")
EXAMPLES = 25


@pytest.fixture(scope="module")
def vllm():
    try:
        return token_sampling._vllm()
    except (AnnotatorError, ModuleNotFoundError) as error:
        pytest.skip(f"vLLM cannot be run here: {error}")


@pytest.mark.parametrize("deviation", ["draws-unmasked", "draws-by-uniform-noise"])
def test_wrong_draws_are_seen_by_the_distribution_alone(vllm, deviation):
    assert seen_by(CONTRACT, deviation, EXAMPLES) == ("distribution",)


@pytest.mark.parametrize("case", draw(CONTRACT, 150)[len(CONTRACT.edges()) :], ids=lambda case: "")
def test_drawn_cases_keep_off_their_borders(case):
    """No mask moves when probabilities are moved by a thousand times float32's rounding."""
    kept = CONTRACT.oracle(**case.inputs)["kept"]
    for factor in (1 - 1e-4, 1 + 1e-4):
        moved = {**case.inputs, "top_p": np.minimum(case.inputs["top_p"] * factor, 1.0)}
        moved["top_p"] = np.where(case.inputs["top_p"] == 1, 1.0, moved["top_p"])
        moved["min_p"] = case.inputs["min_p"] * factor
        np.testing.assert_array_equal(CONTRACT.oracle(**moved)["kept"], kept)


def sampled(logits, **options):
    """vLLM's outputs for options by name."""
    case = token_sampling._edge("", logits, **options)
    return run(CONTRACT, token_sampling._vllm_call, "torch", case, dtype="float32", gradient=False).outputs


def test_a_request_with_a_tiny_temperature_is_not_greedy_but_the_sampler_is(vllm):
    assert vllm.SamplingParams(temperature=1e-6).temperature == 0.01
    assert sampled([[1.0, 0.9]], temperature=[1e-6])["probabilities"].tolist() == [[1.0, 0.0]]


def test_top_p_below_one_reaches_into_rows_that_have_none(vllm):
    far = [[0.0, -120.0]]
    assert sampled(far)["kept"].tolist() == [[True, True]]
    beside = sampled(far * 2, top_p=[1.0, 0.5])
    assert beside["kept"].tolist() == [[True, False], [True, False]]


def test_a_greedy_row_reports_log_probabilities_at_temperature_one(vllm):
    out = sampled([[1.0, 0.0]], temperature=[0.0])
    np.testing.assert_allclose(out["log_probabilities"], [[-0.31326169, -1.31326169]], rtol=1e-6)
    assert out["probabilities"].tolist() == [[1.0, 0.0]]


def test_the_sampler_writes_into_float32_logits(vllm):
    import torch

    logits = torch.tensor([[2.0, 1.0]])
    one = {name: torch.full((1,), value) for name, value in token_sampling.OFF.items()}
    ids = torch.full((1, 1), 2)
    arguments = {**one, "temperature": torch.full((1,), 0.5), "top_k": torch.tensor([2])}
    kept = logits.clone()
    token_sampling._vllm_call(logits, prompt_token_ids=ids, output_token_ids=ids, **arguments)
    assert torch.equal(logits, kept)  # the adapter hands over a copy
    vllm.Sampler.apply_temperature(logits, arguments["temperature"], True)
    assert torch.equal(logits, 2 * kept)


def test_vllm_repeats_its_draws_for_a_seed(vllm):
    import torch

    case = {name: torch.tensor(array) for name, array in CONTRACT.edges()[0].inputs.items()}
    case = {name: value.float() if value.is_floating_point() else value for name, value in case.items()}
    first, again, other = (token_sampling._vllm_sample(**case, draws=50, seed=seed) for seed in (1, 1, 2))
    assert first.shape == (1, 50)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
