"""Published image sets other than MNIST, on small made-up files: parquet as on the hub, and EMNIST's idx files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data import DATASETS, load
from fedskew.data.arrays import build
from fedskew.data.sources import published
from fedskew.data.sources.files import Known
from fedskew.data.sources.images import Published
from fedskew.data.sources.published import EMNIST
from support.data_files import GEN, fails, write_idx, write_parquet, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


def as_stored(images: Any) -> torch.Tensor:
    return torch.from_numpy(np.stack(images).transpose(0, 3, 1, 2).copy())


@pytest.mark.parametrize("raw", [False, True])
def test_cifar_parquet_in_the_hub_s_layout(tmp_path: Path, raw: bool) -> None:
    images = GEN.integers(0, 256, (12, 32, 32, 3)).astype(np.uint8)
    y = np.arange(12) % 10
    folder = tmp_path / "cifar10"
    for part in (0, 1):
        at = slice(5 * part, 5 * part + 5)
        write_parquet(folder / f"train-0000{part}-of-00002.parquet", images[at], "PNG", raw, label=y[at])
    write_parquet(folder / "test-00000-of-00001.parquet", images[10:], "PNG", raw, label=y[10:])
    made = load("cifar10", str(tmp_path), verify=False)
    assert torch.equal(made.x, as_stored(images[:10])) and made.x_test.shape == (2, 3, 32, 32)
    assert made.y.tolist() == list(range(10)) and made.y_test.tolist() == [0, 1]
    assert made.label_names[0] == "airplane" and made.test_is_official and "not compared" in made.notes[0]
    fails("cifar10", tmp_path, "expected 50000 training rows, got 10; for files of your own in this format set verify")
    (folder / "train-00001-of-00002.parquet").unlink()
    fails("cifar10", tmp_path, "must hold 2 files train-*.parquet; got 1")


def test_cifar100_has_coarse_labels_and_superclasses_as_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, images = np.arange(200), GEN.integers(0, 256, (200, 32, 32, 3)).astype(np.uint8)
    for split in ("train", "test"):
        write_parquet(tmp_path / f"{split}-0.parquet", images, fine_label=y % 100, coarse_label=y % 20)
    fine, coarse = (load("cifar100", str(tmp_path), verify=False, coarse=c) for c in (False, True))
    assert (fine.classes, coarse.classes) == (100, 20) and coarse.label_names[0] == "aquatic_mammals"
    assert coarse.y.tolist() == (y % 20).tolist() == coarse.columns["coarse_label"].tolist()
    assert fine.column_names["coarse_label"] == coarse.label_names
    monkeypatch.setattr(published.Cifar100, "known", (Known(200), Known(200)))
    assert load("cifar100", str(tmp_path)).classes == 100
    write_parquet(tmp_path / "test-0.parquet", images, fine_label=y % 100, coarse_label=(y + 1) % 20)
    fails("cifar100", tmp_path, "the coarse labels were altered: a class has two superclasses")


@pytest.mark.parametrize(
    ("name", "folder", "side", "test", "classes"),
    [("svhn", "svhn/cropped_digits", 32, "test", 10), ("tiny_imagenet", "tiny-imagenet/data", 64, "valid", 3)],
)
def test_sets_without_a_known_checksum_are_compared_by_the_rows_of_each_class(
    name: str, folder: str, side: int, test: str, classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, names = GEN.integers(0, 256, (classes, side, side, 3)).astype(np.uint8), [*"zyxwvutsrq"[:classes]]
    grey = images[0] if name == "svhn" else images[0, :, :, 0]  # as some images of Tiny-ImageNet are
    place = tmp_path / folder
    for split in ("train", test):
        write_split(place, split, [grey, *images[1:]], list(range(classes)), names)
    made = load(name, str(tmp_path), verify=False)
    stored = [np.repeat(grey[..., None], 3, axis=2) if grey.ndim == 2 else grey, *images[1:]]
    assert torch.equal(made.x, as_stored(stored)) and torch.equal(made.x_test, made.x) and made.mean == ()
    assert made.y.tolist() == [*range(classes)]
    assert made.label_names == (tuple("0123456789") if name == "svhn" else tuple(names))
    augment = load(name, str(tmp_path), verify=False, augment=True).augment
    assert augment == (("crop",) if name == "svhn" else ("crop", "flip"))  # a mirrored digit is another
    kind, ones = type(DATASETS[name]()), Known(classes, counts=(1,) * classes)
    fails(name, tmp_path, f"expected {kind.known[0].rows} training rows, got {classes}")
    monkeypatch.setattr(kind, "known", (ones, ones))
    assert all("only the number of each class was compared" in note for note in load(name, str(tmp_path)).notes)
    monkeypatch.setattr(kind, "known", (Known(classes, counts=(2, *[1] * (classes - 1))), ones))
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "empty"))
    fails(name, tmp_path, "the training rows were altered: expected 2 rows of class 0, got 1")
    (place / f"{test}-00000-of-00001.parquet").write_bytes((place / "train-00000-of-00001.parquet").read_bytes()[:-30])
    fails(name, tmp_path, f"{test}-00000-of-00001.parquet is not a whole parquet file", verify=False)
    (place / f"{test}-00000-of-00001.parquet").unlink()
    fails(name, tmp_path, f"must have {test}-*.parquet beside other files of {name!r}")


@pytest.mark.parametrize("folder", ["emnist/gzip", "EMNIST/raw", "."])
def test_emnist_files_are_transposed(tmp_path: Path, folder: str) -> None:
    x, y, x_test, _ = write_idx(tmp_path / folder, folder != ".", (94, 47), EMNIST, 47)
    made = load("emnist", str(tmp_path), verify=False)
    assert torch.equal(made.x[:, 0], torch.from_numpy(x.transpose(0, 2, 1).copy()))
    assert torch.equal(made.x_test[:, 0], torch.from_numpy(x_test.transpose(0, 2, 1).copy()))
    assert made.y.tolist() == y.tolist() and made.mean == (0.1307,) and made.std == (0.3081,)
    assert made.label_names[10] == "A" and made.label_names[36:] == tuple("abdefghnqrt")
    fails("emnist", tmp_path, f"{EMNIST[0]}", "expected 112800 training rows, got 94; for files of your own")


def test_emnist_parquet_is_taken_as_it_is(tmp_path: Path) -> None:
    images = [GEN.integers(0, 256, (28, 28)).astype(np.uint8) for _ in range(47)]
    for split in ("train", "test"):
        write_split(tmp_path / "emnist" / "data", split, images, list(range(47)))
    made = load("emnist", str(tmp_path), verify=False)
    assert torch.equal(made.x[8, 0], torch.from_numpy(images[8])) and made.y.tolist() == list(range(47))


def test_four_datasets_become_47_labels_of_their_first_rows_in_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 10_000, 3)).astype(np.uint8)

    def made(self: Any, path: str | None = None) -> Any:
        at, names = self.target()
        count = 2500 if self.name == "mnist" else 3  # a label
        y = np.tile(np.arange(len(names)), count)
        shape = (1, 28, 28) if "mnist" in self.name else (3, 32, 32)
        x = np.zeros((len(y), *shape), np.uint8)
        x[:] = colours[at, np.arange(len(y)) % 10_000, : shape[0], None, None]
        x[..., 0, :] = 255  # an edge, which a crop of 32x32 loses
        return build(self.name, x, y, x, y, label_names=names)

    monkeypatch.setattr(Published, "load", made)
    data = load("labels47")
    assert (data.shape, data.classes, data.mean) == ((1, 28, 28), 47, (0.1307,))
    assert data.counts.tolist() == [2400] * 10 + [3] * 37
    assert torch.bincount(data.y_test).tolist() == [400] * 10 + [3] * 37
    told = {0: "mnist 0", 10: "fashion_mnist T-shirt/top", 20: "cifar10 airplane", 30: "cifar100 aquatic_mammals"}
    assert {i: data.label_names[i] for i in told} == told and data.label_names[46] == "cifar100 small_mammals"
    digit, plane = data.x[data.y == 0], data.x[data.y == 20]
    assert (digit[:, 0, 0] == 255).all() and digit[:3, 0, 5, 5].tolist() == colours[0, :30:10, 0].tolist()
    want = np.rint(colours[0, :30:10].astype(float) @ [0.299, 0.587, 0.114])
    assert (plane == torch.from_numpy(want)[:, None, None, None]).all()
