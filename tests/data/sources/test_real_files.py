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
from fedskew.data.sources.published import DECODED_JPEGS, IDX
from support.data_files import fails


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_mnist_files(data_dir: Path, name: str) -> None:
    made = load(name, str(data_dir))  # verify compares every row
    assert made.x.shape == (60000, 1, 28, 28) and made.x_test.shape == (10000, 1, 28, 28) and made.notes == ()


def test_real_cifar10_rows(data_dir: Path) -> None:
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
    fails("mnist", tmp_path, "the test rows were altered", str(tmp_path / IDX[2]))
