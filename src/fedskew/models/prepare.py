"""`prepare` turns a user's nn.Module into a pure function of (params, buffers, x, mask, key): a `Model`.

The module is copied, and layers that draw, keep state or depend on padded rows are converted in the copy
(`fedskew.models.layers`).

Names are the module's own. A parameter that several layers share has one entry, named after the head where the head
shares it.

What nothing changes is a constant of the model: parameters with `requires_grad=False`, and buffers that are no
BatchNorm statistics. Constants stay in the module. They are no part of the state that is trained, sent and saved.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedskew.errors import require
from fedskew.models.layers import Call, convert, follows_mode, refuse, tracks, written_as
from fedskew.models.probe import MISSING, Attribute, copies_of_outputs, probe
from fedskew.models.where import classifier
from fedskew.types import COSINE_SCALE, Output, Params, Task


class _TensorSlot(NamedTuple):
    """Where the module keeps a parameter or buffer: `store[local]`; outside it is called `name`."""

    store: dict[str, Any]
    local: str
    name: str
    tensor: Tensor


def _tensor_slots(module: nn.Module, head: str) -> tuple[list[_TensorSlot], list[_TensorSlot]]:
    """Places of what is trained, and of what is not. All places of a shared tensor have one name."""
    params: list[_TensorSlot] = []
    others: list[_TensorSlot] = []
    prefix = f"{head}." if head else ""
    head_params = module.get_submodule(head)._parameters.items()
    names = {id(tensor): f"{prefix}{local}" for local, tensor in head_params if tensor is not None}
    for path, layer in module.named_modules():
        constants = layer._non_persistent_buffers_set  # not in a state dict: they stay in the module
        for store in (layer._parameters, layer._buffers):
            for local, tensor in store.items():
                if tensor is not None and local not in constants:
                    name = names.setdefault(id(tensor), f"{path}.{local}" if path else local)
                    (params if tensor.requires_grad else others).append(_TensorSlot(store, local, name, tensor))
    return params, others


def _whole(mask: Tensor) -> bool:
    """Whether no row is padded. False where it cannot be known: on an accelerator, which would wait, and under vmap."""
    if mask.device.type != "cpu":
        return False
    try:
        return bool(mask.all())
    except RuntimeError:
        return False


@dataclass(eq=False, repr=False)
class Model:
    """A network as a pure function, with its initial values. Made by `prepare`.

    A copy serves one thread at a time: give each thread its own `clone`. Copies pickle.
    """

    module: nn.Module  # converted
    head: str  # name of the classifier layer; "" when the module is the layer
    shape: tuple[int, ...]  # of one row
    classes: int  # C
    narrow: torch.dtype | None = None  # products are rounded to this dtype; parameters and outputs are not
    unpadded: bool = False  # True where no row is ever padded: masks need not be looked at
    stored: tuple[Attribute, ...] = ()  # what a forward stores in its layers; each call finds the first one's

    def __post_init__(self) -> None:
        """Look up the places of parameters and buffers."""
        module = self.module
        layer: Any = module.get_submodule(self.head)
        self._call: Call = layer.fedskew_call
        self.features = int(layer.weight.shape[1])  # F, what enters the head
        self._param_slots, others = _tensor_slots(module, self.head)
        norms = {id(layer._buffers) for layer in module.modules() if tracks(layer)}
        self._buffer_slots = [slot for slot in others if id(slot.store) in norms]
        # initial values of what is trained, initial BatchNorm statistics, and what nothing changes
        self.params: Params = {slot.name: slot.tensor.detach() for slot in self._param_slots}
        self.buffers: Params = {slot.name: slot.tensor.detach() for slot in self._buffer_slots}
        self.constants: Params = {p.name: p.tensor.detach() for p in others if id(p.store) not in norms}
        self._shared = {id(p.tensor): p.tensor for p in others if id(p.store) not in norms}
        self._normalised = bool(norms)
        scaling = [layer for layer in module.modules() if "Norm" in written_as(type(layer)).__name__]
        stores = [store for layer in scaling for store in (layer._parameters, layer._buffers)]
        slots = (*self._param_slots, *self._buffer_slots)
        self._norms = tuple(slot.name for slot in slots if any(slot.store is store for store in stores))
        self._followers = [layer for layer in module.modules() if follows_mode(layer)]
        held = [(vars(module.get_submodule(name)), attribute) for name, attribute in self.stored]
        self._stored = [(values, name, values.get(name, MISSING)) for values, name in held]
        self._training = True
        module.train()
        for layer in self._followers:  # `train` of a module may leave some out
            layer.training = True

    def forward(
        self, params: Params, buffers: Params, x: Tensor, mask: Tensor, *, train: bool, key: Tensor
    ) -> tuple[Output, Params]:
        """One forward pass; the signature is `fedskew.types.Forward`.

        Args:
            params: what is trained.
            buffers: BatchNorm statistics.
            x: rows [B, ...].
            mask: [B], 0 for padded rows, 1 for real ones.
            train: False makes dropout the identity and BatchNorm use its running statistics.
            key: int64 (), which decides the dropout masks.

        Returns:
            Logits [B, C] and features [B, F]; with the parameter COSINE_SCALE the logits are those of a cosine
            classifier. The buffers after the pass, the same object with `train=False`.

        Raises:
            RuntimeError: another thread is in a pass of this copy.
        """
        call = self._call
        if call.active:
            raise RuntimeError("a Model serves one thread at a time; give each thread its own Model.clone()")
        call.active = True
        try:
            self._enter(params, buffers, mask, train, key)
            if self.narrow is None:
                logits = self.module(x)
            else:
                with torch.autocast(x.device.type, self.narrow, cache_enabled=False):
                    logits = self.module(x)
            features = call.features
            if train and self._buffer_slots:
                buffers = buffers | {name: store[local] for store, local, name, _ in self._buffer_slots}
        finally:
            self._leave()
        if self.narrow is not None:
            wide = params[self._param_slots[0].name].dtype
            logits, features = logits.to(wide), features.to(wide)
        if COSINE_SCALE in params:
            lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True).clamp(min=1e-12)
            weight = params[f"{self.head}.weight" if self.head else "weight"]
            logits = params[COSINE_SCALE] * (features / lengths) @ weight.T
        return Output(logits, features), buffers

    def _enter(self, params: Params, buffers: Params, mask: Tensor, train: bool, key: Tensor) -> None:
        """Put the call's tensors into the module, as torch.func.functional_call does, at less cost a call."""
        call = self._call
        call.mask, call.key, call.train, call.draws = mask, key, train, 0
        call.whole = train and self._normalised and (self.unpadded or _whole(mask))
        if train is not self._training:
            self._training = train
            for module in self._followers:
                module.training = train
        for store, local, name, _ in self._param_slots:
            store[local] = params[name]
        for store, local, name, _ in self._buffer_slots:
            store[local] = buffers[name]

        call.again = partial(self._again, params, buffers, mask, train, key)

    @contextmanager
    def _again(
        self, params: Params, buffers: Params, mask: Tensor, train: bool, key: Tensor, draws: int
    ) -> Iterator[None]:
        """The tensors of a call that has ended, for what is computed again on the way back."""
        self._enter(params, buffers, mask, train, key)
        self._call.draws = draws
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        """Put the module's own tensors back."""
        for store, local, _, tensor in self._param_slots:
            store[local] = tensor
        for store, local, _, tensor in self._buffer_slots:
            store[local] = tensor
        for values, name, value in self._stored:
            if value is MISSING:
                values.pop(name, None)
            else:
                values[name] = value
        call = self._call
        call.mask = call.key = call.features = call.again = None
        call.active = False

    def clone(self, *, unpadded: bool | None = None) -> Model:
        """A copy for use from another thread. Constants are shared: nothing changes them.

        Args:
            unpadded: whether rows are never padded in calls of the copy; None takes this model's value.
        """
        unpadded = self.unpadded if unpadded is None else unpadded
        return replace(self, module=copy.deepcopy(self.module, dict(self._shared)), unpadded=unpadded)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Model:
        """A copy whose floating-point values have this dtype, on this device; None keeps what there is."""
        return replace(self, module=copy.deepcopy(self.module).to(device=device, dtype=dtype))

    def task(self, clients: int, rounds: int, held_out: int = 0) -> Task:
        """The static facts of a run of so many clients, of which some never train, and rounds with this model."""
        return Task(self.head, self.classes, self.features, clients, rounds, self._norms, held_out)

    @property
    def non_persistent(self) -> Params:
        """Buffers that are in no state dict, by name: constants that the module makes for itself."""
        layers = self.module.named_modules()
        held = ((path, name, m._buffers[name]) for path, m in layers for name in m._non_persistent_buffers_set)
        return {f"{path}.{name}" if path else name: tensor for path, name, tensor in held if tensor is not None}

    @property
    def parameter_count(self) -> int:
        """Number of trained scalars, P."""
        return sum(value.numel() for value in self.params.values())

    @property
    def layer_kinds(self) -> frozenset[str]:
        """Class names of the layers that have no children, as the user wrote them: {"Conv2d", "BatchNorm2d", ...}."""
        leaves = (type(m) for m in self.module.modules() if next(m.children(), None) is None)
        return frozenset(written_as(kind).__name__ for kind in leaves)

    @property
    def convolutional(self) -> bool:
        """Whether any layer is a convolution."""
        return any(kind.startswith("Conv") for kind in self.layer_kinds)

    def __reduce__(self) -> tuple[Any, ...]:
        return Model, tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        facts = f"head={self.head!r}, shape={self.shape}, classes={self.classes}, features={self.features}"
        return f"Model({facts}, parameters={self.parameter_count})"


