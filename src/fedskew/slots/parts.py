"""Parts of a method: losses, corrections, memories and steps of the server.

Written by scripts/typed.py.
"""

from typing import TYPE_CHECKING

from fedskew.method.adapters import AlternateAdapters as AlternateAdapters
from fedskew.method.adapters import AverageProducts as AverageProducts
from fedskew.method.keeping import Frozen as Frozen
from fedskew.method.keeping import Private as Private
from fedskew.method.parts import CosineSoftmax as CosineSoftmax
from fedskew.method.parts import CrossEntropy as CrossEntropy
from fedskew.method.parts import DatasetMean as DatasetMean
from fedskew.method.parts import InitialHead as InitialHead
from fedskew.method.parts import ProximalVariant as ProximalVariant
from fedskew.methods.balancefl import KnowledgeInheritance as KnowledgeInheritance
from fedskew.methods.ccvr import VirtualRepresentations as VirtualRepresentations
from fedskew.methods.centralised import LDAM as LDAM
from fedskew.methods.centralised import ClassBalancedLoss as ClassBalancedLoss
from fedskew.methods.creff import FederatedFeatures as FederatedFeatures
from fedskew.methods.fedamp import AttentiveMessages as AttentiveMessages
from fedskew.methods.fedbabu import FineTune as FineTune
from fedskew.methods.fedbal import LocalBalancer as LocalBalancer
from fedskew.methods.fedcm import ClientMomentum as ClientMomentum
from fedskew.methods.fedcurv import Curvature as Curvature
from fedskew.methods.feddecorr import Decorrelation as Decorrelation
from fedskew.methods.feddyn import DynamicRegulariser as DynamicRegulariser
from fedskew.methods.feddyn import WeightedRegulariser as WeightedRegulariser
from fedskew.methods.fedetf import TunedCosineSoftmax as TunedCosineSoftmax
from fedskew.methods.fedfocal import Focal as Focal
from fedskew.methods.fedga import CalibratedTargets as CalibratedTargets
from fedskew.methods.fedgc import PrivateHead as PrivateHead
from fedskew.methods.fedgr import Gravitation as Gravitation
from fedskew.methods.fedgr import UnbalancedSoftmax as UnbalancedSoftmax
from fedskew.methods.fedgr import WeightedGravitation as WeightedGravitation
from fedskew.methods.fedgrab import GradientBalancer as GradientBalancer
from fedskew.methods.fedgrab import PriorAnalyser as PriorAnalyser
from fedskew.methods.fedir import ImportanceReweighting as ImportanceReweighting
from fedskew.methods.fedlc import LogitAdjustment as LogitAdjustment
from fedskew.methods.fedlc import LogitCalibration as LogitCalibration
from fedskew.methods.fedlc import PooledLogitCalibration as PooledLogitCalibration
from fedskew.methods.fedloge import RealignedHeads as RealignedHeads
from fedskew.methods.fedmlb import HybridPaths as HybridPaths
from fedskew.methods.fednh import NonParametricHead as NonParametricHead
from fedskew.methods.fedntd import NotTrueDistillation as NotTrueDistillation
from fedskew.methods.fedprox import Proximal as Proximal
from fedskew.methods.fedrep import Alternating as Alternating
from fedskew.methods.fedrl import RatioLoss as RatioLoss
from fedskew.methods.fedrod import GeneratedHead as GeneratedHead
from fedskew.methods.fedrod import PersonalHead as PersonalHead
from fedskew.methods.fedrs import RestrictedSoftmax as RestrictedSoftmax
from fedskew.methods.fedspeed import UploadedRegulariser as UploadedRegulariser
from fedskew.methods.feduv import UniformityVariance as UniformityVariance
from fedskew.methods.fedvls import VacantClasses as VacantClasses
from fedskew.methods.ifca import ClusterIdentity as ClusterIdentity
from fedskew.methods.moon import ModelContrastive as ModelContrastive
from fedskew.methods.scaffold import ControlVariate as ControlVariate

if not TYPE_CHECKING:
    __all__ = [name for name, kind in globals().items() if isinstance(kind, type)]
