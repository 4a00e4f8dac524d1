"""Simulate a deployment over Flower: a seed decides what happens to messages, processes, disks and clocks.

python scripts/simulate.py --seed 7 --shortest       one seed; of one that fails, the shortest schedule that still does
python scripts/simulate.py --seed 7 --planted NAME   the same with a fault that is planted
python scripts/simulate.py --seeds 0-99              many; exits with 1 where one fails

It needs no Flower. notes/attacks.md says what must hold after each seed.
"""

from __future__ import annotations

import argparse
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


@contextmanager
def faulty(name: str) -> Iterator[None]:
    """fedskew with a planted fault; "" for none."""
    with pytest.MonkeyPatch.context() as patch:
        if name:
            PLANTED[name](patch)
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


def main() -> int:
    """Run what is asked; 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--shortest", action="store_true", help="shorten the schedule of a seed that fails")
    parser.add_argument("--planted", default="", metavar="NAME", help=f"plant a fault: {', '.join(PLANTED)}")
    parser.add_argument("--seeds", metavar="A-B", default="0-99", help="run many (default: 0-99)")
    given = parser.parse_args()
    warnings.simplefilter("error")
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
    failed, struck = sum(bool(r.wrong) for r in reports), sum(len(r.struck) for r in reports)
    sums = {name: sum(getattr(r, name) for r in reports) for name in ("seconds", "rounds", "messages", "lives")}
    told = ", ".join(f"{total:,.0f} {name}" for name, total in sums.items())
    print(f"{len(reports)} seeds, {told}, {struck:,} faults, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
