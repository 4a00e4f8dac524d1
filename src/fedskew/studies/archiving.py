"""The runs of a study or of a store: named, written as an archive of finished runs without weights, and found there."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import chain
from os.path import lexists
from pathlib import Path
from typing import Any

from fedskew.config.recorded import Run
from fedskew.errors import RecordError, plural, require
from fedskew.records.files import write_atomic, writing
from fedskew.records.typed import Number, Whole, entries, object_of
from fedskew.studies.lines import PACKED, TEXT, archives, files_of
from fedskew.studies.merging import existing, take
from fedskew.studies.store import POINTS, Address, Store, archive_line, ended, packed, read_archive
from fedskew.studies.study import Study

DEFAULT_ARCHIVES = Path("results/studies")  # in the current folder: where archives are found without being named
STATED = dict.fromkeys(("label", "setting", "state", "reason"), str)
Planned = entries("Planned", {"address": str}, {**STATED, "seed": Whole})
Trial = entries("Trial", {"label": str, "setting": str, "options": dict[str, str], "score": Number}, {"chosen": bool})
TEXTS = dict.fromkeys(("title", "notes", "metric", "baseline", "command"), str)
Saved = entries("Study", {"store": str, "runs": list[Planned]}, {"trials": list[Trial], "untuned": list[str], **TEXTS})  # type: ignore[valid-type]


def members(place: str | Path) -> tuple[Store, list[Address], dict[str, Any] | None]:
    """The runs of a study or of a store.

    Args:
        place: A store, or a folder with ``study.json``, or that file.

    Returns:
        (store, addresses of its finished runs, content of study.json or None).

    Raises:
        RecordError: It is neither, is damaged, or the store of the study is not there.
    """
    path = Path(place)
    if (path / "store.json").is_file():
        store = existing(path)
        return store, [address for address in store.addresses() if _entry(store, address)], None
    file = path if path.name == "study.json" else path / "study.json"
    if not file.is_file():
        raise RecordError(f"{str(place)!r} must be a study or a store; it has neither study.json nor store.json")
    study = object_of(file, Saved)
    named = Path(study["store"])  # from the study's folder; before, from where the command was given
    folder = next((p for p in (file.parent / named, named) if (p / "store.json").is_file()), None)
    if folder is None:
        raise RecordError(f"{file} must name its store; there is none at {str(named)!r}")
    store = existing(folder)
    return store, [address for address in _named(study) if _entry(store, address)], study


def folders_of(places: Iterable[str | Path]) -> list[Path]:
    """The places; instead of the folder of a study, the folders of its finished runs. Raises RecordError."""
    runs: list[Path] = []
    for place in map(Path, places):
        if not (place / "study.json").is_file():
            runs.append(place)
            continue
        store, addresses, _ = members(place)
        folders = [folder for address in addresses if (folder := store.run_folder(address)).is_dir()]
        if not folders:
            raise RecordError(f"the study {str(place)!r} must have finished runs in its store; it has none as folders")
        runs += folders
    return runs


def _named(study: dict[str, Any]) -> list[Address]:
    """The addresses that a study names; a run that was refused has none."""
    return Address.among(run["address"] for run in study["runs"])


def runs_of(place: str | Path, failed: bool = False) -> list[Run]:
    """The finished runs of a study, a store or an archive; with ``failed`` those, too, that ended by their own numbers.

    Raises:
        RecordError: As `members`, or a run is damaged.
    """
    if str(place).endswith((TEXT, PACKED)):
        by_address = {run.address: run for run in read_archive(Path(place))}
        return [run for run in by_address.values() if failed or run.state == "finished"]
    store, addresses, study = members(place)
    among = None if study is None else {*_named(study)}
    lost = (run for run in (store.lost() if failed else ()) if among is None or run.address in among)
    return [*filter(None, map(store.entry, addresses)), *(run for run in lost if run.state == "failed")]


def _entry(store: Store, address: Address) -> bool:
    """Whether a run is finished."""
    return store.refusal(address) is None and (ended(store.run_folder(address)) or address in store.archived)


def write(place: str | Path, out: str | Path, points: int = POINTS) -> int:
    """Write the runs of a study or of a store that are over as an archive, in the order of their addresses.

    A run that ended by its own numbers, such as an infinite loss, has a line that says so: which trial of a tuning was
    best depends on it.

    Args:
        place: A study or a store.
        out: The file; one that ends in .xz is compressed. What it held is replaced.
        points: Rounds that are kept of a run, at most; costs of the others are added to the next one that stays.

    Returns:
        The number of runs.

    Raises:
        ConfigError: No run has ended, or a number of rounds below one.
        RecordError: The study cannot be read, or the file not written.
    """
    require(points >= 1, "points", "be at least 1", points)
    file, runs = Path(out), sorted(runs_of(place, failed=True), key=lambda run: run.address)
    require(any(run.state == "finished" for run in runs), "runs", "hold a finished run", str(place))
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
    lines = {run.address: archive_line(run, points).encode() for run in runs}
    write_atomic(file, packed(lines) if file.suffix == ".xz" else b"\n".join([*lines.values(), b""]))
    return len(runs)


def reuse_archived(
    study: Study, folder: str | Path | None, keep: bool = True, say: Callable[[str], None] | None = None
) -> int:  # fmt: skip
    """Let a study find the runs of archives: what they hold is not missing.

    Args:
        study: The study.
        folder: A folder of archives, or one archive; "none"; None: ``results/studies`` here, if it is there.
        keep: Write these runs into an archive of the study's store, so that the store alone holds the study.
        say: Called with a line for each archive that has some: how many, and where.

    Returns:
        The number of runs of the study that are found there and not in its store.

    Raises:
        RecordError: There is no such folder, a line of an archive is no run, or the store cannot be written.
    """
    path = DEFAULT_ARCHIVES if folder is None else Path(folder)
    if folder == "none" or (folder is None and not path.is_dir()):
        return 0
    if not path.is_dir() and not lexists(files_of(path)[0]):
        raise RecordError(f"archives must be a folder or a file; there is none at {str(folder)!r}")
    count, later = Counter[Path](), study.spec.tuning or study.spec.longer
    while True:  # trials decide what is compared, and compared runs how long the baseline trains as a control
        missing = study.missing([*study.trials(), *study.plan()])
        places = [[a for a in (planned.address, planned.earlier, *planned.before) if a] for planned in missing]
        known = _archived(path, {address: others for address, *others in filter(None, places)})
        addresses = (next((a for a in others if a in known), None) for others in places)
        taken = [known[address] for address in sorted({a for a in addresses if a})]
        runs = [run for _, run in taken]
        if keep:
            take(runs, study.store)
        else:
            study.store.archived.update({run.address: run for run in runs})
        count.update(file for file, _ in taken)
        if not (runs and later):
            break
    if say is not None:
        for file, number in sorted(count.items()):
            say(f"{plural(number, 'run')} reused from {' and '.join(map(str, files_of(file)))}")
    return count.total()


def _archived(path: Path, left: dict[str, list[str]]) -> dict[str, tuple[Path, Run]]:
    """Runs of archives and where they are, from the last one that has them.

    Args:
        path: A folder of archives, or one. Once all runs are found, no more are read.
        left: Addresses, and others at which their runs may be.
    """
    known: dict[str, tuple[Path, Run]] = {}
    for file in reversed(archives(path)):
        if not left:
            break
        runs = read_archive(file, {*left, *chain(*left.values())})
        known = {run.address: (file, run) for run in runs} | known
        left = {address: others for address, others in left.items() if address not in known}
    return known
