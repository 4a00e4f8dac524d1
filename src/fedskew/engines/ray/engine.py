"""The engine `ray`: it plans, evaluates and keeps the clients' memory here, and has clients trained in a cluster."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedskew import tree
from fedskew.client import RoundInputs
from fedskew.data.federation import Federation
from fedskew.data.partitioners import Iid
from fedskew.engines.guard import unguarded
from fedskew.engines.outcomes import Outcome, Settle, identity
from fedskew.engines.planning import ClientJob
from fedskew.engines.ray.packing import Message, pack
from fedskew.engines.ray.pool import Call, Cluster, Pool
from fedskew.engines.ray.worker import Failure, Kit, Sent, Turn, WorkerIdentity, processor
from fedskew.engines.sequential import Sequential, Threaded
from fedskew.errors import ConfigError, FieldError, TrainingError
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.models.where import first_line
from fedskew.settings import Settings
from fedskew.types import Params, Task


class Ray(Sequential):
    """Clients train in worker processes of a Ray cluster, with the bits of `Sequential` for any number of them.

    Each worker runs the `Threaded` engine with one thread. Weighted deltas come back singly and are added in the order
    of the cohort. Questions, evaluations and the clients' memory stay in this process.
    """

    name = "ray"
    step_mode = Threaded.step_mode

    def __init__(self, model: Model, fed: Federation, task: Task, settings: Settings) -> None:
        """Connect to the cluster. Raises ConfigError where there is none, or where it is too small."""
        self.cluster = Cluster(settings.ray_address, settings.ray_workers)
        self.pool: Pool | None = None
        self.turns = 0
        try:
            gpus = settings.ray_gpus if settings.device.startswith("cuda") else 0.0
            most = self.cluster.room(gpus)
            # a worker for which there is no room yet begins when there is; the others do not wait for it
            self.count, self.gpus = settings.ray_workers or most, gpus
            if not 1 <= self.count <= most:
                each = f"a core{f' and {gpus:g} GPUs' if gpus else ''} each"
                rule = f"fit the cluster, which has room for {most} with {each}"
                raise FieldError("Settings", "ray_workers", rule, self.count)
            super().__init__(model, fed, task, settings)
        except BaseException:
            self.cluster.leave()
            raise
        self.settings, self.unlike = settings, False  # whether it was told that a worker is on another processor

    def init_clients(self, method: Method, params: Params, buffers: Params, where: str = "device") -> None:
        """Begin the workers, once the clients' memory is known. Raises ConfigError where something cannot be sent."""
        import ray

        super().init_clients(method, params, buffers, where)
        # the rows are divided; what did it may be known here alone, and workers do not evaluate
        fed = replace(self.fed, partitioner=Iid(), unseen=None)
        settings = replace(self.settings, device=self.device.type, threads=1)
        kit = Kit(self.network, fed, self.task, settings, self.memory.template)
        packed_kit = _packed("the model and the data", kit, mapped=True)
        self.pool = Pool(self.count, self.gpus, ray.put(packed_kit), self._met)

    def _met(self, hello: WorkerIdentity) -> None:
        """Warn of the first worker on another type of processor; the run goes on."""
        here, there = processor(self.settings.device), hello.processor
        if here != there and not self.unlike:
            self.unlike = True
            may = "they may round otherwise, so its bytes may not be those of a run on one type of processor"
            warnings.warn(
                f"this run is on unlike processors, {here!r} and {there!r}: {may}", RuntimeWarning, stacklevel=2
            )

    def close(self) -> None:
        """End the workers, then as every engine."""
        if self.pool is not None:
            self.pool.close()
        self.cluster.leave()
        super().close()

    def run_clients(self, method: Method, clients: list[ClientJob], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a client, in order."""
        yield from self._run(method, [[client] for client in clients], settle, chained=False)

    def run_chains(self, method: Method, chains: list[list[ClientJob]], settle: Settle = identity) -> Iterator[Outcome]:
        """One outcome a chain, in order: one worker trains all members of a chain."""
        yield from self._run(method, chains, settle, chained=True)

    def _run(
        self, method: Method, groups: list[list[ClientJob]], settle: Settle, *, chained: bool
    ) -> Iterator[Outcome]:
        import ray

        assert self.pool is not None, "init_clients comes first"
        if not groups:
            return
        shared: RoundInputs = groups[0][0].job.shared
        plain = _packed(f"the method {method.name!r}", unguarded(method))
        turn = _packed("what the clients are sent", Turn(plain, shared, settle, chained))
        self.turns += 1
        given, number = [ray.put(turn)], self.turns

        def call(at: int) -> Call:
            def send(actor: Any) -> Any:
                sent = pack([Sent(client.job.own, client.plan, client.keys) for client in groups[at]])
                return actor.train.remote(number, given, at, sent)

            return send

        def described(at: int) -> str:
            names = ", ".join(str(client.plan.client) for client in groups[at])
            return f"client {names} of round {int(shared.round)}"

        calls = [call(at) for at in range(len(groups))]
        for at, answer in enumerate(self.pool.map(calls, described)):
            if isinstance(answer, Failure):
                raise _raised(answer, described(at))
            yield self._here(answer, groups[at])

    def _here(self, outcome: Outcome, clients: list[ClientJob]) -> Outcome:
        """An outcome on the device of this engine, with the jobs that it is an outcome of."""
        pairs = zip(outcome.checks, clients, strict=True)
        outcome = outcome._replace(checks=tuple(check._replace(clients=[client]) for check, client in pairs))
        if self.device.type == "cpu":
            return outcome

        def moved(leaf: Tensor) -> Tensor:
            return leaf.to(self.device)

        names = ("params", "buffers", "uploads", "memories")
        return outcome._replace(**{name: tree.map_tree(moved, getattr(outcome, name)) for name in names})


def _packed(what: str, value: Any, *, mapped: bool = False) -> Message:
    """A message. Raises ConfigError where something in it cannot be sent to another process."""
    try:
        return pack(value, mapped=mapped)
    except Exception as error:
        raise ConfigError(f"the engine ray cannot send {what} to its workers: {first_line(error)}") from error


def _raised(failure: Failure, where: str) -> Exception:
    """The error of a worker, as an error of this process."""
    if failure.error is not None:
        return failure.error
    hook = f", {failure.hook}" if failure.hook else ""
    error = TrainingError(f"{failure.words}; {where}{hook}, in a worker process of Ray")
    error.add_note(failure.trace)
    return error
