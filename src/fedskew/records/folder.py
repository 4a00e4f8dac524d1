"""The run folder, the only thing that views of a run read.

It holds config.json, env.json, manifest.json, rounds.jsonl and checkpoint/; at its end final.safetensors, model.json
and summary.json. The manifest has a digest of what is written once; rounds and checkpoint have their own.

Example:
    >>> from fedskew.records.folder import Record, read
    >>> record = Record.create("run", {"method": "fedavg", "rounds": 2})
    >>> record.append({"round": 1, "accuracy": 0.5, "upload_bytes": 8, "download_bytes": 8, "samples": 4,
    ...                "steps": 2, "wall_s": 0.1})
    >>> config, rounds, summary = read("run")
    >>> config["method"], len(rounds), summary["best_accuracy"]
    ('fedavg', 1, 0.5)
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedskew.errors import RecordError
from fedskew.records import clients, digests, manifest, rounds
from fedskew.records.files import (
    DAMAGED,
    INNER,
    Hold,
    UnwritableError,
    held,
    load_tree,
    member,
    save_tree,
    write_atomic,
    write_tensors,
    writing,
)
from fedskew.records.manifest import Manifest
from fedskew.records.rounds import Rounds
from fedskew.records.summary import monitored, summarise
from fedskew.records.typed import Row, object_of
from fedskew.tree import Tree

FORMAT = manifest.FORMAT  # of a run folder
READABLE = (1, 2)  # 1 has no digests: it is read, and not resumed
START, CHECKPOINT = ("config.json", "env.json"), Path("checkpoint") / "state.safetensors"
# what a run that goes on writes again
END = ("final.safetensors", "best.safetensors", "own.safetensors", "model.json", "summary.json")
# what two equal runs may differ in
TIMES = ("wall_s", "select_s", "train_s", "aggregate_s", "evaluate_s", "record_s")


class Record:
    """Writer of a run folder. Make one with `create` or `open`; it holds the folder until `close`."""

    def __init__(self, folder: Path, hold: Hold, vouched: Manifest) -> None:
        self.folder, self._hold, self._manifest = folder, hold, vouched
        for name in INNER:  # what is written there would be written elsewhere
            member(folder, name)
        self._rounds = Rounds(folder, vouched.run)

    @property
    def run(self) -> str:
        """Name of the run, 32 hex digits, the same when it is resumed."""
        return self._manifest.run

    def close(self) -> None:
        """Let other processes write the folder."""
        self._hold.release()

    @classmethod
    def create(cls, folder: str | Path, config: Mapping[str, Any]) -> Record:
        """Start a new run folder.

        Args:
            folder: The folder; it may exist without a run in it.
            config: Configuration of the run.

        Returns:
            The record.

        Raises:
            RecordError: The folder holds a run, cannot be written, or another process writes it.
        """
        path = Path(folder)
        try:
            (path / "checkpoint").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritableError(f"out must be a writable folder; got {str(path)!r}: {error.strerror}") from None
        with held(path) as hold:
            if member(path, rounds.FILE).exists():
                hint = "resume that run, or name another folder"
                raise RecordError(f"out must be a folder without a run; got {str(path)!r}; {hint}")
            _clear(path)
            for name, content in zip(START, ({"format": FORMAT, **config}, environment()), strict=True):
                write_atomic(path / name, _json(content))
            record = cls(path, hold, Manifest.create(path, START))
            record.settle([])  # last: with the file of the rounds the folder holds a run that can be resumed
            return record

    @classmethod
    def open(cls, folder: str | Path) -> Record:
        """Open an existing run folder, to resume it.

        Args:
            folder: The folder.

        Returns:
            The record. Temporary files of a killed process are removed.

        Raises:
            RecordError: The folder holds no run, one of format 1, or one whose configuration was altered; or another
                process writes it.
        """
        path = Path(folder)
        insist_on_run(path, "resume")
        with held(path) as hold:
            vouched = _vouched(path)
            if vouched is None:
                rule = "must be of format 2 to be resumed; got 1, whose files have no digests"
                raise RecordError(f"{path} {rule}; begin the run again in another folder")
            _clear(path)
            return cls(path, hold, vouched)

    def config(self) -> dict[str, Any]:
        """The configuration that the run was started with. Raises RecordError for a damaged file."""
        return _config(self.folder)

    def go_on(self, changed: Mapping[str, Any]) -> None:
        """The run is resumed: what it wrote at its end no longer counts, and entries of its configuration change."""
        self._manifest.forget(END)
        with writing(self.folder / "summary.json"):
            (self.folder / "summary.json").unlink(missing_ok=True)
        self.note(changed)

    def note(self, changed: Mapping[str, Any]) -> None:
        """Change entries of the configuration, which a run learns as it goes. One that becomes None is dropped."""
        config = self.config()
        if any(config.get(name) != value for name, value in changed.items()):
            now = {**config, **changed}
            kept = {name: value for name, value in now.items() if not (name in changed and value is None)}
            self._manifest.replace("config.json", _json(kept))

    def append(self, row: Row) -> None:
        """Append one round. Raises RecordError where it cannot be written."""
        self._rounds.append(row)

    def settle(self, rows: list[Row]) -> None:
        """Make the record hold exactly these rounds: the last may have been written halfway. Raises RecordError."""
        self._rounds.settle(rows)

    def checkpoint(self, content: Tree, facts: Mapping[str, Any]) -> None:
        """Replace the checkpoint by a tree and JSON facts. Raises RecordError where it cannot be written.

        The rounds before it are on the disk first: where the power fails, no checkpoint is without its rounds.
        """
        self._rounds.sync()
        bound = {"run": self._manifest.run, "digest": self._rounds.digest}  # to the rows before it
        save_tree(member(self.folder, CHECKPOINT), content, {**facts, **bound})

    def restore(self) -> tuple[Tree, dict[str, Any], list[Row]] | None:
        """(tree, facts, rounds) of the last checkpoint; rounds after it are dropped. None if there is none yet.

        Raises:
            RecordError: The checkpoint is damaged, a link, or of another run, or a round before it was altered.
        """
        file = member(self.folder, CHECKPOINT)
        if not file.exists():
            self._rounds.keep(0, self._manifest.run)
            return None
        content, facts = load_tree(file)
        if facts["run"] != self._manifest.run:
            raise RecordError(f"{file} is the checkpoint of another run; {DAMAGED}")
        return content, facts, self._rounds.keep(facts["round"], facts["digest"])

    def keep_clients(self, rows: list[Row]) -> None:
        """Replace clients.jsonl, which the manifest vouches for from then on. Raises RecordError."""
        content = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        if clients.FILE in self._manifest.files:
            self._manifest.replace(clients.FILE, content)
        else:  # no kill leaves a file missing that the manifest lists
            write_atomic(self.folder / clients.FILE, content)
            self._manifest.vouch([clients.FILE])

    def clients(self, last: int) -> list[Row]:
        """The rows of clients.jsonl up to a round; those after it are dropped. Raises RecordError."""
        held = clients.read_clients(self.folder) if clients.FILE in self._manifest.files else []
        kept = [row for row in held if row["round"] <= last]
        if len(kept) < len(held):
            self.keep_clients(kept)
        return kept

    def tensors(self, name: str, content: Mapping[str, Tensor]) -> str:
        """Write a file of tensors atomically, and make its folder; its digest. Raises RecordError."""
        path = member(self.folder, name)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(path, content)
        return digests.of_file(path)

    def finish(
        self, summary: Row, models: Mapping[str, Mapping[str, Tensor]], facts: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Write what a run has at its end, and vouch for it.

        Args:
            summary: Content of summary.json.
            models: Tensors by name of each NAME.safetensors.
            facts: Content of each NAME.json beside them.

        Raises:
            RecordError: A file cannot be written.
        """
        self._manifest.forget(END)
        for name, tensors in models.items():
            write_tensors(self.folder / f"{name}.safetensors", tensors)
        for name, content in {**facts, "summary": summary}.items():
            write_atomic(self.folder / f"{name}.json", _json(content))
        names = [*(f"{name}.safetensors" for name in models), *(f"{name}.json" for name in facts), "summary.json"]
        self._manifest.vouch(names, (summary["rounds"], self._rounds.digest))


