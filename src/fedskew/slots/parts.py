"""Parts: what a client optimises and remembers, with the server half of the same ingredient."""

from __future__ import annotations

from fedskew.component import Component
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
from fedskew.shared.heads import CosineSoftmax, InitialHead
from fedskew.shared.keeping import Frozen, Private
from fedskew.shared.parts import CrossEntropy, DatasetMean
from fedskew.shared.pulls import ProximalVariant

__all__ = [
    "LDAM",
    "PARTS",
    "Alternating",
    "AttentiveMessages",
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

PARTS: dict[str, type[Component]] = {
    "alternating": Alternating,
    "attentive_messages": AttentiveMessages,
    "calibrated_targets": CalibratedTargets,
    "class_balanced_loss": ClassBalancedLoss,
    "client_momentum": ClientMomentum,
    "cluster_identity": ClusterIdentity,
    "control_variate": ControlVariate,
    "cosine_softmax": CosineSoftmax,
    "cross_entropy": CrossEntropy,
    "curvature": Curvature,
    "dataset_mean": DatasetMean,
    "decorrelation": Decorrelation,
    "dynamic_regulariser": DynamicRegulariser,
    "federated_features": FederatedFeatures,
    "fine_tune": FineTune,
    "focal": Focal,
    "frozen": Frozen,
    "generated_head": GeneratedHead,
    "gradient_balancer": GradientBalancer,
    "gravitation": Gravitation,
    "hybrid_paths": HybridPaths,
    "importance_reweighting": ImportanceReweighting,
    "initial_head": InitialHead,
    "knowledge_inheritance": KnowledgeInheritance,
    "ldam": LDAM,
    "local_balancer": LocalBalancer,
    "logit_adjustment": LogitAdjustment,
    "logit_calibration": LogitCalibration,
    "model_contrastive": ModelContrastive,
    "non_parametric_head": NonParametricHead,
    "not_true_distillation": NotTrueDistillation,
    "personal_head": PersonalHead,
    "pooled_logit_calibration": PooledLogitCalibration,
    "prior_analyser": PriorAnalyser,
    "private": Private,
    "private_head": PrivateHead,
    "proximal": Proximal,
    "proximal_variant": ProximalVariant,
    "ratio_loss": RatioLoss,
    "realigned_heads": RealignedHeads,
    "restricted_softmax": RestrictedSoftmax,
    "tuned_cosine_softmax": TunedCosineSoftmax,
    "unbalanced_softmax": UnbalancedSoftmax,
    "uniformity_variance": UniformityVariance,
    "uploaded_dynamic_regulariser": UploadedRegulariser,
    "vacant_classes": VacantClasses,
    "virtual_representations": VirtualRepresentations,
    "weighted_dynamic_regulariser": WeightedRegulariser,
    "weighted_gravitation": WeightedGravitation,
}
