"""How runs are stopped, and what makes a resumed run equal to one that was never stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedskew.session import Session
from support.runs import rows_of


def recorded(folder: Path) -> list[dict[str, Any]]:
    """The rounds on disk, without times."""
    return rows_of([json.loads(line) for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()])


def equal(a: Path, b: Path) -> None:
    """The same model byte for byte, and the same rows."""
    assert (a / "final.safetensors").read_bytes() == (b / "final.safetensors").read_bytes()
    assert recorded(a) == recorded(b)


def stop_after(number: int) -> Callable[[dict[str, Any]], None]:
    def stop(row: dict[str, Any]) -> None:
        if row["round"] == number:
            raise KeyboardInterrupt

    return stop


class Died(BaseException):
    """Stands for the end of a process."""


@contextmanager
def dying_after(number: int, checkpoint: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """The callback of a process that dies when this round is done; its last checkpoint is of an earlier round."""

    def die(row: dict[str, Any]) -> None:
        if row["round"] == number:
            raise Died

    plain = Session.checkpoint
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Died):
        patch.setattr(Session, "checkpoint", lambda s: plain(s) if s.state.round == checkpoint else None)
        yield die
