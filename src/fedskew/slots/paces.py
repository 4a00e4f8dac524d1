"""Paces: a client's batch size, number of steps and learning rate."""

from __future__ import annotations

from fedskew.component import Pace
from fedskew.methods.seolkim import Dynamic
from fedskew.shared.paces import Fixed, Staged

__all__ = [
    "PACES",
    "Dynamic",
    "Fixed",
    "Staged",
]

PACES: dict[str, type[Pace]] = {
    "dynamic": Dynamic,
    "fixed": Fixed,
    "staged": Staged,
}
