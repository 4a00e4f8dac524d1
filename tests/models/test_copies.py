"""What a model was made with stays with its copies."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from fedskew.models.prepare import Model, prepare

COPIES = {
    "clone": Model.clone,
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "to": lambda m: m.to(torch.float32),
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_keep_what_a_model_was_made_with(way: str) -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model = prepare(net, None, (4,), 3, narrow=torch.bfloat16).clone(unpadded=True)
    for again in (COPIES[way](model), COPIES[way](COPIES[way](model))):
        assert again.narrow is torch.bfloat16 and again.unpadded is True
        assert again.clone(unpadded=False).unpadded is False and again.unpadded is True


def test_a_narrow_model_is_probed_in_its_own_precision() -> None:
    """A module of float64, which autocast does not round, is still taken."""
    model = prepare(nn.Linear(3, 2).double(), "", (3,), 2, narrow=torch.bfloat16)
    assert model.params["weight"].dtype == torch.float64 and model.narrow is torch.bfloat16
