"""The command in this process, and the one line that a mistake gets."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import pytest

import fedskew as fs
from fedskew.cli import command as cli

SMALL = ["--clients", "6", "--cohort", "3", "--rounds", "2", "--partition.alpha", "0.5", "--model", "logistic"]


class Printed(NamedTuple):
    """What the command prints."""

    out: str
    err: str


def fedskew(*words: object) -> int:
    """The command in this process: its exit code."""
    with pytest.raises(SystemExit) as stop:
        cli.main([str(w) for w in words])
    return int(stop.value.code or 0)


def printed(*words: object, code: int = 0) -> Printed:
    """What the command prints, where it ends with this exit code; a capsys among the words is emptied before."""
    for capsys in (word for word in words if isinstance(word, pytest.CaptureFixture)):
        capsys.readouterr()
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        ended = fedskew(*(word for word in words if not isinstance(word, pytest.CaptureFixture)))
    assert ended == code, err.getvalue()
    return Printed(out.getvalue(), err.getvalue())


def output_of(*words: object, code: int = 0) -> str:
    """What the command prints on its output, where it ends with this exit code."""
    return printed(*words, code=code).out


def json_of(*words: object) -> Any:
    """What the command prints with --json."""
    return json.loads(output_of(*words, "--json"))


def mistake(*words: object) -> str:
    """The one line that the command says of a mistake."""
    output = printed(*words, code=2)
    assert output.out == "" and output.err.count("\n") == 1 and output.err.startswith("fedskew: ")
    return output.err


def refused(make: Any, *expected: str, kind: type[fs.FedskewError] = fs.ConfigError) -> None:
    """A call raises an error of this kind, of one line that says all of this."""
    with pytest.raises(kind) as error:
        make()
    message = str(error.value)
    assert "\n" not in message and all(e in message for e in expected), message
