"""fedskew on a GPU beside bare torch on the same GPU, with the arithmetic and the memory traffic that the work takes.

python benchmarks/speed/gpu.py  # every workload; results/speed/gpu.jsonl and a table
python benchmarks/speed/gpu.py --workloads mnist-lr,resnet20 --repeats 5
python benchmarks/speed/gpu.py --table results/speed/gpu.jsonl

FLOPs are counted by torch: a mini-batch forward and backward, the test set forward. Bytes are a model of the least
traffic without a cache: see `traffic`. The roofs are measured on the device: a float32 matrix product and a copy. They
and the floors compute without TF32, pfl-research with it in convolutions, fedskew as --precision says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from bench import Peer, names, run

from common import work as bench
from common.session import ROOT, setting
from common.work import WORKLOADS, Work

PEERS = (
    Peer("fedskew batched", "peer_fedskew.py", ("--engine", "batched")),
    Peer("fedskew batched free", "peer_fedskew.py", ("--engine", "batched", "--free")),
    Peer("fedskew batched halving", "peer_fedskew.py", ("--engine", "batched", "--halving")),
    Peer("fedskew chained", "peer_fedskew.py", ("--engine", "chained")),
    Peer("fedskew chained free", "peer_fedskew.py", ("--engine", "chained", "--free")),
    Peer("pfl", "peer_pfl.py"),
    Peer("loop", "floor.py", ("--how", "loop"), floor=True),
    Peer("vmap", "floor.py", ("--how", "vmap"), floor=True),
    Peer("hand", "floor.py", ("--how", "hand"), floor=True),
)


class Demand(NamedTuple):
    """What one round asks for, evaluation included."""

    flops: int
    bytes: int


def demand(work: Work) -> Demand:
    """Floating-point operations and bytes of a round, on any device."""
    net = bench.make_model(work)
    x, y = torch.zeros(work.batch, *work.shape), torch.zeros(work.batch, dtype=torch.int64)
    with FlopCounterMode(display=False) as step:
        cross_entropy(net(x), y).backward()
    net.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as forward:
        net(x)
    tests = work.test / work.batch
    flops = work.steps * step.get_total_flops() + tests * forward.get_total_flops()
    return Demand(round(flops), round(traffic(work, net, x, tests)))


def traffic(work: Work, net: nn.Module, x: Tensor, tests: float) -> float:
    """Bytes of a round if nothing stays in a cache, in float32.

    A step reads the parameters forward and backward, writes the gradient, then reads both and writes the parameters: 6
    a parameter. It writes every layer's output, reads it forward and backward, writes its gradient and reads that: 5 an
    output; a flattening is none. Evaluation writes and reads every output, and reads the parameters once a chunk.
    """
    sizes: list[int] = []
    handles = [
        layer.register_forward_hook(lambda _m, _i, out: sizes.append(out.numel()))
        for layer in net.modules()
        if not (isinstance(layer, nn.Flatten) or any(True for _ in layer.children()))
    ]
    with torch.no_grad():
        net(x)
    for handle in handles:
        handle.remove()
    parameters, outputs = sum(p.numel() for p in net.parameters()), sum(sizes)
    step = 6 * parameters + 5 * outputs + x.numel()
    chunks = -(-work.test // bench.EVALUATION_ROWS)
    return 4 * (work.steps * step + tests * (2 * outputs + x.numel()) + chunks * parameters)


def best_s(act: Callable[[], Any], device: torch.device, times: int = 10) -> float:
    """Least seconds of an operation, after a first try."""
    act()
    found = []
    for _ in range(times):
        _wait(device)
        start = time.perf_counter()
        act()
        _wait(device)
        found.append(time.perf_counter() - start)
    return min(found)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def roofs(device: torch.device) -> dict[str, float]:
    """The device's own rates: float32 operations a second of a large product, bytes a second of a copy."""
    side, floats = (8192, 2**28) if device.type == "cuda" else (512, 2**20)
    a = torch.ones(side, side, device=device)
    source, target = torch.zeros(floats, device=device), torch.empty(floats, device=device)
    return {
        "roof_flops": 2 * side**3 / best_s(lambda: a @ a, device),
        "roof_bytes": 8 * floats / best_s(lambda: target.copy_(source), device),
    }


