"""Small federations, cheap settings and readers of results that several tests share. Not a test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import rng
from fedskew.data.arrays import from_arrays
from fedskew.data.federation import Federation
from fedskew.data.partitioners import Partition
from fedskew.data.sources.table import load
from fedskew.method import Component, Method
from fedskew.methods import METHODS
from fedskew.records.folder import TIMES
from fedskew.shared import Fixed
from fedskew.types import Assignment, Cohort, Params

NAMES = list(METHODS)
PACE = Fixed(epochs=2, lr=0.1, batch_size=16)
WHOLE = Fixed(epochs=1, lr=0.1, batch_size=0)  # one step on all rows: gradient descent


CONVOLUTIONAL = {
    "convolutions": nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2), nn.ReLU(), nn.Flatten(), nn.Linear(24, 10)
    ),
    "batch_norm": nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    ),
    "group_norm_dropout": nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(144, 10)
    ),
}


@cache
def small_digits(rows: int = 160, test: int = 40) -> Any:
    """A few of scikit-learn's digits, 8x8."""
    data = load("digits")
    return from_arrays(data.x[:rows], data.y[:rows], data.x_test[:test], data.y_test[:test], mean=(0.3,), std=(0.4,))


@cache
def skewed(clients: int = 6, alpha: float = 0.3, auxiliary: int = 3, seed: int = 1) -> Federation:
    """Ragged clients, most of which lack classes."""
    return fs.federate(
        small_digits(), fs.partitioners.Dirichlet(alpha=alpha), clients=clients, auxiliary=auxiliary, seed=seed
    )


@dataclass(frozen=True)
class Owners:
    """A partition by a list of owners, one a row; -1 is nobody."""

    name: ClassVar[str] = "owners"
    owner: tuple[int, ...]

    def split(self, labels: Any, clients: int, seed: int, columns: Any = None) -> Partition:
        owner = np.array(self.owner)
        rows = [np.flatnonzero(owner == k) for k in range(clients)]
        return Partition(np.concatenate(rows).astype(np.int64), np.cumsum([0, *map(len, rows)]).astype(np.int64))


def blobs(
    counts: list[list[int]], *, features: int = 5, copies: bool = False, shape: tuple[int, ...] = (), auxiliary: int = 0
) -> Federation:
    """Clients with given rows of each class, counts [N][C]; with ``copies`` client k's rows repeat client 0's.

    ``auxiliary`` rows of each class are the server's.
    """
    classes, labels, owner = len(counts[0]), [], []
    for k, histogram in enumerate(counts):
        for c, n in enumerate(histogram):
            labels += [c] * n
            owner += [k] * n
    aside = np.arange(len(labels), len(labels) + classes * auxiliary)
    labels += [c for c in range(classes) for _ in range(auxiliary)]
    owner += [-1] * len(aside)
    shape = shape or (features,)
    y = np.array(labels)
    draw = rng.generator(0, "blobs")
    centres = draw.normal(size=(classes, *shape))
    x = centres[y] + draw.normal(size=(len(y), *shape))
    if copies:
        x = np.concatenate([x[: sum(counts[0])]] * len(counts))
    spare = np.arange(classes).repeat(3)
    test = centres[spare] + draw.normal(size=(len(spare), *shape))
    data = from_arrays(x.astype(np.float32), y, test.astype(np.float32), spare, classes=classes)
    return replace(fs.federate(data, Owners(tuple(owner)), clients=len(counts)), auxiliary_rows=aside)


def tiny(name: str) -> Method:
    """A method of the table with small mini-batches, and without CReFF's hundreds of server steps."""
    method = METHODS[name]()
    if type(method.pace) is Fixed:
        method = replace(method, pace=replace(method.pace, batch_size=16))
    if name == "creff":
        return changed(
            method, "federated_features", features_per_class=3, match_steps=3, head_epochs=5, draws=2, rows=4
        )
    if name == "seolkim":  # beta=25 makes mini-batches of two equal rows here, over which BatchNorm amplifies rounding
        return changed(method, "dynamic", beta=3)
    if name == "pfedme":
        return changed(method, "moreau", inner_steps=2)
    return changed(method, "power_of_choice", candidates=4) if name == "powerofchoice" else method


def changed(method: Method, name: str, **changes: Any) -> Method:
    """The method with fields of its component ``name`` changed."""
    for slot, component in method.slots.items():
        if component.name == name:
            return replace(method, **{slot: replace(component, **changes)})
    new = tuple(replace(p, **changes) if p.name == name else p for p in method.parts)
    assert new != method.parts, f"{method.name} has no component {name!r} that these changes touch"
    return replace(method, parts=new)


def go(fed: Federation, method: Method, **options: Any) -> fs.Result:
    """A run of two rounds with three clients each, float64, logistic regression."""
    settings = {"model": "logistic", "rounds": 2, "cohort": 3, "dtype": "float64", "engine": "sequential"}
    return fs.run(fed, method, **(settings | options))


def rows_of(result: fs.Result | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rounds without what two equal runs may differ in."""
    rounds = result.rounds if isinstance(result, fs.Result) else result
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rounds]


def same(a: Params, b: Params) -> bool:
    """Equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def gap(a: Any, b: Any) -> float:
    """Largest difference of two trees of one structure."""
    if isinstance(a, Tensor):
        assert a.shape == b.shape
        finite = torch.isfinite(a)  # power-of-choice keeps -inf for those who were not asked
        assert torch.equal(a[~finite], b[~finite])
        return float((a[finite].double() - b[finite].double()).abs().max()) if finite.any() else 0.0
    assert a.keys() == b.keys()
    return max((gap(a[n], b[n]) for n in a), default=0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Models of a user's own


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


def plain_module(build: Any) -> nn.Module:
    """What ``build`` gives, made where torch's own initialisation draws nothing, then given keyed weights."""
    with torch.device("meta"):
        module: nn.Module = build()
    module = module.to_empty(device="cpu")
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.GroupNorm):
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


# ---------------------------------------------------------------------------------------------------------------------
# Looking into a round


@dataclass(frozen=True)
class Spy(Component):
    """Keeps every cohort that the server sees, with each client's delta; changes nothing."""

    name = "spy"
    seen: list[Cohort]
    """one cohort a round"""

    def combine(self, state: Any, cohort: Cohort) -> Params:
        assert cohort.deltas is not None  # filling this hook makes the engine stack the deltas
        return cohort.deltas

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        self.seen.append(cohort)
        return state, None


def spied(method: Method) -> tuple[Method, list[Cohort]]:
    """(the method with a spy as its last part, what the spy will see)."""
    seen: list[Cohort] = []
    return replace(method, parts=(*method.parts, Spy(seen))), seen


@dataclass(frozen=True)
class FixedCohort(fs.Selector):
    """The same chains in every round."""

    name = "fixed_chains"
    chains: tuple[tuple[int, ...], ...]
    """client ids"""

    def select(self, state: Any, k: int, key: Tensor) -> Assignment:
        return Assignment(torch.tensor(self.chains))


def each(*clients: int) -> FixedCohort:
    """These clients, every round, in this order."""
    return FixedCohort(tuple((k,) for k in clients))
