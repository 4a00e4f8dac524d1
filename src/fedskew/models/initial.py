"""Initial weights, keyed by (seed, parameter name): no generator is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.models.networks import Init

__all__ = ["allocate", "initialise"]


def allocate(module: nn.Module, device: torch.device | str = "cpu", dtype: torch.dtype | None = None) -> nn.Module:
    """Give the layers of a network on the meta device memory without values, in place; the network itself.

    It does what ``to_empty`` does. That one allocates by ``torch.empty_like``, which for tensors of the meta device
    imports torch's symbolic shapes and sympy (0.7 s).

    Args:
        module: Built under ``torch.device("meta")``.
        device: Where the memory is.
        dtype: Of the parameters; None keeps theirs.
    """

    def room(t: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(t.shape, dtype=dtype or t.dtype, device=device)

    for layer in module.modules():
        for name, parameter in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, nn.Parameter(room(parameter, dtype), parameter.requires_grad))
        for name, buffer in list(layer.named_buffers(recurse=False)):
            setattr(layer, name, room(buffer))
    return module


@torch.no_grad()
def initialise(module: nn.Module, init: Init, seed: int, prefix: str = "") -> None:
    """Give every layer its keyed weights. ``prefix`` stands before the layers' names in the keys.

    Raises:
        ConfigError: a kind of layer without a rule.
    """
    for name, layer in module.named_modules(prefix=prefix):
        if isinstance(layer, nn.Linear | _ConvNd):
            _initialise_weights(layer, name, init, seed)
        elif isinstance(layer, _BatchNorm | nn.GroupNorm | nn.LayerNorm):
            layer.reset_parameters()  # constants
        elif next(layer.parameters(recurse=False), None) is not None:
            kind = type(layer).__name__
            raise ConfigError(f"model layer {name!r} ({kind}) has no keyed initialisation; pass the nn.Module itself")


def _initialise_weights(layer: nn.Linear | _ConvNd, name: str, init: Init, seed: int) -> None:
    """Give a linear layer or a convolution its keyed weights."""
    fan_in, fan_out = layer.weight[0].numel(), layer.weight[:, 0].numel()
    for local, tensor in layer.named_parameters(recurse=False):
        key = rng.key(seed, "model", f"{name}.{local}")
        if init == "kaiming_normal" and local == "weight":
            tensor.copy_(rng.normal(key, tuple(tensor.shape), tensor.dtype) * math.sqrt(2 / fan_in))
            continue
        glorot = init == "glorot_uniform" and local == "weight"
        bound = math.sqrt(6 / (fan_in + fan_out)) if glorot else 1 / math.sqrt(fan_in)
        tensor.copy_((2 * rng.uniform(key, tuple(tensor.shape), tensor.dtype) - 1) * bound)
