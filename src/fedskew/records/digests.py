"""Digests that notice damage: 128 bits of XXH3, some gigabytes a second. They are no defence against a forger."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

from fedskew.errors import opened


def of_parts(*parts: Any) -> str:
    """Digest of bytes, one part after another.

    Args:
        *parts: Strings, which are taken as UTF-8, and what has a buffer: bytes, arrays.

    Returns:
        32 hex digits.

    Example:
        >>> from fedskew.records.digests import of_parts
        >>> of_parts("round 1"), of_parts("round ", b"1") == of_parts("round 1")
        ('49f2906e88dad01311eb2894a26efafc', True)
    """
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def of_file(path: Path) -> str:
    """Digest of a file's bytes. Raises OSError where it cannot be read."""
    with opened(path) as file:
        return hashlib.file_digest(file, xxhash.xxh3_128).hexdigest()


def of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Digest of names, types, shapes and values of tensors on the host, in the order of their names."""
    parts: list[Any] = []
    for name, tensor in sorted(tensors.items()):
        bare = tensor.detach().reshape(-1)
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)};")
        parts.append(bare.view(torch.uint8).numpy().data if bare.numel() else b"")
    return of_parts(*parts)
