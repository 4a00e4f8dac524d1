"""The values that components, engines and the server exchange.

N clients, K participants of a round, B rows of a batch, C classes, F features; Params = dict[str, Tensor]. A delta is
local - global: the server adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from fedskew.tree import Params as Params
from fedskew.tree import Tree as Tree

if TYPE_CHECKING:
    from fedskew.data.federation import Federation as Federation
else:  # components are given one, and do not know the room `data`
    Federation = Any


# A parameter () that `Component.serve` may add: the network's logits are then it times f' W / ||f||, without a bias.
COSINE_SCALE = "cosine_scale"

Width: TypeAlias = int | Literal["linear"]  # of a projection head: two layers; "linear": one, of width C; 0: no head


class Task(NamedTuple):
    """Facts that stay the same during a run. It holds strings, so it cannot be an argument of vmap."""

    head: str  # name of the classifier layer; "" when its parameters stand at the top ("weight", "bias")
    classes: int
    features: int  # F, what enters the head
    clients: int
    rounds: int
    norms: tuple[str, ...] = ()  # names of the parameters and buffers of normalisation layers
    held_out: int = 0  # of the clients, those that never train

    @property
    def population(self) -> int:
        """Clients that rounds draw from: N of the equations. Arrays by client have ``clients`` rows."""
        return self.clients - self.held_out

    @property
    def weight(self) -> str:
        """Name of the classifier's weight [C, F]."""
        return f"{self.head}.weight" if self.head else "weight"

    @property
    def bias(self) -> str:
        """Name of the classifier's bias [C]; absent from the parameters of a bias-free head."""
        return f"{self.head}.bias" if self.head else "bias"


class Output(NamedTuple):
    """Result of a forward pass."""

    logits: Tensor  # [B, C]
    features: Tensor  # [B, F]


class Batch(NamedTuple):
    """Rows of one mini-batch. Padded rows have mask 0 and label 0."""

    x: Tensor  # [B, ...]
    y: Tensor  # [B] int64
    mask: Tensor  # [B] of the parameters' dtype

    def mean(self, per_sample: Tensor) -> Tensor:
        """Mean of a per-sample term over the real rows.

            sum(mask * term) / max(sum(mask), 1)

        Args:
            per_sample: Term of each row, [B].

        Returns:
            The mean, (); 0 without real rows.

        Example:
            >>> import torch
            >>> from fedskew.types import Batch
            >>> batch = Batch(x=torch.zeros(3, 2), y=torch.tensor([1, 0, 0]), mask=torch.tensor([1.0, 1.0, 0.0]))
            >>> batch.mean(torch.tensor([2.0, 4.0, 9.0]))  # the third row is padding
            tensor(3.)
        """
        return (per_sample * self.mask).sum() / self.mask.sum().clamp(min=1)


class Forward(Protocol):
    """The model as a function. A key is an int64 tensor ()."""

    def __call__(
        self, params: Params, buffers: Params, x: Tensor, mask: Tensor, *, train: bool, key: Tensor
    ) -> tuple[Output, Params]:
        """Run the model.

        Args:
            params: Parameters.
            buffers: BatchNorm statistics.
            x: Rows, [B, ...].
            mask: 1 for real rows, 0 for padding, [B].
            train: Training mode: dropout, batch statistics.
            key: Key of the dropout, ().

        Returns:
            (outputs, buffers after the pass).
        """
        ...


class Progress(NamedTuple):
    """Where a local run stands: one-based tensors (). Clients differ in length, so never branch on them."""

    epoch: Tensor
    epochs: Tensor
    step: Tensor  # over the whole local run
    steps: Tensor
    round: Tensor
    rounds: Tensor


class Context(NamedTuple):
    """Everything a client may read in one round.

    Attributes:
        task: Facts that stay the same during a run.
        params: The global model w^t; of private parameters, this client's own.
        buffers: Its BatchNorm statistics; of private ones, this client's own.
        shared: Broadcasts by component: what is common to all, and this client's own share.
        memory: What each component kept on this client.
        owned: Training rows of each class that this client holds, int64 [C].
        used: Rows of each class that it trains on in an epoch of this round, int64 [C]: ``owned``, unless the sampler
            or the selector takes others.
        lr: Learning rate, ().
    """

    task: Task
    params: Params
    buffers: Params
    shared: dict[str, Tree]
    memory: dict[str, Tree]
    owned: Tensor
    used: Tensor
    lr: Tensor


