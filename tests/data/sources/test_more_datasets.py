"""SVHN, EMNIST-balanced and Tiny-ImageNet, on small made-up files of the published formats."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.data import DATASETS, load
from fedskew.data.sources import more_images, parquet, readers
from fedskew.data.sources.files import Known, md5_of
from fedskew.data.sources.more_images import EMNIST
from fedskew.errors import DataError

GEN = np.random.Generator(np.random.PCG64(0))
MATS = ("train_32x32.mat", "test_32x32.mat")
WNIDS = ("n02124075", "n04067472", "n01443537")  # not sorted, as in the official list


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the user's folders."""
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)


def fails(name: str, path: Path | None, *parts: str, **options: Any) -> None:
    """Loading raises a DataError of one line that says all of this."""
    with pytest.raises(DataError) as error:
        load(name, None if path is None else str(path), **options)
    text = str(error.value)
    assert "\n" not in text
    for part in parts:
        assert part in text, text


def encoded(image: np.ndarray, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    pytest.importorskip("PIL.Image").fromarray(image).save(out, kind, **how)
    return out.getvalue()


def decoded(content: bytes) -> torch.Tensor:
    """What Pillow makes of a JPEG, as [3, H, W]."""
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(content)).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def write_parquet(
    folder: Path, split: str, images: list[np.ndarray], labels: Any, names: list[str] | None = None
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"image": [{"bytes": encoded(i, "PNG"), "path": None} for i in images], "label": labels})
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")


# SVHN.


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


def test_svhn_files_that_are_not_the_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mats(tmp_path)
    train = tmp_path / MATS[0]
    own = "for files of your own in this format set verify to false"
    fails("svhn", tmp_path, str(train), "expected md5 e26dedcc434d2e4c", "expected 73257 training rows, got 20", own)
    counts = (2,) * 10, (1, 2, *[1] * 8)
    monkeypatch.setattr(more_images.Svhn, "known", (Known(20, counts=counts[0]), Known(11, counts=counts[1])))
    fails("svhn", tmp_path, f"{train} (expected md5 e26dedcc434d2e4c", "not the published file", own)
    md5 = {name: md5_of((tmp_path / name).read_bytes()) for name in MATS}
    monkeypatch.setattr(more_images.Svhn, "md5", md5)
    assert load("svhn", str(tmp_path)).notes == ()
    monkeypatch.setattr(more_images.Svhn, "known", (Known(20, counts=(3, 1, *[2] * 8)), Known(11, counts=counts[1])))
    os.utime(train, ns=(1, 1))
    fails("svhn", tmp_path, "training rows were altered: expected 3 rows of class 0, got 2")


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.999])
def test_truncated_svhn_files_are_named(tmp_path: Path, share: float) -> None:
    write_mats(tmp_path)
    file = tmp_path / MATS[1]
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    fails("svhn", tmp_path, str(file), verify=False)


def test_damaged_and_missing_svhn_files_are_named(tmp_path: Path) -> None:
    write_mats(tmp_path / "a")
    file = tmp_path / "a" / MATS[0]
    for content in (b"", b"no matlab file " * 40, file.read_bytes()[:-200] + b"\xff" * 200):
        file.write_bytes(content)
        fails("svhn", tmp_path / "a", str(file), verify=False)
    file.unlink()
    fails("svhn", tmp_path / "a", f"lacks {MATS[0]}")
    write_mats(tmp_path / "b", X=np.zeros((4, 4, 3, 5), np.uint8))
    fails("svhn", tmp_path / "b", "must hold X [32, 32, 3, n] and y [n, 1]; got (4, 4, 3, 5)", verify=False)
    write_mats(tmp_path / "c", y=np.zeros((20, 1)))
    fails("svhn", tmp_path / "c", "must hold 'y', an array of bytes", verify=False)
    write_mats(tmp_path / "d", y=np.full((20, 1), 11, np.uint8), rows=(20, 20))
    fails("svhn", tmp_path / "d", "labels must be 0..9; got 11..11", verify=False)


