"""Attack fedskew at full strength, and print of each kind of attack how many were tried, survived and failed.

    make attack                              everything in tests/attack; hours on two cores
    make attack ATTACK_ARGS="-k signals"     words for pytest, files among them: only some of it
    make attack ATTACK_ARGS="--out FILE"     the table as JSON lines, too

The same tests run in a short form in `make test-all`. docs/reliability.md says what each line promises.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.attack import REPORT, reports  # noqa: E402


def main() -> int:
    """Run the attacks; 0 where none did harm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the table as JSON lines")
    ours, theirs = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "FEDSKEW_ATTACK": "full", REPORT: folder}
        where = [] if any(word.startswith("tests/") for word in theirs) else ["tests/attack"]
        words = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *where, *theirs]
        ended = subprocess.run(words, cwd=ROOT, env=env, check=False).returncode
        found = reports(Path(folder))
    rows = []
    for (topic, what), (alive, lost) in sorted(found.items()):
        tried = alive + len(lost)
        rows.append({"topic": topic, "what": what, "tried": tried, "survived": alive, "failed": lost})
        print(f"{topic}, {what}: {tried:,} tried, {alive:,} survived, {len(lost):,} failed", *lost[:20], sep="\n  ")
    if ours.out:
        ours.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return ended


if __name__ == "__main__":
    sys.exit(main())
