"""One client after another by plain autograd: the reference; and the same clients on threads, with traced steps."""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedskew import client as rounds
from fedskew.client import Job
from fedskew.engines.base import LocalEngine
from fedskew.engines.outcomes import Outcome, Settle, identity
from fedskew.engines.planning import ClientJob
from fedskew.engines.programs import StepFunction
from fedskew.engines.stepper import StepMode
from fedskew.errors import FedskewError, TrainingError
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.types import Batch, Carry, Context

Rows = tuple[Tensor, Tensor]  # x and y of all rows of a client
LEAD = 4  # clients a thread that are handed out before the others
Now = tuple[Tensor, Tensor, Tensor, Tensor]  # positions [D, B] in the client's rows, keys [D], epoch (), step ()


class Sequential(LocalEngine):
    """A loop over clients. Rows are normalised once a client and round; padding never enters the model."""

    name = "sequential"
    unpadded = True
    channels_last = ("cpu",)

    def run_clients(self, method: Method, clients: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a client, in order."""
        for at, client in enumerate(clients):
            yield settle((at,), self.run_client(method, client))

    def run_client(self, method: Method, client: ClientJob) -> Outcome:
        """One local run: begin, step ..., finish."""
        ctx, carry, rows, job = self._begin(method, client)
        carry, losses = self.stepper(method).run(rows, job, carry, self._schedule(client))
        return self.finished(method, client, job, ctx, carry, self._stacked(losses))

    def _begin(self, method: Method, client: ClientJob) -> tuple[Context, Carry, Rows, Job]:
        job = self.runtime.to_device(client.job)
        ctx = rounds.context(self.task, job)
        whole = self.clients.batch(client.plan.rows)
        return ctx, rounds.begin(method, ctx), (whole.x, whole.y), job

    def step_function(self, method: Method, mode: StepMode) -> StepFunction:
        """A step of one client."""

        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> tuple[Carry, Tensor]:
            x, y = rows
            at, keys, epoch, number = now
            batches = tuple(self._batch(x, y, places, key) for places, key in zip(at, keys, strict=True))
            progress, ctx = rounds.progress_at(job, epoch, number), rounds.context(self.task, job)
            forward = self.runtime.net.forward
            return rounds.step(method, ctx, forward, rounds.autograd, carry, batches, keys, progress)

        return step

    def _stacked(self, losses: list[Tensor]) -> Tensor:
        return torch.stack(losses) if losses else torch.zeros(0, dtype=self.dtype, device=self.device)

    def _schedule(self, client: ClientJob) -> list[Now]:
        """Each step's rows, a key for each of its mini-batches, and where in the local run it stands."""
        plan = client.plan
        steps, keys = len(plan.batches), client.keys.to(self.device)
        epoch = torch.from_numpy(plan.epoch).to(self.device)
        number = torch.arange(1, steps + 1, device=self.device)
        rows = torch.from_numpy(plan.batches).to(self.device).unbind()
        at = [r[:, :size] for r, (_, size) in zip(rows, _sizes(client), strict=True)]
        return list(zip(at, keys.unbind(), epoch.unbind(), number.unbind(), strict=True))

    def _batch(self, x: Tensor, y: Tensor, at: Tensor, key: Tensor) -> Batch:
        rows = x[at]
        return Batch(self.store.augmented(rows, key), y[at], torch.ones(len(at), dtype=self.dtype, device=self.device))


def longest(clients: Sequence[ClientJob], count: int) -> list[int]:
    """Places of the clients with the most steps, the longest first.

    A long client that begins last keeps one thread busy while the others wait. Outcomes are taken in the order of the
    cohort, so those of clients that began early wait in memory: a few of them are enough.
    """
    steps = [len(client.plan.batches) for client in clients]
    return sorted(range(len(clients)), key=lambda i: -steps[i])[:count]


def _sizes(client: ClientJob) -> list[tuple[int, int]]:
    """(mini-batches D, rows B) of each step. Padding stands at the end of a mini-batch."""
    batches = client.plan.batches
    return [(batches.shape[1], size) for size in (batches[:, 0] >= 0).sum(1).tolist()]


class Threaded(Sequential):
    """A client a thread, a thread a core, steps traced: the bits of `Sequential` for any number of threads."""

    name = "threaded"
    parallel = True

    @classmethod
    def step_mode(cls, device: str, model: Model, method: Method, augmented: bool) -> StepMode:
        """Traces, but for convolutions: their backward pass has lists of truth values, which no trace takes."""
        return StepMode.TRACED if device == "cpu" and not model.convolutional else StepMode.AUTOGRAD

    def ready(self, method: Method, clients: list[ClientJob]) -> None:
        """Trace the steps of shapes that will come often enough."""
        stepper = self.stepper(method)
        if stepper.mode is not StepMode.TRACED:
            return
        where: dict[tuple[int, int], tuple[ClientJob, int]] = {}
        counts: Counter[tuple[int, int]] = Counter()
        for client in clients:
            for t, size in enumerate(_sizes(client)):
                counts[size] += 1
                where.setdefault(size, (client, t))
        left = clients[0].left if clients else 0
        for size, count in counts.items():
            if stepper.due(size, count, left):
                client, t = where[size]
                _, carry, rows, job = self._begin(method, client)
                stepper.make(rows, job, carry, self._schedule(client)[t])

    def run_clients(self, method: Method, clients: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a client, in order."""

        def client_outcome(at: int) -> Outcome:
            return settle((at,), self.run_client(method, clients[at]))

        yield from self.workers.map(client_outcome, range(len(clients)), longest(clients, LEAD * self.workers.count))


class Debug(Sequential):
    """`Sequential`, whose exceptions say client, round, step, hook and shapes."""

    name = "debug"
    watchful = True

    def run_client(self, method: Method, client: ClientJob) -> Outcome:
        """As `Sequential.run_client`. All that `fedskew.engines.guard` knows is looked at.

        Raises:
            TrainingError: a component raised something else than an error of fedskew, or gave what its hook may not.
        """
        batches, guard = client.plan.batches, self.guard
        guard.at(client.plan.client, 1, len(batches))
        try:
            return super().run_client(method, client)
        except FedskewError:
            raise
        except Exception as error:
            shapes = {name: tuple(p.shape) for name, p in client.job.shared.params.items()}
            raise TrainingError(
                f"{type(error).__name__} in {guard.noted or 'no hook'}, {guard.where}: {error}; "
                f"mini-batches {batches.shape}, parameters {shapes}"
            ) from error
        finally:
            guard.at()

    def step_function(self, method: Method, mode: StepMode) -> StepFunction:
        """A step of one client, which notes where it stands."""
        plain = super().step_function(method, mode)

        def step(rows: Rows, job: Job, carry: Carry, now: Now) -> tuple[Carry, Tensor]:
            self.guard.step = int(now[3])
            return plain(rows, job, carry, now)

        return step
