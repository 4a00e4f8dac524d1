"""Small files of the formats that datasets are published in, and the one line that a bad one gets."""

from __future__ import annotations

import gzip
import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources.published import IDX
from fedskew.errors import DataError, FedskewError
from support.command import refused

WNIDS = ("n02124075", "n04067472", "n01443537")  # not sorted, as in the official list
GEN = np.random.Generator(np.random.PCG64(0))


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    text = str(error.value)
    assert "\n" not in text and text
    return text


def fails(
    name: str, path: Path | str | None, *parts: str, kind: type[FedskewError] = DataError, **options: Any
) -> None:  # fmt: skip
    """Loading raises an error of this kind, of one line that says all of this."""
    refused(lambda: load(name, None if path is None else str(path), **options), *parts, kind=kind)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(
    folder: Path,
    zipped: bool = True,
    rows: tuple[int, int] = (20, 10),
    names: Sequence[str] = IDX,
    classes: int = 10,
) -> list[np.ndarray]:
    """Images and labels 0..C-1 in turn, of a training and a test set."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = []
    for n in rows:
        arrays += [GEN.integers(0, 256, (n, 28, 28)).astype(np.uint8), (np.arange(n) % classes).astype(np.uint8)]
    for name, array in zip(names, arrays, strict=True):
        raw = idx(array)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(raw) if zipped else raw)
    return arrays


def encoded(image: np.ndarray, kind: str, **how: Any) -> bytes:
    """The bytes of an image file; WEBP is lossless."""
    out = io.BytesIO()
    how |= {"lossless": True} if kind == "WEBP" else {}
    pytest.importorskip("PIL.Image").fromarray(image).save(out, kind, **how)
    return out.getvalue()


def decoded(content: bytes) -> torch.Tensor:
    """What Pillow makes of a JPEG, as [3, H, W]."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(content)).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def write_parquet(file: Path, images: np.ndarray, kind: str = "PNG", raw: bool = False, **labels: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    column = labels.pop("column", "img")
    content = [encoded(image, kind) for image in images]
    cells = content if raw else [{"bytes": c, "path": None} for c in content]
    pq.write_table(pa.table({column: cells, **labels}), file, row_group_size=3)


def write_split(
    folder: Path, split: str, images: list[np.ndarray], labels: Any, names: list[str] | None = None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"image": [{"bytes": encoded(i, "PNG"), "path": None} for i in images], "label": labels})
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")
