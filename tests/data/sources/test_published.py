"""Published image sets, on small made-up files of the published formats: what is read, and what a bad file is told."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fedskew.data import DATASETS, load
from fedskew.data.arrays import build, channel_statistics
from fedskew.data.sources import pictures, readers
from fedskew.data.sources.files import SplitFacts, rows_digest
from fedskew.data.sources.images import Published
from fedskew.data.sources.published import EMNIST, IDX
from fedskew.errors import ConfigError, DataError
from support.data_files import GEN, WNIDS, decoded, encoded, fails, write_idx, write_parquet, write_split

pytestmark = pytest.mark.usefixtures("_nowhere")


def noise(*shape: int) -> np.ndarray:
    return GEN.integers(0, 256, shape).astype(np.uint8)


def tensor(image: np.ndarray) -> torch.Tensor:
    """An image [H, W] or [H, W, 3] as [1, H, W] or [3, H, W]."""
    return torch.from_numpy(np.atleast_3d(image).transpose(2, 0, 1).copy())


# idx: MNIST, Fashion-MNIST, EMNIST


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "mnist"), ("fashion_mnist", "fashion-mnist"), ("mnist", "."),
        *(("emnist", folder) for folder in ("emnist", "emnist/gzip", "EMNIST/raw", "gzip", ".")),
    ],
)  # fmt: skip
def test_idx_files_are_read_below_or_in_the_folder(tmp_path: Path, name: str, folder: str, zipped: bool) -> None:
    assert EMNIST[::3] == ["emnist-balanced-train-images-idx3-ubyte", "emnist-balanced-test-labels-idx1-ubyte"]
    rows, names, classes = ((94, 47), EMNIST, 47) if name == "emnist" else ((20, 10), IDX, 10)
    x, y, x_test, y_test = write_idx(tmp_path / folder, zipped, rows, names, classes)
    made = load(name, str(tmp_path), verify=False)
    if name == "emnist":  # the official files hold every image transposed
        x, x_test = (part.swapaxes(1, 2).copy() for part in (x, x_test))
        assert made.label_names[10] == "A" and made.label_names[36:] == tuple("abdefghnqrt")
    assert torch.equal(made.x[:, 0], torch.from_numpy(x)) and made.y.tolist() == y.tolist()
    assert torch.equal(made.x_test[:, 0], torch.from_numpy(x_test)) and made.y_test.tolist() == y_test.tolist()
    assert made.classes == classes and made.test_is_official and "not compared" in made.notes[0]
    count = DATASETS[name].known[0].rows
    fails(name, tmp_path, names[0], f"expected {count} training rows, got {rows[0]}; for files of your own")


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
    given: dict[str, Any] = {"path": str(tmp_path), "verify": False}
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
    told, asked = "crop_padding must be zeros without augment", {"crop_padding": "reflect", "verify": False}
    fails("mnist", tmp_path, told, kind=ConfigError, **asked)


def test_truncated_and_missing_idx_files_are_named(tmp_path: Path) -> None:
    write_idx(tmp_path)
    images = tmp_path / f"{IDX[0]}.gz"
    whole = images.read_bytes()
    for content, said in (
        (whole[: len(whole) // 2], "is damaged"),
        (gzip.compress(gzip.decompress(whole)[:-5]), "truncated or altered: expected 15680 bytes of data, got 15675"),
        (b"no idx file", "must be an idx file"),
    ):
        images.write_bytes(content)
        fails("mnist", tmp_path, str(images), said, verify=False)
    images.unlink()
    fails("mnist", tmp_path, f"lacks {IDX[0]}.gz", verify=False)


def test_the_digest_does_not_depend_on_the_order_of_the_rows() -> None:
    x, y, order = noise(30, 4), np.arange(30) % 7, GEN.permutation(30)
    assert rows_digest(x, y) == rows_digest(x[order], y[order]) != rows_digest(x, y[::-1])
    changed = x.copy()
    changed[3, 1] ^= 1
    assert rows_digest(x, y) != rows_digest(changed, y)


# Parquet, as on the hub


LAYOUTS: dict[str, tuple[str, str, list[tuple[int, ...]]]] = {  # folder, split of test rows, shapes of the images
    "emnist": ("emnist/data", "test", [(28, 28)] * 47),
    "svhn": ("svhn/cropped_digits", "test", [(32, 32, 3)] * 10),
    "tiny_imagenet": ("tiny-imagenet/data", "valid", [(64, 64), (64, 64, 3), (64, 64, 3)]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_parquet_files_in_the_hub_s_layout(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, test, shapes = LAYOUTS[name]
    images, labels, kind = [noise(*shape) for shape in shapes], [*range(len(shapes))], DATASETS[name]
    names = sorted(WNIDS) if name == "tiny_imagenet" else None
    for split in ("train", test, "extra"):
        write_split(tmp_path / folder, split, images, labels, names)
    made = load(name, str(tmp_path), verify=False)
    assert made.y.tolist() == made.y_test.tolist() == labels and made.test_is_official
    for x in (made.x, made.x_test):  # a grey image among coloured ones gets three equal channels
        assert all(torch.equal(x[i], tensor(image).expand(made.shape)) for i, image in enumerate(images))
    assert made.label_names == tuple(names or kind.names) and (made.mean, made.std) == kind.protocol
    told = f"expected {kind.known[0].rows} training rows, got {len(labels)}"
    fails(name, tmp_path, told, "of your own in this format set verify to false")
    ones = SplitFacts(len(labels), counts=(1,) * len(labels))
    monkeypatch.setattr(kind, "known", (ones, ones))
    assert all("only the number of each class was compared" in note for note in load(name, str(tmp_path)).notes)
    monkeypatch.setattr(kind, "known", (SplitFacts(len(labels), counts=(2, 0, *[1] * (len(labels) - 2))), ones))
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "empty"))
    fails(name, tmp_path, "the training rows were altered: expected 2 rows of class 0, got 1")
    file = tmp_path / folder / f"{test}-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:-30])
    fails(name, tmp_path, f"{file.name} is not a whole parquet file")
    file.unlink()
    fails(name, tmp_path, f"must have {test}-*.parquet beside other files of '{name}'")


# CIFAR


def batch(rows: int, tops: tuple[int, ...]) -> tuple[bytes, np.ndarray, list[list[int]]]:
    """(records, images, labels): those of the last column are coarse, which stand first in a record."""
    x, y = noise(rows, 3072), [[i % top for i in range(rows)] for top in tops]
    return np.column_stack([*map(np.uint8, y[::-1]), x]).tobytes(), x.reshape(-1, 3, 32, 32), y


CIFAR = {
    "cifar10": ("cifar-10-batches-bin", [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"], (10,)),
    "cifar100": ("cifar-100-binary", ["train.bin", "test.bin"], (100, 20)),
}


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("name", CIFAR)
def test_official_cifar_batches_are_read(tmp_path: Path, name: str, direct: bool) -> None:
    folder, files, tops = CIFAR[name]
    made = [batch(20, tops) for _ in files]
    (tmp_path / folder).mkdir()
    for file, (raw, _, _) in zip(files, made, strict=True):
        (tmp_path / folder / file).write_bytes(raw)
    got = load(name, str(tmp_path / folder if direct else tmp_path), verify=False)
    assert torch.equal(got.x, torch.from_numpy(np.concatenate([x for _, x, _ in made[:-1]])))
    assert torch.equal(got.x_test, torch.from_numpy(made[-1][1]))
    assert got.y.tolist() == [v for *_, y in made[:-1] for v in y[0]]
    assert got.classes == tops[0] == len(got.label_names)


def test_cifar100_has_coarse_labels_and_superclasses_as_clients(tmp_path: Path) -> None:
    for file in CIFAR["cifar100"][1]:
        (tmp_path / file).write_bytes(batch(200, (100, 20))[0])
    fine, coarse = (load("cifar100", str(tmp_path), verify=False, coarse=c) for c in (False, True))
    assert (fine.classes, coarse.classes) == (100, 20) and coarse.label_names[0] == "aquatic_mammals"
    assert coarse.y.tolist() == [i % 20 for i in range(200)] == coarse.columns["coarse_label"].tolist()
    assert fine.column_names["coarse_label"] == coarse.label_names


def test_batches_that_are_no_records_are_refused(tmp_path: Path) -> None:
    files = CIFAR["cifar10"][1]
    for file in files:
        (tmp_path / file).write_bytes(batch(4, (10,))[0])
    for content in (b"", b"x", batch(4, (10,))[0][:-1]):
        (tmp_path / files[2]).write_bytes(content)
        told = f"data_batch_3.bin must hold whole records of 3073 bytes; got {len(content)}"
        fails("cifar10", tmp_path, told, verify=False)
    (tmp_path / files[2]).unlink()
    fails("cifar10", tmp_path, "lacks data_batch_3.bin")


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
@pytest.mark.parametrize("raw", [False, True])
def test_cifar_parquet_in_the_hub_s_layout(tmp_path: Path, kind: str, raw: bool) -> None:
    images, y, folder = noise(12, 32, 32, 3), np.arange(12) % 10, tmp_path / "cifar10"
    for part in (0, 1):
        at = slice(5 * part, 5 * part + 5)
        write_parquet(folder / f"train-0000{part}-of-00002.parquet", images[at], kind, raw, label=y[at])
    write_parquet(folder / "test-00000-of-00001.parquet", images[10:], kind, raw, label=y[10:])
    made = load("cifar10", str(tmp_path), verify=False)
    assert torch.equal(made.x, torch.from_numpy(images[:10].transpose(0, 3, 1, 2).copy()))
    assert made.y.tolist() == list(range(10)) and made.y_test.tolist() == [0, 1]
    assert made.label_names[0] == "airplane" and made.x_test.shape == (2, 3, 32, 32)
    (folder / "train-00001-of-00002.parquet").unlink()
    fails("cifar10", tmp_path, "must hold 2 files train-*.parquet; got 1")


# SVHN


MATS = ("train_32x32.mat", "test_32x32.mat")


def write_mats(folder: Path, rows: tuple[int, int] = (20, 11), **change: Any) -> list[np.ndarray]:
    """MATLAB 5 files, compressed as the official ones are: X [32, 32, 3, n], y [n, 1] with 10 for the digit 0."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for file, n in zip(MATS, rows, strict=True):
        made.append(noise(32, 32, 3, n))
        y = (np.arange(n, dtype=np.uint8) % 10 + 1)[:, None]
        savemat(folder / file, {"X": made[-1], "y": y} | change, do_compression=True)
    return made


