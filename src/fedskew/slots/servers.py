"""Server optimizers: the step of the global model.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.servers import Adagrad as Adagrad
from fedskew.method.servers import Adam as Adam
from fedskew.method.servers import Momentum as Momentum
from fedskew.method.servers import Plain as Plain
from fedskew.method.servers import WeightedSum as WeightedSum
from fedskew.method.servers import Yogi as Yogi
from fedskew.methods.fedacg import Accelerated as Accelerated
from fedskew.methods.feddyn import DynamicCorrection as DynamicCorrection
from fedskew.methods.fedexp import Extrapolated as Extrapolated
from fedskew.methods.fednova import GlobalMomentum as GlobalMomentum
from fedskew.methods.fedspeed import CorrectedMean as CorrectedMean

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
