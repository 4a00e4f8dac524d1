"""Encoded images, PNG, WebP or JPEG, as arrays."""

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np

from fedskew.data.sources.files import EXTRA
from fedskew.data.values import afford, allowed
from fedskew.errors import DataError, one_line, opened

ImageMode = Literal["L", "RGB"]


def decode_images(
    encoded: Sequence[bytes | Path], what: str, mode: ImageMode | None = None, size: int = 0
) -> np.ndarray:
    """Decode PNG, WebP or JPEG images.

    Args:
        encoded: Images as bytes or as files.
        what: Their name in error messages.
        mode: "L" makes all images grey, "RGB" gives them three channels; None takes the first image's mode.
        size: Pixels a side to which each image is scaled, bilinear; 0 leaves images as they are.

    Returns:
        uint8 [n, channels, H, W].

    Raises:
        DataError: An image is damaged, or has another size than the first.
    """
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"decoding images needs the extra hub: {EXTRA}") from None
    if not encoded:
        raise DataError(f"{what} must have rows; got none")

    def place(row: int) -> str:
        content = encoded[row]
        return f"row {row}" if isinstance(content, bytes) else f"'{content}'"

    def decode(row: int, mode: str | None) -> np.ndarray:
        content = encoded[row]
        try:
            with (
                io.BytesIO(content) if isinstance(content, bytes) else opened(content) as file,
                Image.open(file) as image,
            ):
                mode = mode or ("L" if image.mode in ("1", "L") else "RGB")
                made = image.convert(mode)
                return np.asarray(made.resize((size, size), Image.Resampling.BILINEAR) if size else made)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"{what} has no readable image in {place(row)}: {one_line(error)}") from None

    first = decode(0, mode)
    _bounded(len(encoded) * first.nbytes, encoded, what, size)
    common = "L" if first.ndim == 2 else "RGB"
    out = np.empty((len(encoded), *first.shape), np.uint8)

    def fill(row: int) -> None:
        image = decode(row, common)
        if image.shape != first.shape:
            sizes = f"{image.shape[1]}x{image.shape[0]}, {place(0)} is {first.shape[1]}x{first.shape[0]}"
            raise DataError(f"{what} must have images of one size; {place(row)} is {sizes}")
        out[row] = image

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # Pillow releases the lock while it decodes
        for _ in pool.map(fill, range(len(encoded))):
            pass
    return out[:, None] if out.ndim == 3 else np.ascontiguousarray(out.transpose(0, 3, 1, 2))


def _bounded(total: int, encoded: Sequence[bytes | Path], what: str, size: int) -> None:
    """Raise DataError for images that all together are more than their files may become, or than the memory holds."""
    held = sum(len(one) if isinstance(one, bytes) else one.stat().st_size if one.is_file() else 0 for one in encoded)
    if not size and total > allowed(held):
        told = f"{len(encoded)} images of the first one's size are {total:,} bytes"
        raise DataError(f"{what} must be images of at most {allowed(held):,} bytes when they are decoded; {told}")
    afford(total, what, "a smaller size needs less" if size else "")
