"""Networks, and how each of them becomes a pure function.

Example:
    >>> from fedskew.models import MLP, build
    >>> network = build(MLP(hidden=16), shape=(1, 8, 8), classes=10, seed=0)
    >>> sum(p.numel() for p in network.parameters())
    1210
"""

from fedskew.models.architectures import (
    MLP,
    MODELS,
    TFCNN,
    Architecture,
    CharLSTM,
    CharTransformer,
    ConvNet,
    EmnistCNN,
    LeNet,
    Logistic,
    PflCNN,
    PFLlibCNN,
    ResNet9,
    ResNet18,
    ResNet20,
    SeolKimCNN,
    TwoNN,
    architecture,
    build,
)  # fmt: skip
from fedskew.models.projection import CLASSIFIER, projected

__all__ = [
    "CLASSIFIER", "MLP", "MODELS", "TFCNN", "Architecture", "CharLSTM", "CharTransformer", "ConvNet", "EmnistCNN",
    "LeNet", "Logistic", "PFLlibCNN", "PflCNN", "ResNet9", "ResNet18", "ResNet20", "SeolKimCNN", "TwoNN",
    "architecture", "build", "projected",
]  # fmt: skip
