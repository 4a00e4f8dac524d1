"""Small networks of a user's own, with weights that no generator gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import fedskew as fs
from fedskew import rng


def keyed(module: nn.Module) -> nn.Module:
    """The module with weights that no generator gave."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.ndim > 1:
                bound = p[0].numel() ** -0.5
                p.copy_((2 * rng.uniform(rng.key(0, name), tuple(p.shape)) - 1) * bound)
            elif "bias" in name:
                p.zero_()
    return module


CONVOLUTIONAL = {
    name: keyed(net)
    for name, net in {
        "convolutions": nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(24, 10),
        ),
        "batch_norm": nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 10)
        ),
        "group_norm_dropout": nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 10)
        ),
    }.items()
}


def plain_module(build: Any) -> nn.Module:
    """What ``build`` gives, made where torch's own initialisation draws nothing, then given keyed weights."""
    with torch.device("meta"):
        module: nn.Module = build()
    module = module.to_empty(device="cpu")
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            layer.reset_parameters()
    return keyed(module)


def norm_net(classes: int = 10, features: int = 64) -> nn.Module:
    """BatchNorm between two linear layers."""
    return plain_module(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(features, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, classes)
        )
    )


def dropout_net(classes: int = 10, features: int = 64) -> nn.Module:
    """Dropout between two linear layers."""
    return plain_module(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(features, 12), nn.ReLU(), nn.Dropout(0.4), nn.Linear(12, classes))
    )


# chains of dense layers, which `batched` writes out
DENSE: dict[str, Callable[[], nn.Module]] = {
    "logistic": lambda: nn.Linear(5, 3),
    "without biases": lambda: nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 3, bias=False)),
    "activations": lambda: nn.Sequential(
        nn.Flatten(), nn.Tanh(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 7), nn.Sigmoid(), nn.ReLU(), nn.Linear(7, 3)
    ),
    "linear projection": lambda: fs.models.projected(
        nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)), None, "linear", seed=0
    )[0],
    "nested": lambda: nn.Sequential(
        nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.0), nn.Identity(), nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
        nn.Linear(8, 3),
    ),
}  # fmt: skip
