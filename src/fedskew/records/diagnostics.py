"""Optional measurements of a round. They are recorded and change no number of the run.

Each diagnostic is a pure function of a `RoundSnapshot` and of the clients to look at; it gives a row for rounds.jsonl.
K participants (a chain counts as one), C classes, L layers, F features, R test rows. A delta is local - global.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

import torch
from torch import Tensor

from fedskew.errors import ConfigError, FieldError, require, unknown
from fedskew.fields import AtLeast, Checked, demand
from fedskew.records.metrics import error_asymmetry, from_confusion, mean_probabilities
from fedskew.records.typed import Row
from fedskew.types import Cohort, Params, Weights

FEATURE_ROWS = 1000  # test rows whose features are written: as many as a t-SNE picture can show
SOME = 3  # clients to look at where none are named


@dataclass(frozen=True)
class Diagnostics(Checked):
    """Which diagnostics a run records, of which clients, and how often.

    Raises:
        ConfigError: A name is unknown or given twice, or a value breaks a rule.
    """

    names: tuple[str, ...] = ()
    """diagnostics to record, commas between: per_class, asymmetry, cosine, drift, coverage, oversampling, features"""
    clients: tuple[Annotated[int, AtLeast(0, hint="clients are numbered from 0")], ...] = ()
    """clients of per_class, asymmetry and oversampling, listed when they take part; none: 3 of each cohort, and means
    over the whole cohort"""
    every: Annotated[int, AtLeast(1)] = 1
    """rounds between diagnoses; the last round is always diagnosed"""

    def __post_init__(self) -> None:
        """Check the names, clients and frequency."""
        super().__post_init__()
        for name in self.names:
            if name not in DIAGNOSTICS:
                raise unknown("diagnostic", name, DIAGNOSTICS)
        repeated = [n for i, n in enumerate(self.names) if n in self.names[:i]]
        demand(self, "names", not repeated, "name a diagnostic once")

    def check(self, clients: int, recorded: bool) -> None:
        """Check against the run.

        Args:
            clients: Number of clients of the federation.
            recorded: Whether the run has a folder.

        Raises:
            ConfigError: A client does not exist, or features are asked for without a run folder.
        """
        demand(self, "clients", max(self.clients, default=0) < clients, f"be below the number of clients, {clients}")
        written = "features" not in self.names or recorded
        demand(self, "names", written, "name features only with a run folder, to which they are written")

    @property
    def deltas(self) -> bool:
        """Whether a diagnostic needs every client's delta."""
        return not OF_DELTAS.keys().isdisjoint(self.names)

    def to_json(self) -> Row:
        """The fields as JSON can hold them."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @classmethod
    def from_json(cls, content: Any) -> Diagnostics:
        """The diagnostics of `to_json`. Raises ConfigError for other content."""
        known = isinstance(content, Mapping) and content.keys() <= {"names", "clients", "every"}
        require(known, "diagnose", 'be {"names": [...], "clients": [...], "every": 1}', content)
        values: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(content).items()}
        try:
            return cls(**values)
        except FieldError as error:
            raise ConfigError(error.named(f"diagnose.{error.field}")) from None


@dataclass(frozen=True, eq=False)
class RoundSnapshot:
    """A round after its server update: everything a diagnostic may read."""

    round: int  # one-based
    cohort: Cohort  # as it came from the engine
    weights: Weights
    before: Params  # what the clients were given
    after: Params  # after the server update
    served: Params  # the model that is evaluated
    buffers: Params  # BatchNorm statistics that the clients were given
    buffers_after: Params
    local_buffers: Params  # [K, ...]
    train_counts: Tensor  # [C] rows of all clients
    deltas: Params | None  # [K, ...] where a diagnostic asked for them
    confusion: Callable[[Params, Params], Tensor]  # of a model on the test rows, [C, C]
    outputs: Callable[[Params, Params, Tensor | None], tuple[Tensor, Tensor]]  # (probabilities [R, C], features [R, F])
    labels: Tensor  # [R] of the test rows
    write: Callable[[str, Params], str]  # a file of tensors in the run folder

    @cached_property
    def each(self) -> Params:
        """Deltas of the participants, [K, ...]."""
        assert self.deltas is not None
        return self.deltas

    def chosen(self, clients: tuple[int, ...]) -> dict[int, int]:
        """Clients to look at and their places in the cohort: those named that took part, or the first 3."""
        places = {int(k): i for i, chain in enumerate(self.cohort.chains.tolist()) for k in chain if k >= 0}
        return {k: places[k] for k in clients if k in places} if clients else dict(list(places.items())[:SOME])

    def places(self, clients: tuple[int, ...]) -> list[int]:
        """Places in the cohort of the local models to average: everyone's, or those of the named that took part."""
        return sorted(set(self.chosen(clients).values())) if clients else list(range(len(self.cohort.ids)))

    def local(self, at: int) -> tuple[Params, Params]:
        """(parameters, buffers) of the participant at place ``at`` after local training."""
        params = {name: x + self.each[name][at].to(x.device) for name, x in self.before.items()}
        return params, {name: b[at] for name, b in self.local_buffers.items()}

    def recall(self, params: Params, buffers: Params) -> list[float]:
        """Recall of each class on the test rows, [C]."""
        recall: Any = from_confusion(self.confusion(params, buffers))["per_class_recall"]
        return list(recall)

    def asymmetry(self, params: Params, buffers: Params) -> tuple[list[float | None], float | None]:
        """Error asymmetry of each class on the test rows, and its ratio."""
        probabilities, _ = self.outputs(params, buffers, None)
        each, ratio = error_asymmetry(mean_probabilities(self.labels, probabilities, probabilities.shape[1]))
        return [_finite(v) for v in each], _finite(ratio)


