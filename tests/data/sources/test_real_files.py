"""The published files, where they are."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.arrays import channel_statistics
from fedskew.data.sources import parquet
from fedskew.data.sources.published import IDX
from fedskew.errors import DataError
from support.data_files import one_line


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_mnist_files(data_dir: Path, name: str) -> None:
    made = load(name, str(data_dir))  # verify compares every row
    assert made.x.shape == (60000, 1, 28, 28) and made.x_test.shape == (10000, 1, 28, 28) and made.notes == ()


def test_real_cifar10_rows(data_dir: Path) -> None:
    pytest.importorskip("pyarrow")
    table = parquet.read_table([data_dir / "cifar10" / "test-00000-of-00001.parquet"])
    x = parquet.read_column(table.slice(0, 300), "img")
    assert x.shape == (300, 3, 32, 32) and hashlib.md5(x.tobytes()).hexdigest() == "5236ea59936b9545e7d27c877d579d25"
    assert np.bincount(parquet.read_column(table, "label")).tolist() == [1000] * 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_real_cifar(data_dir: Path, name: str) -> None:
    made = load(name, str(data_dir))
    assert made.x.shape == (50000, 3, 32, 32) and len(set(made.counts.tolist())) == 1
    assert torch.bincount(made.y_test).tolist() == [10000 // made.classes] * made.classes
    assert made.notes == ()
    published = {"cifar10": (0.4914, 0.4822, 0.4465), "cifar100": (0.5071, 0.4865, 0.4409)}[name]
    assert np.allclose(channel_statistics(made.x)[0], published, atol=2e-4)


@pytest.mark.parametrize(("name", "mark"), [("adult", "dcb859339cdbdfea"), ("heart_disease", "97e9fda54db30440")])
def test_real_tables_are_the_data_of_the_archived_runs(data_dir: Path, name: str, mark: str) -> None:
    assert load(name, str(data_dir)).fingerprint == mark


def test_one_changed_byte_of_a_real_file_is_seen(data_dir: Path, tmp_path: Path) -> None:
    for name in IDX:
        raw = bytearray(gzip.decompress((data_dir / "mnist" / f"{name}.gz").read_bytes()))
        raw[5000] ^= name == IDX[2]
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(DataError, match="the test rows were altered") as error:
        load("mnist", str(tmp_path))
    assert str(tmp_path / IDX[2]) in one_line(error)
