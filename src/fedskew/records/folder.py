"""The run folder, the only thing that views of a run read.

It holds config.json, env.json, rounds.jsonl, summary.json, final.safetensors, model.json and checkpoint/. A checkpoint
is one safetensors file whose header holds the JSON part. It is replaced atomically: after a kill you find the old one
or the new one.

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

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedskew import tree
from fedskew.errors import RecordError
from fedskew.records.lock import Hold, held
from fedskew.records.summary import summarise
from fedskew.tree import Tree

__all__ = ["FORMAT", "TIMES", "Record", "check_format", "finished", "load_tree", "read", "save_tree"]

Row = dict[str, Any]
FORMAT = 1  # of a run folder; reading another raises RecordError
# what two equal runs may differ in
TIMES = ("wall_s", "select_s", "train_s", "aggregate_s", "evaluate_s", "record_s")


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader, or a kill, sees the old content or the new.

    Args:
        path: The file.
        content: Its new content.

    Raises:
        RecordError: The file cannot be written.
    """
    _replace(path, lambda waiting: waiting.write_bytes(content))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> None:
    """Replace a safetensors file atomically, without a second copy of all tensors in memory.

    Args:
        path: The file.
        tensors: Tensors by name.
        header: Strings for the header.

    Raises:
        RecordError: The file cannot be written.
    """
    _replace(path, lambda waiting: save_file(_apart(tensors), waiting, None if header is None else dict(header)))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file, sync it, and rename it."""
    waiting = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(waiting)
        with open(waiting, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(waiting, path)
    except BaseException as error:
        with suppress(OSError):  # what is half written takes room on a full disk
            waiting.unlink(missing_ok=True)
        if isinstance(error, OSError | SafetensorError):
            raise RecordError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None
        raise


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the host, contiguous. Tensors that share memory are copied, because the format requires it."""
    seen: set[int] = set()
    found = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        memory = plain.untyped_storage()
        shared = memory.data_ptr() in seen or memory.nbytes() != plain.numel() * plain.element_size()
        seen.add(memory.data_ptr())
        found[name] = plain.clone() if shared else plain
    return found


