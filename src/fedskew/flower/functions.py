"""Aggregation weights and server steps on numpy arrays, for a Flower project that has its own strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew import tree
from fedskew.errors import ConfigError, require
from fedskew.flower.wire import EXACT
from fedskew.method import Component, Method, Weighting
from fedskew.slots import parts, samplers, selectors, steps
from fedskew.types import Cohort, Params, Report, Results, Task, Tree, Weights

Array = npt.NDArray[Any]
CLIENT = (  # hooks that a client must run
    "start", "correct", "learn", "finish", "personalize", "init_client", "init_model", "private", "frozen", "moves",
)  # fmt: skip
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def check_server_side(method: Method) -> None:
    """Check that everything of a method happens at the server.

    Raises:
        ConfigError: a component runs on clients, asks them, or chooses them; the message names it and what to do.

    Example:
        >>> from fedskew import methods
        >>> check_server_side(methods.fedadam())
        >>> check_server_side(methods.fedprox())
        Traceback (most recent call last):
        fedskew.errors.ConfigError: fedprox changes what clients do ('proximal'), which clients of your own would not \
do; `fedskew flower init fedprox` writes an app whose clients do
    """
    hint = f"`fedskew flower init {method.name.partition('(')[0]}` writes an app whose clients do"
    for part in method.components:
        loss = part in method.parts and not lib.does_no_more(part, parts.CrossEntropy) and part in method.having("loss")
        at_client = loss or any(part in method.having(hook) for hook in CLIENT)
        if part is method.local:
            at_client = not lib.does_no_more(part, steps.SGD, *(f.name for f in fields(part)))
        if at_client:
            why = f"changes what clients do ({part.name!r}), which clients of your own would not do"
            raise ConfigError(f"{method.name} {why}; {hint}")
        if part in method.having("ask") or part in method.having("broadcast") or part in method.having("init_params"):
            raise ConfigError(f"{method.name} sends or asks more than the model ({part.name!r}); {hint}")
    for slot, usual in (("sampler", samplers.Shuffle), ("selector", selectors.Random)):
        if not isinstance(part := getattr(method, slot), usual):
            why = f"needs its own {slot}, {part.name!r}, not that of a Flower strategy"
            raise ConfigError(f"{method.name} {why}; {hint}")


def _tensors(model: Mapping[str, Array]) -> Params:
    return {name: torch.from_numpy(np.array(value)) for name, value in model.items()}


def _trained(model: Mapping[str, Tensor]) -> list[str]:
    """Names of the parameters of a model, without the statistics of BatchNorm."""
    return [name for name, leaf in model.items() if leaf.is_floating_point() and not name.endswith(STATISTICS)]


def cohort_of(
    before: Mapping[str, Array],
    after: Sequence[Mapping[str, Array]],
    samples: Sequence[float],
    *,
    counts: Any = None,
    steps: Sequence[float] | None = None,
    lr: float = 1.0,
    round: int = 1,
) -> tuple[Cohort, Params]:
    """(cohort with the clients' deltas, their BatchNorm statistics [K, ...]) of trained models.

    Args:
        before: the model that the clients were sent, by name.
        after: each client's trained model, with the same names.
        samples: rows that each client trained on, [K].
        counts: rows of each class at each client, [K, C]; None where no weighting reads them.
        steps: local steps of each client, [K]; None where no weighting reads them.
        lr: learning rate of the clients, which FedNova's authors' server momentum reads.
        round: one-based.

    Raises:
        ConfigError: names, shapes or lengths do not agree, or a value is not finite.
    """
    require(len(after) > 0, "after", "hold a model of one client at least", [])
    require(len(samples) == len(after), "samples", f"have {len(after)} numbers", list(samples))
    known = _tensors(before)
    models = [_tensors(model) for model in after]
    for k, model in enumerate(models):
        rule = "have the names of the global model"
        require(set(model) == set(known), f"the model of client {k}", rule, sorted(model)[:5])
        for name, like in known.items():
            leaf, what, shape = model[name], f"{name} of client {k}", tuple(like.shape)
            require(leaf.shape == shape, what, f"have shape {shape}", tuple(leaf.shape))
            require(bool(torch.isfinite(leaf).all()), what, "be finite", "a value that is not")
            require(leaf.dtype == like.dtype, what, f"be {like.dtype}", leaf.dtype)
    trained = _trained(known)
    params = {name: known[name] for name in trained}
    stacked = tree.stack([{name: model[name] for name in known} for model in models])
    deltas = {name: stacked[name] - params[name] for name in trained}
    buffers = {name: stacked[name] for name in known if name not in params}
    n = torch.tensor([float(value) for value in samples], dtype=torch.float64)
    whole = bool(((n >= 0) & (n <= EXACT)).all()) and float(n.sum()) > 0
    require(whole, "samples", "be finite, at least 0, and not all 0", list(samples))
    sizes = [np.size(row) for row in counts] if counts is not None else []
    require(len(set(sizes)) < 2, "counts", "have a number for each class in every row", sizes)
    owned = torch.as_tensor(np.asarray(counts)) if counts is not None else n.long().unsqueeze(1)
    require(owned.dim() == 2 and len(owned) == len(after), "counts", f"be a matrix of {len(after)} rows", owned.shape)
    require(bool((owned >= 0).all()) and bool((owned <= EXACT).all()), "counts", "be finite and at least 0", counts)
    taken = torch.tensor([float(s) for s in steps], dtype=torch.float64) if steps is not None else torch.ones_like(n)
    require(bool(((taken >= 0) & (taken <= EXACT)).all()), "steps", "be finite and at least 0", steps)
    report = Report(n, taken, torch.full_like(n, lr), torch.zeros_like(n), taken)
    matrices = [name for name in trained if params[name].dim() == 2]
    layer = matrices[-1].rpartition(".")[0] if matrices else ""
    task = Task(layer, owned.shape[1], 0, len(after), 0)
    cohort = Cohort(
        task=task, ids=torch.arange(len(after)), owned=owned, offered=owned, used=owned, reports=report, before=params,
        round=round, chains=torch.arange(len(after)).unsqueeze(1), uploads={}, trained=deltas, deltas=deltas,
    )  # fmt: skip
    return cohort, buffers


def _init_server(part: Component, params: Params, task: Task) -> Tree:
    """A component's state at the server. Raises ConfigError where it reads what clients of your own do not tell."""
    unknown_rows: Any = SimpleNamespace(auxiliary_rows=())  # in place of a federation
    try:
        return part.init_server(params, unknown_rows, task)
    except AttributeError as error:
        why = "reads the label counts of all clients before the first round, which clients of your own do not tell"
        raise ConfigError(f"{part.name!r} {why}; `fedskew flower init` writes an app that asks for them") from error


def _start(method: Method, model: Params) -> lib.State:
    """The server's state before the first round. Raises ConfigError where the method needs clients of fedskew."""
    check_server_side(method)
    params = {name: model[name] for name in _trained(model)}
    others = [part for part in method.components if part is not method.selector]
    parts = {method.selector.name: {}} | {p.name: _init_server(p, params, Task("", 0, 0, 0, 0)) for p in others}
    return lib.State(0, params, {n: leaf for n, leaf in model.items() if n not in params}, parts)


def _check_given(part: Weighting, what: str, counts: Any, steps: Any) -> None:
    """Raise ConfigError where a weighting reads counts of classes or steps, and there are none."""
    reads_counts = any(read.word == "histogram" for read in part.reads)
    require(counts is not None or not reads_counts, "counts", f"be given for {what}", None)
    reads_steps = "fednova" in (part.name, getattr(getattr(part, "inner", None), "name", ""))
    require(steps is not None or not reads_steps, "steps", f"be given for {what}", None)


def aggregation_weights(
    weighting: str | Mapping[str, Any] | Method,
    samples: Sequence[float],
    *,
    counts: Any = None,
    steps: Sequence[float] | None = None,
) -> Array:
    """Aggregation weights of a cohort, float64 [K].

    Args:
        weighting: name of a weighting, ``{"name": ..., field: value}``, or a method, whose weighting is taken.
        samples: rows that each client trained on, [K].
        counts: rows of each class at each client, [K, C].
        steps: local steps of each client, [K].

    Returns:
        The weights, in the order of the clients. Those of FedNova need not sum to 1.

    Raises:
        ConfigError: there is no such weighting, or it reads the clients' models, or what was not given.

    Example:
        >>> aggregation_weights("size", [10, 30]).tolist()
        [0.25, 0.75]
        >>> aggregation_weights("label_aware", [10, 10], counts=[[10, 0], [5, 5]]).round(3).tolist()
        [0.333, 0.667]
    """
    part = weighting.weighting if isinstance(weighting, Method) else lib.make("weighting", weighting)
    if part.reads_deltas:
        raise ConfigError(f"weighting {part.name!r} reads the clients' models: use server_step with a method")
    _check_given(part, f"weighting {part.name!r}", counts, steps)
    cohort, _ = cohort_of({"w": np.zeros(1)}, [{"w": np.zeros(1)}] * len(samples), samples, counts=counts, steps=steps)
    weights: Weights = part.weigh(_init_server(part, {}, cohort.task), cohort)
    update: Array = weights.update.double().numpy()
    return update


def server_step(
    method: str | Method,
    state: lib.State | None,
    before: Mapping[str, Array],
    after: Sequence[Mapping[str, Array]],
    samples: Sequence[float],
    *,
    counts: Any = None,
    steps: Sequence[float] | None = None,
    lr: float = 1.0,
    seed: int = 0,
) -> tuple[dict[str, Array], lib.State]:
    """One round at the server: weigh, combine, add up, step.

    Args:
        method: a method or its name, all of which happens at the server.
        state: what the last call returned; None before the first round.
        before: the model that the clients were sent, by name.
        after: each client's trained model.
        samples: rows that each client trained on, [K].
        counts: rows of each class at each client, [K, C].
        steps: local steps of each client, [K].
        lr: learning rate of the clients.
        seed: of what the server draws.

    Returns:
        (the new global model by name, state). BatchNorm statistics are averaged, never stepped.

    Raises:
        ConfigError: the method needs clients of fedskew, something it reads was not given, or models do not agree.

    Example:
        >>> import numpy as np
        >>> model, state = {"w": np.zeros(2)}, None
        >>> model, state = server_step("fedavg", state, model, [{"w": np.ones(2)}, {"w": 3 * np.ones(2)}], [30, 10])
        >>> model["w"].tolist()
        [1.5, 1.5]
    """
    value = lib.method_named(method) if isinstance(method, str) else method
    state = state or _start(value, _tensors(before))
    _check_given(value.weighting, value.name, counts, steps)
    cohort, buffers = cohort_of(before, after, samples, counts=counts, steps=steps, lr=lr, round=state.round + 1)
    state = state._replace(params=cohort.before)
    with torch.no_grad():
        next_state, _, _ = lib.close_round(value, state, Results(cohort, None, buffers), seed)
    model = {**next_state.params, **next_state.buffers}
    return {name: model[name].numpy() for name in before}, next_state
