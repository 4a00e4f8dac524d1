"""Rows that stand in training and test, rows that repeat, and classes that no test row has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import fedskew as fs
from fedskew.data import keep_classes, load
from fedskew.data.arrays import Dataset


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
