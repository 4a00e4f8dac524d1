"""Hooks that misbehave (a shape, an input, an exception, a NaN) are named with component, hook and round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew.engines.guard import CLIENT, PROMISES
from fedskew.method import SLOTS, Method
from fedskew.method.component import Component, hooks_of
from fedskew.method.paces import Fixed
from fedskew.method.samplers import Shuffle
from fedskew.method.selectors import Random
from fedskew.method.servers import Plain
from fedskew.method.steps import SGD
from fedskew.method.weightings import Size
from fedskew.types import Query
from support.attack import FULL, Line
from support.federations import RAGGED, blobs
from support.methods import spied
from support.runs import measured as go
from support.runs import rows_of, same

ENGINES = ("sequential", "threaded", "batched", "debug") if FULL else ("sequential", "batched")


@dataclass(frozen=True)
class Good(Component):
    """Every hook of a part, doing what it must."""

    name = "good"

    def init_params(self, params: Any, task: Any, key: Any) -> Any:
        return {"good.extra": torch.zeros(2, dtype=params[task.weight].dtype)}

    def init_model(self, params: Any, task: Any, key: Any) -> Any:
        return {task.weight: params[task.weight] * 1}

    def private(self, names: Any, task: Any) -> Any:
        return [name for name in names if name == "good.extra"]

    def frozen(self, names: Any, task: Any) -> Any:
        return [name for name in names if name == "good.extra"]

    def moves(self, names: Any, task: Any, progress: Any) -> Any:
        return dict.fromkeys(names, progress.step > 0)

    def init_client(self, params: Any, buffers: Any, task: Any) -> Any:
        return {"kept": torch.zeros(2)}

    def init_server(self, params: Any, fed: Any, task: Any) -> Any:
        return {"held": torch.ones(2)}

    def broadcast(self, state: Any, ids: Any) -> Any:
        return {"sent": state["held"] + 0}, None if ids is None else {"own": ids + 0.0}

    def start(self, params: Any, ctx: Any) -> Any:
        return dict(params), {"kept": ctx.memory[self.name]["kept"] + 1}

    def loss(self, view: Any) -> Any:
        return view.batch.mean(view.out.logits.sum(1)) * 0

    def correct(self, grads: Any, view: Any) -> Any:
        return {n: g * 1 for n, g in grads.items()}

    def learn(self, view: Any) -> Any:
        return {"kept": view.memory[self.name]["kept"] + 1}

    def finish(self, local: Any) -> Any:
        return {"told": local.report.loss + 0}, {"kept": local.memory[self.name]["kept"] * 1}

    def personalize(self, params: Any, ctx: Any, gradient: Any) -> Any:
        return {n: p * 1 for n, p in params.items()}

    def ask(self, state: Any, round: int, key: Any) -> Any:
        return Query("cohort", lambda view: view.out.logits.mean())

    def receive(self, state: Any, answers: Any, key: Any) -> Any:
        return {"held": state["held"] * 1}

    def combine(self, state: Any, cohort: Any) -> Any:
        return {n: d * 1 for n, d in cohort.deltas.items()}

    def absorb(self, state: Any, cohort: Any, key: Any) -> Any:
        return {"held": state["held"] * 1}, {"kept": torch.zeros(len(cohort.ids), 2)}

    def serve(self, params: Any, state: Any, task: Any) -> Any:
        return {n: p * 1 for n, p in params.items()}

    def record(self, state: Any) -> Any:
        return {"held": float(state["held"].sum())}


SLOT = {  # the ingredient of each slot that is subclassed, and the hooks of its own
    "sampler": (Shuffle, ("offer", "plan")), "selector": (Random, ("select",)), "pace": (Fixed, ("of",)),
    "weighting": (Size, ("weigh",)), "server": (Plain, ("update",)), "local": (SGD, ("step", "a_norm")),
}  # fmt: skip
PART = [n for n in vars(Good) if n in PROMISES]
SLOTTED = {hook: slot for slot, (_, hooks) in SLOT.items() for hook in hooks}
HOOKS = [*PART, *SLOTTED]

Deed = Callable[[Callable[..., Any], Any, tuple[Any, ...]], Any]


def bad(hook: str, deed: Deed) -> Method:
    """A method in which one hook does something else."""
    kind, slot = (SLOT[SLOTTED[hook]][0], SLOTTED[hook]) if hook in SLOTTED else (Good, "")
    plain = getattr(kind, hook)

    def misdone(self: Any, *args: Any) -> Any:
        return deed(plain, self, args)

    made = make_dataclass("Bad", [], bases=(kind,), frozen=True, namespace={"name": "bad", hook: misdone})
    method = Method("m", parts=(Good(),), pace=Fixed(epochs=1, batch_size=4))
    part = made(**({"epochs": 1, "batch_size": 4} if slot == "pace" else {}))
    return replace(method, **{slot: part}) if slot else replace(method, parts=(part,))


def changed(value: Any, how: Callable[[Any], Any]) -> Any:
    """A result whose last tensor is another."""
    if isinstance(value, Tensor | np.ndarray):
        return how(value)
    if isinstance(value, dict):
        name = list(value)[-1]
        return {**value, name: changed(value[name], how)}
    items = list(value)
    at = max(i for i, v in enumerate(items) if isinstance(v, dict | tuple | Tensor))
    items[at] = changed(items[at], how)
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def cut(value: Any) -> Any:
    return value[0] if isinstance(value, np.ndarray) else value[:1] if value.dim() and len(value) > 1 else value[None]


def short(plain: Any, self: Any, args: Any) -> Any:
    return changed(plain(self, *args), cut)


def nothing(plain: Any, self: Any, args: Any) -> Any:
    return 7


def raising(plain: Any, self: Any, args: Any) -> Any:
    raise ZeroDivisionError("by zero")


def wild(plain: Any, self: Any, args: Any) -> Any:
    return changed(plain(self, *args), lambda t: t * torch.nan)


def narrow(plain: Any, self: Any, args: Any) -> Any:
    return changed(plain(self, *args), lambda t: t.bfloat16())


def run(method: Method, engine: str, **options: Any) -> fs.Result:
    options = {"rounds": 2, "cohort": 4, "dtype": "float32", "threads": 2, "personal_every": 1} | options
    return go(blobs(RAGGED), method, engine=engine, **options)


def message_of(hook: str, deed: Deed, engine: str) -> str:
    """What the run says; "" where it comes to its end."""
    try:
        run(bad(hook, deed), engine)
    except fs.FedskewError as error:
        return str(error)
    except ZeroDivisionError as error:
        return f"ZeroDivisionError itself: {error}"
    except Exception as error:
        return f"a traceback of {type(error).__name__}: {error}"
    return ""


def named(message: str, hook: str) -> bool:
    name = "bad"
    where = "before round 1" if hook in BEFORE else "round 1"
    return f"hook {hook!r} of component {name!r}" in message and where in message and "\n" not in message


NAMING = ("private", "frozen")  # give names, no tensors
BEFORE = ("init_model", "init_params", "init_client", "init_server", *NAMING)
FREE = ("init_client", "init_server", "init_params", "broadcast", "ask", "record")  # of any shape
OF_SUMS = ("adds", "mass", "to_sum", "from_sum")  # called by `weigh` and by the sums of a round, which are checked
SPOILABLE = [h for h in HOOKS if h not in ("ask", "record", "plan", "select", "of", "offer", "a_norm", *NAMING)]


def test_every_hook_is_attacked() -> None:
    known = {n for kind in (Component, *SLOTS.values()) for n in hooks_of(kind)}
    facts = {n for n in known if any(isinstance(vars(kind).get(n), property) for kind in (Component, *SLOTS.values()))}
    assert known - facts - {"check", *OF_SUMS} == {*HOOKS} == {*PROMISES}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_wrong_shape_is_named_in_the_first_round_of_every_engine(engine: str) -> None:
    with Line("hooks", "a wrong shape is named") as line:
        for hook in HOOKS:
            if hook not in (*FREE, *NAMING, "select"):  # fewer clients may be chosen
                message = message_of(hook, short, engine)
                line.check(named(message, hook), f"{hook}, {engine}: {message or 'it ran'}")
            message = message_of(hook, nothing, engine)
            line.check(named(message, hook), f"{hook}, {engine}, a number: {message or 'it ran'}")


KINDS = {
    "nothing": None, "a list": [], "numbers": [1.0, 2.0], "a word": "word", "an empty tuple": (), "an object": object(),
    "names": {1: torch.zeros(())}, "an array": np.zeros(3), "pairs": (None, None), "words": ({"a": "b"}, {"a": "b"}),
}  # fmt: skip
MAY = {  # what a hook may give: no names, no question, nothing to all or to each
    "a list": NAMING, "an empty tuple": NAMING, "nothing": ("ask",), "pairs": ("broadcast",),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("what", KINDS)
def test_a_wrong_kind_is_named_with_hook_and_component(what: str, engine: str) -> None:
    with Line("hooks", f"{what} is named") as line:
        for hook in HOOKS:
            message = message_of(hook, lambda plain, self, args: KINDS[what], engine)
            if hook in MAY.get(what, ()):
                line.check(not message, f"{hook}, {engine}: {message}")
            else:
                line.check(named(message, hook) and "must give" in message, f"{hook}, {engine}: {message or 'it ran'}")


@pytest.mark.parametrize("engine", ENGINES)
def test_errors_of_server_and_init_hooks_are_located(engine: str) -> None:
    with Line("hooks", "an exception is located") as line:
        for hook in HOOKS:
            message = message_of(hook, raising, engine)
            inside = hook in CLIENT  # these come through as they are, but in debug
            line.check("by zero" in message and (inside or named(message, hook)), f"{hook}: {message or 'it ran'}")


def test_debug_locates_errors_of_client_hooks() -> None:
    with Line("hooks", "an exception is located") as line:
        for hook in CLIENT:
            message = message_of(hook, raising, "debug")
            where = f"hook {hook!r} of component 'bad'"
            located = where in message and "client 0, round 1, step " in message
            line.check(located and "\n" not in message, f"{hook}: {message}")


@pytest.mark.parametrize("deed", [wild, narrow])
def test_debug_names_values_and_dtypes(deed: Deed) -> None:
    with Line("hooks", f"debug names what is {deed.__name__}") as line:
        for hook in SPOILABLE:
            if deed is narrow and hook in (*FREE, "weigh", "loss", "absorb", "step"):
                continue
            message = message_of(hook, deed, "debug")
            client = "client 0, round 1, step " in message or hook not in CLIENT
            line.check(named(message, hook) and client, f"{hook}: {message or 'it ran'}")


def written_into(value: Any, aside: bool = False) -> bool:
    """Add 1 to the last tensor that can be written into, past torch with ``aside``; whether there is one."""
    if isinstance(value, Tensor) and value.numel() and not value.requires_grad and value.dtype != torch.bool:
        (value.data if aside else value).add_(1)
        return True
    if isinstance(value, np.ndarray) and value.size:
        value += 1
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    return any(written_into(entry, aside) for entry in reversed(list(inner)))


@pytest.mark.parametrize("engine", ["sequential", "batched", "debug"])
def test_inputs_that_are_changed_are_named(engine: str) -> None:
    """Else another client's numbers, or those of a later round, would be others. Debug sees writes past torch."""
    with Line("hooks", f"changed inputs are named, {engine}") as line:
        for hook in HOOKS:
            reached = []

            def spoil(plain: Any, self: Any, args: Any, reached: list[bool] = reached) -> Any:
                out = plain(self, *args)
                reached.append(written_into(args, aside=engine == "debug"))
                return out

            message = message_of(hook, spoil, engine)
            by_torch = engine != "debug" and ("in-place" in message or "inplace" in message)
            fine = by_torch or "must not change its inputs" in message
            line.check(fine or not any(reached), f"{hook}, {engine}: {message or 'it ran'}")


