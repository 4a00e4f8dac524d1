"""Dense steps that are written out around a method: who takes them, and that they give what the tape gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedskew as fs
from fedskew import engines, tree
from fedskew import functional as F
from fedskew.engines import batched, stepper
from fedskew.engines.batched import Batched
from fedskew.engines.stepper import StepMode
from fedskew.engines.written import FusedStep
from fedskew.method import Component, LocalStep, Method
from fedskew.method.paces import Fixed
from fedskew.method.parts import CrossEntropy
from fedskew.method.steps import SGD, AdamW
from fedskew.methods import METHODS
from fedskew.models.prepare import prepare
from fedskew.types import Carry, Context, Differentiate, Params, View
from support.federations import UNEVEN, blobs
from support.methods import changed
from support.nets import DENSE, plain_module
from support.runs import gap, go

PACE = Fixed(epochs=2, batch_size=4, lr=0.1)
WHOLE = {
    "astraea", "ccvr", "clusteredsampling", "creff", "fedadagrad", "fedadam", "fedavg", "fedavgm", "fedbn", "feddisco",
    "fedexp", "fedla", "fednova", "fedpals", "fedper", "fedvc", "fedyogi", "ifca", "lgfedavg", "localonly",
    "powerofchoice", "seolkim",
}  # fmt: skip
VMAP = {
    "apfl", "ditto", "fedlesam", "fedsam", "fedsmoo", "fedsol", "fedspeed", "mofedsam", "perfedavg", "pfedme",
    "precisionweighted",
}  # fmt: skip  # local steps of their own


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Widths of the steps that were written out around a loss."""
    widths: list[int] = []

    def noted(self: FusedStep, rows: Any, job: Any, carry: Any, now: Any) -> Any:
        widths.append(len(now[0]))
        return step(self, rows, job, carry, now)

    step = FusedStep.__call__
    monkeypatch.setattr(FusedStep, "__call__", noted)
    return widths


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Components of this file count as fedskew's own; a user's are never written around."""
    for kind in (Term, Pulls, Grows, Signs):
        monkeypatch.setattr(kind, "__module__", "fedskew.test")


def apart(method: Method, limit: float = 1e-8, **options: Any) -> str:
    """Run `batched` beside `sequential`; the reason that the former gives."""
    options = {"cohort": 8, "rounds": 3, "threads": 2, "model": "mlp"} | options
    fed = blobs(UNEVEN, auxiliary=3)
    one, other = (go(fed, method, engine=engine, **options) for engine in ("sequential", "batched"))
    assert gap(one.params, other.params) <= limit
    for a, b in zip(one.rounds, other.rounds, strict=True):
        assert a["train_loss"] == pytest.approx(b["train_loss"], abs=limit)
    model = options["model"]
    known = prepare(model, None, (5,), 3) if isinstance(model, nn.Module) else None
    return engines.choose("batched", "cpu", known, method)[1] if known is not None else ""


def test_which_methods_go_which_way() -> None:
    model = prepare(nn.Linear(5, 3), None, (5,), 3)
    modes = {name: Batched.step_mode("cpu", model, METHODS[name](), False) for name in METHODS}
    assert {n for n, mode in modes.items() if mode is StepMode.WRITTEN} == WHOLE
    assert {n for n, mode in modes.items() if mode is StepMode.VMAP} == VMAP
    assert {n for n, mode in modes.items() if mode is StepMode.FUSED} == {*METHODS} - WHOLE - VMAP
    for local in (SGD(momentum=0.9), SGD(clip=1.0), AdamW()):
        assert Batched.step_mode("cpu", model, replace(fs.methods.fedavg(), local=local), False) is StepMode.FUSED
    assert Batched.step_mode("cpu", model, fs.methods.fedavg(), True) is StepMode.VMAP
    assert Batched.step_mode("cuda:0", model, fs.methods.fedavg(), False) is StepMode.RECORDED


@pytest.mark.parametrize("net", ["logistic", "activations", "without biases"])
@pytest.mark.parametrize(
    "local",
    [
        SGD(momentum=0.9, weight_decay=0.1),
        *(pytest.param(local, marks=pytest.mark.thorough) for local in (SGD(), SGD(weight_decay=0.1), SGD(clip=0.5))),
    ],
)
@pytest.mark.parametrize("name", ["fedlc", "fedbal", "fedprox", "fedgrab"])
def test_networks_and_local_steps(name: str, local: SGD, net: str, steps: list[int]) -> None:
    method = replace(METHODS[name](), local=local, pace=replace(PACE, decay=0.9))
    reason = apart(method, 1e-9, model=plain_module(DENSE[net]), rounds=2)
    assert steps and reason.endswith("written out around the method's loss")


def test_moons_head_is_a_part_of_the_chain(steps: list[int]) -> None:
    apart(replace(changed(fs.methods.moon(), "model_contrastive", projection=4), pace=PACE), model="mlp")
    assert steps


@pytest.mark.parametrize("name", ["fedavg", "fedlc"])
def test_stacks_of_one_client_do_not_write_into_the_broadcast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They see the broadcast itself, which the next stack starts from."""
    monkeypatch.setattr("fedskew.engines.batched.cut", lambda lengths, *_: [[i] for i in range(len(lengths))])
    apart(replace(METHODS[name](), pace=PACE))


