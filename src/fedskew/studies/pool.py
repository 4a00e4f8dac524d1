"""The scheduler: hands runs to worker processes, and begins workers anew where one is killed."""

import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from fedskew.config.experiment import Experiment
from fedskew.engines.runtime import Workers
from fedskew.studies.work import RunJob, RunOutcome, begin, work

DEATHS = 3  # of workers that have one run, before it is given up for this time
BUSY_S = 1.0  # before a run that another process has is looked at again
ON_A_GPU = 4  # runs that share one: eight of small networks make no more rounds than four (notes/performance.md)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
IMPORTED = ["fedskew.studies.work", "fedskew.config.flags"]


def workers_of(devices: Iterable[str]) -> int:
    """Processes that pay for runs on these devices: one a core, and no more than ON_A_GPU for each GPU."""
    gpus = {device for device in devices if device != "cpu"}
    return min(Workers.cores(), ON_A_GPU * len(gpus)) if gpus else Workers.cores()


def schedule(jobs: Sequence[RunJob], processes: int, on_end: Callable[[RunOutcome], None]) -> None:
    """Do runs, several at a time.

    Args:
        jobs: the runs, in the order in which they begin.
        processes: workers; 0 takes as many as `workers_of` says.
        on_end: called with the end of each run, in this process.

    A worker that is killed takes its run down; another one resumes it. A run that kills three workers is given up.
    Runs with objects of the user's own are done first, here, one after another: workers import fedskew alone.

    Raises:
        KeyboardInterrupt: somebody interrupts; the runs have saved their rounds.
    """
    work_here(deque(job for job in jobs if isinstance(job.experiment, Experiment)), on_end)
    waiting = deque(job for job in jobs if not isinstance(job.experiment, Experiment))
    deaths = dict.fromkeys((job.address for job in waiting), 0)
    devices = [job.experiment.get("device", "cpu") for job in waiting if isinstance(job.experiment, dict)]
    count = min(processes or workers_of(devices), len(waiting)) or 1
    while waiting:
        with _holding(os.environ, ONE_THREAD), _pool(count) as pool:
            running: dict[Future[RunOutcome], RunJob] = {}
            try:
                _feed(pool, waiting, running, count, on_end)
            except BrokenProcessPool:
                lost = list(running.values())
                for job in reversed(lost):
                    deaths[job.address] += 1
                    if deaths[job.address] < DEATHS * count:  # all that ran beside the dead one are counted, too
                        waiting.appendleft(job)
                    else:
                        why = f"its worker process died {deaths[job.address]} times"
                        on_end(RunOutcome(job.address, "broken", why))
            except BaseException:
                _end(pool)
                raise


def work_here(waiting: deque[RunJob], on_end: Callable[[RunOutcome], None]) -> None:
    """Do runs in this process. Raises KeyboardInterrupt once the interrupted one has saved its rounds."""
    while waiting:
        job = waiting.popleft()
        outcome = work(job)
        if outcome.state == "busy":
            waiting.append(job)
            time.sleep(BUSY_S)
            continue
        on_end(outcome)
        if outcome.reason == "interrupted":
            raise KeyboardInterrupt


def _feed(
    pool: ProcessPoolExecutor, waiting: deque[RunJob], running: dict[Future[RunOutcome], RunJob], count: int,
    on_end: Callable[[RunOutcome], None],
) -> None:  # fmt: skip
    """Keep workers busy until nothing waits. Raises BrokenProcessPool before the runs of a dead one are forgotten.

    Args:
        pool: The workers.
        waiting: Runs that nobody does.
        running: Runs that a worker does.
        count: Most runs at a time.
        on_end: As for `schedule`.
    """
    later: list[tuple[float, RunJob]] = []  # runs of other processes, and when to look again
    ended: SimpleQueue[Future[RunOutcome]] = SimpleQueue()  # which waits in C: an interrupt leaves no lock taken
    while waiting or running or later:
        now = time.monotonic()
        waiting.extend(job for when, job in later if when <= now)
        later = [(when, job) for when, job in later if when > now]
        while waiting and len(running) < count:
            future = _submit(pool, waiting[0])
            running[future] = waiting.popleft()
            future.add_done_callback(ended.put)
        try:
            future = ended.get(timeout=0.2)
        except Empty:
            continue
        outcome, job = future.result(), running.pop(future)
        if outcome.state == "busy":
            later.append((time.monotonic() + BUSY_S, job))
        else:
            on_end(outcome)


def _submit(pool: ProcessPoolExecutor, job: RunJob) -> Future[RunOutcome]:
    """Hand a run to a process that does not import the program which wants it.

    It needs nothing of the program, which may have no file that can be imported, or train wherever it is.
    """
    main = vars(sys.modules["__main__"])
    with _holding(main, {name: None for name in ("__spec__", "__file__") if name in main}):
        return pool.submit(work, job)


@contextmanager
def _holding(names: MutableMapping[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Names with other values for a moment."""
    before = {name: names[name] for name in values if name in names}
    names.update(values)
    try:
        yield
    finally:
        names.update(before)
        for name in values.keys() - before.keys():
            del names[name]


def _pool(count: int) -> ProcessPoolExecutor:
    """Workers that a server forks once all is imported, so that none imports anew."""
    kinds = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in kinds else "spawn")
    if "forkserver" in kinds:
        context.set_forkserver_preload(IMPORTED)
    return ProcessPoolExecutor(count, mp_context=context, initializer=begin, initargs=(dict(os.environ),))


def _end(pool: ProcessPoolExecutor) -> None:
    """End the workers at once; their runs keep their whole rounds."""
    for process in list(getattr(pool, "_processes", {}).values()):
        process.terminate()
    pool.shutdown(wait=False, cancel_futures=True)
