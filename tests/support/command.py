"""The command in this process, and the one line that a mistake gets."""

from __future__ import annotations

from typing import Any

import pytest

import fedskew as fs
from fedskew.cli import command as cli

SMALL = ["--clients", "6", "--cohort", "3", "--rounds", "2", "--partition.alpha", "0.5", "--model", "logistic"]


def fedskew(*words: object) -> int:
    """The command in this process: its exit code."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(w) for w in words])
    return int(stop.value.code or 0)


def output_of(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    """What the command prints, where it ends with this exit code."""
    capsys.readouterr()  # of what was printed before
    assert fedskew(*words) == code
    return capsys.readouterr().out


def mistake(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that the command says of a mistake."""
    capsys.readouterr()
    assert fedskew(*words) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("fedskew: ")
    return said.err


def refused(make: Any, *expected: str, kind: type[fs.FedskewError] = fs.ConfigError) -> None:
    """A call raises an error of this kind, of one line that says all of this."""
    with pytest.raises(kind) as error:
        make()
    said = str(error.value)
    assert "\n" not in said and all(e in said for e in expected), said
