"""The authors' pace of methods from l to z: the second part of `fedskew.config.presets.table`."""

from __future__ import annotations

from fedskew.config.presets.preset import Preset, Stated
from fedskew.config.presets.sources import SIMULATOR, SIMULATOR_SETTING, UNCHECKED, UNREAD

__all__ = ["MORE"]

MORE: dict[str, Preset | str] = {
    "lgfedavg": UNREAD,
    "localonly": "there are no authors: the pace is whatever the compared methods have",
    "mofedsam": Preset(
        SIMULATOR_SETTING, SIMULATOR,
        {
            "pace.lr": Stated(0.1, "T"), "pace.batch_size": Stated(50, "T"), "pace.epochs": Stated(5, "T"),
            "pace.decay": Stated(0.998, "T"), "local.weight_decay": Stated(1e-3, "T"), "local.clip": Stated(10.0, "T"),
            "local.rho": Stated(0.1, "T"), "parts.client_momentum.alpha": Stated(0.1, "T"),
            "server.lr": Stated(1.0, "T"), "share": Stated(0.1, "T"),
        },
        "its README has alpha 0.05 and 0.1; MoFedSAM's authors have no public code that was found",
    ),
    "moon": Preset(
        "CIFAR-10, Dirichlet 0.5, 10 clients, 100 rounds",
        "Li et al. 2021, section 4.1; code QinbinLi/MOON@8fcba3c, README.md and main.py",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(10, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-5, "C"), "share": Stated(1.0, "C"),
            "parts.model_contrastive.mu": Stated(5.0, "C"), "parts.model_contrastive.projection": Stated(256, "C"),
        },
        "CIFAR-100 and Tiny-ImageNet: mu 1",
    ),
    "perfedavg": Preset(
        "MNIST, 20 clients with 2 labels each, 800 rounds",
        "Code CharlieDinh/pFedMe@caf24b1, README.md, whose authors run Per-FedAvg as a baseline",
        {
            "pace.lr": Stated(0.001, "T"), "pace.batch_size": Stated(20, "T"), "local.alpha": Stated(0.02, "T"),
            "share": Stated(0.25, "T"),
        },
        "the tuned network; logistic regression has alpha 0.03 and beta 0.003. A round has 20 steps there, not epochs",
    ),
    "pfedme": Preset(
        "MNIST, 20 clients with 2 labels each, 800 rounds",
        "Code CharlieDinh/pFedMe@caf24b1, README.md and FLAlgorithms/optimizers/fedoptimizer.py",
        {
            "pace.lr": Stated(0.005, "C"), "pace.batch_size": Stated(20, "C"), "local.personal_lr": Stated(0.09, "C"),
            "local.penalty": Stated(15.0, "C"), "local.inner_steps": Stated(5, "C"),
            "local.weight_decay": Stated(0.001, "C"), "server.lr": Stated(1.0, "C"), "share": Stated(0.25, "C"),
        },
        "a round has 20 steps there, not epochs",
    ),
    "powerofchoice": Preset(
        "Fashion-MNIST, Dirichlet 0.3 and 2, 100 clients",
        "Code adap/flower, baselines/power_of_choice/power_of_choice/conf/base.yaml",
        {
            "pace.batch_size": Stated(32, "T"), "pace.epochs": Stated(5, "T"),
            "selector.candidates": Stated(6, "T"), "share": Stated(0.03, "T"),
        },
        "the reproduction names no rate",
    ),
    "precisionweighted": UNCHECKED,
    "scaffold": Preset(
        "EMNIST, 100 clients",
        "Karimireddy et al. 2020, section 7.1",
        {"server.lr": Stated(1.0, "P"), "share": Stated(0.2, "P")},
        "the paper tunes the rate for every run and prints none; its batch is a fifth of a client's rows",
    ),
    "seolkim": Preset(
        "CIFAR-10, 100 clients (case 3)",
        "Seol and Kim 2023, section 4",
        {
            "pace.lr": Stated(0.1, "P"), "pace.beta": Stated(25, "P"), "pace.epochs": Stated(5, "P"),
            "pace.decay": Stated(1.0, "A"), "local.momentum": Stated(0.0, "A"), "local.weight_decay": Stated(0.0, "A"),
            "local.clip": Stated(0.0, "A"), "share": Stated(0.1, "P"),
        },
        "at most 10 clients a round; case 1 has beta 3",
    ),
}  # fmt: skip
