"""fedskew: federated learning when labels are skewed. A method is a value; the loops exist once.

Names are found when they are first used, so that ``import fedskew`` and the command start without torch.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:  # what type checkers and editors read; a test holds it to _HOMES and __all__
    from fedskew import data, errors, functional, methods, models, slots, track, types
    from fedskew._run import Result, run
    from fedskew.advice.adviser import advise
    from fedskew.config import presets
    from fedskew.data import federate, from_arrays, from_table, partitioners, skew
    from fedskew.engines.decomposed import decompose
    from fedskew.engines.fitting import Fitting
    from fedskew.engines.trained import Trained, load_model
    from fedskew.errors import ConfigError, DataError, FedskewError, FieldError, RecordError, TrainingError
    from fedskew.method import Component, LocalStep, Method, Pace, Sampler, Selector, ServerOptimizer, Weighting
    from fedskew.records import metrics
    from fedskew.records.diagnostics import Diagnostics
    from fedskew.settings import Settings
    from fedskew.slots import paces, parts, samplers, selectors, servers, steps, weightings
    from fedskew.studies.study import Study, study

__version__ = "0.1.0"

__all__ = [
    "Component",
    "ConfigError",
    "DataError",
    "Diagnostics",
    "FedskewError",
    "FieldError",
    "Fitting",
    "LocalStep",
    "Method",
    "Pace",
    "RecordError",
    "Result",
    "Sampler",
    "Selector",
    "ServerOptimizer",
    "Settings",
    "Study",
    "Trained",
    "TrainingError",
    "Weighting",
    "advise",
    "data",
    "decompose",
    "errors",
    "federate",
    "from_arrays",
    "from_table",
    "functional",
    "load_model",
    "methods",
    "metrics",
    "models",
    "paces",
    "partitioners",
    "parts",
    "presets",
    "run",
    "samplers",
    "selectors",
    "servers",
    "skew",
    "slots",
    "steps",
    "study",
    "track",
    "types",
    "weightings",
]

_HOMES = {  # where each name is found
    "fedskew": ("data", "errors", "functional", "methods", "models", "slots", "track", "types"),
    "fedskew._run": ("Result", "run"),
    "fedskew.advice.adviser": ("advise",),
    "fedskew.config": ("presets",),
    "fedskew.data": ("federate", "from_arrays", "from_table", "partitioners", "skew"),
    "fedskew.engines.decomposed": ("decompose",),
    "fedskew.engines.fitting": ("Fitting",),
    "fedskew.engines.trained": ("Trained", "load_model"),
    "fedskew.errors": ("ConfigError", "DataError", "FedskewError", "FieldError", "RecordError", "TrainingError"),
    "fedskew.method": (
        "Component", "LocalStep", "Method", "Pace", "Sampler", "Selector", "ServerOptimizer", "Weighting",
    ),
    "fedskew.records": ("metrics",),
    "fedskew.records.diagnostics": ("Diagnostics",),
    "fedskew.settings": ("Settings",),
    "fedskew.studies.study": ("Study", "study"),
    "fedskew.slots": ("paces", "parts", "samplers", "selectors", "servers", "steps", "weightings"),
}  # fmt: skip

if not _typing.TYPE_CHECKING:  # hidden from checkers, which would take every misspelt name for a lazy one

    def __getattr__(name):
        """A public name on its first use; afterwards it is an attribute like any other."""
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'fedskew' has no attribute {name!r}")
        if home == "fedskew":
            return _import_module(f"fedskew.{name}")
        found = _import_module(home)
        value = getattr(found, name) if hasattr(found, name) else _import_module(f"{home}.{name}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
