"""The handwritten digits that scikit-learn ships, read without importing it: that takes longer than a short run."""

import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedskew.data.sources.files import md5_of, reading
from fedskew.errors import DataError

FILE = ("datasets", "data", "digits.csv.gz")  # in the folder of the package
MD5 = "265453a2439934797bb770ce205b6fad"  # of the rows as uint8: 64 pixels and the label


def digits() -> tuple[np.ndarray, np.ndarray]:
    """All rows in their order: pixels from 0 to 16, uint8 [1797, 8, 8], and labels, int64 [1797].

    Raises:
        DataError: scikit-learn is absent, or its rows are not the published ones.
    """
    package = find_spec("sklearn")  # which looks for the package and does not import it
    if package is None or package.origin is None:
        raise DataError("dataset 'digits' needs scikit-learn, which is not installed")
    file = Path(package.origin).parent.joinpath(*FILE)
    fault = "must hold the published rows of dataset 'digits'; reinstall scikit-learn"
    with reading(file, fault), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an empty file, and of a NaN as uint8
        table = np.loadtxt(file, delimiter=",")
        rows = np.ascontiguousarray(table.astype(np.uint8))
        if md5_of(rows) != MD5 or not (rows == table).all():
            raise ValueError("it holds other rows")
    return rows[:, :64].reshape(-1, 8, 8), rows[:, 64].astype(np.int64)
