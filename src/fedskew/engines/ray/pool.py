"""A Ray cluster, and a pool of worker processes in it."""

import logging
import os
import signal
import socket
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from fedskew.engines.ray.packing import Message, unpack
from fedskew.engines.ray.worker import Failure, Worker, WorkerIdentity, versions
from fedskew.engines.runtime import Workers
from fedskew.errors import ConfigError, TrainingError, install

# The cluster


SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

HINT = "`ray start --head --port=6379` begins one, `ray status` shows it"
REACHED_S = 5.0


def require_ray() -> None:
    """Raises ConfigError that names the extra where the package ray is missing."""
    spec = find_spec("ray")
    if spec is None or spec.origin is None:  # a folder of this name, such as a run's, is not the package
        raise ConfigError(f"the engine ray needs the package ray, which is not installed; {install('ray')}")


class Cluster:
    """A connection to a cluster.

    A program that has called ``ray.init`` itself keeps its connection. Otherwise an address is joined: that of the
    option, else that of the environment variable RAY_ADDRESS. Without one, a cluster of this machine is begun.
    """

    def __init__(self, address: str | None, workers: int) -> None:
        """Connect.

        Args:
            address: "HOST:PORT" of a running cluster, "auto" for the one that runs on this machine, or None.
            workers: processes that a cluster of this machine shall hold; 0: one a core.

        Raises:
            ConfigError: the package ray is missing, or there is no cluster at the address.
        """
        require_ray()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody who was not asked
        import ray

        self.joined = not ray.is_initialized()  # by us
        if not self.joined:
            return
        where = address or os.environ.get("RAY_ADDRESS") or "local"
        _reached(where)
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if where != "local":
            del quiet["include_dashboard"]  # which is the cluster's to say
        else:
            quiet["num_cpus"] = workers or Workers.cores()
            os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets everything else on the machine go first
        try:
            with _signals_kept(), warnings.catch_warnings():
                # of a default to come for actors without a GPU, which here are told their device
                warnings.filterwarnings("ignore", "Tip: In future versions of Ray", FutureWarning)
                ray.init(address=where, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            message = (str(error).strip().splitlines() or ["no answer"])[0]
            raise ConfigError(f"there is no Ray cluster at {where!r}: {message}; {HINT}") from None

    @staticmethod
    def room(gpus: float) -> int:
        """Workers that the cluster can hold, each with a core and so many GPUs; others may have taken some of it."""
        import ray

        has = ray.cluster_resources()
        cores = int(has.get("CPU", 0.0))
        return min(cores, int(has.get("GPU", 0.0) / gpus + 1e-6)) if gpus else cores

    def leave(self) -> None:
        """End the connection; a cluster of this machine ends with it."""
        import ray

        if self.joined and ray.is_initialized():
            with _signals_kept():
                ray.shutdown()


def _reached(where: str) -> None:
    """Raise ConfigError where nothing answers at HOST:PORT. Ray itself would try for minutes, and write about it."""
    if where in ("local", "auto"):
        return
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ConfigError(f"the address of a Ray cluster must be HOST:PORT, auto or local; got {where!r}; {HINT}")
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"there is no Ray cluster at {where!r}: {error}; {HINT}") from None


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray puts its own handlers in the place of those that let a run end with whole rounds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


# The pool


Call = Callable[[Any], Any]  # a worker's actor -> the reference to its answer

LOG = logging.getLogger("fedskew.ray")
DEPTH = 2  # pieces of work that a worker has: it goes on while its answer travels
AHEAD = 4  # pieces a worker that may be under way or wait for the one before: what the answers hold in memory
DEATHS = 3  # of workers that have one piece of work, before it is given up
BEGUN_S = 120.0  # until the first worker must have begun
LOOK_S = 1.0


@dataclass(eq=False)
class PoolWorker:
    """A worker, and what it is doing."""

    actor: Any
    hello: Any  # reference to its first answer; None once that was read
    flying: dict[Any, int | None] = field(default_factory=dict)  # reference -> piece of work, None if nobody waits


