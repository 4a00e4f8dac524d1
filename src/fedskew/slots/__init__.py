"""Every ingredient by slot and name, wherever it is defined: with its one method, or in `fedskew.shared`."""

from fedskew.component import Component
from fedskew.slots import paces, parts, samplers, selectors, servers, steps, weightings

__all__ = ["INGREDIENTS"]

INGREDIENTS: dict[str, dict[str, type[Component]]] = {
    "parts": parts.PARTS,
    "sampler": samplers.SAMPLERS,
    "selector": selectors.SELECTORS,
    "pace": paces.PACES,
    "weighting": weightings.WEIGHTINGS,
    "server": servers.SERVERS,
    "local": steps.STEPS,
}
