"""A selector whose cohorts are written down, for problems that the authors' code was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import fedskew as fs
from fedskew.types import Assignment


def listed(cohorts: Sequence[Sequence[int]]) -> fs.Selector:
    """Takes these clients, one list a round."""

    @dataclass(frozen=True)
    class Listed(fs.Selector):
        """The cohorts of the problem, one a round."""

        name = "listed"

        def init_server(self, params: Any, fed: Any, task: Any) -> Any:
            return {"round": torch.zeros((), dtype=torch.int64)}

        def select(self, state: Any, k: int, key: Tensor) -> Assignment:
            return Assignment(torch.tensor(cohorts[int(state["round"])])[:, None])

        def absorb(self, state: Any, cohort: Any, key: Tensor) -> Any:
            return {"round": state["round"] + 1}, None

    return Listed()
