"""SVHN, on small made-up files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources import published, readers
from fedskew.data.sources.files import Known
from fedskew.errors import DataError
from support.data_files import GEN, fails, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


MATS = ("train_32x32.mat", "test_32x32.mat")


def write_mats(folder: Path, rows: tuple[int, int] = (20, 11), **change: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """MATLAB 5 files, compressed as the official ones are: X [32, 32, 3, n], y [n, 1] with 10 for the digit 0."""
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for file, n in zip(MATS, rows, strict=True):
        x = GEN.integers(0, 256, (32, 32, 3, n)).astype(np.uint8)
        y = (np.arange(n, dtype=np.uint8) % 10 + 1)[:, None]
        savemat(folder / file, {"X": x, "y": y} | change, do_compression=True)
        made.append((x, y))
    return made


@pytest.mark.parametrize("folder", ["svhn", "."])
def test_svhn_matlab_files(tmp_path: Path, folder: str) -> None:
    (x, y), (x_test, _) = write_mats(tmp_path / folder)
    made = load("svhn", str(tmp_path), verify=False)
    assert made.x.shape == (20, 3, 32, 32) and made.x_test.shape == (11, 3, 32, 32)
    assert made.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] * 2 and y[9] == 10
    assert torch.equal(made.x[7], torch.from_numpy(x[:, :, :, 7].copy()).permute(2, 0, 1))  # rows stay rows
    assert torch.equal(made.x_test[10], torch.from_numpy(x_test[:, :, :, 10].copy()).permute(2, 0, 1))
    assert made.label_names == tuple("0123456789") and made.test_is_official and made.classes == 10
    assert made.mean == () == made.std and "not compared" in made.notes[0]
    assert load("svhn", str(tmp_path), verify=False, augment=True).augment == ("crop",)  # a mirrored digit is another
    assert len(load("svhn", str(tmp_path), verify=False, normalize="channel").mean) == 3


def test_damaged_and_missing_svhn_files_are_named(tmp_path: Path) -> None:
    write_mats(tmp_path / "a")
    file = tmp_path / "a" / MATS[0]
    whole = file.read_bytes()
    cut = [whole[: int(share * len(whole))] for share in (0.02, 0.3, 0.9, 0.999)]
    for content in (b"", b"no matlab file " * 40, whole[:-200] + b"\xff" * 200, *cut):
        file.write_bytes(content)
        fails("svhn", tmp_path / "a", str(file), verify=False)
    file.unlink()
    fails("svhn", tmp_path / "a", f"lacks {MATS[0]}")
    write_mats(tmp_path / "b", X=np.zeros((4, 4, 3, 5), np.uint8))
    fails("svhn", tmp_path / "b", "must hold X [32, 32, 3, n] and y [n, 1]; got (4, 4, 3, 5)", verify=False)
    write_mats(tmp_path / "c", y=np.zeros((20, 1)))
    fails("svhn", tmp_path / "c", "must hold 'y', an array of bytes; got X", verify=False)
    write_mats(tmp_path / "d", y=np.full((20, 1), 11, np.uint8), rows=(20, 20))
    fails("svhn", tmp_path / "d", "must have labels 1..10, 10 for the digit 0; got 11..11", verify=False)


def test_svhn_parquet_in_the_hub_s_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [GEN.integers(0, 256, (32, 32, 3)).astype(np.uint8) for _ in range(10)]
    folder = tmp_path / "svhn" / "cropped_digits"
    for split in ("train", "test", "extra"):
        write_split(folder, split, images, list(range(10)))
    made = load("svhn", str(tmp_path), verify=False)
    assert made.y.tolist() == list(range(10)) and torch.equal(
        made.x[3], torch.from_numpy(images[3].copy()).permute(2, 0, 1)
    )
    assert made.label_names == tuple("0123456789") and made.test_is_official and made.mean == () == made.std
    fails("svhn", tmp_path, "expected 73257 training rows, got 10", "of your own in this format set verify to false")
    ones = Known(10, counts=(1,) * 10)
    monkeypatch.setattr(published.Svhn, "known", (ones, ones))
    assert all("only the number of each class was compared" in note for note in load("svhn", str(tmp_path)).notes)
    monkeypatch.setattr(published.Svhn, "known", (Known(10, counts=(2, 0, *[1] * 8)), ones))
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "empty"))
    fails("svhn", tmp_path, "the training rows were altered: expected 2 rows of class 0, got 1")
    (folder / "test-00000-of-00001.parquet").unlink()
    fails("svhn", tmp_path, "must have test-*.parquet beside other files of 'svhn'")


def test_damaged_matlab_files_are_one_line_and_end_no_process(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    write_mats(tmp_path)
    from scipy.io import savemat

    file = tmp_path / MATS[0]
    savemat(file, {"X": GEN.integers(0, 256, (32, 32, 3, 4)).astype(np.uint8), "y": np.ones((4, 1), np.uint8)})
    whole = file.read_bytes()
    for k in range(300):
        raw = bytearray(whole)
        for at in GEN.integers(0, 300 if k % 2 else len(raw), 4):
            raw[at] = GEN.integers(0, 256)
        file.write_bytes(raw)
        try:
            assert [part.dtype for part in readers.read_mat(file, ("X", "y"))] == [np.uint8] * 2
        except DataError as error:
            assert "\n" not in str(error)
