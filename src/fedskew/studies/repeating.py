"""A handful of recorded runs repeated, and compared with what the record says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedskew.config.experiment import Experiment, repeatable
from fedskew.config.recorded import Run
from fedskew.errors import FedskewError
from fedskew.fields import deciding
from fedskew.settings import Settings
from fedskew.studies.pool import schedule
from fedskew.studies.same import compared
from fedskew.studies.store import Store
from fedskew.studies.work import RunJob, RunOutcome


@dataclass(frozen=True)
class Repeated:
    """A run that was repeated: "bits", "near" or "differs", or "failed" where it could not be repeated."""

    run: Run
    verdict: str
    words: str = ""


def sample(entries: Sequence[Run], count: int, seed: int = 0) -> list[Run]:
    """So many entries drawn at random, by seed and in the order of their addresses; all where there are no more."""
    listed = sorted(entries, key=lambda entry: entry.address)
    drawn = np.random.Generator(np.random.PCG64(seed)).permutation(len(listed))[:count]
    return [listed[i] for i in sorted(int(i) for i in drawn)]


def repeat(
    runs: Sequence[Run], processes: int = 0, on_run: Callable[[Repeated], None] = lambda repeated: None
) -> list[Repeated]:
    """Repeat runs in a store that is thrown away, and compare every number of their summaries but the times.

    The engine and its threads are those of the record.

    Args:
        runs: The runs.
        processes: Worker processes; 0 takes one a core.
        on_run: Called with each run that is repeated.

    Returns:
        One for each entry, in their order.
    """
    repeated: dict[str, Repeated] = {}
    with TemporaryDirectory(prefix="fedskew-verify-") as room:
        store, by, jobs = Store(room), {run.address: run for run in runs}, []

        def noted(address: str, verdict: str, words: str = "") -> None:
            repeated[address] = Repeated(by[address], verdict, words)
            on_run(repeated[address])

        def ended(outcome: RunOutcome) -> None:
            again = store.entry(outcome.address) if outcome.state == "finished" else None
            if again is None:
                noted(outcome.address, "failed", f"{outcome.state}: {outcome.reason}")
            else:
                noted(outcome.address, *compared(by[outcome.address].summary, again.summary))

        for run in runs:
            try:
                experiment = _experiment(run.config)
                jobs.append(RunJob(run.address, experiment.to_json(experiment.fingerprint), room))
            except (FedskewError, KeyError, OSError, TypeError, ValueError) as error:
                noted(run.address, "failed", f"its configuration cannot be read: {' '.join(str(error).split())}")
        schedule(jobs, processes, ended)
    return [repeated[run.address] for run in runs]


def _experiment(config: dict[str, Any]) -> Experiment:
    """The experiment of a record with the engine that it used, on this machine.

    Data that lay elsewhere are looked for where ours lie. A record says of no cluster that this machine talks to it.

    Raises:
        ConfigError: an entry is unknown, missing or wrong.
        RecordError: an ingredient had another formula then.
    """
    path = config.get("path")
    here = {name: value for name, value in config.items() if name not in deciding(Settings, "nothing")}
    return repeatable({**here, "path": None} if path and not Path(path).exists() else here)
