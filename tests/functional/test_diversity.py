"""Spread of a mini-batch: copies of a row, single rows, and the values of extreme batches."""

from __future__ import annotations

import pytest
import torch

import fedskew.functional as fn

ROWS = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0], [-2.0, 1.0, 0.25]], dtype=torch.float64)


def test_rounding_does_not_tell_a_row_from_its_copy() -> None:
    doubled, mask = torch.cat([ROWS, ROWS]), torch.ones(6, dtype=torch.float64)
    almost = doubled + torch.cat([torch.zeros(3, 3), torch.full((3, 3), 1e-16)]).double()
    assert float(fn.feature_uniformity(almost, mask)) == pytest.approx(float(fn.feature_uniformity(doubled, mask)))
    alone = float(fn.feature_uniformity(ROWS, mask[:3]))
    assert float(fn.feature_uniformity(doubled, mask)) == pytest.approx((4 * 3 * alone + 3) / 15)


@pytest.mark.parametrize("form", ["code", "printed"])
def test_eps_bounds_the_gradient_of_features_that_are_nearly_dead(form: str) -> None:
    """The authors' 1e-8 lets a feature of deviation 1e-4 have a gradient of thousands."""

    def steepest(**options: float) -> float:
        rows = torch.cat([ROWS, 1e-4 * ROWS.roll(1, 0)], 1).requires_grad_()
        fn.feature_correlation(rows, torch.ones(3), form, **options).backward()  # type: ignore[arg-type]
        return float(rows.grad.abs().max())  # type: ignore[union-attr]

    assert steepest() == steepest(eps=1e-8) > 300 and steepest(eps=1e-3) < 3
