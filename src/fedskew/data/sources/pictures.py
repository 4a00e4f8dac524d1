"""Pictures of the formats that Pillow decodes by itself, as arrays of one kind: grey or colour, of 8 bits or more."""

import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedskew.data.sources.files import reading
from fedskew.data.values import allowed
from fedskew.errors import afford, claim, of_extra, opened, plural, some

ImageMode = Literal["L", "RGB"]
Background = Literal["white", "black", "grey"]
ORIENTATION = 0x0112  # the tag of EXIF
WHITE_IS, FORMAT, SIGNED = 262, 339, 2  # tags of TIFF: whether white is 0, and what numbers are
DEEP = 65535.0  # the largest grey of 16 bits
GREY = ("1", "L", "LA", "La")
BESIDE = {"BUFR", "EPS", "FITS", "GRIB", "HDF5", "MPEG", "WMF"}  # of other programs, or with a scale that Pillow drops


class _Coloured(Exception):
    """A picture has colours and the first is grey."""


def pillow() -> tuple[Any, list[str]]:
    """(PIL.Image, the formats that are read). Raises DataError without the extra `hub`."""
    image = of_extra("hub", "PIL.Image", "decoding images")
    image.init()
    return image, [kind for kind in image.ID if kind not in BESIDE]


def endings() -> set[str]:
    """Endings of the files that are read as pictures, in lower case."""
    image, formats = pillow()
    return {ending for ending, kind in image.registered_extensions().items() if kind in (*formats, "MPO")}


def decode_images(
    encoded: Sequence[bytes | Path], what: str, mode: ImageMode | None = None, size: int = 0,
    background: Background = "white", account: list[str] | None = None,
) -> np.ndarray:  # fmt: skip
    """Decode pictures.

    An orientation of EXIF is applied, what is transparent is laid on the background, and of several frames the first is
    read. Grey of 16 bits, also of 12 bits in such a file, becomes float32, the value divided by 65535; floats stay.

    Args:
        encoded: Pictures as bytes or as files.
        what: Their name in error messages.
        mode: "L" makes all pictures grey, "RGB" gives them three channels; None: grey where all are grey, else RGB.
        size: Pixels a side to which each picture is scaled, bilinear; 0 leaves them as they are.
        background: Colour behind what is transparent.
        account: What was read is added to it.

    Returns:
        [n, channels, H, W], uint8, or float32 where pictures have more than 8 bits.

    Raises:
        DataError: A picture is damaged, has another size or depth than the first, or is one of 16 bits a colour.
    """
    library, formats = pillow()
    claim(len(encoded), what, "have rows", "none")

    def place(row: int) -> str:
        content = encoded[row]
        return f"row {row}" if isinstance(content, bytes) else f"'{content}'"

    def decode(row: int) -> tuple[np.ndarray, str, list[str]]:
        content = encoded[row]
        with (
            reading(what, f"has no readable image in {place(row)}, mend it or take it out"),
            io.BytesIO(content) if isinstance(content, bytes) else opened(content) as file,
            library.open(file, formats=formats) as image,
        ):
            return _pixels(image, common or _kind(image.mode), size, background)

    common: ImageMode | None = mode
    with warnings.catch_warnings(action="ignore"):  # of Pillow, about tags of damaged files
        first, first_mode, _ = decode(0)
    _bounded(len(encoded) * first.nbytes, encoded, what, size)
    common = "L" if first.ndim == 2 else "RGB"
    out, modes, changes = np.empty((len(encoded), *first.shape), first.dtype), Counter[str](), Counter[str]()

    def fill(row: int) -> tuple[str, list[str]]:
        image, file_mode, changed = decode(row)
        if mode is None and common == "L" and _kind(file_mode) == "RGB":
            raise _Coloured
        depths = f"{place(row)} is {_depth(file_mode)}, {place(0)} is {_depth(first_mode)}"
        alike = _depth(file_mode) == _depth(first_mode)
        claim(alike, what, f"have images of one depth; {depths}", hint="store all with the same bits")
        sizes = f"{place(row)} is {image.shape[1]}x{image.shape[0]}, {place(0)} is {first.shape[1]}x{first.shape[0]}"
        claim(image.shape == first.shape, what, f"have images of one size; {sizes}")
        out[row] = image
        return file_mode, changed

    try:
        with (
            warnings.catch_warnings(action="ignore"),
            ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool,  # Pillow releases the lock while it decodes
        ):
            for file_mode, changed in pool.map(fill, range(len(encoded))):
                modes[file_mode] += 1
                changes.update(changed)
    except _Coloured:
        return decode_images(encoded, what, "RGB", size, background, account)
    if account is not None:
        kinds = some([f"{file_mode} ({count:,})" for file_mode, count in modes.most_common()])
        read = {"L": "grey", "RGB": "RGB"}[common] + (f", {_depth(first_mode)}" if out.dtype != np.uint8 else "")
        shape = f"{first.shape[1]}x{first.shape[0]} pixels{' after scaling' if size else ''}"
        account.append(f"pictures: {len(encoded):,} of {shape}, of the modes {kinds}, read as {read}")
        account.extend(f"{plural(count, 'picture')} {change}" for change, count in changes.items())
    return out[:, None] if out.ndim == 3 else np.ascontiguousarray(out.transpose(0, 3, 1, 2))


