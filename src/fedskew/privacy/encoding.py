"""Numbers as whole numbers modulo a power of two: what masks hide without a trace, and what adds up exactly."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedskew.errors import TrainingError
from fedskew.fields import Above, Checked, Within, demand

Words = npt.NDArray[Any]  # unsigned whole numbers of 4 or 8 bytes


@dataclass(frozen=True)
class FixedPoint(Checked):
    """Fixed-point numbers modulo 2^bits.

        e(x) = round(x 2^fraction) mod 2^bits,   -range <= x <= range

    Half a unit is rounded to even. The sum of K encoded numbers is decoded as a whole number in [-2^(bits-1),
    2^(bits-1)) times 2^-fraction, and differs from the sum of the numbers by at most

        K 2^-(fraction + 1)

    and the rounding of the result to float64, which is none below 2^(53 - fraction). A sum that might not fit is
    refused before it begins, and a number outside the range is an error: nothing wraps.

    The modulus is a power of two, so that the arithmetic of the machine is that of the group, and each bit of a random
    stream is a bit of a mask. 64 bits hold counts and updates alike. 32 bits have the bytes of float32; then range,
    fraction and the number of clients share 31 bits. Up to 32 bits travel in 4 bytes, more in 8.

    Raises:
        FieldError: A field breaks its limit, or the modulus cannot hold the range.

    Example:
        >>> coarse = FixedPoint(bits=8, fraction=2, range=3.0)
        >>> words = coarse.encode([torch.tensor([1.3, -0.5])])
        >>> words  # round(5.2), and round(-2) modulo 256
        array([  5, 254], dtype=uint32)
        >>> coarse.decode(coarse.wrap(words + words), [(2,)])  # the sum of two clients; 2.6 is off by 0.1
        [tensor([ 2.5000, -1.0000], dtype=torch.float64)]
        >>> coarse.error(clients=2)
        0.25
    """

    bits: Annotated[int, Within(2, 64)] = 64
    """bits of the modulus"""
    fraction: Annotated[int, Within(0, 62)] = 28
    """bits after the point"""
    range: Annotated[float, Above(0)] = 2.0**20
    """largest absolute value of an input"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hold(1)

    @property
    def word(self) -> np.dtype[Any]:
        """The type of encoded numbers in memory and in messages."""
        return np.dtype("<u4" if self.bits <= 32 else "<u8")

    def error(self, clients: int) -> float:
        """The largest absolute error of a sum over so many clients, before its rounding to float64."""
        return clients * 2.0 ** -(self.fraction + 1)

    def hold(self, clients: int) -> None:
        """Raise FieldError unless the modulus holds each sum of so many inputs."""
        needed = (clients * round(self.range * 2.0**self.fraction)).bit_length() + 1
        hint = "set a smaller range or fraction" + "; or 64 bits" * (self.bits < needed <= 64)
        demand(self, "bits", needed <= self.bits, f"be at least {needed} for a sum over {clients:,} inputs", hint)

    def wrap(self, words: Words) -> Words:
        """Words modulo 2^bits."""
        wrapped: Words = words & self.word.type(2**self.bits - 1)
        return wrapped

    def encode(self, tensors: Sequence[Tensor], owner: str = "the inputs") -> Words:
        """All numbers of some tensors, in their order, as one array [M].

        Args:
            tensors: Tensors of real numbers, of any shapes and types.
            owner: Whose they are, for the error.

        Raises:
            TrainingError: A number is outside the range, or not finite.
        """
        pieces = []
        for i, tensor in enumerate(tensors):
            values = tensor.detach().cpu().double().reshape(-1).numpy()
            inside = np.abs(values) <= self.range  # NaN is not
            if not inside.all():
                got = float(values[~inside][0])
                rule = f"tensor {i} of {owner} must be in [-{self.range:g}, {self.range:g}], the range of a secure sum"
                raise TrainingError(f"{rule}; got {got:g}" + "; set a larger range" * math.isfinite(got))
            pieces.append(np.rint(values * 2.0**self.fraction).astype(np.int64))
        return self.wrap(np.concatenate(pieces).view(np.uint64).astype(self.word))

    def decode(self, words: Words, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """A sum of encoded tensors as float64 tensors of these shapes; undoes `encode` up to its error."""
        spare = 64 - self.bits  # a shift to the left and back copies the sign into the bits above the modulus
        whole = (words.astype(np.uint64) << np.uint64(spare)).view(np.int64) >> np.int64(spare)
        flat = torch.from_numpy(whole * 2.0**-self.fraction)
        pieces = torch.split(flat, [math.prod(shape) for shape in shapes])
        return [piece.reshape(tuple(shape)) for piece, shape in zip(pieces, shapes, strict=True)]
