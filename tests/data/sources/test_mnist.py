"""MNIST's files: where they lie, how they are normalised, and what is wrong with a damaged one."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.arrays import channel_statistics
from fedskew.data.sources.files import rows_digest
from fedskew.data.sources.published import IDX
from fedskew.errors import ConfigError, DataError
from support.data_files import GEN, fails, one_line, write_idx


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
    fails("mnist", None, "FEDSKEW_DATA must name a folder or file that exists")


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
    mirrored = load("fashion_mnist", augment=True, crop_padding="reflect", **given)
    assert mirrored.augment == ("crop_reflect", "flip")
    with pytest.raises(ConfigError, match="crop_padding must be zeros without augment"):
        load("mnist", crop_padding="reflect", **given)


def test_altered_truncated_and_missing_idx_files_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path)
    images = tmp_path / f"{IDX[0]}.gz"
    with pytest.raises(DataError) as error:
        load("mnist", str(tmp_path))
    assert str(images) in one_line(error) and "expected 60000 training rows, got 20" in str(error.value)
    whole = images.read_bytes()
    images.write_bytes(whole[: len(whole) // 2])
    fails("mnist", tmp_path, "is damaged")
    images.write_bytes(gzip.compress(gzip.decompress(whole)[:-5]))
    fails("mnist", tmp_path, "truncated or altered: expected 15680 bytes of data, got 15675", verify=False)
    images.write_bytes(b"no idx file")
    fails("mnist", tmp_path, "must be an idx file", verify=False)
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