def test_svhn_parquet_in_the_hub_s_layout(tmp_path: Path) -> None:
    images = [GEN.integers(0, 256, (32, 32, 3)).astype(np.uint8) for _ in range(10)]
    folder = tmp_path / "svhn" / "cropped_digits"
    for split in ("train", "test", "extra"):
        write_parquet(folder, split, images, list(range(10)))
    made = load("svhn", str(tmp_path), verify=False)
    assert made.y.tolist() == list(range(10)) and torch.equal(
        made.x[3], torch.from_numpy(images[3].copy()).permute(2, 0, 1)
    )
    fails("svhn", tmp_path, "expected 73257 training rows, got 10")
    (folder / "test-00000-of-00001.parquet").unlink()
    fails("svhn", tmp_path, "has parquet files of 'svhn' but lacks test-*.parquet")


# EMNIST-balanced.


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


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
    assert made.x[5, 0, 3, 20] == x[5, 20, 3] != x[5, 3, 20]
    assert torch.equal(made.x[:, 0], torch.from_numpy(x.transpose(0, 2, 1).copy()))
    assert torch.equal(made.x_test[:, 0], torch.from_numpy(x_test.transpose(0, 2, 1).copy()))
    assert made.y.tolist() == y.tolist() and made.mean == (0.1307,) and made.std == (0.3081,)
    assert made.label_names[10] == "A" and made.label_names[36:] == tuple("abdefghnqrt")
    again = load("emnist_balanced", str(tmp_path), verify=False)
    assert again.name == "emnist_balanced" and again.fingerprint == made.fingerprint


def test_emnist_files_that_are_not_the_published_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_emnist(tmp_path)
    images = tmp_path / f"{EMNIST[0]}.gz"
    fails("emnist", tmp_path, str(images), "expected 112800 training rows, got 94; for files of your own")
    known = Known(94, counts=(2,) * 47), Known(47, counts=(1,) * 47)
    monkeypatch.setattr(more_images.Emnist, "known", known)
    assert load("emnist", str(tmp_path)).notes[0].startswith("of the training rows only the number of each class")
    monkeypatch.setattr(more_images.Emnist, "known", (known[0], Known(47, counts=(2, 0, *[1] * 45))))
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
    fails("emnist", tmp_path, f"has some files of the dataset but lacks {EMNIST[0]}.gz", verify=False)
    fails("emnist", None, "'emnist' was not found in any folder (FEDSKEW_DATA is not set); set FEDSKEW_DATA or")


def test_emnist_parquet_is_taken_as_it_is(tmp_path: Path) -> None:
    images = [GEN.integers(0, 256, (28, 28)).astype(np.uint8) for _ in range(47)]
    for split in ("train", "test"):
        write_parquet(tmp_path / "emnist" / "data", split, images, list(range(47)))
    made = load("emnist", str(tmp_path), verify=False)
    assert torch.equal(made.x[8, 0], torch.from_numpy(images[8])) and made.y.tolist() == list(range(47))
    assert made.mean == (0.1307,)


# Tiny-ImageNet.


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
    fails("tiny_imagenet", tmp_path, f"{tmp_path / 'wnids.txt'}: expected 100000 training rows, got 33; for files")
    monkeypatch.setattr(more_images.TinyImageNet, "known", (Known(33, counts=(11, 11, 11)), Known(6, counts=(2, 2, 2))))
    assert len(load("tiny_imagenet", str(tmp_path)).notes) == 2
    monkeypatch.setattr(more_images.TinyImageNet, "known", (Known(33, counts=(12, 10, 11)), Known(6)))
    os.utime(tmp_path / "wnids.txt", ns=(1, 1))
    fails("tiny_imagenet", tmp_path, "the training rows were altered: expected 12 rows of class 0, got 11")


