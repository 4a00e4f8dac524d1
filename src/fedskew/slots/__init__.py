"""Every ingredient by slot and name, wherever it is defined: with its one method, or in `fedskew.method`."""

from fedskew.method.component import Component
from fedskew.slots import paces, parts, samplers, selectors, servers, steps, weightings

__all__ = ["INGREDIENTS"]

FILES = {
    "parts": parts,
    "sampler": samplers,
    "selector": selectors,
    "pace": paces,
    "weighting": weightings,
    "server": servers,
    "local": steps,
}
INGREDIENTS: dict[str, dict[str, type[Component]]] = {}  # of a slot: the ingredients that its file imports
for slot, file in FILES.items():
    kinds = [k for k in vars(file).values() if isinstance(k, type) and issubclass(k, Component) and "name" in vars(k)]
    INGREDIENTS[slot] = dict(sorted([(kind.name, kind) for kind in kinds]))
