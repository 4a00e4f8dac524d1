"""Worker processes of a cluster: work is handed out, a lost worker is replaced, and its work is sent again."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fedskew.engines.ray.packing import Message, size, unpack
from fedskew.engines.ray.worker import Failure, Hello, Worker, versions
from fedskew.errors import ConfigError, TrainingError

__all__ = ["Call", "Pool"]

Call = Callable[[Any], Any]  # a worker's actor -> the reference to its answer

LOG = logging.getLogger("fedskew.ray")
DEPTH = 2  # pieces of work that a worker has: it goes on while its answer travels
AHEAD = 4  # pieces a worker that may be under way or wait for the one before: what the answers hold in memory
DEATHS = 3  # of workers that have one piece of work, before it is given up
BEGUN_S = 120.0  # until the first worker must have begun
LOOK_S = 1.0


@dataclass(eq=False)
class Member:
    """A worker, and what it is doing."""

    actor: Any
    hello: Any  # reference to its first answer; None once that was read
    flying: dict[Any, int | None] = field(default_factory=dict)  # reference -> piece of work, None if nobody waits


class Pool:
    """So many workers, which are all alike: it does not matter who does what."""

    def __init__(self, count: int, gpus: float, kit: Any, met: Callable[[Hello], None] = lambda hello: None) -> None:
        """Begin the workers.

        Args:
            count: how many.
            gpus: of each; a fraction shares one.
            kit: reference to the packed data of the run (`fedskew.engines.ray.worker.Kit`).
            met: called when a worker has begun, before it is given work.
        """
        self.count, self.gpus, self.kit, self.met = count, gpus, kit, met
        self.members: list[Member] = []
        self.facts: list[Hello] = []  # of every worker that has begun
        self.failed = 0  # beginnings that failed, one after another
        self.received = 0  # bytes
        self.lost: list[str] = []  # why workers were replaced
        for _ in range(count):
            self._begin()

    def _begin(self) -> None:
        import ray

        kind = ray.remote(Worker).options(
            num_cpus=1, num_gpus=self.gpus or None, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        actor = kind.remote()
        self.members.append(Member(actor, actor.hello.remote([self.kit])))

    def map(self, calls: list[Call], told: Callable[[int], str]) -> Iterator[Any]:
        """The answers to pieces of work, in their order.

        Args:
            calls: each hands a piece of work to an actor. It may be handed out again, to another one.
            told: what a piece of work is, for an error.

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
                            raise TrainingError(f"{told(at)} ended {DEATHS} worker processes of Ray, the last: {why}")
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
        ready, _ = ray.wait(list(owner), num_returns=1, timeout=LOOK_S)
        if ready:
            ready, _ = ray.wait(list(owner), num_returns=len(owner), timeout=0)
        again: list[int] = []
        for ref in ready:
            member = owner[ref]
            if member not in self.members:
                continue  # it was lost by another reference
            try:
                message: Message = ray.get(ref)
            except ray.exceptions.RayError as error:
                again += self._replace(member, error)
                continue
            self.received += size(message)
            if ref == member.hello:
                self._welcome(member, unpack(message))
            elif (at := member.flying.pop(ref)) is not None:
                answers[at] = unpack(message)
        return sorted(again, reverse=True)

    def _welcome(self, member: Member, hello: Hello | Failure) -> None:
        if isinstance(hello, Failure):
            raise hello.error or ConfigError(f"a worker process of Ray cannot begin: {hello.words}")
        if hello.versions != versions():
            here, there = (", ".join(v) for v in (versions(), hello.versions))
            raise ConfigError(f"all machines of a Ray cluster must have {here}; one has {there}")
        self.facts.append(hello)
        member.hello, self.failed = None, 0
        self.met(hello)

    def _replace(self, member: Member, error: Exception) -> list[int]:
        """Begin another worker in the place of a lost one; the work that it had."""
        import ray

        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        self.lost.append(f"{type(error).__name__}: {lines[-1] if lines else ''}")
        LOG.warning("a worker process of Ray was lost, its work is done again: %s", self.lost[-1][:200])
        if member.hello is not None:
            self.failed += 1
            if self.failed > DEATHS * self.count:
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
