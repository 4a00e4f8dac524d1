"""Server optimizers: the step of the global model.

Written by scripts/typed.py.
"""

from fedskew.method.servers import Adagrad, Adam, Momentum, Plain, WeightedSum, Yogi
from fedskew.methods.fedacg import Accelerated
from fedskew.methods.feddyn import DynamicCorrection
from fedskew.methods.fedexp import Extrapolated
from fedskew.methods.fednova import GlobalMomentum
from fedskew.methods.fedspeed import CorrectedMean

__all__ = [
    "Accelerated",
    "Adagrad",
    "Adam",
    "CorrectedMean",
    "DynamicCorrection",
    "Extrapolated",
    "GlobalMomentum",
    "Momentum",
    "Plain",
    "WeightedSum",
    "Yogi",
]
