"""KL estimators from scratch: means and mean gradients over a whole vocabulary, in both twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.minimal.twins import FRAMEWORKS, Twin, twin

Z, Z_REF = np.random.default_rng(0).normal(0, 1, (2, 6))
ESTIMATORS = ("k1", "abs", "k2", "k3", "low_var_kl")


def log_softmax(z: np.ndarray) -> np.ndarray:
    return z - np.log(np.exp(z).sum())


LOG_P, LOG_Q = log_softmax(Z), log_softmax(Z_REF)
P, Q = np.exp(LOG_P), np.exp(LOG_Q)
KL = (P * (LOG_P - LOG_Q)).sum()


@pytest.fixture(params=FRAMEWORKS)
def kl(request: pytest.FixtureRequest) -> Twin:
    return twin("post_training.kl", request.param)


def torch_slope(**options: Any) -> np.ndarray:
    import torch

    from minimal.post_training import kl_torch

    log_p = torch.tensor(LOG_P, requires_grad=True)
    kl_torch.token_kl(log_p, torch.tensor(LOG_Q), **options).sum().backward()
    assert log_p.grad is not None
    return log_p.grad.numpy()


def jax_slope(**options: Any) -> np.ndarray:
    import jax

    from minimal.post_training import kl_jax

    with jax.enable_x64(True):
        slope = jax.grad(lambda log_p: kl_jax.token_kl(log_p, jax.numpy.asarray(LOG_Q), **options).sum())
        return np.asarray(slope(jax.numpy.asarray(LOG_P)))


Slope = Callable[..., np.ndarray]


@pytest.fixture(params=[torch_slope, jax_slope], ids=FRAMEWORKS)
def mean_gradient(request: pytest.FixtureRequest) -> Slope:
    """The mean over tokens y of the estimate's gradient with respect to the logits: d log p(y) / dz = 1[y] - p."""

    def mean(**options: Any) -> np.ndarray:
        found: np.ndarray = P * request.param(**options) @ (np.eye(len(P)) - P)
        return found

    return mean


GRADIENT_OF_KL = P * (LOG_P - LOG_Q - KL)
GRADIENT_OF_REVERSE_KL = P - Q


def test_the_gradients_that_the_tests_hold_against_are_right() -> None:
    """By differences of the divergences themselves."""

    def divergences(z: np.ndarray) -> tuple[float, float]:
        log_p = log_softmax(z)
        return float((np.exp(log_p) * (log_p - LOG_Q)).sum()), float((Q * (LOG_Q - log_p)).sum())

    step = 1e-6
    for i, direction in enumerate(np.eye(len(Z))):
        ahead, behind = divergences(Z + step * direction), divergences(Z - step * direction)
        slopes = [(a - b) / (2 * step) for a, b in zip(ahead, behind, strict=True)]
        assert slopes == pytest.approx([GRADIENT_OF_KL[i], GRADIENT_OF_REVERSE_KL[i]], abs=1e-8)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_mean_of_k1_and_k3_is_the_divergence(kl: Twin, estimator: str) -> None:
    assert P @ kl("token_kl", LOG_P, LOG_Q, estimator=estimator) == pytest.approx(KL, rel=1e-12)


@pytest.mark.parametrize("estimator", ["k2", "abs"])
def test_the_mean_of_the_others_is_not(kl: Twin, estimator: str) -> None:
    assert abs(P @ kl("token_kl", LOG_P, LOG_Q, estimator=estimator) - KL) > 0.1


def test_k3_varies_less_than_k1(kl: Twin) -> None:
    near = log_softmax(Z + 0.1 * Z_REF)

    def variance(estimator: str) -> float:
        values = kl("token_kl", LOG_P, near, estimator=estimator)
        return float(P @ (values - P @ values) ** 2)

    assert variance("k3") < variance("k1") / 20


def test_k1_as_a_loss_teaches_nothing(mean_gradient: Slope) -> None:
    np.testing.assert_allclose(mean_gradient(estimator="k1"), 0, atol=1e-15)
    assert np.abs(GRADIENT_OF_KL).max() > 0.1


def test_k3_as_a_loss_pulls_on_the_other_divergence(mean_gradient: Slope) -> None:
    np.testing.assert_allclose(mean_gradient(estimator="k3"), GRADIENT_OF_REVERSE_KL, atol=1e-15)
    assert np.abs(GRADIENT_OF_REVERSE_KL - GRADIENT_OF_KL).max() > 0.05


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_gradient_of_k2_is_right_whatever_the_value(mean_gradient: Slope, estimator: str) -> None:
    np.testing.assert_allclose(mean_gradient(estimator=estimator, gradient="k2"), GRADIENT_OF_KL, atol=1e-15)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_so_is_that_of_an_unbiased_estimator_weighed_by_the_ratio(mean_gradient: Slope, estimator: str) -> None:
    np.testing.assert_allclose(mean_gradient(estimator=estimator, gradient="importance"), GRADIENT_OF_KL, atol=1e-15)


def test_weighed_k2_has_not(mean_gradient: Slope) -> None:
    assert np.abs(mean_gradient(estimator="k2", gradient="importance") - GRADIENT_OF_KL).max() > 0.05


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_correction_changes_no_value(kl: Twin, estimator: str) -> None:
    plain = kl("token_kl", LOG_P, LOG_Q, estimator=estimator)
    for gradient in ("k2", "importance"):
        np.testing.assert_array_equal(kl("token_kl", LOG_P, LOG_Q, estimator=estimator, gradient=gradient), plain)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("gradient", ["own", "k2", "importance"])
def test_certain_and_alike_there_is_no_divergence(kl: Twin, estimator: str, gradient: str) -> None:
    certain = np.zeros((1, 1))
    assert kl("token_kl", certain, certain, estimator=estimator, gradient=gradient) == 0


@pytest.mark.parametrize(
    ("log_ratio", "free", "held"),
    [(0.0, 0.0, 0.0), (1.0, np.exp(-1), np.exp(-1)), (30.0, 29 + np.exp(-30), 10.0), (-30.0, np.exp(30) - 31, 10.0)],
)
def test_k3_by_hand(kl: Twin, log_ratio: float, free: float, held: float) -> None:
    given = np.array([[log_ratio]])
    assert kl("low_variance_kl", given) == pytest.approx(free)
    assert kl("low_variance_kl", given, clamp=True) == pytest.approx(held)


def test_clamped_it_has_a_gradient_at_any_distance() -> None:
    import torch

    from minimal.post_training import kl_torch

    for clamp, finite in ((True, True), (False, False)):
        far = torch.tensor([-800.0], dtype=torch.float64, requires_grad=True)
        kl_torch.low_variance_kl(far, clamp=clamp).clamp(max=10).sum().backward()
        assert far.grad is not None
        assert bool(far.grad.isfinite().all()) is finite
