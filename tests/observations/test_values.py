"""A value in a few words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from annotator.observations.model import Seen
from annotator.observations.values import describe


class Opaque:
    """Something of which nothing is known."""


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, Seen("x", "NoneType", text="None")),
        (True, Seen("x", "bool", text="True")),
        (-0.5, Seen("x", "float", text="−0.5")),
        ("a" * 100, Seen("x", "str", text="'" + "a" * 58 + "…")),
        ([1, 2], Seen("x", "list", shape=(2,), text="1, 2")),
        ({"a": 1 / 3}, Seen("x", "dict", shape=(1,), text="'a': 0.3333")),
        (Opaque(), Seen("x", "Opaque")),
        (torch.tensor(2.0), Seen("x", "tensor", "float32", (), "2")),
        (torch.tensor([1.0, -2.0]), Seen("x", "tensor", "float32", (2,), "1, −2", "−2", "1")),
        (torch.tensor([1.0, math.inf]), Seen("x", "tensor", "float32", (2,), "1, inf", "1", "1")),
        (torch.tensor([True, False]), Seen("x", "tensor", "bool", (2,), "True, False (1 of 2 True)")),
        (torch.zeros(2, 2, dtype=torch.bfloat16), Seen("x", "tensor", "bfloat16", (2, 2), "0, 0, 0, 0", "0", "0")),
        (torch.zeros(0), Seen("x", "tensor", "float32", (0,))),
        (np.arange(8), Seen("x", "array", "int64", (8,), "0, 1, 2, 3, 4, 5, …", "0", "7")),
        (torch.zeros(3, device="meta"), Seen("x", "tensor", "float32", (3,))),
    ],
)
def test_describe(value: Any, seen: Seen) -> None:
    assert describe("x", value) == seen
