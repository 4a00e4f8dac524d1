"""CIFAR's batches and parquet files: read without running what they say."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources import readers
from fedskew.errors import DataError
from support.data_files import GEN, Runs, one_line, write_parquet


def batch(rows: int, labels: dict[str, int], protocol: int = 2) -> tuple[bytes, np.ndarray, dict[str, list[int]]]:
    x = GEN.integers(0, 256, (rows, 3072)).astype(np.uint8)
    y = {key: [i % top for i in range(rows)] for key, top in labels.items()}
    return pickle.dumps({"data": x, **y, "batch_label": "made up"}, protocol=protocol), x.reshape(-1, 3, 32, 32), y


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
