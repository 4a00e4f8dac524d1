"""Parts of a method: losses, corrections, memories and steps of the server.

Written by scripts/typed.py.
"""

from fedskew.method.adapters import AlternateAdapters, AverageProducts
from fedskew.method.keeping import Frozen, Private
from fedskew.method.parts import CosineSoftmax, CrossEntropy, DatasetMean, InitialHead, ProximalVariant
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.ccvr import VirtualRepresentations
from fedskew.methods.centralised import LDAM, ClassBalancedLoss
from fedskew.methods.creff import FederatedFeatures
from fedskew.methods.fedamp import AttentiveMessages
from fedskew.methods.fedbabu import FineTune
from fedskew.methods.fedbal import LocalBalancer
from fedskew.methods.fedcm import ClientMomentum
from fedskew.methods.fedcurv import Curvature
from fedskew.methods.feddecorr import Decorrelation
from fedskew.methods.feddyn import DynamicRegulariser, WeightedRegulariser
from fedskew.methods.fedetf import TunedCosineSoftmax
from fedskew.methods.fedfocal import Focal
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedgr import Gravitation, UnbalancedSoftmax, WeightedGravitation
from fedskew.methods.fedgrab import GradientBalancer, PriorAnalyser
from fedskew.methods.fedir import ImportanceReweighting
from fedskew.methods.fedlc import LogitAdjustment, LogitCalibration, PooledLogitCalibration
from fedskew.methods.fedloge import RealignedHeads
from fedskew.methods.fedmlb import HybridPaths
from fedskew.methods.fednh import NonParametricHead
from fedskew.methods.fedntd import NotTrueDistillation
from fedskew.methods.fedprox import Proximal
from fedskew.methods.fedrep import Alternating
from fedskew.methods.fedrl import RatioLoss
from fedskew.methods.fedrod import GeneratedHead, PersonalHead
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.fedspeed import UploadedRegulariser
from fedskew.methods.feduv import UniformityVariance
from fedskew.methods.fedvls import VacantClasses
from fedskew.methods.ifca import ClusterIdentity
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.scaffold import ControlVariate

__all__ = [
    "LDAM",
    "AlternateAdapters",
    "Alternating",
    "AttentiveMessages",
    "AverageProducts",
    "CalibratedTargets",
    "ClassBalancedLoss",
    "ClientMomentum",
    "ClusterIdentity",
    "ControlVariate",
    "CosineSoftmax",
    "CrossEntropy",
    "Curvature",
    "DatasetMean",
    "Decorrelation",
    "DynamicRegulariser",
    "FederatedFeatures",
    "FineTune",
    "Focal",
    "Frozen",
    "GeneratedHead",
    "GradientBalancer",
    "Gravitation",
    "HybridPaths",
    "ImportanceReweighting",
    "InitialHead",
    "KnowledgeInheritance",
    "LocalBalancer",
    "LogitAdjustment",
    "LogitCalibration",
    "ModelContrastive",
    "NonParametricHead",
    "NotTrueDistillation",
    "PersonalHead",
    "PooledLogitCalibration",
    "PriorAnalyser",
    "Private",
    "PrivateHead",
    "Proximal",
    "ProximalVariant",
    "RatioLoss",
    "RealignedHeads",
    "RestrictedSoftmax",
    "TunedCosineSoftmax",
    "UnbalancedSoftmax",
    "UniformityVariance",
    "UploadedRegulariser",
    "VacantClasses",
    "VirtualRepresentations",
    "WeightedGravitation",
    "WeightedRegulariser",
]
