"""Whether clients of a network can be stacked, and what preparation costs."""

from __future__ import annotations

import pytest
import torch

import fedskew as fs
from fedskew.models import stacking
from fedskew.models.prepare import prepare
from fedskew.models.stacking import why_not_stacked
from support.awkward import TRAINED, UNSTACKED, built
from support.networks import BUILT, NARROW, SHAPES

LARGE = {"resnet9", "resnet18"}


@pytest.mark.parametrize("name", [pytest.param(m, marks=pytest.mark.slow) if m in LARGE else m for m in BUILT])
def test_every_network_of_the_table_can_be_stacked(name: str) -> None:
    """`why_not_stacked` knows their layers; here they are tried."""
    shape, kind = SHAPES.get(name, (1, 8, 8)), NARROW.get(name, fs.models.architecture(name, 0))
    network = fs.models.build(kind, shape, 4, 0)
    model = prepare(network, kind.head, shape, 4)
    with torch.no_grad():
        assert all(map(stacking._known, model.module.modules())) and stacking._tried(model) == ""


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["dropout", "BatchNorm", "tokens", "stored outputs", "in place after a layer"])
def test_what_leaves_padding_out_can_be_stacked(name: str) -> None:
    model = prepare(built(TRAINED[name]), None, (5,), 3)
    assert why_not_stacked(model) == ""


def test_a_small_mixture_is_found() -> None:
    """A ten-thousandth of the mean of the rows; at a ten-millionth rounding hides it in float32 as well."""
    make, _ = UNSTACKED["rows mixed in the forward"]
    net = built(make)
    net.between = lambda net, h: h - 1e-4 * h.mean(0)  # type: ignore[assignment]
    assert "mixes the rows" in why_not_stacked(prepare(net, None, (5,), 3))
