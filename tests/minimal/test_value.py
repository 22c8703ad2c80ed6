"""The clipped value loss from scratch: what must hold of it, in both twins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

VALUES = np.array([[0.0, 1.0, -1.0], [2.0, 0.5, 0.0]])
RETURNS = np.array([[2.0, 1.5, -3.0], [2.0, -0.5, 1.0]])
PREDS = np.array([[0.25, 1.75, -1.25], [0.5, 0.25, 3.0]])
MASK = np.array([[True, True, True], [True, False, False]])
WIDE = 1e6


@pytest.fixture(params=FRAMEWORKS)
def value(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.value", request.param)


def loss(value: Twin, preds: np.ndarray = PREDS, mask: np.ndarray = MASK, **options: object) -> np.ndarray:
    return value("value_loss", preds, VALUES, RETURNS, mask, **options)[0]


def test_within_the_range_it_is_half_the_mean_squared_error(value: Twin) -> None:
    plain = 0.5 * ((PREDS - RETURNS) ** 2)[MASK].mean()
    assert loss(value, clip_range=WIDE) == pytest.approx(plain)
    assert loss(value, clip_range=0.1) > plain


def test_without_a_range_the_critic_is_held_where_it_was(value: Twin) -> None:
    """At c = 0 the clipped prediction is the recorded value: the loss is the larger of the old error and the new."""
    expected = 0.5 * np.maximum((PREDS - RETURNS) ** 2, (VALUES - RETURNS) ** 2)[MASK].mean()
    assert loss(value, clip_range=0.0) == pytest.approx(expected)


def test_a_critic_that_has_not_moved_is_not_clipped(value: Twin) -> None:
    clipped = value("clipped_values", VALUES, VALUES, clip_range=0.1)
    np.testing.assert_array_equal(clipped, VALUES)
    assert value("value_loss", VALUES, VALUES, RETURNS, MASK, clip_range=0.1)[1] == 0
    assert not np.allclose(value("clipped_values", PREDS, VALUES, clip_range=0.1), PREDS)


def test_clipping_never_lowers_the_loss(value: Twin) -> None:
    losses = [float(loss(value, clip_range=width)) for width in (0.0, 0.2, 0.5, 1.0, WIDE)]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] > losses[-1]


def test_the_fraction_counts_where_clipping_raised_the_loss(value: Twin) -> None:
    """Rows by hand at c = 0.5: only (1, 0) leaves the range towards worse, (0, 1) leaves it past its return."""
    _, fraction = value("value_loss", PREDS, VALUES, RETURNS, MASK, clip_range=0.5)
    assert fraction == 0
    towards = np.array([[1.5, 1.0, -1.0], [2.0, 0.5, 0.0]])
    assert value("value_loss", towards, VALUES, RETURNS, MASK, clip_range=0.5)[1] == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("token-mean", 1 / 4), ("token-sum", 1), ("seq-mean-token-sum", 1 / 2), ("seq-mean-token-sum-norm", 1 / 16)],
)
def test_the_aggregation_is_that_of_its_topic(value: Twin, mode: str, expected: float) -> None:
    total = 0.5 * ((PREDS - RETURNS) ** 2)[MASK].sum()
    assert loss(value, clip_range=WIDE, aggregation=mode, horizon=8.0) == pytest.approx(total * expected)


def test_the_mean_of_responses_weighs_each_alike(value: Twin) -> None:
    errors = 0.5 * (PREDS - RETURNS) ** 2
    expected = (errors[0].mean() + errors[1, 0]) / 2
    found = loss(value, clip_range=WIDE, aggregation="seq-mean-token-mean")
    assert found == pytest.approx(expected)
    assert found != pytest.approx(float(loss(value, clip_range=WIDE)))


def gradient(framework: str, preds: np.ndarray, mask: np.ndarray = MASK) -> np.ndarray:
    if framework == "torch":
        import torch

        from minimal.post_training import value_torch

        leaf = torch.tensor(preds, requires_grad=True)
        rest = [torch.from_numpy(array) for array in (VALUES, RETURNS, mask)]
        value_torch.value_loss(leaf, *rest)[0].backward()
        assert leaf.grad is not None
        return leaf.grad.numpy()
    import jax

    from minimal.post_training import value_jax

    with jax.enable_x64(True):
        return np.asarray(jax.grad(lambda v: value_jax.value_loss(v, VALUES, RETURNS, mask)[0])(jax.numpy.array(preds)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_gradient_comes_of_a_clipped_prediction(framework: str) -> None:
    towards = np.array([[1.5, 0.75, -0.25], [2.25, 0.5, 0.0]])  # the first has left the range on its way to R = 2
    found = gradient(framework, towards)
    expected = np.where(MASK, towards - RETURNS, 0.0) / 4
    expected[0, 0] = 0
    np.testing.assert_allclose(found, expected)
    assert np.abs(expected[0, 1:]).min() > 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_masked_slot_reaches_neither_loss_nor_gradient(framework: str) -> None:
    poisoned = np.where(MASK, PREDS, np.nan)
    np.testing.assert_array_equal(gradient(framework, poisoned), gradient(framework, PREDS))
    assert not np.isfinite(gradient(framework, poisoned, np.ones_like(MASK))).all()


def test_jax_compiles() -> None:
    import jax

    from minimal.post_training import value_jax

    compiled = jax.jit(value_jax.value_loss, static_argnames="aggregation")
    for mode in ("token-mean", "seq-mean-token-mean"):
        eager = value_jax.value_loss(PREDS, VALUES, RETURNS, MASK, aggregation=mode)
        np.testing.assert_allclose(compiled(PREDS, VALUES, RETURNS, MASK, aggregation=mode), eager, rtol=1e-6)