class View(NamedTuple):
    """What a loss term or a gradient correction sees at one local step.

    Attributes:
        forward: The model as a function.
        params: The local model's parameters at this step.
        buffers: Its BatchNorm statistics.
        out: Its logits [B, C] and features [B, F] of the mini-batch.
        batch: The mini-batch: ``x`` [B, ...], ``y`` int64 [B], ``mask`` [B].
        ctx: What holds for the whole round, such as the client's class counts ``ctx.owned``.
        memory: What each component keeps on this client, as it stands at this step.
        key: Random key of the step, int64 ().
        progress: Where the local run stands.
    """

    forward: Forward
    params: Params
    buffers: Params
    out: Output
    batch: Batch
    ctx: Context
    memory: dict[str, Tree]
    key: Tensor
    progress: Progress

    def teacher(self, params: Params | None = None, buffers: Params | None = None) -> Output:
        """Run this mini-batch through another model, in evaluation mode and without gradients.

        Args:
            params: Parameters of that model; None takes the global model w^t.
            buffers: Its BatchNorm statistics; None takes those of w^t.

        Returns:
            Detached logits [B, C] and features [B, F].
        """
        held = self.ctx.params if params is None else params
        frozen = {name: p.detach() for name, p in held.items()}
        statistics = self.ctx.buffers if buffers is None else buffers
        out, _ = self.forward(frozen, statistics, self.batch.x, self.batch.mask, train=False, key=self.key)
        return Output(out.logits.detach(), out.features.detach())


class Carry(NamedTuple):
    """What one local step hands to the next."""

    params: Params
    buffers: Params
    memory: dict[str, Tree]


Raw = Callable[[Params], tuple[Params, Tensor, Any]]  # parameters -> (gradients of the loss terms, loss, forward pass)
Rule = Callable[[Raw, Params], tuple[Params, Tensor, Any]]  # what `Differentiate` takes in the place of one gradient


class Differentiate(Protocol):
    """The gradient of the local objective.

    It is taken of the sum of all loss terms, after every `correct` hook, before weight decay and clipping.
    """

    def __call__(self, carry: Carry, batch: int = 0, rule: Rule | None = None) -> tuple[Params, Tensor, Carry]:
        """Differentiate on one of the step's mini-batches.

        Args:
            carry: Parameters, buffers and memory at this point.
            batch: Number of the mini-batch within the step, from 0.
            rule: Forms the gradient of the loss terms, for example at a perturbed point, by calls of its first
                argument; the second is the carry's parameters, at which corrections act. The BatchNorm statistics
                are those of the forward pass that it returns. None takes the gradient at the carry's parameters.

        Returns:
            (gradients, loss (), carry with the new BatchNorm statistics and memory).
        """
        ...


class Gradient(Protocol):
    """The gradient on a client's own training rows, in evaluation mode: what `personalize` takes steps with."""

    def __call__(
        self, params: Params, term: Callable[[Params, Output, Batch], Tensor] | None = None, at: Tensor | None = None, /
    ) -> Params:
        """Differentiate the mean of a term over rows.

        Args:
            params: Parameters.
            term: Function of (parameters, outputs, rows) that gives the term of each row, [B]; None: the cross-entropy
                of the network's logits.
            at: Positions of a mini-batch, int64 [B], from 0 to the number of rows less 1; None: all rows.

        Returns:
            The gradient, shaped as ``params``.
        """
        ...


class Report(NamedTuple):
    """Numbers of a local run: () at a client, [K] at the server.

    Attributes:
        samples: Rows of one epoch.
        steps: Local steps.
        lr: Learning rate.
        loss: Mean loss over the steps.
        a_norm: FedNova's ||a||_1 of the local rule.
    """

    samples: Tensor
    steps: Tensor
    lr: Tensor
    loss: Tensor
    a_norm: Tensor


class LocalRun(NamedTuple):
    """A finished local run, as the client's `finish` hooks see it."""

    ctx: Context
    params: Params
    buffers: Params
    memory: dict[str, Tree]
    report: Report


class PacePlan(NamedTuple):
    """Batch size, epochs, steps an epoch, learning rate and steps in all of each client, [K]."""

    batch: Tensor  # int64
    epochs: Tensor  # int64
    steps: Tensor  # int64, most mini-batches an epoch; 0 means all
    lr: Tensor  # float64
    total: Tensor | None = None  # int64, most local steps of the round; 0 or None means all


