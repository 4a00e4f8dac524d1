"""One client after another by plain autograd: the reference; and the same clients on threads, with traced steps."""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew import tree
from fedskew.client import Job
from fedskew.engines.base import LocalEngine
from fedskew.engines.outcomes import Outcome, Settle, as_it_is
from fedskew.engines.planning import Place
from fedskew.engines.programs import StepFunction
from fedskew.engines.stepper import Way, way_of_clients
from fedskew.errors import FedskewError, TrainingError
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.types import Batch, Carry, Context, Report, Tree

Rows = tuple[Tensor, Tensor]  # x and y of all rows of a client
LEAD = 4  # clients a thread that are handed out before the others
Now = tuple[Tensor, Tensor, Tensor, Tensor]  # positions [D, B] in the client's rows, keys [D], epoch (), step ()


class Sequential(LocalEngine):
    """A loop over clients. Rows are normalised once a client and round; padding never enters the model."""

    name = "sequential"
    unpadded = True
    channels_last = True

    def run_places(self, method: Method, places: list[Place], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """One outcome a client, in order."""
        for at, place in enumerate(places):
            yield settle((at,), self.run_client(method, place))

    def run_client(self, method: Method, place: Place) -> Outcome:
        """One local run: begin, step ..., finish."""
        ctx, carry, rows, job = self._begin(method, place)
        carry, losses = self.steppers.of(method).run(rows, job, carry, self._schedule(place))
        return self._finish(method, place, job, ctx, carry, losses)

    def _begin(self, method: Method, place: Place) -> tuple[Context, Carry, Rows, Job]:
        job = self.runtime.to_device(place.job)
        ctx = rounds.context(self.task, job)
        whole = self.clients.batch(place.plan.rows)
        return ctx, rounds.begin(method, ctx), (whole.x, whole.y), job

    def step_function(self, method: Method, way: Way) -> StepFunction:
        """A step of one client."""

        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> tuple[Carry, Tensor]:
            x, y = rows
            at, keys, epoch, number = now
            batches = tuple(self._batch(x, y, one, key) for one, key in zip(at, keys, strict=True))
            progress, ctx = rounds.progress_at(job, epoch, number), rounds.context(self.task, job)
            forward = self.runtime.net.forward
            return rounds.step(method, ctx, forward, rounds.autograd, carry, batches, keys, progress)

        return step

    def _finish(
        self, method: Method, place: Place, job: Job, ctx: Context, carry: Carry, losses: list[Tensor]
    ) -> Outcome:
        stacked = torch.stack(losses) if losses else torch.zeros(1, dtype=self.dtype, device=self.device)
        uploads, memories, report = rounds.finish(method, ctx, carry, job, stacked.mean())
        report = Report(*(value.unsqueeze(0) for value in report))
        watch = self.watcher.watch([place], stacked.unsqueeze(0), carry.params, carry.buffers, uploads, memories)
        return Outcome(_one(carry.params), _one(carry.buffers), _one(uploads), _one(memories), report, (watch,))

    def _schedule(self, place: Place) -> list[Now]:
        """Each step's rows, a key for each of its mini-batches, and where in the local run it stands."""
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


def longest(places: Sequence[Place], count: int) -> list[int]:
    """Places of the clients with the most steps, the longest first.

    A long client that begins last keeps one thread busy while the others wait. Outcomes are taken in the order of the
    cohort, so those of clients that began early wait in memory: a few of them are enough.
    """
    steps = [len(place.plan.batches) for place in places]
    return sorted(range(len(places)), key=lambda i: -steps[i])[:count]


def _sizes(place: Place) -> list[tuple[int, int]]:
    """(mini-batches D, rows B) of each step. Padding stands at the end of a mini-batch."""
    batches = place.plan.batches
    return [(batches.shape[1], size) for size in (batches[:, 0] >= 0).sum(1).tolist()]


def _one(outcome: Tree) -> Tree:
    """Leaves [...] as leaves [1, ...]."""
    return tree.map_tree(lambda leaf: leaf.detach().unsqueeze(0), outcome)


class Threaded(Sequential):
    """A client a thread, a thread a core, steps traced: the bits of `Sequential` for any number of threads."""

    name = "threaded"
    parallel = True

    @classmethod
    def way(cls, device: str, model: Model, method: Method, augmented: bool) -> Way:
        """Traces, where they can be made."""
        return way_of_clients(device, model)

    def ready(self, method: Method, places: list[Place]) -> None:
        """Trace the steps of shapes that will come often enough."""
        stepper = self.steppers.of(method)
        if stepper.way is not Way.TRACED:
            return
        where: dict[tuple[int, int], tuple[Place, int]] = {}
        counts: Counter[tuple[int, int]] = Counter()
        for place in places:
            for t, size in enumerate(_sizes(place)):
                counts[size] += 1
                where.setdefault(size, (place, t))
        left = places[0].left if places else 0
        for size, count in counts.items():
            if stepper.due(size, count, left):
                place, t = where[size]
                _, carry, rows, job = self._begin(method, place)
                stepper.make(rows, job, carry, self._schedule(place)[t])

    def run_places(self, method: Method, places: list[Place], settle: Settle = as_it_is) -> Iterator[Outcome]:
        """One outcome a client, in order."""

        def one(at: int) -> Outcome:
            return settle((at,), self.run_client(method, places[at]))

        yield from self.runtime.map(one, range(len(places)), longest(places, LEAD * self.workers.count))


class Debug(Sequential):
    """`Sequential`, whose exceptions say client, round, step, stage and shapes."""

    name = "debug"
    watchful = True

    def run_client(self, method: Method, place: Place) -> Outcome:
        """As `Sequential.run_client`, stage by stage. All that `fedskew.engines.guard` knows is looked at.

        Raises:
            TrainingError: a component raised something else than an error of fedskew, or gave what its hook may not.
        """
        stage, t, guard = "start", 0, self.guard
        at = place.plan.client, len(place.plan.batches)
        try:
            guard.at(at[0], 1, at[1])
            ctx, carry, rows, job = self._begin(method, place)
            stage, losses, step = "step", [], self.steppers.of(method).function
            for t, now in enumerate(self._schedule(place)):
                guard.at(at[0], t + 1, at[1])
                carry, loss = step(rows, job, carry, now)
                losses.append(loss)
            stage = "finish"
            return self._finish(method, place, job, ctx, carry, losses)
        except FedskewError:
            raise
        except Exception as error:
            shared = place.job.shared
            shapes = {name: tuple(p.shape) for name, p in shared.params.items()}
            where = f"client {place.plan.client}, round {int(shared.round)}, step {t + 1}"
            raise TrainingError(
                f"{type(error).__name__} in stage {stage!r}, {where}: {error}; {guard.noted or 'outside of any hook'}; "
                f"mini-batches {place.plan.batches.shape}, parameters {shapes}"
            ) from error
        finally:
            guard.at()
