"""The page of a study says what its file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedskew.report.entries import of_study
from support.command import fedskew
from support.reports import parsed, sections, undrawn
from support.scheduling import without_workers

pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install -e '.[report]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")

FILE = """
title = "Five & <one>"
notes = "The learning rates are those of the papers: <b>nothing</b> is tuned. 5 % of all."
methods = ["fedavg", "fedla"]
seeds = [0]
metric = "final_macro_f1"
baseline = "fedla"

[options]
clients = 5
cohort = 2
rounds = 2
model = "logistic"
"""


@undrawn()
def test_title_notes_metric_and_baseline_of_a_study_file_reach_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_workers(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(FILE)
    assert fedskew("compare", "study.toml", "--store", "store", "--out", "out", "--processes", "1") == 0
    _, asked = of_study(tmp_path / "out")
    assert asked["notes"] == ["The learning rates are those of the papers: <b>nothing</b> is tuned. 5 % of all."]
    fedskew("report", "out", "--out", "again.html")
    for page in ("out/report.html", "again.html"):
        root, section = parsed(text := (tmp_path / page).read_text()), sections(text)
        assert "those of the papers: <b>nothing</b> is tuned. 5 % of all." in section["cautions"]
        assert root.findtext(".//h1") == "Five & <one>"
        assert "Gains over fedla in macro F1: 1 seed, at the last evaluation." in section["verdict"]
        assert "fedskew compare" in section["again"]
