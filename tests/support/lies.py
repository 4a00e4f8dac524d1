"""A node that alters what it sends, and the little that its lies may cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fedskew.flower.wire import Packed, pack, read, record
from support.bounds import bounded, within

__all__ = ["LIAR", "Change", "lying", "small"]

LIAR = 1
ROOM = 1 << 30  # bytes beside those of an honest run
Change = Callable[[dict[str, Any], dict[str, Any]], Packed | None]


def lying(kind: str, change: Change, first: int = 0) -> Any:
    """Client 1 alters its answers of a kind, from its message ``first`` on; the change may give the bytes itself."""
    seen = [0]

    def lie(client: int, content: Any) -> Any:
        envelope = read(content)
        if client != LIAR or envelope.facts.get("kind") != kind:
            return content
        seen[0] += 1
        if seen[0] <= first:
            return content
        facts, trees = dict(envelope.facts), dict(envelope.trees)
        packed = change(facts, trees)
        return record(facts, sent=packed or pack(trees))

    return lie


@contextmanager
def small() -> Iterator[None]:
    """Little memory and time, whatever a message claims."""
    with bounded(ROOM), within(60):
        yield
