"""`prepare` turns a user's nn.Module into a pure function of (params, buffers, x, mask, key): a `Model`.

The module is copied; layers whose result depends on hidden randomness or on padded rows are replaced in the copy.

- Dropout takes its masks from the call's key. Numbers are counted over rows first, so a row's mask depends on the key,
  on the row's place and on which dropout of the forward pass it is, and never on how many rows follow.
- BatchNorm takes its statistics over the real rows, and *returns* new running statistics.
- The input of the head (the classifier layer) is kept: these are the features.

Names are the module's own: ``module.load_state_dict({**params, **buffers}, strict=False)`` puts trained values back.
A parameter shared by several layers has one entry (named after the head where the head shares it); a parameter with
``requires_grad=False`` stands among the buffers, so that nothing trains it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from fedskew import rng
from fedskew.errors import ConfigError, require, unknown
from fedskew.types import Output, Params, Task

__all__ = ["Model", "prepare"]


class _Call:
    """What the layers of one Model copy read during one forward pass. Each copy owns one: threads share nothing."""

    mask: Any = None  # Tensor [B] during a call
    key: Any = None  # Tensor ()
    features: Any = None  # Tensor [B, F] once the head was called
    active = False
    train = False
    whole = False  # no row is padded, and that was cheap to know
    draws = 0  # dropouts met so far: the number of the draw


# ---------------------------------------------------------------------------------------------------------------------
# Layers that read the call. A layer is converted by changing its class, so that every reference to it stays valid


class _Keyed:
    """Mixin of converted layers."""

    call: _Call
    label: str  # the layer's name in the model

    def rows(self, x: Tensor) -> Tensor:
        """The mask [B], once it is certain that axis 0 of x is the batch."""
        mask: Tensor = self.call.mask
        hint = "keep axis 0 the batch where dropout or BatchNorm stands"
        require(
            x.shape[0] == mask.shape[0], f"model layer {self.label!r}", "see one row a sample", tuple(x.shape), hint
        )
        return mask


class _KeyedDropout(_Keyed, nn.Dropout):
    """Dropout of single elements: x * (u >= p) / (1 - p), u drawn from (key, number of the draw)."""

    def forward(self, x: Tensor) -> Tensor:  # [B, ...]
        return _drop(self, x, tuple(x.shape))


class _KeyedChannelDropout(_Keyed, _DropoutNd):
    """Dropout of whole channels: one draw for each (row, channel)."""

    def forward(self, x: Tensor) -> Tensor:  # [B, C, ...]
        return _drop(self, x, (*x.shape[:2], *(1 for _ in x.shape[2:])))


def _drop(layer: _KeyedDropout | _KeyedChannelDropout, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    call = layer.call
    if not call.train or layer.p == 0:
        return x
    layer.rows(x)
    call.draws += 1
    # always float32, so that a row drops the same elements in every precision
    keep = rng.uniform(rng.fold(call.key, call.draws), shape) >= layer.p
    scale: float = 1 / (1 - layer.p) if layer.p < 1 else 0.0
    return x * (keep.to(x.dtype) * scale)


class _MaskedBatchNorm(_Keyed, _BatchNorm):
    """BatchNorm over the real rows: (x - mean) / sqrt(var + eps) * weight + bias, var biased; n = real elements.

    Running statistics follow torch (running variance takes var * n/(n-1)), with two additions: with n = 0 nothing
    changes, and with n = 1, where torch raises, x is normalised by var = 0 and the running variance stays.
    """

    def forward(self, x: Tensor) -> Tensor:  # [B, C, ...]
        if not self.call.train and self.running_mean is not None:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        mask = self.rows(x)
        # bfloat16 cannot count past 256, so statistics are taken in float32 at least
        wide = x if x.dtype.itemsize >= 4 else x.float()
        # one element: the fused kernel leaves rounding noise where the masked form gives 0, and ReLU sees its sign
        if self.call.whole and wide.shape[0] * math.prod(wide.shape[2:]) > 1:
            out, mean, var, n = self._fused(wide)
        else:
            out, mean, var, n = self._masked(wide, mask.to(wide.dtype))
        if self.call.train and self.running_mean is not None:
            self._track(mean.detach(), var.detach(), n)
        return out.to(x.dtype)

    def _affine(self, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        return (self.weight.to(dtype), self.bias.to(dtype)) if self.affine else (None, None)

    def _fused(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """torch's kernel; it hands back 1/sqrt(var + eps), from which var follows."""
        weight, bias = self._affine(x.dtype)
        out, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, self.eps)
        n = x.new_tensor(x.shape[0] * math.prod(x.shape[2:]))
        return out, mean, (inverse.pow(-2) - self.eps).clamp(min=0), n

    def _masked(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wide = (-1, *(1 for _ in x.shape[1:]))
        along = (1, -1, *(1 for _ in x.shape[2:]))
        dims = (0, *range(2, x.ndim))
        rows = mask.reshape(wide)
        n = mask.sum() * math.prod(x.shape[2:])
        some = n.clamp(min=1)
        mean = (x * rows).sum(dims) / some
        # note: padded rows become 0 here, so that they cannot grow to infinity in a deep network
        centred = (x - mean.reshape(along)) * rows
        var = centred.square().sum(dims) / some
        weight, bias = self._affine(x.dtype)
        scale = torch.rsqrt(var + self.eps)
        out = centred * (scale if weight is None else scale * weight).reshape(along)
        return (out if bias is None else out + bias.reshape(along)), mean, var, n

    def _track(self, mean: Tensor, var: Tensor, n: Tensor) -> None:
        """Put new running statistics in place of the old; `Model.forward` collects them and puts the old ones back."""
        store: dict[str, Any] = self._buffers
        tracked = store["num_batches_tracked"] + (n > 0)
        store["num_batches_tracked"] = tracked
        share = 1 / tracked.clamp(min=1).to(mean.dtype) if self.momentum is None else self.momentum
        unbiased = var * (n / (n - 1).clamp(min=1))
        for name, new, least in (("running_mean", mean, 1), ("running_var", unbiased, 2)):
            old = store[name].to(new.dtype)
            store[name] = (old + share * (n >= least) * (new - old)).to(store[name].dtype)


class _BatchNorm1d(_MaskedBatchNorm, nn.BatchNorm1d):
    pass


class _BatchNorm2d(_MaskedBatchNorm, nn.BatchNorm2d):
    pass


class _BatchNorm3d(_MaskedBatchNorm, nn.BatchNorm3d):
    pass


class _Dropout1d(_KeyedChannelDropout, nn.Dropout1d):
    pass


class _Dropout2d(_KeyedChannelDropout, nn.Dropout2d):
    pass


class _Dropout3d(_KeyedChannelDropout, nn.Dropout3d):
    pass


_CONVERTED: dict[type[nn.Module], type[nn.Module]] = {
    nn.Dropout: _KeyedDropout,
    nn.Dropout1d: _Dropout1d,
    nn.Dropout2d: _Dropout2d,
    nn.Dropout3d: _Dropout3d,
    nn.BatchNorm1d: _BatchNorm1d,
    nn.BatchNorm2d: _BatchNorm2d,
    nn.BatchNorm3d: _BatchNorm3d,
}


def _conversion(layer: nn.Module) -> type[nn.Module] | None:
    """The class that stands in for a layer: of its own kind, or of a subclass that keeps the kind's forward."""
    for kind, keyed in _CONVERTED.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward:
            return keyed
    return None


def _tap(head: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    head.fedskew_call.features = args[0] if args else kwargs["input"]


def _convert(module: nn.Module, head: str) -> None:
    """Replace layers of the copy in place and tap the head."""
    call = _Call()
    for name, layer in module.named_modules():
        keyed = _conversion(layer)
        if keyed is not None:
            layer.__class__ = keyed
            vars(layer).update(call=call, label=name)
    tapped = module.get_submodule(head)
    vars(tapped)["fedskew_call"] = call
    tapped.register_forward_pre_hook(_tap, with_kwargs=True)


# ---------------------------------------------------------------------------------------------------------------------
# The model


class _Place(NamedTuple):
    """Where a parameter or buffer stands in the module: ``store[local]``, known outside as ``name``."""

    store: dict[str, Any]
    local: str
    name: str
    tensor: Tensor


def _places(module: nn.Module, head: str) -> tuple[list[_Place], list[_Place]]:
    """Places of what is trained, and of what is not; every place of a shared tensor carries one name."""
    params: list[_Place] = []
    buffers: list[_Place] = []
    prefix = f"{head}." if head else ""
    own = module.get_submodule(head)._parameters.items()
    names = {id(tensor): f"{prefix}{local}" for local, tensor in own if tensor is not None}
    for path, layer in module.named_modules():
        constants = layer._non_persistent_buffers_set  # not in a state dict: they stay in the module
        for store in (layer._parameters, layer._buffers):
            for local, tensor in store.items():
                if tensor is not None and local not in constants:
                    name = names.setdefault(id(tensor), f"{path}.{local}" if path else local)
                    (params if tensor.requires_grad else buffers).append(_Place(store, local, name, tensor))
    return params, buffers


def _whole(mask: Tensor) -> bool:
    """No padded row, as far as that is known without waiting for an accelerator; vmap refuses the question."""
    if mask.device.type != "cpu":
        return False
    try:
        return bool(mask.all())
    except RuntimeError:
        return False


class Model:
    """A network as a pure function, with its initial values. Made by `prepare`.

    One copy serves one thread at a time: give each thread its own `clone`. Copies pickle.
    """

    head: str  # name of the classifier layer; "" when the module is the layer
    shape: tuple[int, ...]  # of one row
    classes: int  # C
    features: int  # F, what enters the head
    params: Params  # initial values of what is trained
    buffers: Params  # initial BatchNorm statistics, and whatever is not trained
    unpadded = False  # True where no row is ever padded: then nobody has to look at the masks
    narrow: torch.dtype | None = None  # autocast's dtype: products are rounded to it, parameters and outputs are not

    def __init__(self, module: nn.Module, head: str, shape: tuple[int, ...], classes: int) -> None:
        """Wrap a converted module; call `prepare` instead."""
        self.head, self.shape, self.classes = head, shape, classes
        self._module = module
        layer: Any = module.get_submodule(head)
        self._call: _Call = layer.fedskew_call
        self.features = int(layer.weight.shape[1])
        self._param_places, self._buffer_places = _places(module, head)
        self.params = {place.name: place.tensor.detach() for place in self._param_places}
        self.buffers = {place.name: place.tensor.detach() for place in self._buffer_places}
        norms = [layer._buffers for layer in module.modules() if isinstance(layer, _MaskedBatchNorm)]
        self._statistics = [p for p in self._buffer_places if any(p.store is store for store in norms)]
        self._normalised = bool(norms)
        # torch's own layers stay in training mode: what they would change is converted or refused, and the fast path
        # that attention takes in evaluation mode has no vmap rule. A user's forward may well read self.training
        ours = ("torch.nn.", __name__)
        self._followers = [m for m in module.modules() if not type(m).__module__.startswith(ours)]
        self._training = True
        module.train()

    def forward(
        self, params: Params, buffers: Params, x: Tensor, mask: Tensor, *, train: bool, key: Tensor
    ) -> tuple[Output, Params]:
        """Logits [B, C] and features [B, F] of rows x [B, ...], and the new buffers; obeys `fedskew.types.Forward`.

        ``mask`` [B] is 0 for padded rows, ``key`` an int64 () for the dropout masks. With ``train=False`` dropout is
        the identity, running statistics are used, and ``buffers`` come back as they went in.
        """
        call = self._call
        if call.active:
            raise RuntimeError("a Model serves one thread at a time; give each thread its own Model.clone()")
        call.active = True
        try:
            self._enter(params, buffers, mask, train, key)
            logits = self._module(x) if self.narrow is None else self._narrowly(x)
            features = call.features
            if train and self._statistics:
                buffers = buffers | {name: store[local] for store, local, name, _ in self._statistics}
        finally:
            self._leave()
        if self.narrow is not None:
            wide = params[self._param_places[0].name].dtype
            logits, features = logits.to(wide), features.to(wide)
        return Output(logits, features), buffers

    def _narrowly(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, self.narrow, cache_enabled=False):
            logits: Tensor = self._module(x)
        return logits

    def _enter(self, params: Params, buffers: Params, mask: Tensor, train: bool, key: Tensor) -> None:
        """Put the call's tensors in place: what torch.func.functional_call does, without its per-call bookkeeping."""
        call = self._call
        call.mask, call.key, call.train, call.draws = mask, key, train, 0
        call.whole = train and self._normalised and (self.unpadded or _whole(mask))
        if train is not self._training:
            self._training = train
            for module in self._followers:
                module.training = train
        for store, local, name, _ in self._param_places:
            store[local] = params[name]
        for store, local, name, _ in self._buffer_places:
            store[local] = buffers[name]

    def _leave(self) -> None:
        for store, local, _, tensor in self._param_places:
            store[local] = tensor
        for store, local, _, tensor in self._buffer_places:
            store[local] = tensor
        call = self._call
        call.mask = call.key = call.features = None
        call.active = False

    def clone(self) -> Model:
        """An independent copy, for use from another thread."""
        return self._as(Model(copy.deepcopy(self._module), self.head, self.shape, self.classes))

    def _as(self, other: Model) -> Model:
        other.unpadded, other.narrow = self.unpadded, self.narrow
        return other

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Model:
        """A copy whose floating-point values have this dtype, on this device."""
        module = copy.deepcopy(self._module)
        return self._as(Model(module.to(device=device, dtype=dtype), self.head, self.shape, self.classes))

    def task(self, clients: int, rounds: int) -> Task:
        """The static facts of a run with this model."""
        return Task(self.head, self.classes, self.features, clients, rounds)

    @property
    def parameter_count(self) -> int:
        """Number of trained scalars, P."""
        return sum(value.numel() for value in self.params.values())

    @property
    def layer_kinds(self) -> frozenset[str]:
        """Class names of the layers that have no children, as the user wrote them: {"Conv2d", "BatchNorm2d", ...}."""
        leaves = (type(m) for m in self._module.modules() if next(m.children(), None) is None)
        return frozenset(_WRITTEN.get(kind, kind).__name__ for kind in leaves)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {"unpadded": self.unpadded, "narrow": self.narrow}
        return Model, (self._module, self.head, self.shape, self.classes), facts

    def __repr__(self) -> str:
        facts = f"head={self.head!r}, shape={self.shape}, classes={self.classes}, features={self.features}"
        return f"Model({facts}, parameters={self.parameter_count})"


_WRITTEN = {keyed: kind for kind, keyed in _CONVERTED.items()}


def prepare(module: nn.Module, head: str | None, shape: tuple[int, ...], classes: int) -> Model:
    """The module as a pure function; the module itself is left alone.

    ``head`` names the classifier layer, whose weight is [classes, F] ("" when the module is the layer); None takes the
    last nn.Linear. ``shape`` is that of one row. Where torch offers a mode, training and evaluation are chosen by each
    call, whatever mode the module is in now.

    Raises ConfigError where the head does not exist or does not fit the classes, where the output is not
    [B, classes], and for layers with hidden randomness or state, by name.
    """
    shape = tuple(shape)
    _refuse(module)
    head = _head(module, head, classes)
    copied = copy.deepcopy(module)
    _convert(copied, head)
    model = Model(copied, head, shape, classes)
    _probe(model)
    return model


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def _head(module: nn.Module, head: str | None, classes: int) -> str:
    """The name of the classifier layer, checked."""
    layers = dict(module.named_modules())
    linear = [name for name, layer in layers.items() if isinstance(layer, nn.Linear)]
    if head is None:
        require(bool(linear), "head", "name the classifier layer", None, "the model has no nn.Linear to guess")
        head = linear[-1]
    if head not in layers:
        raise unknown("head", head, linear)
    weight = layers[head]._parameters.get("weight")
    kind = type(layers[head]).__name__
    rule = "be a layer with its own trainable weight [classes, features]"
    hint = f"linear layers: {', '.join(map(repr, linear))}"
    require(weight is not None and weight.ndim == 2 and weight.requires_grad, "head", rule, f"{head} ({kind})", hint)
    got = tuple(layers[head].weight.shape)
    require(got[0] == classes, f"head {head!r}", f"have weight [{classes}, features]", got, hint)
    return head


_Test = Callable[[Any], bool]

# what is refused, and what to use in its place
_REFUSED: tuple[tuple[type[nn.Module] | tuple[type[nn.Module], ...], _Test, str], ...] = (
    (torch.jit.ScriptModule, lambda m: True, "pass the Python module"),
    ((nn.DataParallel, nn.parallel.DistributedDataParallel), lambda m: True, "pass its .module"),
    (nn.SyncBatchNorm, lambda m: True, "use nn.BatchNorm2d"),
    ((nn.AlphaDropout, nn.FeatureAlphaDropout), lambda m: True, "use nn.Dropout"),
    (nn.RReLU, lambda m: True, "use nn.LeakyReLU"),
    ((nn.FractionalMaxPool2d, nn.FractionalMaxPool3d), lambda m: True, "use nn.MaxPool2d"),
    (_InstanceNorm, lambda m: m.track_running_stats, "set track_running_stats=False"),
    (nn.RNNBase, lambda m: m.dropout > 0, "set dropout=0 and put nn.Dropout between recurrent layers"),
    (nn.MultiheadAttention, lambda m: m.dropout > 0, "set dropout=0"),
    ((nn.Embedding, nn.EmbeddingBag), lambda m: m.max_norm is not None, "set max_norm=None"),
    ((nn.Embedding, nn.EmbeddingBag), lambda m: m.sparse, "set sparse=False"),
    ((_BatchNorm, _DropoutNd), lambda m: _conversion(m) is None, "use the class of torch.nn itself"),
)


def _advice(layer: nn.Module) -> str | None:
    """Why a layer is refused, as what to do instead; None for a layer that may stay."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "run one batch through the model first"
    spectral = {type(x).__name__ for x in (layer, *layer._forward_pre_hooks.values())}
    if spectral & {"SpectralNorm", "_SpectralNorm"}:
        return "remove spectral_norm, which keeps a state of its own"
    return next((advice for kind, test, advice in _REFUSED if isinstance(layer, kind) and test(layer)), None)


_RULE = "have no hidden randomness or state"


def _refuse(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        advice = _advice(layer)
        if advice is not None:
            raise ConfigError(f"model must {_RULE}; got {type(layer).__name__} at layer {name!r}; {advice}")


def _inputs(model: Model, first: Tensor) -> Iterator[Tensor]:
    """Two rows to try: numbers, and token ids where the model embeds."""
    shape = (2, *model.shape)
    yield rng.uniform(rng.key(0, "probe"), shape).to(first)
    if model.layer_kinds & {"Embedding", "EmbeddingBag"}:
        yield torch.zeros(shape, dtype=torch.int64, device=first.device)


def _generators(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@torch.no_grad()
def _probe(model: Model) -> None:
    """Run two rows, twice, and see that the output fits and that nothing but the key decides it."""
    first = next(iter(model.params.values()))
    before = _generators(first.device)
    saved = {name: value.clone() for name, value in model.buffers.items()}
    try:
        runs = _try(model, first)
        drawn = not all(map(torch.equal, before, _generators(first.device)))
    finally:
        torch.set_rng_state(before[0])
        if len(before) > 1:
            torch.cuda.set_rng_state(before[1], first.device)
    _check_output(model, runs[0][0])
    hint = "dropout must be an nn.Dropout layer, not a function"
    require(not drawn, "model", _RULE, "a forward that draws from torch's global generator", hint)
    _check_state(model, runs, saved)


_Run = tuple[Output, Params]


def _try(model: Model, first: Tensor) -> tuple[_Run, _Run]:
    mask, key = first.new_ones(2), rng.key(0, "probe").to(first.device)
    error: Exception | None = None
    statistics, model._statistics = model._statistics, model._buffer_places  # see every buffer that changes
    try:
        for x in _inputs(model, first):
            try:
                one, two = (model.forward(model.params, model.buffers, x, mask, train=True, key=key) for _ in range(2))
                return one, two
            except ConfigError:
                raise
            except Exception as caught:  # a user's forward may raise anything
                error = error or caught
    finally:
        model._statistics = statistics
    said = (str(error).strip().splitlines() or [""])[0]
    raise ConfigError(f"model must accept rows of shape {model.shape}; got {type(error).__name__}: {said}") from error


def _check_output(model: Model, out: Output) -> None:
    got = tuple(out.logits.shape) if isinstance(out.logits, Tensor) else type(out.logits).__name__
    require(got == (2, model.classes), "model", f"return logits [B, {model.classes}]", got, "B was 2")
    require(out.features is not None, f"head {model.head!r}", "be called in forward", "a forward that passes it by")
    got = tuple(out.features.shape)
    require(got == (2, model.features), f"head {model.head!r}", f"receive features [B, {model.features}]", got)


def _check_state(model: Model, runs: tuple[_Run, _Run], saved: Params) -> None:
    (one, buffers), (two, _) = runs
    same = torch.allclose(one.logits, two.logits, rtol=1e-3, atol=1e-5, equal_nan=True)
    require(same, "model", _RULE, "two different outputs for the same input and key")
    learnt = {place.name for place in model._statistics}
    for name, value in saved.items():
        changed = not torch.equal(model.buffers[name], value) or buffers[name] is not model.buffers[name]
        if name not in learnt and changed:
            raise ConfigError(f"model must {_RULE}; got a forward that changes buffer {name!r}")
