"""Bare torch, resident tensors and nothing else: what a framework can hope to reach.

python floor.py WORKLOAD --how loop|pool|hand [--layout nchw|nhwc] [--device cuda]

loop: one client after the other, plain autograd, --threads intra-op threads.
pool: one client a thread, one thread a core, one intra-op thread each (torch releases the interpreter's lock).
hand: dense networks only, stacked, with their gradients written out: what torch's operators alone cost. Clients of
unequal size are sorted, and a stack narrows as they end.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/, where common is

from common import ragged
from common import work as bench
from common.work import Work

State = list[Tensor]  # parameters, then the running statistics
Data = tuple[Tensor, Tensor]
Seeded = list[tuple[int, int]]  # (client, seed)


def state_of(net: nn.Module) -> State:
    """The tensors that are averaged, not copied."""
    return [*net.parameters(), *(b for b in net.buffers() if b.is_floating_point())]


def batches(work: Work, rows: int, g: torch.Generator) -> Iterator[Tensor]:
    """Row numbers of each mini-batch of a round of a client with so many rows."""
    for _ in range(work.epochs):
        yield from torch.randperm(rows, generator=g).split(work.batch)


@torch.no_grad()
def descend(params: State, grads: tuple[Tensor, ...], work: Work) -> None:
    """w <- w - lr (g + weight_decay w), in place."""
    if work.weight_decay:
        grads = torch._foreach_add(grads, params, alpha=work.weight_decay)
    torch._foreach_add_(params, grads, alpha=-work.lr)


@torch.no_grad()
def load(net: nn.Module, state: State) -> None:
    """Copy a state into a network."""
    torch._foreach_copy_(state_of(net), state)


def train_client(net: nn.Module, start: State, work: Work, data: Data, k: int, seed: int) -> State:
    """One client's local round from ``start``."""
    x, y = (t[bench.rows_of(work, k)] for t in data)
    load(net, start)
    params = list(net.parameters())
    for rows in batches(work, len(y), torch.Generator().manual_seed(seed)):
        rows = rows.to(x.device)
        descend(params, torch.autograd.grad(cross_entropy(net(x[rows]), y[rows]), params), work)
    return [t.detach().clone() for t in state_of(net)]


def weighted(work: Work, states: list[State], cohort: Seeded) -> State:
    """The average of all clients, by their rows."""
    share = torch.tensor([float(work.sizes[k]) for k, _ in cohort], device=states[0][0].device)
    share /= share.sum()
    return [torch.einsum("k,k...->...", share, torch.stack(same)) for same in zip(*states, strict=True)]


Round = Callable[[State, Seeded], State]
Score = Callable[[State], float]


def loop(net: nn.Module, work: Work, data: Data, test: Data) -> tuple[Round, Score]:
    """One client after the other."""

    def train(state: State, cohort: Seeded) -> State:
        return weighted(work, [train_client(net, state, work, data, k, seed) for k, seed in cohort], cohort)

    def score(state: State) -> float:
        load(net, state)
        return bench.accuracy(net, *test)

    return train, score


def pool(net: nn.Module, work: Work, data: Data, test: Data) -> tuple[Round, Score]:
    """Clients and chunks of the test set dealt to one thread a core, each with a network of its own."""
    workers = os.cpu_count() or 1
    torch.set_num_threads(1)
    nets = [copy.deepcopy(net) for _ in range(workers)]
    threads = ThreadPoolExecutor(workers)

    def train(state: State, cohort: Seeded) -> State:
        dealt = sorted(cohort, key=lambda one: -work.sizes[one[0]])  # where all are equal, as they came

        def share(i: int) -> list[State]:
            torch.set_num_threads(1)
            return [train_client(nets[i], state, work, data, k, seed) for k, seed in dealt[i::workers]]

        states = [s for part in threads.map(share, range(workers)) for s in part]
        return weighted(work, states, [one for i in range(workers) for one in dealt[i::workers]])

    def score(state: State) -> float:
        parts = list(zip(*(t.chunk(workers) for t in test), strict=True))

        def share(i: int) -> float:
            load(nets[i], state)
            return bench.accuracy(nets[i], *parts[i]) * len(parts[i][1])

        return sum(threads.map(share, range(len(parts)))) / len(test[1])

    return train, score


