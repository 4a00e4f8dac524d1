"""Randomness keyed by (seed, round, client, purpose): nothing is drawn from a global generator.

A key is an int64 tensor of shape () (or any batch shape). `uniform` and `normal` hash a counter with it by the
splitmix64 finaliser: they work under `vmap`, give the same numbers on every device, depend on nothing but the key.
On the host, `generator` turns a key into a numpy Generator.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

__all__ = ["fold", "folded", "generator", "key", "normal", "seed_of", "uniform"]

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64: the splitmix64 increment
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def seed_of(seed: int, *path: int | str) -> int:
    """A signed 64-bit integer that depends on the seed and on every element of the path (round, client, purpose)."""
    text = "/".join(str(p) for p in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def key(seed: int, *path: int | str) -> Tensor:
    """The key of a place in the run, for example ``key(seed, round, client, "dropout")``: int64, shape ()."""
    return torch.tensor(seed_of(seed, *path), dtype=torch.int64)


def generator(key: Tensor | int, *path: int | str) -> np.random.Generator:
    """A numpy Generator for host-side draws (permutations, Dirichlet) under this key and path."""
    return np.random.Generator(np.random.PCG64(seed_of(int(key), *path) & (2**64 - 1)))


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch shifts arithmetically)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def fold(key: Tensor, data: Tensor | int) -> Tensor:
    """A new key from a key and an integer (a step, a layer number, a purpose number). Shapes broadcast."""
    # a number goes to the device with the operator, where a tensor of it would have to be copied
    step = data.long() * _GOLDEN if isinstance(data, Tensor) else _wrapped(int(data) * _GOLDEN)
    return _mix(_mix(key + _GOLDEN) + step)


def _wrapped(x: int) -> int:
    """An integer as int64 holds it."""
    return (x + 2**63) % 2**64 - 2**63


def folded(key: int, data: int) -> int:
    """`fold` of two integers on the host: the same number, without a dozen operators."""
    wide = 2**64 - 1

    def mix(x: int) -> int:
        x &= wide
        x = ((x ^ (x >> 30)) * (_MIX1 & wide)) & wide
        x = ((x ^ (x >> 27)) * (_MIX2 & wide)) & wide
        return x ^ (x >> 31)

    return _wrapped(mix(mix(key + _GOLDEN) + data * _GOLDEN))


def _bits(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    count = math.prod(shape)
    counter = torch.arange(1, count + 1, dtype=torch.int64, device=key.device).reshape(shape)
    return _mix(key + counter * _GOLDEN)


def uniform(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform draws in [0, 1) of the given shape; 24 random bits, so float32 and float64 hold the same numbers.

    Narrower types get as many bits as they hold: more would round up to 1.
    """
    bits = min(24, 1 - round(math.log2(torch.finfo(dtype).eps)))
    return _shift(_bits(key, shape), 64 - bits).to(dtype) * 2.0**-bits


def normal(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal draws by Box and Muller: sqrt(-2 log u1) cos(2 pi u2), u1 in (0, 1]."""
    wide = dtype if dtype.itemsize >= 4 else torch.float32
    u1 = 1.0 - uniform(fold(key, 1), shape, wide)
    u2 = uniform(fold(key, 2), shape, wide)
    return (torch.sqrt(-2.0 * torch.log(u1)) * torch.cos((2.0 * math.pi) * u2)).to(dtype)
