"""The study of natural clients: its file, and the partitions that the page lists."""

from __future__ import annotations

from fedskew.studies.shipped import shipped
from fedskew.studies.spec import read_spec
from support.paths import ROOT


def test_the_study_has_natural_and_three_made_partitions_of_each_dataset() -> None:
    spec = read_spec(shipped("natural") or "")
    names = [name for name, _ in spec.axes]
    assert len(names) == 4 * 4 and len(spec.methods) == 12 and len(spec.seeds) == 3
    assert sum(name.endswith(", natural") for name in names) == 4
    page = (ROOT / "notes/natural.md").read_text(encoding="utf-8")
    for name, options in spec.axes:
        assert f"| {name} " in page
        alpha = dict(options).get("partition.alpha")
        assert alpha is None or "skewed" not in name or f"{name} (alpha {float(alpha):g})" in page
