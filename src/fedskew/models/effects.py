"""What a forward pass leaves behind in its module: outputs that it stores, counters, lists that grow.

A stored output is harmless where nobody reads it in a later call: each call then finds what the first one found
(`Model` puts it back). What counts, grows or remembers is refused, by layer and attribute.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor, nn

from fedskew.errors import ConfigError
from fedskew.models.layers import PURE
from fedskew.models.where import layer, tensors

MISSING: Final = object()
Attribute = tuple[str, str]  # name of a layer, name of its attribute
OURS = ("training", "call", "label", "fedskew_call", *vars(nn.Module()))
CONTAINERS = (list, dict, set)


def _own(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The layers of a user's own classes: those of torch keep caches that are none of our business."""
    return [(n, m) for n, m in module.named_modules() if not type(m).__module__.startswith(("torch.", "fedskew."))]


class Left:
    """The attributes of a module's layers at one time."""

    def __init__(self, module: nn.Module) -> None:
        self.values: dict[Attribute, Any] = {}
        self.inner: dict[Attribute, list[Any]] = {}
        for name, one in _own(module):
            for attribute, value in vars(one).items():
                if attribute not in OURS:
                    self.values[name, attribute] = value
                    if isinstance(value, CONTAINERS):
                        self.inner[name, attribute] = [id(v) for v in _items(value)]
        self.constants = {name: value.clone() for name, value in held(module).items()}

    def restore(self, module: nn.Module, places: tuple[Attribute, ...]) -> None:
        """Put back what was at these places."""
        for name, attribute in places:
            held = vars(module.get_submodule(name))
            if (value := self.values.get((name, attribute), MISSING)) is MISSING:
                held.pop(attribute, None)
            else:
                held[attribute] = value


def held(module: nn.Module) -> dict[str, Tensor]:
    """What no gradient changes, by name: buffers, and parameters that are not trained."""
    return dict(module.named_buffers()) | {n: p for n, p in module.named_parameters() if not p.requires_grad}


def _items(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value)


def stored(module: nn.Module, before: Left, once: Left, twice: Left) -> tuple[Attribute, ...]:
    """The attributes that a forward replaces. Raises ConfigError for what is not the same after the same call again.

    Args:
        module: the network.
        before: what its layers held before any call.
        once: after a call.
        twice: after another call with the same rows.
    """
    for place, ids in before.inner.items():
        if twice.inner.get(place) != ids and twice.values.get(place) is before.values[place]:
            raise _refused(module, place, "puts something into", "make a new one in every call, or return it")
    found = []
    for place in {**before.values, **twice.values}:
        a, b, c = (left.values.get(place, MISSING) for left in (before, once, twice))
        if a is b is c:
            continue
        if not _same(b, c):
            raise _refused(module, place, "changes", "let a forward remember nothing")
        found.append(place)
    return tuple(found)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        close = a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        return close if a.dtype != torch.bool else torch.equal(a, b)
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
    found = (t for _, one in _own(module) for v in vars(one).values() for t in tensors(v))
    return {id(t): t.detach().clone() for t in found if t.grad_fn is not None}
