"""The evidence that `fedskew advise` brings along, from the runs in results/accuracy. No number is written by hand.

python scripts/make_evidence.py            writes fedskew/advice/evidence.json; reads the data of the runs to split them
python scripts/make_evidence.py --check    exits with 1 where the file is not what the results make
python scripts/make_evidence.py --held-out prints the table of docs/guide/advise.md: what the advice would be worth
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fedskew.advice import evidence
from fedskew.advice.adviser import held_out
from fedskew.advice.margins import BASELINES

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/fedskew/advice/evidence.json"


def made(results: Path = ROOT / "results/accuracy", **options: object) -> str:
    """The file's content. Raises RecordError where a run of the tables cannot be used: evidence is never dropped."""
    settings, left = evidence.read(results, **options)
    if left:
        raise SystemExit("\n".join(left))
    compared = [s for s in settings if "preset" not in s.facts.get("training", {})]  # each authors' pace is another
    alone = [s.name for s in compared if not any(run.method in BASELINES for run in s.runs)]
    if alone:
        raise SystemExit("no run of FedAvg to compare with: " + "; ".join(alone))
    lines = [json.dumps(s) for s in evidence.to_json(sorted(compared))]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def held_out_table() -> str:
    """Each packaged federation, advised on by the others."""
    lines = [
        "| federation left out | put first, and run there | their mean | median of all | best possible |",
        "|---|---|---|---|---|",
    ]
    for row in held_out(evidence.packaged()):
        points = [f"{100 * v:+.1f}" for v in row[2:]]
        lines.append(f"| {row.federation} | {', '.join(row.advised)} | {' | '.join(points)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if "--held-out" in sys.argv[1:]:
        sys.exit(print(held_out_table()))
    content = made()
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text(encoding="utf-8") != content)
    TARGET.write_text(content, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(content):,} characters, {content.count('source')} settings")