def test_a_changed_image_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path, each=2)
    first = load("tiny_imagenet", str(tmp_path), verify=False)
    changed = tmp_path / "train" / WNIDS[1] / "images" / f"{WNIDS[1]}_1.JPEG"
    changed.write_bytes(encoded(np.zeros((64, 64, 3), np.uint8), "JPEG"))
    second = load("tiny_imagenet", str(tmp_path), verify=False)
    assert second.fingerprint != first.fingerprint and not second.x[3].any()
    monkeypatch.setattr(parquet, "decode_images", None)
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
    (root / "val/images/val_3.JPEG").unlink()
    fails("tiny_imagenet", tmp_path, "no readable image in", "val_3.JPEG", verify=False)
    annotations = root / "val" / "val_annotations.txt"
    for lines in ("val_0.JPEG\tn01443537\t0\nval_1.JPEG\tn99999999\t0\n", "val_0.JPEG\tn01443537\nval_1.JPEG\n"):
        annotations.write_text(lines)
        fails("tiny_imagenet", tmp_path, f"{annotations} must name an image and a class", "in entry 2", verify=False)
    annotations.write_text("")
    fails("tiny_imagenet", tmp_path, "must have rows; got none", verify=False)
    annotations.unlink()
    fails("tiny_imagenet", tmp_path, "lacks val/val_annotations.txt", verify=False)
    annotations.write_text("val_0.JPEG\tn01443537\t0\n")
    for file in (root / "train" / WNIDS[0] / "images").iterdir():
        file.unlink()
    fails("tiny_imagenet", tmp_path, f"{WNIDS[0]}/images must hold the images *.JPEG of its class", verify=False)
    (root / "wnids.txt").unlink()
    fails("tiny_imagenet", tmp_path, "lacks wnids.txt", verify=False)


def tiny_rows() -> list[np.ndarray]:
    """The first is grey, the second is not."""
    return [GEN.integers(0, 256, s).astype(np.uint8) for s in ((64, 64), (64, 64, 3), (64, 64, 3))]


def test_tiny_imagenet_parquet_in_the_hub_s_layout(tmp_path: Path) -> None:
    images, names = tiny_rows(), sorted(WNIDS)
    folder = tmp_path / "tiny-imagenet" / "data"
    for split in ("train", "valid"):
        write_parquet(folder, split, images, [0, 1, 2], names)
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


# The hub, and what is missing.


@pytest.mark.parametrize(
    ("name", "config", "test"), [("svhn", "cropped_digits", "test"), ("tiny_imagenet", None, "valid")]
)
def test_the_hub_is_asked_for_the_right_split(
    monkeypatch: pytest.MonkeyPatch, name: str, config: Any, test: str
) -> None:
    datasets = pytest.importorskip("datasets")
    side = 32 if name == "svhn" else 64
    labels = [str(i) for i in range(10)] if name == "svhn" else sorted(WNIDS)
    rows = [GEN.integers(0, 256, (side, side, 3)).astype(np.uint8) for _ in labels]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=labels)})
    columns = {
        "image": [{"bytes": encoded(r, "PNG"), "path": None} for r in rows],
        "label": list(range(len(labels))),
    }
    split = datasets.Dataset.from_dict(columns, features=features)
    asked = []

    def answer(repo: str, config: str | None) -> Any:
        asked.append((repo, config))
        return datasets.DatasetDict({"train": split, test: split, "extra": split})

    monkeypatch.setattr(datasets, "load_dataset", answer)
    made = load(name)
    assert asked == [(DATASETS[name].repo, config)] and made.source == f"hub {DATASETS[name].repo}"
    assert made.label_names == tuple(labels) and made.y_test.tolist() == list(range(len(labels))) and made.mean == ()
    assert torch.equal(made.x[2], torch.from_numpy(rows[2].copy()).permute(2, 0, 1))


@pytest.mark.parametrize("name", ["svhn", "emnist", "emnist_balanced", "tiny_imagenet"])
def test_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    fails(name, None, f"dataset '{name}' was not found in any folder (FEDSKEW_DATA is not set)")
    fails(name, tmp_path, f"dataset '{name}' was not found in '{tmp_path}'")


def test_scipy_is_imported_late() -> None:
    assert "loadmat" not in vars(readers)
    assert "scipy" not in {getattr(v, "__name__", "").split(".")[0] for v in vars(readers).values()}
