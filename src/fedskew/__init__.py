"""fedskew: federated learning when labels are skewed. A method is a value; the loops exist once."""

# _interrupt comes first: what follows takes seconds, in which the command can be interrupted
from fedskew import _interrupt as _interrupt
from fedskew import data, errors, functional, methods, metrics, models, parts, slots
from fedskew.advise import advise
from fedskew.data import federate, from_arrays
from fedskew.data import partitions as partitions
from fedskew.data import skew as skew
from fedskew.errors import ConfigError, DataError, FedskewError, RecordError, TrainingError
from fedskew.method import Component, LocalStep, Method, Pace, Sampler, Selector, ServerOptimizer, Weighting
from fedskew.run import Result, run
from fedskew.slots import paces, samplers, selectors, servers, steps, weightings

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
    "partitions",
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
