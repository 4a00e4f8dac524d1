"""SVHN, on small made-up files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources import more_images
from fedskew.data.sources.files import Known
from support.data_files import GEN, fails, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


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
    assert load("svhn", str(tmp_path), verify=False, augment=True).augment == ("crop",)  # a mirrored digit is another
    assert len(load("svhn", str(tmp_path), verify=False, normalize="channel").mean) == 3
    fails("svhn", tmp_path, "expected 73257 training rows, got 10", "of your own in this format set verify to false")
    ones = Known(10, counts=(1,) * 10)
    monkeypatch.setattr(more_images.Svhn, "known", (ones, ones))
    assert all("only the number of each class was compared" in note for note in load("svhn", str(tmp_path)).notes)
    monkeypatch.setattr(more_images.Svhn, "known", (Known(10, counts=(2, 0, *[1] * 8)), ones))
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "empty"))
    fails("svhn", tmp_path, "the training rows were altered: expected 2 rows of class 0, got 1")
    (folder / "test-00000-of-00001.parquet").unlink()
    fails("svhn", tmp_path, "has parquet files of 'svhn' but lacks test-*.parquet")
