"""Samples that stay in their file: the same dataset and the same run as from memory, without a copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import from_arrays, load
from support.data_files import GEN, fails
from support.methods import tiny
from support.runs import go, same

IMAGES = GEN.integers(0, 256, (40, 2, 6, 6)).astype(np.uint8)
TABLE = GEN.normal(size=(40, 5)).astype(np.float32)
Y = np.arange(40) % 4


def folder(place: Path, x: np.ndarray) -> Path:
    place.mkdir()
    for name, array in (("x_train", x), ("y_train", Y), ("x_test", x[:8]), ("y_test", Y[:8])):
        np.save(place / f"{name}.npy", array)
    return place


def held_in(data: torch.Tensor, file: Path) -> bool:
    """Whether a tensor lies in a mapping of the file."""
    address = data.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, path = line.split(maxsplit=5) if line.count(" ") > 4 else (line.split()[0], "")
        low, high = (int(part, 16) for part in span.split("-"))
        if low <= address < high:
            return path == str(file)
    return False


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mappings")
@pytest.mark.parametrize("x", [IMAGES, IMAGES[:, 0], TABLE], ids=["images", "grey images", "features"])
def test_samples_stay_in_the_file(x: np.ndarray, tmp_path: Path) -> None:
    place = folder(tmp_path / "large", x)
    data, plain = load("npz", str(place)), from_arrays(x, Y, x[:8], Y[:8])
    assert held_in(data.x, place / "x_train.npy") and held_in(data.x_test, place / "x_test.npy")
    assert not held_in(plain.x, place / "x_train.npy")
    assert data.fingerprint == plain.fingerprint and torch.equal(data.x, plain.x) and data.x.dtype == plain.x.dtype
    before = (place / "x_train.npy").read_bytes()
    for mode in ("r", "c"):
        parts = [np.load(place / f"{name}.npy", mmap_mode=mode) for name in ("x_train", "x_test")]
        mapped = from_arrays(parts[0], Y, parts[1], Y[:8])
        assert held_in(mapped.x, place / "x_train.npy") and mapped.fingerprint == plain.fingerprint
        mapped.x[0] = 0  # a private mapping: the file does not change
    assert (place / "x_train.npy").read_bytes() == before
    runs = [go(fs.federate(d, "iid", clients=4), tiny("fedavg"), model="logistic") for d in (data, plain)]
    assert same(runs[0].params, runs[1].params)


def test_what_cannot_stay_is_copied(tmp_path: Path) -> None:
    last = np.ascontiguousarray(GEN.integers(0, 256, (40, 6, 6, 3)).astype(np.uint8))
    for i, x in enumerate((last, TABLE.astype(np.float64), TABLE.astype(np.float16))):
        place = folder(tmp_path / str(i), x)
        data, plain = load("npz", str(place)), from_arrays(x, Y, x[:8], Y[:8])
        assert data.fingerprint == plain.fingerprint
    changed = np.load(folder(tmp_path / "changed", TABLE) / "x_train.npy", mmap_mode="c")
    changed *= 2
    assert torch.equal(from_arrays(changed, Y, TABLE[:8], Y[:8]).x, torch.from_numpy(2 * TABLE))
    part = np.load(folder(tmp_path / "part", TABLE) / "x_train.npy", mmap_mode="r")[10:]
    assert torch.equal(from_arrays(part, Y[10:], TABLE[:8], Y[:8]).x, torch.from_numpy(TABLE[10:]))


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    bad = TABLE.copy()
    bad[31, 2] = np.nan
    fails(
        "npz",
        folder(tmp_path / "nan", bad),
        "must be finite; got 1 rows with NaN or infinity, the first is row 31, col",
    )
    place = folder(tmp_path / "short", TABLE)
    (place / "x_train.npy").write_bytes((place / "x_train.npy").read_bytes()[:300])
    fails("npz", place, "x_train.npy is not a whole npy file of plain numbers or words")
    place = folder(tmp_path / "objects", TABLE)
    np.save(place / "y_train.npy", np.array([{}] * 40, object), allow_pickle=True)
    fails("npz", place, "y_train.npy is not a whole npy file")
    (place / "y_train.npy").unlink()
    fails("npz", place, "perhaps with x_test and y_test; got x_test, x_train, y_test, without y_train")