@pytest.mark.parametrize("folder", ["svhn", "."])
def test_svhn_matlab_files(tmp_path: Path, folder: str) -> None:
    x, x_test = write_mats(tmp_path / folder)
    made = load("svhn", str(tmp_path), verify=False)
    assert made.x.shape == (20, 3, 32, 32) and made.x_test.shape == (11, 3, 32, 32)
    assert made.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] * 2
    assert torch.equal(made.x[7], tensor(x[..., 7])) and torch.equal(made.x_test[10], tensor(x_test[..., 10]))
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
    changes: dict[str, dict[str, Any]] = {
        "must hold X [32, 32, 3, n] and y [n, 1]; got (4, 4, 3, 5)": {"X": np.zeros((4, 4, 3, 5), np.uint8)},
        "must hold 'y', an array of bytes; got X": {"y": np.zeros((20, 1))},
        "must have labels 1..10, 10 for the digit 0; got 11..11": {"y": np.full((20, 1), 11, np.uint8)},
    }
    for said, change in changes.items():
        write_mats(tmp_path / "b", (20, 20), **change)
        fails("svhn", tmp_path / "b", said, verify=False)


def test_damaged_matlab_files_are_one_line_and_end_no_process(tmp_path: Path) -> None:
    file = tmp_path / MATS[0]
    savemat(file, {"X": noise(32, 32, 3, 4), "y": np.ones((4, 1), np.uint8)})
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