def _kind(mode: str) -> ImageMode:
    """Whether pictures of a mode of Pillow are grey."""
    return "L" if mode in GREY or _depth(mode) != "8 bits" else "RGB"


def _depth(mode: str) -> str:
    """What a picture of a mode of Pillow has for each pixel and channel."""
    return "floats" if mode == "F" else "more than 8 bits, divided by 65535" if mode.startswith("I") else "8 bits"


def _pixels(image: Any, mode: ImageMode, size: int, background: Background) -> tuple[np.ndarray, str, list[str]]:
    """(pixels [H, W] or [H, W, 3], mode of the file, what was changed). Raises ValueError for 16 bits a colour."""
    from PIL import Image, ImageOps

    stored, changed = image.mode, []
    # Pillow drops the lower byte of each channel where the raw mode is of 16 bits, or a PPM counts beyond 255
    wide = [re.search(";16[BLN]", str(tile[3])) or (tile[0] == "ppm" and tile[3][-1] > 255) for tile in image.tile]
    if _depth(stored) == "8 bits" and any(wide):
        raise ValueError("it has 16 bits a colour, of which Pillow keeps 8; store it with 8 bits, or as arrays in npz")
    tags, deep = getattr(image, "tag_v2", {}), _depth(stored) != "8 bits"
    if (deep and tags.get(WHITE_IS) == 0) or (not deep and SIGNED in np.atleast_1d(tags.get(FORMAT, 1))):
        raise ValueError("its numbers are turned or signed, which Pillow does not heed; store it anew, with black as 0")
    if getattr(image, "is_animated", False):
        changed.append("of several frames, of which the first is read")
    if image.getexif().get(ORIENTATION, 1) in range(2, 9):
        changed.append("turned as EXIF says")
    image.load()
    ImageOps.exif_transpose(image, in_place=True)
    if _depth(stored) != "8 bits":
        image = (image.convert("I") if stored.startswith("I;") else image).convert("F")
        image = image.resize((size, size), Image.Resampling.BILINEAR) if size else image
        grey = np.asarray(image) / np.float32(1.0 if stored == "F" else DEEP)
        return grey if mode == "L" else np.repeat(grey[..., None], 3, axis=-1), stored, changed
    palette = image.palette.mode if stored == "P" else ""
    if "transparency" in image.info or stored in ("La", "LA", "PA", "RGBA", "RGBa") or palette.endswith("A"):
        image = (image.convert("LA") if stored == "La" else image).convert("RGBA")
        if image.getchannel("A").getextrema()[0] < 255:
            changed.append(f"with transparency, laid on {background}")
            image = Image.alpha_composite(Image.new("RGBA", image.size, background), image)
    image = image.convert("RGB") if image.mode in ("CMYK", "P", "YCbCr", "LAB", "HSV") else image
    image = image.convert(mode)
    image = image.resize((size, size), Image.Resampling.BILINEAR) if size else image
    return np.asarray(image), stored, changed


def _bounded(total: int, encoded: Iterable[bytes | Path], what: str, size: int) -> None:
    """Raise DataError for images that all together are more than their files may become, or than the memory holds."""
    sizes = [len(raw) if isinstance(raw, bytes) else raw.stat().st_size if raw.is_file() else 0 for raw in encoded]
    most, got = allowed(sum(sizes)), f"{len(sizes)} images of the first one's size are {total:,} bytes"
    claim(size or total <= most, what, f"be images of at most {most:,} bytes when they are decoded; {got}")
    afford(total, what, "a smaller size needs less" if size else "")
