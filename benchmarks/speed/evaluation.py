"""What a process pays once on a device, and an evaluation of 10 000 rows as it is and recorded; a line of JSON each.

python benchmarks/speed/evaluation.py --precision tf32
python benchmarks/speed/evaluation.py --device cpu --rows 200 --workloads mnist-lr  # a rehearsal: nothing is recorded
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

import torch
from torch import nn

from common import work as bench
from fedskew.data.inputs import RowStore
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.programs import captured, cuda_graph
from fedskew.engines.runtime import Runtime
from fedskew.models import CharLSTM, build
from fedskew.models.precision import NARROW, arithmetic
from fedskew.models.prepare import prepare

WORKLOADS = "mnist-lr,mnist-2nn,ragged-lenet,fedgr-fashion,cifar-tfcnn,resnet20,fedbal-convnet"
SEQUENCES = "char-lstm"  # 80 tokens: hundreds of small kernels
TIMES = 20


def started(device: str) -> dict[str, float]:
    """Seconds from the process's start to the imports' end, and of the first uses of the device."""
    took = {"imports_s": time.time() - bench.STARTED}
    began = time.perf_counter()
    x = torch.ones(64, 3, 32, 32, device=device)
    for name, use in (
        ("context_s", lambda: x),
        ("product_s", lambda: x.flatten(1) @ x.flatten(1).T),
        ("convolution_s", lambda: nn.functional.conv2d(x, x[:8, :, :3, :3])),
    ):
        float(use().sum())
        took[name], began = time.perf_counter() - began, time.perf_counter()
    return took


def network_and_rows(name: str, rows: int) -> tuple[nn.Module, torch.Tensor, int]:
    """The network, rows for it, and the number of classes."""
    if name == SEQUENCES:
        return build(CharLSTM(), (80,), 80, 0), torch.randint(80, (rows, 80)).float(), 80
    work = bench.WORKLOADS[name]
    return bench.make_model(work), torch.randn(rows, *work.shape), work.classes


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of an evaluation, with the wait for its loss; what a recording costs and what it keeps."""
    network, x, classes = network_and_rows(name, args.rows)
    model = prepare(network, None, tuple(x.shape[1:]), classes, narrow=NARROW[args.precision]).to(device=args.device)
    runtime = Runtime.of(model, args.device, 1, ("cpu",))
    store = RowStore(x.to(args.device), torch.randint(classes, (args.rows,), device=args.device), (), (), x.dtype)
    test = Evaluator(runtime, store, classes, keep=True)
    weights, y = (model.params, model.buffers), store.y

    def step(_rows: Any, fixed: Any, _carry: Any, _now: Any) -> Any:
        matrix, loss = test.confusion(*fixed, None)
        return (loss, matrix), loss

    given = (), weights, (y.new_zeros((), dtype=torch.float64), y.new_zeros(classes, classes)), ()
    plain = seconds(lambda: step(*given)[1])
    held, began = reserved(), time.perf_counter()
    made = captured(step, *given, cuda_graph if args.device == "cuda" else lambda step: step)
    told = {"evaluation": name, "plain_ms": 1000 * plain, "recording_s": time.perf_counter() - began}
    if made is None:
        return {**told, "recorded_ms": None}
    kept, along = reserved() - held, made.over((), weights)
    return {**told, "recorded_ms": 1000 * seconds(lambda: along(given[2], [()], [])[0]), "kept_mb": kept / 2**20}


def seconds(call: Callable[[], torch.Tensor]) -> float:
    """What a call takes until its number is known; the least of TIMES."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        float(call())
        took.append(time.perf_counter() - began)
    return min(took)


def reserved() -> int:
    """Bytes that torch holds on the GPU, without what nobody uses."""
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() if torch.cuda.is_available() else 0


def main() -> int:
    """Print a line for the start and one for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", default=f"{WORKLOADS},{SEQUENCES}", help="names")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--precision", default="float32", help="float32, tf32, bfloat16")
    parser.add_argument("--device", default="cuda", help="cuda; cpu rehearses the script")
    args = parser.parse_args()
    print(json.dumps({name: round(value, 3) for name, value in started(args.device).items()}), flush=True)
    for name in args.workloads.split(","):
        with torch.no_grad(), arithmetic(args.precision):
            row = measure(name, args)
        print(json.dumps({n: round(v, 3) if isinstance(v, float) else v for n, v in row.items()}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
