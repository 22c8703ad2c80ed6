"""Minimal AdamW on inputs whose answer is known without any reference, torch and JAX alike."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jax")

DEFAULT = {
    "lr": 0.1,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
}
START = np.array([1.0, -2.5, 0.5])


def torch_twin(parameters, gradients, dtype="float64", **knobs):
    import torch

    from minimal.framework.adamw_torch import adamw_trajectory

    given = (torch.tensor(array, dtype=getattr(torch, dtype)) for array in (parameters, gradients))
    after, state = adamw_trajectory(*given, **knobs)
    return [part.double().numpy() for part in (after, *state)]


def jax_twin(parameters, gradients, dtype="float64", **knobs):
    import jax
    import jax.numpy as jnp

    from minimal.framework.adamw_jax import adamw_trajectory

    jax.config.update("jax_enable_x64", True)
    after, state = adamw_trajectory(*(jnp.asarray(array, dtype) for array in (parameters, gradients)), **knobs)
    return [np.asarray(part, dtype=np.float64) for part in (after, *state)]


@pytest.fixture(params=[torch_twin, jax_twin], ids=["torch", "jax"])
def trajectory(request):
    def run(gradients, dtype="float64", **moved):
        return request.param(START, np.array(gradients), dtype, **{**DEFAULT, **moved})

    return run


def test_the_first_step_is_lr_times_the_sign(trajectory):
    after, *_ = trajectory([[3.0, -0.2, 40.0]], eps=0.0)
    np.testing.assert_allclose(after[0], START - 0.1 * np.array([1, -1, 1]), rtol=1e-14)


def test_a_constant_gradient_moves_by_lr_each_step(trajectory):
    after, *_ = trajectory([[3.0, -0.2, 40.0]] * 20, eps=0.0)
    np.testing.assert_allclose(after[-1], START - 20 * 0.1 * np.array([1, -1, 1]), rtol=1e-12)


def test_no_gradient_leaves_the_decay_alone(trajectory):
    after, m, v, _ = trajectory([[0.0] * 3] * 5, weight_decay=0.5)
    np.testing.assert_allclose(after[-1], START * (1 - 0.1 * 0.5) ** 5, rtol=1e-14)
    assert not m.any()
    assert not v.any()


def test_the_decay_enters_no_moment(trajectory):
    gradients = np.sin(np.arange(12.0)).reshape(4, 3)
    with_decay, without = trajectory(gradients, weight_decay=0.5), trajectory(gradients)
    assert not np.allclose(with_decay[0], without[0])
    for one, other in zip(with_decay[1:], without[1:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_both_betas_zero_is_sign_descent(trajectory):
    gradients = np.array([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])
    after, *_ = trajectory(gradients, beta1=0.0, beta2=0.0, eps=0.0)
    np.testing.assert_allclose(after[-1], START, atol=1e-14)


def test_maximize_is_descent_on_the_negated_gradient_with_the_same_decay(trajectory):
    gradients = np.cos(np.arange(12.0)).reshape(4, 3)
    up, down = trajectory(gradients, maximize=True, weight_decay=0.3), trajectory(-gradients, weight_decay=0.3)
    np.testing.assert_array_equal(up[0], down[0])


def test_amsgrad_keeps_the_largest_second_moment(trajectory):
    gradients = 0.5 ** np.arange(10.0)[:, None] * np.ones((1, 3))
    _, _, v, v_max = trajectory(gradients, amsgrad=True, beta2=0.5)
    np.testing.assert_allclose(v_max, np.maximum.accumulate(v), rtol=1e-15)
    assert (v_max[-1] > v[-1]).all()


def test_amsgrad_is_adam_while_the_second_moment_rises(trajectory):
    gradients = 2.0 ** np.arange(6.0)[:, None] * np.ones((1, 3))
    np.testing.assert_array_equal(trajectory(gradients, amsgrad=True)[0], trajectory(gradients)[0])


def test_without_amsgrad_the_maximum_stays_zero(trajectory):
    assert not trajectory([[1.0, 2.0, 3.0]])[3].any()


def test_bias_corrections_keep_float32_accurate(trajectory):
    # 1 - 0.999 taken in float32 would put 2.4e-5 of the step here.
    narrow, wide = trajectory([[1.0] * 3], "float32", eps=0.0), trajectory([[1.0] * 3], eps=0.0)
    np.testing.assert_allclose(narrow[0] - START, wide[0] - START, rtol=2e-6)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bias_corrections_come_in_the_dtype_of_the_parameters(framework, dtype):
    module = importlib.import_module(f"minimal.framework.adamw_{framework}")
    library = importlib.import_module({"torch": "torch", "jax": "jax.numpy"}[framework])
    made = module.corrections(0.9, 0.999, 2, getattr(library, dtype))
    assert [str(part.dtype).removeprefix("torch.") for part in made] == [dtype, dtype]
    np.testing.assert_allclose(np.asarray(made), [[0.1, 0.19], [0.001, 0.001999]], rtol=1e-6)


def test_the_jax_twin_traces_into_a_larger_program():
    import jax
    import jax.numpy as jnp

    from minimal.framework.adamw_jax import adamw_trajectory

    @jax.jit
    def loss(start):
        return adamw_trajectory(start, jnp.ones((4, 3)), **DEFAULT)[0][-1].sum()

    np.testing.assert_allclose(jax.grad(loss)(jnp.asarray(START)), np.ones(3), rtol=1e-6)