def hand(net: nn.Module, work: Work, data: Data, test: Data) -> tuple[Round, Score]:
    """Dense networks, differentiated by hand: stacks of clients, as many as the cache holds, and no tape."""
    x, y = data[0].flatten(1), data[1]
    size = sum(t.numel() * t.element_size() for t in net.parameters())
    stack = max(CACHE_BYTES // size, 1) if x.device.type == "cpu" else work.cohort
    classes = torch.arange(work.classes, device=y.device)
    sizes = work.sizes
    begins = sizes.cumsum() - sizes

    def step(params: State, rows: Tensor, share: Tensor | float) -> None:
        inputs, weights, biases = [x[rows]], params[::2], params[1::2]
        for w, b in zip(weights, biases, strict=True):
            inputs.append(torch.baddbmm(b.unsqueeze(1), inputs[-1], w.transpose(1, 2)))
            if w is not weights[-1]:
                inputs[-1].relu_()
        slope = (inputs.pop().softmax(2) - (y[rows].unsqueeze(2) == classes).float()) * share
        for i in reversed(range(len(weights))):
            behind = torch.bmm(slope, weights[i]).mul_(inputs[i] > 0) if i else slope
            weights[i].baddbmm_(slope.transpose(1, 2), inputs[i], beta=1 - work.lr * work.weight_decay, alpha=-work.lr)
            biases[i].mul_(1 - work.lr * work.weight_decay).sub_(slope.sum(1), alpha=work.lr)
            slope = behind

    def along(params: State, part: Seeded) -> None:
        """Clients from the longest to the shortest: those that have ended lie behind the others."""
        plans = [list(batches(work, int(sizes[k]), torch.Generator().manual_seed(seed))) for k, seed in part]
        first = [int(begins[k]) for k, _ in part]
        for t in range(len(plans[0])):
            at = [plan[t] + begin for plan, begin in zip(plans, first, strict=True) if t < len(plan)]
            rows = nn.utils.rnn.pad_sequence(at, batch_first=True, padding_value=-1)
            real = rows >= 0
            share = 1 / rows.shape[1] if real.all() else (real / real.sum(1, keepdim=True)).unsqueeze(2).to(x.device)
            step([p[: len(at)] for p in params], rows.clamp_(min=0).to(x.device), share)

    def train(state: State, cohort: Seeded) -> State:
        ends = []
        order = sorted(cohort, key=lambda one: -sizes[one[0]])
        total = sum(float(sizes[k]) for k, _ in cohort)
        for at in range(0, len(cohort), stack):
            part = order[at : at + stack]
            params = [t.detach().expand(len(part), *t.shape).clone() for t in state]
            along(params, part)
            weight = torch.tensor([float(sizes[k]) / total for k, _ in part], device=x.device)
            ends.append([torch.einsum("k,k...->...", weight, p) for p in params])
        return [torch.stack(same).sum(0) for same in zip(*ends, strict=True)]

    return torch.no_grad()(train), loop(net, work, data, test)[1]


HOWS = {"loop": loop, "pool": pool, "hand": hand}
CACHE_BYTES = 2**22  # of parameters in a stack on a CPU


def arguments(parser: argparse.ArgumentParser) -> None:
    """What this peer takes beside the common options."""
    parser.add_argument("--how", choices=HOWS, default="loop")
    parser.add_argument("--layout", choices=("nchw", "nhwc"), default="nchw")
    parser.add_argument("--device", default="cpu")


def main() -> None:
    """Train and report."""
    args = bench.options(__doc__, arguments)
    work, net = args.work, bench.make_model(args.work)
    if args.how == "hand" and not work.dense:
        raise SystemExit(f"floor.py: --how hand takes dense networks; got {work.model}")
    layout = torch.channels_last if args.layout == "nhwc" else torch.contiguous_format
    torch.backends.cudnn.allow_tf32 = False  # as fedskew's float32
    net = net.to(args.device, memory_format=layout)
    x, y, x_test, y_test = (t.to(args.device) for t in bench.make_data(work))
    data, test = (x.to(memory_format=layout), y), (x_test.to(memory_format=layout), y_test)
    train, score = HOWS[args.how](net, work, data, test)
    state = [t.detach().clone() for t in state_of(net)]
    clock = bench.Clock()
    clock.start()
    for r in range(work.rounds):
        state = train(state, [(k, 100_003 * r + k) for k in ragged.cohort(work.clients, work.cohort, r)])
        right = score(state)
        clock.tick()
    bench.report(f"floor-{args.how}-{args.layout}", work, clock, right, work.all_steps, device=args.device)


if __name__ == "__main__":
    main()
