"""Help of every command: its own options, examples that work, nothing cut, whatever stands beside --help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest

from fedskew import __version__ as fedskew_version
from fedskew.cli.command import root
from fedskew.cli.composed import SLOTS
from fedskew.config.flags import NAMED, experiment_from, options_of
from fedskew.config.words import ALIASES
from fedskew.methods import METHODS
from support.command import fedskew, output_of, printed


def commands(
    group: click.Group = root, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """((words of the command), command) of every command and subcommand."""
    for name, command in group.commands.items():
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))


ALL = {" ".join(words): command for words, command in commands()}


@pytest.mark.parametrize("columns", ["80", "140"])
@pytest.mark.parametrize("name", ALL)
def test_help_shows_own_options_and_an_example_and_cuts_nothing(
    name: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = printed(*name.split(), "--help")
    assert said.err == "" and "…" not in said.out and max(map(len, said.out.splitlines())) <= int(columns)
    assert said.out.startswith(f"Usage: fedskew {name} ")
    assert re.search(rf"^Examples:\n  fedskew {name}( |$)", said.out, re.M)
    for param in ALL[name].params:
        assert not isinstance(param, click.Option) or all(flag in said.out for flag in param.opts)


LINES = (
    "run --help --out x", "run --out --help", "run --help --out", "run -h", "run fedbal --lr fast --help",
    "run fedavg --roundz 3 --help", "run fedavg fedla --help", "run --resume no/such/run --help",
    "run --lr 0.1 --lr 0.2 -lr --help", "describe no.npz --data digits --help", "partition verify --help --data",
    "plot --figure drfit --help", "help", "help run fedbal", "",
)  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_help_never_fails(line: str) -> None:
    said = printed(*line.split())
    assert said.out.startswith("Usage: fedskew") and said.err == ""


def test_the_version_is_one_line() -> None:
    assert output_of("--version") == f"{fedskew_version}\n"


def test_help_of_a_name_that_is_unknown_says_which_was_meant() -> None:
    assert "did you mean 'dirichlet'?" in printed("run", "fedavg", "--partition", "dirichlt", "--help", code=2).err


@pytest.mark.parametrize("method", sorted(METHODS))
def test_help_of_run_lists_every_option_of_the_composition(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = output_of("run", method, "--help")
    options = list(options_of(experiment_from([method])))
    shown = set(re.findall(r"--[\w.-]+", said))
    assert {flag for option in options for flag in option.flags} <= shown and "…" not in said
    assert {f"--{slot}" for slot in SLOTS} <= shown
    assert all(option.help for option in options)


def test_help_of_an_option_has_its_default_its_limits_and_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    said = output_of("run", "fedga", "--weighting", "fednova", "--rounds", "7", "--help")
    assert re.search(r"--rounds INT .*\[at least 1; default: 100\]", said)
    assert re.search(r"--lr, --pace.lr FLOAT .*\[positive; default: 0.1\]", said)
    assert "--parts.calibrated_targets.form softce|exact|binary" in said
    assert re.search(r"--weighting.base NAME .*\[now: size\]", said) and "--weighting fednova:" in said


def test_help_of_a_recorded_run_shows_its_values(tmp_path: Path) -> None:
    words = ["--clients", 4, "--cohort", 2, "--rounds", 1, "--model", "logistic", "--lr", 0.07]
    assert fedskew("run", "fedla", *words, "--out", tmp_path / "a") == 0
    said = output_of("run", "--from", tmp_path / "a", "--help")
    assert "Composition of fedla:" in said and "default: 0.07]" in said


@pytest.mark.thorough
def test_the_examples_work_in_the_order_in_which_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer who types every line that begins with fedskew, the page of run first, gets no error."""
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    first = ["run", "partition make", "partition", "partition verify"]
    pages = [*first, *(name for name in ALL if name not in first)]
    lines = [line for name in pages for line in ALL[name].lines]  # type: ignore[attr-defined]
    for line in dict.fromkeys([*lines, *root.lines]):  # type: ignore[attr-defined]
        words = shlex.split(line.partition(" >")[0])
        (tmp_path / "split.npz").unlink(missing_ok=True) if words[1:3] == ["partition", "make"] else None
        if words[1:3] == ["flower", "keys"] and find_spec("cryptography") is None:
            continue  # it comes with the extra
        if words[1:3] == ["flower", "own"]:
            continue  # a node that took part in a run made its folder
        if words[1] == "rehearse":
            continue  # minutes, of a file of your own; tests/cli/test_rehearse.py runs it
        assert words[0] == "fedskew" and fedskew(*words[1:]) == 0, line


def test_options_may_stand_in_any_order() -> None:
    """Rules between fields are checked once all values are in."""
    words = ["fedavg", "--precision", "tf32", "--device", "cuda"]
    assert experiment_from(words) == experiment_from([words[0], *words[3:], *words[1:3]])


def test_an_optional_value_is_unset_by_none() -> None:
    assert experiment_from(["fedavg", "--clients", "none"]).clients is None
    assert experiment_from(["fedavg", "--partition.least", "3", "--auxiliary=null"]).partition.least == 3


def test_help_has_the_names_of_every_slot() -> None:
    assert {*SLOTS, "weighting.base", "partition.base", "preset"} == set(NAMED)


def test_every_alias_names_an_option() -> None:
    options = {
        option.flag
        for words in ([], ["--steps", "3"], ["--data", "csv"])
        for option in options_of(experiment_from(["fedavg", *words]))
    }
    assert set(ALIASES.values()) <= options
