"""Parts: what a client optimises and remembers, with the server half of the same ingredient."""

from __future__ import annotations

from fedskew.component import Component
from fedskew.methods.balancefl import KnowledgeInheritance
from fedskew.methods.ccvr import VirtualRepresentations
from fedskew.methods.centralised import LDAM, ClassBalancedLoss
from fedskew.methods.creff import FederatedFeatures
from fedskew.methods.fedamp import AttentiveMessages
from fedskew.methods.fedbal import LocalBalancer
from fedskew.methods.fedcm import ClientMomentum
from fedskew.methods.fedcurv import Curvature
from fedskew.methods.feddecorr import Decorrelation
from fedskew.methods.feddyn import DynamicRegulariser, WeightedRegulariser
from fedskew.methods.fedfocal import Focal
from fedskew.methods.fedga import CalibratedTargets
from fedskew.methods.fedgc import PrivateHead
from fedskew.methods.fedgr import Gravitation, UnbalancedSoftmax, WeightedGravitation
from fedskew.methods.fedgrab import GradientBalancer, PriorAnalyser
from fedskew.methods.fedir import ImportanceReweighting
from fedskew.methods.fedlc import LogitAdjustment, LogitCalibration, PooledLogitCalibration
from fedskew.methods.fednh import NonParametricHead
from fedskew.methods.fedntd import NotTrueDistillation
from fedskew.methods.fedprox import Proximal
from fedskew.methods.fedrl import RatioLoss
from fedskew.methods.fedrs import RestrictedSoftmax
from fedskew.methods.fedspeed import UploadedRegulariser
from fedskew.methods.feduv import UniformityVariance
from fedskew.methods.fedvls import VacantClasses
from fedskew.methods.ifca import ClusterIdentity
from fedskew.methods.moon import ModelContrastive
from fedskew.methods.scaffold import ControlVariate
from fedskew.shared.parts import CrossEntropy, DatasetMean
from fedskew.shared.pulls import ProximalVariant

__all__ = [
    "LDAM",
    "PARTS",
    "AttentiveMessages",
    "CalibratedTargets",
    "ClassBalancedLoss",
    "ClientMomentum",
    "ClusterIdentity",
    "ControlVariate",
    "CrossEntropy",
    "Curvature",
    "DatasetMean",
    "Decorrelation",
    "DynamicRegulariser",
    "FederatedFeatures",
    "Focal",
    "GradientBalancer",
    "Gravitation",
    "ImportanceReweighting",
    "KnowledgeInheritance",
    "LocalBalancer",
    "LogitAdjustment",
    "LogitCalibration",
    "ModelContrastive",
    "NonParametricHead",
    "NotTrueDistillation",
    "PooledLogitCalibration",
    "PriorAnalyser",
    "PrivateHead",
    "Proximal",
    "ProximalVariant",
    "RatioLoss",
    "RestrictedSoftmax",
    "UnbalancedSoftmax",
    "UniformityVariance",
    "UploadedRegulariser",
    "VacantClasses",
    "VirtualRepresentations",
    "WeightedGravitation",
    "WeightedRegulariser",
]

PARTS: dict[str, type[Component]] = {
    "attentive_messages": AttentiveMessages,
    "calibrated_targets": CalibratedTargets,
    "class_balanced_loss": ClassBalancedLoss,
    "client_momentum": ClientMomentum,
    "cluster_identity": ClusterIdentity,
    "control_variate": ControlVariate,
    "cross_entropy": CrossEntropy,
    "curvature": Curvature,
    "dataset_mean": DatasetMean,
    "decorrelation": Decorrelation,
    "dynamic_regulariser": DynamicRegulariser,
    "federated_features": FederatedFeatures,
    "focal": Focal,
    "gradient_balancer": GradientBalancer,
    "gravitation": Gravitation,
    "importance_reweighting": ImportanceReweighting,
    "knowledge_inheritance": KnowledgeInheritance,
    "ldam": LDAM,
    "local_balancer": LocalBalancer,
    "logit_adjustment": LogitAdjustment,
    "logit_calibration": LogitCalibration,
    "model_contrastive": ModelContrastive,
    "non_parametric_head": NonParametricHead,
    "not_true_distillation": NotTrueDistillation,
    "pooled_logit_calibration": PooledLogitCalibration,
    "prior_analyser": PriorAnalyser,
    "private_head": PrivateHead,
    "proximal": Proximal,
    "proximal_variant": ProximalVariant,
    "ratio_loss": RatioLoss,
    "restricted_softmax": RestrictedSoftmax,
    "unbalanced_softmax": UnbalancedSoftmax,
    "uniformity_variance": UniformityVariance,
    "uploaded_dynamic_regulariser": UploadedRegulariser,
    "vacant_classes": VacantClasses,
    "virtual_representations": VirtualRepresentations,
    "weighted_dynamic_regulariser": WeightedRegulariser,
    "weighted_gravitation": WeightedGravitation,
}
