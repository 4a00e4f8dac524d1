"""Datasets: made-up files of every format, what is refused, the cache, and the real files where they are."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import sys
import tarfile
import types
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data import DATASETS, Dataset, from_arrays, load
from fedskew.data.arrays import build, channel_statistics
from fedskew.data.sources import cache, parquet, readers
from fedskew.data.sources.files import rows_digest
from fedskew.data.sources.images import DECODED_JPEGS, IDX
from fedskew.errors import ConfigError, DataError

GEN = np.random.Generator(np.random.PCG64(0))


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's folders."""
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)


def one_line(error: pytest.ExceptionInfo[Exception]) -> str:
    text = str(error.value)
    assert "\n" not in text and text
    return text


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, zipped: bool = True, rows: tuple[int, int] = (20, 10)) -> list[np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    shapes = ((rows[0], 28, 28), (rows[0],), (rows[1], 28, 28), (rows[1],))
    arrays = [GEN.integers(0, 10 if len(s) == 1 else 256, s).astype(np.uint8) for s in shapes]
    for name, array in zip(IDX, arrays, strict=True):
        raw = idx(array)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(raw) if zipped else raw)
    return arrays


def batch(rows: int, labels: dict[str, int], protocol: int = 2) -> tuple[bytes, np.ndarray, dict[str, list[int]]]:
    x = GEN.integers(0, 256, (rows, 3072)).astype(np.uint8)
    y = {key: [i % top for i in range(rows)] for key, top in labels.items()}
    return pickle.dumps({"data": x, **y, "batch_label": "made up"}, protocol=protocol), x.reshape(-1, 3, 32, 32), y


def encoded(image: np.ndarray, kind: str) -> bytes:
    pil = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    pil.fromarray(image).save(out, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return out.getvalue()


def write_parquet(file: Path, images: np.ndarray, kind: str = "PNG", raw: bool = False, **labels: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    file.parent.mkdir(parents=True, exist_ok=True)
    column = labels.pop("column", "img")
    content = [encoded(image, kind) for image in images]
    cells = content if raw else [{"bytes": c, "path": None} for c in content]
    pq.write_table(pa.table({column: cells, **labels}), file, row_group_size=3)


# Arrays of the user's own.


def test_arrays_become_a_dataset_with_a_stratified_test_set() -> None:
    x, y = GEN.normal(size=(50, 3)), np.repeat([0, 1], [40, 10])
    made = from_arrays(x, y)
    assert made.x.dtype == torch.float32 and made.y.dtype == torch.int64
    assert torch.bincount(made.y_test).tolist() == [8, 2] and made.counts.tolist() == [32, 8]
    assert not made.test_is_official and made.classes == 2 and len(made.fingerprint) == 16
    again = from_arrays(torch.from_numpy(x), torch.from_numpy(y))
    assert again.fingerprint == made.fingerprint and torch.equal(again.x_test, made.x_test)
    assert from_arrays(x + 1, y).fingerprint != made.fingerprint


def test_the_rows_of_both_sets_are_those_given() -> None:
    x = np.arange(60.0)[:, None]
    made = from_arrays(x, np.arange(60) % 3, columns={"site": np.array(list("ab") * 30)})
    assert sorted([*made.x.flatten().tolist(), *made.x_test.flatten().tolist()]) == list(range(60))
    assert made.column_names == {"site": ("a", "b")}
    assert torch.equal(made.columns["site"], made.x.flatten().long() % 2)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((12, 8, 8), (1, 8, 8)), ((12, 3, 8, 8), (3, 8, 8)), ((12, 8, 8, 3), (3, 8, 8)), ((12, 8, 8, 1), (1, 8, 8))],
)
def test_uint8_arrays_are_images(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    made = from_arrays(GEN.integers(0, 256, shape).astype(np.uint8), np.arange(12) % 2)
    assert made.shape == expected and made.x.dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.arange(9) % 2}, "same number of rows; got 10 and 9"),
        ({"y": np.arange(10) % 2 + 1}, "without 0; give classes="),
        ({"y": np.arange(10) % 2 - 1}, "labels must be 0..C-1; got -1..0"),
        ({"y": np.arange(10) % 2 * 2}, "without 1"),
        ({"y": np.arange(10) % 2 + 0.5}, "whole labels"),
        ({"y": np.zeros((10, 2))}, "one label a row"),
        ({"y": np.zeros(10)}, "two classes"),
        ({"x": np.full((10, 2), np.nan)}, "10 rows with NaN or infinity, the first is row 0"),
        ({"x": np.zeros(10)}, "a row for each sample"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "must not be empty"),
        ({"x": np.zeros((10, 2, 2, 2, 2), np.uint8)}, "must be images"),
        ({"x": np.array([[object()]] * 10)}, "must hold numbers; got dtype object"),
        ({"x_test": np.zeros((4, 2))}, "y_test must be given with x_test"),
        ({"x_test": np.zeros((4, 3)), "y_test": [0, 1, 0, 1]}, "one shape"),
        ({"x_test": np.zeros((4, 2)), "y_test": [0, 1, 0, 2], "classes": 2}, "labels must be 0..1; got 0..2"),
        ({"columns": {"site": [1, 2]}}, "column 'site' must have one value a training row, 10; got 2"),
        ({"mean": (0.5,), "std": (0.5,)}, "mean and std must have 2 values"),
        ({"mean": (0.5, 0.5), "std": (0.5, 0.5)}, "for uint8 images"),
        ({"x": np.zeros((10, 2, 4, 4), np.uint8), "mean": (0.5,) * 2, "std": (0.5, 0.0)}, "std must be positive"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused(change: dict[str, Any], message: str) -> None:
    given = {"x": np.zeros((10, 2)), "y": np.arange(10) % 2} | change
    with pytest.raises(DataError) as error:
        from_arrays(**given)
    assert message in one_line(error)


def test_a_class_without_rows_is_allowed_when_the_classes_are_given() -> None:
    assert from_arrays(np.zeros((10, 2)), np.arange(10) % 2, classes=4).counts.tolist() == [4, 4, 0, 0]


def test_channel_statistics_are_those_of_the_pixels() -> None:
    x = torch.from_numpy(GEN.integers(0, 256, (9, 2, 5, 5)).astype(np.uint8))
    mean, std = channel_statistics(x)
    unit = x.double() / 255
    assert np.allclose(mean, unit.mean((0, 2, 3)), atol=1e-4)
    assert np.allclose(std, unit.std((0, 2, 3), correction=0), atol=1e-4)


# The table.


def test_a_typing_error_is_answered_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="unknown dataset 'cifr10'; did you mean 'cifar10'"):
        load("cifr10")
    with pytest.raises(ConfigError, match="dataset 'mnist' has no option 'normalise'; did you mean 'normalize'"):
        load("mnist", normalise="half")
    with pytest.raises(ConfigError, match=r"Digits\.normalize must be one of protocol, .*; did you mean 'half'"):
        load("digits", normalize="halve")
    with pytest.raises(ConfigError, match=r"Digits\.pad must be at least 0; got -1"):
        load("digits", pad=-1)