def _clear(folder: Path) -> None:
    """Remove what a process that was killed had half written."""
    for left in (*folder.rglob(".*.tmp"), *folder.rglob(".tmp??????")):  # ours, and those of safetensors
        with suppress(OSError):  # it is in nobody's way
            left.unlink(missing_ok=True)


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def insist_on_run(folder: Path, named: str = "run") -> None:
    """Raise RecordError, about the option ``named``, unless there is a run folder, whose configuration is no link."""
    if not member(folder, "config.json").is_file():
        lacking = "which has no config.json" if folder.is_dir() else "which is no folder"
        raise RecordError(f"{named} must be a run folder; got {str(folder)!r}, {lacking}")


def check_format(config: Mapping[str, Any], file: Path) -> None:
    """Raise RecordError for a configuration that another version of the format wrote."""
    number = config.get("format", FORMAT)
    if number not in READABLE:
        readable = " and ".join(map(str, READABLE))
        raise RecordError(f"{file} has format {number!r}; this fedskew reads formats {readable}")


def current(config: Mapping[str, Any]) -> Row:
    """A configuration in the terms of this version: version 1 of `dirichlet` cut where it recorded no rounding."""
    return {name: _partition(value) if name == "partition" else value for name, value in config.items()}


def _partition(recorded: Any) -> Any:
    if not isinstance(recorded, Mapping):
        return recorded
    options = {name: _partition(value) if name == "base" else value for name, value in recorded.items()}
    if options.get("name") == "dirichlet" and "version" not in options:
        rounding = options.pop("rounding", None) or "cut"  # a record says no more than what differs from the default
        options |= {"version": 2} if rounding == "largest_remainder" else {"version": 2, "rounding": rounding}
    return options


