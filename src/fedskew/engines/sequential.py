"""One client after another by plain autograd: the reference; and the same clients on threads, steps traced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job
from fedskew.engines.base import LocalEngine, Outcome, Place, Settle, as_it_is
from fedskew.engines.programs import TRACE_AFTER, Stepper
from fedskew.errors import FedskewError, TrainingError
from fedskew.method import Method
from fedskew.tree import Tree
from fedskew.types import Batch, Carry, Context, Progress, Report

__all__ = ["Debug", "Sequential", "Threaded", "check_losses"]

Rows = tuple[Tensor, Tensor]  # x and y of all that a client owns
Now = tuple[Tensor, Tensor, Tensor, Tensor]  # positions [D, B] in the client's rows, keys [D], epoch (), step ()


def check_losses(losses: Tensor, place: Place) -> None:
    """Raise TrainingError, naming client, round and step, where a loss [T] is not finite."""
    bad = torch.nonzero(~torch.isfinite(losses))
    if len(bad):
        step = int(bad[0])
        raise TrainingError(
            f"the loss became {float(losses[step])} at client {place.plan.client}, round {int(place.job.round)}, "
            f"step {step + 1} of {len(losses)}; a smaller --lr or a --clip may help"
        )


class Sequential(LocalEngine):
    """A loop over clients; rows are normalised once a client and round, padding never enters the model."""

    name = "sequential"
    unpadded = True
    channels_last = True
    trace_after: float = float("inf")  # steps: the reference stays untraced

    def run_places(self, method: Method, places: list[Place], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """One outcome a client."""
        yield from self.train_map(lambda i: settle(i, self.run_client(method, places[i])), range(len(places)))

    def run_client(self, method: Method, place: Place) -> Outcome:
        """begin, step ..., finish."""
        ctx, carry, rows, job = self._begin(method, place)
        carry, losses = self._stepper(method).run(rows, job, carry, self._schedule(place))
        return self._finish(method, place, job, ctx, carry, losses)

    def _begin(self, method: Method, place: Place) -> tuple[Context, Carry, Rows, Job]:
        job = self._to_device(place.job)
        ctx = rounds.context(self.task, job)
        whole = self._whole(place.plan.rows)
        return ctx, rounds.begin(method, ctx), (whole.x, whole.y), job

    def ready(self, method: Method, places: list[Place]) -> None:
        """Trace the steps of shapes that this run has seen often enough."""
        stepper = self._stepper(method)
        if stepper.after == float("inf"):
            return
        where: dict[tuple[int, int], tuple[Place, int]] = {}
        counts: Counter[tuple[int, int]] = Counter()
        for place in places:
            for t, size in enumerate(_sizes(place)):
                counts[size] += 1
                where.setdefault(size, (place, t))
        for size, count in counts.items():
            if stepper.due(size, count):
                place, t = where[size]
                _, carry, rows, job = self._begin(method, place)
                stepper.make(rows, job, carry, self._schedule(place)[t])

    def _stepper(self, method: Method) -> Stepper:
        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> tuple[Carry, Tensor]:
            x, y = rows
            at, keys, epoch, number = now
            batches = tuple(self._batch(x, y, one, key) for one, key in zip(at, keys, strict=True))
            progress = Progress(epoch, job.epochs, number, job.steps, job.round, job.rounds)
            ctx = rounds.context(self.task, job)
            return rounds.step(method, ctx, self.net.forward, rounds.autograd, carry, batches, keys, progress)

        return self.stepper(method, step)

    def _finish(
        self, method: Method, place: Place, job: Job, ctx: Context, carry: Carry, losses: list[Tensor]
    ) -> Outcome:
        stacked = torch.stack(losses) if losses else torch.zeros(1, dtype=self.dtype, device=self.device)
        check_losses(stacked, place)
        uploads, memories, report = rounds.finish(method, ctx, carry, job, stacked.mean())
        report = Report(*(value.unsqueeze(0) for value in report))
        return Outcome(_one(carry.params), _one(carry.buffers), _one(uploads), _one(memories), report)

    def _schedule(self, place: Place) -> list[Now]:
        """Each step's rows, a key for each of its mini-batches, and where in the run it stands."""
        plan = place.plan
        steps, keys = len(plan.batches), place.keys.to(self.device)
        epoch = torch.from_numpy(plan.epoch).to(self.device)
        number = torch.arange(1, steps + 1, device=self.device)
        rows = torch.from_numpy(plan.batches).to(self.device).unbind()
        at = [r[:, :size] for r, (_, size) in zip(rows, _sizes(place), strict=True)]
        return list(zip(at, keys.unbind(), epoch.unbind(), number.unbind(), strict=True))

    def _batch(self, x: Tensor, y: Tensor, at: Tensor, key: Tensor) -> Batch:
        rows = x[at]
        return Batch(self.store.augmented(rows, key), y[at], torch.ones(len(at), dtype=self.dtype, device=self.device))


def _sizes(place: Place) -> list[tuple[int, int]]:
    """(mini-batches D, rows B) of each step; padding stands at the end of a mini-batch."""
    batches = place.plan.batches
    return [(batches.shape[1], size) for size in (batches[:, 0] >= 0).sum(1).tolist()]


def _one(outcome: Tree) -> Tree:
    """Leaves [...] as leaves [1, ...]."""
    return tree.map_tree(lambda leaf: leaf.detach().unsqueeze(0), outcome)


class Threaded(Sequential):
    """Clients on threads, one a core, their steps traced: the bits of `Sequential` for any number of threads."""

    name = "threaded"
    parallel = True
    trace_after = TRACE_AFTER


class Debug(Sequential):
    """Sequential; an exception is raised again with client, round, step, stage and shapes."""

    name = "debug"

    def run_client(self, method: Method, place: Place) -> Outcome:
        """As `Sequential.run_client`, stage by stage."""
        stage, t = "start", 0
        try:
            ctx, carry, rows, job = self._begin(method, place)
            stage, losses, step = "step", [], self._stepper(method).function
            for t, now in enumerate(self._schedule(place)):  # noqa: B007 - t is told in the error
                carry, loss = step(rows, job, carry, now)
                losses.append(loss)
            stage = "finish"
            return self._finish(method, place, job, ctx, carry, losses)
        except FedskewError:
            raise
        except Exception as error:
            shapes = {name: tuple(p.shape) for name, p in place.job.params.items()}
            where = f"client {place.plan.client}, round {int(place.job.round)}, step {t + 1}"
            raise TrainingError(
                f"{type(error).__name__} in stage {stage!r}, {where}: {error}; "
                f"mini-batches {place.plan.batches.shape}, parameters {shapes}"
            ) from error