@pytest.mark.parametrize("name", DATASETS)
def test_every_source_is_a_frozen_value_with_documented_options(name: str) -> None:
    docstring_parser = pytest.importorskip("docstring_parser")
    source = DATASETS[name]
    assert source.name == name and source() == source() and name.split("_")[0] in repr(source()).lower()
    documented = {p.arg_name for p in docstring_parser.parse_from_object(source).params}
    inherited = {p.arg_name for base in source.__mro__[1:-1] for p in docstring_parser.parse_from_object(base).params}
    assert {f.name for f in fields(source)} <= documented | inherited


def test_digits_are_exact_and_need_no_file(_nowhere: None) -> None:
    made = load("digits")
    assert made.x.shape == (1438, 1, 8, 8) and made.x_test.shape == (359, 1, 8, 8) and not made.test_is_official
    values = made.x.unique()
    assert (values % 15 == 0).all() and values.max() == 240  # 16 grey levels above 0, times 15
    assert load("digits").fingerprint == made.fingerprint and made.mean == ()
    assert load("digits", pad=12).shape == (1, 32, 32)
    assert load("digits", normalize="half").mean == (0.5,) and load("digits", augment=True).augment == ("crop",)
    with pytest.raises(ConfigError, match=r"data\.path must be unset"):
        load("digits", "somewhere")


