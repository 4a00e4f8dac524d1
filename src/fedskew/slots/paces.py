"""Paces: a client's batch size, number of steps and learning rate."""

from __future__ import annotations

from fedskew.component import Pace
from fedskew.methods.seolkim import Dynamic
from fedskew.shared.paces import Cosine, Drops, Fixed, Part, Staged, Steps

__all__ = [
    "PACES",
    "Cosine",
    "Drops",
    "Dynamic",
    "Fixed",
    "Part",
    "Staged",
    "Steps",
]

PACES: dict[str, type[Pace]] = {
    "cosine": Cosine,
    "drops": Drops,
    "dynamic": Dynamic,
    "fixed": Fixed,
    "part": Part,
    "staged": Staged,
    "steps": Steps,
}