def save_tree(path: Path, content: Tree, facts: Mapping[str, Any]) -> None:
    """Write a tree and JSON facts as one safetensors file. Tensors are numbered; the header lists their paths.

    Args:
        path: The file.
        content: A tree of tensors.
        facts: What JSON can hold.

    Raises:
        RecordError: The file cannot be written.
    """
    pairs = list(tree.flatten(content))
    whole = {f"t{i}": leaf for i, (_, leaf) in enumerate(pairs) if leaf is not None}
    tensors = _apart(whole)
    header = {"facts": json.dumps(facts), "paths": json.dumps([list(p) for p, _ in pairs]), "sum": _digest(tensors)}
    write_tensors(path, tensors, header)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of all tensors; safetensors has none."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def load_tree(path: Path) -> tuple[Tree, dict[str, Any]]:
    """Read what `save_tree` wrote.

    Args:
        path: The file.

    Returns:
        (tree, facts).

    Raises:
        RecordError: The file is missing or damaged.

    Example:
        >>> from pathlib import Path
        >>> import torch
        >>> from fedskew.records.folder import load_tree, save_tree
        >>> save_tree(Path("state.safetensors"), {"server": {"w": torch.tensor([1.0, 2.0])}}, {"round": 3})
        >>> load_tree(Path("state.safetensors"))
        ({'server': {'w': tensor([1., 2.])}}, {'round': 3})
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata()
            paths = [tuple(p) for p in json.loads(header["paths"])]
            # clones: memory mapped from the file has another alignment, so products would round differently
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            if _digest(tensors) != header["sum"]:
                raise ValueError("its checksum does not fit its tensors")
            pairs = [(p, tensors.get(f"t{i}")) for i, p in enumerate(paths)]
            return tree.unflatten(pairs), json.loads(header["facts"])
    except FileNotFoundError:
        raise RecordError(f"no checkpoint at {path}") from None
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"checkpoint {path} is damaged: {error}") from None


class Record:
    """Writer of a run folder. Make one with `create` or `open`; it holds the folder until `close`."""

    def __init__(self, folder: Path, hold: Hold) -> None:
        self.folder, self._hold = folder, hold

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
            raise RecordError(f"out must be a writable folder; got {str(path)!r}: {error.strerror}") from None
        with held(path) as hold:
            if (path / "rounds.jsonl").exists():
                raise RecordError(
                    f"out must be a folder without a run; got {str(path)!r}; resume that run, or name another folder"
                )
            _clear(path)
            record = cls(path, hold)
            record.write_json("config.json", {"format": FORMAT, **config})
            record.write_json("env.json", environment())
            record.write_rows([])  # last: with this file the folder holds a run that can be resumed
            return record

    @classmethod
    def open(cls, folder: str | Path) -> Record:
        """Open an existing run folder, to resume it.

        Args:
            folder: The folder.

        Returns:
            The record. Temporary files of a killed process are removed.

        Raises:
            RecordError: The folder holds no run, or another process writes it.
        """
        path = Path(folder)
        if not (path / "config.json").exists():
            raise RecordError(f"resume must be a run folder; got {str(path)!r}, which has no config.json")
        with held(path) as hold:
            _clear(path)
            return cls(path, hold)

    def config(self) -> dict[str, Any]:
        """The configuration that the run was started with. Raises RecordError for a damaged file."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.folder / 'config.json'} is damaged: {error}") from None
        check_format(found, self.folder / "config.json")
        return found

    def write_json(self, name: str, content: Any) -> None:
        """Replace a JSON file of the folder atomically. Raises RecordError where it cannot be written."""
        write_atomic(self.folder / name, (json.dumps(content, indent=1) + "\n").encode())

    def append(self, row: Row) -> None:
        """Append one round. Raises RecordError where it cannot be written."""
        try:
            with open(self.folder / "rounds.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise RecordError(f"cannot write {self.folder / 'rounds.jsonl'}: {error.strerror}") from None

    def keep_rounds(self, last: int) -> list[Row]:
        """Drop the rounds after the checkpoint, and a torn last line.

        Args:
            last: Round of the checkpoint.

        Returns:
            Rounds 1 to ``last``.

        Raises:
            RecordError: The file does not hold these rounds in order; it is then left as it is.
        """
        rows = [row for row in _rows(self.folder) if row.get("round", 0) <= last]
        held = [row.get("round") for row in rows]
        if held != list(range(1, last + 1)):
            lost = next((r for r in range(1, last + 1) if r not in held), None)
            told = f"round {lost} is missing" if lost else "they are out of order"
            file = self.folder / "rounds.jsonl"
            raise RecordError(
                f"{file} must hold rounds 1 to {last}, those before the checkpoint; {told}; it was altered"
            )
        self.write_rows(rows)
        return rows

    def write_rows(self, rows: list[Row]) -> None:
        """Replace rounds.jsonl. Raises RecordError where it cannot be written."""
        write_atomic(self.folder / "rounds.jsonl", "".join(json.dumps(r) + "\n" for r in rows).encode())

    def checkpoint(self, content: Tree, facts: Mapping[str, Any]) -> None:
        """Replace the checkpoint by a tree and JSON facts. Raises RecordError where it cannot be written."""
        save_tree(self.folder / "checkpoint" / "state.safetensors", content, facts)

    def restore(self) -> tuple[Tree, dict[str, Any]] | None:
        """(tree, facts) of the last checkpoint; None if there is none yet. Raises RecordError for a damaged one."""
        path = self.folder / "checkpoint" / "state.safetensors"
        return load_tree(path) if path.exists() else None

    def tensors(self, name: str, content: Mapping[str, Tensor]) -> None:
        """Write a file of tensors atomically, and make its folder. Raises RecordError where it cannot be written."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}") from None
        write_tensors(path, content)

    def finish(self, summary: Row, params: Mapping[str, Tensor], buffers: Mapping[str, Tensor], **facts: Row) -> None:
        """Write final.safetensors with the model's own names, NAME.json for each of ``facts``, and summary.json.

        Args:
            summary: Content of summary.json.
            params: Final parameters.
            buffers: Final BatchNorm statistics.
            **facts: What prediction needs beside them, by name.

        Raises:
            RecordError: A file cannot be written.
        """
        write_tensors(self.folder / "final.safetensors", {**params, **buffers})
        for name, content in facts.items():
            self.write_json(f"{name}.json", content)
        self.write_json("summary.json", summary)


def _clear(folder: Path) -> None:
    """Remove what a process that was killed had half written."""
    for left in (*folder.rglob(".*.tmp"), *folder.rglob(".tmp??????")):  # ours, and those of safetensors
        with suppress(OSError):  # it is in nobody's way
            left.unlink(missing_ok=True)


def check_format(config: Mapping[str, Any], file: Path) -> None:
    """Raise RecordError for a configuration that another version of the format wrote."""
    found = config.get("format", FORMAT)
    if found != FORMAT:
        raise RecordError(f"{file} has format {found!r}; this fedskew reads format {FORMAT}")


def _rows(folder: Path) -> list[Row]:
    """The rounds of a folder, up to the first torn line."""
    rows: list[Row] = []
    if not (folder / "rounds.jsonl").exists():
        return rows  # the run was killed before its first round
    for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break  # a torn last line: the run was killed while writing it
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows


def read(folder: str | Path) -> tuple[dict[str, Any], list[Row], dict[str, Any]]:
    """Read a run folder.

    Args:
        folder: The folder.

    Returns:
        (configuration, rounds, summary). Where the run did not end, the summary is computed from the rounds.

    Raises:
        RecordError: It is not a run folder.
    """
    path = Path(folder)
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        rows, done = _rows(path), path / "summary.json"
        summary = json.loads(done.read_text(encoding="utf-8")) if done.exists() else None
    except (OSError, ValueError) as error:
        raise RecordError(f"{str(path)!r} is not a run folder: {error}") from None
    return config, rows, summary or summarise(rows, class_names=config.get("label_names", ()))


def finished(folder: str | Path, rounds: int) -> bool:
    """Whether the run of a folder came to its end, and had at least so many rounds. Raises RecordError as `read`."""
    _, rows, summary = read(folder)
    return (Path(folder) / "summary.json").exists() and not summary["stopped"] and len(rows) >= rounds


def environment() -> dict[str, Any]:
    """Versions of the packages, and the hardware."""
    versions = {}
    for name in ("fedskew", "torch", "numpy", "safetensors"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "versions": versions,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
