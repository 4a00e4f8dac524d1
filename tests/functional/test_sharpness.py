"""The perturbation of sharpness-aware minimisation."""

from __future__ import annotations

import pytest
import torch

import fedskew.functional as fn
from fedskew.errors import ConfigError
from support.tensors import f64

D = {"a": f64([3.0, 0.0]), "b": f64([[4.0]])}
W = {"a": f64([-2.0, 5.0]), "b": f64([[0.5]])}


def test_the_length_is_rho() -> None:
    e = fn.sam_ascent(D, 0.5)
    torch.testing.assert_close(e, {"a": f64([0.3, 0.0]), "b": f64([[0.4]])}, rtol=1e-7, atol=0)
    torch.testing.assert_close(fn.sam_ascent(D, 0.7, norm="tensors")["b"], f64([[0.4]]), rtol=1e-7, atol=0)


def test_the_adaptive_form_is_scaled_by_the_parameters() -> None:
    size = 40**0.5  # of w d = (-6, 0, 2)
    want = {"a": f64([0.5 * 4 * 3 / size, 0.0]), "b": f64([[0.5 * 0.25 * 4 / size]])}
    torch.testing.assert_close(fn.sam_ascent(D, 0.5, W), want, rtol=1e-7, atol=0)


def test_no_direction_is_no_perturbation() -> None:
    e = fn.sam_ascent({"a": torch.zeros(3)}, 0.5)
    assert torch.equal(e["a"], torch.zeros(3))


def test_each_client_of_a_stack_has_its_own_norm() -> None:
    stack = {n: torch.stack([d, 2 * d, -d]) for n, d in D.items()}
    together = torch.vmap(lambda d: fn.sam_ascent(d, 0.5, W))(stack)
    for k in range(3):
        alone = fn.sam_ascent({n: d[k] for n, d in stack.items()}, 0.5, W)
        torch.testing.assert_close({n: e[k] for n, e in together.items()}, alone, rtol=1e-12, atol=0)


def test_an_unknown_norm_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown norm 'al'"):
        fn.sam_ascent(D, 0.5, norm="al")  # type: ignore[arg-type]
