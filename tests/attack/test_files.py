"""Datasets, the dataset cache and partition files with bytes flipped, cut, added, swapped: refused or without effect.

The content is published or has a digest, so a change is told or changes no tensor. Files of a user's own are in
test_own_formats.py. No file takes memory that it cannot fill.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.data import Dataset, federate, load, load_partition, save_partition
from fedskew.data.arrays import build
from fedskew.data.counts import read_counts
from fedskew.data.encoding import Column, Encoding
from fedskew.data.sources import cache
from fedskew.data.sources.files import SplitFacts, md5_of, rows_digest
from fedskew.data.sources.published import IDX, Cifar10, Cifar100, Mnist
from fedskew.errors import DataError
from support.attack import Line, some
from support.bounds import bounded
from support.data_files import idx, write_parquet

SHORT, FULL = 60, 2000  # attacks on one file


def same(a: Dataset, b: Dataset) -> bool:
    """Whether two datasets are equal: tensors, by their fingerprint, and facts."""
    facts = ("fingerprint", "classes", "label_names", "column_names", "encoding", "name")
    return all(getattr(a, n) == getattr(b, n) for n in facts)


def permuted(a: Dataset, b: Dataset) -> bool:
    """Whether only rows stand in another order, which the verification of published sets allows, and notes name."""

    def rows(data: Dataset) -> list[str]:
        return [rows_digest(x.numpy(), y.numpy()) for x, y in ((data.x, data.y), (data.x_test, data.y_test))]

    return rows(a) == rows(b)


def attacked(line: Line, file: Path, other: Path, read: Callable[[], Dataset], seed: int) -> None:
    """Strike a file in every way; reading it raises one line or gives the same dataset."""
    whole, raw = read(), other.read_bytes()

    def fine(given: Any) -> bool:
        equal = isinstance(given, Dataset) and (same(given, whole) or permuted(given, whole))
        return equal or (isinstance(given, DataError) and "\n" not in str(given))

    line.strike(file, raw, some(SHORT, FULL), read, fine, seed)
    assert same(read(), whole)


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read decodes."""
    monkeypatch.setattr(cache, "fetch", lambda key: None)
    monkeypatch.setattr(cache, "store", lambda key, data: None)


def facts_of(x: np.ndarray, y: np.ndarray) -> SplitFacts:
    return SplitFacts(len(y), rows_digest(x, y), md5_of(y.astype(np.uint8)))


def images(rows: int, seed: int, shape: tuple[int, ...] = (1, 28, 28)) -> tuple[np.ndarray, np.ndarray]:
    gen = np.random.Generator(np.random.PCG64(seed))
    return gen.integers(0, 256, (rows, *shape)).astype(np.uint8), (np.arange(rows) % 10).astype(np.uint8)


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files(tmp_path: Path, zipped: bool, no_cache: None) -> None:
    import gzip

    (x, y), (x_test, y_test) = images(10, 0), images(10, 1)
    arrays = (x[:, 0], y, x_test[:, 0], y_test)
    names = [f"{name}.gz" if zipped else name for name in IDX]
    pack = (lambda raw: gzip.compress(raw, mtime=0)) if zipped else (lambda raw: raw)
    for name, array in zip(names, arrays, strict=True):
        (tmp_path / name).write_bytes(pack(idx(array)))
    kind = type("Small", (Mnist,), {"known": (facts_of(x, y), facts_of(x_test, y_test))})
    with Line("files", f"idx{', gzipped' * zipped}") as line, bounded():
        for i, name in enumerate(names):
            attacked(line, tmp_path / name, tmp_path / names[i - 2], lambda: kind().load(str(tmp_path)), i)