class Assignment(NamedTuple):
    """Who trains, in which chain, and how many rows of each class each client may use."""

    chains: Tensor  # [G, M] client ids, -1 is padding; M = 1 unless mediators pass a model on
    quota: Tensor | None = None  # [G, C] rows of each class; None: all that is offered

    @property
    def ids(self) -> Tensor:
        """Every client of the cohort once, in the order of the chains, [K] int64."""
        flat = self.chains.flatten()
        seen: list[int] = []
        for i in flat[flat >= 0].tolist():
            if i not in seen:
                seen.append(i)
        return flat.new_tensor(seen)

    def without(self, clients: Sequence[int]) -> Assignment | None:
        """The round as if these clients had not been chosen; None where nobody is left.

        The members of a chain keep their places in it, on which their draws depend.
        """
        chains = self.chains.masked_fill(torch.isin(self.chains, self.chains.new_tensor(list(clients))), -1)
        left = (chains >= 0).any(1)
        return Assignment(chains[left], None if self.quota is None else self.quota[left]) if left.any() else None


What = Literal["loss", "counts", "delta"] | Callable[[View], Tree]


class Query(NamedTuple):
    """One extra exchange with clients before training. It is declared and counted in bytes.

    ``what`` is one of

    - "loss": mean cross-entropy of the broadcast model on the client's rows,
    - "counts": the rows of each class that the sampler offers,
    - "delta": the engine's own plain client round,
    - a function of a View of all the client's rows. ``view.out`` is computed in evaluation mode; the result is averaged
      over ``draws`` calls with different keys.
    """

    ids: Tensor | Literal["all", "cohort"]
    what: What
    rows: Literal["own", "auxiliary"] = "own"  # auxiliary: the server's rows; ids are then classes
    keep: bool = False  # the answer stays on the client, in the asking component's memory
    draws: int = 1
    augment: bool = False  # augment the rows of each draw as in training


class Answers(NamedTuple):
    """Answers to a query."""

    ids: Tensor  # [Q]
    values: Tree  # leaves [Q, ...]


class Weights(NamedTuple):
    """Aggregation weights: ``update`` for deltas need not sum to 1; ``average`` for buffers is convex.

    Example:
        >>> import torch
        >>> from fedskew.types import Weights
        >>> rows = torch.tensor([10.0, 30.0])
        >>> Weights(update=rows / rows.sum(), average=rows / rows.sum()).update.tolist()
        [0.25, 0.75]
    """

    update: Tensor  # [K]
    average: Tensor  # [K]


class Cohort(NamedTuple):
    """What the server sees of a round. With chains, K counts the chains.

    Weights that are known before training are computed from a cohort without deltas, ``delta``, uploads and ``after``.

    Attributes:
        task: Facts that stay the same during a run.
        ids: The clients, [K]; of a chain, its first.
        owned: Training rows of each class that each client holds, int64 [K, C].
        offered: Rows of each class that its sampler offers, int64 [K, C].
        used: Rows of each class that it trains on in an epoch, int64 [K, C].
        reports: Numbers of the local runs, [K] each.
        before: The global model w^t.
        round: The round, from 1.
        chains: Clients of each chain in their order, [K, M]; -1 is padding.
        uploads: What each component's clients sent beside the model, leaves [K, ...]; {} before training.
        trained: Deltas as they came from the clients, [K, ...]; like what follows None until they are known.
        deltas: The same after every `combine` so far, [K, ...].
        weights: Aggregation weights.
        delta: sum_k p_k delta_k, as the server optimizer got it; for `absorb`.
        after: The global model w^{t+1}.

    Example:
        >>> import fedskew as fs
        >>> class Shown(fs.weightings.Uniform):
        ...     def weigh(self, state, cohort):
        ...         print(cohort.round, cohort.ids.tolist(), tuple(cohort.used.shape), cohort.deltas)
        ...         return super().weigh(state, cohort)
        >>> fed, method = fs.federate("digits", "iid", clients=3), fs.methods.fedavg().with_(weighting=Shown())
        >>> result = fs.run(fed, method, model="logistic", rounds=1, cohort=3)
        1 [0, 1, 2] (3, 10) None
    """

    task: Task
    ids: Tensor
    owned: Tensor
    offered: Tensor
    used: Tensor
    reports: Report
    before: Params
    round: int
    chains: Tensor
    uploads: dict[str, Tree]
    trained: Params = None  # type: ignore[assignment]  # a hook that reads one of these runs later
    deltas: Params = None  # type: ignore[assignment]
    weights: Weights = None  # type: ignore[assignment]
    delta: Params = None  # type: ignore[assignment]
    after: Params = None  # type: ignore[assignment]


class Results(NamedTuple):
    """What an engine returns: stacked deltas, or their weighted sum where the weights were known before training."""

    cohort: Cohort
    delta: Params | None  # the weighted sum, when reduced
    buffers: Params  # [K, ...]
    kept: Params | None = None  # [K, ...] every delta, on the host, where ``keep_deltas`` asked for them
    recorded: Cohort | None = None  # for the record, where the server knows other numbers of the cohort
