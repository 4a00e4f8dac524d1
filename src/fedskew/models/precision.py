"""The arithmetic inside a network: exact float32, TensorFloat-32 products, or bfloat16 by torch's autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedskew.errors import require, unknown

__all__ = ["PRECISIONS", "arithmetic", "check_precision"]

PRECISIONS = ("float32", "tf32", "bfloat16")


def check_precision(name: str, dtype: str, device: str) -> None:
    """Raise ConfigError for an unknown name, for TF32 without a GPU, and for parameters that are not float32."""
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    require(name != "tf32" or device.startswith("cuda"), "precision", "be float32 or bfloat16 without a GPU", name)
    require(name == "float32" or dtype == "float32", "precision", f"be float32 beside dtype {dtype}", name)


@contextmanager
def arithmetic(name: str) -> Iterator[None]:
    """Products of float32 matrices and convolutions of CUDA as ``name`` says, for all of the process.

    torch rounds convolutions to TF32 unless it is told not to; here "float32" means that nothing is rounded.
    """
    matrices, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        torch.backends.cudnn.allow_tf32 = convolutions
