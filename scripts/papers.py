"""Write results/ledger.csv and docs/project/papers.md from the runs in results/papers."""

from __future__ import annotations

from pathlib import Path

from fedskew.studies.papers.found import HERE, Runs
from fedskew.studies.papers.ledger import ledger, text_of
from fedskew.studies.papers.page import page_of

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    rows = ledger(Runs.of(ROOT / HERE))
    (ROOT / "results/ledger.csv").write_text(text_of(rows), encoding="utf-8")
    (ROOT / "docs/project/papers.md").write_text(page_of(rows), encoding="utf-8")
    print("results/ledger.csv, docs/project/papers.md")
