"""Every client of a run and of a comparison: tables, intervals and sentences."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew import report
from fedskew.cli.output import show
from fedskew.cli.tables import shown_clients
from fedskew.records.decisions import wilson
from fedskew.report.clients import clients
from fedskew.report.compared import compare
from fedskew.report.tables import to_csv, to_latex
from fedskew.studies.clients import by_client
from support.command import fedskew, mistake, output_of
from support.scheduling import without_workers

ROW = {"round": 1, "rows": 20, "per_class_recall": [0.5, 1.0], "support": [2, 18], "auroc": None, "dealt": True}
RUN = ["--data=digits", "--model=logistic", "--rounds=2", "--cohort=4", "--clients=4", "--engine=sequential"]


def row(client: int, name: str, accuracy: float, **more: Any) -> dict[str, Any]:
    return {**ROW, "client": client, "name": name, "accuracy": accuracy, **more}


def test_the_worst_client_comes_first_with_both_intervals() -> None:
    runs = [
        ("fedavg", "all", [row(0, "a", 0.9), row(1, "b", 0.2, round=1), row(1, "b", 0.5, round=2)]),
        ("fedavg", "all", [row(0, "a", 0.7), row(1, "b", 0.6)]),
        ("ditto", "all", [row(0, "a", 1.0), row(1, "b", 0.6)]),
    ]
    found = by_client(runs)
    assert [(one.client, one.method) for one in found] == [
        ("b", "fedavg"),
        ("b", "ditto"),
        ("a", "fedavg"),
        ("a", "ditto"),
    ]
    worst = found[0]
    assert (worst.accuracy, worst.runs, worst.dealt) == (pytest.approx(0.55), 2, True)
    assert (worst.low, worst.high) == wilson(worst.accuracy * 20, 20) and worst.sd == pytest.approx(0.05 * 2**0.5)
    assert found[1].sd is None


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ran") / "a"
    assert fedskew("run", "ditto", *RUN, "--keep-own", "true", "--local-test", "0.3", "--out", out) == 0
    return out


Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *words: object) -> str:
    return output_of(capsys, *words)


def test_own_models_that_were_kept_give_the_rows_of_the_run(ran: Path, capsys: Capture) -> None:
    measured = json.loads(said(capsys, "evaluate", ran, "--by", "client", "--json"))
    name = measured[0]["client"]
    alone = json.loads(said(capsys, "evaluate", ran, "--client", name, "--json"))
    assert (alone["accuracy"], alone["rows"]) == (measured[0]["accuracy"], measured[0]["rows"])
    assert "own models: 0, 1, 2, 3" in said(capsys, "show", ran)
    table = " ".join(said(capsys, "evaluate", ran, "--by", "client").split())
    assert re.search(rf"ECE {name} ditto \d+ ", table) and "dealt" not in table


@pytest.mark.parametrize(
    ("method", "words", "told"),
    [
        ("fedavg", ("--client", "0"), "keeps no clients' own models; a run with keep_own"),
        ("fedavg", ("--by", "client"), "has no rows of its clients"),
        ("ditto", ("--client", "../x"), "unknown client '../x'"),
    ],
)
def test_what_a_run_lacks_is_one_line(
    method: str, words: tuple[str, ...], told: str, ran: Path, tmp_path: Path, capsys: Capture
) -> None:
    if method == "fedavg":
        assert fedskew("run", "fedavg", *RUN, "--eval.served", "none", "--out", tmp_path / "b") == 0
    assert told in mistake(capsys, "evaluate", tmp_path / "b" if method == "fedavg" else ran, *words)


def test_compare_shows_clients_where_they_are_asked_for(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_workers(monkeypatch)
    words = ("compare", "fedavg", "localonly", *RUN, "--seeds", "0-1", "--store", tmp_path, "--processes", "1")
    assert "sampling" not in said(capsys, *words)
    told = " ".join(said(capsys, *words, "--by", "client").split())
    assert len(re.findall(r"\d localonly \d", told)) == 4 and "sampling, 95 %" in told and "dealt to clients" in told
    assert "What each client would use at its last evaluation" in told


def test_a_wide_table_of_clients_loses_no_number_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    row = {"round": 1, "name": "switzerland", "rows": 40, "accuracy": 0.75, "balanced_accuracy": 0.5, "ece": 0.125}
    row |= {"client": 0, "auroc": 0.625, "per_class_recall": [0.5, 0.9], "support": [10, 30]}
    measured = by_client([("localonly", "all", [row]), ("localonly", "all", [row])])
    for table in shown_clients(measured, ("ill", "well")):
        show(table)
    lines = capsys.readouterr().out.splitlines()
    assert any(
        " ".join(line.split()).startswith("switzerland localonly 40 0.750 0.598 to 0.858 0.000 0.500") for line in lines
    )
    assert max(map(len, lines)) <= 80


@pytest.mark.skipif("FEDSKEW_DATA" not in os.environ, reason="Heart Disease is not at hand")
def test_hospitals_are_shown_unasked_with_their_own_patients(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_workers(monkeypatch)
    words = ("compare", "fedavg", "fedper", "--data", "heart_disease", "--partition", "natural", "--rounds", "2")
    told = said(capsys, *words, "--seeds", "0-1", "--store", tmp_path, "--processes", "1")
    fed = fs.federate("heart_disease", "natural")
    _, owners = fed.rows_on("test")
    for k, name in enumerate(fed.client_names):
        assert re.search(rf"{name} +fedper +{(owners == k).sum()} ", told)
    assert not fed.dealt and "dealt" not in told


def test_names_of_clients_are_text_in_tables(tmp_path: Path) -> None:
    fed = replace(fs.federate("digits", "iid", clients=3), client_names=("=1+1", "<script>", "\\input{x}\n"))
    for seed in (0, 1):
        fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=3, seed=seed, out=tmp_path / str(seed))
    found = compare(report.from_folders([tmp_path]))
    section = clients(found, found.settings, ())
    (accuracies,), (table,) = section.parts, section.folded
    assert len(accuracies.rows) == len(table.rows) == 3  # type: ignore[union-attr]
    assert "'=1+1" in to_csv(table) and r"\input" not in to_latex(table, "t")
    page = report.build(report.from_folders([tmp_path]))
    assert "<script>," not in page and "&lt;script&gt;" in page and "<h2" in page


def test_a_run_without_rows_of_clients_has_no_section(tmp_path: Path) -> None:
    fed = fs.federate("digits", "iid", clients=3)
    fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=3, out=tmp_path / "a", served="none")
    found = compare(report.from_folders([tmp_path]))
    assert clients(found, found.settings, ()).parts == ()
