"""All methods on nasty federations, in every precision: a run that ends is finite, one that does not says why."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew import tree
from support.attack import FULL, Line, some
from support.federations import blobs
from support.methods import NAMES, tiny
from support.nets import dropout_net, norm_net
from support.runs import measured as go

# rows of each class at each client
FEDERATIONS: dict[str, list[list[int]]] = {
    "one row a client": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]],
    "one class a client": [[9, 0, 0], [0, 7, 0], [0, 0, 8], [5, 0, 0]],
    "empty clients": [[0, 0, 0], [4, 3, 2], [0, 0, 0], [0, 0, 6]],
    "a class nobody has": [[5, 3, 0], [1, 6, 0], [2, 2, 0], [0, 4, 0]],
    "one class in all": [[6, 0, 0], [3, 0, 0], [1, 0, 0], [9, 0, 0]],
    "a giant and dwarfs": [[90, 60, 50], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "a single client": [[3, 2, 1]],
    "two rows of one class": [[2, 0, 0], [2, 0, 0]],
}
MODELS: dict[str, Any] = {
    "logistic": lambda: "logistic",
    "batch norm": lambda: norm_net(3, 5),
    "dropout": lambda: dropout_net(3, 5),
}
DTYPES = ("float32", "float64", "bfloat16")
ENGINES = ("sequential", "threaded", "batched")
ALL = list(product(FEDERATIONS, DTYPES, ENGINES, MODELS))


def cases(name: str) -> list[tuple[str, str, str, str]]:
    """What a method meets: of the short form one case, another for each method; of the full one all."""
    count, at = some(1, len(ALL)), NAMES.index(name)
    return [ALL[(at * 31 + i * (1 if FULL else 7)) % len(ALL)] for i in range(count)]


def broken(result: fs.Result) -> str:
    """What of a run that came to its end is not finite; "" where all is."""
    for what in ("params", "buffers"):
        if not all(bool(torch.isfinite(leaf).all()) for leaf in tree.leaves(getattr(result, what))):
            return what
    for row in result.rounds:
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                return f"{name} of round {row['round']}"
        if not all(map(math.isfinite, row["weights"])):
            return f"weights of round {row['round']}"
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_every_method_on_nasty_federations(name: str) -> None:
    with Line("federations", "finite to the end, or one line") as line:
        for federation, dtype, engine, model in cases(name):
            counts = FEDERATIONS[federation]
            owners = sum(any(row) for row in counts)
            case = f"{name}, {federation}, {dtype}, {engine}, {model}"
            options = {"dtype": dtype, "engine": engine, "threads": 2, "cohort": min(3, owners), "rounds": 3}
            try:
                result = go(blobs(counts, auxiliary=2), tiny(name), model=MODELS[model](), **options)
            except fs.FedskewError as error:
                line.check("\n" not in str(error) and len(str(error)) < 500, f"{case}: {error}")
            except Exception as error:
                line.failed(f"{case}: {type(error).__name__}: {error}")
            else:
                wrong = broken(result)
                line.check(not wrong, f"{case}: {wrong} is not finite")
