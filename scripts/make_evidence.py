"""The evidence that `fedskew advise` brings along, from the studies in results/studies. No number is written by hand.

python scripts/make_evidence.py            writes fedskew/advice/evidence.json and the tables of docs/guide/advise.md;
                                           reads the data of the runs to split them
python scripts/make_evidence.py --check    exits with 1 where the file is not what the results make
python scripts/make_evidence.py --held-out prints the tables of docs/guide/advise.md: what the advice would be worth
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fedskew.advice import evidence
from fedskew.advice.margins import BASELINES
from fedskew.advice.worth import Case, cases, worth

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/fedskew/advice/evidence.json"
PAGE = ROOT / "docs/guide/advise.md"
TABLES = re.compile(r"(<!-- held out -->\n).*?(<!-- end -->)", re.S)
STUDIES = ("fashion", "fashion-methods", "federations")  # methods at one pace; what is tuned is another question


def made(results: Path = ROOT / "results/studies", **options: object) -> str:
    """The file's content. Raises RecordError where a run of the studies cannot be used: evidence is never dropped."""
    lines, left = [], []
    for name in STUDIES:
        some, why = evidence.lines(results / f"{name}.jsonl")
        lines += some
        left += why
    settings, more = evidence.gather(lines, **options)
    if left + more:
        raise SystemExit("\n".join(left + more))
    compared = [s for s in settings if "preset" not in s.facts.get("training", {})]  # each authors' pace is another
    alone = [s.name for s in compared if not any(run.method in BASELINES for run in s.runs)]
    if alone:
        raise SystemExit("no run of FedAvg to compare with: " + "; ".join(alone))
    texts = [json.dumps(s) for s in evidence.to_json(sorted(compared))]
    return "[\n" + ",\n".join(texts) + "\n]\n"


def held_out_table() -> str:
    """Each dataset left out in turn: what the advice on its federations was worth, given by the others."""
    found = cases(evidence.packaged())
    alike = [s._replace(runs=tuple(r for r in s.runs if r.method != "seolkim")) for s in evidence.packaged()]
    groups = [(name, [c for c in found if c.dataset == name]) for name in dict.fromkeys(c.dataset for c in found)]
    everything = [*groups, ("all", found), ("all, without Seol-Kim, whose pace is another", cases(alike))]
    return f"{_figures(everything)}\n\n{_listed(found)}"


def _figures(groups: Sequence[tuple[str, list[Case]]]) -> str:
    lines = [
        "| dataset left out | federations | with advice | regret of the first method | of the stronger baseline | "
        "of always one method | best method among the first three | 90 % intervals that hold the margin |",
        "|---|---:|---:|---:|---:|---|---:|---:|",
    ]
    for name, held in groups:
        w = worth(held)
        share = "" if w.coverage is None else f"{100 * w.coverage:.0f} % of {w.intervals}"
        lines.append(
            f"| {name} | {w.federations} | {w.advised} | {100 * w.regret:.1f} | {100 * w.regret_baseline:.1f} | "
            f"{100 * w.regret_best:.1f} ({w.always}) | {100 * w.hits:.0f} % | {share} |"
        )
    return "\n".join(lines)


def _listed(found: Sequence[Case]) -> str:
    points: Callable[[float], str] = lambda v: f"{100 * v:+.1f}"
    lines = [
        "| federation | near | advised first | its margin | best there | its margin |",
        "|---|---:|---|---:|---|---:|",
    ]
    for c in found:
        ends = f"{c.first} | {points(c.margins[c.first])} | {c.best} | {points(c.margins[c.best])} |"
        lines.append(f"| {c.federation} | {c.near} | {ends}")
    return "\n".join(lines)


if __name__ == "__main__":
    if "--held-out" in sys.argv[1:]:
        sys.exit(print(held_out_table()))
    content = made()
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text(encoding="utf-8") != content)
    TARGET.write_text(content, encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(TABLES.sub(lambda found: f"{found[1]}{held_out_table()}\n{found[2]}", page), encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(content):,} characters, {content.count('source')} settings")
