"""Engines: one client round, many ways to map it."""

from __future__ import annotations

from fedskew.engines.base import LocalEngine
from fedskew.engines.batched import Batched
from fedskew.engines.sequential import Debug, Sequential, Threaded
from fedskew.errors import unknown
from fedskew.method import Method
from fedskew.models.prepare import Model

__all__ = ["ENGINES", "Batched", "Debug", "LocalEngine", "Sequential", "Threaded", "choose"]

DENSE = {"Flatten", "Linear", "ReLU", "Tanh", "Sigmoid", "GELU", "Dropout", "Identity", "LayerNorm"}

ENGINES: dict[str, type[LocalEngine]] = {
    "sequential": Sequential, "threaded": Threaded, "batched": Batched, "debug": Debug,
}  # fmt: skip
SMALL = 20_000  # parameters: up to here a stack of clients fits the cache, and operators cost more than numbers


def choose(
    name: str, device: str, model: Model | None = None, method: Method | None = None
) -> tuple[type[LocalEngine], str]:
    """(engine, reason). "auto" decides from device, model and method, never from a clock.

    Raises ConfigError for an unknown name.
    """
    if name != "auto":
        if name not in ENGINES:
            raise unknown("engine", name, [*ENGINES, "auto"])
        return ENGINES[name], "asked for"
    if device.startswith("cuda"):
        return Batched, "a GPU is kept busy by stacked clients"
    small = model is not None and model.layer_kinds <= DENSE and model.parameter_count <= SMALL
    # somebody's own component may look at values, which cannot be done to a stack
    ours = method is not None and all(type(c).__module__.startswith("fedskew.") for c in method.components)
    if small and ours:
        return Batched, f"a dense model of at most {SMALL} parameters: clients are stacked, a stack a thread"
    return Threaded, "on a CPU, a client a thread by plain autograd"