def check_config(folder: Path) -> None:
    """Raise RecordError where the configuration of a run folder is not as it was written."""
    manifest.check_file(folder, "config.json", remedy=DAMAGED)


def _config(folder: Path) -> Row:
    file = member(folder, "config.json")
    config: Row = object_of(file, Row)
    check_format(config, file)
    return current(config)


def read(folder: str | Path) -> tuple[dict[str, Any], list[Row], dict[str, Any]]:
    """Read a run folder.

    Args:
        folder: The folder.

    Returns:
        (configuration, rounds, summary). Where the run did not end, the summary is computed from the rounds.

    Raises:
        RecordError: It is not a run folder, or a file that is read is not as it was written or is a link.
    """
    path = Path(folder)
    try:
        vouched = _vouched(path)
        config, rows = _config(path), _rows(path, vouched)
    except RecordError as error:
        raise RecordError(f"{str(path)!r} is not a run folder that can be read: {error}") from None
    summary = _summary(path, vouched)
    return config, rows, summary or summarise(rows, class_names=config.get("label_names", ()))


def _vouched(folder: Path) -> Manifest | None:
    """The manifest, its configuration checked; None in a folder of format 1."""
    if not member(folder, manifest.FILE).exists() and _config(folder).get("format", 1) == 1:
        return None
    vouched = Manifest.read(folder)
    vouched.check("config.json")
    return vouched


def _rows(folder: Path, vouched: Manifest | None) -> list[Row]:
    """The rounds, up to a torn last line. Raises RecordError where one was altered."""
    run, last = (vouched.run, vouched.last) if vouched else (None, None)
    file = member(folder, rounds.FILE)
    read = rounds.scan(file, run, last)
    if read.trouble:
        raise RecordError(f"{file} was altered: {read.trouble}; {DAMAGED}")
    return read.rows


def _summary(folder: Path, vouched: Manifest | None) -> Row | None:
    """The summary of a run that has ended."""
    if vouched is not None:
        if "summary.json" not in vouched.files:
            return None
        vouched.check("summary.json", remedy=manifest.AGAIN)
    file = member(folder, "summary.json")
    try:
        return object_of(file, Row) if file.exists() else None
    except RecordError as error:
        raise RecordError(f"{error}; {manifest.AGAIN}") from None


