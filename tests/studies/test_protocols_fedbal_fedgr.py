"""The tables and figures of FedBal and FedGR as studies: every printed number has its cell, and every cell runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedskew.errors import ConfigError
from fedskew.studies.papers.printed import printed
from fedskew.studies.papers.protocol import Protocol, names, protocol
from fedskew.studies.study import Study
from fedskew.studies.work import Job, work

OURS = [name for name in names() if name.startswith(("fedbal-", "fedgr-"))]
ENTRIES = re.compile(r"(final|mean50)_(accuracy|macro_f1) \* 100|(rounds_to|speedup) FedAvg")


def answers(found: Protocol) -> set[tuple[str, str, str, str, str]]:
    """(table, dataset, setting, method, metric) of what a protocol gives."""
    settings, methods = [name for name, _ in found.spec.axes()], [m.name for m in found.spec.methods]
    return {
        (table, found.dataset, setting, method, metric)
        for table in found.tables for setting in settings for method in methods for metric in found.metrics
    }  # fmt: skip


@pytest.mark.parametrize("paper", ["FedBal", "FedGR"])
def test_every_printed_number_is_answered_by_one_cell(paper: str) -> None:
    found = [answers(protocol(name)) for name in OURS if protocol(name).paper == paper]
    results = [p for p in printed() if p.paper == paper and p.kind != "input"]
    assert results and {p.kind for p in results} == {"result"}
    for one in results:
        cell = (one.table, one.dataset, one.setting, one.method, one.metric)
        assert sum(cell in each for each in found) == 1, one


@pytest.mark.parametrize("name", OURS)
def test_a_protocol_says_what_it_gives_and_what_its_small_scale_reduces(name: str) -> None:
    found = protocol(name)
    assert all(ENTRIES.fullmatch(entry) for entry in found.metrics.values())
    assert bool(found.metrics) == bool(found.numbers()) == ("figure" not in name)
    assert {p.model for p in found.numbers()} <= {"ConvNet", "ResNet-18", "TFCNN"}
    small = found.scales["small"]
    assert "instead of" in small.reduced and "core-minutes" in small.reduced
    options = dict(small.options)
    for number in ("rounds", "epochs"):
        if number in options:
            assert f"{options[number]} {number} instead of {dict(found.spec.options)[number]}" in small.reduced
    if len(found.at("small").seeds) < len(found.spec.seeds):
        assert f"one seed of {len(found.spec.seeds)}" in small.reduced


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", OURS)
def test_no_cell_of_a_protocol_is_refused(name: str, scale: str) -> None:
    assert [cell.refused for cell in protocol(name).at(scale).cells() if cell.refused] == []


@pytest.mark.parametrize("name", OURS)
def test_a_smoke_run_of_every_method_finishes(name: str, tmp_path: Path) -> None:
    study = Study(protocol(name).at("smoke"), tmp_path)
    for one in study.missing():
        assert work(Job(one.address, one.job, str(study.store.folder))).state == "finished", one.cell.label
    assert [row["state"] for row in study.table()] == ["finished"] * len(protocol(name).spec.methods)
    scores = {row["label"]: row["final_accuracy"] for row in study.table()}
    assert set(scores) == {m.name for m in protocol(name).spec.methods}
