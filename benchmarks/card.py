"""What a GPU that is at hand for minutes is used for: speeds, tests, and the next parts of the papers' tables.

python benchmarks/card.py --out results/card                 # all parts, in ten minutes
python benchmarks/card.py --out results/card --parts tests
python benchmarks/card.py --out then --before results/card   # goes on where an earlier call ended, on any machine

Each part has its own time limit, and is done once a commit; what it wrote until then stays. In --out: card.json says
how parts ended, gpu.jsonl has the speeds (`python benchmarks/speed/gpu.py --table`), portions.json what is missing,
portions.jsonl the finished runs, an archive for results/papers, and store.tgz all runs, those that go on among them.
Data are found as everywhere, by FEDSKEW_DATA. pfl-research is measured where it can be imported.
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

ENGINES = ("batched", "batched free", "batched halving", "chained", "chained free")
RAGGED = ",".join([*(f"fedskew {name}" for name in ENGINES), "pfl", "loop"])
BOTH = "fedskew batched,fedskew chained,fedskew chained free"
# the command, also where the plug-in is not installed
PORTIONS = (
    "import sys; from fedskew_papers.cli import portions; sys.exit(portions(sys.argv[1:], standalone_mode=False))"
)
LEAST_S = 20  # what a part needs to be worth its start
PACKING_S = 15  # kept for the archive and the store


class Part(NamedTuple):
    """A command with a limit."""

    name: str
    limit_s: float
    words: tuple[str, ...]  # after the interpreter; OUT, STORE and MINUTES are replaced
    env: tuple[tuple[str, str], ...] = ()


def speeds(workloads: str, peers: str, rounds: int) -> tuple[str, ...]:
    """The words that measure peers once."""
    few = ("--repeats", "1", "--rounds", str(rounds), "--timeout", "60", "--out", "OUT/gpu.jsonl")
    return ("benchmarks/speed/gpu.py", "--workloads", workloads, "--peers", peers, *few)


PARTS = (
    # is a chain faster than today's engine on a real federation, and what of today's costs?
    Part("fedgr", 200, speeds("fedgr-fashion", RAGGED, 4)),
    Part("connections", 40, speeds("fedgr-fashion", "fedskew chained", 4), (("CUDA_DEVICE_MAX_CONNECTIONS", "32"),)),
    Part("tests", 150, ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "gpu", "tests/engines")),
    Part(
        "papers", 600,
        (
            "-c", PORTIONS, "--minutes", "MINUTES", "--device", "cuda", "--precision", "tf32",
            "--processes", "4", "--store", "STORE", "--out", "OUT",
        ),
    ),
    Part("others", 240, speeds("dirichlet-lenet,ragged-lenet,cifar-tfcnn,fedbal-convnet,resnet20", BOTH, 4)),
)  # fmt: skip


def run_part(part: Part, out: Path, store: Path, seconds: float) -> dict[str, object]:
    """Run a part for at most so many seconds; how it ended."""
    given = {"OUT": str(out), "STORE": str(store), "MINUTES": f"{(seconds - LEAST_S / 2) / 60:.2f}"}
    words = [str(word).replace("OUT", given["OUT"]) if "OUT/" in word else given.get(word, word) for word in part.words]
    paths = [str(ROOT / "src"), str(ROOT / "papers" / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, **dict(part.env), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    began = time.monotonic()
    done = run_process([sys.executable, *words], env, seconds)
    tail = done.output.splitlines()[-30:]
    return {"failure": done.failure, "seconds": round(time.monotonic() - began, 1), "tail": tail}


def pack(out: Path, store: Path) -> None:
    """The finished runs as an archive, and the whole store to go on from."""
    if not store.is_dir():
        return
    words = [sys.executable, "-m", "fedskew", "study", "archive", str(store), "--out", str(out / "portions.jsonl")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    print(run_process(words, env, 60).output.strip(), flush=True)
    shutil.make_archive(str(out / "store"), "gztar", store)
    (out / "store.tar.gz").rename(out / "store.tgz")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--before", type=Path, help="the --out of an earlier call")
    parser.add_argument("--store", type=Path, default=ROOT / "runs" / "portions", help="folder of the papers' runs")
    parser.add_argument("--minutes", type=float, default=9.5, help="in all")
    parser.add_argument("--parts", default=",".join(part.name for part in PARTS), help="some of the parts")
    return parser.parse_args()


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
        shutil.unpack_archive(args.out / "store.tgz", args.store, "gztar")
    for part in (p for p in PARTS if p.name in args.parts.split(",")):
        done = any(row["part"] == part.name and row["commit"] == commit and not row["failure"] for row in ended)
        seconds = min(part.limit_s, end - time.monotonic())
        if (done and part.name != "papers") or seconds < LEAST_S:
            continue
        ended.append({"part": part.name, "commit": commit, **run_part(part, args.out, args.store, seconds)})
        record.write_text(json.dumps(ended, indent=1))
        print(part.name, ended[-1]["seconds"], "s", ended[-1]["failure"], *ended[-1]["tail"], sep="\n", flush=True)
    pack(args.out, args.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