# Tiny-ImageNet


def write_tiny(root: Path, each: int = 2, valid: int = 2) -> dict[str, bytes]:
    """The official folder with three classes; the first image of the first class is grey, as some are."""
    contents = {}

    def write(path: str, *shape: int) -> None:
        contents[path] = encoded(noise(*shape), "JPEG", quality=90)
        (root / path).write_bytes(contents[path])

    for place in (*(f"train/{wnid}/images" for wnid in WNIDS), "val/images", "test/images"):
        (root / place).mkdir(parents=True)
    for wnid in WNIDS:
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("0 0 63 63\n")
        for i in range(each):
            write(f"train/{wnid}/images/{wnid}_{i}.JPEG", *((64, 64) if (wnid, i) == (WNIDS[0], 0) else (64, 64, 3)))
    lines = [f"val_{i}.JPEG\t{WNIDS[-1 - i % 3]}\t0\t0\t62\t62\n" for i in range(valid * len(WNIDS))]
    for i in range(len(lines)):
        write(f"val/images/val_{i}.JPEG", 64, 64, 3)
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    return contents


@pytest.mark.parametrize("folder", ["tiny-imagenet-200", "tiny_imagenet", "."])
def test_tiny_imagenet_s_official_folder(tmp_path: Path, folder: str) -> None:
    contents = write_tiny(tmp_path / folder, each=11)
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
    fails("tiny_imagenet", tmp_path, "wnids.txt", " and more: expected 100000 training rows, got 33; for files")


