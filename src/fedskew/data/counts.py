"""Matrices of counts [N, C] in csv and npy files."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedskew.data.encoding import number_of
from fedskew.data.sources.files import reading
from fedskew.data.sources.readers import read_array, read_table
from fedskew.errors import DataError, opened

LARGEST = 2.0**53  # rows of a cell: whole numbers below it are exact in float64


class CountsFile(NamedTuple):
    """Content of a file of counts."""

    counts: npt.NDArray[np.int64]  # [N, C]
    class_names: tuple[str, ...] = ()  # of a csv file's head


def counts_matrix(values: npt.NDArray[Any], what: str) -> npt.NDArray[np.int64]:
    """Check a matrix of counts.

    Args:
        values: Array to check.
        what: Its name in the error message.

    Returns:
        The counts, int64 [N, C].

    Raises:
        DataError: It is not a non-empty matrix of whole numbers of at least 0, or it is all 0.
    """
    fine = values.ndim == 2 and values.size and values.dtype.kind in "iuf"
    bounded = fine and bool((np.abs(values.astype(np.float64)) < LARGEST).all())  # false for NaN and infinity
    whole = values.astype(np.int64) if bounded else None
    if whole is None or not (whole == values).all() or whole.min() < 0 or not whole.any():
        got = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{what} must be a matrix [clients, classes] of whole numbers >= 0, not all 0; got {got}")
    return whole


def read_counts(path: str | Path) -> CountsFile:
    r"""Read a matrix of counts from a file.

    Args:
        path: A csv file, with or without a line of class names, or an npy file.

    Returns:
        The counts [N, C] and the class names, if any.

    Raises:
        DataError: The file is absent or damaged, or does not hold a matrix of counts.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.counts import read_counts
        >>> _ = Path("counts.csv").write_text("cat,dog\n5,0\n1,4\n")
        >>> read_counts("counts.csv").counts.tolist()
        [[5, 0], [1, 4]]
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind == ".csv":
        return _of_csv(file)
    if kind == ".npy":
        with reading(file, "is not a readable npy file of numbers"), opened(file) as content:
            values = read_array(content, file.stat().st_size, "it")
        return CountsFile(counts_matrix(values, str(path)))
    raise DataError(f"a file of counts must end in .csv or .npy; got '{path}'")


def _of_csv(file: Path) -> CountsFile:
    """The numbers of a csv file, and its line of class names if it has one."""
    rows = [(number, cells) for number, cells in read_table(file) if any(cells)]
    head: tuple[str, ...] = ()
    if rows and not all(np.isfinite(number_of(cell)) for cell in rows[0][1]):
        head, rows = tuple(rows[0][1]), rows[1:]
    if not rows or len({len(cells) for _, cells in rows} | ({len(head)} if head else set())) != 1:
        raise DataError(f"{file} must hold as many numbers on each line, after a head of class names or none")
    for number, cells in rows:
        for cell in cells:
            if not np.isfinite(number_of(cell)):
                raise DataError(f"{file} line {number}: a count must be a whole number; got {cell!r}")
    return CountsFile(counts_matrix(np.array([cells for _, cells in rows], dtype=np.float64), str(file)), head)
