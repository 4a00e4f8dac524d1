"""Networks, and how any of them becomes a pure function."""

from fedskew.models.architectures import (
    MLP,
    MODELS,
    TFCNN,
    Architecture,
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
    build,
)

__all__ = [
    "MLP",
    "MODELS",
    "TFCNN",
    "Architecture",
    "ConvNet",
    "EmnistCNN",
    "LeNet",
    "Logistic",
    "PFLlibCNN",
    "PflCNN",
    "ResNet9",
    "ResNet18",
    "ResNet20",
    "SeolKimCNN",
    "TwoNN",
    "build",
]
