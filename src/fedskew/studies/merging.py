"""Stores brought together, the union of their runs by address."""

import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedskew.config.recorded import Run
from fedskew.errors import RecordError, content_of, require
from fedskew.records.files import Hold, UnwritableError, sync, write_atomic
from fedskew.records.folder import troubles
from fedskew.studies.runs import is_running, plain_files
from fedskew.studies.same import require_same
from fedskew.studies.store import Address, Store, archive_line, ended, read_archive

BESIDE = ".merge."  # of a store: what is copied stands there until it is whole
ARCHIVE = "merged.jsonl"  # of a store: the archived runs that came from others
BOTH = "both stores"


@dataclass
class Merged:
    """What a merge did: addresses that were taken over, that were there, and why others were not taken."""

    added: list[str] = field(default_factory=list)
    there: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def existing(folder: str | Path) -> Store:
    """The store of a folder, which must be one. Raises RecordError."""
    if not (Path(folder) / "store.json").is_file():
        raise RecordError(f"{str(folder)!r} must be a store; it has no store.json")
    return Store(folder)


def merge(sources: Sequence[Store | Path], into: Store) -> Merged:
    """Copy the runs of stores and archives into a store.

    A run that is finished on one side only is taken from there, and a whole folder goes before a line of an archive. A
    run whose numbers differ between two stores is not taken over, and is named.

    Args:
        sources: The stores and the archives that are read.
        into: The store that gets their runs.

    Returns:
        What was done.

    Raises:
        ConfigError: A source is the target itself.
        RecordError: A store cannot be read or written.
    """
    done = Merged()
    for source in sources:
        same = isinstance(source, Store) and source.folder.resolve() == into.folder.resolve()
        require(not same, "a source", "be another store than the one it is merged into", str(into.folder))
    with into.writing():
        for left in into.folder.glob(f"{BESIDE}*"):  # by a merge that was killed: one at a time has its turn
            shutil.rmtree(left, ignore_errors=True)
        for source in sources:
            if isinstance(source, Store):
                _folders(source, into, done)
                lines = source.archived.values()  # of runs without a folder that was looked at
                runs = [run for run in lines if not ended(source.run_folder(run.address))]
                _lines([*runs, *source.lost()], into, done)
            else:
                _lines(read_archive(source), into, done)
    return done


def _folders(source: Store, into: Store, done: Merged) -> None:
    for folder in sorted((source.folder / "runs").glob("[!.]*")):
        if folder.is_symlink() or not (folder / "rounds.jsonl").is_file():
            continue
        try:
            _folder(source, into, folder, done)
        except UnwritableError:
            raise  # nothing else can be written either
        except RecordError as error:
            done.refused[folder.name] = str(error)


def _folder(source: Store, into: Store, folder: Path, done: Merged) -> None:
    """Take one run folder over. Raises RecordError where it differs, is damaged, or another process writes it."""
    address, target = Address(folder.name), into.run_folder(folder.name)
    if is_running(folder):
        raise RecordError(f"{folder} is in use; merge again when that process has ended")
    whole = ended(folder)
    source_run = source.finished(address) if whole else None  # raises where it is none that can be read
    target_run = into.finished(address)
    if target_run is not None:
        if whole:
            require_same(source_run, target_run, BOTH)
        if ended(target) or not whole:
            done.there.append(address)
            return
    elif (target / "rounds.jsonl").exists() and not whole:
        done.there.append(address)  # neither has ended: each goes on from its own checkpoint
        return
    _replace(folder, target)
    into.forgive(address)
    done.added.append(address)


def _replace(folder: Path, target: Path) -> None:
    """Put a copy in the place of a folder, once its digests are checked. Raises RecordError."""
    store = target.parents[1]
    waiting, old = (store / f"{BESIDE}{target.name}.{end}" for end in ("new", "old"))
    try:
        for name in plain_files(folder):
            (waiting / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, waiting / name)
            sync(waiting / name)
        if faults := troubles(waiting)[1]:
            raise RecordError(f"{folder} was altered: {faults[0]}".replace(str(waiting), str(folder)))
        (waiting / "checkpoint").mkdir(exist_ok=True)
        for made in (waiting / "checkpoint", waiting):
            sync(made)
        if not target.exists():
            os.rename(waiting, target)
            sync(target.parent)
            return
        hold = Hold(target)
        try:
            os.rename(target, old)
            try:
                os.rename(waiting, target)
            except OSError:
                os.rename(old, target)
                raise
            sync(target.parent)
        finally:
            hold.release()
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise RecordError(f"{target} is being written by another process; merge again later") from None
        raise UnwritableError(f"cannot write {target}: {error.strerror}") from None
    finally:
        for left in (waiting, old):
            shutil.rmtree(left, ignore_errors=True)


def _lines(runs: Iterable[Run], into: Store, done: Merged) -> None:
    """Take runs over that have no folder, all at once; of one that cannot be, why, where nothing is known of it."""
    taken = dict[str, Run]()
    for run in runs:
        if run.state != "finished":
            if not into.knows(run.address):
                taken.setdefault(run.address, run)
        elif (target_run := into.finished(run.address)) is None:
            taken[run.address] = run
        else:
            try:
                require_same(run, target_run, BOTH)
                done.there.append(run.address)
            except RecordError as error:
                done.refused[run.address] = str(error)
    take(taken.values(), into)
    done.added += [address for address, run in taken.items() if run.state == "finished"]


def take(runs: Iterable[Run], into: Store) -> None:
    """Add the runs that the store lacks to its archive of runs that came from others; note why others cannot be.

    Raises:
        RecordError: The store cannot be read or written.
    """
    file, listed = into.folder / ARCHIVE, list(runs)
    with into.writing():
        lacking = [run for run in listed if run.state == "finished" and run.address not in into.archived]
        if lacking:
            try:
                before = content_of(file) if file.exists() else b""
            except OSError as error:
                raise RecordError(f"cannot read {file}: {error.strerror}") from None
            lines = [archive_line(run, max(1, len(run.rows))) for run in lacking]
            write_atomic(file, before + "".join(f"{line}\n" for line in lines).encode())
            into.__dict__.pop("archived", None)  # it was read before
        for run in listed:
            if run.state == "finished":
                into.forgive(run.address)
            else:
                into.refuse(run.address, run.state, run.reason)
