"""The study of natural clients: its file, and the tables that scripts/natural.py makes of its runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedskew.records import digests
from fedskew.studies.shipped import shipped
from fedskew.studies.spec import read_spec
from support.paths import ROOT
from support.scripts import script


@pytest.fixture(scope="module")
def natural() -> Any:
    return script("scripts/natural.py")


def lines(natural: Any) -> Iterator[str]:
    """Runs of four methods with three seeds; Dirichlet 0.1 reverses the order of natural clients."""
    kinds = {
        "natural": {"name": "natural", "column": "client"},
        "made": {"name": "dir_prior", "alpha": 3.0},
        "usual": {"name": "dirichlet", "alpha": 0.1},
    }
    for one in natural.DATASETS[:2]:
        for kind, partition in kinds.items():
            for place, (name, weighting) in enumerate(
                (("fedavg", "size"), ("fedavg", "uniform"), ("scaffold", "uniform"), ("feddyn(parts=x)", "uniform"))
            ):
                for seed in range(3):
                    value = 0.5 + (0.1 * place - 0.01 * seed) * (-1 if kind == "usual" else 1)
                    method = {"name": name, "weighting": {"name": weighting}}
                    config = {"method": method, "data": {"name": one.name}, "partition": partition, "seed": seed}
                    summary = {"rounds": 1, "stopped": "", **dict.fromkeys(natural.METRICS, value)}
                    address = digests.of_parts(f"{one.name}{kind}{place}{seed}")[:16]
                    entry = {"address": address, "config": config, "rows": [], "summary": summary, "env": {}}
                    yield json.dumps(entry)


def test_the_tables_are_those_of_the_runs(natural: Any, tmp_path: Path) -> None:
    archive = tmp_path / "natural.jsonl"
    archive.write_text("\n".join(lines(natural)) + "\n")
    table = natural.orders(archive)
    assert "| Dirichlet 0.1 | mean10_accuracy | -1.00 | -1.00 | 1.00 | 2 |" in table
    assert "| each client Dirichlet, as skewed and as large | mean10_macro_f1 | 1.00 | 1.00 |" in table
    assert table.count("\n") == 2 + 4
    text = "a\n<!-- orders -->\nold\n<!-- end -->\nb\n<!-- skew -->\nkept\n<!-- end -->\n"
    made = natural.page(text, archive, data=False)
    assert "old" not in made and "kept" in made and natural.page(made, archive, data=False) == made
    assert natural.page(text, tmp_path / "nothing", data=False) == text


@pytest.mark.thorough
def test_the_page_says_what_the_committed_runs_say(natural: Any) -> None:
    shown = natural.PAGE.read_text(encoding="utf-8")
    assert natural.page(shown, natural.ARCHIVE, data=False) == shown, "run scripts/natural.py"


def test_the_study_has_natural_and_three_made_partitions_of_each_dataset(natural: Any) -> None:
    spec = read_spec(shipped("natural") or "")
    names = [name for name, _ in spec.axes]
    assert len(names) == 4 * len(natural.DATASETS) and len(spec.methods) == 12 and len(spec.seeds) == 3
    assert sum(name.endswith(", natural") for name in names) == 4
    page = (ROOT / "notes/natural.md").read_text(encoding="utf-8")
    for name, options in spec.axes:
        assert f"| {name} " in page
        alpha = dict(options).get("partition.alpha")
        assert alpha is None or "skewed" not in name or f"{name} (alpha {float(alpha):g})" in page
