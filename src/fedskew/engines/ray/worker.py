"""A worker process: it holds the data and trains what it is sent, by the threaded engine with one thread."""

import os
import platform
import re
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedskew.client import ClientInputs, Job, RoundInputs
from fedskew.data.federation import Federation
from fedskew.engines.base import chain
from fedskew.engines.guard import guarded
from fedskew.engines.outcomes import Outcome, Settle
from fedskew.engines.planning import ClientJob, Plan
from fedskew.engines.ray.packing import Message, pack, unpack
from fedskew.engines.sequential import Threaded
from fedskew.errors import FedskewError
from fedskew.method import Method
from fedskew.models.precision import arithmetic
from fedskew.models.prepare import Model
from fedskew.models.where import first_line
from fedskew.settings import Settings
from fedskew.types import Task, Tree


class Kit(NamedTuple):
    """What a worker holds for the whole run. It is put into the memory of each node once."""

    model: Model
    fed: Federation
    task: Task
    settings: Settings  # with one thread, on "cpu" or "cuda": Ray shows a worker its own GPUs alone, counted from 0
    template: dict[str, Tree]  # memory of a client that has not taken part


class Turn(NamedTuple):
    """What all clients of a round are sent: once a worker, from the memory of its node."""

    method: Message
    shared: RoundInputs
    settle: Settle  # what is done with an outcome where it was trained
    chained: bool  # jobs are chains, each of which is reported as one client


class Sent(NamedTuple):
    """What one client is sent; a chain is sent as a list of them."""

    inputs: ClientInputs
    plan: Plan
    keys: torch.Tensor


class WorkerIdentity(NamedTuple):
    """Who a worker is."""

    versions: tuple[str, ...]
    processor: str


class Failure(NamedTuple):
    """What went wrong in a worker, in place of an outcome."""

    error: FedskewError | None  # one of fedskew's, to be raised as it is
    words: str = ""  # of any other
    hook: str = ""
    trace: str = ""


def versions() -> tuple[str, ...]:
    """What must be equal in all processes of a run."""
    from fedskew import __version__

    python = ".".join(platform.python_version_tuple()[:2])
    return f"fedskew {__version__}", f"torch {torch.__version__}", f"Python {python}"


CPUINFO = Path("/proc/cpuinfo")
CORE = re.compile(r"^(?:model name|cpu family|model|CPU implementer|CPU architecture|CPU part)\s*:.+$", re.MULTILINE)
# variables by which libraries take other instructions than those of the processor; torch's own shows in its capability
LIMITS = (
    "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
)  # fmt: skip


def processor(device: str = "cpu") -> str:
    """The first core as the system describes it, the instructions that torch takes of it, limits that are set, the GPU.

    ``device`` is where clients train. Two machines that differ in this may round otherwise.
    """
    cpuinfo = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.exists() else ""
    core = [" ".join(line.split()) for line in CORE.findall(cpuinfo.split("\n\n")[0])]
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    gpu = [torch.cuda.get_device_name(device)] if device.startswith("cuda") else []
    known = core or [platform.processor() or platform.machine()]
    return ", ".join([*known, torch.backends.cpu.get_cpu_capability(), *limits, *gpu])


class Worker:
    """Becomes an actor. What it gives depends on what it is sent alone, so it can be replaced at any time."""

    def __init__(self) -> None:
        self.turn = -1
        self.given: Turn | None = None
        self.methods: dict[tuple[bytes, ...], Method] = {}
        self.engine: Threaded

    def hello(self, kit: list[Any]) -> Message:
        """Take the run's data: a list with a reference to the packed `Kit`. A packed `WorkerIdentity` or `Failure`."""
        import ray

        return pack(self._tried(lambda: self._begin(unpack(ray.get(kit[0])))))

    def train(self, turn: int, given: list[Any], at: int, sent: Message) -> Message:
        """Train one client, or a chain of them.

        Args:
            turn: number of what ``given`` refers to; it is fetched once.
            given: a list with a reference to the packed `Turn`.
            at: place in the cohort.
            sent: a packed list of `Sent`: of one client, or of the members of a chain.

        Returns:
            A packed `Outcome`, settled, or a `Failure`.
        """
        return pack(self._tried(lambda: self._train(turn, given, at, unpack(sent))))

    def _tried(self, work: Any) -> Any:
        try:
            return work()
        except FedskewError as error:
            return Failure(error)
        except Exception as error:
            noted = self.engine.guard.noted if hasattr(self, "engine") else ""
            return Failure(None, first_line(error), noted, traceback.format_exc())

    def _begin(self, kit: Kit) -> WorkerIdentity:
        torch.set_num_threads(1)
        settings = kit.settings
        self.arithmetic = settings.precision, settings.deterministic
        self.engine = Threaded(kit.model.to(device=settings.device), kit.fed, kit.task, settings)
        self.engine.finite_checks.begin(kit.template)
        return WorkerIdentity(versions(), processor(settings.device))

    def _train(self, turn: int, given: list[Any], at: int, members: list[Sent]) -> Outcome:
        engine = self.engine
        if turn != self.turn:
            import ray

            self.given = None  # two rounds need not fit
            self.given, self.turn = unpack(ray.get(given[0])), turn
        assert self.given is not None
        message, shared, settle, chained = self.given
        if engine.guard.round != (number := int(shared.round)):
            engine.guard.begin(number)
        method = self._method(message)
        clients = [ClientJob(Job(shared, sent.inputs), sent.plan, sent.keys) for sent in members]
        engine.guard.at()
        with torch.no_grad(), arithmetic(*self.arithmetic):
            engine.ready(method, clients)
            done = chain(engine, method, clients) if chained else engine.run_client(method, *clients)
            outcome = settle((at,), done)
        # the jobs are the driver's
        return outcome._replace(checks=tuple(check._replace(clients=[]) for check in outcome.checks))

    def _method(self, message: Message) -> Method:
        """The method with watched hooks: one object as long as it is the same, so that traced steps are found."""
        key = (message[0], *(buffer.tobytes() for buffer in message[1]))
        if key not in self.methods:
            self.methods[key] = guarded(unpack(message), self.engine.guard)
        return self.methods[key]
