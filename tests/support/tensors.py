"""Tensors in float64, how near two of them must be, and derivatives of functions of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]
SEEDS = [0, 1, 2]


def f64(x: object) -> Tensor:
    return torch.as_tensor(np.asarray(x, dtype=np.float64))


def draws(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers."""
    return f64(np.random.default_rng(seed).normal(size=shape))


def random_tree(seed: int) -> dict[str, Tensor]:
    """Two leaves of normal numbers."""
    g = np.random.default_rng(seed)
    return {"a": f64(g.normal(size=(2, 3))), "b": f64(g.normal(size=4))}


def same(got: Tensor, want: object, atol: float = 1e-10, rtol: float = 1e-10) -> None:
    """Equal to ten digits."""
    want = want if isinstance(want, Tensor) else f64(want)
    torch.testing.assert_close(got.detach().to(torch.float64), want.to(torch.float64), rtol=rtol, atol=atol)


def close(got: Tensor, want: object, atol: float = 1e-12) -> None:
    """Equal to rounding."""
    torch.testing.assert_close(got.double(), want if isinstance(want, Tensor) else f64(want), rtol=1e-12, atol=atol)


def near(got: Tensor, want: Any, tolerance: float = 1e-9) -> None:
    """Equal to the digits that the methods' cards have."""
    np.testing.assert_allclose(got.detach().numpy(), np.asarray(want), rtol=0, atol=tolerance)


def slope(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of the sum of f(x)."""
    return torch.func.grad(lambda z: f(z).sum())(x)
