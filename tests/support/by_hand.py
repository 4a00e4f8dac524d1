"""Logistic regression computed by hand on a client's rows, and what a run kept to compare it with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.records.files import load_tree
from fedskew.types import Params

ENGINES = pytest.mark.parametrize("engine", ["sequential", "batched"])


def logits_of(params: Params, x: Tensor) -> Tensor:
    return x @ params["fc.weight"].T + params["fc.bias"]


def rows(fed: Any, k: int) -> tuple[Tensor, Tensor]:
    at = torch.from_numpy(fed.rows(k))
    return fed.dataset.x[at].double(), fed.dataset.y[at]


def start_of(fed: Any) -> Params:
    """The initial parameters of a run, seed 0."""
    module = fs.models.build("logistic", tuple(fed.dataset.x.shape[1:]), fed.dataset.classes, 0)
    return {name: p.detach().double() for name, p in module.named_parameters()}


def kept(folder: Path) -> dict[int, dict[str, Any]]:
    """What the checkpoint holds of every client's memory."""
    content, _ = load_tree(folder / "checkpoint" / "state.safetensors")
    return {int(k): memory for k, memory in content.get("memory", {}).items()}
