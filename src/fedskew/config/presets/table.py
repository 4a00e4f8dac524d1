"""The authors' pace of every method of the table, or one line that says why there is none.

Where a source has several experiments, the row is the one nearest to label-skewed images, and ``setting`` names it. A
cohort is a share of the clients. Grades: P paper, C authors' code, T third party, A assumed.
"""

from __future__ import annotations

from fedskew.config.presets.more import MORE
from fedskew.config.presets.preset import Preset, Stated
from fedskew.config.presets.readings import PAPER
from fedskew.config.presets.sources import (
    FEDOPT,
    FEDOPT_NOTE,
    FEDOPT_SETTING,
    SIMULATOR,
    SIMULATOR_SETTING,
    UNCHECKED,
    UNREAD,
)

__all__ = ["AUTHORS"]

AUTHORS: dict[str, Preset | str] = {
    "apfl": UNREAD,
    "astraea": UNCHECKED,
    "balancefl": Preset(
        "CIFAR-10 with a long tail, 10 clients, 200 rounds",
        "Code sxontheway/BalanceFL@d6dd21e, CIFAR10/config/fedlt.yaml",
        {
            "pace.lr": Stated(0.005, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(5, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-4, "C"), "share": Stated(1.0, "C"),
        },
        "the same file names Adam as the optimizer, which ignores the momentum; fedskew's local step is SGD",
    ),
    "ccvr": UNCHECKED,
    "climb": Preset(
        "Fashion-MNIST, Dirichlet and rare classes, 100 clients, 5000 rounds",
        "Code shenzebang/Federated-Learning-Pytorch@c4f72ee, fmnist_results.sh and config.py",
        {
            "pace.lr": Stated(0.05, "C"), "pace.batch_size": Stated(120, "C"), "pace.epochs": Stated(5, "C"),
            "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(5.0, "C"), "share": Stated(1.0, "C"),
            "weighting.dual_lr": Stated(2.0, "C"), "weighting.eps": Stated(0.01, "C"),
        },
        "the code has 5 mini-batches an epoch: 120 rows each where a client has 600; CIFAR-10: rate 0.1, eps 0.02",
    ),
    "clusteredsampling": "the authors' code takes every number as an argument of its script",
    "creff": Preset(
        "CIFAR-10 with a long tail, Dirichlet 0.5, 20 clients, 200 rounds",
        "Code shangxinyi/CReFF-FL@fbec98f, options.py",
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(32, "C"), "pace.epochs": Stated(10, "C"),
            "local.momentum": Stated(0.0, "C"), "local.weight_decay": Stated(0.0, "C"), "share": Stated(0.4, "C"),
        },
    ),
    "ditto": UNREAD,
    "fedacg": Preset(
        "CIFAR-100, Dirichlet 0.3, 100 clients, 1000 rounds",
        "Code geehokim/FedACG@62b6e95, README.md and configs",
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.995, "C"), "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(10.0, "C"),
            "server.beta": Stated(0.85, "C"), "parts.proximal.mu": Stated(0.002, "C"), "share": Stated(0.05, "C"),
        },
        "the code's proximal weight 0.001 has no half; Tiny-ImageNet: decay 0.998, batch 100",
    ),
    "fedadagrad": Preset(
        FEDOPT_SETTING, FEDOPT,
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(20, "C"), "pace.epochs": Stated(1, "C"),
            "server.lr": Stated(0.1, "C"), "server.tau": Stated(0.01, "C"), "server.beta1": Stated(0.0, "P"),
            "share": Stated(0.02, "C"),
        },
        FEDOPT_NOTE,
    ),
    "fedadam": Preset(
        FEDOPT_SETTING, FEDOPT,
        {
            "pace.lr": Stated(10**-1.5, "C"), "pace.batch_size": Stated(20, "C"), "pace.epochs": Stated(1, "C"),
            "server.lr": Stated(1.0, "C"), "server.tau": Stated(0.1, "C"), "share": Stated(0.02, "C"),
        },
        FEDOPT_NOTE,
    ),
    "fedamp": UNCHECKED,
    "fedavg": Preset(
        "MNIST and CIFAR-10, 100 clients",
        "McMahan et al. 2017, section 3 and tables 2 and 3",
        {
            "pace.lr": Stated(0.1, "A"), "pace.batch_size": Stated(10, "P"), "pace.epochs": Stated(5, "P"),
            "local.momentum": Stated(0.0, "A"), "share": Stated(0.1, "P"),
        },
        "the paper tunes the rate for every run and prints none; batch and epochs are one of its combinations",
    ),
    "fedavgm": Preset(
        FEDOPT_SETTING, FEDOPT,
        {
            "pace.lr": Stated(10**-1.5, "C"), "pace.batch_size": Stated(20, "C"), "pace.epochs": Stated(1, "C"),
            "server.lr": Stated(1.0, "C"), "server.beta": Stated(0.9, "C"), "share": Stated(0.02, "C"),
        },
        "the values are of Reddi et al. 2021, who tune this method; their server rate on EMNIST and Shakespeare "
        "is 10^-0.5. Flower's baseline of Hsu et al. 2019 has Nesterov, momentum 0.9, server rate 1 and 1 epoch of 64",
    ),
    "fedbabu": UNREAD,
    "fedbal": Preset(
        "CIFAR-10 and CIFAR-100, Dirichlet 0.05 to 1, 20 clients, 130 rounds",
        "Anonymous 2023, experimental setup",
        {
            "pace.lr": Stated(0.01, "P"), "pace.batch_size": Stated(64, "A"), "pace.epochs": Stated(10, "P"),
            "pace.decay": Stated(1.0, "A"), "local.momentum": Stated(0.9, "P"), "local.weight_decay": Stated(1e-4, "P"),
            "local.clip": Stated(0.0, "A"), "server.lr": Stated(1.0, "P"), "share": Stated(0.2, "P"),
        },
        "the paper decays the rate as another paper does, which it does not spell out; here it stays constant",
    ),
    "fedbn": UNREAD,
    "fedcm": Preset(
        SIMULATOR_SETTING, SIMULATOR,
        {
            "pace.lr": Stated(0.1, "T"), "pace.batch_size": Stated(50, "T"), "pace.epochs": Stated(5, "T"),
            "pace.decay": Stated(0.998, "T"), "local.weight_decay": Stated(1e-3, "T"), "local.clip": Stated(10.0, "T"),
            "parts.client_momentum.alpha": Stated(0.1, "T"), "server.lr": Stated(1.0, "T"), "share": Stated(0.1, "T"),
        },
        "FedCM's authors have no public code that was found",
    ),
    "fedcurv": Preset(
        "CIFAR-10, shards of two classes, 100 clients, 200 rounds",
        "Code Lee-Gihun/FedNTD@be00ee5, config/fedcurv.json",
        {
            "pace.lr": Stated(0.01, "T"), "pace.batch_size": Stated(50, "T"), "pace.epochs": Stated(5, "T"),
            "pace.decay": Stated(0.99, "T"), "local.momentum": Stated(0.9, "T"),
            "local.weight_decay": Stated(1e-05, "T"), "parts.curvature.lam": Stated(1.0, "T"),
            "share": Stated(0.1, "T"),
        },
        "FedCurv's authors have no public code that was found",
    ),
    "feddecorr": Preset(
        "CIFAR-10, Dirichlet 0.05, 10 clients, 100 rounds",
        "Code bytedance/FedDecorr@973e4af, main.py and run_scripts/cifar10_fedavg_feddecorr.sh",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(10, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-05, "C"),
            "parts.decorrelation.beta": Stated(0.1, "C"), "share": Stated(1.0, "C"),
        },
    ),
    "feddisco": Preset(
        "CIFAR-10, Dirichlet 0.5, 10 clients, 100 rounds",
        "Code MediaBrain-SJTU/FedDisco@f3ea299, args.py and disco_sh/cifar10_1.sh",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(10, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-05, "C"),
            "weighting.a": Stated(0.5, "C"), "weighting.b": Stated(0.1, "C"), "share": Stated(1.0, "C"),
        },
    ),
    "feddyn": Preset(
        "CIFAR-10, 100 clients, 1000 rounds",
        "Code alpemreacar/FedDyn@48a19fa, example_cifar_10.py and utils_general.py",
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(10.0, "C"), "share": Stated(1.0, "C"),
        },
        "the example's split is IID",
    ),
    "fedetf": UNREAD,
    "fedexp": Preset(
        "CIFAR-100, Dirichlet",
        "Code Divyansh03/FedExP@34b05a2, main.py",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(50, "C"), "pace.decay": Stated(0.998, "C"),
            "local.weight_decay": Stated(1e-4, "C"), "local.clip": Stated(10.0, "C"), "server.eps": Stated(1e-3, "C"),
            "server.decay": Stated(0.998**2, "C"), "server.scaled": Stated(True, "C"),
        },
        "a round has 20 steps there, not epochs; the cohort is an argument of the script; EMNIST: rate 0.1, eps 0.1",
    ),
    "fedfocal": UNCHECKED,
    "fedga": Preset(
        "MNIST, Dirichlet 0.05 to 10 a client, 100 clients, 100 rounds",
        "Code Xiao-Chenguang/FedGA@8531413",
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(2, "C"),
            "pace.decay": Stated(1.0, "C"), "local.momentum": Stated(0.0, "C"), "local.weight_decay": Stated(0.0, "C"),
            "local.clip": Stated(5.0, "C"), "server.lr": Stated(1.0, "C"), "weighting": Stated("uniform", "C"),
            "share": Stated(0.1, "P"),
        },
        "SVHN and Tiny-ImageNet: rate 0.3 where alpha is 0.5 or more",
    ),
    "fedgc": "the authors train face recognition, and have no public code",
    "fedgr": PAPER["fedgr"],
    "fedgrab": Preset(
        "CIFAR-10 with a long tail, 40 clients, 500 rounds",
        "Code ZackZikaiXiao/FedGraB@7394da6, options.py and fed_grab.py",
        {
            "pace.lr": Stated(0.03, "C"), "pace.batch_size": Stated(10, "C"), "pace.epochs": Stated(5, "C"),
            "local.momentum": Stated(0.5, "C"), "share": Stated(1.0, "C"),
        },
        "the README's commands have batch 5",
    ),
    "fedir": UNCHECKED,
    "fedla": Preset(
        "EMNIST, 10 clients, 100 rounds",
        "Khalil et al. 2023, section 4; code AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning@900677b",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(256, "C"), "pace.epochs": Stated(10, "C"),
            "pace.decay": Stated(1.0, "C"), "local.momentum": Stated(0.5, "C"), "local.weight_decay": Stated(0.0, "C"),
            "local.clip": Stated(0.0, "C"), "share": Stated(0.3, "P"),
        },
        "shares of 0.1, 0.3, 0.5 and 0.7 are run; CIFAR-100: rate 0.001",
    ),
    "fedlc": UNCHECKED,
    "fedlesam": Preset(
        "CIFAR-10, Dirichlet 0.1, 200 clients, 1000 rounds",
        "Code MediaBrain-SJTU/FedLESAM@d6663cc, train.py",
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(25, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.998, "C"), "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(10.0, "C"),
            "local.rho": Stated(0.1, "C"), "server.lr": Stated(1.0, "C"), "share": Stated(0.05, "C"),
        },
        "the defaults of its script",
    ),
    "fedloge": Preset(
        "CIFAR-100 with a long tail of 100, present classes Dirichlet 0.5, 40 clients, 500 rounds",
        "Code ZackZikaiXiao/FedLoGe@f4cac52, options.py and README.md",
        {
            "pace.lr": Stated(0.03, "C"), "pace.batch_size": Stated(8, "C"), "pace.epochs": Stated(5, "C"),
            "local.momentum": Stated(0.5, "C"), "parts.initial_head.sparsity": Stated(0.6, "C"),
            "parts.initial_head.norm": Stated(0.1, "C"), "share": Stated(0.3, "C"),
        },
        "CIFAR-10: options.py has a share of 0.2",
    ),
    "fedmlb": Preset(
        "CIFAR-100, Dirichlet 0.3, 100 clients, 1000 rounds",
        "Code jinkyu032/FedMLB@d695dbf, README.md and args_dir/federated.py",
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.998, "C"), "local.momentum": Stated(0.0, "C"),
            "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(10.0, "C"), "share": Stated(0.05, "C"),
            "parts.hybrid_paths.lam1": Stated(1.0, "C"), "parts.hybrid_paths.lam2": Stated(1.0, "C"),
            "parts.hybrid_paths.tau": Stated(1.0, "C"),
        },
        "the network is ResNet-18 with group normalisation, cut into its first convolution, four stages and the head",
    ),
    "fednh": Preset(
        "CIFAR-10, Dirichlet 0.3, 100 clients, 200 rounds",
        "Code Yutong-Dai/FedNH@60c3161, experiments/FedNH_dir.sh and Cifar10_Conv2Cifar.yaml",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(5, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-05, "C"),
            "local.clip": Stated(10.0, "C"), "parts.non_parametric_head.smoothing": Stated(0.9, "C"),
            "share": Stated(0.1, "C"),
        },
        "the code's rate falls over the rounds",
    ),
    "fednova": Preset(
        "CIFAR-10, Dirichlet 0.1, 16 clients, 100 rounds",
        "Code JYWa/FedNova@47b4e09, launch_exp.sh and train_LocalSGD.py",
        {
            "pace.lr": Stated(0.02, "C"), "pace.batch_size": Stated(32, "C"), "pace.epochs": Stated(2, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-4, "C"), "share": Stated(1.0, "C"),
        },
        "the code divides the rate by 10 after half and by 100 after three quarters of the rounds; here it is constant",
    ),
    "fedntd": Preset(
        "CIFAR-10, 2 shards a client, 100 clients, 200 rounds",
        "Code Lee-Gihun/FedNTD@be00ee5, config/fedntd.json",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.99, "C"), "local.momentum": Stated(0.9, "C"),
            "local.weight_decay": Stated(1e-5, "C"), "share": Stated(0.1, "C"),
        },
    ),
    "fedpals": UNCHECKED,
    "fedper": UNREAD,
    "fedprox": Preset(
        "synthetic data, 30 clients, 200 rounds",
        "Code litian96/FedProx@d2a4501, run_fedprox.sh",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(10, "C"), "pace.epochs": Stated(20, "C"),
            "share": Stated(1 / 3, "P"),
        },
        "10 clients a round, which the script has for every dataset; mu is an argument of the script",
    ),
    "fedrep": UNREAD,
    "fedrl": Preset(
        "EMNIST letters with rare classes, 100 clients, 50 rounds",
        "Code balanced-fl/Addressing-Class-Imbalance-FL@cd0e996, options.py and Update.py of FEMNIST-4-Losses",
        {
            "pace.lr": Stated(0.001, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(2, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(5e-4, "C"), "share": Stated(0.2, "C"),
        },
        "after round 135 the code's rate is 0.01",
    ),
    "fedrod": UNREAD,
    "fedrs": Preset(
        "CIFAR-10 and CIFAR-100, labels of few classes, 100 clients, 1000 rounds",
        "Code lxcnju/FedRepo@617ee01, config.py and train_lab.py",
        {
            "pace.lr": Stated(0.03, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(2, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-5, "C"),
            "local.clip": Stated(100.0, "C"), "share": Stated(0.1, "C"),
        },
        "2 and 5 epochs are run",
    ),
    "fedsam": Preset(
        SIMULATOR_SETTING, SIMULATOR,
        {
            "pace.lr": Stated(0.1, "T"), "pace.batch_size": Stated(50, "T"), "pace.epochs": Stated(5, "T"),
            "pace.decay": Stated(0.998, "T"), "local.weight_decay": Stated(1e-3, "T"), "local.clip": Stated(10.0, "T"),
            "local.rho": Stated(0.1, "T"), "server.lr": Stated(1.0, "T"), "share": Stated(0.1, "T"),
        },
        "FedSAM's authors have no public code that was found; rho is the default of the simulator",
    ),
    "fedsmoo": Preset(
        SIMULATOR_SETTING, SIMULATOR,
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.998, "C"), "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(10.0, "C"),
            "local.rho": Stated(0.1, "C"), "parts.dynamic_regulariser.alpha": Stated(0.1, "C"),
            "server.alpha": Stated(0.1, "C"), "share": Stated(0.1, "C"),
        },
    ),
    "fedsol": Preset(
        "CIFAR-10, Dirichlet 0.1, 100 clients, 300 rounds",
        "Code Lee-Gihun/FedSOL@ebc3f64, configs/fedsol_adaptive.json",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.99, "C"), "local.momentum": Stated(0.9, "C"),
            "local.weight_decay": Stated(1e-05, "C"), "local.rho": Stated(1.0, "C"), "share": Stated(0.1, "C"),
        },
    ),
    "fedspeed": Preset(
        SIMULATOR_SETTING, SIMULATOR,
        {
            "pace.lr": Stated(0.1, "C"), "pace.batch_size": Stated(50, "C"), "pace.epochs": Stated(5, "C"),
            "pace.decay": Stated(0.998, "C"), "local.weight_decay": Stated(1e-3, "C"), "local.clip": Stated(10.0, "C"),
            "local.rho": Stated(0.1, "C"), "parts.uploaded_dynamic_regulariser.alpha": Stated(0.1, "C"),
            "server.alpha": Stated(0.1, "C"), "share": Stated(0.1, "C"),
        },
    ),
    "feduv": Preset(
        "STL-10, Dirichlet 0.01, 10 clients, 100 rounds",
        "Code sonhamin/FedUV@dd2e3c5, train_fl.py",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(128, "C"), "pace.epochs": Stated(10, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(1e-05, "C"),
            "parts.uniformity_variance.spread": Stated(2.5, "C"),
            "parts.uniformity_variance.uniformity": Stated(0.5, "C"), "share": Stated(1.0, "C"),
        },
        "the defaults of the script",
    ),
    "fedvc": UNCHECKED,
    "fedvls": Preset(
        "CIFAR-10, Dirichlet 0.1, 10 clients, 100 rounds",
        "Code krumpguo/FedVLS@7d8163f, README.md and clientvls.py",
        {
            "pace.lr": Stated(0.01, "C"), "pace.batch_size": Stated(64, "C"), "pace.epochs": Stated(10, "C"),
            "local.momentum": Stated(0.9, "C"), "local.weight_decay": Stated(0.0, "C"),
            "parts.vacant_classes.lam": Stated(0.1, "C"), "share": Stated(1.0, "C"),
        },
        "the example names weight decay 1e-5, which the client's code sets to 0",
    ),
    "fedyogi": Preset(
        FEDOPT_SETTING, FEDOPT,
        {
            "pace.lr": Stated(10**-1.5, "C"), "pace.batch_size": Stated(20, "C"), "pace.epochs": Stated(1, "C"),
            "server.lr": Stated(1.0, "C"), "server.tau": Stated(0.1, "C"), "share": Stated(0.02, "C"),
        },
        FEDOPT_NOTE,
    ),
    "ifca": UNCHECKED,
}  # fmt: skip
AUTHORS = dict(sorted({**AUTHORS, **MORE}.items()))
