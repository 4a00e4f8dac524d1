"""A study or a store as one zip file that can be handed on, or as an archive of finished runs without weights.

study.json          what was compared, where a study is packed
archive.jsonl       every run, one a line, without weights
runs/ADDRESS/...    whole run folders, where they were asked for
"""

import json
import re
import shutil
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from itertools import chain
from os.path import lexists
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedskew.config.recorded import Run
from fedskew.errors import DataError, RecordError, plural, regular, require
from fedskew.records.files import replace_whole, write_atomic, writing
from fedskew.records.typed import Number, Whole, entries, object_of
from fedskew.studies.lines import PACKED, RATIO, TEXT, archives, files_of, forms, may_hold
from fedskew.studies.merging import Merged, existing, merge, take
from fedskew.studies.runs import plain_files
from fedskew.studies.same import require_same
from fedskew.studies.store import POINTS, Address, Store, archive_line, ended, packed, read_archive, united
from fedskew.studies.study import Study

NAMES = re.compile(  # of what a zip may hold
    r"manifest\.json|study\.json|archive\.jsonl"
    r"|runs/[0-9a-f]{16}/(?:(?:checkpoint/state|final|best|own|features/round-\d{1,9})\.safetensors"
    r"|memory\.bin|(?:model|summary|env|manifest|config)\.json|(?:rounds|clients)\.jsonl)"
)
STAMP = (1980, 1, 1, 0, 0, 0)  # of every file: equal content gives an equal zip
UNREADABLE = (  # what zipfile raises of a file that is damaged, encrypted, or made to do harm
    zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError, EOFError, ValueError, LookupError,
    OverflowError,
)  # fmt: skip
ROOM = ".unpack-"  # of a store: where a zip stands until its runs are taken
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
        return [run for _, run in united(files_of(Path(place))) if failed or run.state == "finished"]
    store, addresses, study = members(place)
    noted = (store.noted() if study is None else _named(study)) if failed else []
    lost = [address for address in noted if (refusal := store.refusal(address)) and refusal[0] == "failed"]
    return list(filter(None, map(store.entry, [*addresses, *lost])))


def _entry(store: Store, address: Address) -> bool:
    """Whether a run is finished."""
    return store.refusal(address) is None and (ended(store.run_folder(address)) or address in store.archived)


# Packing


def pack(place: str | Path, out: str | Path, whole: bool = False) -> int:
    """Write the finished runs of a study or of a store as a zip file.

    Args:
        place: A store, or a folder with ``study.json``.
        out: The zip file; one that is there is replaced.
        whole: Whether run folders go into it, with weights and every round; else one line a run.

    Returns:
        How many runs it holds.

    Raises:
        RecordError: It is neither a study nor a store, a run is damaged, or the file cannot be written.
        DataError: No run has ended.
    """
    store, addresses, study = members(place)
    if not addresses:
        raise DataError(f"{str(place)!r} must hold a finished run")

    def write(waiting: Path) -> None:
        if not _write(waiting, _content(store, addresses, study, whole), zipfile.ZIP_DEFLATED):
            _write(waiting, _content(store, addresses, study, whole), zipfile.ZIP_STORED)  # it shrank like a bomb

    replace_whole(Path(out), write)
    return len(addresses)


def _write(file: Path, content: Iterable[tuple[str, bytes | Path]], how: int) -> bool:
    """Write a zip; whether `unpack` takes its ratio."""
    with zipfile.ZipFile(file, "w") as out:
        for name, inside in content:
            _add(out, name, inside, how)
        size = sum(facts.file_size for facts in out.infolist())
    return size <= may_hold(file.stat().st_size)


def _content(
    store: Store, addresses: list[Address], study: dict[str, Any] | None, whole: bool
) -> Iterator[tuple[str, bytes | Path]]:
    """(name, content) of each file."""
    if study is not None:
        yield "study.json", json.dumps({**study, "store": ""}, indent=1).encode()  # a path of this machine
    runs = filter(None, map(store.entry, addresses))
    yield "archive.jsonl", "".join(f"{archive_line(run)}\n" for run in runs).encode()
    for address in addresses if whole else ():
        folder = store.run_folder(address)
        for name in plain_files(folder):
            yield f"runs/{address}/{name}", folder / name


def _add(file: zipfile.ZipFile, name: str, content: bytes | Path, how: int) -> None:
    """Put a file into a zip."""
    entry = zipfile.ZipInfo(name, STAMP)
    entry.compress_type, entry.external_attr = how, 0o644 << 16
    with (
        BytesIO(content) if isinstance(content, bytes) else open(content, "rb") as source,
        file.open(entry, "w", force_zip64=True) as target,
    ):
        shutil.copyfileobj(source, target)


# Unpacking


