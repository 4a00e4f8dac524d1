"""The scheduler: hands runs to worker processes, and begins workers anew where one is killed.

Over a Ray cluster a run is a task, which begins anew elsewhere where its worker or machine is lost.
"""

import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from fedskew.config.experiment import Experiment
from fedskew.engines.ray.pool import Cluster
from fedskew.engines.runtime import Workers
from fedskew.errors import ConfigError
from fedskew.studies.store import Store
from fedskew.studies.work import Job, Outcome, begin, work

DEATHS = 3  # of workers that have one run, before it is given up for this time
BUSY_S = 1.0  # before a run that another process has is looked at again
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
IMPORTED = ["fedskew.studies.work", "fedskew.config.flags"]
SAVED_S = 60.0  # that runs have to write their rounds where the study is stopped
PASSED = "FEDSKEW_"  # environment variables that the workers get


def schedule(
    jobs: Sequence[Job], processes: int, on_end: Callable[[Outcome], None], on_begin: Callable[[Job], None]
) -> None:
    """Do runs, several at a time.

    Args:
        jobs: the runs, in the order in which they begin.
        processes: workers; 0 takes one a core.
        on_end: called with the end of each run, in this process.
        on_begin: called when a run is handed to a worker.

    A worker that is killed takes its run down; another one resumes it. A run that kills three workers is given up.
    Runs with objects of the user's own are done first, here, one after another: workers import fedskew alone.
    """
    mine = [job for job in jobs if isinstance(job.experiment, Experiment)]
    feed(deque(mine), {}, 1, lambda job: job.address, _here, on_end, on_begin)
    jobs = [job for job in jobs if not isinstance(job.experiment, Experiment)]
    waiting, deaths = deque(jobs), dict.fromkeys((job.address for job in jobs), 0)
    count = min(processes or Workers.cores(), len(jobs)) or 1
    while waiting:
        with _holding(os.environ, ONE_THREAD), _pool(count) as pool:
            running: dict[Any, Job] = {}
            try:
                feed(waiting, running, count, partial(_submit, pool), _done, on_end, on_begin)
            except BrokenProcessPool:
                lost = list(running.values())
                for job in reversed(lost):
                    deaths[job.address] += 1
                    if deaths[job.address] < DEATHS * count:  # all that ran beside the dead one are counted, too
                        waiting.appendleft(job)
                    else:
                        on_end(Outcome(job.address, "broken", f"its worker process died {deaths[job.address]} times"))
            except BaseException:
                _end(pool)
                raise


def feed(
    waiting: deque[Job], running: dict[Any, Job], count: int, submit: Callable[[Job], Any],
    done: Callable[[dict[Any, Job]], Iterable[tuple[Any, Outcome | None]]],
    on_end: Callable[[Outcome], None], on_begin: Callable[[Job], None],
) -> None:  # fmt: skip
    """Keep workers busy until nothing waits, whatever they are.

    Args:
        waiting: Runs that nobody does.
        running: Runs that a worker does, by its handle.
        count: Most runs at a time.
        submit: Hands a run out; its handle.
        done: Waits for a moment; (handle, outcome) of what ended. A run without an outcome is begun anew.
        on_end: As for `schedule`.
        on_begin: As for `schedule`.
    """
    later: list[tuple[float, Job]] = []  # runs of other processes, and when to look again
    while waiting or running or later:
        now = time.monotonic()
        waiting.extend(job for when, job in later if when <= now)
        later = [(when, job) for when, job in later if when > now]
        while waiting and len(running) < count:
            running[submit(waiting[0])] = waiting[0]
            on_begin(waiting.popleft())
        for handle, outcome in done(running):
            job = running.pop(handle)
            if outcome is None:
                waiting.appendleft(job)
            elif outcome.state == "busy":
                later.append((time.monotonic() + BUSY_S, job))
            else:
                on_end(outcome)


