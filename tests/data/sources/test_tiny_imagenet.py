"""Tiny-ImageNet, on small made-up files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from support.data_files import GEN, WNIDS, fails, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


def tiny_rows() -> list[np.ndarray]:
    """The first is grey, the second is not."""
    return [GEN.integers(0, 256, s).astype(np.uint8) for s in ((64, 64), (64, 64, 3), (64, 64, 3))]


def test_tiny_imagenet_parquet_in_the_hub_s_layout(tmp_path: Path) -> None:
    images, names = tiny_rows(), sorted(WNIDS)
    folder = tmp_path / "tiny-imagenet" / "data"
    for split in ("train", "valid"):
        write_split(folder, split, images, [0, 1, 2], names)
    made = load("tiny_imagenet", str(tmp_path), verify=False)
    assert made.x.shape == (3, 3, 64, 64) and made.label_names == tuple(names) and made.mean == ()
    assert torch.equal(made.x[0, 2], torch.from_numpy(images[0]))
    assert torch.equal(made.x_test[1], torch.from_numpy(images[1].copy()).permute(2, 0, 1))
    fails("tiny_imagenet", tmp_path, "expected 100000 training rows, got 3")
    (folder / "valid-00000-of-00001.parquet").unlink()
    fails("tiny_imagenet", tmp_path, "has parquet files of 'tiny_imagenet' but lacks valid-*.parquet")
    whole = (folder / "train-00000-of-00001.parquet").read_bytes()
    (folder / "valid-00000-of-00001.parquet").write_bytes(whole[:-30])
    fails("tiny_imagenet", tmp_path, "valid-00000-of-00001.parquet is not a whole parquet file", verify=False)
