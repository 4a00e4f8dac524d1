"""Layers of a user's module that must change or go, so that a forward pass is a pure function of its arguments.

- Dropout takes its masks from the call's key. Numbers are counted over rows first: a row's mask depends on the key, on
  the row's place and on which dropout of the forward pass it is, and not on how many rows follow.
- BatchNorm takes its statistics over the real rows, and hands back new running statistics. One that is in evaluation
  mode and whose weights are frozen is a constant of the model: it uses the statistics that it has.
- A layer that is computed again on the way back, as transformers has them, is given the call's tensors again.
- The input of the head (the classifier layer) is kept: these are the features.
- Layers with other hidden randomness or state raise ConfigError.

A layer is converted by changing its class, so that every reference to it stays valid. Converted layers read the mask,
the key and the mode of the forward pass from the `Call` that all layers of one module share.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

from fedskew import rng
from fedskew.errors import ConfigError, require

PURE = "have no hidden randomness or state"  # the rule that a module must keep


class Call:
    """What converted layers read and write during one forward pass. Every copy of a model has one of its own."""

    mask: Any = None  # Tensor [B] during a call
    key: Any = None  # Tensor ()
    features: Any = None  # Tensor [B, F] once the head has been called
    active = False
    train = False
    whole = False  # no row is padded, and that was cheap to know
    draws = 0  # dropout layers met so far: the number of the draw
    again: Any = None  # during a call: a context in which the layers have the tensors of this call, after so many draws


class _Keyed:
    """Base of converted layers."""

    call: Call
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
    """BatchNorm over the real rows: (x - mean) / sqrt(var + eps) * weight + bias.

    mean and the biased variance var are taken over the n elements of real rows. Running statistics follow torch
    (the running variance takes var * n/(n-1)), with two additions: with n = 0 nothing changes; with n = 1, where torch
    raises, x is normalised by var = 0 and the running variance stays.
    """

    still = False  # the statistics are constants

    def forward(self, x: Tensor) -> Tensor:  # [B, C, ...]
        if (self.still or not self.call.train) and self.running_mean is not None:
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
        """torch's kernel; it returns 1/sqrt(var + eps), from which var follows."""
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
        # padded rows become 0 here, so that they cannot grow to infinity in a deep network
        centred = (x - mean.reshape(along)) * rows
        var = centred.square().sum(dims) / some
        weight, bias = self._affine(x.dtype)
        scale = torch.rsqrt(var + self.eps)
        out = centred * (scale if weight is None else scale * weight).reshape(along)
        return (out if bias is None else out + bias.reshape(along)), mean, var, n

    def _track(self, mean: Tensor, var: Tensor, n: Tensor) -> None:
        """Replace the running statistics; `Model.forward` collects the new ones and restores the old ones."""
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
_WRITTEN = {keyed: kind for kind, keyed in _CONVERTED.items()}


def _conversion(layer: nn.Module) -> type[nn.Module] | None:
    """The class that replaces a layer's: of its own kind, or of a subclass that keeps the kind's forward."""
    for kind, keyed in _CONVERTED.items():
        if isinstance(layer, kind) and type(layer).forward is kind.forward:
            return keyed
    return None


def _tap(head: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    head.fedskew_call.features = args[0] if args else kwargs["input"]


def convert(module: nn.Module, head: str) -> None:
    """Convert the layers of a module in place, and let the layer named `head` note its input as the features.

    The head's attribute `fedskew_call` then holds the module's `Call`.
    """
    call = Call()
    for name, layer in module.named_modules():
        keyed = _conversion(layer)
        if keyed is not None:
            frozen = isinstance(layer, _BatchNorm) and layer.affine and not layer.weight.requires_grad
            layer.__class__ = keyed
            vars(layer).update(call=call, label=name, **({"still": True} if frozen and not layer.training else {}))
        elif getattr(layer, "gradient_checkpointing", False):
            vars(layer)["_gradient_checkpointing_func"] = partial(_computed_again, call)
    tapped = module.get_submodule(head)
    vars(tapped)["fedskew_call"] = call
    tapped.register_forward_pre_hook(_tap, with_kwargs=True)


def _computed_again(call: Call, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a layer of transformers, and once more on the way back, with the parameters and the key of the call."""
    again = partial(call.again, call.draws)
    return checkpoint(
        function, *args, use_reentrant=False, preserve_rng_state=False, context_fn=lambda: (nullcontext(), again())
    )


def tracks(layer: nn.Module) -> bool:
    """Whether a converted layer keeps running statistics of the rows it sees."""
    return isinstance(layer, _MaskedBatchNorm) and not layer.still


def drops(layer: nn.Module) -> bool:
    """Whether a converted layer is a dropout."""
    return isinstance(layer, _KeyedDropout | _KeyedChannelDropout)


def written_as(kind: type[nn.Module]) -> type[nn.Module]:
    """The class that the user wrote, of a converted layer's class; any other class as it is."""
    return _WRITTEN.get(kind, kind)


def follows_mode(layer: nn.Module) -> bool:
    """Whether `layer.training` must follow the mode of the call.

    torch's own layers stay in training mode: what they would change is converted or refused, and the fast path that
    attention takes in evaluation mode has no vmap rule. A user's forward may read `self.training`. Layers of
    transformers and peft, which keep the mode that they have, draw without a key in training mode; one that is computed
    again does so in training mode alone.
    """
    return getattr(layer, "gradient_checkpointing", False) or not type(layer).__module__.startswith(
        ("torch.nn.", __name__, "transformers.", "peft.")
    )


_Test = Callable[[Any], bool]

# (kind, test, advice): a layer of this kind is refused where the test holds; the advice says what to do instead
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
    """What to do about a layer that cannot stay; None for one that can."""
    if isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():
        return "run one batch through the model first"
    spectral = {type(x).__name__ for x in (layer, *layer._forward_pre_hooks.values())}
    if spectral & {"SpectralNorm", "_SpectralNorm"}:
        return "remove spectral_norm, which keeps a state of its own"
    if "WeightNorm" in spectral:
        return "use torch.nn.utils.parametrizations.weight_norm, which keeps no computed weight in the layer"
    if any(isinstance(hook, prune.BasePruningMethod) for hook in layer._forward_pre_hooks.values()):
        return "call torch.nn.utils.prune.remove first"
    if any(p is not None and p.is_complex() for p in layer._parameters.values()):
        return "hold complex parameters as two real ones"
    return next((advice for kind, test, advice in _REFUSED if isinstance(layer, kind) and test(layer)), None)


def refuse(module: nn.Module) -> None:
    """Raise ConfigError for the first layer with hidden randomness or state that cannot be converted."""
    for name, layer in module.named_modules():
        advice = _advice(layer)
        if advice is not None:
            raise ConfigError(f"model must {PURE}; got {type(layer).__name__} at layer {name!r}; {advice}")
