"""What a node tells of itself when it comes, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fedskew.errors import ConfigError, one_line
from fedskew.flower.contract import PERMITS
from fedskew.flower.facts import MOST_ROWS, count, quoted, short

__all__ = ["Hello", "absent", "claimed", "hello_of"]


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


def hello_of(node: int, told: Mapping[str, Any], clients: int, most_rows: int = MOST_ROWS) -> Hello:
    """A node's hello; of what it told, the facts that are known are kept.

    Args:
        node: its number at Flower.
        told: its facts.
        clients: of the run.
        most_rows: that one node may declare, to train on and to test on.

    Raises:
        ConfigError: it does not say who it is, or says what cannot be.
    """
    try:
        k = count(told, "client", most=clients - 1)
        facts: dict[str, Any] = {"name": short(told, "name"), "differs": one_line(told.get("differs") or "")}
        facts |= {what: count(told, what) for what in ("rows", "test_rows")}
        facts["permits"] = _permits(told.get("permits"))
    except ConfigError as error:
        raise ConfigError(f"node {node} must say who it is: {error}") from None
    facts |= {what: told[what] for what in ("counts", "labels") if told.get(what) is not None}
    hello = Hello(node, k, facts)
    for what in ("rows", "test_rows"):
        if facts[what] > most_rows:
            hint = "flower.most-rows of the server allows more"
            raise ConfigError(f"{hello.name} must have at most {most_rows} {what}; it declares {facts[what]}; {hint}")
    return hello


def _permits(told: object) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(p, str) and p in PERMITS for p in told):
        raise ConfigError(f"permits must be a list of {', '.join(PERMITS)}; got {quoted(told)}")
    return sorted(set(told))


def claimed(told: Mapping[str, Any], clients: int) -> int | None:
    """The client that a message says it is of; None where it says none of the run's."""
    k = told.get("client")
    return k if type(k) is int and 0 <= k < clients else None


def absent(client: int) -> Hello:
    """In the place of a client whose node was refused: it has no rows, and all that is asked of it is nothing."""
    return Hello(-1, client, {"rows": 0, "test_rows": 0, "permits": sorted(PERMITS)})
