"""Arrays of a user's own become a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import from_arrays
from fedskew.data.arrays import channel_statistics
from fedskew.errors import DataError
from support.data_files import GEN, one_line


@pytest.mark.parametrize("kind", [str, object, bytes, list])
def test_labels_may_be_strings(kind: Any) -> None:
    words = ["dog", "ant", "cat"] * 10
    y = (
        words
        if kind is list
        else np.array([w.encode() for w in words] if kind is bytes else words, dtype=kind if kind is object else None)
    )
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
    with pytest.raises(DataError) as error:
        from_arrays(**given)
    assert message in one_line(error)


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
    with pytest.raises(fs.DataError, match=r"'arrays' must not change after from_arrays"):
        fs.run(runs[1], fs.methods.fedavg(), **options)


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