# idx files.


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "mnist"), ("fashion_mnist", "fashion-mnist"), ("mnist", ".")])
def test_idx_files_are_read_below_or_in_the_folder(tmp_path: Path, name: str, folder: str, zipped: bool) -> None:
    arrays = write_idx(tmp_path / folder, zipped)
    made = load(name, str(tmp_path), verify=False)
    assert torch.equal(made.x[:, 0], torch.from_numpy(arrays[0])) and made.y.tolist() == arrays[1].tolist()
    assert torch.equal(made.x_test[:, 0], torch.from_numpy(arrays[2])) and made.y_test.tolist() == arrays[3].tolist()
    assert made.classes == 10 and made.test_is_official and "not compared" in made.notes[0]


def test_the_environment_names_the_folder_and_the_argument_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_idx(tmp_path / "a" / "mnist", rows=(20, 10))
    write_idx(tmp_path / "b" / "mnist", rows=(30, 10))
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "a"))
    assert len(load("mnist", verify=False).y) == 20
    assert len(load("mnist", str(tmp_path / "b"), verify=False).y) == 30
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path / "c"))
    with pytest.raises(DataError, match="FEDSKEW_DATA must name a folder or file that exists"):
        load("mnist")


def test_normalisation_padding_and_augmentation_are_options(tmp_path: Path) -> None:
    write_idx(tmp_path)
    given = {"path": str(tmp_path), "verify": False}
    assert load("mnist", **given).mean == (0.1307,) and load("mnist", **given).std == (0.3081,)
    assert load("fashion_mnist", **given).std == (0.5,) and load("mnist", normalize="none", **given).mean == ()
    measured = load("mnist", normalize="channel", **given)
    assert measured.mean == channel_statistics(measured.x)[0]
    padded = load("mnist", pad=2, **given)
    assert padded.shape == (1, 32, 32) and padded.x[:, :, :2].sum() == 0
    assert torch.equal(padded.x[:, :, 2:-2, 2:-2], measured.x) and padded.fingerprint != measured.fingerprint
    assert load("mnist", **given).augment == () and load("mnist", augment=True, **given).augment == ("crop",)
    assert load("fashion_mnist", augment=True, **given).augment == ("crop", "flip")


def test_altered_truncated_and_missing_idx_files_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path)
    images = tmp_path / f"{IDX[0]}.gz"
    with pytest.raises(DataError) as error:
        load("mnist", str(tmp_path))
    assert str(images) in one_line(error) and "expected 60000 training rows, got 20" in str(error.value)
    assert "f68b3c2dcbeaaa9fbdd348bbdeb94873" in str(error.value)
    whole = images.read_bytes()
    images.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError) as error:
        load("mnist", str(tmp_path))
    assert "is damaged" in one_line(error) and "expected md5 f68b3c2dcbeaaa9fbdd348bbdeb94873" in str(error.value)
    images.write_bytes(gzip.compress(gzip.decompress(whole)[:-5]))
    with pytest.raises(DataError, match="truncated or altered: expected 15680 bytes of data, got 15675"):
        load("mnist", str(tmp_path), verify=False)
    images.write_bytes(b"no idx file")
    with pytest.raises(DataError, match="is not an idx file"):
        load("mnist", str(tmp_path), verify=False)
    images.unlink()
    with pytest.raises(DataError, match=f"lacks {IDX[0]}.gz"):
        load("mnist", str(tmp_path), verify=False)


def test_the_digest_does_not_depend_on_the_order_of_the_rows() -> None:
    x, y = GEN.integers(0, 256, (30, 4)).astype(np.uint8), np.arange(30) % 7
    order = GEN.permutation(30)
    assert rows_digest(x, y) == rows_digest(x[order], y[order]) != rows_digest(x, y[::-1])
    changed = x.copy()
    changed[3, 1] ^= 1
    assert rows_digest(x, y) != rows_digest(changed, y)


# CIFAR's pickles.

