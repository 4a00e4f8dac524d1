"""Where runs of studies are kept: one folder a run, named by its address, and archives of what others ran.

    STORE/store.json            the version of this layout
    STORE/runs/ADDRESS/         a run folder, as `fedskew run` writes it
    STORE/refused/ADDRESS.json  why a run cannot be: refused before it trained, or ended by its own numbers
    STORE/*.jsonl               archives: one line a run, without weights and with thinned rounds

A run that is there is not computed again, whichever study asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedskew.config.recorded import finished, read_run
from fedskew.errors import RecordError, json_file
from fedskew.records.files import write_atomic
from fedskew.studies.address import ADDRESS

__all__ = ["POINTS", "Entry", "Store", "archive_line", "ended", "env_of", "read_archive", "read_archives", "thinned"]

Row = dict[str, Any]
LAYOUT = 1
KEPT = (  # entries of a round that an archive holds
    "round", "accuracy", "macro_f1", "balanced_accuracy", "loss", "train_loss", "worst_class_recall", "upload_bytes",
    "download_bytes", "samples", "steps", "wall_s", "val_accuracy", "rounds",
)  # fmt: skip
POINTS = 100  # rounds of a run that an archive holds, at most
SUMS = ("upload_bytes", "download_bytes", "samples", "steps", "wall_s")


@dataclass(frozen=True)
class Entry:
    """A run that is done: what a report needs of it."""

    address: str
    config: Row
    rows: list[Row]
    summary: Row
    env: Row
    state: str = "finished"  # or "failed", "refused"
    reason: str = ""
    path: Path | None = field(default=None, compare=False)


class Store:
    """A store, made where there is none.

    Raises:
        RecordError: the folder cannot be written, or holds a store of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        file = self.folder / "store.json"
        try:
            if not file.exists():
                (self.folder / "runs").mkdir(parents=True, exist_ok=True)
                (self.folder / "refused").mkdir(exist_ok=True)
                write_atomic(file, json.dumps({"layout": LAYOUT, "address": ADDRESS}).encode())
            found = json_file(file)
        except OSError as error:
            raise RecordError(f"the store must be a writable folder; got {str(folder)!r}: {error.strerror}") from None
        except ValueError as error:
            raise RecordError(f"{file} is damaged: {error}") from None
        version = (found.get("layout"), found.get("address")) if isinstance(found, dict) else (None, None)
        if version != (LAYOUT, ADDRESS):
            told = f"must be of layout {LAYOUT} with addresses of version {ADDRESS}; got {version[0]} and {version[1]}"
            raise RecordError(f"the store {str(folder)!r} {told}; name another folder with --store")

    def run_folder(self, address: str) -> Path:
        """The run folder of an address, there or not."""
        return self.folder / "runs" / address

    def refuse(self, address: str, state: str, reason: str) -> None:
        """Note that a run cannot be."""
        write_atomic(
            self.folder / "refused" / f"{address}.json", json.dumps({"state": state, "reason": reason}).encode()
        )

    def forgive(self, address: str) -> None:
        """Forget that a run could not be."""
        (self.folder / "refused" / f"{address}.json").unlink(missing_ok=True)

    def refusal(self, address: str) -> tuple[str, str] | None:
        """(state, reason) of a run that cannot be."""
        file = self.folder / "refused" / f"{address}.json"
        if not file.exists():
            return None
        try:
            found = json_file(file)
            return str(found["state"]), str(found["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # damaged: the run is tried again

    def done(self, address: str, rounds: int, patience: int | None = None) -> bool:
        """Whether nothing is left to do for a run."""
        if address in self.archived or self.refusal(address) is not None:
            return True
        folder = self.run_folder(address)
        if not ended(folder):
            return False
        try:
            return finished(folder, rounds, patience)
        except RecordError:
            return False

    def entry(self, address: str) -> Entry | None:
        """A run that is done, or None."""
        if (told := self.refusal(address)) is not None:
            return Entry(address, {}, [], {}, {}, *told)
        folder = self.run_folder(address)
        if ended(folder):
            config, rows, summary = read_run(folder)
            return Entry(address, config, rows, summary, env_of(folder), path=folder)
        return self.archived.get(address)

    @cached_property
    def archived(self) -> dict[str, Entry]:
        """Runs of the archives, by address. Raises RecordError for a line that is none."""
        return {entry.address: entry for entry in read_archives(self.folder) if entry.state == "finished"}

    def addresses(self) -> Iterator[str]:
        """Every run that is there, finished or not."""
        yield from sorted({p.name for p in (self.folder / "runs").glob("[!.]*") if p.is_dir()} | set(self.archived))


def ended(folder: Path) -> bool:
    """Whether a run came to its end: one that was interrupted has a summary, too, and goes on from its checkpoint.

    A damaged summary counts as an end, so that who reads the run says what is wrong.
    """
    try:
        found = json_file(folder / "summary.json")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return not (isinstance(found, dict) and found.get("stopped"))


def env_of(folder: Path) -> Row:
    """What env.json of a run folder holds; nothing where it cannot be read."""
    try:
        found = json_file(folder / "env.json")
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_archives(place: Path) -> Iterator[Entry]:
    """The runs of every archive in a folder, or of one archive. Raises RecordError for a line that is none."""
    for file in sorted(place.glob("*.jsonl")) if place.is_dir() else [place]:
        yield from read_archive(file)


def read_archive(file: Path) -> Iterator[Entry]:
    """The runs of an archive that are over, failed ones too. Raises RecordError for a line that is none."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RecordError(f"{file} must be text, UTF-8; byte {error.start} is none") from None
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            if found.get("state") == "failed":
                yield Entry(str(found["address"]), {}, [], {}, {}, "failed", str(found["reason"]))
                continue
            entry = Entry(**{name: found[name] for name in ("address", "config", "rows", "summary", "env")})
            if not entry.summary.get("stopped"):
                yield Entry(entry.address, dict(entry.config), list(entry.rows), dict(entry.summary), dict(entry.env))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise RecordError(f"{file} must hold one run a line; line {number} is none") from None


def archive_line(entry: Entry, points: int = POINTS) -> str:
    """A run as a line of an archive, with so many rounds at most; of one that failed, why."""
    if entry.state == "failed":
        told = {"address": entry.address, "state": "failed", "reason": entry.reason}
        return json.dumps(told, separators=(",", ":"))
    kept = {name: value for name, value in asdict(entry).items() if name in ("address", "config", "summary", "env")}
    kept["rows"] = [{n: row[n] for n in KEPT if n in row} for row in thinned(entry.rows, points)]
    return json.dumps(kept, separators=(",", ":"))


def thinned(rows: Iterable[Row], points: int = POINTS) -> list[Row]:
    """At most so many rounds; costs of those that are left out are added to the next one that stays.

    Its entry ``rounds`` says for how many rounds it stands, where it is not one.

    Example:
        >>> [(r["round"], r["samples"]) for r in thinned([{"round": i, "samples": 5} for i in range(1, 8)], 3)]
        [(3, 15), (6, 15), (7, 5)]
    """
    listed = list(rows)
    seen = [i for i, row in enumerate(listed) if "accuracy" in row] or list(range(len(listed)))
    step = max(1, -(-len(seen) // points))
    stay = {*seen[step - 1 :: step], *seen[-1:]}
    out: list[Row] = []
    waiting, last = dict.fromkeys(SUMS, 0), 0
    for i, row in enumerate(listed):
        waiting = {name: waiting[name] + row.get(name, 0) for name in SUMS}
        if i in stay:
            stands = row.get("round", i + 1) - (out[-1].get("round", last + 1) if out else 0)
            told = {"rounds": stands} if stands > 1 else {}
            out.append({**row, **{name: value for name, value in waiting.items() if name in row}, **told})
            waiting, last = dict.fromkeys(SUMS, 0), i
    return out
