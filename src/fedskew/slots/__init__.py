"""Every ingredient by slot and name; its modules are written by `scripts/typed.py`, and names of classes stay.

An ingredient is a class with a name of its own; its base class says its slot. The modules ``parts``, ``samplers`` and
so on hold the classes of a slot by the names of the classes: ``fs.parts.Proximal``.
"""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from fedskew import method, methods
from fedskew.method import Component
from fedskew.plugins import Brought, Registry

SLOTS: dict[Any, str] = {Component: "parts"} | {kind: slot for slot, kind in method.SLOTS.items()}  # of what derives


def _brought(slot: str) -> Iterator[Brought]:
    """The ingredients of a slot that methods of plug-ins bring."""
    for added in methods.METHODS.added.values():
        for ingredient in dict(added.thing().ingredients()).values():
            name, kind = ingredient.name, type(ingredient)
            derived = SLOTS[next(filter(SLOTS.__contains__, kind.__mro__))]
            if derived == slot and kind is not INGREDIENTS[slot].own.get(name):
                yield Brought(added.distribution, name, kind)


_named: dict[str, dict[str, type[Component]]] = {slot: {} for slot in SLOTS.values()}
for room in (method, methods):
    for file in iter_modules(room.__path__, f"{room.__name__}."):
        for kind in vars(import_module(file.name)).values():
            if isinstance(kind, type) and issubclass(kind, Component) and vars(kind).get("name"):
                _named[SLOTS[next(filter(SLOTS.__contains__, kind.__mro__))]][kind.name] = kind
INGREDIENTS: dict[str, Registry[type[Component]]] = {
    slot: Registry("ingredient", dict(sorted(kinds.items())), Component, partial(_brought, slot))
    for slot, kinds in _named.items()
}
