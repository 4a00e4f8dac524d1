"""Servers: what is done with the aggregated update."""

from fedskew.methods.fedacg import Accelerated as Accelerated
from fedskew.methods.feddyn import DynamicCorrection as DynamicCorrection
from fedskew.methods.fedexp import Extrapolated as Extrapolated
from fedskew.methods.fednova import GlobalMomentum as GlobalMomentum
from fedskew.methods.fedspeed import CorrectedMean as CorrectedMean
from fedskew.shared.servers import Adagrad as Adagrad
from fedskew.shared.servers import Adam as Adam
from fedskew.shared.servers import Momentum as Momentum
from fedskew.shared.servers import Plain as Plain
from fedskew.shared.servers import WeightedSum as WeightedSum
from fedskew.shared.servers import Yogi as Yogi
