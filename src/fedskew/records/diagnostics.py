"""What a round did, measured while its parts are at hand: optional, recorded, and without effect on any number.

Each diagnostic is a pure function of a `Moment` and of the clients to look at, and gives a row for rounds.jsonl.
K cohort (chains count as one), C classes, L layers, F features, R test rows. A delta is local - global.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor

from fedskew.errors import ConfigError, FieldError, require, unknown
from fedskew.fields import AtLeast, Checked, demand
from fedskew.records.metrics import error_asymmetry, from_confusion, mean_probabilities
from fedskew.types import Cohort, Params, Weights

__all__ = ["DIAGNOSTICS", "FEATURE_ROWS", "Diagnostics", "Moment", "layers", "measure", "spread_rows"]

Row = dict[str, Any]
FEATURE_ROWS = 1000  # test rows whose features are written: as many as a t-SNE picture can show
SOME = 3  # clients that are looked at where none are named
ALWAYS = ("clients", "curves", "heatmap", "samples", "selection", "weights")  # figures that need no diagnostic


@dataclass(frozen=True)
class Diagnostics(Checked):
    """Which diagnostics are recorded, of which clients, and how often. Raises ConfigError for an unknown name."""

    names: tuple[str, ...] = ()
    """diagnostics to record, commas between: per_class, asymmetry, cosine, drift, coverage, oversampling, features"""
    clients: tuple[Annotated[int, AtLeast(0, hint="clients are numbered from 0")], ...] = ()
    """clients that per_class, asymmetry and oversampling look at when they take part; none: 3 of each cohort"""
    every: Annotated[int, AtLeast(1)] = 1
    """rounds between diagnoses; the last round is always diagnosed"""

    def __post_init__(self) -> None:
        """Raise ConfigError for a name that is none, or is recorded anyway."""
        super().__post_init__()
        for name in self.names:
            if name in ALWAYS:
                figure = {"clients": "selection", "samples": "selection"}.get(name, name)
                hint = f"every run records what `fedskew plot RUN --figure {figure}` draws"
                demand(self, "names", False, f"not hold {name}", hint)
            if name not in DIAGNOSTICS:
                if name in ("tsne", "t-sne"):
                    raise ConfigError(f"unknown diagnostic {name!r}; did you mean 'features'?")
                raise unknown("diagnostic", name, DIAGNOSTICS)
        twice = [n for i, n in enumerate(self.names) if n in self.names[:i]]
        demand(self, "names", not twice, "name a diagnostic once")

    def check(self, clients: int, recorded: bool) -> None:
        """Raise ConfigError for a client that the federation lacks, and for features without a run folder."""
        demand(self, "clients", max(self.clients, default=0) < clients, f"be below the number of clients, {clients}")
        written = "features" not in self.names or recorded
        demand(self, "names", written, "name features only with a run folder, to which they are written")

    def due(self, number: int, rounds: int) -> bool:
        """Whether round ``number`` is diagnosed."""
        return bool(self.names) and (number % self.every == 0 or number == rounds)

    @property
    def deltas(self) -> bool:
        """Whether any of them reads every client's delta."""
        return any(DIAGNOSTICS[name].deltas for name in self.names)

    def to_json(self) -> Row:
        """Lists in place of tuples."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, content: object) -> Diagnostics:
        """The inverse of `to_json`."""
        require(isinstance(content, Mapping), "diagnose", 'be {"names": [...], "clients": [...], "every": 1}', content)
        assert isinstance(content, Mapping)
        for key in content:
            if key not in (known := ("names", "clients", "every")):
                raise unknown("entry of diagnose", key, known)
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
        try:
            return cls(**values)
        except FieldError as error:
            raise ConfigError(error.named(f"diagnose.{error.field}")) from None


@dataclass(frozen=True, eq=False)
class Moment:
    """A round after its server update: all that a diagnostic may read."""

    round: int  # one-based
    cohort: Cohort  # as it came from the engine
    weights: Weights
    before: Params  # what the clients were given
    after: Params  # after the server update
    served: Params  # the model that is evaluated
    buffers: Params  # that the clients were given
    buffers_after: Params
    local_buffers: Params  # [K, ...]
    train_counts: Tensor  # [C] rows of all clients
    deltas: Params | None  # [K, ...] where a diagnostic asked for them
    confusion: Callable[[Params, Params], Tensor]  # of a model on the test rows, [C, C]
    outputs: Callable[[Params, Params, Tensor | None], tuple[Tensor, Tensor]]  # (probabilities [R, C], features [R, F])
    labels: Tensor  # [R] of the test rows
    write: Callable[[str, Params], None]  # a file of tensors in the run folder

    @cached_property
    def each(self) -> Params:
        """Deltas [K, ...]."""
        assert self.deltas is not None
        return self.deltas

    def chosen(self, clients: tuple[int, ...]) -> dict[int, int]:
        """{client: its place in the cohort} of those who took part; of the first 3 where none are named."""
        places = {int(k): i for i, chain in enumerate(self.cohort.chains.tolist()) for k in chain if k >= 0}
        return {k: places[k] for k in clients if k in places} if clients else dict(list(places.items())[:SOME])

    def local(self, at: int) -> tuple[Params, Params]:
        """(parameters, buffers) at place ``at`` of the cohort after local training."""
        params = {name: x + self.each[name][at].to(x.device) for name, x in self.before.items()}
        return params, {name: b[at] for name, b in self.local_buffers.items()}

    def recall(self, params: Params, buffers: Params) -> list[float]:
        """Share of the test rows of each class that a model predicts correctly, [C]."""
        found: Any = from_confusion(self.confusion(params, buffers))["per_class_recall"]
        return list(found)

    def asymmetry(self, params: Params, buffers: Params) -> tuple[list[float | None], float | None]:
        """Error asymmetry of each class, and its ratio, on the test rows."""
        probabilities, _ = self.outputs(params, buffers, None)
        each, ratio = error_asymmetry(mean_probabilities(self.labels, probabilities, probabilities.shape[1]))
        return [_finite(v) for v in each], _finite(ratio)


def per_class(moment: Moment, clients: tuple[int, ...]) -> Row:
    """Recall of each class before local training, after it at chosen clients, and after aggregation.

    ``before`` [C], ``after`` [C], ``clients`` {id: [C]}, ``owned`` {id: [C]} rows. Source: FedGA, figures 2 and 6.
    """
    chosen = moment.chosen(clients)
    return {
        "before": moment.recall(moment.before, moment.buffers),
        "clients": {str(k): moment.recall(*moment.local(at)) for k, at in chosen.items()},
        "after": moment.recall(moment.served, moment.buffers_after),
        "owned": {str(k): moment.cohort.owned[at].tolist() for k, at in chosen.items()},
    }


def asymmetry(moment: Moment, clients: tuple[int, ...]) -> Row:
    """Error asymmetry EA [C] of the evaluated model and max EA / min EA, and the same of chosen clients' models.

    With two classes EA of class 1 is (1 - mean p over y=1) / (mean p over y=0), which cross-entropy drives to N_0/N_1
    of the training rows ``train_counts``; null stands for what is not finite. Source: FedGA, figures 3 and 5.
    """
    each, ratio = moment.asymmetry(moment.served, moment.buffers_after)
    found = {str(k): moment.asymmetry(*moment.local(at)) for k, at in moment.chosen(clients).items()}
    own = {k: {"each": e, "ratio": r} for k, (e, r) in found.items()}
    return {"each": each, "ratio": ratio, "clients": own, "train_counts": moment.train_counts.tolist()}


def cosine(moment: Moment, clients: tuple[int, ...]) -> Row:
    """Cosine, layer by layer, of the global models before and after the round, and of local models and the one before.

    ``layers`` L names, ``global`` [L] cos(x^t, x^{t+1}), ``local`` {mean, min, max: [L]} of cos(x^t, y_k) over the
    cohort. A layer's parameters are concatenated; null where one is zero. Source: FedBal, figure 3.
    """
    names, whole, local = layers(moment.before), [], []
    for members in names.values():
        old, new = (_flat(p[m] for m in members) for p in (moment.before, moment.after))
        trained = old + _flat((moment.each[m] for m in members), 1)
        whole.append(float(_cosine(old, new)))
        local.append(_cosine(old.unsqueeze(0), trained))
    stack = torch.stack(local)  # [L, K]
    spread = {"mean": stack.mean(1), "min": stack.min(1).values, "max": stack.max(1).values}
    return {
        "layers": list(names),
        "global": [_finite(v) for v in whole],
        "local": {n: [_finite(v) for v in values.tolist()] for n, values in spread.items()},
    }


def drift(moment: Moment, clients: tuple[int, ...]) -> Row:
    """Norms of the clients' updates, and how much of them cancels when they are added up.

        norms_k = ||d_k||      update = ||sum_k p_k d_k||      server = ||x^{t+1} - x^t||
        cancellation = 1 - update / sum_k |p_k| ||d_k||        spread = sqrt(mean_k ||d_k - mean d||^2)

    Over all parameters, in float64; p are the aggregation weights. Cancellation is 0 where all go one way, 1 where
    nothing is left; null where nobody moved. ``cosine`` is the mean of cos(d_k, d_j) over pairs k != j.
    """
    gram = _gram(moment.each)
    norms = gram.diagonal().clamp(min=0).sqrt()
    p = moment.weights.update.detach().cpu().double()
    update, reach = float((p @ gram @ p).clamp(min=0).sqrt()), float((p.abs() * norms).sum())
    spread = (gram.diagonal().mean() - gram.mean()).clamp(min=0).sqrt()
    moved = sum(float((moment.after[n].double() - x.double()).square().sum()) for n, x in moment.before.items())
    return {
        "norms": norms.tolist(),
        "update": update,
        "server": math.sqrt(moved),
        "cancellation": 1 - update / reach if reach > 0 else None,
        "spread": float(spread),
        "cosine": _mean_cosine(gram, norms),
    }


def coverage(moment: Moment, clients: tuple[int, ...]) -> Row:
    """Classes that the cohort holds and trains on.

    ``classes`` present among the rows used, ``share`` of all C, ``used`` and ``owned`` [C] rows of the cohort, ``each``
    [K] classes used by each client, ``kl`` KL(used || uniform) in nats.
    """
    used, owned = moment.cohort.used.sum(0), moment.cohort.owned.sum(0)
    q = used.double() / used.sum().clamp(min=1)
    present = int((used > 0).sum())
    return {
        "classes": present,
        "share": present / len(used),
        "used": used.tolist(),
        "owned": owned.tolist(),
        "each": (moment.cohort.used > 0).sum(1).tolist(),
        "kl": float(torch.special.xlogy(q, q * len(used)).sum()),
    }


def oversampling(moment: Moment, clients: tuple[int, ...]) -> Row:
    """A client's rows of each class: ``owned``, ``offered`` by its sampler, ``used`` in training, [C] each.

    Source: Seol and Kim, figure 1.
    """
    cohort, kinds = moment.cohort, ("owned", "offered", "used")
    return {str(k): {n: getattr(cohort, n)[at].tolist() for n in kinds} for k, at in moment.chosen(clients).items()}


def features(moment: Moment, clients: tuple[int, ...]) -> Row:
    """What enters the classifier of the evaluated model, on at most 1000 test rows spread over the classes.

    Written as ``features`` [R, F] float32, ``labels`` and ``predictions`` [R], to the file that the row names.
    Source: FedGR, figure 5.
    """
    rows = spread_rows(moment.labels, FEATURE_ROWS)
    probabilities, found = moment.outputs(moment.served, moment.buffers_after, rows)
    name = f"features/round-{moment.round:06d}.safetensors"
    content = {"features": found.float(), "labels": moment.labels[rows], "predictions": probabilities.argmax(1)}
    moment.write(name, content)
    return {"file": name, "rows": len(rows), "features": found.shape[1]}


@dataclass(frozen=True)
class _Diagnostic:
    """A function, and whether it reads deltas."""

    function: Callable[[Moment, tuple[int, ...]], Row]
    deltas: bool


DIAGNOSTICS = {
    "asymmetry": _Diagnostic(asymmetry, True),
    "cosine": _Diagnostic(cosine, True),
    "coverage": _Diagnostic(coverage, False),
    "drift": _Diagnostic(drift, True),
    "features": _Diagnostic(features, False),
    "oversampling": _Diagnostic(oversampling, False),
    "per_class": _Diagnostic(per_class, True),
}


def measure(diagnostics: Diagnostics, moment: Moment) -> Row:
    """{name: row} of the diagnostics asked for."""
    return {name: DIAGNOSTICS[name].function(moment, diagnostics.clients) for name in diagnostics.names}


def layers(params: Params) -> dict[str, list[str]]:
    """{layer: names of its parameters}: what stands before the last dot; a parameter at the top is its own layer."""
    found: dict[str, list[str]] = {}
    for name in params:
        found.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return found


def spread_rows(labels: Tensor, most: int) -> Tensor:
    """At most ``most`` positions, as many of each class as possible, the first of each class, in ascending order."""
    classes = sorted(set(labels.tolist()))
    each = max(1, most // len(classes))
    found = torch.cat([torch.nonzero(labels == c).flatten()[:each] for c in classes])
    return found.sort().values[:most]


def _flat(tensors: Iterable[Tensor], start: int = 0) -> Tensor:
    return torch.cat([t.cpu().double().flatten(start) for t in tensors], dim=-1)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """Over the last axis; NaN where one is zero."""
    found: Tensor = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
    return found


def _gram(deltas: Params) -> Tensor:
    """Inner products of K deltas over all parameters, [K, K]."""
    parts = [d.double().flatten(1) for d in deltas.values()]
    return torch.stack([p @ p.T for p in parts]).sum(0).cpu()


def _mean_cosine(gram: Tensor, norms: Tensor) -> float | None:
    """Mean cosine over pairs of clients that moved; None without a pair."""
    moved = norms > 0
    cosines = gram[moved][:, moved] / torch.outer(norms[moved], norms[moved])
    n = len(cosines)
    return float((cosines.sum() - cosines.diagonal().sum()) / (n * (n - 1))) if n > 1 else None


def _finite(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if math.isfinite(value) else None