CIFAR = {
    "cifar10": ("cifar-10-batches-py", [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], {"labels": 10}),
    "cifar100": ("cifar-100-python", ["train", "test"], {"fine_labels": 100, "coarse_labels": 20}),
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("layout", ["folder", "direct", "archive", "file"])
@pytest.mark.parametrize("name", CIFAR)
def test_official_cifar_batches_are_read(tmp_path: Path, name: str, layout: str, protocol: int) -> None:
    folder, members, labels = CIFAR[name]
    made = [batch(20, labels, protocol) for _ in members]
    place = tmp_path / folder
    place.mkdir()
    for member, (raw, _, _) in zip(members, made, strict=True):
        (place / member).write_bytes(raw)
    path = {"folder": tmp_path, "direct": place}.get(layout, tmp_path / "tar")
    if path.name == "tar":
        path.mkdir()
        archive = path / f"{'cifar-10' if name == 'cifar10' else 'cifar-100'}-python.tar.gz"
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(place, folder)
        path = archive if layout == "file" else path
    got = load(name, str(path), verify=False)
    assert torch.equal(got.x, torch.from_numpy(np.concatenate([x for _, x, _ in made[:-1]])))
    assert torch.equal(got.x_test, torch.from_numpy(made[-1][1]))
    assert got.y.tolist() == [v for *_, y in made[:-1] for v in y[next(iter(labels))]]
    assert got.classes == next(iter(labels.values())) == len(got.label_names)


def test_python_two_batches_are_read() -> None:
    """Protocol 2 of Python 2 writes byte strings with SHORT_BINSTRING, and numpy under its old module name."""
    raw = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00" + bytes(3072) + b"tbU\x06labels]K\x07au."
    )
    x, (y,) = readers.read_cifar([("old", raw)], ["labels"])
    assert x.shape == (1, 3, 32, 32) and y.tolist() == [7]


def test_cifar100_has_coarse_labels_and_superclasses_as_clients(tmp_path: Path) -> None:
    for member in ("train", "test"):
        (tmp_path / member).write_bytes(batch(200, {"fine_labels": 100, "coarse_labels": 20})[0])
    fine, coarse = (load("cifar100", str(tmp_path), verify=False, coarse=c) for c in (False, True))
    assert (fine.classes, coarse.classes) == (100, 20) and coarse.label_names[0] == "aquatic_mammals"
    assert coarse.y.tolist() == [i % 20 for i in range(200)] == coarse.columns["coarse_label"].tolist()
    assert fine.column_names["coarse_label"] == coarse.label_names


class Runs:
    """What a malicious pickle does: it names a callable and its arguments."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


def _malicious(mark: Path) -> list[tuple[str, bytes]]:
    touch = f"open({str(mark)!r}, 'w').close()"
    calls = [(os.system, (f"touch {mark}",)), (eval, (touch,)), (exec, (touch,)), (getattr, ({}, "keys"))]
    values = [{"data": Runs(*call), "labels": [0]} for call in calls]
    values += [{"data": np.array([Runs(*calls[0])], dtype=object)}, {"data": Path("x")}, {Runs(*calls[1]): 1}]
    by_name = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    attribute = b"c_codecs\nencode\n}S'__code__'\nI1\nsb."
    return [*((f"{i}", pickle.dumps(v)) for i, v in enumerate(values)), ("name", by_name), ("attribute", attribute)]


@pytest.mark.parametrize("number", range(9))
def test_a_malicious_pickle_is_refused_and_never_run(tmp_path: Path, number: int) -> None:
    mark = tmp_path / "mark"
    _, raw = _malicious(mark)[number]
    for member in CIFAR["cifar10"][1]:
        (tmp_path / member).write_bytes(raw)
    with pytest.raises(DataError) as error:
        load("cifar10", str(tmp_path), verify=False)
    assert str(tmp_path / "data_batch_1") in one_line(error)
    assert not mark.exists()


def test_the_malicious_pickles_would_have_run(tmp_path: Path) -> None:
    """The oracle of the test above: Python's own loader does what they say."""
    mark = tmp_path / "mark"
    ran = []
    for _, raw in _malicious(mark)[:3]:
        pickle.loads(raw)
        ran.append(mark.exists())
        mark.unlink()
    assert ran == [True, True, True]


def test_damaged_batches_and_archives_are_refused(tmp_path: Path) -> None:
    raw = batch(4, {"labels": 4})[0]
    for content in (raw[:-200], b"", b"\x80\x04.", pickle.dumps([1]), pickle.dumps({"data": np.zeros((4, 9))})):
        with pytest.raises(DataError, match="one"):
            readers.read_cifar([("one", content)], ["labels"])
    with pytest.raises(DataError, match="'labels' with 4 labels"):
        readers.read_cifar([("one", pickle.dumps({"data": np.zeros((4, 3072), np.uint8), "labels": [1]}))], ["labels"])
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        info.size = len(raw)
        tar.addfile(info, io.BytesIO(raw))
    with pytest.raises(DataError, match="must hold 'cifar-10-batches-py/data_batch_2'"):
        load("cifar10", str(tmp_path))
    archive.write_bytes(archive.read_bytes()[:500])
    with pytest.raises(DataError, match="truncated or damaged"):
        load("cifar10", str(tmp_path))


