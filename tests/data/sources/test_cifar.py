"""CIFAR's binary batches and parquet files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.errors import DataError
from support.data_files import GEN, fails, write_parquet


def batch(rows: int, tops: tuple[int, ...]) -> tuple[bytes, np.ndarray, list[list[int]]]:
    """(records, images, labels): those of the last column are coarse, which stand first in a record."""
    x = GEN.integers(0, 256, (rows, 3072)).astype(np.uint8)
    y = [[i % top for i in range(rows)] for top in tops]
    return np.column_stack([*map(np.uint8, y[::-1]), x]).tobytes(), x.reshape(-1, 3, 32, 32), y


CIFAR = {
    "cifar10": ("cifar-10-batches-bin", [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"], (10,)),
    "cifar100": ("cifar-100-binary", ["train.bin", "test.bin"], (100, 20)),
}


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", CIFAR)
def test_official_cifar_batches_are_read(tmp_path: Path, name: str, direct: bool) -> None:
    folder, files, tops = CIFAR[name]
    made = [batch(20, tops) for _ in files]
    (tmp_path / folder).mkdir()
    for file, (raw, _, _) in zip(files, made, strict=True):
        (tmp_path / folder / file).write_bytes(raw)
    got = load(name, str(tmp_path / folder if direct else tmp_path), verify=False)
    assert torch.equal(got.x, torch.from_numpy(np.concatenate([x for _, x, _ in made[:-1]])))
    assert torch.equal(got.x_test, torch.from_numpy(made[-1][1]))
    assert got.y.tolist() == [v for *_, y in made[:-1] for v in y[0]]
    assert got.classes == tops[0] == len(got.label_names)


def test_cifar100_has_coarse_labels_and_superclasses_as_clients(tmp_path: Path) -> None:
    for file in CIFAR["cifar100"][1]:
        (tmp_path / file).write_bytes(batch(200, (100, 20))[0])
    fine, coarse = (load("cifar100", str(tmp_path), verify=False, coarse=c) for c in (False, True))
    assert (fine.classes, coarse.classes) == (100, 20) and coarse.label_names[0] == "aquatic_mammals"
    assert coarse.y.tolist() == [i % 20 for i in range(200)] == coarse.columns["coarse_label"].tolist()
    assert fine.column_names["coarse_label"] == coarse.label_names


def test_batches_that_are_no_records_are_refused(tmp_path: Path) -> None:
    files = CIFAR["cifar10"][1]
    for file in files:
        (tmp_path / file).write_bytes(batch(4, (10,))[0])
    for content in (b"", b"x", batch(4, (10,))[0][:-1]):
        (tmp_path / files[2]).write_bytes(content)
        with pytest.raises(
            DataError, match=f"data_batch_3.bin must hold whole records of 3073 bytes; got {len(content)}"
        ):
            load("cifar10", str(tmp_path), verify=False)
    (tmp_path / files[2]).unlink()
    fails("cifar10", tmp_path, "lacks data_batch_3.bin")


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
    fails("cifar10", tmp_path, "expected 50000 training rows, got 10")
    (folder / "train-00001-of-00002.parquet").unlink()
    fails("cifar10", tmp_path, "must hold 2 files train-*.parquet; got 1")
