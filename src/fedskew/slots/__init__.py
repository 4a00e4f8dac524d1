"""Every ingredient by slot and name, wherever it is defined: with its one method, or in `fedskew.method`.

An ingredient is a class with a name of its own; its base class says its slot. The modules ``parts``, ``samplers`` and
so on hold the classes of a slot by the names of the classes: ``fs.parts.Proximal``. `scripts/typed.py` writes them.
"""

from importlib import import_module
from pkgutil import iter_modules

from fedskew import method, methods
from fedskew.method import LocalStep, Pace, Sampler, Selector, ServerOptimizer, Weighting
from fedskew.method.component import Component

SLOTS: dict[type, str] = {  # of what derives from a class
    Component: "parts",
    Sampler: "sampler",
    Selector: "selector",
    Pace: "pace",
    Weighting: "weighting",
    ServerOptimizer: "server",
    LocalStep: "local",
}
INGREDIENTS: dict[str, dict[str, type[Component]]] = {slot: {} for slot in SLOTS.values()}
for room in (method, methods):
    for file in iter_modules(room.__path__, f"{room.__name__}."):
        for kind in vars(import_module(file.name)).values():
            if isinstance(kind, type) and issubclass(kind, Component) and vars(kind).get("name"):
                INGREDIENTS[SLOTS[next(filter(SLOTS.__contains__, kind.__mro__))]][kind.name] = kind
INGREDIENTS.update({slot: dict(sorted(table.items())) for slot, table in INGREDIENTS.items()})
