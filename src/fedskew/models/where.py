"""Where in a network something happens: the layers of a pass as they begin and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from fedskew.errors import require, unknown

LONG = 160  # letters of an exception's message that are shown


class Passage:
    """One pass through a module: the layers that it is inside of, and the calls that have ended."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.ended: list[tuple[str, list[Tensor], list[Tensor]]] = []  # name, inputs, outputs
        self.at_end: Callable[[str], None] = lambda name: None

    @property
    def last(self) -> str:
        """The innermost layer that has not ended: where an exception was raised."""
        return self.inside[-1] if self.inside else ""


@contextmanager
def watched(module: nn.Module, kept: bool = False) -> Iterator[Passage]:
    """A passage through the module, by hooks that are gone afterwards. ``kept`` keeps inputs and outputs."""
    passage, handles = Passage(), []

    def begin(name: str) -> Callable[..., None]:
        return lambda m, args: passage.inside.append(name)

    def end(name: str) -> Callable[..., None]:
        def ended(m: nn.Module, args: Any, out: Any) -> None:
            passage.inside.pop()
            if kept:
                passage.ended.append((name, tensors(args), tensors(out)))
            passage.at_end(name)

        return ended

    for name, one in module.named_modules():
        handles.append(one.register_forward_pre_hook(begin(name)))
        handles.append(one.register_forward_hook(end(name)))
    try:
        yield passage
    finally:
        for handle in handles:
            handle.remove()


def tensors(value: Any) -> list[Tensor]:
    """The tensors in arguments or outputs of a layer."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [t for inner in value for t in tensors(inner)]


def layer(module: nn.Module, name: str) -> str:
    """A layer as messages name it: "layer 'block.conv' (Conv2d)", "the forward of Net" for the module itself."""
    from fedskew.models.layers import written_as

    kind = written_as(type(module.get_submodule(name))).__name__
    return f"layer {name!r} ({kind})" if name else f"the forward of {kind}"


def classifier(module: nn.Module, head: str | None) -> tuple[str, Any, list[str]]:
    """The name of the classifier layer, by default that of the last nn.Linear; the layer; the names of all nn.Linear.

    Raises:
        ConfigError: There is no such layer.
    """
    layers = dict(module.named_modules())
    linear = [name for name, one in layers.items() if isinstance(one, nn.Linear)]
    if head is None:
        require(bool(linear), "head", "name the classifier layer", None, "the model has no nn.Linear to choose")
        head = linear[-1]
    if head not in layers:
        raise unknown("head", head, linear)
    return head, layers[head], linear


def first_line(error: BaseException) -> str:
    """What an exception says, in one line, with its kind."""
    said = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {said if len(said) <= LONG else f'{said[:LONG]}...'}"
