"""Arrays of a user's own become a dataset."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedskew as fs
from fedskew.data import DATASETS, from_arrays, keep_classes, load
from fedskew.data.arrays import ClassOptions, Dataset, channel_statistics
from fedskew.errors import ConfigError, DataError, FedskewError
from fedskew.fields import documented
from support.command import SMALL, fedskew, mistake, refused
from support.data_files import GEN, fails
from support.methods import tiny
from support.runs import go, same


@pytest.mark.parametrize("kind", [str, object, bytes, list])
def test_labels_may_be_strings(kind: Any) -> None:
    words = ["dog", "ant", "cat"] * 10
    cells = [word.encode() for word in words] if kind is bytes else words
    y = words if kind is list else np.array(cells, object if kind is object else None)
    data = from_arrays(np.zeros((30, 2)), y, np.zeros((2, 2)), ["bee", "dog"])
    assert data.label_names == ("ant", "bee", "cat", "dog") and data.classes == 4
    assert data.y[:3].tolist() == [3, 0, 2] and data.y_test.tolist() == [1, 3]
    with pytest.raises(fs.DataError, match="both hold numbers, or both strings"):
        from_arrays(np.zeros((30, 2)), y, np.zeros((2, 2)), [0, 1])


def test_arrays_become_a_dataset_with_a_stratified_test_set() -> None:
    x, y = GEN.normal(size=(50, 3)), np.repeat([0, 1], [40, 10])
    made = from_arrays(x, y)
    assert made.x.dtype == torch.float32 and made.y.dtype == torch.int64
    assert torch.bincount(made.y_test).tolist() == [8, 2] and made.counts.tolist() == [32, 8]
    assert not made.test_is_official and made.classes == 2 and len(made.fingerprint) == 16
    again = from_arrays(torch.from_numpy(x), torch.from_numpy(y))
    assert again.fingerprint == made.fingerprint and torch.equal(again.x_test, made.x_test)
    assert from_arrays(x + 1, y).fingerprint != made.fingerprint


def test_the_rows_of_both_sets_are_those_given() -> None:
    x = np.arange(60.0)[:, None]
    made = from_arrays(x, np.arange(60) % 3, columns={"site": np.array(list("ab") * 30)})
    assert sorted([*made.x.flatten().tolist(), *made.x_test.flatten().tolist()]) == list(range(60))
    assert made.column_names == {"site": ("a", "b")}
    assert torch.equal(made.columns["site"], made.x.flatten().long() % 2)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((12, 8, 8), (1, 8, 8)), ((12, 3, 8, 8), (3, 8, 8)), ((12, 8, 8, 3), (3, 8, 8)), ((12, 8, 8, 1), (1, 8, 8))],
)
def test_uint8_arrays_are_images(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    made = from_arrays(GEN.integers(0, 256, shape).astype(np.uint8), np.arange(12) % 2)
    assert made.shape == expected and made.x.dtype == torch.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.arange(9) % 2}, "same number of rows; got 10 and 9"),
        ({"y": np.arange(10) % 2 + 1}, "without 0; give classes="),
        ({"y": np.arange(10) % 2 - 1}, "labels must be 0..C-1; got -1..0"),
        ({"y": np.arange(10) % 2 * 2}, "without 1"),
        ({"y": np.arange(10) % 2 + 0.5}, "whole labels"),
        ({"y": np.zeros((10, 2))}, "one label a row"),
        ({"y": np.zeros(10)}, "two classes"),
        ({"x": np.full((10, 2), np.nan)}, "10 rows with NaN or infinity, the first is row 0"),
        ({"x": np.zeros(10)}, "a row for each sample"),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "must not be empty"),
        ({"x": np.zeros((10, 2, 2, 2, 2), np.uint8)}, "a row for each sample"),
        ({"x": np.array([[object()]] * 10)}, "must hold numbers; got dtype <U"),
        ({"x_test": np.zeros((4, 2))}, "y_test must be given with x_test"),
        ({"x_test": np.zeros((4, 3)), "y_test": [0, 1, 0, 1]}, "one shape"),
        ({"x_test": np.zeros((4, 2)), "y_test": [0, 1, 0, 2], "classes": 2}, "labels must be 0..1; got 0..2"),
        ({"columns": {"site": [1, 2]}}, "column 'site' must have one value a training row, 10; got 2"),
        ({"columns": "site"}, "columns must be values by name, such as {'hospital': [...]}; got 'site'"),
        ({"columns": ["site"]}, "columns must be values by name, such as {'hospital': [...]}; got ['site']"),
        ({"mean": (0.5,), "std": (0.5,)}, "mean and std must have 2 values"),
        ({"mean": (0.5, 0.5), "std": (0.5, 0.5)}, "left out of data that are no images"),
        ({"x": np.zeros((10, 2, 4, 4), np.uint8), "mean": (0.5,) * 2, "std": (0.5, 0.0)}, "std must be positive"),
    ],
)
def test_arrays_that_are_no_dataset_are_refused(change: dict[str, Any], message: str) -> None:
    given = {"x": np.zeros((10, 2)), "y": np.arange(10) % 2} | change
    refused(lambda: from_arrays(**given), message, kind=DataError)


def test_a_class_without_rows_is_allowed_when_the_classes_are_given() -> None:
    assert from_arrays(np.zeros((10, 2)), np.arange(10) % 2, classes=4).counts.tolist() == [4, 4, 0, 0]


def test_channel_statistics_are_those_of_the_pixels() -> None:
    x = torch.from_numpy(GEN.integers(0, 256, (9, 2, 5, 5)).astype(np.uint8))
    mean, std = channel_statistics(x)
    unit = x.double() / 255
    assert np.allclose(mean, unit.mean((0, 2, 3)), atol=1e-4)
    assert np.allclose(std, unit.std((0, 2, 3), correction=0), atol=1e-4)


@pytest.mark.parametrize("kind", ["features", "images", "tensor"])
def test_arrays_of_the_right_type_are_taken_as_they_are(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (20, 1, 4, 4), dtype=np.uint8) if kind == "images" else rng.random((20, 3), np.float32)
    given, y = torch.from_numpy(x) if kind == "tensor" else x, np.arange(20) % 2
    lent, copied = (from_arrays(given, y, given[:6], y[:6], copy=copy) for copy in (False, True))
    assert lent.x.data_ptr() == x.ctypes.data != copied.x.data_ptr()
    assert lent.fingerprint == copied.fingerprint
    x[0] = 0
    assert not copied.borrowed
    options = {"model": "logistic", "rounds": 1}
    runs = [fs.federate(data, fs.partitioners.Iid(), clients=2) for data in (copied, lent)]
    fs.run(runs[0], fs.methods.fedavg(), **options)
    told = "'arrays' must not change after from_arrays"
    refused(lambda: fs.run(runs[1], fs.methods.fedavg(), **options), told, kind=DataError)


@pytest.mark.parametrize("change", ["type", "order", "read only", "channels last", "split"])
def test_other_arrays_are_copied(change: str) -> None:
    x, y = np.random.default_rng(0).random((20, 3), np.float32), np.arange(20) % 2
    if change == "channels last":
        x = np.zeros((20, 4, 4, 3), np.uint8)
    x = {"type": x.astype(np.float64), "order": np.asfortranarray(x)}.get(change, x)
    x.flags.writeable = change != "read only"
    tests = () if change == "split" else (x[:6], y[:6])
    made = from_arrays(x, y, *tests)
    assert not made.borrowed and not np.may_share_memory(made.x.numpy(), x)


def test_every_dataset_is_a_value_with_documented_options_and_takes_classes() -> None:
    for name, kind in DATASETS.items():
        assert kind.name == name and kind() == kind() and {f.name for f in fields(kind)} <= {*documented(kind)}
        assert issubclass(kind, ClassOptions) and {"classes", "relabel"} <= {f.name for f in fields(kind)}, name
        assert kind(classes=(1, "0")).classes == ("1", "0")


def test_classes_are_relabelled_in_the_order_given() -> None:
    whole = load("digits")
    for order in ((6, 0), (0, 6), (9, 1, 4)):
        two = load("digits", classes=order)
        assert two.classes == len(order) and two.label_names == tuple(map(str, order))
        for split in ("", "_test"):
            x, y, kept = getattr(whole, f"x{split}"), getattr(whole, f"y{split}"), getattr(two, f"y{split}")
            rows = torch.isin(y, torch.tensor(order))
            assert torch.equal(getattr(two, f"x{split}"), x[rows])
            assert torch.equal(torch.tensor(order)[kept], y[rows])
    assert len({load("digits", classes=o).fingerprint for o in ((6, 0), (0, 6))} | {whole.fingerprint}) == 3


def test_kept_labels_leave_classes_without_rows() -> None:
    kept = load("digits", classes=("6", "0"), relabel=False)
    assert (kept.classes, sorted(set(kept.y.tolist()))) == (10, [0, 6])
    assert kept.label_names == load("digits").label_names
    fed = fs.federate(kept, fs.partitioners.Dirichlet(0.3), clients=4)
    row = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=2).rounds[-1]
    assert row["support"][6] and not row["support"][1] and row["accuracy"] > row["macro_f1"]


def test_classes_by_name_with_their_clients(tmp_path: Path) -> None:
    x, y = np.arange(60.0)[:, None], np.array(["ill", "well", "lost"] * 20)
    data = keep_classes(fs.from_arrays(x, y, columns={"site": np.arange(60) // 20}), ("well", "ill"))
    assert data.label_names == ("well", "ill") and len(data.columns["site"]) == len(data.y)
    assert torch.equal(data.columns["site"], (data.x.flatten() // 20).long())
    assert fs.federate(data, "natural").clients == 3
    with pytest.raises(DataError, match=r"classes must be classes of .*; got 'dead'; known: ill, lost, well"):
        keep_classes(fs.from_arrays(x, y), ("well", "dead"))


def test_a_csv_file_is_standardised_by_the_rows_that_are_kept(tmp_path: Path) -> None:
    rows = [f"{i % 3 * 10 + i % 7},{'abc'[i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["v,label", *rows]))
    assert abs(float(load("csv", str(tmp_path / "t.csv"), classes=("c", "b")).x.mean())) < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ("6",)}, "Digits.classes must name two classes at least, each once"),
        ({"classes": ("6", "6")}, "each once"),
        ({"classes": ("6", "11")}, "classes must be classes of 'digits'; got '11'"),
        ({"classes": "6,0"}, "Digits.classes must be a tuple"),
        ({"relabel": False}, "Digits.relabel must be true if all classes are kept"),
    ],
)
def test_classes_that_are_not_there_are_one_line(options: dict, message: str) -> None:
    fails("digits", None, message, kind=FedskewError, **options)


def test_the_command_takes_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--data.classes", "6,0", "--out", tmp_path / "a") == 0
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    assert (tmp_path / "a/final.safetensors").read_bytes() == (tmp_path / "b/final.safetensors").read_bytes()
    assert "classes must be classes of 'digits'; got 'x'" in mistake(capsys, "run", "fedavg", "--data.classes", "6,x")


def repeats(data: Dataset) -> str:
    return next((note for note in data.notes if note.startswith("rows: ")), "")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=30), st.lists(st.integers(0, 12), min_size=2, max_size=30),
    st.sampled_from([np.uint8, np.float32, np.float64, np.int16]), st.sampled_from([(3,), (1, 4, 4), (3, 5, 5)]),
)  # fmt: skip
def test_repeats_are_counted_as_python_counts_them(
    a: list[int], b: list[int], kind: Any, shape: tuple[int, ...]
) -> None:
    x, x_test = (np.stack([np.full(shape, v, kind) for v in values]) for values in (a, b))
    said = repeats(fs.from_arrays(x, np.arange(len(a)) % 2, x_test, np.arange(len(b)) % 2))
    for count, text in (
        (sum(v in a for v in b), f"of {len(b)} test rows equal a training row"),
        (len(a) - len(set(a)), f"of {len(a)} training rows repeat another"),
        (len(b) - len(set(b)), f"of {len(b)} test rows repeat another"),
    ):
        assert (f"{count} {text}" in said) == (count > 0)


def test_a_table_in_its_own_test_file_and_one_of_copies_are_noted(tmp_path: Path) -> None:
    rows = [f"{i}.5,{i * i},{'ab'[i % 2]}" for i in range(50)]
    for name in ("train", "test"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,label", *rows]))
    data = load("csv", str(tmp_path))
    assert repeats(data).startswith("rows: 50 of 50 test rows equal a training row; take copies out")
    assert repeats(data) in data.notes
    (tmp_path / "copies.csv").write_text("\n".join(["a,b,label", *rows * 4]))
    assert "40 of 40 test rows equal a training row" in repeats(load("csv", str(tmp_path / "copies.csv")))
    assert repeats(load("digits")) == ""


def test_a_class_without_a_test_row_is_noted() -> None:
    y = np.r_[np.zeros(50), np.ones(40), [2]].astype(int)
    data = fs.from_arrays(np.random.default_rng(0).normal(size=(91, 3)), y)
    assert data.notes == ("class without a test row, never measured: '2'",)
    assert keep_classes(data, ("0", "1")).notes == ()


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
    told = "must be finite; got 1 rows with NaN or infinity, the first is row 31, col"
    fails("npz", folder(tmp_path / "nan", bad), told)
    place = folder(tmp_path / "short", TABLE)
    (place / "x_train.npy").write_bytes((place / "x_train.npy").read_bytes()[:300])
    fails("npz", place, "x_train.npy is not a whole npy file of plain numbers or words")
    place = folder(tmp_path / "objects", TABLE)
    np.save(place / "y_train.npy", np.array([{}] * 40, object), allow_pickle=True)
    fails("npz", place, "y_train.npy is not a whole npy file")
    (place / "y_train.npy").unlink()
    fails("npz", place, "perhaps with x_test and y_test; got x_test, x_train, y_test, without y_train")


def test_a_typing_error_is_answered_with_a_suggestion() -> None:
    told = "dataset 'mnist' has no option 'normalise'; did you mean 'normalize'"
    fails("mnist", None, told, kind=ConfigError, normalise="half")
