"""Every ingredient by slot and name, wherever it is defined: with its one method, or in `fedskew.shared`."""

from types import ModuleType

from fedskew.component import Component
from fedskew.slots import paces, parts, samplers, selectors, servers, steps, weightings

__all__ = ["INGREDIENTS"]


def _named(module: ModuleType) -> dict[str, type[Component]]:
    """The ingredients that a module imports, by name."""
    kinds = [k for k in vars(module).values() if isinstance(k, type) and issubclass(k, Component) and "name" in vars(k)]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)}


INGREDIENTS: dict[str, dict[str, type[Component]]] = {
    "parts": _named(parts),
    "sampler": _named(samplers),
    "selector": _named(selectors),
    "pace": _named(paces),
    "weighting": _named(weightings),
    "server": _named(servers),
    "local": _named(steps),
}
