"""The table of a slot, from the ingredients that its file imports."""

from collections.abc import Mapping
from typing import Any

from fedskew.component import Component


def named(members: Mapping[str, Any]) -> dict[str, type[Component]]:
    """The ingredients among the members of a module, by name."""
    kinds = [k for k in members.values() if isinstance(k, type) and issubclass(k, Component) and "name" in vars(k)]
    return dict(sorted({kind.name: kind for kind in kinds}.items()))
