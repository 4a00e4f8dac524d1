"""The values that cross doors. N clients, K cohort, B rows, C classes, F features; Params = dict[str, Tensor].

A delta is local - global: the server adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

from fedskew import tree
from fedskew.tree import Params, Tree

__all__ = [
    "Answers",
    "Assignment",
    "Batch",
    "Carry",
    "Cohort",
    "Context",
    "Differentiate",
    "Forward",
    "LocalRun",
    "Output",
    "PacePlan",
    "Params",
    "Progress",
    "Query",
    "Report",
    "Results",
    "Task",
    "View",
    "Weights",
    "What",
]  # fmt: skip


class Task(NamedTuple):
    """Static facts of a run. Holds strings: never an argument of vmap."""

    head: str  # name of the classifier layer; "" when its parameters stand at the top ("weight", "bias")
    classes: int
    features: int  # F, what enters the head
    clients: int
    rounds: int

    @property
    def weight(self) -> str:
        """Name of the classifier's weight [C, F]."""
        return f"{self.head}.weight" if self.head else "weight"

    @property
    def bias(self) -> str:
        """Name of the classifier's bias [C]; absent from the parameters of a bias-free head."""
        return f"{self.head}.bias" if self.head else "bias"


class Output(NamedTuple):
    """What a forward pass gives."""

    logits: Tensor  # [B, C]
    features: Tensor  # [B, F]


class Batch(NamedTuple):
    """Rows of one mini-batch; padded rows have mask 0 and label 0."""

    x: Tensor  # [B, ...]
    y: Tensor  # [B] int64
    mask: Tensor  # [B] of the parameters' dtype

    def mean(self, per_sample: Tensor) -> Tensor:
        """Mean of a per-sample term [B] over the real rows: sum(mask * term) / max(sum(mask), 1)."""
        return (per_sample * self.mask).sum() / self.mask.sum().clamp(min=1)


class Forward(Protocol):
    """The model as a function; a key is an int64 tensor ()."""

    def __call__(
        self, params: Params, buffers: Params, x: Tensor, mask: Tensor, *, train: bool, key: Tensor
    ) -> tuple[Output, Params]:
        """(outputs, buffers after the pass)."""
        ...


class Progress(NamedTuple):
    """One-based () tensors; ragged clients differ, so never branch on them."""

    epoch: Tensor
    epochs: Tensor
    step: Tensor  # over the whole local run
    steps: Tensor
    round: Tensor
    rounds: Tensor


class Context(NamedTuple):
    """All that a client may read in one round."""

    task: Task
    params: Params  # w^t
    buffers: Params  # its BatchNorm statistics
    shared: dict[str, Tree]  # broadcasts by component: what is common to all, and this client's own share
    memory: dict[str, Tree]  # what each component kept on this client
    owned: Tensor  # [C] histogram of the rows it has
    used: Tensor  # [C] histogram of the rows it trains on this round
    lr: Tensor  # ()


class View(NamedTuple):
    """What a loss term or a correction sees at one local step."""

    forward: Forward
    params: Params
    buffers: Params
    out: Output
    batch: Batch
    ctx: Context
    memory: dict[str, Tree]  # as it stands at this step
    key: Tensor  # ()
    progress: Progress

    def teacher(self, params: Params | None = None, buffers: Params | None = None) -> Output:
        """This mini-batch through another model, by default w^t: evaluation mode, no gradient."""
        held = self.ctx.params if params is None else params
        frozen = {name: p.detach() for name, p in held.items()}
        statistics = self.ctx.buffers if buffers is None else buffers
        out, _ = self.forward(frozen, statistics, self.batch.x, self.batch.mask, train=False, key=self.key)
        return Output(out.logits.detach(), out.features.detach())


class Carry(NamedTuple):
    """What a local step hands to the next."""

    params: Params
    buffers: Params
    memory: dict[str, Tree]


class Differentiate(Protocol):
    """Gradient of the sum of all loss terms, after every `correct`; not weight decay, not clipping.

    Returns (grads, loss (), carry with new BatchNorm statistics and learnt memory).
    """

    def __call__(self, carry: Carry, batch: int = 0) -> tuple[Params, Tensor, Carry]:
        """On the step's mini-batch number ``batch``."""
        ...


