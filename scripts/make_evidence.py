"""The evidence that `fedskew advise` brings along, from the studies in results/studies. No number is written by hand.

python scripts/make_evidence.py            writes fedskew/advice/evidence.json; reads the data of the runs to split them
python scripts/make_evidence.py --check    exits with 1 where the file is not what the results make
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from fedskew.advice import evidence
from fedskew.config.recorded import Run
from fedskew.studies.store import read_archives

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/fedskew/advice/evidence.json"
STUDIES = ("fashion", "federations", "five-systems", "natural")  # at one pace, three seeds or more


def made(describe: evidence.Describe | None = None) -> str:
    """The file's content: the federations with FedAvg trained as long as the other methods. Says what is left out."""
    known: dict[str, dict[str, float]] = {}

    def once(run: Run) -> dict[str, float]:
        split = {name: v for name, v in run.settings.items() if not name.startswith(("method.", "model."))}
        key = json.dumps([split, run.seeds])
        return known.setdefault(key, (describe or evidence._describe)(run)) if key not in known else known[key]

    listed: list[dict[str, Any]] = []
    for study in STUDIES:
        file = ROOT / f"results/studies/{study}.jsonl"
        entries = [e for e in read_archives(file) if e.state == "finished"]
        runs = [(study, run) for run in entries]
        found, left = evidence.measured(runs, once)
        listed += [federation._asdict() for federation in sorted(found)]
        for told in left:
            print(f"left out, {told}", file=sys.stderr)
    return "[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in listed) + "\n]\n"


if __name__ == "__main__":
    content = made()
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text(encoding="utf-8") != content)
    TARGET.write_text(content, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(content):,} characters, {content.count('source')} federations")
