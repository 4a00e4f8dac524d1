"""fedskew beside other frameworks and the bare-torch floors: the same work, run in turns, in one table.

python benchmarks/speed/bench.py --workloads mnist-lr,cifar-tfcnn --peers pfl,flower --repeats 3 --engine auto,batched
python benchmarks/speed/bench.py --table results/speed/bench-mnist-lr.jsonl  # of its last session

Every run of a peer is followed by one of fedskew, and ratios are taken within such a pair: on a shared machine, what
slows one slows the other. The order of the peers is shuffled anew in each repeat under a fixed seed. Every run is a
process of its own and one line of results/speed/bench-WORKLOAD.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from tables import table

from common.processes import run_process
from common.session import BENCHMARKS, ROOT, setting
from common.work import WORKLOADS, Work

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = sorted(path.stem for path in (HERE / "requirements").glob("*.txt"))
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONPATH")  # peers set their own


def python_of(environment: str) -> Path | None:
    """The interpreter of a finished environment; None where it is missing, or older than its requirements."""
    folder = BENCHMARKS / ".envs" / environment
    stamp, wanted = folder / "installed.txt", HERE / f"requirements/{environment}.txt"
    return folder / "bin/python" if stamp.exists() and stamp.read_text() == wanted.read_text() else None


@dataclass(frozen=True)
class Peer:
    """One way to do the work: a script of this folder, its options, and the environment that it runs in."""

    name: str
    script: str
    options: tuple[str, ...] = ()
    environment: str = ""  # "": the interpreter of this script
    floor: bool = False

    @property
    def python(self) -> Path | None:
        """Its interpreter; None where it is not installed."""
        return python_of(self.environment) if self.environment else Path(sys.executable)


Turn = tuple[int, Peer]
PEERS = {
    p.name: p
    for p in (
        Peer("loop", "floor.py", ("--how", "loop"), floor=True),
        Peer("pool", "floor.py", ("--how", "pool", "--layout", "nhwc"), floor=True),
        Peer("hand", "floor.py", ("--how", "hand"), floor=True),
        *(Peer(name, f"peer_{name}.py", environment=name) for name in ENVIRONMENTS),
    )
}


def fedskew(engine: str) -> Peer:
    """The library itself, on one engine."""
    return Peer(f"fedskew {engine}", "peer_fedskew.py", ("--engine", engine))


def takes(peer: Peer, work: Work) -> bool:
    """Whether a peer can do the work: no convolution is written out by hand.

    Where clients are ragged, frameworks draw cohorts of their own; `report` scales seconds to the workload's steps.
    """
    return work.dense or peer.name != "hand"


def run(peer: Peer, work: Work, args: argparse.Namespace) -> dict[str, Any]:
    """One process: its RESULT, or why there is none."""
    assert peer.python is not None
    words = [str(peer.python), str(HERE / peer.script), work.name, *peer.options]
    words += ["--rounds", str(args.rounds)] if args.rounds else []
    words += ["--threads", str(args.threads)] if args.threads and (peer.environment or peer.name == "loop") else []
    surroundings = {k: v for k, v in os.environ.items() if k not in THREAD_VARIABLES}
    here = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    surroundings["PYTHONPATH"] = os.pathsep.join([str(BENCHMARKS), *([] if peer.environment else here)])
    load = os.getloadavg()[0]
    done = run_process(words, surroundings, args.timeout)
    facts = {"peer": peer.name, "workload": work.name, "floor": peer.floor, "load_before": round(load, 2)}
    lines = [line for line in done.output.splitlines() if line.startswith("RESULT ")]
    if done.failure or not lines:
        return {**facts, "failed": done.failure or "no RESULT line"}
    return {**json.loads(lines[-1][len("RESULT ") :]), **facts, "peak_mb": round(done.peak_mb)}


def in_turns(
    work: Work, args: argparse.Namespace, facts: dict[str, Any], out: Path, turns: Callable[[int], Iterable[Turn]]
) -> list[dict[str, Any]]:
    """All repeats of one workload, each run appended to a file as it ends.

    Args:
        work: The workload.
        args: Options of `run`, and the number of repeats.
        facts: What goes into each row.
        out: File of rows.
        turns: Gives the peers of a repeat, each with its place: ratios are taken within a place.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for repeat in range(args.repeats):
        for place, peer in turns(repeat):
            row = {**run(peer, work, args), "repeat": repeat, "place": place, **facts}
            rows.append(row)
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            told = row.get("failed") or f"{row['round_s']:.4f} s a round"
            print(f"{work.name} {repeat + 1}/{args.repeats} {peer.name}: {told}", file=sys.stderr, flush=True)
    return rows


def compare(work: Work, args: argparse.Namespace, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Each peer followed by fedskew, in an order that every repeat shuffles."""
    peers = [p for p in args.peers if p.python and takes(p, work)]

    def turns(repeat: int) -> Iterator[Turn]:
        order = random.Random(f"0 {work.name} {repeat}").sample(peers, len(peers))
        for place, peer in enumerate(order):
            yield from ((place, one) for one in (peer, *map(fedskew, args.engine)))

    return in_turns(work, args, facts, args.out / f"bench-{work.name}.jsonl", turns)


def names(known: dict[str, Any], what: str) -> Any:
    """A parser of comma-separated names, and "all"."""

    def parse(text: str) -> list[Any]:
        chosen = list(known) if text == "all" else text.split(",")
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown {what} {name!r}; known: {', '.join(known)}, all")
        return [known[name] for name in chosen]

    return parse


def warn_if_busy() -> None:
    """Others' work on the same cores slows what uses two threads by far more than what uses one."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        print(f"bench.py: the machine is busy, load {load:.1f} on {cores} cores; read no numbers", file=sys.stderr)


def parser_of(doc: str | None, peers: Iterable[Peer], timeout: float, out: Path) -> argparse.ArgumentParser:
    """The options of a comparison."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=names(WORKLOADS, "workload"), help="names, or all; default: the device's")
    parser.add_argument("--peers", type=names({p.name: p for p in peers}, "peer"), default="all", help="names, or all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="instead of each workload's own number")
    parser.add_argument("--threads", type=int, help="of the peers and of loop, instead of the workload's")
    parser.add_argument("--timeout", type=float, default=timeout, help="seconds a run")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--table", type=Path, nargs="+", metavar="FILE", help="print what these files hold")
    return parser


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = parser_of(__doc__, PEERS.values(), 1800, ROOT / "results" / "speed")
    parser.add_argument("--engine", type=lambda t: t.split(","), default="auto", help="of fedskew, first compared")
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"--repeats must be at least 1; got {args.repeats}")
    args.workloads = args.workloads or [w for w in WORKLOADS.values() if w.cpu]
    return args


def main() -> int:
    """Print, or run and print."""
    args = arguments()
    if args.table:
        for path in args.table:
            print(table([json.loads(line) for line in path.read_text().splitlines()]), end="\n\n")
        return 0
    warn_if_busy()
    facts, failed = setting(), 0
    for work in args.workloads:
        rows = compare(work, args, facts)
        failed += sum("failed" in row for row in rows)
        print(table(rows), end="\n\n", flush=True)
    print(*(f"{peer.name}: not installed; run make bench-peers" for peer in args.peers if not peer.python), sep="\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
