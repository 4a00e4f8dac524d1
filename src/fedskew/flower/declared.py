"""The nodes as the server of a deployment knows them: by what they tell of themselves when they come.

From that come a federation in which no row is the server's to read, plans that say how long clients train, and what
answers of use look like.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedskew import deployment as lib
from fedskew.data import Federation
from fedskew.errors import ConfigError, one_line, require
from fedskew.flower.contract import PERMITS
from fedskew.flower.rows import NodeRows, one_owner
from fedskew.flower.wire import MOST_ROWS, count, expect, short
from fedskew.types import Task

# What a node tells


class Hello(NamedTuple):
    """What a node told of itself."""

    node: int
    client: int
    facts: Mapping[str, Any]
    life: str = ""  # since when the node is there

    @property
    def name(self) -> str:
        """The node in messages."""
        given = self.facts.get("name")
        return f"node {given!r} (client {self.client})" if given else f"the node of client {self.client}"


def hello_of(node: int, sent: Mapping[str, Any], clients: int, most_rows: int = MOST_ROWS) -> Hello:
    """A node's hello; of what it sent, the facts that are known are kept.

    Args:
        node: its number at Flower.
        sent: its facts.
        clients: of the run.
        most_rows: that one node may declare, to train on and to test on.

    Raises:
        ConfigError: it does not say who it is, or says what cannot be.
    """
    try:
        k = count(sent, "client", most=clients - 1)
        facts: dict[str, Any] = {what: count(sent, what) for what in ("rows", "test_rows")}
        facts |= {"name": short(sent, "name"), "differs": one_line(sent.get("differs") or "")}
        permits: Any = sent.get("permits")
        holds = isinstance(permits, list) and all(isinstance(p, str) and p in PERMITS for p in permits)
        expect(holds, "permits", f"be a list of {', '.join(PERMITS)}", permits)
    except ConfigError as error:
        raise ConfigError(f"node {node} must say who it is: {error}") from None
    facts["permits"] = sorted(set(permits))
    facts |= {what: sent[what] for what in ("counts", "labels", "columns") if sent.get(what) is not None}
    hello = Hello(node, k, facts)
    for what in ("rows", "test_rows"):
        hint = "flower.most-rows of the server allows more"
        require(facts[what] <= most_rows, hello.name, f"have at most {most_rows} {what}", facts[what], hint)
    return hello


def claimed_client(facts: Mapping[str, Any], clients: int) -> int | None:
    """The client that a message says it is of; None where it says none of the run's."""
    k = facts.get("client")
    return k if type(k) is int and 0 <= k < clients else None


def absent(client: int) -> Hello:
    """In the place of a client whose node was refused: it has no rows, and all that is asked of it is nothing."""
    return Hello(-1, client, {"rows": 0, "test_rows": 0, "permits": sorted(PERMITS)})


# The federation


def federation_of_nodes(server: Federation, hellos: Sequence[Hello]) -> Federation:
    """The federation as the server knows it: its own rows, and of the nodes' rows what they tell.

    A node that tells only the number of its rows counts as if they were spread over the classes evenly.
    """
    classes = server.dataset.classes
    counts = torch.stack([declared_counts(hello.facts, classes) for hello in hellos])
    rows = np.concatenate([server.validation_rows, server.auxiliary_rows]).astype(np.int64)
    at = torch.from_numpy(rows)
    data = replace(server.dataset, x=server.dataset.x[at], y=server.dataset.y[at], columns={}, column_names={})
    n = len(server.validation_rows)
    return replace(
        server, dataset=data, partition=one_owner(np.empty(0), 0, len(hellos)), clients=len(hellos), counts=counts,
        held=None, local_test=None, validation_rows=np.arange(n), auxiliary_rows=np.arange(n, len(rows)),
    )  # fmt: skip


def declared_counts(facts: Mapping[str, Any], classes: int) -> Tensor:
    """Rows of each class, as far as a checked hello tells them, [C]. Raises ConfigError where they are no counts."""
    n, counts, labels = facts["rows"], facts.get("counts"), facts.get("labels")
    if counts is not None:
        holds = isinstance(counts, list) and len(counts) == classes and _below(counts, n + 1) and sum(counts) == n
        expect(holds, "a node", f"tell {classes} counts that add up to its {n} rows", counts)
        return torch.tensor(counts, dtype=torch.int64)
    present = list(range(classes)) if labels is None else labels
    holds = isinstance(present, list) and _below(present, classes) and len(set(present)) == len(present)
    holds = holds and (not n or labels is None or 0 < len(present) <= n)
    expect(holds, "a node", f"tell which of {classes} classes its {n} rows have", present)
    even = torch.zeros(classes, dtype=torch.int64)
    if n:
        each, rest = divmod(n, len(present))
        even[torch.tensor(present)] = each
        even[torch.tensor(present[:rest], dtype=torch.int64)] += 1
    return even


def _below(values: list[Any], limit: int) -> bool:
    return all(type(value) is int and 0 <= value < limit for value in values)


# What answers of use look like


def client_without_rows(model: lib.Model, fed: Federation, task: Task, settings: lib.Settings) -> lib.ClientEngine:
    """The engine of client 0, which has one row of zeros: names, shapes and types of answers do not depend on rows."""
    data, label = fed.dataset, torch.zeros(1, dtype=torch.int64)
    x, no = data.x.new_zeros(1, *data.x.shape[1:]), slice(0)
    row = NodeRows(lib.Inputs.of(data), x, label, x[no], label[no], data.augment)
    return lib.ClientEngine(model, row.federation(0, task.clients), task, replace(settings, threads=1))
