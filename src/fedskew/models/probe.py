"""What `prepare` finds out of a network by a few passes over two rows: that it is a pure function of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fedskew import rng
from fedskew.errors import ConfigError, require
from fedskew.models.layers import PURE
from fedskew.models.where import first_line, layer, watched
from fedskew.types import Output, Params

MISSING: Final = object()
Attribute = tuple[str, str]  # name of a layer, name of its attribute
OURS = ("training", "call", "label", "fedskew_call", *vars(nn.Module()))
CONTAINERS = (list, dict, set)


def _own(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of a user's own classes: those of torch keep caches that are none of our business."""
    return [(n, m) for n, m in module.named_modules() if not type(m).__module__.startswith(("torch.", "fedskew."))]


class LayerState:
    """The attributes of a module's layers at one time."""

    def __init__(self, module: nn.Module) -> None:
        self.values: dict[Attribute, Any] = {}
        self.inner: dict[Attribute, list[Any]] = {}
        for name, sublayer in _own(module):
            for attribute, value in vars(sublayer).items():
                if attribute not in OURS:
                    self.values[name, attribute] = value
                    if isinstance(value, CONTAINERS):
                        self.inner[name, attribute] = [id(v) for v in _items(value)]

    def restore(self, module: nn.Module, places: tuple[Attribute, ...]) -> None:
        """Put back what was at these places."""
        for name, attribute in places:
            held = vars(module.get_submodule(name))
            if (value := self.values.get((name, attribute), MISSING)) is MISSING:
                held.pop(attribute, None)
            else:
                held[attribute] = value


def _held(model: Model) -> dict[str, Tensor]:
    """What a forward must leave as it is, by name: parameters, and buffers that are no BatchNorm statistics."""
    module = model.module
    constants = dict(module.named_buffers()) | {n: p for n, p in module.named_parameters() if not p.requires_grad}
    return {n: value for n, value in constants.items() if n not in model.buffers} | model.params


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def stored(module: nn.Module, before: LayerState, first: LayerState, second: LayerState) -> tuple[Attribute, ...]:
    """The attributes that a forward replaces. Raises ConfigError for what is not the same after the same call again.

    Args:
        module: the network.
        before: what its layers held before any call.
        first: after a call.
        second: after another call with the same rows.
    """
    for place, ids in before.inner.items():
        if second.inner.get(place) != ids and second.values.get(place) is before.values[place]:
            raise _refused(module, place, "puts something into", "make a new one in every call, or return it")
    replaced = []
    for place in {**before.values, **second.values}:
        a, b, c = (seen.values.get(place, MISSING) for seen in (before, first, second))
        if a is b is c:
            continue
        if not _same(b, c):
            raise _refused(module, place, "changes", "let a forward remember nothing")
        replaced.append(place)
    return tuple(replaced)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
    if isinstance(a, tuple | list | dict) and type(a) is type(b) and len(a) == len(b):
        return all(_same(x, y) for x, y in zip(_items(a), _items(b), strict=True))
    plain = (int, float, str, bool, type(None), torch.Size)
    return a == b if isinstance(a, plain) else type(a) is type(b)


def _refused(module: nn.Module, place: Attribute, what: str, hint: str) -> ConfigError:
    name, attribute = place
    return ConfigError(
        f"model must {PURE}; got a forward that {what} attribute {attribute!r} of {layer(module, name)}; {hint}"
    )


def copies_of_outputs(module: nn.Module) -> dict[int, Any]:
    """A memo for `copy.deepcopy`: stored outputs, which torch does not copy, without their graph."""
    leaves = tree_leaves([list(vars(sublayer).values()) for _, sublayer in _own(module)])
    return {id(t): t.detach().clone() for t in leaves if isinstance(t, Tensor) and t.grad_fn is not None}


if TYPE_CHECKING:
    from fedskew.models.prepare import Model


Pass = tuple[Output, Params]
T = TypeVar("T")
EMBEDDED = "samples are floats: an nn.Embedding looks up x.long(), whole numbers from 0 to num_embeddings - 1"
INPLACE = "use x + 1 rather than x += 1, and inplace=False"


def probe_rows(model: Model, rows: int) -> list[Tensor]:
    """Rows to try: numbers, and token ids where the model has an embedding."""
    first = next(iter(model.params.values()))
    drawn = rng.uniform(rng.key(0, "probe"), (rows, *model.shape))  # numbers of both signs are made of it
    sizes = [
        m.num_embeddings for m in model.module.modules() if isinstance(m, torch.nn.Embedding | torch.nn.EmbeddingBag)
    ]
    return [(2 * drawn - 1).to(first), *([(drawn * min(sizes)).long().to(first.device)] if sizes else [])]


def _states(devices: list[torch.device]) -> list[Tensor]:
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]


@torch.no_grad()
def probe(model: Model) -> tuple[Attribute, ...]:
    """Check that the output fits, and that rows and key alone decide it; what the forward stores in its layers.

    Raises:
        ConfigError: the network does not take its rows, or is no pure function of them.
    """
    device, module = next(iter(model.params.values())).device, model.module
    devices = [device] if device.type == "cuda" else []
    saved = {name: value.clone() for name, value in _held(model).items()}
    untouched, fresh = LayerState(module), model.clone()
    with torch.random.fork_rng(devices):
        before = _states(devices)
        x, first_pass = _on_rows(model, f"accept rows of shape {model.shape}", probe_rows(model, 2), _unchanged)
        first = LayerState(module)
        second_pass = _pass(model, x)
        drawn = not all(map(torch.equal, before, _states(devices)))
        second = LayerState(module)
        _check_output(model, first_pass[0])
        hint = "dropout must be an nn.Dropout layer, not a function"
        require(not drawn, "model", PURE, "a forward that draws from torch's global generator", hint)
        _check_state(model, (first_pass, second_pass), saved)
        places = stored(module, untouched, first, second)
        _check_memory(model, fresh, x, places)
        _check_alone(model, x)
        untouched.restore(module, places)
    return places