class Pool:
    """So many workers, which are all alike: it does not matter who does what."""

    def __init__(self, count: int, gpus: float, kit: Any, met: Callable[[WorkerIdentity], None]) -> None:
        """Begin the workers.

        Args:
            count: how many.
            gpus: of each; a fraction shares one.
            kit: reference to the packed data of the run (`fedskew.engines.ray.worker.Kit`).
            met: called when a worker has begun, before it is given work.
        """
        self.gpus, self.kit, self.met = gpus, kit, met
        self.members: list[PoolWorker] = []
        self.failed = 0  # beginnings that failed, one after another
        self.lost: list[str] = []  # why workers were replaced
        for _ in range(count):
            self._begin()

    def _begin(self) -> None:
        import ray

        kind = ray.remote(Worker).options(
            num_cpus=1, num_gpus=self.gpus or None, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        actor = kind.remote()
        self.members.append(PoolWorker(actor, actor.hello.remote([self.kit])))

    def map(self, calls: list[Call], described: Callable[[int], str]) -> Iterator[Any]:
        """The answers to pieces of work, in their order.

        Args:
            calls: each hands a piece of work to an actor. It may be handed out again, to another one.
            described: what a piece of work is, for an error.

        Raises:
            TrainingError: a piece of work ended three workers.
            ConfigError: no worker begins.
        """
        waiting, answers, deaths = deque(range(len(calls))), dict[int, Any](), Counter[int]()
        since = time.monotonic()
        try:
            for i in range(len(calls)):
                while i not in answers:
                    self._feed(waiting, calls, i)
                    for at in self._take(answers):
                        waiting.appendleft(at)
                        deaths[at] += 1
                        if deaths[at] >= DEATHS:
                            why = self.lost[-1]
                            raise TrainingError(
                                f"{described(at)} ended {DEATHS} worker processes of Ray, the last: {why}"
                            )
                    if any(m.hello is None for m in self.members):
                        since = time.monotonic()
                    elif time.monotonic() - since > BEGUN_S:
                        raise ConfigError(
                            f"no worker process of Ray started within {BEGUN_S:.0f} s; `ray status` says why"
                        )
                yield answers.pop(i)
        finally:
            for member in self.members:
                member.flying = dict.fromkeys(member.flying)

    def _feed(self, waiting: deque[int], calls: list[Call], done: int) -> None:
        """Give work to those who have little."""
        for depth in range(1, DEPTH + 1):  # one each before anyone has two
            for member in self.members:
                free = member.hello is None and len(member.flying) < depth
                if free and waiting and waiting[0] < done + AHEAD * len(self.members):
                    at = waiting.popleft()
                    member.flying[calls[at](member.actor)] = at

    def _take(self, answers: dict[int, Any]) -> list[int]:
        """Wait for something; the pieces of work that were lost, of which the last to be listed came first."""
        import ray

        owner = {ref: m for m in self.members for ref in (*m.flying, *([] if m.hello is None else [m.hello]))}
        for ref in ray.wait(list(owner), num_returns=1, timeout=LOOK_S)[0]:
            member = owner[ref]
            try:
                message: Message = ray.get(ref)
            except ray.exceptions.RayError as error:
                return sorted(self._replace(member, error), reverse=True)
            if ref == member.hello:
                self._welcome(member, unpack(message))
            elif (at := member.flying.pop(ref)) is not None:
                answers[at] = unpack(message)
        return []

    def _welcome(self, member: PoolWorker, hello: WorkerIdentity | Failure) -> None:
        if isinstance(hello, Failure):
            raise hello.error or ConfigError(f"a worker process of Ray cannot begin: {hello.words}")
        if hello.versions != versions():
            here, there = (", ".join(v) for v in (versions(), hello.versions))
            raise ConfigError(f"all machines of a Ray cluster must have {here}; one has {there}")
        member.hello, self.failed = None, 0
        self.met(hello)

    def _replace(self, member: PoolWorker, error: Exception) -> list[int]:
        """Begin another worker in the place of a lost one; the work that it had."""
        import ray

        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.lost.append(f"{type(error).__name__}: {lines[-1] if lines else ''}")
        LOG.warning("a worker process of Ray was lost, its work is done again: %s", self.lost[-1][:200])
        self.failed += member.hello is not None
        if self.failed > DEATHS * len(self.members):
            raise ConfigError(f"no worker process of Ray can start: {self.lost[-1]}")
        self.members.remove(member)
        ray.kill(member.actor)  # it may be out of reach only, and come back
        self._begin()
        return [at for at in member.flying.values() if at is not None]

    def close(self) -> None:
        """End the workers."""
        import ray

        for member in self.members:
            if ray.is_initialized():
                ray.kill(member.actor)
        self.members = []
