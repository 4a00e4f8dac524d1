"""A round's end is one transaction: an exception at any line of it loses nothing and changes no byte of the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import fedskew as fs
from fedskew import _run, session
from fedskew.data.federation import Federation
from fedskew.engines import clients
from fedskew.records import files, folder, manifest, rounds, summary
from support.attack import Line, some
from support.runs import rows_of, same

WATCHED = {module.__file__ for module in (_run, session, clients, folder, files, manifest, rounds, summary)}
ROUNDS, STRUCK = 5, 3  # the exception comes in the third round, after a checkpoint and before another
CodeLine = tuple[str, int]


class Struck(MemoryError):
    """What no line of fedskew raises itself."""


@contextmanager
def traced(visit: Callable[[CodeLine], None]) -> Iterator[None]:
    """Call ``visit`` at every line of the watched files."""

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            visit((frame.f_code.co_filename, frame.f_lineno))
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: local if frame.f_code.co_filename in WATCHED else None)
    try:
        yield
    finally:
        sys.settrace(before)


def train(out: Path, home: str, **options: Any) -> fs.Result:
    settings = {"model": "logistic", "rounds": ROUNDS, "cohort": 3, "engine": "sequential", "checkpoint_every": 2}
    watched = {"monitor": "val_loss", "patience": 9}
    return fs.run(federation(), fs.methods.scaffold(), **settings, **watched, memory=home, out=out, **options)


@cache
def federation() -> Federation:
    return fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.5), clients=6, validation=0.1)


def struck(out: Path, home: str, visit: Callable[[CodeLine], None]) -> None:
    """A run that is watched from the end of the round before on."""
    watching = False

    def on_round(row: dict[str, Any]) -> None:
        nonlocal watching
        watching = row["round"] >= STRUCK - 1

    with traced(lambda place: visit(place) if watching else None):
        train(out, home, on_round=on_round)


CASES = [
    ("ram", KeyboardInterrupt), ("device", Struck), ("device", KeyboardInterrupt), ("ram", Struck),
]  # fmt: skip


@pytest.mark.parametrize(("home", "error"), CASES[: some(2, len(CASES))])  # each home and each exception once
def test_an_exception_at_any_line_of_a_rounds_end(home: str, error: type[BaseException], tmp_path: Path) -> None:
    seen: dict[CodeLine, None] = {}
    struck(tmp_path / "seen", home, lambda place: seen.setdefault(place))
    plain = train(tmp_path / "plain", home)
    assert len(seen) > 60
    with Line("exceptions", f"at every line of a round's end, memory {home}, {error.__name__}") as line:
        for number, place in enumerate([*seen][:: some(4, 1)]):  # the short form takes every fourth line
            out, hit = tmp_path / str(number), [False]

            def strike(here: CodeLine, place: CodeLine = place, hit: list[bool] = hit) -> None:
                if here == place and not hit[0]:
                    hit[0] = True
                    raise error

            with suppress(error):
                struck(out, home, strike)
            again = train(out, home, resume=True)
            at = f"{Path(place[0]).name}:{place[1]}"
            whole = [r["round"] for r in folder.read(out)[1]] == list(range(1, ROUNDS + 1))
            line.check(hit[0] and whole and rows_of(again) == rows_of(plain) and same(again.params, plain.params), at)
