"""Every ingredient by slot and name, wherever it is defined: with its one method, or in `fedskew.method`.

An ingredient is a class with a name of its own; its base class says its slot. The modules ``parts``, ``samplers`` and
so on hold the classes of a slot by the names of the classes: ``fs.parts.Proximal``.
"""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from fedskew import method, methods
from fedskew.method import LocalStep, Pace, Sampler, Selector, ServerOptimizer, Weighting
from fedskew.method.component import Component
from fedskew.method.weightings import Wrapping

BASES: dict[str, type[Component]] = {  # of a slot; what derives from none of them is a part
    "sampler": Sampler,
    "selector": Selector,
    "pace": Pace,
    "weighting": Weighting,
    "server": ServerOptimizer,
    "local": LocalStep,
}


def _defined() -> Iterator[type[Component]]:
    for room in (method, methods):
        for file in iter_modules(room.__path__, f"{room.__name__}."):
            for kind in vars(import_module(file.name)).values():
                if isinstance(kind, type) and issubclass(kind, Component) and vars(kind).get("name"):
                    yield kind


def _module(name: str, slot: str) -> ModuleType:
    """The classes of a slot as a module."""
    made = ModuleType(f"fedskew.slots.{name}")
    vars(made).update({kind.__name__: kind for kind in INGREDIENTS[slot].values()})
    return made


INGREDIENTS: dict[str, dict[str, type[Component]]] = {slot: {} for slot in ("parts", *BASES)}
for kind in sorted(set(_defined()), key=lambda kind: kind.name):
    INGREDIENTS[next((s for s, base in BASES.items() if issubclass(kind, base)), "parts")][kind.name] = kind
parts, samplers, selectors = _module("parts", "parts"), _module("samplers", "sampler"), _module("selectors", "selector")
paces, weightings = _module("paces", "pace"), _module("weightings", "weighting")
servers, steps = _module("servers", "server"), _module("steps", "local")
vars(weightings)["Wrapping"] = Wrapping  # the base of weightings that wrap another
