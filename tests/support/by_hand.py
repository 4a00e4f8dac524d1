"""Logistic regression computed by hand on a client's rows, and what a run kept to compare it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import tree
from fedskew.records.files import load_tree
from fedskew.types import Answers, Params, Query

ENGINES = pytest.mark.parametrize("engine", ["sequential", "batched"])
Asked = list[tuple[int, Query, Answers]]


def logits_of(params: Params, x: Tensor) -> Tensor:
    return x @ params["fc.weight"].T + params["fc.bias"]


def rows(fed: Any, k: int) -> tuple[Tensor, Tensor]:
    at = torch.from_numpy(fed.rows(k))
    return fed.dataset.x[at].double(), fed.dataset.y[at]


def gradient(params: Params, x: Tensor, y: Tensor) -> Params:
    error = torch.softmax(logits_of(params, x), 1) - nn.functional.one_hot(y, params["fc.bias"].numel())
    return {"fc.weight": error.T @ x / len(y), "fc.bias": error.mean(0)}


def descend(params: Params, x: Tensor, y: Tensor, lr: float, steps: int = 1) -> Params:
    for _ in range(steps):
        params = tree.add(params, gradient(params, x, y), -lr)
    return params


def start_of(fed: Any) -> Params:
    """The initial parameters of a run, seed 0."""
    module = fs.models.build("logistic", tuple(fed.dataset.x.shape[1:]), fed.dataset.classes, 0)
    return {name: p.detach().double() for name, p in module.named_parameters()}


def kept(folder: Path) -> dict[int, dict[str, Any]]:
    """What the checkpoint holds of every client's memory."""
    content, _ = load_tree(folder / "checkpoint" / "state.safetensors")
    return {int(k): memory for k, memory in content.get("memory", {}).items()}