# A user's components


@dataclass(frozen=True)
class Term(Component):
    """A loss term of some kind, beside cross-entropy."""

    name = "term"
    kind: str = "features"

    def loss(self, view: View) -> Tensor:
        return LOSSES[self.kind](view)


def _moved(view: View) -> Tensor:
    """Through the network at other parameters, which depend on these."""
    params = {n: p * 1.1 for n, p in view.params.items()}
    out, _ = view.forward(params, view.buffers, view.batch.x, view.batch.mask, train=True, key=view.key)
    return view.batch.mean(F.cross_entropy(out.logits, view.batch.y))


def _late(view: View) -> Tensor:
    """How much of the local run is over."""
    return (view.progress.step / view.progress.steps).to(view.batch.mask)


def _penalty(view: View) -> Tensor:
    """A gradient of the outputs by the parameters, which only the tape of the whole step knows."""
    own = view.params[view.ctx.task.weight]
    (slope,) = torch.autograd.grad(view.batch.mean(view.out.logits[:, 0]), own, create_graph=True, allow_unused=True)
    return own.sum() * 0 if slope is None else (own * slope).sum() * 0.01


LOSSES: dict[str, Callable[[View], Tensor]] = {
    "features": lambda view: view.batch.mean(view.out.features.square().sum(1)) * 0.1,
    "params": lambda view: view.params[view.ctx.task.weight].square().sum() * 0.05,
    "both": lambda view: view.batch.mean((view.out.features @ view.params[view.ctx.task.weight].mT).square().sum(1)),
    "rows": lambda view: view.batch.mean(view.batch.x.flatten(1).sum(1) * view.out.logits[:, 0]) * 0.1,
    "forward": _moved,
    "teacher": lambda view: view.batch.mean((view.out.logits - view.teacher().logits).square().sum(1)) * 0.1,
    "nothing": lambda view: torch.ones((), dtype=view.batch.mask.dtype),
    "progress": lambda view: _late(view) * view.batch.mean(view.out.logits.square().sum(1)),
}  # fmt: skip


@pytest.mark.parametrize("kind", LOSSES)
def test_losses_may_read_all_that_they_see(kind: str, steps: list[int], ours: None) -> None:
    reason = apart(Method("m", parts=(Term(kind),), pace=PACE), 1e-10, model=plain_module(DENSE["activations"]))
    assert len(steps) > 3 and reason.endswith("written out around the method's loss")