def _cifar(kind: type, folder: Path, each: int) -> type:
    """Small official batches in a folder, and the set whose published content they are."""
    files, width = kind.batches, len(kind.y_columns)  # type: ignore[attr-defined]
    parts = [images(each, i, (3, 32, 32)) for i in range(len(files))]
    for name, (x, y) in zip(files, parts, strict=True):
        labels = [y // 2, y][-width:]
        (folder / name).write_bytes(np.column_stack([*map(np.uint8, labels), x.reshape(len(x), -1)]).tobytes())
    train = [np.concatenate(column) for column in zip(*parts[:-1], strict=True)]
    return type("Small", (kind,), {"known": (facts_of(*train), facts_of(*parts[-1])), "decoded_jpegs": ""})


@pytest.mark.parametrize("kind", [Cifar10, Cifar100])
def test_cifar_batches(tmp_path: Path, kind: type, no_cache: None) -> None:
    small = _cifar(kind, tmp_path, 10)
    files = kind.batches  # type: ignore[attr-defined]
    with Line("files", f"{kind.name} batches") as line, bounded():  # type: ignore[attr-defined]
        for i, name in enumerate((files[0], files[-1])):
            attacked(line, tmp_path / name, tmp_path / files[1], lambda: small().load(str(tmp_path)), i)


def test_parquet_files(tmp_path: Path, no_cache: None) -> None:
    pytest.importorskip("pyarrow")
    parts = {split: images(10, i, (32, 32, 3)) for i, split in enumerate(("train", "test"))}
    for split, (x, y) in parts.items():
        write_parquet(tmp_path / f"{split}-00000-of-00001.parquet", x, label=y.astype(np.int64))
    facts = [facts_of(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), y) for x, y in parts.values()]
    kind = type("Small", (Cifar10,), {"known": tuple(facts), "decoded_jpegs": ""})
    files = sorted(tmp_path.glob("*.parquet"))
    with Line("files", "parquet") as line, bounded():
        for i, file in enumerate(files):
            attacked(line, file, files[i - 1], lambda: kind().load(str(tmp_path)), i)


def test_the_dataset_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path))
    gen = np.random.Generator(np.random.PCG64(0))
    columns = (Column("age", mean=3.0, std=2.0), Column("sex", ("f", "m")), Column("dose"))
    for name in ("one", "two"):
        site = list("abcde" * 8)
        made = build(
            name, gen.normal(size=(40, 4)), np.arange(40) % 2, label_names=("no", "yes"), columns={"site": site},
            encoding=Encoding(columns, label="ill"), source="made up", notes=("a note",),
        )  # fmt: skip
        cache.store(name, made)
    whole, file = cache.fetch("one"), tmp_path / "one.safetensors"
    assert whole is not None

    def fine(given: Any) -> bool:
        return given is None or (isinstance(given, Dataset) and same(given, whole) and given.notes == whole.notes)

    other = (tmp_path / "two.safetensors").read_bytes()
    with Line("files", "dataset cache") as line, bounded():
        line.strike(file, other, some(300, 3 * FULL), lambda: cache.fetch("one"), fine)


@pytest.mark.parametrize("tested", [False, True])
def test_partition_files(tmp_path: Path, tested: bool) -> None:
    path, options = tmp_path / "split.npz", {"local_test": 0.2} if tested else {"validation": 0.1}
    other = tmp_path / "other.npz"
    save_partition(path, federate("digits", "dirichlet", clients=5, **options))
    save_partition(other, federate("digits", "dirichlet", clients=5, seed=1, **options))
    wholes = load_partition(path), load_partition(other)

    def fine(given: Any) -> bool:
        return isinstance(given, DataError) or any(_equal(given, whole) for whole in wholes)

    with Line("files", f"partition{', with a local test' * tested}") as line, bounded():
        line.strike(path, other.read_bytes(), some(300, FULL), lambda: load_partition(path), fine)


def _equal(a: Any, b: Any) -> bool:
    """Whether two partition files say the same."""
    arrays = [
        (x, y)
        for part in ("partition", "local_test")
        for x, y in zip(getattr(a, part) or (), getattr(b, part) or (), strict=True)
    ]
    arrays += [(getattr(a, n), getattr(b, n)) for n in ("labels", "validation_rows", "auxiliary_rows")]
    return a.header == b.header and a.client_names == b.client_names and all(np.array_equal(x, y) for x, y in arrays)


# Files made to take all memory