def prepare(
    module: nn.Module, head: str | None, shape: tuple[int, ...], classes: int, *, narrow: torch.dtype | None = None
) -> Model:
    """The module as a pure function. The module itself is not changed.

    Where torch offers a training and an evaluation mode, each call chooses, whatever mode the module is in now.

    Args:
        module: any network whose forward maps rows [B, *shape] to logits [B, classes].
        head: name of the classifier layer, whose weight is [classes, F]; "" when the module is the layer; None takes
            the last nn.Linear.
        shape: of one row.
        classes: C.
        narrow: dtype to which torch's autocast rounds the products inside the network, torch.bfloat16 for example.
            Parameters and outputs keep theirs. None rounds nothing.

    Raises:
        ConfigError: the head does not exist or does not fit the classes, the output is not [B, classes], or a layer
            has hidden randomness or state, or changes its input or a parameter; the message names the layer.
    """
    shape = tuple(shape)
    refuse(module)
    head = _head(module, head, classes)
    copied = copy.deepcopy(module, copies_of_outputs(module))
    convert(copied, head)
    stored = probe(Model(copied, head, shape, classes))  # in the module's own precision
    return Model(copied, head, shape, classes, narrow, stored=stored)


def _head(module: nn.Module, head: str | None, classes: int) -> str:
    """The name of the classifier layer. Raises ConfigError where it does not exist or does not fit."""
    head, layer, linear = classifier(module, head)
    weight = layer._parameters.get("weight")
    described, rule = f"{head} ({type(layer).__name__})", "be a layer with its own trainable weight [classes, features]"
    hint = f"linear layers: {', '.join(map(repr, linear))}"
    require(weight is not None and weight.ndim == 2 and weight.requires_grad, "head", rule, described, hint)
    got = tuple(layer.weight.shape)
    require(got[0] == classes, f"head {head!r}", f"have weight [{classes}, features]", got, hint)
    return head
