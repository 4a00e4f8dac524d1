"""What a worker process does: one run after another, each in its folder of the store; and what a run took."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedskew.config.experiment import DIVISION, Experiment
from fedskew.config.recorded import finished, read_run
from fedskew.data import Federation
from fedskew.errors import ConfigError, DataError, RecordError, TrainingError, ensure_interrupt
from fedskew.records.files import Hold, InUseError, UnwritableError
from fedskew.studies.store import Store
from fedskew.track import Named, Several

SAME = 1.01  # times the work that counts as the same
FEDERATIONS = 4  # that a worker keeps
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # of a disk that takes no more
ORPHAN_S = 30  # seconds that a run has to write its rounds where the scheduler is gone


class Work(NamedTuple):
    """What a run takes of its clients, or how many times as much as another: in whole runs, not by round."""

    steps: float  # local steps of all clients
    contacts: float  # of clients: to train, to answer a question, and for an exchange of a fit
    bytes: float  # sent up and down, fits among them

    @property
    def most(self) -> float:
        """The larger of the ratios of steps and contacts; NaN where one is not on record."""
        return math.nan if math.isnan(self.steps + self.contacts) else max(self.steps, self.contacts)

    @property
    def dear(self) -> bool:
        """Whether it is more than that of the other, or is not known."""
        return not self.most <= SAME

    @classmethod
    def ratio(cls, pairs: Sequence[tuple[Work, Work]]) -> Work:
        """The work of some runs over that of others."""
        sums = [(sum(a[i] for a, _ in pairs), sum(b[i] for _, b in pairs)) for i in range(3)]
        return cls(*(a / b if b else math.nan if a else 1.0 for a, b in sums))


def work_of(summary: Mapping[str, Any]) -> Work | None:
    """The work of a run; None where its summary has none of it. Fits count with the clients that each of them asks.

    Contacts are NaN of a run of before they were counted.
    """
    totals = {name: summary.get(f"total_{name}") for name in ("contacts", "steps", "upload_bytes", "download_bytes")}
    if None in [total for name, total in totals.items() if name != "contacts"]:
        return None
    contacts, steps, up, down = (math.nan if total is None else float(total) for total in totals.values())
    for fit in summary.get("final_fit", {}).values():
        contacts += fit["exchanges"] * fit.get("clients", 0)
        up, down = up + fit["upload_bytes"], down + fit["download_bytes"]
    return Work(steps, contacts, up + down)


class RunJob(NamedTuple):
    """A run that is to be done."""

    address: str
    experiment: dict[str, Any] | Experiment  # as a configuration file holds it, or with objects that none can name
    store: str
    name: str = ""  # what trackers call it
    track: Named | None = None
    metric: str = "final_accuracy"  # of the summary, that is told of its end


class RunOutcome(NamedTuple):
    """How a run ended: "finished", "refused", "failed", "interrupted", "busy" where another process has it, "broken".

    "unsaved" is the end of one whose store cannot be written.
    """

    address: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    score: float | None = None
    notes: tuple[str, ...] = ()  # what failed beside the run, which went on


_live = threading.Event()  # a run is in progress
_asked = threading.Event()  # this process was asked to end


def begin(environment: Mapping[str, str] | None = None) -> None:
    """Begin a worker, with the environment of the process that wants it: its server may be older than a variable.

    Ctrl-C is the scheduler's, which ends its workers by SIGTERM: a run then ends with whole rounds. So it does where
    the scheduler is killed, since nobody would take its result.
    """
    import torch

    os.environ.update(environment or {})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    ensure_interrupt(_asked.is_set, lambda: os.kill(os.getpid(), signal.SIGTERM))
    torch.set_num_threads(1)
    threading.Thread(target=_outlive, daemon=True).start()


def _stop(number: int, frame: Any) -> None:
    if not _live.is_set():
        os._exit(128 + number)
    _asked.set()
    raise KeyboardInterrupt


def _outlive() -> None:
    """End this process some seconds after the one that began it."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    if _live.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(ORPHAN_S * 10):
        if not _live.is_set():
            break
        time.sleep(0.1)
    os._exit(1)


