"""Presets of single methods: where paper and code have two paces, and readings of a paper that go by a name."""

from __future__ import annotations

from fedskew.config.presets.preset import Preset, Stated

__all__ = ["CODE", "FEATURE_BALANCED_LOSS", "PAPER", "PRINTED"]

PAPER: dict[str, Preset] = {
    "fedgr": Preset(
        "CIFAR-10, CIFAR-100 and Fashion-MNIST, 100 clients, 1000 rounds",
        "Guo et al. 2023, section 4; epochs: code Guosy-wxy/FedGR@fc18f2d",
        {
            "pace.lr": Stated(0.1, "P"),
            "pace.batch_size": Stated(64, "P"),
            "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(1.0, "A"),
            "local.momentum": Stated(0.0, "A"),
            "local.weight_decay": Stated(5e-4, "P"),
            "local.clip": Stated(0.0, "A"),
            "weighting": Stated("size", "P"),
            "share": Stated(0.1, "P"),
        },
        "the public code has another pace: authors_code",
    ),
}
CODE: dict[str, Preset] = {
    "fedgr": Preset(
        "CIFAR-10 and CIFAR-100, 150 clients, 1000 rounds",
        "Code Guosy-wxy/FedGR@fc18f2d, config.py, tools.py and algorithms/fedgr.py",
        {
            "pace.lr": Stated(0.03, "C"),
            "pace.batch_size": Stated(64, "C"),
            "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(1.0, "C"),
            "local.momentum": Stated(0.9, "C"),
            "local.weight_decay": Stated(1e-5, "C"),
            "local.clip": Stated(100.0, "C"),
            "weighting": Stated("size", "C"),
            "share": Stated(0.1, "C"),
        },
        "FedGR's own loop does not run, and counts epochs from 1: 4 of them. Most baselines are averaged uniformly "
        "there, FedAvg among them: its control is weighting uniform",
    ),
}
PRINTED: dict[str, Preset] = {
    "fedbal": Preset(
        "any: a reading of equation 12, no pace",
        "Anonymous 2023, equation 12, which prints no factor; eps: our choice",
        {"parts.local_balancer.strength": Stated(1.0, "P"), "parts.local_balancer.eps": Stated(1.0, "A")},
        "with the printed eps of 1e-12 a row whose features are all zero blows the step up",
    ),
}
FEATURE_BALANCED_LOSS: dict[str, Preset] = {
    "fedbal": Preset(
        "any: a reading of equation 12, no pace",
        "Li et al. 2022, whose loss FedBal adopts; code juyongjiang/FBL@e0ed473, loss.py and train.py",
        {"parts.local_balancer.strength": Stated(60.0, "C"), "parts.local_balancer.eps": Stated(1e-12, "C")},
        "made for ResNets with BatchNorm",
    ),
}  # fmt: skip