def _pass(model: Model, x: Tensor, train: bool = True) -> Pass:
    """A pass with the initial values."""
    key = rng.key(0, "probe").to(x.device)
    ones = next(iter(model.params.values())).new_ones(len(x))
    return model.forward(model.params, model.buffers, x, ones, train=train, key=key)


def _on_rows(model: Model, rule: str, rows: Iterable[Tensor], run: Callable[[Model, Tensor], T], hint: str = "") -> T:
    """What a run gives over the first rows that it takes. Raises ConfigError, which names the layer, for none."""
    failed: tuple[Exception, str] | None = None
    for x in rows:
        with watched(model.module) as inside:
            try:
                return run(model, x)
            except ConfigError:
                raise
            except Exception as error:  # a user's forward may raise anything
                failed = failed or (error, inside[-1])
    assert failed is not None
    message = f"model must {rule}; got {first_line(failed[0])}, at {layer(model.module, failed[1])}"
    embeds = failed[1] and isinstance(model.module.get_submodule(failed[1]), torch.nn.Embedding | torch.nn.EmbeddingBag)
    raise ConfigError(message + (f"; {EMBEDDED}" if embeds else hint)) from failed[0]


def _unchanged(model: Model, x: Tensor) -> tuple[Tensor, Pass]:
    """The rows, and a pass over them. Raises ConfigError for a network that changes them."""
    given = x.clone()
    out = _pass(model, x)
    require(torch.equal(x, given), "model", "leave its input as it is", "a layer that changes it in place", INPLACE)
    return given, out


def _check_output(model: Model, out: Output) -> None:
    got = tuple(out.logits.shape) if isinstance(out.logits, Tensor) else type(out.logits).__name__
    require(got == (2, model.classes), "model", f"return logits [B, {model.classes}]", got, "B was 2")
    require(out.features is not None, f"head {model.head!r}", "be called in forward", "a forward that does not call it")
    got = tuple(out.features.shape)
    require(got == (2, model.features), f"head {model.head!r}", f"receive features [B, {model.features}]", got)


def _check_alone(model: Model, x: Tensor) -> None:
    """Raise ConfigError where the output for one row has other axes: a batch of one is evaluated, and trained on."""
    try:
        out, _ = _pass(model, x[:1], train=False)
        got: object = tuple(out.logits.shape)
    except Exception as error:  # the same, within the forward
        out, got = None, first_line(error)
    holds = out is not None and out.logits.shape == (1, model.classes)
    require(holds, "model", f"return logits [B, {model.classes}]", got, "B was 1; name the axis in squeeze(dim)")


def _check_state(model: Model, runs: tuple[Pass, Pass], saved: dict[str, Tensor]) -> None:
    (first, _), (second, _) = runs
    for name, value in _held(model).items():
        if name in saved and not torch.equal(value, saved[name]):
            kind = "parameter" if name in model.params else "buffer"
            raise ConfigError(f"model must {PURE}; got a forward that changes {kind} {name!r}")
    same = torch.allclose(first.logits, second.logits, rtol=1e-3, atol=1e-5, equal_nan=True)
    require(same, "model", PURE, "two different outputs for the same input and key")


def _check_memory(model: Model, fresh: Model, x: Tensor, places: tuple[Attribute, ...]) -> None:
    """Raise ConfigError where the output for rows depends on what an earlier call was given."""
    other = -x if x.is_floating_point() else x.flip(0)
    again, anew = (_pass(m, other)[0] for m in (model, fresh))
    if not torch.allclose(again.logits, anew.logits, rtol=1e-3, atol=1e-5, equal_nan=True):
        name, attribute = places[0] if places else ("", "")
        held = f"attribute {attribute!r} of {layer(model.module, name)}" if places else "something"
        raise ConfigError(f"model must {PURE}; got a forward that reads {held} which an earlier call has stored")


def require_takes(model: Model, x: Tensor) -> None:
    """Raise ConfigError, which names the layer, where a network does not take these samples, [n, ...]."""
    _on_rows(model, "accept the rows of the data", [x], partial(_pass, train=False), f"; {EMBEDDED}")


def require_runs(model: Model) -> None:
    """Raise ConfigError, which names the layer, where a model does not run as it is about to be trained.

    A pass with its gradient and one for evaluation, in the dtype and on the device of its parameters.
    """
    first = next(iter(model.params.values()))

    rows = [x.to(first) for x in probe_rows(model, 2)]  # as samples come, tokens too
    hint = "casts must follow the dtype of the parameters, and no operation in place may touch what a gradient needs"
    _on_rows(model, f"train in {str(first.dtype).removeprefix('torch.')}", rows, _trained, f"; {hint}")


def _trained(model: Model, x: Tensor) -> None:
    """A pass for evaluation, and one with its gradient."""
    leaves = {name: p.detach().clone().requires_grad_() for name, p in model.params.items()}
    mask, key = x.new_ones(len(x)), rng.key(0, "probe").to(x.device)
    with torch.no_grad():
        _pass(model, x, train=False)
    with torch.enable_grad():
        out, _ = model.forward(leaves, model.buffers, x, mask, train=True, key=key)
        torch.autograd.grad(out.logits.square().sum(), list(leaves.values()), allow_unused=True)
