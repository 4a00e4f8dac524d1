"""SCAFFOLD's control variates: the first round, and what their sum keeps."""

from __future__ import annotations

import torch

import fedskew.functional as fn
from support.tensors import random_tree, same


def test_scaffold_first_round_and_conservation() -> None:
    zero, g = {k: torch.zeros_like(v) for k, v in random_tree(0).items()}, random_tree(1)
    assert all(torch.equal(fn.scaffold_correction(g, zero, zero)[k], g[k]) for k in g)
    own, delta, server = random_tree(2), random_tree(3), random_tree(4)
    new = fn.scaffold_control(own, server, delta, 0.4)
    for k in own:
        same(new[k], own[k] - server[k] - delta[k] / 0.4)
    change = {k: torch.stack([new[k] - own[k], own[k]]) for k in own}
    got = fn.scaffold_server_control(server, change, 9)
    for k in own:
        same(got[k], server[k] + (new[k] - own[k] + own[k]) / 9)
