"""Scores of a run: measured once at its end or at every evaluation, recorded, read, and the same after a resume."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

import fedskew as fs
from fedskew.config.experiment import load
from fedskew.config.recorded import read_run
from fedskew.engines.evaluation import Evaluator
from fedskew.plots.groups import groups_of
from fedskew.records.folder import finished, read
from fedskew.records.metrics import EACH, SCORES
from support.command import SMALL, fedskew, mistake, output_of
from support.federations import RAGGED, blobs, skewed
from support.methods import tiny
from support.old_format import as_format_1
from support.resuming import equal, stop_after
from support.runs import go, rows_of

ALL = (*SCORES, *EACH)


def of_end(summary: dict[str, Any]) -> dict[str, Any]:
    """The summary without seconds and best values."""
    return {name: value for name, value in summary.items() if name != "total_wall_s"}


def test_scores_are_those_of_the_last_model(tmp_path: Path) -> None:
    fed = skewed()
    result = go(fed, fs.methods.fedavg(), model="mlp", dtype="float32", rounds=3, out=tmp_path / "a")
    p, y = result.probabilities(fed.dataset.x_test).numpy(), fed.dataset.y_test.numpy()
    summary, classes = result.summary, range(p.shape[1])
    ranked = [c for c in classes if (y == c).any()]
    for name, function in (("auroc", sk.roc_auc_score), ("auprc", sk.average_precision_score)):
        wanted = [function(y == c, p[:, c]) for c in ranked]
        assert [summary[f"final_per_class_{name}"][c] for c in ranked] == pytest.approx(wanted, abs=1e-12)
        assert summary[f"final_{name}_macro"] == pytest.approx(np.mean(wanted), abs=1e-12)
    assert summary["final_loss"] == pytest.approx(sk.log_loss(y, p, labels=list(classes)), abs=1e-9)
    matrix = sk.confusion_matrix(y, p.argmax(1), labels=list(classes))
    assert result.confusion is not None and (result.confusion.numpy() == matrix).all()
    assert np.trace(matrix) / matrix.sum() == pytest.approx(summary["final_accuracy"])
    mixes = fs.metrics.from_mixes(result.confusion, fed.counts)
    assert {name: summary[f"final_{name}"] for name in mixes} == mixes
    assert not set(ALL) & set().union(*result.rounds), "rows hold scores only where they are asked for"
    assert read_run(tmp_path / "a").summary == summary


@pytest.mark.parametrize("engine", ["sequential", "batched", "threaded", "debug"])
def test_at_every_evaluation_they_are_in_the_rows_too(engine: str) -> None:
    once, every = (go(skewed(), tiny("fedavg"), rounds=3, engine=engine, scores=s) for s in ("last", "every"))
    assert all(set(ALL) <= set(row) for row in every.rounds)
    assert of_end(once.summary) == of_end(every.summary), "the end says the same"
    assert {n: every.rounds[-1][n] for n in ALL} == {n: every.summary[f"final_{n}"] for n in ALL}
    bare = [{n: v for n, v in row.items() if n not in ALL} for row in rows_of(every)]
    assert bare == rows_of(once), "nothing else changes"
    assert all(torch.equal(once.params[n], every.params[n]) for n in once.params)


def test_rounds_that_are_not_evaluated_have_none() -> None:
    result = go(skewed(), tiny("fedavg"), rounds=3, eval_every=2, scores="every")
    assert ["auroc_macro" in row for row in result.rounds] == [False, True, True]


def test_a_precision_of_your_own() -> None:
    low, high = (
        go(skewed(), tiny("fedavg"), recall_at=at).summary["final_per_class_recall_at_precision"] for at in (0.2, 1.0)
    )
    assert all(a >= b for a, b in zip(low, high, strict=True) if a is not None) and low != high


def test_a_federation_with_empty_clients_and_one_with_a_single_client() -> None:
    with_empty = go(blobs([*RAGGED, [0, 0, 0]]), fs.methods.fedavg(), cohort=2).summary
    assert all(with_empty[f"final_{name}"] is not None for name in SCORES if name.startswith("mix"))
    alone = go(blobs([[4, 5, 6]]), fs.methods.fedavg(), cohort=1).summary
    assert len({alone[f"final_{name}"] for name in SCORES if name.startswith("mix")}) == 1


# Resume


def test_a_resumed_and_an_extended_run_end_as_the_whole_one(tmp_path: Path) -> None:
    options = {"scores": "every", "recall_at": 0.7, "engine": "batched"}
    for name, more in (("plain", {}), ("every", options)):
        whole, stopped, longer = (tmp_path / name / folder for folder in ("whole", "stopped", "longer"))
        go(skewed(), tiny("scaffold"), rounds=4, out=whole, **more)
        half = go(skewed(), tiny("scaffold"), rounds=4, out=stopped, on_round=stop_after(2), **more)
        assert half.stopped and half.confusion is None and ("final_auroc_macro" in half.summary) == bool(more)
        go(skewed(), tiny("scaffold"), rounds=4, out=stopped, resume=True, **more)
        go(skewed(), tiny("scaffold"), rounds=2, out=longer, **more)
        go(skewed(), tiny("scaffold"), rounds=4, out=longer, resume=True, **more)
        for other in (stopped, longer):
            equal(whole, other)
            assert of_end(read(whole)[2]) == of_end(read(other)[2])


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_interrupts_the_scores_loses_no_round(error: type[BaseException], tmp_path: Path) -> None:
    def broken(*_: Any) -> Any:
        raise error

    told = contextlib.nullcontext() if error is KeyboardInterrupt else pytest.raises(error)
    with pytest.MonkeyPatch.context() as patch, told:
        patch.setattr(Evaluator, "scored", broken)
        assert go(skewed(), tiny("fedavg"), out=tmp_path / "a").stopped == "interrupted"
    assert not finished(tmp_path / "a", 2)
    again = go(skewed(), tiny("fedavg"), out=tmp_path / "a", resume=True)
    assert of_end(again.summary) == of_end(go(skewed(), tiny("fedavg"), out=tmp_path / "b").summary)
    assert finished(tmp_path / "a", 2)
    equal(tmp_path / "a", tmp_path / "b")


# The command, and what reads a folder


def test_the_command_records_and_evaluates_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--eval.scores", "every", "--eval.recall-at", "0.6"]
    assert fedskew("run", "fedavg", *SMALL, *words, "--out", tmp_path / "a") == 0
    assert fedskew("run", "fedavg", *SMALL, "--out", tmp_path / "b") == 0
    run = read_run(tmp_path / "a")
    config, rows, summary = run.config, run.rows, run.summary
    assert config["scores"] == "every" and config["recall_at"] == 0.6 and "auroc_macro" in rows[0]
    assert "scores" not in read_run(tmp_path / "b").config, "a default is not recorded, so hashes stay"
    assert (load(tmp_path / "a").scores, load(tmp_path / "b").scores) == ("every", "last")
    capsys.readouterr()
    for folder in "ab":
        assert fedskew("evaluate", tmp_path / folder, "--json") == 0
        found, summary = json.loads(capsys.readouterr().out), read_run(tmp_path / folder).summary
        names = [n for n in ("confusion", "loss", *ALL) if not n.startswith("mix")]
        assert {n: found[n] for n in names} == {n: summary[f"final_{n}"] for n in names}
    said = output_of(capsys, "evaluate", tmp_path / "a")
    assert f"AUROC {summary['final_auroc_macro']:.4f}" in said and "AUPRC" in said and "calibration error" in said
    assert len(run.series("auroc_macro")[0]) == 2
    assert len({g.name for g in groups_of([tmp_path / "a", tmp_path / "b"])}) == 2  # one seed twice
    assert {f"final_{name}" for name in (*ALL, "confusion")} <= read_run(tmp_path / "b").summary.keys()


def test_a_folder_of_an_earlier_version_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--out", tmp_path / "a") == 0
    file = as_format_1(tmp_path / "a") / "summary.json"
    summary = json.loads(file.read_text())
    names = {f"final_{name}" for name in (*ALL, "confusion")}
    file.write_text(json.dumps({name: value for name, value in summary.items() if name not in names}))
    run = read_run(tmp_path / "a")
    assert "final_confusion" not in run.summary and run.last["accuracy"] == summary["final_accuracy"]
    capsys.readouterr()
    assert fedskew("evaluate", tmp_path / "a", "--json") == 0
    assert json.loads(capsys.readouterr().out)["auroc_macro"] == summary["final_auroc_macro"]


FIT: dict[str, Any] = {
    "a": 1.0, "b": [0.0], "objective": "prior", "ridge": 1e-4, "exchanges": 1, "upload_bytes": 1, "download_bytes": 1,
}  # fmt: skip


UNLIKE = [  # entry of a summary, its value, what is said of it
    ("final_confusion", [[1, 2], [3]], "'final_confusion' must have as many numbers in each row as it has rows"),
    ("final_confusion", [[1, -2], [3, 4]], "none below 0"),
    ("final_confusion", [[]], "'final_confusion' must have"),
    ("final_confusion", "[[1]]", "'final_confusion' must be a list; got"),
    ("final_per_class_auroc", [0.5], "'final_per_class_auroc' must have 10 numbers, one a class"),
    ("final_per_class_auprc", {"0": 1}, "'final_per_class_auprc' must be a list; got"),
    ("final_fitted_accuracy", "high", "'final_fitted_accuracy' must be a number or null; got 'high'"),
    ("final_fit", {"prior": {**FIT, "a": "x"}, "balanced": FIT}, "'final_fit.prior.a' must be a number"),
]


def test_entries_that_no_run_writes_are_told_in_one_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = as_format_1(run) / "summary.json"
    summary = json.loads(file.read_text())
    for entry, value, told in UNLIKE:
        file.write_text(json.dumps({**summary, entry: value}))
        with pytest.raises(fs.RecordError) as caught:
            read_run(run)
        assert told in str(caught.value) and "\n" not in str(caught.value)
    assert "summary.json is damaged" in mistake(capsys, "evaluate", run)


def test_scores_of_a_row_are_checked_too(tmp_path: Path) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--eval.scores", "every", "--out", tmp_path / "a") == 0
    file = as_format_1(tmp_path / "a") / "rounds.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0]["per_class_auroc"] = [0.5]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(fs.RecordError, match="round 1: one number a class must be in each of per_class_auroc"):
        read_run(tmp_path / "a")
