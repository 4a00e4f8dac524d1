"""Every ingredient by slot and name, wherever it is defined: with its one method, or in `fedskew.shared`."""

from fedskew.component import Component
from fedskew.slots.paces import PACES
from fedskew.slots.parts import PARTS
from fedskew.slots.samplers import SAMPLERS
from fedskew.slots.selectors import SELECTORS
from fedskew.slots.servers import SERVERS
from fedskew.slots.steps import STEPS
from fedskew.slots.weightings import WEIGHTINGS

__all__ = [
    "INGREDIENTS",
]

INGREDIENTS: dict[str, dict[str, type[Component]]] = {
    "parts": {**PARTS},
    "sampler": {**SAMPLERS},
    "selector": {**SELECTORS},
    "pace": {**PACES},
    "weighting": {**WEIGHTINGS},
    "server": {**SERVERS},
    "local": {**STEPS},
}
