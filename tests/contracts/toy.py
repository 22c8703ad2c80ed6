"""A contract small enough to hold in the head: the mean of a row over its mask, with an epsilon in the denominator."""

from __future__ import annotations

import numpy as np

from annotator.contracts import Case, Contract, Deviation, Implementation, Input, Knob, Output


def mean_torch(values, mask, eps):
    import torch

    kept = torch.where(mask, values, 0.0)
    return {"mean": kept.sum(-1) / (mask.sum(-1).to(values.dtype) + eps), "kept": mask.sum(-1)}


def mean_jax(values, mask, eps):
    import jax.numpy as jnp

    kept = jnp.where(mask, values, 0.0)
    return {"mean": kept.sum(-1) / (mask.sum(-1).astype(values.dtype) + eps), "kept": mask.sum(-1)}


def mean_numpy(values, mask, eps):
    kept = np.where(mask, values, np.zeros_like(values))
    count = mask.sum(-1)
    return {"mean": kept.sum(-1) / (count.astype(values.dtype) + values.dtype.type(eps)), "kept": count}


def padded(values, mask, eps):
    """Divides by the width."""
    import torch

    return {"mean": torch.where(mask, values, 0.0).sum(-1) / (values.shape[-1] + eps), "kept": mask.sum(-1)}


def cut(values, mask, eps):
    """Right values, no gradient."""
    return mean_torch(values.detach(), mask, eps)


def poisoned(values, mask, eps):
    """Multiplies by the mask: NaN times 0."""
    return {"mean": (values * mask).sum(-1) / (mask.sum(-1).to(values.dtype) + eps), "kept": mask.sum(-1)}


def cases():
    from hypothesis import strategies as st
    from hypothesis.extra import numpy as hnp

    shapes = st.tuples(st.integers(1, 4), st.integers(1, 5))
    numbers = st.floats(-100, 100, width=32)

    def build(shape):
        values, mask = hnp.arrays(np.float64, shape, elements=numbers), hnp.arrays(np.bool_, shape)
        return st.builds(
            lambda v, m, e: Case({"values": v, "mask": m}, {"eps": e}), values, mask, st.sampled_from((1e-6, 1e-4))
        )

    return shapes.flatmap(build)


def edges():
    nan = np.array([[1.0, float("nan")]])
    return (
        Case({"values": np.ones((1, 3)), "mask": np.zeros((1, 3), bool)}, {"eps": 1e-6}, "nothing kept"),
        Case({"values": nan, "mask": np.array([[True, False]])}, {"eps": 1e-6}, "NaN under the mask"),
    )


REFERENCE = Implementation("ref", "reference", "torch", mean_torch, ("torch:toy",), {"eps": 1e-6})
MINIMAL = (
    Implementation("minimal-jax", "minimal", "jax", mean_jax, ("minimal/toy_jax.py",)),
    Implementation("minimal-numpy", "minimal", "numpy", mean_numpy, ("minimal/toy_numpy.py",), differentiable=False),
)
DEVIATIONS = (
    Deviation("padded", "divides by the width", "by the count", padded),
    Deviation("cut", "detached", "attached", cut),
    Deviation("poisoned", "multiplies by the mask", "selects", poisoned),
)


def contract(*, implementations=(REFERENCE, *MINIMAL), deviations=DEVIATIONS, **changes) -> Contract:
    fields = {
        "name": "toy-mean",
        "kind": "value",
        "title": "Masked mean",
        "doc": "",
        "inputs": (
            Input("values", ("B", "T"), "float", "numbers", differentiable=True),
            Input("mask", ("B", "T"), "bool", "what counts"),
        ),
        "outputs": (Output("mean", ("B",), "the mean"), Output("kept", ("B",), "how many", exact=True)),
        "knobs": (Knob("eps", 1e-6, (1e-6, 1e-4), "in the denominator"),),
        "cases": cases,
        "edges": edges,
        "implementations": implementations,
        "deviations": deviations,
        **changes,
    }
    return Contract(**fields)