def takes(peer: Peer, work: Work) -> bool:
    """Whether a peer can do the work: gradients by hand are for dense networks, a stack for stateless, equal ones."""
    if peer.name == "pfl":
        return find_spec("pfl") is not None
    if peer.name.endswith("halving"):
        return work.ragged
    if peer.name == "hand":
        return work.dense
    state = any(isinstance(m, nn.Dropout | nn.BatchNorm2d) for m in bench.make_model(work).modules())
    return peer.name != "vmap" or not (state or work.ragged)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown of the last session: medians over the repeats."""
    rows = [row for row in rows if row["session"] == max(r["session"] for r in rows)]
    lines = [f"**{rows[0]['gpu']}**, {rows[0]['session']}, commit {rows[0]['commit']}", ""]
    lines += [
        "| workload | | runs | ms a round | TFLOP/s | % of roof | GB/s | % of roof | GPU MB | startup s | accuracy |",
        "|---|---|" + "---:|" * 9,
    ]
    good = [row for row in rows if "failed" not in row]
    for key in dict.fromkeys((row["workload"], row["peer"]) for row in good):
        lines.append(_line(*key, [row for row in good if (row["workload"], row["peer"]) == key]))
    lines += [f"| {r['workload']} | {r['peer']} | failed: {r['failed']} |" + " |" * 8 for r in rows if "failed" in r]
    return "\n".join(lines)


def _line(workload: str, peer: str, rows: list[dict[str, Any]]) -> str:
    def median(key: str) -> float:
        return statistics.median(row.get(key, float("nan")) for row in rows)

    flops, moved = median("flops") / median("round_s"), median("bytes") / median("round_s")
    peer += "".join(f" {p}" for p in {row.get("precision") for row in rows} - {None, "float32"} if p not in peer)
    return (
        f"| {workload} | {peer} | {len(rows)} | {1e3 * median('round_s'):.1f} | {flops / 1e12:.2f} | "
        f"{flops / median('roof_flops'):.1%} | {moved / 1e9:.0f} | {moved / median('roof_bytes'):.1%} | "
        f"{median('cuda_mb'):.0f} | {median('startup_s'):.1f} | {median('accuracy'):.3f} |"
    )


def arguments() -> Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=names(WORKLOADS, "workload"), default="all", help="names, or all")
    parser.add_argument("--peers", type=names({p.name: p for p in PEERS}, "peer"), default="all", help="names, or all")
    parser.add_argument("--precision", default="float32", help="of fedskew: float32, tf32, bfloat16")
    parser.add_argument("--device", default="cuda", help="cuda; cpu rehearses the script")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="instead of each workload's own number")
    parser.add_argument("--timeout", type=float, default=600, help="seconds a run")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "speed" / "gpu.jsonl")
    parser.add_argument("--table", type=Path, metavar="FILE", help="print the last session of this file")
    return parser.parse_args()


def measure(args: Namespace) -> list[dict[str, Any]]:
    """All runs in turns, each appended as it ends."""
    device = torch.device(args.device)
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else args.device
    queues = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    facts = {**setting(), "gpu": card, "connections": queues, **roofs(device)}
    torch.cuda.empty_cache()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    rows, given = [], Namespace(rounds=args.rounds, timeout=args.timeout)
    for work in args.workloads:
        asked = demand(work)._asdict()
        for repeat in range(args.repeats):
            for peer in (p for p in args.peers if takes(p, work)):
                how = ("--precision", args.precision) if peer.script == "peer_fedskew.py" else ()
                one = replace(peer, options=(*peer.options, "--device", args.device, *how))
                rows.append({**run(one, work, given), "repeat": repeat, **asked, **facts})
                with args.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                told = rows[-1].get("failed") or f"{rows[-1]['round_s']:.4f} s a round"
                print(f"{work.name} {repeat + 1}/{args.repeats} {peer.name}: {told}", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    """Measure, or print a table; refuse with one line where there is no GPU."""
    args = arguments()
    if args.table:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return 0
    if args.device == "cuda" and not torch.cuda.is_available():
        print(f"gpu.py: a CUDA device is needed; torch {torch.__version__} sees none", file=sys.stderr)
        return 2
    rows = measure(args)
    print(table(rows))
    return int(any("failed" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
