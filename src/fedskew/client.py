"""One client's local run: begin, step, finish. Engines map these functions over clients; nothing else trains.

All of them work on one client and, under ``vmap``, on a stack of clients.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedskew import tree
from fedskew.method import Method
from fedskew.types import (
    Batch,
    Carry,
    Context,
    Forward,
    LocalRun,
    Params,
    Progress,
    Report,
    Rule,
    Task,
    Tree,
    View,
)

PRIVATE = "private parameters"  # their place in a client's memory, beside the components' names
Aux = Any
Objective = Callable[[Params], tuple[Tensor, Aux]]
Grad = Callable[[Objective, Params], tuple[Params, Tensor, Aux]]


class RoundInputs(NamedTuple):
    """What is the same for every client of a round: one object, which all jobs of the round refer to."""

    params: Params
    buffers: Params
    common: dict[str, Tree]  # broadcast to all, by component
    round: Tensor  # () int64, one-based
    rounds: Tensor  # () int64


class ClientInputs(NamedTuple):
    """What differs from client to client."""

    each: dict[str, Tree]  # broadcast to this client, by component
    memory: dict[str, Tree]
    owned: Tensor  # [C]
    used: Tensor  # [C] rows it trains on this round
    lr: Tensor  # ()
    epochs: Tensor  # () int64
    steps: Tensor  # () int64
    samples: Tensor  # () int64
    a_norm: Tensor  # () FedNova's ||a||_1 of so many steps of the method's local rule
    kept: dict[str, Params]  # its private {"params", "buffers"}; {} where a method has none


class Job(NamedTuple):
    """One client's share of a round: tensors only, so that an engine may map over it."""

    shared: RoundInputs
    own: ClientInputs


def autograd(objective: Objective, params: Params) -> tuple[Params, Tensor, Aux]:
    """Gradient by torch's tape: for small steps two to three times faster than torch.func, but not usable in vmap."""
    with torch.enable_grad():
        leaves = {name: p.detach().requires_grad_() for name, p in params.items()}
        loss, aux = objective(leaves)
        grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True)), loss.detach(), _detach(aux)


def functorch(objective: Objective, params: Params) -> tuple[Params, Tensor, Aux]:
    """Gradient by torch.func, for use inside vmap.

    The bits are those of `torch.func.grad_and_value`, which imports torch's compiler (a second and more) only to say
    that it is not compiling. So the tape is read inside `torch.func.vjp`, in which the parameters are its leaves.
    """

    def whole(leaves: Params) -> tuple[Tensor, Aux]:
        loss, aux = objective(leaves)
        if not loss.requires_grad:  # it does not depend on the parameters
            return loss, ({name: torch.zeros_like(p) for name, p in leaves.items()}, aux)
        grads = torch.autograd.grad(loss, list(leaves.values()), create_graph=True, materialize_grads=True)
        return loss, (dict(zip(leaves, grads, strict=True)), aux)

    vjp: Any = torch.func.vjp(whole, params, has_aux=True)
    loss, _, (grads, aux) = vjp
    return grads, loss, aux


def _detach(aux: Aux) -> Aux:
    out, buffers = aux
    return type(out)(*(t.detach() for t in out)), {name: b.detach() for name, b in buffers.items()}


def context(task: Task, job: Job) -> Context:
    """What the client may read in this round."""
    (params, buffers, common, *_), client = job
    if client.kept:
        params, buffers = {**params, **client.kept["params"]}, {**buffers, **client.kept["buffers"]}
    broadcasts = {name: {**common.get(name, {}), **client.each.get(name, {})} for name in {**common, **client.each}}
    return Context(task, params, buffers, broadcasts, client.memory, client.owned, client.used, client.lr)


def progress_at(job: Job, epoch: Tensor, step: Tensor) -> Progress:
    """Where in the local run and in the whole run a step stands; ``epoch`` and ``step`` are one-based."""
    shared, client = job
    return Progress(epoch, client.epochs, step, client.steps, shared.round, shared.rounds)


def begin(method: Method, ctx: Context) -> Carry:
    """The carry before the first step: the `start` of every component, one after another."""
    params, buffers, memory = ctx.params, ctx.buffers, dict(ctx.memory)
    for part in method.having("start"):
        params, memory[part.name] = part.start(params, ctx)
        params, buffers = apart(params, buffers)
    return Carry(params, buffers, memory)


def apart(values: Params, buffers: Params) -> tuple[Params, Params]:
    """(parameters, buffers) of values among which a hook may have put buffers of its own, by their names."""
    if not any(name in buffers for name in values):
        return values, buffers
    params = {name: value for name, value in values.items() if name not in buffers}
    return params, {name: values.get(name, buffer) for name, buffer in buffers.items()}


