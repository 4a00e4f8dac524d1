"""Simulate a deployment over Flower: a seed decides what happens to messages, processes, disks and clocks.

python scripts/simulate.py --seed 7 --shortest       one seed; of one that fails, the shortest schedule that still does
python scripts/simulate.py --seed 7 --planted NAME   the same with a fault that is planted
python scripts/simulate.py --seeds 0-99              many; exits with 1 where one fails
python scripts/simulate.py --record                  results/simulation/: many seeds, and each planted fault
python scripts/simulate.py --page                    the numbers of notes/attacks.md, from there

It needs no Flower. notes/attacks.md says what must hold after each seed.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import pytest  # noqa: E402

from support.planted import PLANTED  # noqa: E402
from support.simulation import Report, shortest, simulate  # noqa: E402

PLACE, PAGE = ROOT / "results" / "simulation", ROOT / "notes" / "attacks.md"
COLUMNS = ("fault", "seed", "seconds", "messages", "struck", "shortest", "wrong")
SUMS = ("seeds", "seconds", "rounds", "messages", "struck", "lives", "failed")
LONG_S = 600.0  # of the processor, in which a planted fault is found


@contextmanager
def faulty(name: str) -> Iterator[None]:
    """fedskew with a planted fault; "" for none."""
    with pytest.MonkeyPatch.context() as patch:
        if name:
            PLANTED[name][1](patch)
        yield


def one(seed: int, short: bool) -> bool:
    """Run a seed and print what became of it; whether all holds."""
    report = simulate(seed)
    show(report)
    for strike in report.struck if report.wrong and not short else []:
        print(f"  {strike.kind} at {strike.place} {strike.number}")
    if report.wrong and short:
        for strike in (least := shortest(seed, report.struck)):
            print(f"  {strike.kind} at {strike.place} {strike.number}")
        print(f"  {len(least)} of {len(report.struck)} faults: {simulate(seed, least).wrong}")
    return not report.wrong


def show(report: Report) -> None:
    """A line of a seed."""
    told = f"{report.messages} messages, {report.rounds} rounds, {report.lives} lives of the server"
    print(f"seed {report.seed}: {told}, {len(report.struck)} faults, {report.seconds:.1f} s: {report.wrong or 'holds'}")


def planted(name: str, longest_s: float) -> dict[str, object]:
    """How a planted fault is found: seeds from 0 on, until one fails."""
    seconds, messages, seed = 0.0, 0, 0
    while True:
        with faulty(name):
            report = simulate(seed)
        seconds, messages = seconds + report.seconds, messages + report.messages
        if seconds > longest_s or (report.wrong and not simulate(seed).wrong):  # not by a fault of fedskew's own
            break
        seed += 1
    with faulty(name):
        least = shortest(seed, report.struck, 60.0) if report.wrong else []
    found = (name, seed if report.wrong else "", round(seconds, 1), messages, len(report.struck), len(least))
    return dict(zip(COLUMNS, (*found, report.wrong[:200]), strict=True))


def write(path: Path, rows: list[dict[str, object]]) -> None:
    """A csv."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def summed(reports: list[Report]) -> dict[str, object]:
    """What many seeds did."""
    of = {name: sum(getattr(report, name) for report in reports) for name in ("rounds", "messages", "lives")}
    struck, failed = (sum(len(r.struck) for r in reports), sum(bool(r.wrong) for r in reports))
    seconds = round(sum(report.seconds for report in reports), 1)
    return {
        name: {**of, "seeds": len(reports), "seconds": seconds, "struck": struck, "failed": failed}[name]
        for name in SUMS
    }


def read(name: str) -> list[dict[str, str]]:
    """The rows of a csv."""
    with (PLACE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page() -> str:
    """notes/attacks.md with its numbers as the records have them."""
    (run,), rows = read("seeds.csv"), read("planted.csv")
    names = ("seeds", "rounds", "messages", "struck", "lives", "failed")
    found = [float(row["seconds"]) for row in rows if row["seed"]]
    made = (
        "| seeds | rounds | messages | faults | lives of servers | failed |\n|---:|---:|---:|---:|---:|---:|\n"
        f"| {' | '.join(f'{float(run[name]):,.0f}' for name in names)} |\n\n"
        f"{len(found)} of {len(rows)} planted faults are found, each within {max(found):.0f} seconds."
    )
    text = PAGE.read_text(encoding="utf-8")
    return re.sub(r"(<!-- simulation -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}{made}\n{m[2]}", text, flags=re.DOTALL)


def main() -> int:
    """Run what is asked; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--shortest", action="store_true", help="shorten the schedule of a seed that fails")
    parser.add_argument("--planted", default="", metavar="NAME", help=f"plant a fault: {', '.join(PLANTED)}")
    parser.add_argument("--seeds", metavar="A-B", default="0-99", help="run many (default: 0-99)")
    parser.add_argument("--record", action="store_true", help="write results/simulation/")
    parser.add_argument("--page", action="store_true", help="write the numbers of notes/attacks.md")
    given = parser.parse_args()
    warnings.simplefilter("error")
    if given.page:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if given.seed is not None:
        with faulty(given.planted):
            return 0 if one(given.seed, given.shortest) else 1
    first, last = map(int, given.seeds.split("-"))
    reports = []
    with faulty(given.planted):
        for seed in range(first, last + 1):
            reports.append(simulate(seed))
            if reports[-1].wrong:
                show(reports[-1])
    total = summed(reports)
    print(", ".join(f"{value} {name}" for name, value in total.items()))
    if given.record:
        write(PLACE / "seeds.csv", [total])
        rows = []
        for name in [given.planted] if given.planted else PLANTED:
            rows.append(planted(name, LONG_S))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
            write(PLACE / "planted.csv", rows)
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