def head(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    """An npy file's head that declares an array, without the array."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


def npz(folder: Path, how: int = zipfile.ZIP_STORED, **members: bytes) -> Path:
    path = folder / "huge.npz"
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def labels_npy(values: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def bombs(folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """(what it declares, what reads it)."""
    y = labels_npy(np.arange(20) % 2)
    x = labels_npy(np.ones((20, 2)))
    for shape, descr in (
        ((10**6, 10**6, 20), "|u1"),
        ((2**62, 2**62), "<f8"),
        ((10**13,), "|S0"),
        ((5,), "<U2000000000"),
    ):
        path = str(npz(folder, x=head(shape, descr), y=y))
        yield f"npz of {shape} {descr}", lambda path=path: load("npz", path)
        (folder / "huge.npy").write_bytes(head(shape, descr))
        yield f"npy of {shape} {descr}", lambda: read_counts(folder / "huge.npy")
    path = str(npz(folder, zipfile.ZIP_DEFLATED, x=head((2_500_000_000_000,)) + bytes(1 << 20), y=y))
    yield "npz, deflated", lambda: load("npz", path)
    raw = bytearray(npz(folder, x=head((2_500_000_000_000,)), y=y).read_bytes())
    at = raw.rindex(b"PK\x01\x02", 0, raw.rindex(b"PK\x01\x02"))
    raw[at + 20 : at + 28] = struct.pack("<II", 0xFFFFFFF0, 0xFFFFFFF0)  # the directory's sizes of x
    (folder / "lying.npz").write_bytes(raw)
    yield "npz whose directory lies", lambda: load("npz", str(folder / "lying.npz"))
    for value in (9_000_000_000, 2**62, -(2**63), 1e300, 9e18, -1e300, np.uint64(2**64 - 1)):
        path = str(npz(folder, x=x, y=labels_npy(np.append(np.array([0, 1] * 9 + [0], np.array(value).dtype), value))))
        yield f"label {value}", lambda path=path: load("npz", path)
    for label in ("9000000000", "1e300", "9" * 300):
        (folder / "far.csv").write_text("a,label\n" + "1,0\n2,1\n" * 20 + f"3,{label}\n")
        yield f"csv, label {label[:20]}", lambda: load("csv", str(folder / "far.csv"))
    (folder / "wide.csv").write_text("a,label\n" + "1,x\n2,y\n" * 20_000 + f"3,{'z' * 100_000}\n")
    yield "csv, one cell of 100 000 characters among 40 000", lambda: load("csv", str(folder / "wide.csv"))
    (folder / "counts.csv").write_text("1e300,2\n3,4\n")
    yield "counts 1e300", lambda: read_counts(folder / "counts.csv")
    sizes = struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    for name, bad in (
        ("far", sizes),
        ("none", struct.pack(">4B3I", 0, 0, 8, 3, 0, 2**32 - 1, 2**32 - 1)),
        ("axes", b"\x00\x00\x08\xff" + bytes(1020)),
    ):
        place = folder / f"idx-{name}"
        place.mkdir()
        for file in IDX:
            (place / file).write_bytes(bad)
        yield f"idx, {name}", lambda place=place: load("mnist", str(place), verify=False)


def test_files_that_declare_more_than_they_hold(tmp_path: Path, no_cache: None) -> None:
    with Line("files", "declares more than memory") as line, bounded(1 << 30):
        for what, read in bombs(tmp_path):
            line.refused(what, read)


def test_headers_that_are_nested_deep(tmp_path: Path) -> None:
    path = tmp_path / "split.npz"
    save_partition(path, federate("digits", "iid", clients=3))
    with np.load(path) as file:
        arrays = dict(file)
    deep = "[" * 50_000
    with Line("files", "JSON nested 50 000 deep") as line, bounded():
        for text in (deep, deep + "]" * 50_000, '{"a":' * 50_000, json.dumps({"format": "fedskew-partition"}) + deep):
            np.savez(path, **{**arrays, "header": np.frombuffer(text.encode(), np.uint8)})
            line.refused(f"header {text[:9]}", lambda: load_partition(path))
