"""Tiny-ImageNet, on small made-up files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew.data import load
from fedskew.data.sources import pictures, published
from fedskew.data.sources.files import Known
from support.data_files import GEN, WNIDS, decoded, encoded, fails, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


def write_tiny(root: Path, each: int = 11, valid: int = 2) -> dict[str, bytes]:
    """The official folder with three classes; the first image of the first class is grey, as some are."""
    pytest.importorskip("PIL.Image")
    contents = {}

    def write(path: str, shape: tuple[int, ...]) -> None:
        contents[path] = encoded(GEN.integers(0, 256, shape).astype(np.uint8), "JPEG", quality=90)
        (root / path).write_bytes(contents[path])

    for c, wnid in enumerate(WNIDS):
        (root / "train" / wnid / "images").mkdir(parents=True)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("0 0 63 63\n")
        for i in range(each):
            write(f"train/{wnid}/images/{wnid}_{i}.JPEG", (64, 64) if (c, i) == (0, 0) else (64, 64, 3))
    (root / "val" / "images").mkdir(parents=True)
    (root / "test" / "images").mkdir(parents=True)
    lines = []
    for i in range(valid * len(WNIDS)):
        write(f"val/images/val_{i}.JPEG", (64, 64, 3))
        lines.append(f"val_{i}.JPEG\t{WNIDS[-1 - i % 3]}\t0\t0\t62\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    return contents


@pytest.mark.parametrize("folder", ["tiny-imagenet-200", "tiny_imagenet", "."])
def test_tiny_imagenet_s_official_folder(tmp_path: Path, folder: str) -> None:
    contents = write_tiny(tmp_path / folder)
    made = load("tiny_imagenet", str(tmp_path), verify=False)
    assert made.x.shape == (33, 3, 64, 64) and made.x_test.shape == (6, 3, 64, 64) and made.test_is_official
    assert made.label_names == WNIDS and made.y.tolist() == [0] * 11 + [1] * 11 + [2] * 11
    assert made.y_test.tolist() == [2, 1, 0, 2, 1, 0] and made.mean == ()
    for row, name in ((2, "n02124075_2"), (10, "n02124075_10"), (22, "n01443537_0")):  # by number, not by letter
        assert torch.equal(made.x[row], decoded(contents[f"train/{name[:9]}/images/{name}.JPEG"]))
    assert torch.equal(made.x_test[4], decoded(contents["val/images/val_4.JPEG"]))
    grey, colour = made.x[0], made.x[1]
    assert torch.equal(grey[0], grey[1]) and torch.equal(grey[0], grey[2]) and not torch.equal(colour[0], colour[1])
    assert load("tiny_imagenet", str(tmp_path), verify=False, augment=True).augment == ("crop", "flip")


def test_tiny_imagenet_that_is_not_the_published_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path)
    fails("tiny_imagenet", tmp_path, "wnids.txt", " and more: expected 100000 training rows, got 33; for files")
    monkeypatch.setattr(published.TinyImageNet, "known", (Known(33, counts=(11, 11, 11)), Known(6, counts=(2, 2, 2))))
    assert len(load("tiny_imagenet", str(tmp_path)).notes) == 2
    monkeypatch.setattr(published.TinyImageNet, "known", (Known(33, counts=(12, 10, 11)), Known(6)))
    os.utime(tmp_path / "wnids.txt", ns=(1, 1))
    fails("tiny_imagenet", tmp_path, "the training rows were altered: expected 12 rows of class 0, got 11")


def test_a_changed_image_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path, each=2)
    first = load("tiny_imagenet", str(tmp_path), verify=False)
    changed = tmp_path / "train" / WNIDS[1] / "images" / f"{WNIDS[1]}_1.JPEG"
    changed.write_bytes(encoded(np.zeros((64, 64, 3), np.uint8), "JPEG"))
    second = load("tiny_imagenet", str(tmp_path), verify=False)
    assert second.fingerprint != first.fingerprint and not second.x[3].any()
    monkeypatch.setattr(pictures, "decode_images", None)
    assert load("tiny_imagenet", str(tmp_path), verify=False).fingerprint == second.fingerprint  # from the cache


def test_damaged_and_missing_tiny_imagenet_files_are_named(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    contents = write_tiny(root, each=2)
    path = f"train/{WNIDS[2]}/images/{WNIDS[2]}_1.JPEG"
    image = root / path
    image.write_bytes(contents[path][: len(contents[path]) // 2])
    fails("tiny_imagenet", tmp_path, "dataset 'tiny_imagenet' has no readable image in", f"'{image}'", verify=False)
    image.write_bytes(encoded(np.zeros((32, 64, 3), np.uint8), "JPEG"))
    fails("tiny_imagenet", tmp_path, f"'{image}' is 64x32, '{root}", "is 64x64", verify=False)
    image.write_bytes(contents[path])
    annotations = root / "val" / "val_annotations.txt"
    (root / "val/images/val_3.JPEG").rename(root / "val/images/val_9.JPEG")
    fails("tiny_imagenet", tmp_path, f"{annotations} must name each image of val/images once", verify=False)
    (root / "val/images/val_9.JPEG").rename(root / "val/images/val_3.JPEG")
    lines = annotations.read_text()
    for line in (
        "../../wnids.txt\tn01443537\t0\n",
        "val_0.JPEG\tn01443537\t0\n",
        "val_1.JPEG\n",
    ):  # a file once, below val
        annotations.write_text(lines + line)
        fails("tiny_imagenet", tmp_path, f"{annotations} must name each image of val/images once", verify=False)
    annotations.write_text(lines.replace("n01443537", "n99999999"))
    fails("tiny_imagenet", tmp_path, "val_annotations.txt differs: n99999999", verify=False)
    annotations.write_text(lines)
    for file in (root / "train" / WNIDS[0] / "images").iterdir():
        file.unlink()
    fails("tiny_imagenet", tmp_path, f"train differs: {WNIDS[0]}", verify=False)
    annotations.unlink()
    fails("tiny_imagenet", tmp_path, "lacks val/val_annotations.txt", verify=False)


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
    fails("tiny_imagenet", tmp_path, "must have valid-*.parquet beside other files of 'tiny_imagenet'")
    whole = (folder / "train-00000-of-00001.parquet").read_bytes()
    (folder / "valid-00000-of-00001.parquet").write_bytes(whole[:-30])
    fails("tiny_imagenet", tmp_path, "valid-00000-of-00001.parquet is not a whole parquet file", verify=False)