def test_only_terms_that_read_the_network_move_it(
    steps: list[int], ours: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No classification loss at all: the loss depends on parameters alone."""
    monkeypatch.setattr(Term, "classification", True)
    apart(Method("m", parts=(Term("params"),), pace=PACE), 1e-12)
    assert len(steps) > 3


@pytest.mark.parametrize("kind", ["forward", "teacher", "penalty"])
def test_a_users_losses_go_by_vmap(kind: str, steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOSSES, "penalty", _penalty)
    reason = apart(Method("m", parts=(Term(kind),), pace=PACE), 1e-10, model=plain_module(DENSE["activations"]))
    assert not steps and reason.endswith("by vmap")


@dataclass(frozen=True)
class Pulls(Component):
    """Corrects gradients, learns at every step, and adds a parameter to the network's."""

    name = "pulls"

    def init_params(self, params: Params, task: Any, key: Tensor) -> Params:
        return {"pulls.scale": torch.ones(2, dtype=torch.float64)}

    def start(self, params: Params, ctx: Context) -> tuple[Params, Any]:
        return params, {"mean": torch.zeros(3, dtype=torch.float64), "first": params}

    def loss(self, view: View) -> Tensor:
        scale: Tensor = view.params["pulls.scale"]
        return (scale * view.memory[self.name]["mean"][:2]).sum() * 0.1 + view.batch.mean(
            view.out.features.square().sum(1)
        )

    def correct(self, grads: Params, view: View) -> Params:
        first = view.memory[self.name]["first"]
        return {
            n: g + 0.1 * (view.params[n] - first[n]) + view.batch.mean(view.out.logits[:, 0]) * 0.01
            for n, g in grads.items()
        }

    def learn(self, view: View) -> Any:
        held = view.memory[self.name]
        return {**held, "mean": 0.9 * held["mean"] + 0.1 * (view.out.logits * view.batch.mask[:, None]).sum(0)}

    def finish(self, local: Any) -> tuple[Any, Any]:
        return {}, {}


def test_hooks_of_every_step(steps: list[int], ours: None) -> None:
    for local in (SGD(), SGD(momentum=0.5, weight_decay=0.01, clip=1.0)):
        apart(Method("m", parts=(Pulls(),), local=local, pace=PACE), 1e-10)
    assert len(steps) > 6


@dataclass(frozen=True)
class Grows(Component):
    """Adds a parameter that no loss reads, or that one reads, to plain steps with weight decay."""

    name = "grows"
    read: bool = False

    def init_params(self, params: Params, task: Any, key: Tensor) -> Params:
        return {"grows.scale": torch.ones(2, dtype=torch.float64)}

    def loss(self, view: View) -> Tensor:
        scale = view.params["grows.scale"]
        return 0.1 * view.batch.mean(view.out.features.tanh().sum(1)) * (scale.square().sum() if self.read else 1.0)


@pytest.mark.parametrize("read", [False, True])
def test_parameters_that_a_component_adds(read: bool, steps: list[int], ours: None) -> None:
    apart(Method("m", parts=(Grows(read),), local=SGD(weight_decay=0.1), pace=PACE), 1e-10)
    assert len(steps) > 3


@dataclass(frozen=True)
class Signs(LocalStep):
    """Steps of a fixed length; or a second gradient, at the point that a first step reaches."""

    name = "signs"
    ahead: bool = False

    def step(self, carry: Carry, ctx: Context, differentiate: Differentiate) -> tuple[Carry, Tensor]:
        grads, loss, after = differentiate(carry)
        if self.ahead:
            moved = tree.add(carry.params, grads, -0.1)
            grads, _, after = differentiate(after._replace(params=moved))
        params = tree.map_tree(lambda w, g: w - ctx.lr * g.tanh(), carry.params, grads)
        return after._replace(params=params), loss


@pytest.mark.parametrize("ahead", [False, True])
def test_local_steps_of_a_users_own(ahead: bool, steps: list[int]) -> None:
    apart(replace(fs.methods.fedprox(), local=Signs(ahead), pace=PACE), 1e-10)
    assert not steps


def test_a_gradient_elsewhere_is_never_taken_for_the_one_that_is_known(
    ours: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched, "ONE_GRADIENT", (Signs.step,))
    apart(replace(fs.methods.fedprox(), local=Signs(), pace=PACE), 1e-10)
    with pytest.raises(RuntimeError, match="takes gradients at other parameters"):
        apart(replace(fs.methods.fedprox(), local=Signs(ahead=True), pace=PACE))


@pytest.mark.parametrize("kind", [SGD, CrossEntropy])
def test_a_field_that_is_added_declines(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the class itself had got one more field: at its default the step is plain, elsewhere it is not."""
    extended = make_dataclass("More", [("more", float, field(default=0.0))], bases=(kind,), frozen=True)

    def plain(**options: Any) -> bool:
        made = extended(**options)
        method = Method("m", local=made) if kind is SGD else Method("m", (made,))
        return stepper.plain_decay(method) == 0.0 and stepper.is_plain_loss(method)

    assert plain() and not plain(more=1.0)
    monkeypatch.setattr(extended, "step" if kind is SGD else "loss", lambda *_: None, raising=False)
    assert not plain(), "a hook of its own"
