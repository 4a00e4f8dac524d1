"""EMNIST-balanced, on small made-up files of the published formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources.published import EMNIST, Emnist
from support.data_files import GEN, fails, write_idx, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


def test_the_official_names_of_emnist() -> None:
    assert EMNIST[0] == "emnist-balanced-train-images-idx3-ubyte"
    assert EMNIST[3] == "emnist-balanced-test-labels-idx1-ubyte"


def test_emnist_files_that_are_not_the_published_ones(tmp_path: Path) -> None:
    write_idx(tmp_path, True, (94, 47), EMNIST, 47)
    fails("emnist", tmp_path, f"{EMNIST[0]}.gz", "expected 112800 training rows, got 94; for files of your own")
    assert [one.counts for one in Emnist.known] == [(2400,) * 47, (400,) * 47]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("folder", ["emnist", "emnist/gzip", "EMNIST/raw", "gzip", "."])
def test_emnist_files_are_transposed(tmp_path: Path, folder: str, zipped: bool) -> None:
    x, y, x_test, _ = write_idx(tmp_path / folder, zipped, (94, 47), EMNIST, 47)
    made = load("emnist", str(tmp_path), verify=False)
    assert made.shape == (1, 28, 28) and made.classes == 47 and len(made.y_test) == 47
    assert made.x[5, 0, 3, 20] == x[5, 20, 3] and (made.x[5, 0].numpy() != x[5]).any()
    assert torch.equal(made.x[:, 0], torch.from_numpy(x.transpose(0, 2, 1).copy()))
    assert torch.equal(made.x_test[:, 0], torch.from_numpy(x_test.transpose(0, 2, 1).copy()))
    assert made.y.tolist() == y.tolist() and made.mean == (0.1307,) and made.std == (0.3081,)
    assert made.label_names[10] == "A" and made.label_names[36:] == tuple("abdefghnqrt")


def test_emnist_parquet_is_taken_as_it_is(tmp_path: Path) -> None:
    images = [GEN.integers(0, 256, (28, 28)).astype(np.uint8) for _ in range(47)]
    for split in ("train", "test"):
        write_split(tmp_path / "emnist" / "data", split, images, list(range(47)))
    made = load("emnist", str(tmp_path), verify=False)
    assert torch.equal(made.x[8, 0], torch.from_numpy(images[8])) and made.y.tolist() == list(range(47))
    assert made.mean == (0.1307,)
