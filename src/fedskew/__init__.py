"""fedskew: federated learning when labels are skewed. A method is a value; the loops exist once."""

# first of all: what follows takes seconds, in which the command can be interrupted
from fedskew.cli import interrupt as _interrupt  # noqa: F401

# isort: split
from fedskew import data, errors, functional, methods, models, slots
from fedskew._run import Result, run
from fedskew.advice.adviser import advise
from fedskew.data import federate, from_arrays, partitioners, skew
from fedskew.errors import ConfigError, DataError, FedskewError, RecordError, TrainingError
from fedskew.method import Component, LocalStep, Method, Pace, Sampler, Selector, ServerOptimizer, Weighting
from fedskew.records import metrics
from fedskew.slots import paces, parts, samplers, selectors, servers, steps, weightings

__version__ = "0.1.0"

__all__ = [
    "Component",
    "ConfigError",
    "DataError",
    "FedskewError",
    "LocalStep",
    "Method",
    "Pace",
    "RecordError",
    "Result",
    "Sampler",
    "Selector",
    "ServerOptimizer",
    "TrainingError",
    "Weighting",
    "advise",
    "data",
    "errors",
    "federate",
    "from_arrays",
    "functional",
    "methods",
    "metrics",
    "models",
    "paces",
    "partitioners",
    "parts",
    "run",
    "samplers",
    "selectors",
    "servers",
    "skew",
    "slots",
    "steps",
    "weightings",
]
