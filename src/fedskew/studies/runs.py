"""Run folders found, described, chosen and deleted, by their configuration and summary: rounds are not read."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedskew.config.recorded import CONFIG, SUMMARY, UNLIKE, object_of
from fedskew.config.variants import flat, label_of
from fedskew.errors import FedskewError, RecordError, from_json
from fedskew.records import rounds
from fedskew.records.folder import check_format
from fedskew.records.lock import Hold

__all__ = [
    "OWN",
    "Listed",
    "below",
    "described",
    "differing",
    "is_running",
    "listed",
    "method_of",
    "own_files",
    "plain_files",
    "remove",
]

Row = dict[str, Any]
INNER = ("checkpoint", "features")  # folders of a run that hold no run
# what a run writes: nothing else is ever deleted
OWN = (
    "checkpoint/state.safetensors", "memory.bin", "final.safetensors", "best.safetensors", "model.json",
    "summary.json", "env.json", "manifest.json", "rounds.jsonl", "config.json",
)  # fmt: skip
UNSAID = ("method.name", "fingerprint", "folder")
LARGE = ("counts", "label_names")  # entries that no list shows
TAIL = 1 << 16  # bytes of the rounds that are read where a run has no summary
MOST = 1 << 24
ENDED = ("interrupted", "time limit")  # why a run stopped, where nothing failed


@dataclass(frozen=True)
class Listed:
    """What a list says of a run.

    Attributes:
        folder: The run folder.
        config: Content of config.json; empty where it is damaged.
        summary: Content of summary.json; of a run without one, what its last rounds say.
        state: "finished", "stopped", "running", "failed" or "damaged".
        reason: Why it stopped, failed or cannot be read.
        written: When it was last written, seconds since 1970.
    """

    folder: Path
    config: Row
    summary: Row
    state: str
    reason: str
    written: float

    @cached_property
    def label(self) -> str:
        """The method and what differs from that of the table."""
        return method_of(self.config)

    @property
    def shown(self) -> Row:
        """What the columns of a list are made of."""
        summary = self.summary
        return {
            "folder": str(self.folder),
            "method": self.label,
            "data": _named(self.config.get("data")).partition(" (")[0],
            "partition": _named(self.config.get("partition")),
            "seed": self.config.get("seed"),
            "rounds": summary.get("rounds"),
            "asked": self.config.get("rounds"),
            "accuracy": summary.get("final_accuracy"),
            "state": self.state,
            "reason": self.reason,
            "age": (time.time() - self.written) / 86400,
        }

    @cached_property
    def fields(self) -> Row:
        """Every entry of the configuration and of the summary by dotted path; those of `shown` go before them."""
        config = flat({k: v for k, v in self.config.items() if k not in LARGE})
        return {**config, **flat(self.summary), **self.shown}


def below(places: Iterable[str | Path]) -> list[Path]:
    """Run folders at or below these places, each once; links to folders are not followed.

    Raises:
        RecordError: a place is not there.
    """
    found: dict[Path, Path] = {}
    for place in map(Path, places):
        if not place.is_dir():
            raise RecordError(f"there is no run at {str(place)!r}: no such folder")
        for folder in _walk(place):
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def _walk(place: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(place):
        mine = "config.json" in files and "rounds.jsonl" in files
        inner[:] = sorted(name for name in inner if not (name.startswith(".") or (mine and name in INNER)))
        if mine:
            yield Path(folder)


def listed(folder: Path) -> Listed:
    """What a list says of a run folder. Nothing is raised: a folder that cannot be read is listed as damaged."""
    summary: Row | None = None
    config: Row = {}
    written, state, reason = 0.0, "", ""
    with suppress(OSError):
        written = (folder / rounds.FILE).stat().st_mtime
    try:
        config = object_of(folder / "config.json", CONFIG, "config.json")
        check_format(config, folder / "config.json")
        if (file := folder / "summary.json").exists():
            summary, written = object_of(file, SUMMARY, file.name), file.stat().st_mtime
    except (OSError, FedskewError) as error:
        state, reason = "damaged", str(error)
    if is_running(folder):
        state, reason = "running", ""
    elif not state and summary is None:
        state, reason = "stopped", "killed"
    elif not state and summary:
        stopped = summary["stopped"]
        state, reason = (
            ("failed" if stopped and stopped not in ENDED else "stopped" if stopped else "finished"),
            stopped,
        )
    return Listed(folder, config, _last(folder / rounds.FILE) if summary is None else summary, state, reason, written)


def described(places: Iterable[str | Path]) -> list[Listed]:
    """`listed` of every run folder `below` these places.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", "iid", clients=5)
        >>> done = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=5, out="listed-runs/a")
        >>> [(run.label, run.state, run.summary["rounds"]) for run in described(["listed-runs"])]
        [('fedavg', 'finished', 2)]
    """
    return [listed(folder) for folder in below(places)]


def differing(runs: Sequence[Listed], settings: Sequence[Row]) -> list[tuple[str, list[Any]]]:
    """(setting, its value in each run) of the settings in which runs differ; None where a run lacks it.

    The method stands first where it differs. An option of an ingredient counts where it differs between runs that have
    this ingredient.

    Args:
        runs: The runs.
        settings: Of each run, what decides its numbers, by dotted path.
    """
    found: list[tuple[str, list[Any]]] = []
    if len({run.label for run in runs}) > 1:
        found.append(("method", [run.label for run in runs]))
    for path in dict.fromkeys(path for one in settings for path in one):
        if path in UNSAID or (path.startswith("method.parts.") and path.endswith(".name")):
            continue  # the label says it
        owner, _, end = path.rpartition(".")
        by: dict[Any, list[Any]] = {}
        for one in settings:
            by.setdefault(one.get(f"{owner}.name", "") if end != "name" else "", []).append(one.get(path))
        if any(v != group[0] for name, group in by.items() if name is not None for v in group):
            found.append((path, [one.get(path) for one in settings]))
    return found


def remove(run: Listed, within: Sequence[str | Path]) -> str:
    """Delete what a run wrote, and its folder where nothing else is in it.

    Args:
        run: The run.
        within: Folders outside of which nothing is deleted.

    Returns:
        "" where the folder is gone; else why it, or some of it, is still there.
    """
    folder = run.folder
    if why := _kept(folder, within):
        return why
    try:
        hold = Hold(folder)
    except RecordError as error:
        return str(error)
    try:
        for name in (
            *_halfway(folder),
            *own_files(folder),
        ):  # what makes it a run folder goes last: a kill leaves one that can be deleted
            (folder / name).unlink(missing_ok=True)
        for name in INNER:
            with suppress(OSError):  # not there, or it holds something else
                (folder / name).rmdir()
        (folder / ".lock").unlink(missing_ok=True)
    except OSError as error:
        return f"{folder} cannot be deleted: {error.strerror}"
    finally:
        hold.release()
    try:
        (folder / ".lock").unlink(missing_ok=True)  # some systems let nobody delete a file that is locked
        folder.rmdir()
    except OSError:
        return f"{folder} stays: it holds files that no run wrote, {_some(folder)}"
    return ""


def _kept(folder: Path, within: Sequence[str | Path]) -> str:
    """Why a folder must not be deleted; "" where it may."""
    whole = Path(os.path.abspath(folder))
    root = next((r for r in (Path(os.path.abspath(w)) for w in within) if whole == r or r in whole.parents), None)
    if root is None:
        return f"{folder} stays: it is outside of the folders that are named"
    steps = [root, *(root.joinpath(*whole.relative_to(root).parts[: i + 1]) for i in range(len(whole.parts)))]
    if any(step.is_symlink() for step in steps):
        return f"{folder} stays: it is behind a link"
    plain = all(_is_plain(whole / name) for name in ("config.json", rounds.FILE))
    return "" if plain else f"{folder} stays: it is no run folder"


def _is_plain(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        return False


def own_files(folder: Path) -> list[str]:
    """The names of what a run may have written, behind no link; what makes a run folder comes last."""
    features = folder / "features"
    drawn = [] if features.is_symlink() else sorted(f"features/{p.name}" for p in features.glob("round-*.safetensors"))
    return [*drawn, *(name for name in OWN if not (folder / name).parent.is_symlink())]


def plain_files(folder: Path) -> list[str]:
    """The names of what a run wrote and may be copied: regular files, none of them behind a link."""
    return [] if folder.is_symlink() else [name for name in own_files(folder) if _is_plain(folder / name)]


def _halfway(folder: Path) -> list[str]:
    """What a killed run had half written."""
    return [p.name for p in (*folder.glob(".*.tmp"), *folder.glob(".tmp??????")) if not p.is_dir()]


def _some(folder: Path) -> str:
    try:
        found = sorted(p.name for p in folder.iterdir())
    except OSError:
        return "which cannot be listed"
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{more}"


def is_running(folder: Path) -> bool:
    """Whether a process writes a run folder.

    The lock is tried only where an owner is noted, so that nobody finds a free folder locked by a list.
    """
    if not (folder / ".owner.json").exists() or not (folder / ".lock").exists():
        return False
    try:
        import fcntl
    except ImportError:  # a system without it: the note is all that is known
        return True
    try:
        lock = os.open(folder / ".lock", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _last(file: Path) -> Row:
    """What the end of the rounds says, of a run without a summary: how many they are, and the last accuracy."""
    size = TAIL
    try:
        with open(file, "rb") as stream:
            whole = stream.seek(0, os.SEEK_END)
            while True:
                stream.seek(max(0, whole - size))
                found = [row for line in stream.read(size).splitlines() if (row := _row(line))]
                if found or size >= min(whole, MOST):
                    break
                size *= 8
    except OSError:
        return {}
    accuracy = next((row["accuracy"] for row in reversed(found) if isinstance(row.get("accuracy"), float)), None)
    seen = {} if accuracy is None else {"final_accuracy": accuracy}
    return {"rounds": found[-1]["round"] if found else 0, **seen}


def _row(line: bytes) -> Row | None:
    try:
        found = from_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("round"), int) else None


def method_of(config: Mapping[str, Any]) -> str:
    """The method of a configuration and what differs from that of the table; "" where it names none."""
    method = config.get("method")
    if not isinstance(method, Mapping):
        return str(method or "")
    key = repr(method)
    if key not in _KNOWN:
        try:
            _KNOWN[key] = label_of(method)
        except UNLIKE:
            _KNOWN[key] = str(method.get("name", ""))
    return _KNOWN[key]


_KNOWN: dict[str, str] = {}


def _named(value: Any) -> str:
    """An ingredient with its options, such as "dirichlet (alpha 0.1)"."""
    if not isinstance(value, Mapping):
        return str(value or "")
    told = [f"{k} {_short(v)}" for k, v in value.items() if k != "name" and isinstance(v, int | float)]
    return f"{value.get('name', '')} ({', '.join(told)})" if told else str(value.get("name", ""))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
