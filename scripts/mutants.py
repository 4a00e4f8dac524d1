#!/usr/bin/env python
"""Would the tests notice a fault? Plants small faults in the library, one at a time, and runs the tests against each.

    make mutants                                              200 faults drawn by seed 0
    make mutants MUTANTS_ARGS="--seed 7 --draws 20 --only functional"

Every fault of `mutants_operators.py` is enumerated, in all rooms but those of Flower and Ray; a draw takes from each
file in proportion to its faults. A fault is caught when a test fails, crashes or takes ten times as long as without it
(`mutants_suite.py`). Results are appended to results/mutants-<seed>.jsonl as they come, and a second call goes on from
there: what survived is tried again when the tests have changed. A fault that nobody can observe belongs in
mutants_equivalent.txt, with a reason, and then counts neither way. Exits with 1 when less than 95 % are caught.
"""

from __future__ import annotations

import argparse
import json
import os
import py_compile
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mutants_operators import Mutant, mutants_of, unlike
from mutants_suite import ROOT, Slot, Suite, Watch, drain, prepare, profile, run_pytest, warm

ELSEWHERE = ("flower/", "engines/ray/")  # rooms whose tests need an environment of their own
EQUIVALENT = ROOT / "scripts" / "mutants_equivalent.txt"
MEMORY = 6 << 30  # bytes that a fault may allocate
ENOUGH = 0.95


def draw(mutants: list[Mutant], draws: int, seed: int) -> list[Mutant]:
    """One mutant from each of ``draws`` stretches of equal length, so each file has its share."""
    step = max(len(mutants) / max(draws, 1), 1.0)
    random = np.random.Generator(np.random.PCG64(seed)).random(min(draws, len(mutants)))
    return [mutants[int((i + part) * step)] for i, part in enumerate(random)]


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """The list of faults that nobody can observe: (file, operator, line, line with the fault) -> reason."""
    listed: dict[tuple[str, str, str, str], str] = {}
    for stanza in EQUIVALENT.read_text().split("\n\n"):
        if lines := [text for text in stanza.strip().splitlines() if not text.startswith("#")]:
            head, before, after, reason = lines
            file, operator = head.split()
            listed[file, operator, before.removeprefix("- "), after.removeprefix("+ ")] = reason.removeprefix("= ")
    return listed


def try_one(slot: Slot, mutant: Mutant, source: str, suite: Suite, note: Callable[[dict[str, Any]], None]) -> None:
    """Starts the tests against one fault; ``note`` is given the result."""
    tests = suite.killers(mutant)
    order = {test: i for i, test in enumerate(tests)}
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    report = slot.scratch / "note"

    def work() -> int:
        sys.dont_write_bytecode = True
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        watch = Watch(order, suite.seconds, report)
        watch.limit("import", 60.0)
        code = run_pytest(files, watch, slot, stop=True)
        report.write_text(json.dumps({"by": watch.failed, "ran": watch.ran}))
        return code

    def done(status: int) -> None:
        py_compile.compile(str(slot.write(mutant.file, source)))
        seen = json.loads(report.read_text())
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if ended:
            seen["by"] += " (time limit)" if ended == signal.SIGALRM else f" (signal {ended})"
        wrong = not seen["by"].startswith(("tests/", "import of"))  # neither a test nor the reading of one failed
        result = "survived" if not status else "error" if wrong and not ended else "caught"
        note({"result": result, **seen, "seconds": round(time.monotonic() - slot.started, 2)})

    slot.write(mutant.file, mutant.applied(source))
    report.write_text(json.dumps({"by": "start", "ran": 0}))
    slot.fork(work, done)


def summary(rows: list[dict[str, Any]]) -> float:
    """Prints the survivors and the rate."""
    count = {r: sum(row["result"] == r for row in rows) for r in ("caught", "survived", "equivalent", "error")}
    rate: float = count["caught"] / max(count["caught"] + count["survived"], 1)
    for row in sorted((r for r in rows if r["result"] == "survived"), key=lambda r: (r["file"], r["line"])):
        print(f"survived {row['ran']} tests: {row['file']}:{row['line']} {row['operator']}")
        print(f"-{row['before']}\n+{row['after']}")
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    print(f"{count['caught']} caught, {count['survived']} survived, {count['equivalent']} equivalent, ", end="")
    print(f"{count['error']} errors: {100 * rate:.1f} % caught, {np.mean(seconds or [0.0]):.1f} s a mutant")
    return rate


def main() -> int:
    """Draw, try, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--draws", type=int, default=200, help="mutants to try; 0 means all")
    parser.add_argument("--only", default="", help="only files whose path matches this, as in 'methods|shared'")
    parser.add_argument("--list", action="store_true", help="print the drawn mutants and stop")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        slots = prepare(Path(scratch), 2)
        package = slots[0].tree / "fedskew"
        paths = {p.relative_to(package).as_posix(): p for p in sorted(package.rglob("*.py"))}
        sources = {f"src/fedskew/{n}": p.read_text() for n, p in paths.items() if not n.startswith(ELSEWHERE)}
        kinds = unlike(p.read_text() for p in package.rglob("*.py"))
        every = [m for file, source in sources.items() for m in mutants_of(file, source, kinds)]
        chosen = [m for m in every if re.search(args.only, m.file)]
        chosen = draw(chosen, args.draws or len(chosen), args.seed)
        if args.list:
            print("\n".join(f"{m.file}:{m.line} {m.operator}\n-{m.before}\n+{m.after}" for m in chosen))
            return 0
        return check(slots, chosen, sources, ROOT / f"results/mutants-{args.seed}.jsonl", len(every))


def check(slots: list[Slot], chosen: list[Mutant], sources: dict[str, str], out: Path, total: int) -> int:
    """Tries what has no result yet, and reports on all that were chosen."""
    lines = out.read_text().splitlines() if out.exists() else []
    known = {row["id"]: row for row in map(json.loads, (text for text in lines if text.endswith("}")))}
    listed = equivalents()
    suite = profile(slots, sources)
    warm(suite, slots[0].scratch.parent)
    keys = {m.key(sources[m.file]): m for m in chosen}
    print(f"{len(keys)} of {total} mutants, {len(suite.seconds)} tests", flush=True)

    def record(key: str, mutant: Mutant, facts: dict[str, Any]) -> None:
        place = {"file": mutant.file, "line": mutant.line, "operator": mutant.operator}
        known[key] = {"id": key, **place, "before": mutant.before, "after": mutant.after, **facts}
        with out.open("a") as file:
            file.write(json.dumps({**known[key], "suite": suite.version}) + "\n")
        print(f"{facts['result']:10} {mutant.file}:{mutant.line} {mutant.operator}", flush=True)

    def jobs() -> Iterator[Callable[[Slot], None]]:
        for key, m in keys.items():
            reason = listed.get((m.file, m.operator, m.before, m.after))
            old = known.get(key, {})
            if reason:
                if old.get("result") != "equivalent":
                    record(key, m, {"result": "equivalent", "reason": reason})
            elif old.get("result") != "caught" and (old.get("result"), old.get("suite")) != ("survived", suite.version):
                yield lambda slot, key=key, m=m: try_one(  # type: ignore[misc]
                    slot, m, sources[m.file], suite, lambda facts: record(key, m, facts)
                )

    drain(slots, jobs())
    rows = [known[key] for key in keys]
    rate = summary(rows)
    return 0 if rate >= ENOUGH and not any(row["result"] == "error" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
