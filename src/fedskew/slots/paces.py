"""Paces: batch size, number of steps and learning rate of a client.

Written by scripts/typed.py.
"""

from fedskew.method.paces import Cosine, Drops, Fixed, Part, Staged, Steps
from fedskew.methods.seolkim import Dynamic

__all__ = [
    "Cosine",
    "Drops",
    "Dynamic",
    "Fixed",
    "Part",
    "Staged",
    "Steps",
]
