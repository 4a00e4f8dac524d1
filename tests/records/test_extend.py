"""More rounds for a run that came to its end: the run that had them from the start, or a refusal that says why."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.methods import METHODS
from fedskew.records.folder import finished, read
from support.command import SMALL, fedskew, mistake, output_of
from support.federations import skewed
from support.methods import MOST_HOOKS, changed, tiny
from support.paths import ROOT
from support.resuming import equal, recorded, stop_after
from support.runs import go


@pytest.mark.parametrize("name", MOST_HOOKS)
def test_an_extended_run_is_the_run_that_had_the_rounds_from_the_start(name: str, tmp_path: Path) -> None:
    options = {"cohort": 4, "personal_every": 1}
    go(skewed(), tiny(name), rounds=2, out=tmp_path / "a", **options)
    go(skewed(), tiny(name), rounds=3, out=tmp_path / "a", resume=True, **options)
    go(skewed(), tiny(name), rounds=3, out=tmp_path / "b", **options)
    equal(tmp_path / "a", tmp_path / "b")
    configs = [read(tmp_path / folder)[0] for folder in "ab"]
    assert configs[0] == configs[1], "its record says how many rounds it has now"


def test_the_command_extends_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "scaffold", *SMALL, "--out", tmp_path / "a") == 0
    assert fedskew("run", "--resume", tmp_path / "a", "--rounds", 4) == 0
    assert fedskew("run", "scaffold", *SMALL[:4], *SMALL[6:], "--rounds", 4, "--out", tmp_path / "b") == 0
    equal(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a/config.json").read_bytes() == (tmp_path / "b/config.json").read_bytes()
    assert "4 rounds in" in capsys.readouterr().out


def test_a_finished_run_that_is_resumed_says_so_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (last,) = output_of(capsys, "run", "fedavg", *SMALL, "--out", tmp_path / "a").splitlines()
    files = [path for path in (tmp_path / "a").iterdir() if path.is_file()]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    assert fedskew("run", "--resume", tmp_path / "a") == 0
    said = capsys.readouterr()
    assert "is finished: all 2 rounds are done; `fedskew run --resume" in said.out and "--rounds 4` adds 2" in said.out
    assert last in said.out and said.err == ""
    assert before == [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]


def test_a_schedule_over_all_rounds_refuses_more_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fedbal", "--parts.local_balancer.schedule_unit", "round", *SMALL]
    assert fedskew("run", *words, "--out", tmp_path / "a") == 0
    capsys.readouterr()
    before = (tmp_path / "a/config.json").read_bytes()
    told = mistake(capsys, "run", "--resume", tmp_path / "a", "--rounds", 3)
    assert "--rounds must stay 2, since parts.local_balancer runs a schedule over all rounds" in told
    assert (tmp_path / "a/config.json").read_bytes() == before
    method = changed(fs.methods.fedbal(), "local_balancer", schedule_unit="round")
    go(skewed(), method, rounds=3, out=tmp_path / "b", on_round=stop_after(1))
    with pytest.raises(fs.ConfigError, match="must stay 3"):
        go(skewed(), method, rounds=4, out=tmp_path / "b", resume=True)
    assert go(skewed(), method, rounds=3, out=tmp_path / "b", resume=True).stopped == ""


def test_every_ingredient_whose_code_reads_the_number_of_rounds_says_so() -> None:
    """The number reaches an ingredient as ``task.rounds``, ``progress.rounds`` or the argument of a pace."""
    readers = set()
    for path in [*(ROOT / "src/fedskew/methods").glob("*.py"), *(ROOT / "src/fedskew/method").glob("*.py")]:
        for kind in [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.ClassDef)]:
            names = {n.name: n for n in kind.body if isinstance(n, ast.FunctionDef)}
            reads = any(isinstance(n, ast.Attribute) and n.attr == "rounds" for n in ast.walk(kind))
            if "of" in names:  # a pace that only passes the number on to its base does not read it
                used = [n for n in ast.walk(names["of"]) if isinstance(n, ast.Name) and n.id == "rounds"]
                calls = [n for n in ast.walk(names["of"]) if isinstance(n, ast.Call) and "super().of" in ast.unparse(n)]
                reads |= len(used) > len(calls)
            if reads:
                assert "reads_rounds" in names, f"{path.name}: {kind.name}"
                readers.add(kind.name)
    assert readers == {"Cosine", "LocalBalancer"}
    assert not [n for n in METHODS if any(i.reads_rounds for _, i in METHODS[n]().ingredients())], "none by default"


def test_fewer_rounds_than_are_done_are_refused_and_the_record_stays(tmp_path: Path) -> None:
    go(skewed(), fs.methods.fedavg(), rounds=3, out=tmp_path / "a")
    with pytest.raises(fs.ConfigError, match="rounds must be at least 3, the completed rounds; got 2"):
        go(skewed(), fs.methods.fedavg(), rounds=2, out=tmp_path / "a", resume=True)
    assert len(recorded(tmp_path / "a")) == 3 and finished(tmp_path / "a", 3)


def test_an_extension_that_is_stopped_goes_on(tmp_path: Path) -> None:
    fed, method = skewed(), fs.methods.scaffold()
    go(fed, method, rounds=2, out=tmp_path / "a")
    go(fed, method, rounds=5, out=tmp_path / "a", resume=True, on_round=stop_after(3))
    assert json.loads((tmp_path / "a/config.json").read_text())["rounds"] == 5 and not finished(tmp_path / "a", 5)
    go(fed, method, rounds=5, out=tmp_path / "a", resume=True)
    go(fed, method, rounds=5, out=tmp_path / "b")
    equal(tmp_path / "a", tmp_path / "b")
    assert finished(tmp_path / "a", 5)


def test_other_options_beside_resume_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = mistake(capsys, "run", "--resume", run, "--rounds", 3, "--lr", 1)
    assert "--resume must be used alone, or with --rounds" in told and "got '--lr 1'" in told
    assert "--rounds must be at least 2" in mistake(capsys, "run", "--resume", run, "--rounds", 1)


def test_a_run_that_goes_on_elsewhere_says_where(tmp_path: Path) -> None:
    """Where clients train is no part of a run: its record tells of the last place, and of none where none is set."""
    fed, method, folder = skewed(), fs.methods.scaffold(), tmp_path / "a"
    go(fed, method, rounds=4, out=tmp_path / "b")
    go(fed, method, rounds=4, out=folder, ray_address="10.0.0.1:6379", ray_gpus=0.5, on_round=stop_after(1))
    elsewhere = {"ray_address": "10.0.0.2:7000", "ray_workers": 3, "on_round": stop_after(2)}
    go(fed, method, rounds=4, out=folder, resume=True, **elsewhere)
    told = json.loads((folder / "config.json").read_text())
    assert told["ray_address"] == "10.0.0.2:7000" and told["ray_workers"] == 3 and "ray_gpus" not in told
    go(fed, method, rounds=4, out=folder, resume=True)
    equal(folder, tmp_path / "b")
    assert read(folder)[0] == read(tmp_path / "b")[0]


def test_a_cluster_beside_a_run_of_another_engine_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--ray.address", "--ray-address", "--ray.workers", "--ray.gpus"):
        told = mistake(capsys, "run", "--resume", run, "--rounds", 3, flag, "1")
        assert f"{flag} must go with a run of the engine ray; {run} is one of " in told