def loss_at(method: Method, view: View) -> Tensor:
    """The local objective: the sum of all loss terms at a view, ()."""
    return sum((part.loss(view) for part in method.having("loss")), start=view.out.logits.new_zeros(()))


Halted = dict[str, Tensor | None]  # whether a parameter moves in this step, () bool; None: never


def halted(method: Method, ctx: Context, progress: Progress) -> Halted:
    """The parameters and buffers that a local step may not move; the others have no entry."""
    if not (method.having("moves") or method.having("frozen")):
        return {}
    masks: Halted = {}
    for part in method.having("moves"):
        for name, moves in part.moves(tuple(ctx.params), ctx.task, progress).items():
            other = masks.get(name)
            masks[name] = moves if other is None else other & moves
    return {**masks, **dict.fromkeys(method.named("frozen", (*ctx.params, *ctx.buffers), ctx.task))}


def _held(new: Params, old: Params, still: Halted) -> Params:
    """The new values, and the old ones of what does not move: no momentum or weight decay moves it either."""
    for name, moves in still.items():
        if name in new:
            new = {**new, name: old[name] if moves is None else torch.where(moves, new[name], old[name])}
    return new


def _stopped(grads: Params, still: Halted) -> Params:
    """Gradients that are 0 for what does not move."""
    return _held(grads, {name: torch.zeros_like(grads[name]) for name in still if name in grads}, still)


def step(
    method: Method,
    ctx: Context,
    forward: Forward,
    grad: Grad,
    carry: Carry,
    batches: tuple[Batch, ...],
    keys: Tensor,
    progress: Progress,
    active: Tensor | None = None,
) -> tuple[Carry, Tensor]:
    """One local step: the carry after it, and its loss (). Nothing else sums, differentiates and corrects losses.

    Args:
        method: its parts give the loss terms, the corrections and what is learnt at a gradient.
        ctx: what the client may read.
        forward: the model as a function.
        grad: `autograd`, or `functorch` under vmap; an engine may know the gradient already.
        carry: what the step before has left.
        batches: the step's D mini-batches.
        keys: [D], one for each mini-batch.
        progress: where in the run the step stands.
        active: () False for a step that pads a shorter local run: it returns the old carry and loss 0.
    """
    correctors, learners, still = method.having("correct"), method.having("learn"), halted(method, ctx, progress)

    def differentiate(carry: Carry, batch: int = 0, rule: Rule | None = None) -> tuple[Params, Tensor, Carry]:
        rows, key = batches[batch], keys[batch]

        def view(params: Params, buffers: Params, out: Any) -> View:
            return View(forward, params, buffers, out, rows, ctx, carry.memory, key, progress)

        def objective(params: Params) -> tuple[Tensor, Aux]:
            out, buffers = forward(params, carry.buffers, rows.x, rows.mask, train=True, key=key)
            seen = view(params, buffers, out)
            return loss_at(method, seen), (out, buffers)

        def raw(params: Params) -> tuple[Params, Tensor, Aux]:
            grads, loss, aux = grad(objective, params)
            return _stopped(grads, still), loss, aux

        grads, loss, (out, buffers) = raw(carry.params) if rule is None else rule(raw, carry.params)
        seen = view(carry.params, buffers, out)
        for part in correctors:
            grads = part.correct(grads, seen)
        grads = _stopped(grads, still)
        learnt = {part.name: part.learn(seen) for part in learners}
        return grads, loss, Carry(carry.params, buffers, {**carry.memory, **learnt})

    new, loss = method.local.step(carry, ctx, differentiate)
    if still:
        params, buffers = _held(new.params, carry.params, still), _held(new.buffers, carry.buffers, still)
        new = new._replace(params=params, buffers=buffers)
    if active is None:
        return new, loss
    kept = Carry(*(tree.where(active, a, b) for a, b in zip(new, carry, strict=True)))
    return kept, torch.where(active, loss, torch.zeros_like(loss))


def finish(
    method: Method, ctx: Context, carry: Carry, job: Job, loss: Tensor
) -> tuple[dict[str, Tree], dict[str, Tree], Report]:
    """(uploads, memories, report) of a finished local run, by the `finish` of every component.

    ``loss`` () is the mean over its steps.
    """
    client = job.own
    report = Report(client.samples, client.steps, client.lr, loss, client.a_norm)
    local = LocalRun(ctx, carry.params, carry.buffers, carry.memory, report)
    uploads, memory = {}, dict(carry.memory)
    if client.kept:
        memory[PRIVATE] = {n: {m: getattr(carry, n)[m] for m in values} for n, values in client.kept.items()}
    for part in method.having("finish"):
        upload, memory[part.name] = part.finish(local)
        if upload:
            uploads[part.name] = upload
    return uploads, memory, report
