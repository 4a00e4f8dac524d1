"""Each client's row in clients.jsonl, and the clients' own models that a run keeps."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import average_precision_score, f1_score, recall_score, roc_auc_score

import fedskew as fs
from fedskew.engines.trained import OWN
from fedskew.records.clients import FILE, client_row
from fedskew.records.decisions import FEW
from fedskew.records.folder import troubles
from fedskew.records.manifest import Manifest
from fedskew.records.metrics import confusion
from fedskew.studies.runs import plain_files
from support.command import fedskew, mistake
from support.resuming import dying_after, stop_after
from support.runs import rows_of

SMALL: dict[str, Any] = {"model": "logistic", "rounds": 3, "cohort": 3}
NAMED = ("../../out", "", "a/b")


def federation(**options: Any) -> fs.data.Federation:
    return fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.5), clients=4, **options)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[fs.data.Federation, Any]:
    fed, folder = federation(local_test=0.3), tmp_path_factory.mktemp("kept") / "a"
    return fed, fs.run(fed, fs.methods.ditto(), **SMALL, out=folder, keep_own=True)


def test_a_row_has_the_numbers_of_scikit_learn() -> None:
    gen = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 6 + [1] * 9 + [2] * 2)
    chances = torch.rand(len(labels), 4, generator=gen, dtype=torch.float64).softmax(1)
    guess = chances.argmax(1)
    row = client_row(7, 3, "va", confusion(labels, guess, 4), 0.5, labels, chances)
    assert (row["round"], row["client"], row["name"], row["rows"], row["loss"]) == (7, 3, "va", 17, 0.5)
    assert row["macro_f1"] == pytest.approx(f1_score(labels, guess, average="macro", labels=range(3)))
    recalls = recall_score(labels, guess, average=None, labels=range(4), zero_division=0).tolist()
    assert row["per_class_recall"] == [*recalls[:3], None] and row["support"] == [6, 9, 2, 0]
    for name, score in (("auroc", roc_auc_score), ("auprc", average_precision_score)):
        assert row[name] == pytest.approx(sum(score(labels == c, chances[:, c]) for c in (0, 1)) / 2)


def test_a_class_with_few_rows_is_not_ranked() -> None:
    labels = torch.tensor([0] * 20 + [1] * (FEW - 1))
    chances = torch.full((len(labels), 2), 0.5, dtype=torch.float64)
    row = client_row(1, 0, "0", confusion(labels, chances.argmax(1), 2), 0.7, labels, chances)
    assert row["auroc"] is None and row["auprc"] is None and row["ece"] is not None


@pytest.mark.parametrize("method", ["fedavg", "ditto", "fedper"])
def test_engines_agree_on_every_client(method: str, tmp_path: Path) -> None:
    found = {}
    for engine in ("sequential", "threaded", "batched"):
        out = tmp_path / engine
        done = fs.run(
            federation(), fs.methods.METHODS[method](), **SMALL, engine=engine, threads=2, out=out, keep_own=True
        )
        found[engine] = [(r["name"], r["rows"], r["per_class_recall"]) for r in done.client_rows]
        assert fs.read_clients(out) == done.client_rows and troubles(out)[1] == []
        assert (out / OWN).exists() == (method != "fedavg")
    assert found["sequential"] == found["threaded"] == found["batched"] and len(found["batched"]) == 4
    assert (tmp_path / "sequential" / FILE).read_bytes() == (tmp_path / "threaded" / FILE).read_bytes()


def test_rows_pool_to_what_the_round_says(kept: tuple[fs.data.Federation, Any]) -> None:
    rows, summary = kept[1].client_rows, kept[1].summary
    total = sum(row["rows"] for row in rows)
    for name in ("accuracy", "loss"):
        pooled = sum(row[name] * row["rows"] for row in rows) / total
        assert pooled == pytest.approx(summary[f"final_served_{name}"])


def test_when_clients_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounds(**options: Any) -> list[int]:
        done = fs.run(federation(), fs.methods.fedavg(), **SMALL, **options)
        return sorted({row["round"] for row in done.client_rows})

    assert rounds() == [3] and rounds(served="none") == [] and rounds(clients_every=2, served="none") == [2, 3]
    monkeypatch.setattr("fedskew.settings.MOST_CLIENTS", 3)
    assert rounds() == [] and rounds(clients_every=5) == [3]


def test_measuring_clients_changes_no_round(tmp_path: Path) -> None:
    plain, more = (fs.run(federation(), fs.methods.ditto(), **SMALL, clients_every=every).rounds for every in (None, 1))
    assert rows_of(plain) == rows_of(more)


def test_a_frame_where_pandas_is(kept: tuple[fs.data.Federation, Any]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = kept[1].clients()
    assert isinstance(frame, pandas.DataFrame) and frame["rows"].tolist() == [r["rows"] for r in kept[1].client_rows]


# Own models


def test_a_kept_model_gives_its_row_again(kept: tuple[fs.data.Federation, Any]) -> None:
    fed, done = kept
    for row in done.client_rows:
        own, at = fs.load_model(done.folder, client=row["name"]), torch.from_numpy(fed.local_test_rows(row["client"]))
        found = own.evaluate(fed.dataset.x[at], [fed.dataset.label_names[c] for c in fed.dataset.y[at]])
        assert found["accuracy"] == row["accuracy"] and found["loss"] == pytest.approx(row["loss"])
    shared = fs.load_model(done.folder).params
    assert any(not torch.equal(fs.load_model(done.folder, client=0).params[n], v) for n, v in shared.items())


def test_what_is_shared_is_not_written_twice_and_who_never_trained_is_in_the_file(tmp_path: Path) -> None:
    fs.run(federation(), fs.methods.fedper(), model="mlp", rounds=1, cohort=1, out=tmp_path / "a", keep_own=True)
    held, shared = load_file(tmp_path / "a" / OWN), fs.load_model(tmp_path / "a").params
    assert {name.partition("/")[2] for name in held} < set(shared) and {n.partition("/")[0] for n in held} == {*"0123"}
    assert all(fs.load_model(tmp_path / "a", client=k) for k in range(4))


def test_the_rest_of_a_run_gives_the_same_files(tmp_path: Path) -> None:
    options = {**SMALL, "rounds": 4, "checkpoint_every": 1, "keep_own": True, "clients_every": 2}
    whole, parts, method = tmp_path / "whole", tmp_path / "parts", fs.methods.ditto()
    fs.run(federation(), method, **options, out=whole)

    assert fs.run(federation(), method, **options, out=parts, on_round=stop_after(3)).stopped
    assert not (parts / OWN).exists()
    fs.run(federation(), method, **options, out=parts, resume=True)
    for name in (OWN, FILE):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert {r["round"] for r in fs.read_clients(parts)} == {2, 4} and troubles(parts)[1] == []


def test_a_finished_run_gives_its_own_models_later(tmp_path: Path) -> None:
    for keep, resume in ((False, False), (True, True)):
        fs.run(federation(), fs.methods.ditto(), **SMALL, out=tmp_path / "a", keep_own=keep, resume=resume)
    fs.run(federation(), fs.methods.ditto(), **SMALL, out=tmp_path / "b", keep_own=True)
    assert (tmp_path / "a" / OWN).read_bytes() == (tmp_path / "b" / OWN).read_bytes()


def test_files_are_copied_and_vouched_for(kept: tuple[fs.data.Federation, Any], tmp_path: Path) -> None:
    assert {OWN, FILE} <= set(plain_files(kept[1].folder))
    done = fs.run(federation(), fs.methods.ditto(), **SMALL, out=tmp_path / "a", keep_own=True)
    for name in (OWN, FILE):
        file = tmp_path / "a" / name
        before = file.read_bytes()
        file.write_bytes(before[:-2] + b"7\n")
        assert any(name in line for line in troubles(tmp_path / "a")[1])
        with pytest.raises(fs.RecordError, match="was altered"):
            fs.read_clients(done.folder) if name == FILE else fs.load_model(done.folder, client=0)
        file.write_bytes(before)


def test_names_of_clients_name_no_files(tmp_path: Path) -> None:
    fed = replace(federation(), client_names=(*NAMED, "Zürich\n"))
    out = tmp_path / "in" / "run"
    fs.run(fed, fs.methods.ditto(), **SMALL, out=out, keep_own=True)
    assert [row["name"] for row in fs.read_clients(out)] == list(fed.client_names)
    for k, name in enumerate(fed.client_names):
        named, numbered = fs.load_model(out, client=name), fs.load_model(out, client=k)
        assert all(torch.equal(named.params[n], v) for n, v in numbered.params.items())
    assert [path.name for path in tmp_path.iterdir()] == ["in"] and [p.name for p in out.parent.iterdir()] == ["run"]


def test_the_command_writes_every_evaluation_of_each_client_as_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = tmp_path / "a", tmp_path / "c.csv"
    done = fs.run(federation(local_test=0.3), fs.methods.ditto(), **SMALL, out=run, clients_every=1)
    assert fedskew("evaluate", run, "--by", "client", "--csv", file) == 0
    rows, kept = list(csv.DictReader(file.read_text().splitlines())), fs.read_clients(run)
    assert list(rows[0])[:3] == ["client", "round", "rows"] and len(rows) == len(kept) == 4 * len(done.rounds)
    for row, was in zip(rows, kept, strict=True):
        for name in ("client", "round", "rows", "accuracy", "balanced_accuracy", "macro_f1", "loss", "auroc", "ece"):
            assert row[name] == ("" if was[name] is None else str(was[name])), name
        for c in range(10):
            assert row[f"rows {c}"] == str(was["support"][c])
            assert row[f"recall {c}"] == ("" if was["per_class_recall"][c] is None else str(was["per_class_recall"][c]))
    assert "--csv must be a new file" in mistake(capsys, "evaluate", run, "--by", "client", "--csv", file)
    assert "--csv must be used with --by client" in mistake(capsys, "evaluate", run, "--csv", tmp_path / "d.csv")


def test_own_models_that_a_file_lacks_are_not_taken_from_the_global_one(
    tmp_path: Path, kept: tuple[fs.data.Federation, Any]
) -> None:
    """A forged or hand-made file, to which the manifest was made to fit."""
    run = Path(shutil.copytree(kept[1].folder, tmp_path / "run"))
    whole = load_file(run / OWN)
    for changed, client, said in (
        ({n: v for n, v in whole.items() if n[0] in "03"}, 1, r"it lacks those of '1', '2'$"),
        ({n: v for n, v in whole.items() if n[0] in "03"}, 3, ""),
        ({n.replace("fc.", "fc2."): v for n, v in whole.items()}, 0, r"tensors of the run's network; got 'fc2.\w+' of"),
        ({"x": torch.zeros(1)}, "2", r"it lacks those of '0', '1', '2', '3'$"),
    ):
        save_file(changed, run / OWN)
        Manifest.read(run).vouch([OWN])
        with pytest.raises(fs.RecordError, match=said) if said else contextlib.nullcontext():
            fs.load_model(run, client=client)


def test_own_models_that_no_file_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew._run.MOST_OWN", 1000)
    with pytest.raises(fs.FieldError, match=r"keep_own must go with models of at most"):
        fs.run(federation(), fs.methods.ditto(), **SMALL, keep_own=True)


def test_a_line_of_another_kind_is_one_error(kept: tuple[fs.data.Federation, Any], tmp_path: Path) -> None:
    row = kept[1].client_rows[0]
    changes = ({"accuracy": 5.0}, {"rows": 0}, {"support": [1]}, {"name": 3})
    lacking = {name: value for name, value in row.items() if name != "accuracy"}
    for line in ("[]", "7", "{", '{"a": ' * 5000, *map(json.dumps, ({}, lacking, *({**row, **c} for c in changes)))):
        (tmp_path / FILE).write_text(f"{line}\n")
        with pytest.raises(fs.RecordError, match="is damaged"):
            fs.read_clients(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({**row, "macro_f1": -0.5}))
    assert fs.read_clients(tmp_path)[0]["macro_f1"] == -0.5, "a metric need be no share"


def test_rows_of_rounds_that_are_run_again_are_there_once(tmp_path: Path) -> None:
    """A process that was killed after round 3, with a checkpoint of round 2."""
    options, method = {**SMALL, "rounds": 4, "checkpoint_every": 2, "clients_every": 1}, fs.methods.ditto()
    whole = fs.run(federation(), method, **options, out=tmp_path / "whole")
    with dying_after(3, checkpoint=2) as die:
        fs.run(federation(), method, **options, out=tmp_path / "dead", on_round=die)
    assert {row["round"] for row in fs.read_clients(tmp_path / "dead")} == {1, 2, 3}
    again = fs.run(federation(), method, **options, out=tmp_path / "dead", resume=True)
    assert again.client_rows == whole.client_rows
    assert (tmp_path / "dead" / FILE).read_bytes() == (tmp_path / "whole" / FILE).read_bytes()
