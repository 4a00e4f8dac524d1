"""Studies whose runs are done in this process: a worker process takes seconds to begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fedskew.studies import repeating, study
from fedskew.studies.work import RunJob, RunOutcome, work


def done(of: study.Study, planned: Sequence[study.Planned] | None = None) -> list[str]:
    """Do what is missing of a study, or of some of its runs; the states."""
    return [work(RunJob(run.address, run.job, str(of.store.folder))).state for run in of.missing(planned)]


def in_this_process(jobs: list[RunJob], processes: int, ended: Callable[[RunOutcome], None]) -> None:
    """Runs one after another; takes the place of `fedskew.studies.pool.schedule`."""
    for job in jobs:
        ended(work(job))


def without_workers(patch: pytest.MonkeyPatch) -> None:
    """Studies that run, or run again, begin no worker."""
    for module in (study, repeating):
        patch.setattr(module, "schedule", in_this_process)
