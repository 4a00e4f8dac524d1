"""What attacks share: how hard to attack, and a count of what was tried and what survived.

`make attack` runs tests/attack at full strength and prints the counts of every line.
`make test-all` runs the short forms.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.errors import FedskewError
from support.bounds import Hung, within

__all__ = ["FULL", "Line", "outcome", "reports", "some", "stand", "struck"]

FULL = os.environ.get("FEDSKEW_ATTACK") == "full"
REPORT = "FEDSKEW_ATTACK_REPORT"  # a folder where every line writes what it counted


def some(short: int, full: int) -> int:
    """How many attacks to make: ``short`` of `make test-all`, ``full`` of `make attack`."""
    return full if FULL else short


class Line:
    """One line of the table that `make attack` prints.

    Example:
        >>> with Line("signals", "SIGKILL at random times") as line:
        ...     line.survived()
    """

    def __init__(self, topic: str, what: str) -> None:
        self.topic, self.what = topic, what
        self.alive, self.lost = 0, []  # type: int, list[str]

    def survived(self, attacks: int = 1) -> None:
        """So many attacks did no harm: they were refused, repaired, or without effect."""
        self.alive += attacks

    def failed(self, why: str) -> None:
        """An attack did harm; the test fails at the end of the line, after the other attacks."""
        self.lost.append(why)

    def check(self, holds: bool, why: str) -> None:
        """`survived` or `failed`."""
        if holds:
            self.survived()
        else:
            self.failed(why)

    def refused(self, name: str, read: Callable[[], Any], *words: str, kind: type[Exception] = FedskewError) -> None:
        """`survived` where reading ends in one line of fedskew's own, which says these words."""
        error = outcome(read)
        one_line = isinstance(error, kind) and "\n" not in str(error) and all(word in str(error) for word in words)
        self.check(one_line, f"{name}: {error!r}"[:300])

    def strike(
        self, file: Path, other: bytes, many: int, read: Callable[[], Any], fine: Callable[[Any], bool], seed: int = 0
    ) -> None:
        """Damage a file in every way of `struck`; ``fine`` judges what reading gives, or raises, each time."""
        raw = file.read_bytes()
        for what, bad in struck(raw, other, many, seed):
            file.write_bytes(bad)
            given = outcome(read)
            self.check(bad == raw or fine(given), f"{file.name}, {what}: {given!r}"[:300])
        file.write_bytes(raw)

    def __enter__(self) -> Line:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.failed(f"{type(error).__name__}: {error}")
        place = os.environ.get(REPORT)
        if place:
            entry = {"topic": self.topic, "what": self.what, "survived": self.alive, "failed": self.lost}
            with open(Path(place) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        if error is None:
            assert self.alive or self.lost, f"{self.topic}, {self.what}: nothing was tried"
            shown = "\n".join(self.lost[:20])
            assert not self.lost, (
                f"{self.topic}, {self.what}: {len(self.lost)} of {self.alive + len(self.lost)}\n{shown}"
            )


def stand(file: Path, what: str, elsewhere: Path | None = None) -> None:
    """Put in the place of a file what is none: pipe, device, folder, loop, link elsewhere or to nothing."""
    if file.is_symlink() or not file.is_dir():
        file.unlink(missing_ok=True)
    else:
        file.rmdir()
    if what == "pipe":
        os.mkfifo(file)
    elif what == "folder":
        file.mkdir()
    else:
        file.symlink_to({"device": "/dev/zero", "link": elsewhere, "loop": file, "nothing": "nowhere"}[what])


def reports(place: Path) -> dict[tuple[str, str], tuple[int, list[str]]]:
    """{(topic, what): (survived, failures)} of all processes that wrote to a folder."""
    counts: dict[tuple[str, str], tuple[int, list[str]]] = {}
    for file in sorted(place.glob("*.jsonl")):
        for text in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(text)
            key = (entry["topic"], entry["what"])
            alive, lost = counts.get(key, (0, []))
            counts[key] = (alive + entry["survived"], lost + entry["failed"])
    return counts


def struck(raw: bytes, other: bytes, many: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """(what was done, the file): bits flipped in regions that cover the file, then cuts, additions and swaps."""
    gen = np.random.Generator(np.random.PCG64(seed))
    edges = np.unique(np.linspace(0, len(raw), many * 2 // 3 + 1).astype(int))
    for low, high in pairwise(edges.tolist()):
        at, bit = int(gen.integers(low, high)), int(gen.integers(8))
        yield f"bit {bit} of byte {at} flipped", raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
    for _ in range(many // 3):
        a, b, c, d = sorted(int(v) for v in gen.integers(0, len(raw) + 1, 4))
        how = int(gen.integers(7))
        yield (
            (f"cut at {a}", raw[:a]),
            (f"begun at {a}", raw[a:]),
            (f"{a} to {b} left out", raw[:a] + raw[b:]),
            (f"{b - a} bytes added", raw + gen.bytes(b - a)),
            (f"{a} to {b} and {c} to {d} swapped", raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:]),
            (f"{a} to {b} filled", raw[:a] + bytes([int(gen.integers(256))]) * (b - a) + raw[b:]),
            (f"{a} to {b} of another file", raw[:a] + other[a:b] + raw[b:]),
        )[how]
    yield "another file", other
    yield "empty", b""
    yield "twice", raw + raw


def outcome(read: Callable[[], Any]) -> Any:
    """What reading gives, or raises."""
    try:
        with within(10):
            return read()
    except (Exception, Hung) as error:
        return error
