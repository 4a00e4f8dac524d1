"""Random numbers keyed by (seed, round, client, purpose). No global generator is used.

A key is an int64 tensor of shape (), or of any batch shape. `uniform` and `normal` hash a counter with the key by the
splitmix64 finaliser. They work under ``vmap``, give the same numbers on every device and depend on the key alone. On
the host, `generator` turns a key into a numpy Generator.
"""

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64: the splitmix64 increment
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def seed_of(seed: int, *path: int | str) -> int:
    """Hash a seed and a path to a signed 64-bit integer.

    Args:
        seed: Seed of the run.
        *path: Place in the run: round, client, purpose.

    Returns:
        An integer that depends on every argument.

    Example:
        >>> from fedskew import rng
        >>> rng.seed_of(0, 1, "dropout") == rng.seed_of(0, 1, "dropout"), rng.seed_of(0, 1) == rng.seed_of(0, 2)
        (True, False)
    """
    text = "/".join(map(str, (seed, *path)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def key(seed: int, *path: int | str) -> Tensor:
    """The key of a place in the run.

    Args:
        seed: Seed of the run.
        *path: Place in the run: round, client, purpose.

    Returns:
        int64 tensor ().

    Example:
        >>> from fedskew import rng
        >>> rng.uniform(rng.key(0, 1, 5, "dropout"), (3,))
        tensor([0.5547, 0.9085, 0.2765])
    """
    return torch.tensor(seed_of(seed, *path), dtype=torch.int64)


def generator(key: Tensor | int, *path: int | str) -> np.random.Generator:
    """A numpy Generator for draws on the host, such as permutations and Dirichlet shares.

    Args:
        key: Key, a tensor () or an integer.
        *path: Further purpose.

    Returns:
        A PCG64 generator that depends on the arguments alone.

    Example:
        >>> from fedskew import rng
        >>> rng.generator(rng.key(0, "data")).permutation(5)
        array([2, 0, 3, 4, 1])
    """
    return np.random.Generator(np.random.PCG64(seed_of(int(key), *path) & (2**64 - 1)))


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch shifts arithmetically)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64."""
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def fold(key: Tensor, data: Tensor | int) -> Tensor:
    """Make a new key from a key and an integer, such as a step or a layer number.

    Args:
        key: int64 tensor of any shape.
        data: Integer, or int64 tensor; shapes broadcast.

    Returns:
        int64 tensor.

    Example:
        >>> import torch
        >>> from fedskew import rng
        >>> rng.fold(rng.key(0), torch.arange(2)).shape
        torch.Size([2])
    """
    # a Python number needs no copy to the device, a tensor would
    step = data.long() * _GOLDEN if isinstance(data, Tensor) else _wrapped(int(data) * _GOLDEN)
    return _mix(_mix(key + _GOLDEN) + step)


def _wrapped(x: int) -> int:
    """An integer reduced to the range of int64."""
    return (x + 2**63) % 2**64 - 2**63


def folded(key: int, data: int) -> int:
    """`fold` of two integers on the host; the result is the same number."""
    wide = 2**64 - 1

    def mix(x: int) -> int:
        x &= wide
        x = ((x ^ (x >> 30)) * (_MIX1 & wide)) & wide
        x = ((x ^ (x >> 27)) * (_MIX2 & wide)) & wide
        return x ^ (x >> 31)

    return _wrapped(mix(mix(key + _GOLDEN) + data * _GOLDEN))


def _bits(key: Tensor, shape: tuple[int, ...]) -> Tensor:
    """64 random bits for each element of the shape."""
    count = math.prod(shape)
    counter = torch.arange(1, count + 1, dtype=torch.int64, device=key.device).reshape(shape)
    return _mix(key + counter * _GOLDEN)


def uniform(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Uniform random numbers in [0, 1).

    They have 24 random bits, so float32 and float64 hold the same numbers. Narrower types get as many bits as they can
    hold.

    Args:
        key: int64 tensor (), or of a shape that broadcasts with ``shape``.
        shape: Shape of the result.
        dtype: Floating type.

    Returns:
        Tensor of that shape.

    Example:
        >>> from fedskew import rng
        >>> rng.uniform(rng.key(0), (3,))
        tensor([0.4586, 0.5110, 0.5815])
    """
    bits = min(24, 1 - round(math.log2(torch.finfo(dtype).eps)))
    return _shift(_bits(key, shape), 64 - bits).to(dtype) * 2.0**-bits


def normal(key: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard normal random numbers, by Box and Muller.

        sqrt(-2 log u1) cos(2 pi u2),   u1 uniform in (0, 1], u2 in [0, 1)

    Args:
        key: int64 tensor (), or of a shape that broadcasts with ``shape``.
        shape: Shape of the result.
        dtype: Floating type.

    Returns:
        Tensor of that shape.

    Example:
        >>> from fedskew import rng
        >>> rng.normal(rng.key(0), (3,))
        tensor([-0.7135,  2.3561,  2.4956])
    """
    wide = dtype if dtype.itemsize >= 4 else torch.float32
    u1 = 1.0 - uniform(fold(key, 1), shape, wide)
    u2 = uniform(fold(key, 2), shape, wide)
    return (torch.sqrt(-2.0 * torch.log(u1)) * torch.cos((2.0 * math.pi) * u2)).to(dtype)
