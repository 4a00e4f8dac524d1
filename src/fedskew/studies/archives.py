"""Finished runs in files of one line a run: what a repository keeps of its studies, without weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedskew.errors import RecordError, require
from fedskew.records.files import write_atomic, writing
from fedskew.studies.merging import take
from fedskew.studies.packing import runs_of
from fedskew.studies.store import POINTS, archive_line, read_archives

if TYPE_CHECKING:
    from fedskew.studies.study import Study


HERE = Path("results/studies")  # in the current folder: where archives are found without being named


def write(place: str | Path, out: str | Path, points: int = POINTS) -> int:
    """Write the runs of a study or of a store that are over as an archive, in the order of their addresses.

    A run that ended by its own numbers, such as an infinite loss, has a line that says so: which trial of a tuning was
    best depends on it.

    Args:
        place: A study or a store.
        out: The file. What it held is replaced.
        points: Rounds that are kept of a run, at most; costs of the others are added to the next one that stays.

    Returns:
        The number of runs.

    Raises:
        ConfigError: No run has ended, or a number of rounds below one.
        RecordError: The study cannot be read, or the file not written.
    """
    require(points >= 1, "points", "be at least 1", points)
    runs = sorted(runs_of(place, failed=True), key=lambda run: run.address)
    require(any(run.state == "finished" for run in runs), "runs", "hold a finished run", str(place))
    with writing(Path(out)):
        Path(out).parent.mkdir(parents=True, exist_ok=True)
    write_atomic(Path(out), "".join(f"{archive_line(run, points)}\n" for run in runs).encode())
    return len(runs)


def lend(study: Study, folder: str | Path | None, keep: bool = True) -> int:
    """Let a study find the runs of archives: what they hold is not missing.

    Args:
        study: The study.
        folder: A folder of archives, or one archive; None: ``results/studies`` of the current folder, if it is there.
        keep: Write these runs into an archive of the study's store, so that the store alone holds the study.

    Returns:
        The number of runs of the study that are found there and not in its store.

    Raises:
        RecordError: There is no such folder, a line of an archive is no run, or the store cannot be written.
    """
    path = HERE if folder is None else Path(folder)
    if folder is None and not path.is_dir():
        return 0
    if not path.exists():
        raise RecordError(f"archives must be a folder or a file; there is none at {str(folder)!r}")
    count, stage = 0, study.trials
    while True:  # the best trial decides whether there are more trials, and what the compared runs are
        missing = study.missing(stage())
        wanted = {address for one in missing for address in (one.address, one.before)}
        known = {run.address: run for run in read_archives(path, wanted)} if missing else {}
        addresses = (next((a for a in (one.address, one.before) if a in known), None) for one in missing)
        runs = [known[address] for address in sorted({a for a in addresses if a})]
        if keep:
            take([run for run in runs if run.state == "finished"], study.store)
            for run in runs:
                if run.state == "failed":
                    study.store.refuse(run.address, "failed", run.reason)
        else:
            study.store.archived.update({run.address: run for run in runs})
        count += len(runs)
        if stage == study.plan:
            return count
        if not runs:
            stage = study.plan
