"""The forms in which a client's numbers might travel or be kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np


def forms(values: Any) -> Iterator[bytes]:
    """A client's numbers as bytes, in each of these forms."""
    plain = np.asarray(values, dtype=np.float64).reshape(-1)
    yield from (plain.astype(kind).tobytes() for kind in ("<f4", "<f8"))
    yield np.rint(plain * 2.0**28).astype("<i8").tobytes()  # as in a secure sum, without a mask
    if (plain == np.rint(plain)).all():
        yield from (plain.astype(kind).tobytes() for kind in ("<i4", "<i8"))
        yield from (json.dumps([int(v) for v in plain], separators=s).encode() for s in ((",", ":"), (", ", ": ")))
