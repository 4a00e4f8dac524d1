"""Where in a network something happens: the layers of a pass as they begin and end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from fedskew.errors import require, unknown

LONG = 160  # letters of an exception's message that are shown


@contextmanager
def watched(module: nn.Module) -> Iterator[list[str]]:
    """The layers that a pass is inside of, the innermost last: after an exception, where it was raised.

    Hooks note them, which are gone afterwards.
    """
    inside, handles = [""], []

    def ended(m: nn.Module, args: Any, out: Any) -> None:
        inside.pop()

    for name, sublayer in module.named_modules():
        handles.append(sublayer.register_forward_pre_hook(lambda m, args, name=name: inside.append(name)))
        handles.append(sublayer.register_forward_hook(ended))
    try:
        yield inside
    finally:
        for handle in handles:
            handle.remove()


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
    linear = [name for name, sublayer in layers.items() if isinstance(sublayer, nn.Linear)]
    if head is None:
        require(bool(linear), "head", "name the classifier layer", None, "the model has no nn.Linear to choose")
        head = linear[-1]
    if head not in layers:
        raise unknown("head", head, linear)
    return head, layers[head], linear


def first_line(error: BaseException) -> str:
    """What an exception says, in one line, with its kind."""
    message = (str(error).strip().splitlines() or ["no message"])[0]
    return f"{type(error).__name__}: {message if len(message) <= LONG else f'{message[:LONG]}...'}"
