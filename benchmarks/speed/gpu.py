"""fedskew on a GPU beside bare torch and pfl-research on the same GPU.

python benchmarks/speed/gpu.py  # every workload; results/speed/gpu.jsonl and a table
python benchmarks/speed/gpu.py --workloads mnist-lr,resnet20 --repeats 5
python benchmarks/speed/gpu.py --table results/speed/gpu.jsonl

The floors compute without TF32, pfl-research with it in convolutions, fedskew as --precision says.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import bench
from bench import Peer
from tables import table

from common.session import ROOT, setting
from common.work import WORKLOADS, Work

# of the device, where they are set: with eight, streams wait for each other
QUEUES = [f"{queues} queues" for queues in [os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")] if queues]
PEERS = (
    Peer("fedskew batched", "peer_fedskew.py", ("--engine", "batched")),
    Peer("fedskew batched free", "peer_fedskew.py", ("--engine", "batched", "--free")),
    Peer("fedskew chained", "peer_fedskew.py", ("--engine", "chained")),
    Peer("fedskew chained free", "peer_fedskew.py", ("--engine", "chained", "--free")),
    Peer("pfl", "peer_pfl.py"),
    bench.PEERS["loop"],
    bench.PEERS["hand"],
)


def takes(peer: Peer, work: Work) -> bool:
    """Whether a peer is there and can do the work."""
    return bench.takes(peer, work) and (peer.name != "pfl" or find_spec("pfl") is not None)


def show(rows: list[dict[str, Any]]) -> None:
    """Print a table for each workload of each session; "x fedskew" is over its first engine there."""
    for key in dict.fromkeys((row["session"], row["workload"]) for row in rows):
        print(table([row for row in rows if (row["session"], row["workload"]) == key]), end="\n\n", flush=True)


def arguments() -> Namespace:
    """The command line."""
    parser = bench.parser_of(__doc__, PEERS, 600, ROOT / "results" / "speed" / "gpu.jsonl")
    parser.add_argument("--precision", default="float32", help="of fedskew: float32, tf32, bfloat16")
    parser.add_argument("--device", default="cuda", help="cuda; cpu rehearses the script")
    return parser.parse_args()


def placed(peer: Peer, args: Namespace) -> Peer:
    """A peer on the device, fedskew's in the precision that is asked for."""
    how = ("--precision", args.precision) if peer.name.startswith("fedskew") else ()
    name = " ".join((peer.name, *how[1:], *QUEUES))
    return replace(peer, name=name, options=(*peer.options, "--device", args.device, *how))


def measure(args: Namespace) -> list[dict[str, Any]]:
    """All runs in turns, each appended as it ends."""
    card = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    facts = {**setting(), "gpu": card}
    facts["machine"] += f", {card}"
    rows = []
    for work in args.workloads or WORKLOADS.values():
        turns = [(0, placed(peer, args)) for peer in args.peers if takes(peer, work)]
        rows += bench.in_turns(work, args, facts, args.out, lambda _, turns=turns: turns)  # type: ignore[misc]
    return rows


def main() -> int:
    """Measure, or print a table; refuse with one line where there is no GPU."""
    args = arguments()
    if args.table:
        show([json.loads(line) for file in args.table for line in file.read_text().splitlines()])
        return 0
    if args.device == "cuda" and not torch.cuda.is_available():
        print(f"gpu.py: a CUDA device is needed; torch {torch.__version__} sees none", file=sys.stderr)
        return 2
    rows = measure(args)
    show(rows)
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
