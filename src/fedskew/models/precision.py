"""Arithmetic inside a network: exact float32, TensorFloat-32 products, or bfloat16 by torch's autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["DTYPES", "NARROW", "arithmetic"]

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
NARROW = {"float32": None, "tf32": None, "bfloat16": torch.bfloat16}  # autocast's type by name of the precision


@contextmanager
def arithmetic(name: str) -> Iterator[None]:
    """Set how CUDA multiplies float32 matrices and convolutions, for the whole process, inside a ``with`` block.

    By default torch rounds convolutions to TF32. Here "float32" rounds nothing. Convolutions sum in a fixed order: a
    run repeats its own bits on one kind of GPU, and a resumed run has those of a run that was not stopped.

    Args:
        name: "float32", "tf32" or "bfloat16".

    Yields:
        None. The old settings come back at the end of the block.
    """
    cudnn = torch.backends.cudnn
    matrices, convolutions, repeats = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    cudnn.allow_tf32, cudnn.deterministic = name == "tf32", True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        cudnn.allow_tf32, cudnn.deterministic = convolutions, repeats