def per_class(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Recall of each class before local training, after it, and after aggregation.

    The row holds ``before`` [C], ``after`` [C], ``clients`` {id: [C]} and ``owned`` {id: [C]} rows of chosen clients,
    and ``local`` [C], the mean over ``models`` local models: the cohort's, or those of the clients named.

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        figures 2 and 6. https://arxiv.org/abs/2412.16582
    """
    chosen = moment.chosen(clients)
    local = {at: moment.recall(*moment.local(at)) for at in moment.places(clients)}
    return {
        "before": moment.recall(moment.before, moment.buffers),
        "local": _means(list(local.values())),
        "models": len(local),
        "clients": {str(k): local[at] for k, at in chosen.items()},
        "after": moment.recall(moment.served, moment.buffers_after),
        "owned": {str(k): moment.cohort.owned[at].tolist() for k, at in chosen.items()},
    }


def asymmetry(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Error asymmetry of the local models and of the evaluated model.

    The row holds EA of each class and the ratio max EA / min EA of the evaluated model (``each``, ``ratio``) and of
    chosen clients' models (``clients``). ``local`` holds the means of both over ``models`` local models, those of the
    cohort or of the clients named: the quantity of the paper's figures, of its ten clients a round. Values that are not
    finite are null, and left out of the means. With two classes, EA of class 1 is (1 - mean p over y=1) / (mean p over
    y=0). Cross-entropy drives it to N_0/N_1 of the training rows ``train_counts``.

    References:
        Xiao, Zuo and Wang 2024, FedGA: Federated Learning with Gradient Alignment for Error Asymmetry Mitigation,
        figures 3, 5 and 6. https://arxiv.org/abs/2412.16582
    """
    each, ratio = moment.asymmetry(moment.served, moment.buffers_after)
    measured = {at: moment.asymmetry(*moment.local(at)) for at in moment.places(clients)}
    chosen = {str(k): {"each": measured[at][0], "ratio": measured[at][1]} for k, at in moment.chosen(clients).items()}
    means = {"each": _means([e for e, _ in measured.values()]), "ratio": _mean([r for _, r in measured.values()])}
    counts, local = moment.train_counts.tolist(), {**means, "models": len(measured)}
    return {"each": each, "ratio": ratio, "local": local, "clients": chosen, "train_counts": counts}


def cosine(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Cosine, layer by layer, between successive global models, and between local models and their start.

    The row holds ``layers`` (L names), ``global`` [L] of cos(x^t, x^{t+1}) and ``local`` {mean, min, max: [L]} of
    cos(x^t, y_k) over the cohort. A layer's parameters are concatenated; null where one is zero.

    References:
        Anonymous 2023, Knowledge Is Not Wisdom: Weight Balancing Mechanism for Local and Global Training in Federated
        Learning (submission, no public copy), figure 3.
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


def drift(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Norms of the clients' updates, and the share of them that cancels in the aggregate.

        norms_k = ||d_k||      update = ||sum_k p_k d_k||      server = ||x^{t+1} - x^t||
        cancellation = 1 - update / sum_k |p_k| ||d_k||        spread = sqrt(mean_k ||d_k - mean d||^2)

    Over all parameters, in float64; p are the aggregation weights. Cancellation is 0 where all updates point one way, 1
    where nothing is left, null where nobody moved. ``cosine`` is the mean of cos(d_k, d_j) over pairs k != j.
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


def coverage(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Classes that the cohort trains on.

    The row holds ``classes`` (number present among the rows used), ``share`` (of all C), ``used`` and ``owned`` [C]
    rows of the cohort, ``each`` [K] classes used by each client, and ``kl``, KL(used || uniform) in nats;
    ``kl_clients`` is the mean of those of each client, or chain of clients.
    """
    used, owned = moment.cohort.used.sum(0), moment.cohort.owned.sum(0)
    rows = torch.cat([used.unsqueeze(0), moment.cohort.used]).double()
    q = rows / rows.sum(1, keepdim=True).clamp(min=1)
    kl = torch.special.xlogy(q, q * len(used)).sum(1)
    present = int((used > 0).sum())
    return {
        "classes": present,
        "share": present / len(used),
        "used": used.tolist(),
        "owned": owned.tolist(),
        "each": (moment.cohort.used > 0).sum(1).tolist(),
        "kl": float(kl[0]),
        "kl_clients": float(kl[1:].mean()),
    }


def oversampling(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Rows of each class at chosen clients: ``owned``, ``offered`` by the sampler and ``used`` in training, [C] each.

    References:
        Seol and Kim 2023, Performance Enhancement in Federated Learning by Reducing Class Imbalance of Non-IID Data
        (Sensors 23(3):1152), figure 1. https://doi.org/10.3390/s23031152
    """
    cohort, kinds = moment.cohort, ("owned", "offered", "used")
    return {str(k): {n: getattr(cohort, n)[at].tolist() for n in kinds} for k, at in moment.chosen(clients).items()}


def features(moment: RoundSnapshot, clients: tuple[int, ...]) -> Row:
    """Features that enter the classifier of the evaluated model, of at most 1000 test rows spread over the classes.

    They are written as ``features`` [R, F] float32, ``labels`` and ``predictions`` [R] to the file that the row names.

    References:
        Guo et al. 2023, FedGR: Federated Learning with Gravitation Regulation for Double Imbalance Distribution
        (DASFAA), figure 5. https://doi.org/10.1007/978-3-031-30637-2_47
    """
    rows = spread_rows(moment.labels, FEATURE_ROWS)
    probabilities, values = moment.outputs(moment.served, moment.buffers_after, rows)
    name = f"features/round-{moment.round:06d}.safetensors"
    content = {"features": values.float(), "labels": moment.labels[rows], "predictions": probabilities.argmax(1)}
    digest = moment.write(name, content)
    return {"file": name, "rows": len(rows), "features": values.shape[1], "digest": digest}


Diagnostic = Callable[[RoundSnapshot, tuple[int, ...]], Row]
# Those of deltas read what single clients trained, which engines keep for them alone.
OF_DELTAS: dict[str, Diagnostic] = {"asymmetry": asymmetry, "cosine": cosine, "drift": drift, "per_class": per_class}
OF_COHORT: dict[str, Diagnostic] = {"coverage": coverage, "features": features, "oversampling": oversampling}
DIAGNOSTICS = OF_DELTAS | OF_COHORT


def measure(diagnostics: Diagnostics, moment: RoundSnapshot) -> Row:
    """Run the diagnostics asked for.

    Args:
        diagnostics: Which ones, of which clients.
        moment: The round.

    Returns:
        Rows by name.
    """
    return {name: DIAGNOSTICS[name](moment, diagnostics.clients) for name in diagnostics.names}


def layers(params: Params) -> dict[str, list[str]]:
    """Group parameters by layer: the part of the name before the last dot.

    Args:
        params: Parameters by name.

    Returns:
        Names of the parameters of each layer. A parameter without a dot is its own layer.

    Example:
        >>> from fedskew.records.diagnostics import layers
        >>> layers(dict.fromkeys(["conv1.weight", "conv1.bias", "scale"]))
        {'conv1': ['conv1.weight', 'conv1.bias'], 'scale': ['scale']}
    """
    members: dict[str, list[str]] = {}
    for name in params:
        members.setdefault(name.rpartition(".")[0] or name, []).append(name)
    return members


def spread_rows(labels: Tensor, most: int) -> Tensor:
    """At most ``most`` row numbers, as equally many of each class as possible, in ascending order."""
    classes = sorted(set(labels.tolist()))
    each = max(1, most // len(classes))
    rows = torch.cat([torch.nonzero(labels == c).flatten()[:each] for c in classes])
    return rows.sort().values[:most]


def _flat(tensors: Iterable[Tensor], start: int = 0) -> Tensor:
    """Tensors flattened and concatenated, in float64."""
    return torch.cat([t.cpu().double().flatten(start) for t in tensors], dim=-1)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine over the last axis; NaN where one is zero."""
    cosine: Tensor = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
    return cosine


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


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are there; None without any."""
    seen = [v for v in values if v is not None]
    return sum(seen) / len(seen) if seen else None


def _means(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    """`_mean` of each column."""
    return [_mean(column) for column in zip(*rows, strict=True)]


def _finite(value: float) -> float | None:
    """The value, or None where it is not finite: JSON has no NaN."""
    return value if math.isfinite(value) else None
