"""The tables of ingredients are whole: an ingredient that a file defines can be named by the command."""

from __future__ import annotations

import importlib
import pkgutil

import fedskew.method
import fedskew.methods
from fedskew.method.component import Component
from fedskew.slots import INGREDIENTS


def _defined() -> set[type[Component]]:
    """Components with a name of their own, of the files of both rooms of ingredients."""
    found: set[type[Component]] = set()
    for room in (fedskew.methods, fedskew.method):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            members = vars(importlib.import_module(module.name)).values()
            found |= {c for c in members if isinstance(c, type) and issubclass(c, Component) and "name" in vars(c)} - {
                Component
            }
    return found


def test_every_ingredient_stands_in_a_table_under_its_name() -> None:
    listed = {kind: name for table in INGREDIENTS.values() for name, kind in table.items()}
    assert sorted(kind.__name__ for kind in _defined() - set(listed)) == []
    assert all(kind.name == name for kind, name in listed.items())
