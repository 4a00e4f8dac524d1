"""The scheduler over a Ray cluster: a run a task, begun anew elsewhere where its worker or machine is lost."""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedskew.engines.ray.pool import Cluster
from fedskew.errors import ConfigError
from fedskew.studies.pool import DEATHS, feed
from fedskew.studies.store import Store
from fedskew.studies.work import Job, Outcome, work

SAVED_S = 60.0  # that runs have to write their rounds where the study is stopped
PASSED = "FEDSKEW_"  # environment variables that the workers get


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
