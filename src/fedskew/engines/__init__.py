"""Engines: one client round, many ways to map it."""

from __future__ import annotations

from fedskew.engines.base import LocalEngine
from fedskew.engines.batched import Batched
from fedskew.engines.sequential import Debug, Sequential, Threaded
from fedskew.errors import unknown

__all__ = ["ENGINES", "Batched", "Debug", "LocalEngine", "Sequential", "Threaded", "choose"]

ENGINES: dict[str, type[LocalEngine]] = {
    "sequential": Sequential, "threaded": Threaded, "batched": Batched, "debug": Debug,
}  # fmt: skip


def choose(name: str, device: str) -> tuple[type[LocalEngine], str]:
    """(engine, reason). "auto" decides from the device, never from a clock. Raises ConfigError for an unknown name."""
    if name == "auto":
        if device.startswith("cuda"):
            return Batched, "a GPU is kept busy by stacked clients"
        return Sequential, "on a CPU plain autograd beats torch.func step for step"
    if name not in ENGINES:
        raise unknown("engine", name, [*ENGINES, "auto"])
    return ENGINES[name], "asked for"
