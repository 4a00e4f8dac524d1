"""Run folders that no study made, as runs of a store: `fedskew run` and studies give the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedskew.config.experiment import load
from fedskew.config.recorded import Run, read_run
from fedskew.errors import RecordError
from fedskew.studies.address import address, dataset_of
from fedskew.studies.store import env_of


def adopted(folder: str | Path) -> Run:
    """A finished run folder as a run of a store, under its address.

    Args:
        folder: a run folder that the command wrote.

    Returns:
        The run; `fedskew.studies.store.archive_line` writes it.

    Raises:
        RecordError: the folder holds no finished run, or one whose data are not at hand; ConfigError for one that this
            version cannot name.
    """
    path = Path(folder)
    run = read_run(path)
    if run.summary["stopped"]:
        raise RecordError(f"{path} must hold a finished run; it stopped: {run.summary['stopped']}")
    experiment = load(path)
    dataset = dataset_of(experiment.data, experiment.path)
    if experiment.fingerprint not in ("", dataset.fingerprint):
        raise RecordError(f"{path} is of other data: fingerprint {experiment.fingerprint}, here {dataset.fingerprint}")
    return replace(run, folder=Path(address(experiment, dataset)), env=env_of(path))