def unpack(path: str | Path, into: str | Path) -> tuple[Merged, Path | None]:
    """Check a zip file that `pack` wrote, and merge its runs into a store.

    Nothing reaches the store before every name and checksum is looked at.

    Args:
        path: The zip file.
        into: The store, made where there is none.

    Returns:
        (what was merged, the study.json that was written, if the zip holds one).

    Raises:
        RecordError: The file is no such zip, or is damaged, or holds what none has; the store cannot be written.
    """
    place, folder = Path(path), Path(into)
    store = Store(folder)
    try:
        with zipfile.ZipFile(regular(place)) as file, store.writing():
            _check(file, place)
            for left in folder.glob(f"{ROOM}*"):  # by a process that was killed: only who holds the store unpacks
                shutil.rmtree(left, ignore_errors=True)
            with TemporaryDirectory(prefix=ROOM, dir=folder) as room:
                file.extractall(room)
                return _taken(Path(room), store, place, _study_of(Path(room), place))
    except UNREADABLE as error:
        raise RecordError(f"{place} is not a readable zip: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise RecordError(f"cannot unpack {place}: {error.strerror or error}") from None


def _study_of(room: Path, place: Path) -> dict[str, Any] | None:
    """The study that was unpacked, if there is one. Raises RecordError where it or a line of the archive is none."""
    kept = room / "study.json"
    try:
        for _ in read_archive(room / "archive.jsonl"):
            pass
        return object_of(kept, Saved) if kept.exists() else None
    except RecordError as error:
        raise RecordError(str(error).replace(str(room), str(place))) from None


def _taken(room: Path, store: Store, place: Path, study: dict[str, Any] | None) -> tuple[Merged, Path | None]:
    """Take what was unpacked into a store. Raises RecordError."""
    named = place.stem.strip(".") or "study"  # of "...zip" it would be the folder above
    target = store.folder / "studies" / named / "study.json"
    content = {**study, "store": str(store.folder)} if study is not None else None
    if content is not None and target.exists() and object_of(target, Saved) != content:
        raise RecordError(f"{target} is another study; unpack into another store, or rename {place.name}")
    merged = merge([Store(room)], store)
    if content is None:
        return merged, None
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(target, json.dumps(content, indent=1).encode())
    return merged, target


def _check(file: zipfile.ZipFile, place: Path) -> None:
    """Raise RecordError where a zip holds what `pack` does not write."""
    inside = {entry.filename: entry for entry in file.infolist()}
    if len(inside) != len(file.infolist()):
        raise RecordError(f"{place} holds a name twice")
    for name, entry in inside.items():
        if not NAMES.fullmatch(name) or entry.is_dir() or (entry.external_attr >> 16) & 0o170000 not in (0, 0o100000):
            raise RecordError(f"{place} must hold only files of a study; got {name!r}")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise RecordError(f"{place} must be compressed as `fedskew study pack` does; {name!r} is not")
    size = sum(entry.file_size for entry in inside.values())
    if size > may_hold(place.stat().st_size):
        raise RecordError(f"{place} unpacks to {size} bytes, more than {RATIO} times its size: it is no study")
    if "archive.jsonl" not in inside:
        raise RecordError(f"{place} must hold archive.jsonl")


# Archives


def write(place: str | Path, out: str | Path, points: int = POINTS) -> int:
    """Write the runs of a study or of a store that are over as an archive, in the order of their addresses.

    A run that ended by its own numbers, such as an infinite loss, has a line that says so: which trial of a tuning was
    best depends on it.

    Args:
        place: A study or a store.
        out: The file; one that ends in .xz is compressed. What it held is replaced. Beside the compressed file of
            its name, a text gets the runs that are not in there.
        points: Rounds that are kept of a run, at most; costs of the others are added to the next one that stays.

    Returns:
        The number of runs. No file is written if the compressed one beside it has them all.

    Raises:
        ConfigError: No run has ended, or a number of rounds below one.
        RecordError: The study cannot be read, the file not written, or the file beside it differs in a run.
    """
    require(points >= 1, "points", "be at least 1", points)
    file, runs = Path(out), sorted(runs_of(place, failed=True), key=lambda run: run.address)
    require(any(run.state == "finished" for run in runs), "runs", "hold a finished run", str(place))
    beside = forms(file).packed
    if file.name.endswith(TEXT) and beside.is_file():
        there = {run.address: run for _, run in united([beside])}
        for run in runs:
            require_same(there.get(run.address), run, f"{beside} and {str(place)!r}")
        runs = [run for run in runs if run.address not in there or run.state != there[run.address].state]
    if runs:
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        lines = {run.address: archive_line(run, points).encode() for run in runs}
        write_atomic(file, packed(lines) if file.suffix == ".xz" else b"\n".join([*lines.values(), b""]))
    return len(runs)


def compress(archive: str | Path) -> tuple[int, Path]:
    """Put the text of an archive into its compressed file, with the runs that are there, and remove the text.

    Equal lines give equal bytes. A process that is killed leaves both files, which are one archive as well.

    Args:
        archive: One of its files.

    Returns:
        (number of runs, the compressed file).

    Raises:
        RecordError: A file cannot be read or written, a line is no run, or both files differ in a run.
    """
    target, text = forms(Path(archive))
    seen = text.stat() if text.is_file() else None
    runs = united(files_of(text))
    write_atomic(target, packed({run.address: line for line, run in runs}))
    if seen and (seen.st_ino, seen.st_mtime_ns) == ((now := text.stat()).st_ino, now.st_mtime_ns):
        text.unlink()  # a later one holds runs that were not read
    return len(runs), target


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
    count, stage = Counter[Path](), study.trials
    while True:  # trials decide what is compared, and compared runs how long the baseline trains as a control
        missing = study.missing(stage())
        places = [[a for a in (one.address, one.earlier, *one.before) if a] for one in missing]
        known = _archived(path, {address: others for address, *others in filter(None, places)})
        addresses = (next((a for a in others if a in known), None) for others in places)
        taken = [known[address] for address in sorted({a for a in addresses if a})]
        runs = [run for _, run in taken]
        if keep:
            take([run for run in runs if run.state == "finished"], study.store)
            for run in runs:
                if run.state == "failed":
                    study.store.refuse(run.address, "failed", run.reason)
        else:
            study.store.archived.update({run.address: run for run in runs})
        count.update(file for file, _ in taken)
        if stage == study.plan and not (runs and study.spec.longer):
            break
        if not runs:
            stage = study.plan
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