def _submit(pool: ProcessPoolExecutor, job: Job) -> Future[Outcome]:
    """Hand a run to a process that does not import the program which wants it.

    It needs nothing of the program, which may have no file that can be imported, or train wherever it is.
    """
    main = vars(sys.modules["__main__"])
    with _holding(main, {name: None for name in ("__spec__", "__file__") if name in main}):
        return pool.submit(work, job)


def _here(running: dict[Any, Job]) -> Iterator[tuple[Any, Outcome]]:
    """Do the run in this process. Raises KeyboardInterrupt once it has saved its rounds."""
    for address, job in list(running.items()):
        outcome = work(job)
        yield address, outcome
        if outcome.reason == "interrupted":
            raise KeyboardInterrupt


def _done(running: dict[Any, Job]) -> Iterator[tuple[Any, Outcome]]:
    """Raises BrokenProcessPool where a worker died, before its run is forgotten."""
    for future in wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done:
        yield future, future.result()


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


def spread(
    jobs: Sequence[Job], address: str, processes: int, told: Callable[[Outcome], None], began: Callable[[Job], None]
) -> None:
    """Do runs on a cluster, several at a time. All machines must see the store and the data at the same paths.

    Args:
        jobs: the runs, in the order in which they begin.
        address: "HOST:PORT" of the cluster, "auto" for the one that runs here, "local" for one of this machine alone.
        processes: runs at a time; 0 takes a core of the cluster each.
        told: called with the end of each run, in this process.
        began: called when a run is handed out.

    A run whose worker is lost goes on from its checkpoint elsewhere. One that loses three workers is given up.

    Raises:
        ConfigError: the package ray is missing, or there is no cluster at the address.
        KeyboardInterrupt: as it came; runs keep their whole rounds.
    """
    cluster = Cluster(address, processes)
    try:
        _spread(jobs, processes or cluster.room(0.0), told, began)
    finally:
        cluster.leave()


def _spread(jobs: Sequence[Job], count: int, told: Callable[[Outcome], None], began: Callable[[Job], None]) -> None:
    import ray

    if count < 1:
        raise ConfigError("the Ray cluster has no core; `ray status` shows what it has")
    task = ray.remote(_work).options(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")
    passed, here = {n: value for n, value in os.environ.items() if n.startswith(PASSED)}, os.getcwd()
    deaths, running = Counter[str](), dict[Any, Job]()

    def submit(job: Job) -> Any:
        return task.remote(job._replace(store=os.path.abspath(job.store)), passed, here)

    def done(handed: dict[Any, Job]) -> Iterator[tuple[Any, Outcome | None]]:
        if not handed:
            time.sleep(0.2)
        for ref in ray.wait(list(handed), num_returns=1, timeout=0.2)[0] if handed else ():
            job = handed[ref]
            try:
                yield ref, _seen(job, ray.get(ref))
            except ray.exceptions.RayError as error:
                deaths[job.address] += 1
                why = f"its worker was lost {DEATHS} times: {type(error).__name__}"
                yield ref, Outcome(job.address, "broken", why) if deaths[job.address] >= DEATHS else None

    try:
        feed(deque(jobs), running, count, submit, done, told, began)
    except BaseException:
        for ref in running:
            ray.cancel(ref)  # KeyboardInterrupt in the run, which ends with whole rounds
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=SAVED_S)
        raise


def _work(job: Job, passed: Mapping[str, str], here: str) -> Outcome:
    """In a worker: do a run, or what is left of it, in the folder where the command was typed.

    A worker begins where its cluster was started. Data, partitions and trackers are named as the user typed them.
    """
    import torch

    os.environ.update(passed)
    with suppress(OSError):  # a machine without this folder does what is named in full
        os.chdir(here)
    torch.set_num_threads(1)
    return work(job)


def _seen(job: Job, outcome: Outcome) -> Outcome:
    """The outcome; "broken" where a machine wrote the run into a store that is not this one."""
    folder = Store(job.store).run_folder(job.address)
    if outcome.state != "finished" or (folder / "summary.json").exists():
        return outcome
    return outcome._replace(state="broken", reason=f"all machines must share the store; {folder} does not exist here")