def work(job: RunJob) -> RunOutcome:
    """Do a run, or what is left of it. Nothing is raised: what a run cannot be is noted in the store.

    A process that was asked to end does so once its run is saved. Nobody takes its result: the pool that asks is
    broken or is being ended, and waits for its processes.
    """
    _live.set()
    try:
        return _work(job)
    finally:
        if _asked.is_set():
            os._exit(128 + signal.SIGTERM)
        _live.clear()


def _work(job: RunJob) -> RunOutcome:
    began, store, notes = time.monotonic(), Store(job.store), list[str]()
    folder = store.run_folder(job.address)
    resume = (folder / "rounds.jsonl").exists()

    def ended(state: str, why: object, summary: Mapping[str, Any] = MappingProxyType({})) -> RunOutcome:
        seconds, score = time.monotonic() - began, summary.get(job.metric)
        return RunOutcome(job.address, state, " ".join(str(why).split()), seconds, score, tuple(notes))

    try:
        given = job.experiment
        experiment = given if isinstance(given, Experiment) else Experiment.from_json(given)
        if resume and _over(folder, experiment):
            return ended("finished", "", read_run(folder).summary)
        federation, tracked = federation_of(experiment), _trackers(job, notes.append)
        result = experiment.run(folder, resume=resume, federation=federation, on_round=tracked)
    except InUseError as error:
        return ended("busy", error)
    except UnwritableError as error:
        return ended("unsaved", error)
    except RecordError as error:  # another process began or deleted the run since we looked
        return ended("busy" if resume != (folder / "rounds.jsonl").exists() else "broken", error)
    except (ConfigError, DataError, TrainingError) as error:
        outcome = ended("failed" if isinstance(error, TrainingError) else "refused", error)
        store.refuse(job.address, outcome.state, outcome.reason)
        return outcome
    except OSError as error:
        return ended("unsaved" if error.errno in FULL else "broken", error)
    except MemoryError:
        return ended("broken", "memory ran out")
    except Exception as error:  # a fault of fedskew: the other runs go on, and this one is told
        return ended("broken", f"{type(error).__name__}: {error}")
    return ended("interrupted" if result.stopped else "finished", result.stopped, result.summary)


def _trackers(job: RunJob, note: Callable[[str], None]) -> Several | None:
    """Who is told of the rounds. A fault here is none of the run, which goes on."""
    try:
        return Several(job.track.made(note), job.name) if job.track else None
    except Exception as error:
        note(f"tracking failed; the run continues without it: {' '.join(str(error).split())}")
        return None


def _over(folder: Path, experiment: Experiment) -> bool:
    """Whether another process ended the run since the study was planned, such as a worker that outlived its scheduler.

    It is asked while nobody else has the folder: what is finished is not touched. Raises InUseError.
    """
    hold = Hold(folder)
    try:
        return finished(folder, experiment.rounds, experiment.patience)
    except RecordError:
        return False  # the resume mends it, or says what is wrong
    finally:
        hold.release()


_federations: dict[str, Federation] = {}


def federation_of(experiment: Experiment) -> Federation:
    """The federation of an experiment; experiments whose rows are divided alike share it."""
    seed = experiment.seed if experiment.seed_partition is None else experiment.seed_partition
    names = {"data", "partition", "rows_at_server", *DIVISION} - {"auxiliary", "seed_partition"}
    division = [getattr(experiment, name) for name in sorted(names)]
    key = repr([*division, seed])
    if key not in _federations:
        for oldest in list(_federations)[: 1 - FEDERATIONS]:
            del _federations[oldest]
        _federations[key] = experiment.federation()
    return _federations[key]