def test_replaced_entries_and_questions_that_write_are_named() -> None:
    def replaced(plain: Any, self: Any, args: Any) -> Any:
        out = plain(self, *args)
        args[0]["held"] = args[0]["held"] + 1
        return out

    def asked(plain: Any, self: Any, args: Any) -> Any:
        def writes(view: Any) -> Tensor:
            next(iter(view.params.values())).add_(1)
            return view.out.logits.mean()

        return Query("cohort", writes)

    with Line("hooks", "replaced entries of a state are named") as line:
        for hook in ("receive", "absorb", "record", "broadcast"):
            message = message_of(hook, replaced, "sequential")
            wanted = "must not change its inputs; it changed 'state.held'"
            line.check(wanted in message, f"{hook}: {message or 'it ran'}")
        message = message_of("ask", asked, "sequential")
        line.check(
            "the question of component 'bad' must not change its inputs" in message, f"question: {message or 'it ran'}"
        )


@pytest.mark.parametrize("engine", ["sequential", "threaded", "batched", "debug"])
def test_what_behaves_is_let_through_and_changes_no_bit(engine: str) -> None:
    method = Method("m", parts=(Good(),), pace=Fixed(epochs=1, batch_size=4))
    plain, seen = run(method, engine), run(spied(method)[0], engine)
    assert same(plain.params, seen.params) and len(rows_of(plain)) == 2


def test_shapes_are_looked_at_in_the_first_round_only_but_in_debug() -> None:
    @dataclass(frozen=True)
    class Later(Component):
        name = "later"

        def correct(self, grads: Any, view: Any) -> Any:
            late = int(view.progress.round) == 2
            return {n: g.sum(0, keepdim=True) * 0 if late else g for n, g in grads.items()}

    method = Method("m", parts=(Later(),), pace=Fixed(epochs=1, batch_size=4))
    with pytest.raises(fs.TrainingError, match=r"'correct' of component 'later' must .* client \d, round 2, step 1"):
        run(method, "debug")
    run(method, "sequential")
