"""A run that was stopped and resumed is the run that was never stopped: same bytes, same rows.

Processes that are killed, at any write and at random instants, are in `tests/attack/test_signals.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

import fedskew as fs
from fedskew.engines import LocalEngine
from fedskew.method import Component, Method
from fedskew.records import folder as records
from fedskew.types import View
from support.command import SMALL, fedskew, mistake
from support.federations import blobs, skewed
from support.methods import BY_HOOK, tiny
from support.nets import norm_net
from support.resuming import dying_after, equal, recorded, stop_after
from support.runs import go, rows_of, same

# Stopped between rounds, in this process


@pytest.mark.parametrize("name", BY_HOOK)
def test_stopped_and_resumed(name: str, tmp_path: Path) -> None:
    stop_and_resume(name, "sequential", tmp_path)


@pytest.mark.parametrize("name", ["scaffold", "moon", "pfedme", "fedgc", "fedgrab"])
def test_memory_is_resumed_by_the_batched_engine(name: str, tmp_path: Path) -> None:
    stop_and_resume(name, "batched", tmp_path)


def stop_and_resume(name: str, engine: str, tmp_path: Path, **more: Any) -> None:
    fed, method = skewed(), tiny(name)
    options = {"rounds": 4, "cohort": 4, "engine": engine, "dtype": "float32", **more}
    whole = go(fed, method, out=tmp_path / "whole", **options)
    half = go(fed, method, out=tmp_path / "half", on_round=stop_after(2), **options)
    assert half.stopped == "interrupted" and len(half.rounds) == 2
    rest = go(fed, method, out=tmp_path / "half", resume=True, **options)
    equal(tmp_path / "whole", tmp_path / "half")
    assert same(whole.params, rest.params) and rows_of(whole) == rows_of(rest)
    assert whole.summary["total_upload_bytes"] == rest.summary["total_upload_bytes"] and rest.stopped == ""


def test_batch_statistics_are_resumed(tmp_path: Path) -> None:
    stop_and_resume("moon", "sequential", tmp_path, model=norm_net())


def test_rounds_after_the_checkpoint_are_run_again(tmp_path: Path) -> None:
    """The folder of a process that died in round 4 with a checkpoint of round 2, and a torn line."""
    fed, method, options = skewed(), fs.methods.scaffold(), {"rounds": 5, "checkpoint_every": 2}
    go(fed, method, out=tmp_path / "whole", **options)
    with dying_after(3, checkpoint=2) as die:
        go(fed, method, out=tmp_path / "dead", on_round=die, **options)
    with open(tmp_path / "dead" / "rounds.jsonl", "a", encoding="utf-8") as file:
        file.write('{"round": 4, "accur')
    seen: list[int] = []
    again = go(fed, method, out=tmp_path / "dead", resume=True, on_round=lambda r: seen.append(r["round"]), **options)
    assert seen == [3, 4, 5] and [row["round"] for row in again.rounds] == [1, 2, 3, 4, 5]
    equal(tmp_path / "whole", tmp_path / "dead")


# ---------------------------------------------------------------------------------------------------------------------
# Interrupted within a round


@dataclass(frozen=True)
class Interrupt(Component):
    """Raises in the middle of training, in round ``at``, while ``armed``."""

    name = "interrupt"
    armed: ClassVar[bool] = True
    steps: ClassVar[int] = 0
    at: int = 2

    def loss(self, view: View) -> Tensor:
        if Interrupt.armed and int(view.progress.round) == self.at and int(view.progress.step) == 2:
            Interrupt.steps += 1
            if Interrupt.steps == 2:  # the second client's second step: the first client has left memory behind
                raise KeyboardInterrupt
        return view.out.logits.sum() * 0


@pytest.mark.parametrize("name", ["scaffold", "moon"])
def test_an_interrupt_amid_training_keeps_whole_rounds(name: str, tmp_path: Path) -> None:
    fed, method = skewed(), tiny(name)
    method = replace(method, parts=(*method.parts, Interrupt()))
    Interrupt.armed = False
    go(fed, method, rounds=3, cohort=4, out=tmp_path / "whole")
    Interrupt.armed, Interrupt.steps = True, 0
    half = go(fed, method, rounds=3, cohort=4, out=tmp_path / "half")
    assert half.stopped == "interrupted" and len(half.rounds) == 1
    assert json.loads((tmp_path / "half" / "summary.json").read_text())["stopped"] == "interrupted"
    Interrupt.armed = False
    go(fed, method, rounds=3, cohort=4, out=tmp_path / "half", resume=True)
    equal(tmp_path / "whole", tmp_path / "half")


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_amid_evaluation_keeps_whole_rounds(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a library's own clearing up fails on the way out, and its error takes the place of the interrupt."""
    fed, method = skewed(), fs.methods.fedavg()
    go(fed, method, rounds=3, out=tmp_path / "whole")
    plain, calls = LocalEngine.evaluate, [0]

    def evaluate(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            try:
                raise KeyboardInterrupt
            finally:
                if fails:
                    raise RuntimeError("a stack of transforms is empty")
        return plain(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(LocalEngine, "evaluate", evaluate)
        assert go(fed, method, rounds=3, out=tmp_path / "half").stopped == "interrupted"
    go(fed, method, rounds=3, out=tmp_path / "half", resume=True)
    assert [row["round"] for row in recorded(tmp_path / "half")] == [1, 2, 3]
    equal(tmp_path / "whole", tmp_path / "half")


def test_an_error_keeps_the_record(tmp_path: Path) -> None:
    fed, method = skewed(), fs.methods.scaffold()

    def fail(row: dict[str, Any]) -> None:
        if row["round"] == 2:
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        go(fed, method, rounds=3, out=tmp_path / "half", on_round=fail)
    config, rows, summary = records.read(tmp_path / "half")
    assert len(rows) == 2 and summary["stopped"] == "ValueError: no" and config["engine_used"] == "sequential"
    go(fed, method, rounds=3, out=tmp_path / "whole")
    go(fed, method, rounds=3, out=tmp_path / "half", resume=True)
    equal(tmp_path / "whole", tmp_path / "half")


def test_a_loss_that_is_not_finite_in_a_later_round(tmp_path: Path) -> None:
    """The rounds before stay, and the model of the last good one is the one that is left."""
    method = Method("wild", pace=fs.paces.Fixed(lr=0.1, batch_size=8, decay=1e30))
    with pytest.raises(fs.TrainingError, match=r"round 2"):
        go(skewed(), method, model="mlp", rounds=3, dtype="float32", out=tmp_path / "a")
    _, rows, _ = records.read(tmp_path / "a")
    assert [row["round"] for row in rows] == [1]
    good = go(skewed(), method, model="mlp", rounds=1, dtype="float32", out=tmp_path / "b")
    assert good.rounds[0]["loss"] == rows[0]["loss"]
    assert (tmp_path / "a" / "final.safetensors").read_bytes() == (tmp_path / "b" / "final.safetensors").read_bytes()


# ---------------------------------------------------------------------------------------------------------------------
# Folders that cannot be used: one line


def one_line(call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(fs.RecordError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


def test_a_folder_that_holds_a_file_a_run_or_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one_line(lambda: go(skewed(), fs.methods.fedavg(), out=tmp_path / "file" / "run"), "out must", "writable")
    one_line(lambda: go(skewed(), fs.methods.fedavg(), out=tmp_path, resume=True), "resume must", "config.json")
    with pytest.raises(fs.ConfigError, match="out"):
        go(skewed(), fs.methods.fedavg(), resume=True)
    go(skewed(), fs.methods.fedavg(), rounds=1, out=tmp_path / "a")
    before = (tmp_path / "a" / "rounds.jsonl").read_bytes()
    one_line(lambda: go(skewed(), fs.methods.fedavg(), out=tmp_path / "a"), "out must", "without a run", "resume")
    assert (tmp_path / "a" / "rounds.jsonl").read_bytes() == before


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    go(skewed(), fs.methods.fedavg(), rounds=1, out=tmp_path / "a")
    path = tmp_path / "a" / "checkpoint" / "state.safetensors"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"\xff" * 64, save({"t0": torch.zeros(1)})):
        path.write_bytes(damaged)
        one_line(lambda: go(skewed(), fs.methods.fedavg(), out=tmp_path / "a", resume=True), "checkpoint", "damaged")
        assert path.read_bytes() == damaged, "left for whoever wants to look"


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    def fill(row: dict[str, Any]) -> None:
        monkeypatch.setattr(os, "fsync", full)

    one_line(lambda: go(skewed(), fs.methods.fedavg(), out=tmp_path / "a", on_round=fill), "cannot write", "No space")


def test_a_disk_that_removes_nothing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on removes the summary of its former end."""
    go(skewed(), fs.methods.fedavg(), rounds=1, out=tmp_path / "a")
    plain = os.unlink

    def unlink(path: Any, **options: Any) -> None:
        if str(path).endswith("summary.json"):
            raise OSError(30, "Read-only file system")
        plain(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    on = lambda: go(skewed(), fs.methods.fedavg(), rounds=2, out=tmp_path / "a", resume=True)
    one_line(on, "cannot write", "summary.json", "Read-only")


# ---------------------------------------------------------------------------------------------------------------------
# Killed


def test_a_run_that_was_killed_while_it_began_is_begun_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a configuration and no round; --resume says what to do, and the same command begins it again."""
    folder = tmp_path / "run"
    words = ("run", "fedavg", *SMALL, "--out", folder)
    assert fedskew(*words) == 0
    for name in ("manifest.json", "rounds.jsonl", "summary.json", "checkpoint/state.safetensors"):
        (folder / name).unlink()
    said = mistake(capsys, "run", "--resume", folder)
    assert "the run ended before its first round: start it again in this folder" in said
    assert fedskew(*words) == 0


@pytest.mark.parametrize(
    "left", ["checkpoint/.tmpAb3dE6", "features/.round-2.safetensors.7.tmp", ".summary.json.7.tmp"]
)
def test_half_a_file_of_a_killed_process_is_cleared_away(left: str, tmp_path: Path) -> None:
    """safetensors has temporary files of its own."""
    go(skewed(), fs.methods.fedavg(), rounds=1, out=tmp_path / "run")
    (tmp_path / "run" / left).parent.mkdir(exist_ok=True)
    (tmp_path / "run" / left).write_bytes(b"half")
    go(skewed(), fs.methods.fedavg(), rounds=2, out=tmp_path / "run", resume=True)
    assert not (tmp_path / "run" / left).exists()


def test_another_run_is_not_continued(tmp_path: Path) -> None:
    go(skewed(), fs.methods.fedavg(), rounds=2, out=tmp_path / "run")
    for change in ({"seed": 5}, {"cohort": 2}):
        with pytest.raises(fs.RecordError, match=f"must continue the same run; {next(iter(change))} was"):
            go(skewed(), fs.methods.fedavg(), **({"rounds": 2} | change), out=tmp_path / "run", resume=True)
    with pytest.raises(fs.RecordError, match="method was"):
        go(skewed(), fs.methods.fedprox(), rounds=2, out=tmp_path / "run", resume=True)
    with pytest.raises(fs.RecordError, match="must continue the same run"):
        go(blobs([[5, 5]] * 6), fs.methods.fedavg(), rounds=2, out=tmp_path / "run", resume=True)


# Records of the command and of Python


@pytest.mark.parametrize("lost", [0, 1])
def test_rounds_that_are_missing_before_the_checkpoint_are_noticed(
    lost: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run / "rounds.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    del lines[lost]
    file.write_text("".join(lines))
    said = mistake(capsys, "run", "--resume", run)
    assert f"rounds.jsonl was altered: round {lost + 1} is missing; restore it from a copy" in said
    assert file.read_text() == "".join(lines), "nothing was overwritten"


@dataclass(frozen=True)
class Entropy(fs.Component):
    """A part of the user's own."""

    name = "entropy_of_mine"
    reference = "Smith 2024, in words of my own"

    def loss(self, view: Any) -> torch.Tensor:
        return -0.01 * view.batch.mean(torch.special.entr(view.out.logits.softmax(1)).sum(1))


def test_a_run_from_python_is_resumed_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = fs.Method("mine", parts=(Entropy(),))
    go(skewed(), mine, out=tmp_path / "a")
    for flag in ("--resume", "--from"):
        said = mistake(capsys, "run", flag, tmp_path / "a")
        assert "started from Python" in said and "resume=True" in said
    assert len(go(skewed(), mine, rounds=3, out=tmp_path / "a", resume=True).rounds) == 3


def test_rounds_are_on_the_disk_before_the_checkpoint_that_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of power may lose what was not synced: never a round of a checkpoint that is there."""
    seen: list[str] = []
    plain = os.fsync

    def fsync(fd: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        size = os.fstat(fd).st_size
        if not Path(f"/proc/self/fd/{fd}").is_dir():
            seen.append(f"rounds {size}" if name == "rounds.jsonl" else name.split(".")[1])
        plain(fd)

    if not Path("/proc/self/fd").exists():
        pytest.skip("/proc tells which file is synced")
    monkeypatch.setattr(os, "fsync", fsync)
    go(skewed(), fs.methods.fedavg(), rounds=4, checkpoint_every=2, out=tmp_path / "run")
    states = [i for i, name in enumerate(seen) if name == "state"]
    assert len(states) == 2 and all(seen[i - 1].startswith("rounds ") for i in states)
    whole = (tmp_path / "run/rounds.jsonl").stat().st_size
    assert seen[states[-1] - 1] == f"rounds {whole}"
