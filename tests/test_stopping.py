"""What ends a run before its last round: a validation metric that no longer improves, and a time limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fedskew as fs
from fedskew.data.federation import Federation
from fedskew.engines import LocalEngine
from fedskew.records.folder import finished, read
from fedskew.records.summary import monitored
from support.command import SMALL, fedskew, mistake, output_of
from support.nets import norm_net
from support.resuming import dying_after, equal, stop_after
from support.runs import rows_of, same

WATCHED = {"monitor": "val_balanced_accuracy", "model": "logistic", "cohort": 3, "engine": "sequential"}


@pytest.fixture(scope="module")
def fed() -> Federation:
    return fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.2), clients=8, validation=0.2)


def go(fed: Federation, **options: Any) -> fs.Result:
    return fs.run(fed, fs.methods.scaffold(), **{**WATCHED, "rounds": 12, **options})


def test_a_watch_counts_evaluations_since_the_last_improvement() -> None:
    values = [0.5, None, 0.6, 0.6, float("nan"), 0.61, None, 0.3]
    rows = [{"round": r, **({} if v is None else {"val_accuracy": v})} for r, v in enumerate(values, 1)]
    monitor = monitored(rows, "val_accuracy")
    assert (monitor.best, monitor.idle) == ((6, 0.61), 1) and monitored(rows[:5], "val_accuracy").idle == 2
    assert monitored(rows[4:5], "val_accuracy").best is None, "not a number"
    falling = [{"round": r, "val_loss": v} for r, v in enumerate([3.0, 2.0, 2.5], 1)]
    assert monitored(falling, "val_loss").best == (2, 2.0)


def test_a_run_ends_when_the_metric_has_not_improved_for_the_patience(fed: Federation, tmp_path: Path) -> None:
    free = go(fed, rounds=40)
    early = go(fed, rounds=40, patience=3, out=tmp_path / "early")
    monitor = monitored(early.rounds, "val_balanced_accuracy")
    assert len(early.rounds) < 40 and monitor.idle == 3 and early.stopped == ""
    assert rows_of(early) == rows_of(free)[: len(early.rounds)]
    best = early.summary["best"]
    assert best["stopped_early"] and best["round"] == len(early.rounds) - 3
    assert best["value"] == max(row["val_balanced_accuracy"] for row in early.rounds)
    assert best["accuracy"] == early.rounds[best["round"] - 1]["accuracy"]
    assert finished(tmp_path / "early", 40, 3) and not finished(tmp_path / "early", 40, 5)


def test_the_model_of_the_best_round_is_kept_beside_the_last(fed: Federation, tmp_path: Path) -> None:
    for model in ("logistic", norm_net()):
        out = tmp_path / type(model).__name__
        run = go(fed, patience=2, model=model, out=out)
        at = run.summary["best"]["round"]
        short = go(fed, rounds=at, model=model)
        own = None if model == "logistic" else model
        kept = fs.load_model(out, own, best=True)
        assert same(kept.params, short.params) and same(kept.buffers, short.buffers)
        assert same(fs.load_model(out, own).params, run.params)
        assert kept.evaluate(fed.dataset)["accuracy"] == run.summary["best"]["accuracy"]


@pytest.mark.parametrize("stop", [2, 5])
def test_a_stopped_run_keeps_the_same_best_model(stop: int, fed: Federation, tmp_path: Path) -> None:
    go(fed, patience=3, checkpoint_every=3, out=tmp_path / "whole")
    go(fed, patience=3, checkpoint_every=3, out=tmp_path / "half", on_round=stop_after(stop))
    go(fed, patience=3, checkpoint_every=3, out=tmp_path / "half", resume=True)
    equal(tmp_path / "whole", tmp_path / "half")
    names = ["best.safetensors", "final.safetensors"]
    assert all((tmp_path / "whole" / n).read_bytes() == (tmp_path / "half" / n).read_bytes() for n in names)
    assert read(tmp_path / "whole")[2]["best"] == read(tmp_path / "half")[2]["best"]


def test_a_killed_run_keeps_the_best_model_of_its_checkpoint(fed: Federation, tmp_path: Path) -> None:
    whole = go(fed, checkpoint_every=2, out=tmp_path / "whole")
    with dying_after(8, checkpoint=6) as die:
        go(fed, checkpoint_every=2, out=tmp_path / "dead", on_round=die)
    again = go(fed, checkpoint_every=2, out=tmp_path / "dead", resume=True)
    assert again.summary["best"] == whole.summary["best"]
    equal(tmp_path / "whole", tmp_path / "dead")


def test_more_patience_lets_a_run_go_on(fed: Federation, tmp_path: Path) -> None:
    first = go(fed, rounds=40, patience=2, out=tmp_path / "a")
    more = go(fed, rounds=40, patience=6, out=tmp_path / "a", resume=True)
    whole = go(fed, rounds=40, patience=6, out=tmp_path / "b")
    assert len(more.rounds) > len(first.rounds) and rows_of(more) == rows_of(whole)
    assert (tmp_path / "a/config.json").read_text() == (tmp_path / "b/config.json").read_text()


def test_own_models_are_evaluated_in_the_round_that_turns_out_to_be_the_last(fed: Federation) -> None:
    run = fs.run(fed, fs.methods.pfedme(), **{**WATCHED, "rounds": 40, "patience": 2})
    assert len(run.rounds) < 40 and [r["round"] for r in run.rounds if "personal_accuracy" in r] == [len(run.rounds)]


def test_a_run_that_is_another_one_leaves_no_engine_open(
    fed: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(fed, rounds=1, out=tmp_path / "a")
    closed, close = list[LocalEngine](), LocalEngine.close
    monkeypatch.setattr(LocalEngine, "close", lambda engine: closed.append(engine) or close(engine))
    with pytest.raises(fs.RecordError, match="seed was 0 and is 1"):
        go(fed, rounds=1, seed=1, out=tmp_path / "a", resume=True)
    assert len(closed) == 1


def test_a_time_limit_stops_before_a_round_that_may_pass_it(
    fed: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedskew import _run

    now = [0.0]
    monkeypatch.setattr(_run.time, "monotonic", lambda: now[0])

    def minute(row: dict[str, Any]) -> None:
        now[0] += 60 if row["round"] != 2 else 90

    some = go(fed, max_minutes=4.9, out=tmp_path / "a", on_round=minute)
    assert some.stopped == "time limit" and len(some.rounds) == 3, "1 + 1.5 + 1 minutes, and 1.5 more may be too many"
    lives = 1
    while some.stopped:
        assert not finished(tmp_path / "a", 12)
        some = go(fed, max_minutes=4.9, out=tmp_path / "a", on_round=minute, resume=True)
        lives += 1
    assert lives == 4 and rows_of(some) == rows_of(go(fed))


def test_the_command_stops_early_and_says_what_was_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "fedavg", *SMALL[:4], "--rounds", 60, "--validation", 0.2, "--monitor", "val_loss", "--patience", 2]
    said = output_of(capsys, *words, "--model", "logistic", "--lr", 2, "--out", tmp_path / "a")
    assert "best val_loss " in said and "it did not improve after that" in said and "--best" in said
    assert fedskew("evaluate", tmp_path / "a", "--best", "--json") == 0
    told = capsys.readouterr()
    summary = json.loads((tmp_path / "a/summary.json").read_text())
    assert json.loads(told.out)["accuracy"] == summary["best"]["accuracy"]
    assert f"the model of round {summary['best']['round']}, the best by val_loss" in told.err
    said = output_of(capsys, "run", "--resume", tmp_path / "a")
    assert "is finished: val_loss was best in round" in said and "--patience 4` continues it" in said
    assert fedskew("run", "--resume", tmp_path / "a", "--patience", 4) == 0
    assert len(read(tmp_path / "a")[1]) > summary["rounds"]


def test_the_command_ends_with_75_at_the_time_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--max-minutes", 1e-9, "--out", tmp_path / "a") == 75
    assert "stopped by --max-minutes after 1 round; the record is kept" in capsys.readouterr().out
    assert fedskew("run", "--resume", tmp_path / "a", "--max-minutes", 5) == 0


def test_mistakes_are_one_line(fed: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = mistake(capsys, "run", "fedavg", *SMALL, "--patience", 3)
    assert "--patience must be used with a monitor; got 3; val_balanced_accuracy counts every class equally" in said
    said = mistake(capsys, "run", "fedavg", *SMALL, "--monitor", "val_loss", "--out", tmp_path / "a")
    assert "--monitor must have validation rows; got 'val_loss'" in said and not (tmp_path / "a").exists()
    assert "--monitor must be" in mistake(capsys, "run", "fedavg", *SMALL, "--monitor", "accuracy")
    with pytest.raises(fs.RecordError, match="keeps no best model"):
        go(fed, rounds=1, monitor=None, out=tmp_path / "b")
        fs.load_model(tmp_path / "b", best=True)
    assert torch.is_tensor(next(iter(fs.load_model(tmp_path / "b").params.values())))