# Parquet and the hub.


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("raw", [False, True])
def test_cifar_parquet_in_the_hub_s_layout(tmp_path: Path, kind: str, raw: bool) -> None:
    images = GEN.integers(0, 256, (12, 32, 32, 3)).astype(np.uint8)
    y = np.arange(12) % 10
    folder = tmp_path / "cifar10"
    for part in (0, 1):
        at = slice(5 * part, 5 * part + 5)
        write_parquet(folder / f"train-0000{part}-of-00002.parquet", images[at], kind, raw, label=y[at])
    write_parquet(folder / "test-00000-of-00001.parquet", images[10:], kind, raw, label=y[10:])
    made = load("cifar10", str(tmp_path), verify=False)
    assert torch.equal(made.x, torch.from_numpy(images[:10].transpose(0, 3, 1, 2).copy()))
    assert made.y.tolist() == list(range(10)) and made.y_test.tolist() == [0, 1]
    assert made.label_names[0] == "airplane" and made.x_test.shape == (2, 3, 32, 32)
    with pytest.raises(DataError, match="expected 50000 training rows, got 10"):
        load("cifar10", str(tmp_path))
    (folder / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(DataError, match=r"must hold 2 files train-\*\.parquet; got 1"):
        load("cifar10", str(tmp_path))


def test_parquet_files_of_any_folder(tmp_path: Path) -> None:
    images = GEN.integers(0, 256, (40, 6, 6)).astype(np.uint8)
    names = np.array(["cat", "ant"])[np.arange(40) % 2]
    write_parquet(tmp_path / "train.parquet", images, column="image", label=names)
    one = load("parquet", str(tmp_path / "train.parquet"))
    assert one.label_names == ("ant", "cat") and one.shape == (1, 6, 6) and one.counts.tolist() == [16, 16]
    write_parquet(tmp_path / "test.parquet", images[:4], column="image", label=names[:4])
    both = load("parquet", str(tmp_path), pad=1, normalize="half")
    assert both.test_is_official and both.shape == (1, 8, 8) and both.y_test.tolist() == [1, 0, 1, 0]
    with pytest.raises(ConfigError, match=r"unknown data\.y_column 'lable'; did you mean 'label'"):
        load("parquet", str(tmp_path), y_column="lable")


def test_number_columns_are_features(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = {"a": np.arange(10.0), "b": np.arange(10), "v": [[1.0, 2.0]] * 10, "y": np.arange(10) % 2}
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    made = load("parquet", str(tmp_path), x_column="a,b")
    assert made.x.shape == (8, 2) and torch.equal(made.x[:, 0], made.x[:, 1])
    assert load("parquet", str(tmp_path), x_column="v").x.shape == (8, 2)
    for options in ({"normalize": "half"}, {"augment": True}, {"pad": 2}):
        with pytest.raises(ConfigError, match="images"):
            load("parquet", str(tmp_path), x_column="a,b", **options)
    with pytest.raises(ConfigError, match=r"data\.x_column must name one of the columns a, b, v, y"):
        load("parquet", str(tmp_path))


def test_parquet_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    images = GEN.integers(0, 256, (6, 5, 5, 3)).astype(np.uint8)
    file = tmp_path / "train.parquet"
    write_parquet(file, images, label=np.arange(6) % 2)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train\.parquet is not a whole parquet file"):
        load("parquet", str(file))
    good = encoded(images[0], "PNG")
    other = encoded(images[0, :4], "PNG")
    cases = [
        ([good, b"junk"], "no readable image in row 1"),
        ([good, good[:40]], "no readable image in row 1"),
        ([good, other], "row 1 is 5x4, row 0 is 5x5"),
        ([good, None], "a value in every row; got 1 nulls"),
    ]
    for cells, message in cases:
        pq.write_table(pa.table({"img": cells, "label": [0, 1]}), file)
        with pytest.raises(DataError, match=message) as error:
            load("parquet", str(file))
        one_line(error)
    pq.write_table(pa.table({"x": [[1.0], [1.0, 2.0]], "label": [0, 1]}), file)
    with pytest.raises(DataError, match="lists of one length"):
        load("parquet", str(file))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real `datasets`, offline, with a cache of this test's own."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hf"))
    original = datasets.load_dataset
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: original(*a, cache_dir=str(tmp_path / "hf"), **k))
    return datasets


def test_the_hub_s_loader_on_local_files(tmp_path: Path, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    images = GEN.integers(0, 256, (20, 28, 28)).astype(np.uint8)
    repo = tmp_path / "repo"
    for split in ("train", "test"):
        write_parquet(
            repo / "data" / f"{split}-00000-of-00001.parquet", images, column="image", label=np.arange(20) % 10
        )
    tables = hub.load_dataset("parquet", data_files={s: str(repo / f"data/{s}-*.parquet") for s in ("train", "test")})
    assert tables["train"].num_rows == 20
    made = load("hub", str(repo))
    assert torch.equal(made.x[:, 0], torch.from_numpy(images)) and made.test_is_official and made.classes == 10
    with pytest.raises(ConfigError, match=r"unknown data\.test_split 'tset'; did you mean 'test'"):
        load("hub", str(repo), test_split="tset")
    features = hub.Features({"image": hub.Image(), "label": hub.ClassLabel(names=list("zyxwvutsrq"))})
    named = hub.DatasetDict({s: t.cast(features) for s, t in tables.items()})
    monkeypatch.setattr(hub, "load_dataset", lambda *_, **__: named)
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    assert load("hub", repo="someone/something").label_names == tuple("zyxwvutsrq")
    fallback = load("mnist")
    assert torch.equal(fallback.x, made.x) and fallback.source == "hub ylecun/mnist" and fallback.mean == (0.1307,)
    monkeypatch.setattr(hub, "load_dataset", None)
    assert torch.equal(load("mnist").x, made.x)  # from the cache: nothing is downloaded twice


def test_nothing_there_and_no_extra(_nowhere: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError) as error:
        load("cifar10")
    assert one_line(error) == (
        "dataset 'cifar10' was not found in any folder (FEDSKEW_DATA is not set); "
        "set FEDSKEW_DATA or --data.path, or install 'fedskew[hub]' to download"
    )
    with pytest.raises(DataError, match="needs the extra hub: pip install 'fedskew\\[hub\\]'"):
        load("hub", repo="a/b")
    with pytest.raises(DataError, match="'adult' was not found in any folder"):
        load("adult")
    with pytest.raises(DataError, match="'cifar10' was not found in"):
        load("cifar10", str(tmp_path))
    with pytest.raises(ConfigError, match=r"data\.repo must name a dataset of the hub"):
        load("hub")


def test_a_network_error_is_one_line(_nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the Hub\n(timed out)")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=refuse))
    with pytest.raises(DataError) as error:
        load("fashion_mnist")
    assert "'zalando-datasets/fashion_mnist' could not be loaded: Couldn't reach the Hub (timed out)" in one_line(error)


def test_parquet_without_the_extra_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = GEN.integers(0, 256, (6, 5, 5, 3)).astype(np.uint8)
    write_parquet(tmp_path / "train.parquet", images, label=np.arange(6) % 2)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match="decoding images needs the extra hub: pip install 'fedskew\\[hub\\]'"):
        load("parquet", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match="reading parquet files needs the extra hub: pip install 'fedskew\\[hub\\]'"):
        load("parquet", str(tmp_path))


# npz.


def test_npz_files(tmp_path: Path) -> None:
    x, y = GEN.normal(size=(20, 4)).astype(np.float32), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    one, two = load("npz", str(tmp_path / "a.npz")), load("npz", str(tmp_path / "b.npz"))
    assert len(one.y) == 16 and one.name == "a" and not one.test_is_official
    assert len(two.y) == 20 and len(two.y_test) == 4 and two.test_is_official
    np.savez(tmp_path / "c.npz", x=x)
    with pytest.raises(DataError, match="'y' is not among x"):
        load("npz", str(tmp_path / "c.npz"))
    np.savez(tmp_path / "d.npz", x=np.array([Runs(os.system, ("true",))] * 4, dtype=object), y=np.arange(4) % 2)
    with pytest.raises(DataError, match="not a readable npz file of plain arrays"):
        load("npz", str(tmp_path / "d.npz"))
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    with pytest.raises(DataError, match="not a readable npz file"):
        load("npz", str(tmp_path / "a.npz"))
    with pytest.raises(ConfigError, match=r"data\.path must name the file of dataset 'npz'; got ''"):
        load("npz")


# The cache.


def _cached(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*"))


def test_a_decoded_dataset_is_stored_once_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    first = load("mnist", str(tmp_path), verify=False)
    assert [f.suffix for f in _cached(tmp_path)] == [".safetensors"]
    monkeypatch.setattr(readers, "read_idx", None)
    again = load("mnist", str(tmp_path), verify=False, normalize="half", augment=True)  # not part of decoding
    assert torch.equal(first.x, again.x) and again.fingerprint == first.fingerprint and again.mean == (0.5,)
    assert again.label_names == first.label_names and again.notes == first.notes
    with pytest.raises(TypeError):
        load("mnist", str(tmp_path), verify=False, pad=2)


def test_columns_come_back_from_the_cache() -> None:
    made = build("x", np.zeros((10, 2)), np.arange(10) % 2, columns={"site": list("abcde" * 2)})
    cache.store("key", made)
    back = cache.fetch("key")
    assert isinstance(back, Dataset) and back.column_names == made.column_names
    assert torch.equal(back.columns["site"], made.columns["site"]) and back.test_is_official is False


def test_a_changed_file_is_decoded_again(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    first = load("mnist", str(tmp_path), verify=False)
    write_idx(tmp_path / "mnist")
    os.utime(tmp_path / "mnist" / f"{IDX[0]}.gz", ns=(1, 1))
    assert load("mnist", str(tmp_path), verify=False).fingerprint != first.fingerprint


def test_a_damaged_or_unwritable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    first = load("mnist", str(tmp_path), verify=False)
    (file,) = _cached(tmp_path)
    for damage in (file.read_bytes()[:1000], b"", b"\xff" * 64):
        file.write_bytes(damage)
        assert load("mnist", str(tmp_path), verify=False).fingerprint == first.fingerprint
    (tmp_path / "no folder").write_text("a file stands where the folder should be")
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "no folder"))
    assert load("mnist", str(tmp_path), verify=False).fingerprint == first.fingerprint
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    assert load("mnist", str(tmp_path), verify=False).fingerprint == first.fingerprint
    assert list((tmp_path / "other").iterdir()) == []  # nothing half-written stays


# Adult and Heart Disease in small.


def adult_files(folder: Path) -> None:
    rows = [
        "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Wife, White, Male, 2174, 0, 4, Peru, <=50K",
        "50, ?, 83311, Bachelors, 13, Divorced, Sales, Husband, White, Male, 0, 0, 13, Cuba, >50K",
        "28, Private, 1000, Masters, 14, Divorced, Sales, Wife, Black, Female, 0, 0, 40, Cuba, >50K",
    ]
    folder.mkdir()
    (folder / "adult.data").write_text("\n".join(rows) + "\n\n")
    test = ["|1x3 Cross validator", rows[0] + ".", rows[1].replace("Cuba", "Laos") + "."]
    (folder / "adult.test").write_text("\n".join(test) + "\n")


def test_adult_features_columns_and_labels(tmp_path: Path) -> None:
    adult_files(tmp_path / "adult")
    made = load("adult", str(tmp_path), verify=False)
    assert made.y.tolist() == [0, 1, 1] and made.y_test.tolist() == [0, 1]
    assert made.x.shape == (3, 6 + 3 + 2 + 2 + 2 + 2 + 2 + 2 + 2) and made.column_names["workclass"][0] == "?"
    assert torch.allclose(made.x[:, :6].mean(0), torch.zeros(6), atol=1e-6)
    assert made.x_test[1, -2:].tolist() == [0, 0]  # a country that the training set lacks
    assert made.columns["native-country"].tolist() == [1, 0, 0] and len(made.columns) == 8
    fewer = load("adult", str(tmp_path), verify=False, exclude="native-country, age")
    assert fewer.x.shape[1] == made.x.shape[1] - 3 and "native-country" in fewer.columns
    with pytest.raises(ConfigError, match=r"unknown data\.exclude 'native_country'; did you mean 'native-country'"):
        load("adult", str(tmp_path), exclude="native_country")
    with pytest.raises(DataError, match=r"adult\.data is truncated or altered: expected 32561 rows, got 3"):
        load("adult", str(tmp_path))
    (tmp_path / "adult" / "adult.data").write_text("1, 2, 3\n")
    with pytest.raises(DataError, match="must have 15 values a row; row 0 has 3"):
        load("adult", str(tmp_path))


def test_heart_disease_is_imputed_and_split_by_hospital(tmp_path: Path) -> None:
    for i, hospital in enumerate(("cleveland", "hungarian", "switzerland", "va")):
        rows = [
            f"{40 + r},1,{r % 4},100,{'?' if r % 3 else 200},0,0,150,0,{r / 4},?,0,3,{r % 2 * 3}"
            for r in range(10 + 10 * i)
        ]
        (tmp_path / f"processed.{hospital}.data").write_text("\n".join(rows))
    made = load("heart_disease", str(tmp_path), verify=False)
    assert torch.bincount(made.columns["hospital"]).tolist() == [8, 16, 24, 32] and len(made.y_test) == 20
    assert made.x.shape[1] == 13 and torch.isfinite(made.x).all() and set(made.y.tolist()) == {0, 1}
    assert made.x[:, 4].abs().max() == 0  # known values are all 200, the median fills in 200
    assert made.x[:, 10].abs().max() == 0  # nobody has a value
    with pytest.raises(DataError, match="expected 303 rows, got 10"):
        load("heart_disease", str(tmp_path))
    (tmp_path / "processed.va.data").unlink()
    with pytest.raises(DataError, match=r"lacks processed\.va\.data"):
        load("heart_disease", str(tmp_path))


# The real files.


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_mnist_files(data_dir: Path, name: str) -> None:
    made = load(name, str(data_dir))  # verify compares every row
    assert made.x.shape == (60000, 1, 28, 28) and made.x_test.shape == (10000, 1, 28, 28) and made.notes == ()
    folder = data_dir / name.replace("_", "-")
    for file, md5 in DATASETS[name].md5.items():  # type: ignore[attr-defined]
        assert hashlib.md5((folder / file).read_bytes()).hexdigest() == md5


def test_real_cifar10_rows(data_dir: Path) -> None:
    pytest.importorskip("pyarrow")
    table = parquet.read_table([data_dir / "cifar10" / "test-00000-of-00001.parquet"])
    x = parquet.read_column(table, "img", rows=300)
    assert x.shape == (300, 3, 32, 32) and hashlib.md5(x.tobytes()).hexdigest() == "5236ea59936b9545e7d27c877d579d25"
    assert np.bincount(parquet.read_column(table, "label")).tolist() == [1000] * 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_real_cifar(data_dir: Path, name: str) -> None:
    made = load(name, str(data_dir))
    assert made.x.shape == (50000, 3, 32, 32) and len(set(made.counts.tolist())) == 1
    assert torch.bincount(made.y_test).tolist() == [10000 // made.classes] * made.classes
    jpegs = [note for note in made.notes if "decoded JPEGs" in note]
    assert len(jpegs) == (name == "cifar10") and all(str(i) in jpegs[0] for i in DECODED_JPEGS if jpegs)
    published = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4865, 0.4409)}[name]
    assert np.allclose(channel_statistics(made.x)[0], published, atol=2e-4)


def test_real_adult(data_dir: Path) -> None:
    made = load("adult", str(data_dir))
    assert (len(made.y), len(made.y_test)) == (32561, 16281) and made.x.shape[1] == 108
    assert made.y.double().mean().item() == pytest.approx(0.2408, abs=1e-4)
    assert len(made.column_names["native-country"]) == 42


def test_real_heart_disease(data_dir: Path) -> None:
    made = load("heart_disease", str(data_dir))
    assert len(made.y) + len(made.y_test) == 920 and made.x.shape[1] == 13
    sizes = dict(zip(made.column_names["hospital"], torch.bincount(made.columns["hospital"]).tolist(), strict=True))
    whole = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
    assert all(abs(sizes[h] - 0.8 * n) <= 1 for h, n in whole.items())


def test_one_changed_byte_of_a_real_file_is_seen(data_dir: Path, tmp_path: Path) -> None:
    for name in IDX:
        raw = bytearray(gzip.decompress((data_dir / "mnist" / f"{name}.gz").read_bytes()))
        raw[5000] ^= name == IDX[2]
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match="the test rows were altered") as error:
        load("mnist", str(tmp_path))
    assert str(tmp_path / IDX[2]) in one_line(error)


def test_the_cache_holds_json_and_no_code(tmp_path: Path) -> None:
    write_idx(tmp_path / "mnist")
    load("mnist", str(tmp_path), verify=False)
    raw = _cached(tmp_path)[0].read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert set(header) == {"__metadata__", "x", "y", "x_test", "y_test"}
    assert json.loads(header["__metadata__"]["dataset"])["name"] == "mnist"
