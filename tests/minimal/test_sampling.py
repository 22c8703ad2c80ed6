"""The minimal sampler on inputs whose answer is known without any reference, torch and JAX alike."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

OFF = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "presence_penalties": 0.0,
    "frequency_penalties": 0.0,
    "repetition_penalties": 1.0,
}
HALF = np.log([0.5, 0.25, 0.15, 0.1])


def torch_twin(logits, prompt, output, **options):
    import torch

    from minimal.serving.sampling_torch import process_logits

    made = process_logits(
        torch.tensor(logits),
        torch.tensor(prompt),
        torch.tensor(output),
        **{k: torch.tensor(v) for k, v in options.items()},
    )
    return [part.numpy() for part in made]


def jax_twin(logits, prompt, output, **options):
    import jax
    import jax.numpy as jnp

    from minimal.serving.sampling_jax import process_logits

    jax.config.update("jax_enable_x64", True)
    made = process_logits(
        jnp.asarray(logits), jnp.asarray(prompt), jnp.asarray(output), **{k: jnp.asarray(v) for k, v in options.items()}
    )
    return [np.asarray(part) for part in made]


@pytest.fixture(params=[torch_twin, jax_twin], ids=["torch", "jax"])
def processed(request):
    """One row through a twin: kept ids and probabilities."""

    def run(logits, prompt=(), output=(), **options):
        z = np.array([logits], dtype=np.float64)
        size = z.shape[1]
        prompt, output = (np.array([[*ids, size]]) for ids in (prompt, output))
        values = {"top_k": size, **OFF, **options}
        kept, log_p, p = request.param(z, prompt, output, **{k: np.array([v]) for k, v in values.items()})
        return np.flatnonzero(kept[0]).tolist(), log_p[0], p[0]

    return run


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [0, 1, 2, 3]),
        ({"top_k": 1}, [0]),
        ({"top_k": 3}, [0, 1, 2]),
        ({"top_p": 0.49}, [0]),
        ({"top_p": 0.51}, [0, 1]),
        ({"top_p": 1e-9}, [0]),
        ({"top_p": 1.0}, [0, 1, 2, 3]),
        ({"min_p": 0.25}, [0, 1, 2]),
        ({"min_p": 0.35}, [0, 1]),
        ({"min_p": 1.0}, [0]),
        ({"top_k": 2, "top_p": 0.6}, [0]),  # 2/3 of what is left; over the whole vocabulary it would be two
        ({"min_p": 0.4, "top_p": 0.6}, [0]),
        ({"temperature": 0.5, "top_p": 0.7}, [0]),  # squares: 0.72 of the mass
        ({"temperature": 0.0, "top_k": 1}, [0, 1, 2, 3]),
    ],
)
def test_which_tokens_stay(processed, options, kept):
    assert processed(HALF, **options)[0] == kept


def test_what_stays_is_renormalised(processed):
    _, log_p, p = processed(HALF, top_k=2)
    np.testing.assert_allclose(p, [2 / 3, 1 / 3, 0, 0], rtol=1e-14)
    assert np.isneginf(log_p[2:]).all()


def test_filters_off_is_softmax(processed):
    np.testing.assert_allclose(processed(HALF)[2], np.exp(HALF), rtol=1e-14)


def test_ties_with_the_kth_stay(processed):
    assert processed([3.0, 1.0, 1.0, 0.0], top_k=2)[0] == [0, 1, 2]


def test_greedy_is_the_lowest_id_of_ties_and_reports_temperature_one(processed):
    _, log_p, p = processed([1.0, 2.0, 2.0, 0.0], temperature=0.0, top_p=0.1)
    assert p.tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(np.exp(log_p), np.exp([1, 2, 2, 0]) / np.exp([1, 2, 2, 0]).sum(), rtol=1e-14)


def test_a_small_temperature_is_near_greedy(processed):
    np.testing.assert_allclose(processed(HALF, temperature=0.01)[2], [1, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("options", "shift"),
    [
        ({"output": [0, 0, 1], "frequency_penalties": 0.5}, [-1.0, -0.5, 0, 0]),
        ({"output": [0, 0, 1], "presence_penalties": 0.5}, [-0.5, -0.5, 0, 0]),
        ({"prompt": [0, 0, 1], "frequency_penalties": 0.5}, [0, 0, 0, 0]),
        ({"prompt": [0, 1], "repetition_penalties": 2.0}, [-1.0, -2.0, 0, 0]),  # 2 / 2, -2 * 2
        ({"output": [0, 1], "repetition_penalties": 2.0}, [-1.0, -2.0, 0, 0]),
        ({"output": [2], "repetition_penalties": 2.0}, [0, 0, 0, 0]),  # 0 stays 0
        ({"output": [0, 1], "repetition_penalties": 0.5}, [2.0, 1.0, 0, 0]),
    ],
)
def test_penalties_shift_logits(processed, options, shift):
    z = np.array([2.0, -2.0, 0.0, 1.0])
    np.testing.assert_allclose(processed(z, **options)[2], np.exp(z + shift) / np.exp(z + shift).sum(), rtol=1e-13)


def draws_of(twin, p, draws):
    if twin == "torch":
        import torch

        from minimal.serving.sampling_torch import sample_tokens

        return sample_tokens(torch.tensor(p), torch.Generator().manual_seed(7), draws).numpy()
    import jax
    import jax.numpy as jnp

    from minimal.serving.sampling_jax import sample_tokens

    return np.asarray(sample_tokens(jnp.asarray(p), jax.random.key(7), draws))


def uneven(tokens):
    """The p-value of draws of 16 tokens that ought to be alike."""
    from scipy.stats import chisquare

    return chisquare(np.bincount(tokens, minlength=16)).pvalue


def test_coarse_probabilities_do_not_make_coarse_draws():
    """With noise of bfloat16 races end in ties, and the first of the tied tokens wins them."""
    import jax
    import jax.numpy as jnp
    import torch

    from minimal.serving import sampling_jax, sampling_torch

    equal = jnp.full((1, 16), 1 / 16, jnp.bfloat16)
    assert uneven(np.asarray(sampling_jax.sample_tokens(equal, jax.random.key(7), 50_000))[0]) > 1e-6
    noise = jax.random.exponential(jax.random.key(7), (50_000, 16), dtype=jnp.bfloat16)
    assert uneven(np.asarray((equal / noise).argmax(-1))) < 1e-6  # negative control
    same = torch.full((1, 16), 1 / 16, dtype=torch.bfloat16)
    assert uneven(sampling_torch.sample_tokens(same, torch.Generator().manual_seed(7), 50_000)[0].numpy()) > 1e-6


@pytest.mark.parametrize(("temperature", "expected"), [(1e-5, 0.7310585786300049), (0.99e-5, 1.0), (0.0, 1.0)])
def test_greedy_begins_below_one_hundred_thousandth(processed, temperature, expected):
    *_, probabilities = processed([1e-5, 0.0], temperature=temperature)
    assert probabilities[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("logit", "penalised"), [(0.5, 0.25), (0.0, 0.0), (-0.5, -1.0)])
def test_repetition_pushes_down_on_both_sides_of_zero(processed, logit, penalised):
    _, log_p, _ = processed([logit, 0.0], output=[0], repetition_penalties=2.0)
    assert log_p[0] - log_p[1] == pytest.approx(penalised, abs=1e-12)


@pytest.mark.parametrize("twin", ["torch", "jax"])
def test_draws_follow_the_probabilities(twin):
    from scipy.stats import chisquare

    p = np.array([[0.5, 0.3, 0.2, 0.0], [0.0, 0.0, 0.0, 1.0]])
    counts = [np.bincount(row, minlength=4) for row in draws_of(twin, p, 20_000)]
    assert counts[0][3] == 0
    assert counts[1].tolist() == [0, 0, 0, 20_000]
    assert chisquare(counts[0][:3], 20_000 * p[0, :3]).pvalue > 1e-6
    assert chisquare(counts[0][:3], 20_000 * np.array([0.52, 0.28, 0.2])).pvalue < 1e-6  # negative control


def test_the_race_needs_no_normalised_probabilities():
    one, two = (draws_of("torch", np.array([[0.5, 0.3, 0.2]]) * scale, 100) for scale in (1.0, 8.0))
    assert (one == two).all()


@pytest.mark.parametrize("topic", ["serving/sampling", "framework/adamw"])
def test_twins_have_the_same_outline(topic):
    outlines = [
        outline(Path(__file__).parents[2] / "minimal" / f"{topic}_{backend}.py") for backend in ("torch", "jax")
    ]
    assert outlines[0] == outlines[1]
    assert len(outlines[0]) > 4


def outline(path):
    """Names of classes, functions and arguments; the two sources of randomness count as one."""
    same = {"generator": "randomness", "key": "randomness"}
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, [same.get(a.arg, a.arg) for a in node.args.args]))
        elif isinstance(node, ast.ClassDef):
            found.append((node.name, [field.target.id for field in node.body if isinstance(field, ast.AnnAssign)]))
    return found
