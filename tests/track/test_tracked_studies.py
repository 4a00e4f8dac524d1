"""Trackers of a study: every run that trains is told to them from its worker process, and no run is changed by them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

import fedskew as fs
from fedskew import track as _base
from fedskew.errors import ConfigError
from fedskew.studies.spec import spec_from
from fedskew.studies.store import Store
from fedskew.studies.study import Study
from fedskew.studies.work import RunJob, work
from support.command import fedskew, mistake
from support.resuming import recorded
from support.scheduling import without_workers
from support.tracking import MISTAKES

SMALL = [("clients", "5"), ("cohort", "2"), ("rounds", "3"), ("model", "logistic"), ("checkpoint-every", "1")]
WORDS = [word for option, value in SMALL for word in (f"--{option}", value)]
LABELLED = ("fedavg", "fedbal(weighting=uniform)")
NAMES = {
    f"{method}, partition.alpha {alpha}, seed {seed}" for method in LABELLED for alpha in (0.1, 1) for seed in (0, 1)
}


def numbers(store: Path) -> dict[str, Any]:
    """Of each run the rounds but for their times, its files, and the bytes of its model and its configuration."""
    return {
        folder.name: (
            recorded(folder), sorted(path.name for path in folder.rglob("*")),
            (folder / "final.safetensors").read_bytes(), (folder / "config.json").read_bytes(),
        )
        for folder in (store / "runs").iterdir()
    }  # fmt: skip


def command(*words: object) -> subprocess.CompletedProcess[str]:
    """``fedskew compare`` in a process of its own, with two workers."""
    path = os.pathsep.join([str(Path(fs.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    given = [sys.executable, "-m", "fedskew", "compare", *LABELLED, *WORDS, "--processes", "2", *map(str, words)]
    return subprocess.run(given, capture_output=True, text=True, timeout=300, env=environment)


def test_every_run_is_told_by_its_method_setting_and_seed_and_no_run_changes(tmp_path: Path) -> None:
    """Over worker processes that begin at the same time, in one event folder."""
    pytest.importorskip("tensorboard")
    given = ("--partition.alpha", "0.1,1", "--seeds", "0-1")
    plain = command(*given, "--store", tmp_path / "plain")
    track = ("--track", "tensorboard", "--track.folder", tmp_path / "track")
    told = command(*given, *track, "--store", tmp_path / "told")
    assert (plain.returncode, told.returncode) == (0, 0), told.stderr
    assert "note" not in told.stderr and "Warning" not in told.stderr, told.stderr
    assert numbers(tmp_path / "plain") == numbers(tmp_path / "told"), "no address and no number changed"
    reader = import_module("tensorboard.backend.event_processing.event_accumulator")
    board = sorted((tmp_path / "track" / "tensorboard").iterdir())
    assert {folder.name.rpartition("-")[0] for folder in board} == NAMES and len(board) == len(NAMES)
    for folder in board:
        events = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        assert [event.step for event in events.Scalars("accuracy")] == [1, 2, 3], folder


# Without any package


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs are done in this process, and every package seems to be there."""
    without_workers(monkeypatch)
    monkeypatch.setattr(_base, "_installed", lambda package: True)
    monkeypatch.setenv("FEDSKEW_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)


class Board(fs.track.Tracker):
    """A tracker whose package writes into lists; ``BROKEN`` is what raises."""

    name, packages = "Board", ("board",)
    told: ClassVar[list[tuple[str, str, Any]]] = []
    broken: ClassVar[tuple[str, BaseException] | None] = None

    def __init__(self, folder: Any = None) -> None:
        super().__init__()
        self.called = ""

    def _happens(self, what: str, value: Any) -> None:
        Board.told.append((what, self.called, value))
        if Board.broken and Board.broken[0] == what:
            raise Board.broken[1]

    def _begin(self, config: dict[str, Any]) -> None:
        self.called = config["name"]
        self._happens("begin", config["run"])

    def _round(self, number: int, values: dict[str, float]) -> None:
        self._happens("round", number)

    def _end(self, summary: dict[str, Any]) -> None:
        self._happens("end", summary["rounds"])


@pytest.fixture
def board(here: None, monkeypatch: pytest.MonkeyPatch) -> type[Board]:
    monkeypatch.setitem(fs.track.TRACKERS, "tensorboard", Board)
    Board.told, Board.broken = [], None
    return Board


def test_trials_of_a_tuning_are_named(board: type[Board]) -> None:
    words = ("compare", "fedavg", *WORDS, "--tune", "lr=0.01..0.1", "--tune-trials", "2", "--track", "tensorboard")
    assert fedskew(*words) == 0
    trials = [called for what, called, _ in board.told if what == "begin"]
    assert len(trials) == 3 and trials[2] == "fedavg, seed 0"
    assert [name.partition(", trial ")[2] for name in trials[:2]] == ["0", "1"]


def test_runs_that_the_store_has_are_not_told_again_and_the_command_says_so(
    board: type[Board], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", "fedavg", *WORDS, "--track", "tensorboard")
    assert fedskew(*words) == 0 and "note" not in capsys.readouterr().err
    board.told.clear()
    assert fedskew(*words, "--seeds", "0-1") == 0
    assert re.search(r"1 run reused from the store .*; trackers follow only the others", capsys.readouterr().err)
    assert {called for _, called, _ in board.told} == {"fedavg, seed 1"}


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("error", [OSError("the disk\nis full"), SystemExit(3)])
@pytest.mark.parametrize("when", ["begin", "round", "end"])
def test_what_a_tracker_raises_never_ends_a_study(
    when: str, error: BaseException, board: type[Board], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    board.broken = (when, error)
    assert fedskew("compare", "fedavg", "fedla", *WORDS, "--track", "tensorboard") == 0
    said = capsys.readouterr()
    notes = [line for line in said.err.splitlines() if "the run continues" in line]
    assert len(notes) == 2, said.err
    assert all(entry and entry.state == "finished" for entry in map(Store("store").entry, Store("store").addresses()))


def test_a_package_that_is_lost_in_the_worker_refuses_no_run(board: type[Board], tmp_path: Path) -> None:
    """A run that is refused is not tried again: what trackers lack must not be noted in the store."""
    study = Study(spec_from(["fedavg"], SMALL), tmp_path / "store")
    (one,) = study.missing()
    track = fs.track.named("tensorboard")

    def lost(folder: Any) -> Any:
        raise ConfigError("tracking needs its package")

    fs.track.TRACKERS["tensorboard"] = lost
    outcome = work(RunJob(one.address, one.job, str(study.store.folder), one.cell.name, track))
    assert outcome.state == "finished" and outcome.notes == (
        "tracking failed; the run continues without it: tracking needs its package",
    )


def test_a_run_is_named_without_the_characters_that_a_folder_cannot_have() -> None:
    for name in ("a/b\\c", "é" * 300, "..", "", "\x1b[2J", " . "):
        found = _base.run_name({"name": name})
        assert found and "/" not in found and found.isascii() and found.isprintable() and len(found) <= 120, found
        assert found not in (".", "..")


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line_before_anything_runs(
    case: str, here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, expected = MISTAKES[case]
    assert expected in mistake(capsys, "compare", "fedavg", *WORDS, *words)
    assert not (tmp_path / "store").exists()


def test_trackers_stand_beside_a_study_file_which_does_not_name_them(
    board: type[Board], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file says what is compared; who is told of it is the machine's, as the store is."""
    options = "".join(f'"{option}" = "{value}"\n' for option, value in SMALL)
    (tmp_path / "s.toml").write_text(f'methods = ["fedavg"]\n[options]\n{options}')
    assert fedskew("compare", "s.toml", "--track", "tensorboard", "--out", "study") == 0
    assert [what for what, *_ in board.told] == ["begin", "round", "round", "round", "end"]
    assert "track" not in json.loads((tmp_path / "study" / "study.json").read_text())["command"]
    shutil.rmtree("store")
    capsys.readouterr()
    (tmp_path / "t.toml").write_text('methods = ["fedavg"]\ntrack = ["wandb"]\n')
    assert "unknown entry of a study 'track'" in mistake(capsys, "compare", "t.toml", "--dry-run")