def finished(folder: str | Path, number: int, patience: int | None = None) -> bool:
    """Whether the run of a folder came to its end: it had at least so many rounds, or its ``patience`` was at an end.

    What it wrote at its end must be whole: otherwise it is resumed, which writes it again.

    Raises:
        RecordError: as `read`, for what no resume can mend.
    """
    path = Path(folder)
    vouched = _vouched(path)
    if vouched and any(vouched.trouble(name) for name in END if name in vouched.files):
        return False
    summary = _summary(path, vouched)
    if summary is None or summary["stopped"]:
        return False
    rows, config = _rows(path, vouched), _config(path)
    monitor = monitored(rows, config["monitor"]) if config.get("monitor") else None
    return len(rows) >= number or bool(monitor and patience and monitor.idle >= patience)


def environment() -> dict[str, Any]:
    """Versions of the packages, and the hardware."""
    return {
        "versions": {name: import_module(name).__version__ for name in ("fedskew", "torch", "numpy", "safetensors")},
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


UNLIKE = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


def troubles(folder: str | Path) -> tuple[int, list[str]]:
    """Compare every file of a run folder with its digest.

    What a kill leaves is no trouble: a torn last line, rounds after the checkpoint, temporary files.

    Args:
        folder: A run folder of format 2.

    Returns:
        (rounds that are whole, a line for each file, round or record that is not as it was written).

    Raises:
        RecordError: It is no run folder, or one of format 1, which has no digests.

    Example:
        >>> import fedskew as fs
        >>> from fedskew.records.folder import troubles
        >>> fed = fs.federate("digits", "iid", clients=5)
        >>> done = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=5, out="checked-run")
        >>> troubles("checked-run")
        (2, [])
    """
    path = Path(folder)
    try:
        return _troubles(path)
    except UNLIKE as error:
        words = " ".join(str(error).split())[:120]
        return 0, [f"{path} holds something that no run writes ({type(error).__name__}: {words})"]


def _troubles(path: Path) -> tuple[int, list[str]]:
    """As `troubles`, of files that hold what a run writes."""
    insist_on_run(path)
    try:
        vouched = Manifest.read(path)
    except RecordError as error:
        if not (path / "manifest.json").exists() and read(path)[0].get("format", 1) == 1:
            raise RecordError(f"{str(path)!r} is of format 1, whose files have no digests to compare with") from None
        return 0, [str(error)]
    scanned = rounds.scan(member(path, rounds.FILE), vouched.run, vouched.last)
    lines = [trouble for name in vouched.files if (trouble := vouched.trouble(name))]
    lines += [f"{path / rounds.FILE}: {scanned.trouble}"] if scanned.trouble else []
    lines += [*_of_checkpoint(path, scanned, vouched), *_of_features(path, scanned.rows)]
    return len(scanned.rows), lines


def _of_checkpoint(folder: Path, read: rounds.Scan, vouched: Manifest) -> Iterator[str]:
    try:
        file = member(folder, CHECKPOINT)
        if not file.exists():
            return
        _, facts = load_tree(file)
    except RecordError as error:
        yield str(error)
        return
    number = facts["round"]
    if facts["run"] != vouched.run:
        yield f"{file} is the checkpoint of another run"
    elif len(read.rows) >= number and read.digest(number, vouched.run) != facts["digest"]:
        yield f"{file} does not belong to the rounds before it"


def _of_features(folder: Path, rows: list[Row]) -> Iterator[str]:
    for row in rows:
        if written := row.get("diagnostics", {}).get("features"):
            try:
                features_file(folder, written)
            except RecordError as error:
                yield str(error)


def features_file(folder: Path, written: Row) -> Path:
    """The file that the diagnostic "features" wrote: one of the run's own folder, whatever its row names.

    Args:
        folder: A run folder.
        written: The diagnostic's row.

    Raises:
        RecordError: It is missing, a link, or not as the round wrote it.
    """
    file = member(folder, Path("features") / Path(written["file"]).name)
    if not file.is_file():
        raise RecordError(f"{file} is missing")
    if "digest" in written and digests.of_file(file) != written["digest"]:
        raise RecordError(f"{file} was altered after the run wrote it")
    return file
