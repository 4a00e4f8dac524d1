"""What the public code of authors computes, on a problem of four clients: `tests/golden/authors_code.json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.data.federation import Federation
from fedskew.method import Method
from fedskew.method.paces import Fixed
from support.listed import listed
from support.paths import TESTS
from support.replay import Replay, record

ENGINES = pytest.mark.parametrize("engine", ["sequential", "threaded", "batched"])
CODE: dict[str, Any] = json.loads((TESTS / "golden/authors_code.json").read_text(encoding="utf-8"))


@cache
def federation(tested: int | None = 4) -> Federation:
    """The problem; its first rows, or all, are the test set."""
    x, y = (np.concatenate([np.array(rows) for rows in CODE["problem"][name]]) for name in "xy")
    owner = np.repeat(np.arange(4), [len(rows) for rows in CODE["problem"]["y"]])
    data = fs.data.from_arrays(x, y, x[:tested], y[:tested], classes=3, columns={"client": owner})
    return fs.federate(data, "natural")


def filled(net: nn.Module, values: Iterable[Any]) -> nn.Module:
    """The network with these values of its linear layers' parameters, in their order."""
    linear = [p for layer in net.modules() if isinstance(layer, nn.Linear) for p in layer.parameters()]
    with torch.no_grad():
        for p, value in zip(linear, values, strict=True):
            p.copy_(torch.tensor(value))
    return net


def ran(method: Method, engine: str, net: nn.Module, cohorts: Sequence[Sequence[int]], **pace: Any) -> Replay:
    """The rounds of these cohorts on the problem, whole clients at once."""
    method = replace(method, pace=Fixed(**pace, batch_size=0), selector=listed(cohorts))
    return record(method, engine, net, federation(), rounds=len(cohorts), cohort=max(map(len, cohorts)))


def close(params: Mapping[str, Any], want: Any, names: Sequence[str] = (), atol: float = 2e-11) -> None:
    """Values of the parameters whose names begin so, one after the other, against a list or lists of them."""
    named = [np.ravel(v) for n, v in params.items() if not names or n.startswith(tuple(names))]
    wanted = [np.ravel(v) for v in (want if isinstance(want[0], list) else [want])]
    np.testing.assert_allclose(np.concatenate(named), np.concatenate(wanted), rtol=0, atol=atol)
