"""`fedskew runs` and `fedskew show`: what is listed, chosen and deleted, and what is never touched."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedskew as fs
from fedskew.cli import records
from fedskew.records.files import Hold, InUseError
from support.command import SMALL, fedskew, json_of, mistake, output_of, printed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three kinds, made once."""
    place = tmp_path_factory.mktemp("made")
    for name, words in {
        "a": ["fedavg", *SMALL],
        "b": ["fedavg", *SMALL, "--seed", "1", "--lr", "0.05"],
        "c": ["fedbal", *SMALL],
    }.items():
        assert fedskew("run", *words, "--out", place / name) == 0
    return place


@pytest.fixture
def runs(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same runs below ``runs``, the folder in which the command looks."""
    shutil.copytree(made, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def listed(*words: object) -> list[str]:
    """The names of the folders that the command lists."""
    return [Path(run["folder"]).name for run in json_of("runs", *words)]


def test_a_list_says_method_data_partition_rounds_accuracy_state_and_age(runs: Path) -> None:
    head, *lines = output_of("runs").splitlines()
    assert head.split() == ["folder", "method", "data", "partition", "done", "accuracy", "state", "age"]
    accuracy = json.loads((runs / "b/summary.json").read_text())["final_accuracy"]
    assert [line.split()[0] for line in lines] == ["runs/a", "runs/b", "runs/c"]
    for word in ("fedavg (lr 0.05)", "digits", "dirichlet (alpha 0.5)", "2/2", f"{accuracy:.4g}", "finished", " s"):
        assert word in lines[1]


def test_the_state_says_how_a_run_ended(runs: Path) -> None:
    def ends(name: str, **changes: object) -> None:
        file = runs / name / "summary.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    ends("a", stopped="interrupted")
    ends("b", stopped="TrainingError: the loss of client 3 is not finite")
    (runs / "c/summary.json").unlink()
    (runs / "d").mkdir()
    (runs / "d/config.json").write_text("{")
    (runs / "d/rounds.jsonl").write_text("")
    said = output_of("runs", "--columns", "folder,state,rounds,accuracy")
    assert "stopped: interrupted" in said and "failed: TrainingError: the loss of client 3" in said
    assert "stopped: killed" in said and "damaged: config.json is damaged" in said
    row = json.loads((runs / "c/rounds.jsonl").read_text().splitlines()[-1])
    (killed,) = [line.split() for line in said.splitlines() if line.startswith("runs/c")]
    assert killed[-2:] == ["2", f"{row['accuracy']:.4g}"], "what the last round says, without a summary"


def test_a_folder_that_a_process_writes_is_running_and_is_not_deleted(runs: Path) -> None:
    hold = Hold(runs / "a")
    try:
        assert output_of("runs", "--columns", "folder,state").splitlines()[1].split() == ["runs/a", "running"]
        said = printed("runs", runs, "--where", "method=fedavg", "--delete", "--yes", code=2).err
    finally:
        hold.release()
    assert "is in use by process" in said and (runs / "a/summary.json").exists()
    (runs / "c/.owner.json").write_text("{}")
    (runs / "c/.lock").touch()  # what a process leaves that was killed
    assert "running" not in output_of("runs", "--columns", "folder,state")


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["method=fedavg"], "ab"),
        (["method~LR 0.05"], "b"),
        (["method!=fedavg"], "c"),
        (["lr=0.05"], "b"),
        (["pace.lr<0.1"], "b"),
        (["method.pace.lr>=0.1"], "ac"),
        (["seed=0", "method.name=fedavg"], "a"),
        (["partition=dirichlet"], "abc"),
        (["partition.alpha!=0.5"], ""),
        (["final_accuracy>2"], ""),
        (["total_upload_bytes>0", "state=finished"], "abc"),
        (["age<1"], "abc"),
        (["longtail=none"], "abc"),
        (["weighting.name=aggregation_balancer"], "c"),
        (["weighting.beta!=3"], "ab"),
        (["weighting.beta<1000"], "c"),
        ([" seed = 1 "], "b"),
    ],
)
def test_a_list_is_chosen_by_any_field(conditions: list[str], expected: str, runs: Path) -> None:
    words = [word for condition in conditions for word in ("--where", condition)]
    assert "".join(listed(*words)) == expected


def test_a_list_is_sorted_by_any_field_and_what_lacks_it_comes_last(runs: Path) -> None:
    assert listed("--sort", "lr")[0] == "b"
    values = {n: json.loads((runs / n / "summary.json").read_text())["final_accuracy"] for n in "abc"}
    assert listed("--sort", "-accuracy") == sorted(values, key=lambda n: -values[n])
    assert listed("--sort=weighting.beta")[0] == "c"


def test_only_the_settings_in_which_runs_differ_are_shown(runs: Path) -> None:
    head, *rows = output_of("runs", "--settings", "--where", "method.name=fedavg").splitlines()
    assert head.split() == ["folder", "method", "method.pace.lr", "seed"]
    assert [row.split()[-2:] for row in rows] == [["0.1", "0"], ["0.05", "1"]]
    assert output_of("runs", runs / "a", "--settings") == "these runs have the same settings\n"


def test_delete_removes_what_runs_wrote_and_nothing_else(runs: Path) -> None:
    shutil.copytree(runs / "a", runs / "a/inner")  # a run inside of a run
    (runs / "b/notes.txt").write_text("mine")
    (runs / "b/checkpoint/mine.txt").write_text("mine")
    (runs / "no-run").mkdir()
    (runs / "no-run/config.json").write_text("{}")
    chosen = ("--where", "method.name=fedavg", "--where", "folder!=runs/a/inner")
    said = printed("runs", "runs", *chosen, "--delete", "--yes", code=2)
    assert "runs/a " in said.out and "deleted 0 runs" in said.out, "the list is shown first"
    assert "runs/a stays: it holds files that no run wrote" in said.err
    assert "runs/b stays: it holds files that no run wrote" in said.err
    assert (runs / "a/inner/final.safetensors").exists() and not (runs / "a/final.safetensors").exists()
    left = sorted(str(p.relative_to(runs / "b")) for p in (runs / "b").rglob("*") if p.is_file())
    assert left == ["checkpoint/mine.txt", "notes.txt"]
    assert (runs / "no-run/config.json").exists()
    assert "deleted 2 runs" in output_of("runs", "runs", "--delete", "--yes")
    assert sorted(p.name for p in runs.iterdir()) == ["a", "b", "no-run"]


def test_delete_follows_no_link_and_leaves_the_named_folders_alone(runs: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(runs / "a", outside / "run")
    before = sorted(str(p) for p in outside.rglob("*"))
    shutil.rmtree(runs / "a")
    (runs / "a").symlink_to(outside / "run")  # a run folder that is a link
    (runs / "deep").symlink_to(outside)  # a link on the way
    shutil.rmtree(runs / "b/checkpoint")
    (runs / "b/checkpoint").symlink_to(outside / "run/checkpoint")  # a link inside of a run
    assert "runs/b stays" in printed("runs", "runs", "--delete", "--yes", code=2).err
    assert "is behind a link" in printed("runs", "runs/deep", "--delete", "--yes", code=2).err
    assert sorted(str(p) for p in outside.rglob("*")) == before
    assert (runs / "b/checkpoint").is_symlink() and not (runs / "c").exists()


def test_remove_refuses_a_folder_outside_of_those_that_are_named(runs: Path) -> None:
    from fedskew.studies.runs import described, remove

    for run in described([runs]):
        assert "outside the named folders" in remove(run, [runs / "other", runs / "a/b"])
        assert run.folder.exists()


@pytest.mark.parametrize(("answer", "left"), [("y\n", 2), ("yes\n", 2), ("\n", 3), ("no\n", 3), ("", 3)])
def test_delete_asks_first(answer: str, left: int, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return answer

    monkeypatch.setattr(sys, "stdin", Terminal())
    said = output_of("runs", "--where", "seed=1", "--delete")
    assert "runs/b" in said and "delete 1 run? [y/N]" in said
    assert len(list(runs.iterdir())) == left and ("nothing is deleted" in said) == (left == 3)


def test_a_folder_that_another_process_takes_as_it_is_deleted_stays_locked(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that begins the run anew the moment the hold ends keeps its own lock."""
    from fedskew.studies.runs import described, remove

    (run,) = (run for run in described([runs]) if run.folder.name == "a")
    release, others = Hold.release, list[Hold]()

    def released(self: Hold, *options: Any, **more: Any) -> None:
        release(self, *options, **more)
        if not others:
            others.append(Hold(run.folder))

    monkeypatch.setattr(Hold, "release", released)
    assert "stays" in remove(run, [runs])
    with pytest.raises(InUseError):
        Hold(run.folder)
    others[0].release()


MISTAKES = {
    "no folder": (["no/such"], "there is no run at 'no/such': no such file or folder"),
    "no condition": (["--where", "accuracy"], "--where must be FIELD=VALUE, or with one of"),
    "no number": (["--where", "accuracy>much"], "--where must compare by > with a number; got 'accuracy>much'"),
    "field": (["--where", "accuray=1"], "unknown field 'accuray' of these runs; did you mean 'accuracy'?"),
    "column": (["--columns", "folder,sede"], "unknown field 'sede' of these runs; did you mean 'seed'?"),
    "two fields": (["--where", "name=x"], "field 'name' must be one entry; it is "),
    "yes alone": (["--yes"], "--yes must go with --delete"),
    "nothing named": (["--delete", "--yes"], "--delete must go with a FOLDER or with --where"),
    "not confirmed": (["runs", "--delete"], "--delete must be confirmed by --yes without a terminal"),
    "delete and JSON": (["runs", "--delete", "--json", "--yes"], "--delete must go without --json"),
}


SHOWN = {
    "no folder": (["show", "no/such"], "run must be a run folder; got 'no/such', which is no folder"),
    "no run": (["show", "."], "run must be a run folder; got '.', which has no config.json"),
    "metric": (["show", "runs/a", "--metric", "acuracy"], "unknown metric of this run 'acuracy'; did you mean"),
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [*((["runs", *words], said) for words, said in MISTAKES.values()), *SHOWN.values()],
    ids=[*MISTAKES, *(f"show: {case}" for case in SHOWN)],
)
def test_a_mistake_is_one_line(words: list[str], expected: str, runs: Path) -> None:
    assert expected in mistake(*words)
    assert sorted(p.name for p in runs.iterdir()) == ["a", "b", "c"]


def test_a_list_without_runs_says_so(runs: Path) -> None:
    assert output_of("runs", "--where", "seed=77") == "no run matches; 3 runs in runs\n"


def test_rounds_are_not_read_for_a_list(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of finished runs opens their configuration and summary, and nothing else."""
    from fedskew import errors
    from fedskew.studies import runs as listing

    seen: list[str] = []
    read = errors.opened

    def noted(path: Path) -> Any:
        seen.append(path.name)
        return read(path)

    monkeypatch.setattr(errors, "opened", noted)
    monkeypatch.setattr(listing, "_last", lambda file: pytest.fail("rounds were read"))
    assert len(listing.described([runs])) == 3
    assert set(seen) == {"config.json", "summary.json"} and len(seen) == 6


def test_of_many_classes_those_with_rows_are_counted() -> None:
    row = {"round": 1, "per_class_recall": [0.5] * 70, "support": [1] * 65 + [0] * 5}
    head = next(records._classes(SimpleNamespace(rows=[row], config={}, serves="global")))
    assert head.endswith("the worst 60 of 65 classes")


def test_show_draws_curves_and_bars_and_says_the_command_that_repeats_the_run(runs: Path) -> None:
    said = output_of("show", "runs/b")
    assert said.startswith("fedavg (lr 0.05): digits, dirichlet (alpha 0.5), 6 clients, cohort 3, logistic")
    assert "finished, 2 of 2 rounds" in said and "accuracy by round" in said and "loss by round" in said
    assert "recall of each class in round 2" in said and "█" in said and "▁" in said
    assert "macro_f1" in said and "total: upload_bytes" in said and "per_class_auroc" not in said
    table = said[said.index("metric ") : said.index("total: ")].splitlines()
    assert len(table) > 10 and max(map(len, table)) <= 100
    assert all(len(line) <= 100 for line in said.splitlines())
    again = said[said.index("again: ") :].splitlines()[0]
    words = again.removeprefix("again: fedskew ").split()
    assert words == ["run", "--from", "runs/b"] and "differs from the defaults: pace.lr 0.05, rounds 2" in said
    assert fedskew(*words, "--out", "runs/again") == 0
    first, second = (json.loads((runs / name / "summary.json").read_text()) for name in ("b", "again"))
    assert first["final_loss"] == second["final_loss"]


def test_show_is_plain_ascii_where_the_terminal_lacks_more(runs: Path) -> None:
    said = output_of("show", "runs/a", "--ascii", "--metric", "macro_f1")
    assert said.isascii() and "macro_f1 by round" in said and "_#" in said and "####" in said and "loss by" not in said


def test_show_of_a_run_from_python_and_of_one_without_rounds(tmp_path: Path) -> None:
    fed = fs.federate("digits", "iid", clients=4)
    fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=2, out=tmp_path / "run")
    assert "started from Python" in output_of("show", tmp_path / "run")
    from fedskew.records.folder import Record

    Record.create(tmp_path / "begun", {"method": {"name": "fedavg", "parts": []}, "rounds": 3}).close()
    assert "stopped: killed, 0 of 3 rounds" in output_of("show", tmp_path / "begun")


def test_names_with_control_characters_reach_no_terminal(runs: Path) -> None:
    os.rename(runs / "a", runs / "a\x1b[2J")
    assert "\x1b" not in output_of("runs") + output_of("show", f"{runs}/a\x1b[2J")
