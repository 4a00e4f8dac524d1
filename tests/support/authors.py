"""What the public code of authors computes, on a problem of four clients: `tests/golden/authors_code.json`."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

import fedskew as fs
from fedskew.data.federation import Federation
from support.paths import TESTS

CODE: dict[str, Any] = json.loads((TESTS / "golden/authors_code.json").read_text(encoding="utf-8"))


@cache
def federation(tested: int | None = 4) -> Federation:
    """The problem; its first rows, or all, are the test set."""
    x, y = (np.concatenate([np.array(rows) for rows in CODE["problem"][name]]) for name in "xy")
    owner = np.repeat(np.arange(4), [len(rows) for rows in CODE["problem"]["y"]])
    data = fs.data.from_arrays(x, y, x[:tested], y[:tested], classes=3, columns={"client": owner})
    return fs.federate(data, "natural")