def test_a_changed_image_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny(tmp_path)
    first = load("tiny_imagenet", str(tmp_path), verify=False)
    changed = tmp_path / "train" / WNIDS[1] / "images" / f"{WNIDS[1]}_1.JPEG"
    changed.write_bytes(encoded(np.zeros((64, 64, 3), np.uint8), "JPEG"))
    os.utime(changed, ns=(1, 1))
    second = load("tiny_imagenet", str(tmp_path), verify=False)
    assert second.fingerprint != first.fingerprint and not second.x[3].any()
    monkeypatch.setattr(pictures, "decode_images", None)
    assert load("tiny_imagenet", str(tmp_path), verify=False).fingerprint == second.fingerprint  # from the cache


def test_damaged_and_missing_tiny_imagenet_files_are_named(tmp_path: Path) -> None:
    root = tmp_path / "tiny-imagenet-200"
    contents = write_tiny(root)
    path = f"train/{WNIDS[2]}/images/{WNIDS[2]}_1.JPEG"
    image, annotations = root / path, root / "val" / "val_annotations.txt"
    lines = annotations.read_text()

    def said(*parts: str) -> None:
        fails("tiny_imagenet", tmp_path, *parts, verify=False)

    image.write_bytes(contents[path][: len(contents[path]) // 2])
    said("dataset 'tiny_imagenet' has no readable image in", f"'{image}'")
    image.write_bytes(encoded(np.zeros((32, 64, 3), np.uint8), "JPEG"))
    said(f"'{image}' is 64x32, '{root}", "is 64x64")
    image.write_bytes(contents[path])
    once = f"{annotations} must name each image of val/images once"
    (root / "val/images/val_3.JPEG").rename(root / "val/images/val_9.JPEG")
    said(once)
    (root / "val/images/val_9.JPEG").rename(root / "val/images/val_3.JPEG")
    for line in ("../../wnids.txt\tn01443537\t0\n", "val_0.JPEG\tn01443537\t0\n", "val_1.JPEG\n"):
        annotations.write_text(lines + line)  # a file below val, once
        said(once)
    annotations.write_text(lines.replace("n01443537", "n99999999"))
    said("val_annotations.txt differs: n99999999")
    annotations.write_text(lines)
    for file in (root / "train" / WNIDS[0] / "images").iterdir():
        file.unlink()
    said(f"train differs: {WNIDS[0]}")
    annotations.unlink()
    said("lacks val/val_annotations.txt")


# Labels47


def test_four_datasets_become_47_labels_of_their_first_rows_in_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    colours = noise(4, 10_000, 3)

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
