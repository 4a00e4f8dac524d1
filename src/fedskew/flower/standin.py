"""The federation as the server of a deployment knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.data.federation import Federation
from fedskew.data.partitioners import Partition
from fedskew.engines.clients import Source
from fedskew.errors import ConfigError
from fedskew.flower.facts import quoted
from fedskew.flower.hello import Hello

__all__ = ["alone", "declared_counts", "nowhere", "stand_in"]


def stand_in(server: Federation, hellos: Sequence[Hello]) -> Federation:
    """The federation as the server knows it: its own rows, and of the nodes' rows what they tell.

    A node that tells only the number of its rows counts as if they were spread over the classes evenly.
    """
    classes = server.dataset.classes
    counts = torch.zeros(len(hellos), classes, dtype=torch.int64)
    for hello in hellos:
        counts[hello.client] = declared_counts(hello.facts, classes)
    held = np.concatenate([server.validation_rows, server.auxiliary_rows]).astype(np.int64)
    at = torch.from_numpy(held)
    data = replace(server.dataset, x=server.dataset.x[at], y=server.dataset.y[at], columns={}, column_names={})
    n = len(server.validation_rows)
    nobody = alone(np.empty(0), 0, len(hellos))
    return replace(
        server, dataset=data, partition=nobody, clients=len(hellos), counts=counts, held=None, local_test=None,
        validation_rows=np.arange(n), auxiliary_rows=np.arange(n, len(held)),
    )  # fmt: skip


def declared_counts(facts: Mapping[str, Any], classes: int) -> Tensor:
    """Rows of each class, as far as a checked hello tells them, [C]. Raises ConfigError where they are no counts."""
    n, told, labels = facts["rows"], facts.get("counts"), facts.get("labels")
    if told is not None:
        if not isinstance(told, list) or len(told) != classes or not _below(told, n + 1) or sum(told) != n:
            raise ConfigError(f"a node must tell {classes} counts that add up to its {n} rows; got {quoted(told)}")
        return torch.tensor(told, dtype=torch.int64)
    present = list(range(classes)) if labels is None else labels
    if not isinstance(present, list) or not _below(present, classes) or len(set(present)) < len(present):
        raise ConfigError(f"a node must tell which of {classes} classes it has; got {quoted(present)}")
    if n and labels is not None and not 0 < len(present) <= n:
        raise ConfigError(f"a node must tell the classes of its {n} rows; got {len(present)} classes")
    counts = torch.zeros(classes, dtype=torch.int64)
    if n:
        each, rest = divmod(n, len(present))
        counts[torch.tensor(present)] = each
        counts[torch.tensor(present[:rest], dtype=torch.int64)] += 1
    return counts


def _below(values: list[Any], limit: int) -> bool:
    return all(type(value) is int and 0 <= value < limit for value in values)


def alone(rows: np.ndarray[Any, Any], client: int, clients: int) -> Partition:
    """The partition in which one client has these rows, and no other has any."""
    offsets = np.zeros(clients + 1, np.int64)
    offsets[client + 1 :] = len(rows)
    return Partition(rows.astype(np.int64), offsets)


def nowhere(fed: Federation) -> Source:
    """Rows that are nowhere: how many of each class the nodes tell, and no row of them."""
    none = np.empty(0, np.int64)
    return Source([none] * len(fed.counts), none, fed.counts)
