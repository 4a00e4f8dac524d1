"""The run folder: config.json env.json rounds.jsonl summary.json checkpoint/ final.safetensors. Views read only it.

A checkpoint is one safetensors file whose header holds the JSON part, replaced atomically: a kill leaves old or new.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fedskew import tree
from fedskew.errors import RecordError
from fedskew.tree import Tree

__all__ = ["TIMES", "Record", "load_tree", "read", "save_tree", "summarise"]

Row = dict[str, Any]
TIMES = ("wall_s", "select_s", "train_s", "aggregate_s", "evaluate_s", "record_s")  # what two equal runs may differ in
METRICS = ("accuracy", "macro_f1", "balanced_accuracy", "loss")


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, or a kill, sees the old content or the new, never a part."""
    _replace(path, lambda waiting: waiting.write_bytes(content))


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> None:
    """Replace a safetensors file as `write_atomic` does, without a second copy of all of it in memory."""
    _replace(path, lambda waiting: save_file(_apart(tensors), waiting, None if header is None else dict(header)))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    waiting = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(waiting)
        with open(waiting, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(waiting, path)
    except (OSError, SafetensorError) as error:
        raise RecordError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the host, contiguous; copies only of those that share memory, which the format refuses."""
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
    """A tree and JSON facts as one safetensors file. Tensors are numbered; their paths stand in the header as lists."""
    pairs = list(tree.flatten(content))
    whole = {f"t{i}": leaf for i, (_, leaf) in enumerate(pairs) if leaf is not None}
    tensors = _apart(whole)
    header = {"facts": json.dumps(facts), "paths": json.dumps([list(p) for p, _ in pairs]), "sum": _digest(tensors)}
    write_tensors(path, tensors, header)


def _digest(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of all tensors: safetensors has none."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def load_tree(path: Path) -> tuple[Tree, dict[str, Any]]:
    """(tree, facts) of `save_tree`. Raises RecordError for a missing or damaged file."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata()
            paths = [tuple(p) for p in json.loads(header["paths"])]
            # clones: a tensor inside the file's mapping is aligned otherwise, and its products round differently
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
    """A run folder that is being written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: str | Path, config: Mapping[str, Any]) -> Record:
        """A new run folder. Raises RecordError where it cannot be written or holds a run already."""
        path = Path(folder)
        if (path / "rounds.jsonl").exists():
            raise RecordError(
                f"out must be a folder without a run; got {str(path)!r}; resume that run, or name another folder"
            )
        try:
            (path / "checkpoint").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"out must be a writable folder; got {str(path)!r}: {error.strerror}") from None
        record = cls(path)
        record.write_json("config.json", config)
        record.write_json("env.json", environment())
        record.write_rows([])  # last: from here on the folder holds a run, and whoever is killed later can resume it
        return record

    @classmethod
    def open(cls, folder: str | Path) -> Record:
        """An existing run folder, for resuming."""
        path = Path(folder)
        if not (path / "config.json").exists():
            raise RecordError(f"resume must be a run folder; got {str(path)!r}, which has no config.json")
        for left in (*path.glob(".*.tmp"), *path.glob("checkpoint/.*.tmp")):
            left.unlink(missing_ok=True)  # half-written by a process that was killed
        return cls(path)

    def config(self) -> dict[str, Any]:
        """What the run was started with. Raises RecordError for a damaged file."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RecordError(f"{self.folder / 'config.json'} is damaged: {error}") from None
        return found

    def write_json(self, name: str, content: Any) -> None:
        """One JSON file, atomically."""
        write_atomic(self.folder / name, (json.dumps(content, indent=1) + "\n").encode())

    def append(self, row: Row) -> None:
        """One round."""
        try:
            with open(self.folder / "rounds.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise RecordError(f"cannot write {self.folder / 'rounds.jsonl'}: {error.strerror}") from None

    def keep_rounds(self, last: int) -> list[Row]:
        """Drop rounds after ``last`` (they were run after the checkpoint) and a torn last line; the rounds kept.

        Raises RecordError, and changes nothing, unless these are rounds 1 to ``last``.
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
        """Replace rounds.jsonl."""
        write_atomic(self.folder / "rounds.jsonl", "".join(json.dumps(r) + "\n" for r in rows).encode())

    def checkpoint(self, content: Tree, facts: Mapping[str, Any]) -> None:
        """Replace the checkpoint."""
        save_tree(self.folder / "checkpoint" / "state.safetensors", content, facts)

    def restore(self) -> tuple[Tree, dict[str, Any]] | None:
        """The last checkpoint, or None where the run was stopped before the first."""
        path = self.folder / "checkpoint" / "state.safetensors"
        return load_tree(path) if path.exists() else None

    def tensors(self, name: str, content: Mapping[str, Tensor]) -> None:
        """A file of tensors, atomically; its folder is made."""
        path = self.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RecordError(f"cannot write {path}: {error.strerror}") from None
        write_tensors(path, content)

    def finish(self, summary: Mapping[str, Any], params: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        """summary.json and final.safetensors, the latter under the model's own names."""
        write_tensors(self.folder / "final.safetensors", {**params, **buffers})
        self.write_json("summary.json", summary)


def _rows(folder: Path) -> list[Row]:
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
    """(config, rounds, summary) of a run folder; the summary is made from the rounds where the run did not end."""
    path = Path(folder)
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        rows, done = _rows(path), path / "summary.json"
        summary = json.loads(done.read_text(encoding="utf-8")) if done.exists() else None
    except (OSError, ValueError) as error:
        raise RecordError(f"{str(path)!r} is not a run folder: {error}") from None
    return config, rows, summary or summarise(rows)


def summarise(rows: list[Row], stopped: str = "") -> dict[str, Any]:
    """Final, best and mean of the last 10 and 50 *rounds* (those evaluated among them) of every metric, and totals."""
    out: dict[str, Any] = {"rounds": rows[-1]["round"] if rows else 0, "stopped": stopped}
    for name in [m for p in ("", "val_", "personal_") for m in (p + n for n in METRICS)]:
        seen = [(row["round"], row[name]) for row in rows if name in row]
        if not seen:
            continue
        best = min if name.endswith("loss") else max
        out[f"final_{name}"], out[f"best_{name}"] = seen[-1][1], best(v for _, v in seen)
        for span in (10, 50):
            last = [v for r, v in seen if r > out["rounds"] - span]
            out[f"mean{span}_{name}"] = sum(last) / len(last) if last else None
    for name in ("upload_bytes", "download_bytes", "samples", "steps", "wall_s"):
        out[f"total_{name}"] = sum(row[name] for row in rows)
    return out


def environment() -> dict[str, Any]:
    """Versions and hardware."""
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
