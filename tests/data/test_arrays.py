"""Arrays of a user's own become a dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew.data.arrays import from_arrays


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
