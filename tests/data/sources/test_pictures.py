"""Pictures: what Pillow holds is what is read; folders are splits, clients or classes; nothing is lost in silence."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedskew as fs
from fedskew import rng
from fedskew.data import load
from fedskew.data.inputs import Inputs, Rows, augment, rows_of
from fedskew.data.sources.pictures import decode_images
from fedskew.data.sources.table import DATASETS
from support.command import refused
from support.data_files import GEN, fails

pytestmark = pytest.mark.usefixtures("_nowhere")
Image = pytest.importorskip("PIL.Image")
COLOUR, GREY = (8, 8, 3), (8, 8)


def noise(shape: tuple[int, ...] = COLOUR, low: int = 0, high: int = 256, kind: Any = np.uint8) -> np.ndarray:
    return GEN.integers(low, high, shape).astype(kind)


def put(file: Path, array: np.ndarray | None = None, **how: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise() if array is None else array).save(file, **how)


def folders(root: Path, *places: str, each: int = 6) -> Path:
    for place in places:
        for i in range(each):
            put(root / place / f"{i}.png")
    return root


def content(image: Any, kind: str, **how: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **how)
    return out.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"]),
    kind=st.sampled_from(["PNG", "TIFF", "GIF", "BMP", "WEBP", "TGA", "PPM", "JPEG2000"]),
    seed=st.integers(0, 99), asked=st.sampled_from([None, "L", "RGB"]),
)  # fmt: skip
def test_a_picture_is_what_pillow_holds(mode: str, kind: str, seed: int, asked: Any) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 5, 4)).astype(np.uint8)
    try:
        raw = content(
            Image.fromarray(pixels, "RGBA").convert(mode), kind, **({"lossless": True} if kind == "WEBP" else {})
        )
    except (OSError, ValueError):
        return  # the format has no such mode
    told: list[str] = []
    found = decode_images([raw], "x", asked, account=told)
    held = Image.open(io.BytesIO(raw))
    held.load()
    clear = held.convert("RGBA")
    laid = Image.alpha_composite(Image.new("RGBA", held.size, "white"), clear)
    flat = held.convert("RGB") if clear.getextrema()[3][0] == 255 else laid.convert("RGB")
    grey = asked == "L" or (asked is None and held.mode in ("1", "L", "LA"))
    right = np.asarray(flat.convert("L"))[None] if grey else np.asarray(flat).transpose(2, 0, 1)
    assert np.abs(found[0].astype(int) - right.astype(int)).max() <= (1 if held.mode == "P" else 0)
    assert any("transparency, laid on white" in line for line in told) == (clear.getextrema()[3][0] < 255)
    assert held.mode in told[0]


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_grey_of_more_than_8_bits_keeps_its_range(kind: str, bits: int) -> None:
    pixels = noise(GREY, 0, 1 << bits, np.uint16)
    found = decode_images([content(Image.fromarray(pixels), kind)], "x")
    assert found.dtype == np.float32 and found.shape == (1, 1, 8, 8)
    assert np.array_equal(np.rint(found[0, 0] * 65535), pixels)  # nothing is clipped, and no level is lost
    three = decode_images([content(Image.fromarray(pixels), kind)], "x", "RGB", size=4)
    assert three.shape == (1, 3, 4, 4) and np.array_equal(three[0, 0], three[0, 2]) and three.max() <= found.max()


def test_pgm_of_12_bits_and_floats() -> None:
    held = b"P5 2 1 4095\n" + struct.pack(">2H", 4095, 2048)
    assert np.allclose(decode_images([held], "x").ravel(), [1, 2048 / 4095], atol=1e-4)
    values = np.array([[-3.5, 0.25], [1e6, 2]], np.float32)
    assert np.array_equal(decode_images([content(Image.fromarray(values), "TIFF")], "x")[0, 0], values)


def test_16_bits_a_colour_are_refused_where_pillow_drops_half_of_them() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head, rows = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0), zlib.compress(b"\0" + bytes(range(12)))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    for raw in (png, b"P6 2 1 65535\n" + bytes(range(12))):
        with pytest.raises(fs.DataError, match="it has 16 bits a colour, of which Pillow keeps 8; store it with 8"):
            decode_images([raw], "x")


def test_orientation_frames_and_hidden_colours() -> None:
    pixels, exif = noise(), Image.Exif()
    exif[0x0112] = 6
    told: list[str] = []
    found = decode_images([content(Image.fromarray(pixels), "PNG", exif=exif)], "x", account=told)
    assert np.array_equal(found[0].transpose(1, 2, 0), np.rot90(pixels, 3)) and "1 picture turned as EXIF says" in told
    two = [Image.fromarray(noise(GREY)) for _ in range(2)]
    film = content(two[0], "GIF", save_all=True, append_images=two[1:])
    assert np.array_equal(decode_images([film], "x", "L", account=told)[0, 0], np.asarray(two[0]))
    assert told[-1] == "1 picture of several frames, of which the first is read"
    clear = Image.fromarray(np.dstack([pixels, np.zeros(GREY, np.uint8)]))
    for name, value in (("white", 255), ("black", 0), ("grey", 128)):
        assert (decode_images([content(clear, "PNG")], "x", background=name) == value).all()  # type: ignore[arg-type]
    index = Image.fromarray(noise(GREY) % 4).convert("P")
    assert (decode_images([content(index, "PNG", transparency=bytes(256))], "x") == 255).all()


def test_a_folder_of_grey_and_coloured_pictures_is_coloured_whichever_comes_first(tmp_path: Path) -> None:
    for first, second in ((GREY, COLOUR), (COLOUR, GREY)):
        root = tmp_path / str(len(first))
        for i in range(5):
            put(root / "a" / f"{i}.png", noise(first))
            put(root / "b" / f"{i}.png", noise(second))
        data = load("images", str(root))
        assert data.shape == (3, 8, 8) and "RGB (5)" in data.reading.pictures[0] and "L (5)" in data.reading.pictures[0]
    put(tmp_path / "3" / "a" / "9.png", noise(GREY, 0, 9999, np.uint16))
    fails("images", tmp_path / "3", "must have images of one depth; ", "9.png' is more than 8 bits")


def bright(root: Path, each: int = 20) -> Path:
    for c, low in (("a", 1000), ("b", 3000)):
        for i in range(each):
            put(root / c / f"{i}.png", noise(GREY, low, low + 800, np.uint16))
    return root


def test_two_brightnesses_of_12_bits_are_learned_and_new_rows_are_read_alike(tmp_path: Path) -> None:
    fed = fs.federate("images", "iid", clients=2, path=str(bright(tmp_path / "p")))
    assert fed.dataset.x.unique().numel() > 500 and 0 < fed.dataset.mean[0] < 0.1
    result = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=10, out=tmp_path / "r")
    assert result.summary["final_accuracy"] == 1.0
    trained = fs.load_model(tmp_path / "r")
    new = rows_of(DATASETS["images"](), str(bright(tmp_path / "new", 4)), trained.inputs)
    assert isinstance(new, Rows) and (trained.predict(new.x) == torch.tensor([0] * 4 + [1] * 4)).all()
    assert list(new.notes) == []
    folders(tmp_path / "eight", "a", "b", each=2)
    (tmp_path / "eight" / "a" / "x.zip").write_bytes(b"PK")
    eight = rows_of(DATASETS["images"](colours="grey"), str(tmp_path / "eight"), trained.inputs)
    assert list(eight.notes) == ["1 file left out: ends in .zip"]
    with pytest.raises(fs.DataError, match="must be features of shape"):  # 8 bits are on another scale
        trained.predict(eight.x)  # type: ignore[union-attr]


@pytest.mark.parametrize("beside", ["", "__MACOSX", ".ipynb_checkpoints", ".git", "@eaDir"])
@pytest.mark.parametrize("names", [("train", "test"), ("Train", "TEST"), ("training", "Testing")])
def test_folders_of_splits_are_known_in_any_case(names: tuple[str, str], beside: str, tmp_path: Path) -> None:
    root = folders(tmp_path, *(f"{names[0]}/{c}" for c in "ab"))
    folders(root, *(f"{names[1]}/{c}" for c in "ab"), each=2)
    folders(root, "Valid/a", each=3)
    if beside:
        folders(root, f"{beside}/a", f"{names[0]}/.cache", f"{names[0]}/a/{beside}")
    (root / names[0] / "a" / "Thumbs.db").write_bytes(b"x")
    (root / names[0] / ".DS_Store").write_bytes(b"x")
    data = load("images", str(root))
    assert (len(data.x), len(data.x_test), data.label_names, data.columns) == (12, 4, ("a", "b"), {})
    tests = {np.asarray(Image.open(f)).transpose(2, 0, 1).tobytes() for f in (root / names[1]).rglob("*.png")}
    assert not any(x.numpy().tobytes() in tests for x in data.x)
    assert data.reading.left_out == (("for validation, in Valid", 3),)
    assert data.reading.files == ((names[0], 12), (names[1], 4))


def test_splits_beside_other_folders_are_refused_until_the_layout_says_what_they_are(tmp_path: Path) -> None:
    root = folders(tmp_path / "a", "train/a", "train/b", "test/a", "test/b", "labels/a")
    fails("images", root, "got test, train beside labels", "Images.layout: classes, splits or clients")
    data = load("images", str(root), layout="splits")
    assert len(data.x) == 12 and "folders beside the splits are left out: labels" in data.notes
    assert load("images", str(root), layout="clients").column_names == {"client": ("labels", "test", "train")}
    fails("images", root, "lies 2 folders deep", layout="classes")
    vehicles = folders(tmp_path / "v", "train", "bus")
    fails("images", vehicles, "got train beside bus")
    assert load("images", str(vehicles), layout="classes").label_names == ("bus", "train")
    fails("images", folders(tmp_path / "c", "cat/train", "cat/test", "dog/train"), "got test in another folder")
    fails("images", folders(tmp_path / "d", "train/a", "training/a"), "must have one training set; got train, training")
    fails("images", folders(tmp_path / "e", "test/a", "val/a"), "must have a folder train beside test, val")
    fails(
        "images",
        folders(tmp_path / "f", "cat", "dog"),
        "must have a folder train, for Images.layout splits",
        layout="splits",
    )


def test_every_file_is_read_or_counted(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    for i in range(8):
        put(root / "cat" / f"{i}.PNG")
        put(root / "dog" / f"{i}.{('gif', 'tif', 'bmp', 'webp')[i % 4]}")
        put(root / "emu" / f"{i}.JPEG")
    (root / "README.txt").write_text("x")
    (root / "dog" / "more.zip").write_bytes(b"PK")
    (root / "fox").mkdir()
    data = load("images", str(root))
    assert len(data.x) + len(data.x_test) == 24 and data.label_names == ("cat", "dog", "emu")
    assert data.reading.left_out == (("ends in .txt", 1), ("ends in .zip", 1))
    assert "1 file left out: ends in .zip" in data.notes
    assert "folders without a file are no classes: fox" in data.notes
    assert load("images", str(root)).reading == data.reading  # from the cache
    (root / "fox" / "a.raw").write_bytes(b"x")
    fails("images", root, "must have an image in each folder of a class or client; got none in fox; take it out")
    (root / "fox" / "a.raw").unlink()
    put(tmp_path / "outside" / "0.png")
    (root / "gnu").symlink_to(tmp_path / "outside")
    fails("images", root, "got none in gnu; take it out, or put its images there")
    (root / "gnu").unlink()
    os.mkfifo(root / "cat" / "pipe.png")
    assert ("no file that can be read", 1) in load("images", str(root)).reading.left_out
    (root / "cat" / "eps.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    fails("images", root, "has no readable image in", "eps.png")  # it is a program


def test_folders_of_another_form_are_one_line(tmp_path: Path) -> None:
    folders(tmp_path / "a", "cat", "dog/2")
    fails("images", tmp_path / "a", "'dog/2/0.png' lies 2 folders deep, 'cat/0.png' 1")
    put(folders(tmp_path / "b", "cat", "dog") / "dog/9.png", noise((7, 7, 3)))
    fails("images", tmp_path / "b", "must have images of one size; ", "9.png' is 7x7, ")
    fails("images", folders(tmp_path / "c", "cat"), "must have folders of two classes at least; got 'cat'")
    (tmp_path / "d").mkdir()
    fails("images", tmp_path / "d", "must hold images as class/image or client/class/image; got none")
    folders(tmp_path / "digits", "10", "9", "2")
    assert load("images", str(tmp_path / "digits")).label_names == ("2", "9", "10")


def test_names_of_classes_that_are_probably_one_are_refused(tmp_path: Path) -> None:
    folders(tmp_path / "a", "train/Cat", "train/dog", "test/cat", "test/dog")
    fails("images", tmp_path / "a", "must name each class by one spelling; got 'Cat' and 'cat'")
    folders(tmp_path / "b", "1", "01", "2")
    fails("images", tmp_path / "b", "got '01' and '1'")
    folders(tmp_path / "c", "train/caf\u00e9", "train/tea", "test/cafe\u0301", "test/tea")
    data = load("images", str(tmp_path / "c"))
    assert data.label_names == ("caf\u00e9", "tea") and len(data.x_test) == 12 and data.notes == ()


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.sampled_from([np.uint8, np.float32])
)
def test_channels_are_told_by_the_shape_or_asked_for(a: int, b: int, c: int, d: int, kind: Any) -> None:
    x = (
        (np.arange(2 * a * b * c * d) % 251).astype(kind).reshape(2, a * 1, b, c)
        if d == 1
        else noise((2, a, b, c), kind=kind)
    )
    y = [0, 1]

    def read(**how: Any) -> np.ndarray:
        return fs.from_arrays(x, y, x, y, **how).x.numpy()

    assert np.array_equal(read(channels="first"), x) and np.array_equal(read(channels="last"), x.transpose(0, 3, 1, 2))
    if (a <= 4) != (c <= 4):
        assert np.array_equal(read(), x if a <= 4 else x.transpose(0, 3, 1, 2))
    elif a <= 4:
        square = (b == c != a, a == b != c)
        if square in ((True, False), (False, True)):
            assert np.array_equal(read(), x if square[0] else x.transpose(0, 3, 1, 2))
        else:
            refused(read, "x must say which axis has the channels; got ", kind=fs.DataError)


def test_new_images_have_their_channels_where_the_model_s_shape_says(tmp_path: Path) -> None:
    x, y = noise((10, 4, 8, 4)), np.arange(10) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y)
    fails("npz", tmp_path / "a.npz", "channels")
    data = load("npz", str(tmp_path / "a.npz"), channels="last")
    inputs = Inputs.of(data)
    assert data.shape == (4, 4, 8) and torch.equal(inputs.samples(x), inputs.samples(x.transpose(0, 3, 1, 2)))
    padded = load("npz", str(tmp_path / "a.npz"), channels="last", pad=1)
    assert padded.shape == (4, 6, 10) and not padded.x[:, :, 0].any()


@pytest.mark.parametrize(("kind", "mode"), [("crop", "constant"), ("crop_reflect", "reflect")])
def test_a_crop_is_a_window_of_the_padded_image(kind: str, mode: str) -> None:
    image = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8)
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4), mode=mode)[0, 0]
    windows = {(i, j): padded[i : i + 8, j : j + 8] for i in range(9) for j in range(9)}
    found = augment(image.expand(600, -1, -1, -1), (kind,), rng.key(0))
    drawn = [place for crop in found for place, window in windows.items() if torch.equal(crop[0], window)]
    assert len(drawn) == 600 and set(drawn) == set(windows), "one window each, and every window is drawn"


def test_a_mirrored_crop_holds_pixels_of_the_image_alone() -> None:
    ones = torch.ones(50, 3, 8, 8)
    assert torch.equal(augment(ones, ("crop_reflect",), rng.key(1)), ones)
    assert augment(ones, ("crop",), rng.key(1)).min() == 0


def tiff(photometric: int, bits: int, kind: int) -> bytes:
    pixels = np.arange(64).astype(f"<u{bits // 8}").tobytes()
    facts = {
        256: 8, 257: 8, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1, 278: 8, 279: len(pixels), 339: kind
    }  # fmt: skip
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in facts.items())
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", 10) + tags + bytes(4)


@pytest.mark.parametrize(("photometric", "bits", "kind"), [(0, 16, 1), (1, 8, 2)])
def test_a_tiff_whose_numbers_pillow_mistakes_is_refused(photometric: int, bits: int, kind: int) -> None:
    assert decode_images([tiff(1, bits, 1)], "x").shape == (1, 1, 8, 8)
    told = "row 1, mend it or take it out: its numbers are turned or signed"
    refused(lambda: decode_images([tiff(1, bits, 1), tiff(photometric, bits, kind)], "x"), told, kind=fs.DataError)