class Report(NamedTuple):
    """Small facts of local runs; () on a client, [K] at the server."""

    samples: Tensor  # rows of one epoch
    steps: Tensor
    lr: Tensor
    loss: Tensor  # mean over the steps
    a_norm: Tensor  # FedNova's ||a||_1 of the local rule


class LocalRun(NamedTuple):
    """A finished local run, as the client's `finish` hooks see it."""

    ctx: Context
    params: Params
    buffers: Params
    memory: dict[str, Tree]
    report: Report


class PacePlan(NamedTuple):
    """Batch size, epochs, steps an epoch and learning rate of each client, [K]."""

    batch: Tensor  # int64
    epochs: Tensor  # int64
    steps: Tensor  # int64, most mini-batches an epoch; 0 means all
    lr: Tensor  # float64


class Assignment(NamedTuple):
    """Who trains, in which chain, and how much of each class each may use."""

    chains: Tensor  # [G, M] client ids, -1 is padding; M = 1 unless mediators pass a model on
    quota: Tensor | None = None  # [G, C] rows of each class; None: all that is offered
    averaged: Tensor | None = None  # [G] bool, whose update the server averages (only these upload); None: everyone's

    @property
    def ids(self) -> Tensor:
        """Every client of the cohort once, in the order of the chains."""
        flat = self.chains.flatten()
        seen: list[int] = []
        for i in flat[flat >= 0].tolist():
            if i not in seen:
                seen.append(i)
        return flat.new_tensor(seen)


What = Literal["loss", "counts", "delta"] | Callable[[View], Tree]


class Query(NamedTuple):
    """One extra exchange before training: declared, and counted in bytes.

    ``what``: "loss" (mean cross-entropy of the broadcast model on the client's rows), "counts" (the sampler's offer),
    "delta" (the engine's own plain client round), or a function of a View over all of the client's rows, with
    ``view.out`` computed in evaluation mode and averaged over ``draws`` calls with different keys.
    """

    ids: Tensor | Literal["all", "cohort"]
    what: What
    rows: Literal["own", "auxiliary"] = "own"  # auxiliary: the server's rows; ids are then classes
    keep: bool = False  # the answer stays on the client, in the asking component's memory
    draws: int = 1
    augment: bool = False  # augment the rows of each draw as in training


class Answers(NamedTuple):
    """Replies to a query."""

    ids: Tensor  # [Q]
    values: Tree  # leaves [Q, ...]


class Weights(NamedTuple):
    """Aggregation weights: ``update`` need not sum to one, ``average`` is convex and used for buffers."""

    update: Tensor  # [K]
    average: Tensor  # [K]


STACKED = ("ids", "owned", "offered", "used", "chains", "uploads", "trained", "deltas")  # leaves [K, ...] of a cohort


class Cohort(NamedTuple):
    """What the server sees of a round. With chains K counts the chains.

    Weights that can be known before training are asked for a cohort that has no deltas, no uploads and no ``after``.
    """

    task: Task
    ids: Tensor  # [K] (first of each chain)
    owned: Tensor  # [K, C]
    offered: Tensor  # [K, C]
    used: Tensor  # [K, C]
    reports: Report  # [K]
    before: Params
    round: int  # one-based
    chains: Tensor  # [K, M], -1 is padding
    uploads: dict[str, Tree]  # leaves [K, ...]; {} before training
    trained: Params | None = None  # [K, ...] deltas as they came from the clients
    deltas: Params | None = None  # [K, ...] the same, after every `combine` so far
    weights: Weights | None = None
    after: Params | None = None
    averaged: Tensor | None = None  # [K] bool; None: all

    def rows(self, at: Tensor) -> Cohort:
        """The same round of some of its members, ``at`` [J] positions."""
        some = {
            n: tree.map_tree(lambda leaf: leaf[at], getattr(self, n)) for n in STACKED if getattr(self, n) is not None
        }
        return self._replace(reports=Report(*(r[at] for r in self.reports)), averaged=None, **some)


class Results(NamedTuple):
    """What an engine hands back: deltas stacked in the cohort, or already reduced by weights known beforehand."""

    cohort: Cohort
    delta: Params | None  # the weighted sum, when reduced
    buffers: Params  # [K, ...]
    kept: Params | None = None  # [K, ...] every delta, on the host, where ``keep_deltas`` asked for them
