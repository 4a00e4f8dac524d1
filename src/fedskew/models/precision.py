"""Arithmetic inside a network: exact float32, TensorFloat-32 products, bfloat16 by torch's autocast; no denormals."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
FLOATS = {torch.float16, *DTYPES.values()}  # that weights in a file may have
NARROW = {"float32": None, "tf32": None, "bfloat16": torch.bfloat16}  # autocast's type by name of the precision


@contextmanager
def arithmetic(name: str, deterministic: bool = True) -> Iterator[None]:
    """Set how numbers are computed inside a `with` block: by CUDA for the whole process, on a CPU by this thread.

    By default torch rounds convolutions to TF32. Here "float32" rounds nothing. Where convolutions sum in a fixed
    order, a run repeats its own bits on one kind of GPU, and a resumed run has those of a run that was not stopped. On
    a CPU, denormal numbers are 0 (`flushed`).

    Args:
        name: "float32", "tf32" or "bfloat16".
        deterministic: whether convolutions on a GPU sum in a fixed order.

    Yields:
        None. The old settings come back at the end of the block.
    """
    cudnn = torch.backends.cudnn
    matrices, convolutions, repeats = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    cudnn.allow_tf32, cudnn.deterministic = name == "tf32", deterministic
    denormals = not flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(not denormals)
        torch.set_float32_matmul_precision(matrices)
        cudnn.allow_tf32, cudnn.deterministic = convolutions, repeats


def flushed() -> bool:
    """Whether this thread's processor takes denormal numbers for 0. torch can set that, and does not tell it.

    A client that knows its only label has gradients near 0, and most processors take many times as long for a denormal
    number. They are below 1.2e-38 in float32: as 0 they change no digit of a result.
    """
    return sys.float_info.min / 2 == 0.0
