"""Initial weights, keyed by (seed, parameter name): no generator is used."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from fedskew import rng
from fedskew.errors import ConfigError
from fedskew.models.networks import Init

__all__ = ["initialise"]


@torch.no_grad()
def initialise(module: nn.Module, init: Init, seed: int, prefix: str = "") -> None:
    """Give every layer its keyed weights. ``prefix`` stands before the layers' names in the keys.

    Raises:
        ConfigError: a kind of layer without a rule.
    """
    for name, layer in module.named_modules(prefix=prefix):
        if isinstance(layer, nn.Linear | _ConvNd):
            _initialise_weights(layer, name, init, seed)
        elif isinstance(layer, nn.Embedding):
            key = rng.key(seed, "model", f"{name}.weight")
            layer.weight.copy_(rng.normal(key, tuple(layer.weight.shape), layer.weight.dtype))  # torch's rule
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
