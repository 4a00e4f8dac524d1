"""Run folders found, described, chosen and deleted, by their configuration and summary: rounds are not read."""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedskew.config.recorded import Run, run_folders
from fedskew.config.schema import Config, Summary
from fedskew.errors import FedskewError, RecordError
from fedskew.records import manifest, rounds
from fedskew.records.files import INNER, Hold, member
from fedskew.records.folder import check_format, current
from fedskew.records.typed import Row, object_of

# what a run writes: nothing else is ever deleted
OWN = (  # in the order of deletion: without a summary a run has not ended, and without rounds it begins anew
    "checkpoint/state.safetensors", "memory.bin", "final.safetensors", "best.safetensors", "own.safetensors",
    "model.json", "summary.json", "rounds.jsonl", "clients.jsonl", "env.json", "manifest.json", "config.json",
)  # fmt: skip
UNSAID = ("method.name", "fingerprint", "folder")
ENDED = ("interrupted", "time limit")  # why a run stopped, where nothing failed


def listed(folder: Path) -> Run:
    """What a list says of a run folder. Nothing is raised: a folder that cannot be read is listed as damaged."""
    summary: Row | None = None
    config: Row = {}
    written, state, reason = 0.0, "", ""
    with suppress(OSError):
        written = (folder / rounds.FILE).stat().st_mtime
    try:
        config = object_of(member(folder, "config.json"), Config, "config.json")
        check_format(config, folder / "config.json")
        config = current(config)
        if (file := member(folder, "summary.json")).exists():
            summary, written = object_of(file, Summary, file.name), file.stat().st_mtime
    except (OSError, FedskewError) as error:
        state, reason = "damaged", str(error)
    if is_running(folder):
        state, reason = "running", ""
    elif not state and summary is None:
        state, reason = "stopped", "killed"
    elif not state and summary:
        reason = summary["stopped"]
        state = "finished" if not reason else "stopped" if reason in ENDED else "failed"
    known = _last(folder) if summary is None else summary
    return Run(folder, config, [], known, state=state, reason=reason, written=written)


def described(places: Iterable[str | Path]) -> list[Run]:
    """`listed` of every run folder at or below these places. Raises RecordError as `run_folders`.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", "iid", clients=5)
        >>> done = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=5, out="listed-runs/a")
        >>> [(run.label, run.state, run.summary["rounds"]) for run in described(["listed-runs"])]
        [('fedavg', 'finished', 2)]
    """
    return [listed(folder) for folder in run_folders(places, halfway=True)]


def differing(runs: Sequence[Run], settings: Sequence[Row]) -> list[tuple[str, list[Any]]]:
    """(setting, its value in each run) of the settings in which runs differ; None where a run lacks it.

    The method stands first where it differs. An option of an ingredient counts where it differs between runs that have
    this ingredient.

    Args:
        runs: The runs.
        settings: Of each run, what decides its numbers, by dotted path.
    """
    different: list[tuple[str, list[Any]]] = []
    if len({run.label for run in runs}) > 1:
        different.append(("method", [run.label for run in runs]))
    for path in dict.fromkeys(path for setting in settings for path in setting):
        if path in UNSAID or (path.startswith("method.parts.") and path.endswith(".name")):
            continue  # the label says it
        owner, _, end = path.rpartition(".")
        by: dict[Any, list[Any]] = {}
        for setting in settings:
            by.setdefault(setting.get(f"{owner}.name", "") if end != "name" else "", []).append(setting.get(path))
        if any(v != group[0] for name, group in by.items() if name is not None for v in group):
            different.append((path, [setting.get(path) for setting in settings]))
    return different


def remove(run: Run, within: Sequence[str | Path]) -> str:
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
    emptied = False
    try:
        # what makes it a run folder goes last, after what a killed run had half written: a kill leaves one to delete
        halfway = (file for end in (".*.tmp", ".tmp??????") for file in folder.glob(end) if not file.is_dir())
        for file in (*halfway, *(folder / name for name in own_files(folder))):
            file.unlink(missing_ok=True)
        for name in INNER:
            with suppress(OSError):  # not there, or it holds something else
                (folder / name).rmdir()
        emptied = True
    except OSError as error:
        return f"{folder} cannot be deleted: {error.strerror}"
    finally:
        hold.release(delete=emptied)
    try:
        folder.rmdir()
    except OSError:
        return f"{folder} stays: it holds files that no run wrote"
    return ""


def _kept(folder: Path, within: Sequence[str | Path]) -> str:
    """Why a folder must not be deleted; "" where it may."""
    whole = Path(os.path.abspath(folder))
    root = next((r for r in (Path(os.path.abspath(w)) for w in within) if whole == r or r in whole.parents), None)
    if root is None:
        return f"{folder} stays: it is outside the named folders"
    if root.is_symlink() or whole.resolve() != root.resolve() / whole.relative_to(root):
        return f"{folder} stays: it is behind a link"
    plain = _is_plain(whole / "config.json") and any(_is_plain(whole / name) for name in (rounds.FILE, manifest.FILE))
    return "" if plain else f"{folder} stays: it is not a run folder"


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
    """The names of what a run wrote and may be copied: regular files. Raises RecordError where one is behind a link."""
    member(folder.parent, folder.name)
    for name in (*INNER, *OWN):
        member(folder, name)
    return [name for name in own_files(folder) if _is_plain(member(folder, name))]


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


def _last(folder: Path) -> Row:
    """What the rounds of a run without a summary say: how many they are, and the last accuracy."""
    try:
        rows = rounds.scan(member(folder, rounds.FILE), None).rows
    except RecordError:
        return {}
    scored = [row["accuracy"] for row in rows if isinstance(row.get("accuracy"), float)]
    return {"rounds": len(rows), **({"final_accuracy": scored[-1]} if scored else {})}
