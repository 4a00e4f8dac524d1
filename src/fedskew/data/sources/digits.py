"""The handwritten digits that scikit-learn ships, read without importing it: that takes longer than a short run."""

from __future__ import annotations

import warnings
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedskew.data.sources.files import md5_of
from fedskew.errors import DataError

__all__ = ["digits"]

FILE = ("datasets", "data", "digits.csv.gz")  # in the folder of the package
SHAPE = (1797, 65)  # 64 pixels and the label
MD5 = "265453a2439934797bb770ce205b6fad"  # of the rows as uint8


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All rows in their order: pixels from 0 to 16, uint8 [1797, 8, 8], and labels, int64 [1797].

    They are read from scikit-learn's file. If the file is elsewhere in a later version, scikit-learn reads it.

    Raises:
        DataError: scikit-learn is absent, or its rows are not the published ones.
    """
    table = _of_file()
    if table is None:
        table = _of_library()
    return table[:, :64].reshape(-1, 8, 8), table[:, 64].astype(np.int64)


def _of_file() -> np.ndarray | None:
    """The rows of the file, uint8 [1797, 65]; None where it is absent or holds anything else."""
    found = find_spec("sklearn")  # which looks for the package and does not import it
    if found is None or found.origin is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an empty file
            table = np.loadtxt(Path(found.origin).parent.joinpath(*FILE), delimiter=",")
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return _checked(table)


def _of_library() -> np.ndarray:
    """The rows as scikit-learn gives them."""
    try:
        from sklearn.datasets import load_digits

        found = load_digits()
    except (ImportError, OSError, EOFError, ValueError, zlib.error) as error:
        told = f"{type(error).__name__}: {error}"
        raise DataError(f"dataset 'digits' must be readable in scikit-learn; got {told}; reinstall it") from None
    table = _checked(np.column_stack([found.data, found.target]))
    if table is None:
        raise DataError("dataset 'digits' must hold the published rows; scikit-learn's differ; reinstall scikit-learn")
    return table


def _checked(table: np.ndarray) -> np.ndarray | None:
    """The rows as uint8, where they are the published ones."""
    if table.shape != SHAPE:
        return None
    with np.errstate(invalid="ignore"):  # of a NaN, which then differs
        rows = table.astype(np.uint8)
    return rows if md5_of(np.ascontiguousarray(rows)) == MD5 and (rows == table).all() else None
