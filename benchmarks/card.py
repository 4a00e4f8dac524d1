"""What a GPU that is at hand for minutes is used for: speeds, tests, and the next parts of the papers' tables.

python benchmarks/card.py --out results/card                 # all parts, in ten minutes
python benchmarks/card.py --out results/card --parts others,papers
python benchmarks/card.py --out then --before results/card   # goes on where an earlier call ended, on any machine
python benchmarks/card.py --out /tmp/card --device cpu       # a rehearsal with a small workload

Parts: `fedgr` and `connections` (is a chain faster than a stack on a real federation, and what of a stack costs?),
`tests`, `batched` and `chained` (profiles of the two engines), `papers`, `others` (speeds of other workloads).

Each part has its own time limit, and is done once a commit; what it wrote until then stays. In --out: card.json says
how parts ended, output.txt what they printed, gpu.jsonl the speeds (`python benchmarks/speed/gpu.py --table FILE`),
portions.json what is missing, portions.jsonl the finished runs, an archive for results/papers, and store.tgz all runs,
those that go on among them. pfl-research is measured where it can be imported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))  # benchmarks/, where common is

from common.processes import run_process
from common.session import ROOT, setting

ENGINES = ("batched", "batched free", "chained", "chained free")
STEP_0 = ",".join([*(f"fedskew {name}" for name in ENGINES), "pfl", "loop"])
BOTH = "fedskew batched,fedskew chained,fedskew chained free"
FEDERATION, REHEARSED = "fedgr-fashion", "ragged-mlp"
OTHERS = "dirichlet-lenet,ragged-lenet,cifar-tfcnn,fedbal-convnet,resnet20"
FILES = ("engines/test_chained.py", "engines/test_captured.py", "models/test_prepare.py")
# those of chains first, which no GPU has seen
TESTS = ("-m", "gpu and not thorough", *(f"tests/{name}" for name in FILES))
GAIN = 1.5  # times the speed of a stack from which the papers' runs are chains
# the command, also where the plug-in is not installed
PORTIONS = (
    "import sys; from fedskew_papers.cli import portions; sys.exit(portions(sys.argv[1:], standalone_mode=False))"
)
MANY = (("CUDA_DEVICE_MAX_CONNECTIONS", "32"),)
LEAST_S = 25  # what a part needs to be worth its start
ENDING_S = 15  # of the papers' part, in which its runs save their rounds
PACKING_S = 15  # kept for the archive and the store
TAIL = 40  # lines of a part's output that are printed


class Part(NamedTuple):
    """A command with a limit."""

    name: str
    limit_s: float
    words: tuple[str, ...]  # after the interpreter
    env: tuple[tuple[str, str], ...] = ()


def parts(args: argparse.Namespace) -> dict[str, Part]:
    """The parts by name, in order."""
    card = args.device == "cuda"
    where, precise = ("--device", args.device), ("--precision", "tf32") if card else ()
    federation, rounds = (FEDERATION, "4") if card else (REHEARSED, "2")
    speed = ("benchmarks/speed/gpu.py", *where, *precise, "--repeats", "1", "--rounds", rounds, "--timeout", "60")
    speed += ("--out", str(args.out / "gpu.jsonl"), "--workloads")
    profile = ("benchmarks/speed/peer_fedskew.py", federation, *where, *precise, "--rounds", "2", "--profile")
    found = (
        Part("fedgr", 200, (*speed, federation, "--peers", STEP_0)),
        Part("connections", 40, (*speed, federation, "--peers", "fedskew chained"), MANY),
        Part("tests", 180, ("-m", "pytest", "-vv", "-n", "0", "-p", "no:cacheprovider", "--maxfail", "8", *TESTS)),
        *(Part(name, 70, (*profile, "--engine", name)) for name in ("batched", "chained")),
        Part(
            "papers", 600,
            ("-c", PORTIONS, *where, *precise, "--processes", "4", "--store", str(args.store), "--out", str(args.out)),
            MANY,
        ),
        Part("others", 240, (*speed, OTHERS if card else REHEARSED, "--peers", BOTH)),
    )  # fmt: skip
    return {part.name: part for part in found}


def pace_of_papers(out: Path, seconds: float) -> tuple[str, ...]:
    """Words for the papers' runs: the minutes, and the engine that was faster on FedGR's federation."""
    speeds = out / "gpu.jsonl"
    rows = map(json.loads, speeds.read_text().splitlines() if speeds.exists() else ())
    took = {row["peer"]: row["round_s"] for row in rows if row["workload"] == FEDERATION and "round_s" in row}
    faster = took.get("fedskew batched tf32", 0.0) >= GAIN * took.get("fedskew chained tf32 32 queues", float("inf"))
    return "--minutes", f"{(seconds - ENDING_S) / 60:.2f}", *(("--engine", "chained") if faster else ())


def run_part(part: Part, out: Path, seconds: float) -> dict[str, object]:
    """Run a part for at most so many seconds; how it ended."""
    words = [*part.words, *(pace_of_papers(out, seconds) if part.name == "papers" else ())]
    began = time.monotonic()
    done = run_process([sys.executable, *words], {**surroundings(), **dict(part.env)}, seconds)
    seconds = round(time.monotonic() - began, 1)
    with (out / "output.txt").open("a") as file:
        file.write(f"== {part.name}\n{done.output}\n")
    print(part.name, seconds, "s", done.failure, *done.output.splitlines()[-TAIL:], sep="\n", flush=True)
    return {"part": part.name, "failure": done.failure, "seconds": seconds, "words": words}


def surroundings() -> dict[str, str]:
    """The environment in which fedskew and the papers are found, installed or not."""
    paths = [str(ROOT / "src"), str(ROOT / "papers" / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def pack(out: Path, store: Path) -> None:
    """The finished runs as an archive, and the whole store to go on from."""
    if not store.is_dir():
        return
    words = [sys.executable, "-m", "fedskew", "study", "archive", str(store), "--out", str(out / "portions.jsonl")]
    print(run_process(words, surroundings(), 60).output.strip(), flush=True)
    shutil.make_archive(str(out / "store"), "gztar", store)
    (out / "store.tar.gz").rename(out / "store.tgz")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--before", type=Path, help="the --out of an earlier call")
    parser.add_argument("--store", type=Path, default=ROOT / "runs" / "portions", help="folder of the papers' runs")
    parser.add_argument("--minutes", type=float, default=9.5, help="in all")
    parser.add_argument("--parts", help="some of the parts, in the order in which they run")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    args.out, args.store = args.out.resolve(), args.store.resolve()
    known = parts(args)
    args.parts = args.parts.split(",") if args.parts else list(known)
    if strange := [name for name in args.parts if name not in known]:
        parser.error(f"--parts must be of {', '.join(known)}; got {', '.join(strange)}")
    return args


def main() -> int:
    """Run what is not done yet, in order, while there is time."""
    end = time.monotonic() + 60 * (args := arguments()).minutes - PACKING_S
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("card.json", "gpu.jsonl", "store.tgz"):
        if args.before and (args.before / name).exists() and not (args.out / name).exists():
            shutil.copy(args.before / name, args.out / name)
    record, commit = args.out / "card.json", setting()["commit"]
    ended = json.loads(record.read_text()) if record.exists() else []
    if (args.out / "store.tgz").exists() and not args.store.exists():
        shutil.unpack_archive(args.out / "store.tgz", args.store, "gztar", filter="data")
    os.chdir(ROOT)
    for part in map(parts(args).__getitem__, args.parts):
        done = any(row["part"] == part.name and row["commit"] == commit and not row["failure"] for row in ended)
        seconds = min(part.limit_s, end - time.monotonic())
        if (done and part.name != "papers") or seconds < LEAST_S:
            continue
        ended.append({**run_part(part, args.out, seconds), "commit": commit})
        record.write_text(json.dumps(ended, indent=1))
    pack(args.out, args.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
