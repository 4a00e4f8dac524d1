"""EMNIST-balanced, on small made-up files of the published formats."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources import published
from fedskew.data.sources.files import Known
from fedskew.data.sources.published import EMNIST
from support.data_files import GEN, fails, idx, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


def write_emnist(folder: Path, zipped: bool = True) -> list[np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = []
    for n in (94, 47):
        arrays += [GEN.integers(0, 256, (n, 28, 28)).astype(np.uint8), (np.arange(n) % 47).astype(np.uint8)]
    for name, array in zip(EMNIST, arrays, strict=True):
        raw = idx(array)
        (folder / (f"{name}.gz" if zipped else name)).write_bytes(gzip.compress(raw) if zipped else raw)
    return arrays


def test_the_official_names_of_emnist() -> None:
    assert EMNIST[0] == "emnist-balanced-train-images-idx3-ubyte"
    assert EMNIST[3] == "emnist-balanced-test-labels-idx1-ubyte"


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["emnist", "emnist/gzip", "EMNIST/raw", "gzip", "."])
def test_emnist_files_are_transposed(tmp_path: Path, folder: str, zipped: bool) -> None:
    x, y, x_test, _ = write_emnist(tmp_path / folder, zipped)
    made = load("emnist", str(tmp_path), verify=False)
    assert made.shape == (1, 28, 28) and made.classes == 47 and len(made.y_test) == 47
    assert made.x[5, 0, 3, 20] == x[5, 20, 3] and (made.x[5, 0].numpy() != x[5]).any()
    assert torch.equal(made.x[:, 0], torch.from_numpy(x.transpose(0, 2, 1).copy()))
    assert torch.equal(made.x_test[:, 0], torch.from_numpy(x_test.transpose(0, 2, 1).copy()))
    assert made.y.tolist() == y.tolist() and made.mean == (0.1307,) and made.std == (0.3081,)
    assert made.label_names[10] == "A" and made.label_names[36:] == tuple("abdefghnqrt")


def test_emnist_files_that_are_not_the_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_emnist(tmp_path)
    images = tmp_path / f"{EMNIST[0]}.gz"
    fails("emnist", tmp_path, str(images), "expected 112800 training rows, got 94; for files of your own")
    known = Known(94, counts=(2,) * 47), Known(47, counts=(1,) * 47)
    monkeypatch.setattr(published.Emnist, "known", known)
    assert load("emnist", str(tmp_path)).notes[0].startswith("of the training rows only the number of each class")
    monkeypatch.setattr(published.Emnist, "known", (known[0], Known(47, counts=(2, 0, *[1] * 45))))
    os.utime(images, ns=(1, 1))
    fails("emnist", tmp_path, "test rows were altered: expected 2 rows of class 0, got 1")


def test_damaged_and_missing_emnist_files_are_named(tmp_path: Path) -> None:
    write_emnist(tmp_path)
    images = tmp_path / f"{EMNIST[0]}.gz"
    whole = images.read_bytes()
    images.write_bytes(whole[: len(whole) // 2])
    fails("emnist", tmp_path, f"{images} is damaged", verify=False)
    images.write_bytes(gzip.compress(gzip.decompress(whole)[:-5]))
    fails(
        "emnist", tmp_path, f"{images} is truncated or altered: expected 73696 bytes of data, got 73691", verify=False
    )
    images.unlink()
    fails("emnist", tmp_path, f"have all files of the dataset; it lacks {EMNIST[0]}.gz", verify=False)
    fails("emnist", None, "'emnist' was not found in any folder (FEDSKEW_DATA is not set); set FEDSKEW_DATA or")


def test_emnist_parquet_is_taken_as_it_is(tmp_path: Path) -> None:
    images = [GEN.integers(0, 256, (28, 28)).astype(np.uint8) for _ in range(47)]
    for split in ("train", "test"):
        write_split(tmp_path / "emnist" / "data", split, images, list(range(47)))
    made = load("emnist", str(tmp_path), verify=False)
    assert torch.equal(made.x[8, 0], torch.from_numpy(images[8])) and made.y.tolist() == list(range(47))
    assert made.mean == (0.1307,)
