"""The digits that scikit-learn ships, read without importing it."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedskew.data import load
from fedskew.data.sources import images as module
from fedskew.data.sources.images import digits
from fedskew.errors import ConfigError, DataError
from support.command import refused
from support.data_files import fails

ROWS = np.column_stack([load_digits().data, load_digits().target])


def placed(root: Path, rows: np.ndarray | bytes | None) -> SimpleNamespace:
    """What ``find_spec`` says of a scikit-learn whose file holds these rows."""
    file = root.joinpath(*module.DIGITS_FILE)
    if rows is not None:
        file.parent.mkdir(parents=True)
    if isinstance(rows, bytes):
        file.write_bytes(rows)
    elif rows is not None:
        with gzip.open(file, "wt") as opened:
            np.savetxt(opened, rows, delimiter=",")
    return SimpleNamespace(origin=str(root / "__init__.py"))


def altered(**changes: Any) -> np.ndarray:
    rows = ROWS.copy()
    rows[3, 7] = changes["pixel"]
    return rows


def test_they_are_the_rows_that_scikit_learn_gives() -> None:
    pixels, y = digits()
    assert np.array_equal(pixels, load_digits().images) and np.array_equal(y, load_digits().target)
    assert pixels.dtype == np.uint8 and y.dtype == np.int64
    assert load("digits").fingerprint == "df0f0da78680fe8a"  # of every earlier version
    fails("digits", "somewhere", "path must be unset", kind=ConfigError)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:100], ROWS[:, :10], ROWS[::-1], altered(pixel=9), altered(pixel=0.5), altered(pixel=np.nan),
        altered(pixel=300), None, b"", b"not gzip",
        gzip.compress(b"1,2,x", mtime=0), gzip.compress(b"1,2", mtime=0)[:-6],
    ],
)  # fmt: skip
def test_another_file_is_refused(rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: placed(tmp_path, rows))
    refused(digits, "must hold the published rows of dataset 'digits'; reinstall scikit-learn: ", kind=DataError)


def test_without_scikit_learn_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    refused(digits, "dataset 'digits' needs scikit-learn, which is not installed", kind=DataError)
