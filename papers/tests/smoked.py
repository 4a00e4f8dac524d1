"""A protocol of a paper at the scale of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedskew.studies.study import Study
from fedskew.studies.work import Job, work
from fedskew_papers.tables import protocol


def smoked(name: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Its runs by method, each of which must come to an end."""
    study = Study(protocol(name).at("smoke"), folder)
    for one in study.missing():
        outcome = work(Job(one.address, one.job, str(study.store.folder)))
        assert (outcome.state, outcome.reason) == ("finished", ""), one.cell.label
    table = study.table()
    rows = {row["label"]: row for row in table}
    assert len(rows) == len(table) and {row["state"] for row in table} == {"finished"}
    assert list(rows) == [method.name for method in protocol(name).spec.methods]
    return rows
