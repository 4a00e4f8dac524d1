"""Where runs of studies are kept: one folder a run, named by its address, and archives of what others ran.

    STORE/store.json            the version of this layout
    STORE/runs/ADDRESS/         a run folder, as `fedskew run` writes it
    STORE/refused/ADDRESS.json  why a run cannot be: refused before it trained, or ended by its own numbers
    STORE/*.jsonl, *.jsonl.xz   archives: one line a run, without weights, with few rounds and digits

A run that is there is not computed again, whichever study asks for it. One process at a time brings runs of others into
a store, see `Store.writing`. Workers need no such turn: each run folder has a lock of its own, and a note is one file
that is replaced whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fedskew.config.recorded import Run, faults, finished, read_run
from fedskew.errors import RecordError, from_json, json_file
from fedskew.records.files import Hold, member, write_atomic
from fedskew.records.folder import current
from fedskew.records.metrics import EVALUATED, PERSONAL, named
from fedskew.records.summary import AVERAGED, FITTED, TOTALS
from fedskew.records.typed import Row, entries, fault_of, object_of
from fedskew.studies.address import ADDRESS
from fedskew.studies.lines import archives, compressed, files_of, lines_of

LAYOUT = 1
ARCHIVED_FIELDS = (  # entries of a round that an archive holds
    "round", *PERSONAL, "train_loss", *named(where="archive"), *TOTALS, "val_accuracy", "rounds",
    *(f"{AVERAGED}{FITTED}{name}" for name in EVALUATED),
)  # fmt: skip
BEGINS = re.compile(rb'\{"address":"([0-9a-f]{16})",')  # a line of an archive, as `archive_line` writes it
INDEX = b'{"addresses":'  # the first line of a compressed archive: one without a run that is asked for is not read
POINTS = 100  # rounds of a run that an archive holds, at most
DIGITS = 7  # of the numbers of a round there: more than a curve needs, and a fifth of an archive less
WAIT_S = 120.0  # for the turn of another process
Line = entries("Line", {"address": str, "config": Row, "summary": Row, "rows": list[Row], "env": Row})  # of an archive
Index = entries("Index", {"addresses": list[str]})
Failed = entries("Failed", {"address": str, "reason": str})
Note = entries("Note", {"state": str, "reason": str})


class Address(str):
    """The address of a run: 16 hexadecimal digits, whoever says it. So it names a run of its store and no other file.

    Raises:
        RecordError: It is something else.

    Example:
        >>> Address("0123456789abcdef")
        '0123456789abcdef'
    """

    FORM = re.compile(r"[0-9a-f]{16}")

    def __new__(cls, text: object) -> Address:
        """Check the text."""
        if not isinstance(text, str) or not cls.FORM.fullmatch(text):
            raise RecordError(f"the address of a run must be 16 hexadecimal digits; got {repr(text)[:60]}")
        return super().__new__(cls, text)

    @classmethod
    def among(cls, texts: Iterable[str]) -> list[Address]:
        """Those that are addresses, each once, in their order."""
        return [cls(text) for text in dict.fromkeys(texts) if cls.FORM.fullmatch(text)]


class Store:
    """A store, made where there is none.

    Raises:
        RecordError: the folder cannot be written, or holds a store of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._hold: Hold | None = None
        self._whole: set[str] = set()  # runs read to their end: reading takes milliseconds, and a study asks often
        file = self.folder / "store.json"
        try:
            if not file.exists():
                (self.folder / "runs").mkdir(parents=True, exist_ok=True)
                (self.folder / "refused").mkdir(exist_ok=True)
                write_atomic(file, json.dumps({"layout": LAYOUT, "address": ADDRESS}).encode())
        except OSError as error:
            raise RecordError(f"the store must be a writable folder; got {str(folder)!r}: {error.strerror}") from None
        layout = object_of(file, Row)
        version = layout.get("layout"), layout.get("address")
        if version != (LAYOUT, ADDRESS):
            rule = f"must be of layout {LAYOUT} with addresses of version {ADDRESS}; got {version[0]} and {version[1]}"
            raise RecordError(f"the store {str(folder)!r} {rule}; name another folder with --store")

    def run_folder(self, address: str) -> Path:
        """The run folder of an address, there or not."""
        return self.folder / "runs" / Address(address)

    def _note(self, address: str) -> Path:
        """The file that says why a run cannot be, there or not."""
        return self.folder / "refused" / f"{Address(address)}.json"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that brings runs of others into the store, once its turn has come.

        What was read before is read again. Inside of another turn of the same store this does nothing.

        Raises:
            InUseError: Another process has held the store for two minutes.
            RecordError: The store cannot be written.
        """
        if self._hold is not None:
            yield
            return
        self._hold = Hold(self.folder, WAIT_S)
        self.__dict__.pop("archived", None)
        try:
            yield
        finally:
            self._hold.release()
            self._hold = None

    def refuse(self, address: str, state: str, reason: str) -> None:
        """Note that a run cannot be."""
        write_atomic(self._note(address), json.dumps({"state": state, "reason": reason}).encode())

    def forgive(self, address: str) -> None:
        """Forget that a run could not be."""
        self._note(address).unlink(missing_ok=True)

    def lost(self) -> list[Run]:
        """The runs that cannot be, refused or failed."""
        noted = Address.among(sorted(file.stem for file in (self.folder / "refused").glob("*.json")))
        runs = (self.entry(address) for address in noted if self.refusal(address))
        return [run for run in runs if run is not None]

    def refusal(self, address: str) -> tuple[str, str] | None:
        """(state, reason) of a run that cannot be."""
        note = self._note(address)
        try:
            content = object_of(note, Note)
        except RecordError:
            return None  # none, or damaged: the run is tried again
        return content["state"], content["reason"]

    def knows(self, address: str) -> bool:
        """Whether there is anything of a run, finished or not."""
        return address in self.archived or self.run_folder(address).is_dir() or self.refusal(address) is not None

    def done(self, address: str, rounds: int, patience: int | None = None) -> bool:
        """Whether nothing is left to do for a run."""
        if address in self.archived or self.refusal(address) is not None:
            return True
        folder = self.run_folder(address)
        if not ended(folder):
            return False
        if address not in self._whole:
            with suppress(RecordError):
                if finished(folder, rounds, patience):
                    self._whole.add(address)
        return address in self._whole

    def entry(self, address: str) -> Run | None:
        """A run that is done, or why it cannot be; None where nothing is known."""
        if (refusal := self.refusal(address)) is not None:
            return Run(Path(address), state=refusal[0], reason=refusal[1])
        return self.finished(address)

    def finished(self, address: str) -> Run | None:
        """A run that came to its end, whatever is noted of it. Raises RecordError for a damaged one."""
        folder = self.run_folder(address)
        for last in (False, True):
            if not ended(folder):
                break
            try:
                return replace(read_run(folder), env=env_of(folder))
            except RecordError:  # another process may be deleting it; then its summary is gone at the next look
                if last:
                    raise
        return self.archived.get(address)

    @cached_property
    def archived(self) -> dict[str, Run]:
        """Runs of the archives, by address. Raises RecordError for a line that is none."""
        return {run.address: run for run in read_archives(self.folder) if run.state == "finished"}

    def addresses(self) -> list[Address]:
        """Every run that is there, finished or not."""
        folders = {p.name for p in (self.folder / "runs").glob("[!.]*") if p.is_dir()}
        return Address.among(sorted(folders | set(self.archived)))


def ended(folder: Path) -> bool:
    """Whether a run came to its end: one that was interrupted has a summary, too, and goes on from its checkpoint.

    A damaged summary counts as an end, so that who reads the run says what is wrong.
    """
    try:
        summary = json_file(member(folder, "summary.json"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, RecordError, ValueError):
        return True
    return not (isinstance(summary, dict) and summary.get("stopped"))


def env_of(folder: Path) -> Row:
    """What env.json of a run folder holds; nothing where it cannot be read."""
    try:
        env: Row = object_of(member(folder, "env.json"), Row)
    except RecordError:
        return {}
    return env


def read_archives(path: Path) -> Iterator[Run]:
    """The runs of every archive in a folder, or of one archive, as `read_archive` gives them."""
    for file in archives(path):
        yield from read_archive(file)


def read_archive(file: Path, wanted: Container[str] | None = None) -> Iterator[Run]:
    """The runs of an archive that are over, failed ones too.

    Args:
        file: One of its files, see `fedskew.studies.lines`. Of a run that stands twice the last one counts.
        wanted: Addresses; lines that begin with another one are not read. None: all lines are.

    Raises:
        RecordError: A file cannot be read, or a line is no run.
    """
    for each in files_of(file):
        yield from _read(each, wanted)


def _read(file: Path, wanted: Container[str] | None) -> Iterator[Run]:
    for number, line in enumerate(lines_of(file), 1):
        if wanted is not None and (begins := BEGINS.match(line)) and begins[1].decode() not in wanted:
            continue
        try:
            if number == 1 and line.startswith(INDEX):
                listed = _checked(line, Index)["addresses"]
                if wanted is not None and not any(address in wanted for address in listed):
                    return
                continue
            run = read_line(line)
        except RecordError as error:
            raise RecordError(f"{file} must hold one run a line; line {number} is not: {error}") from None
        if not run.summary.get("stopped"):
            yield run


def read_line(line: str | bytes) -> Run:
    """A line of an archive, which may come from anybody, as a run that can be relied on.

    Args:
        line: The line; bytes are UTF-8.

    Returns:
        The run.

    Raises:
        RecordError: The line is no run; the message says which entry is missing or of another type.
    """
    content = _checked(line)
    folder = Path(Address(content["address"]))
    if content.get("state") == "failed":
        return Run(folder, state="failed", reason=content["reason"])
    run = Run(folder, current(content["config"]), content["rows"], content["summary"], content["env"])
    for _, fault in faults(run):
        raise RecordError(fault)
    return run


def _checked(line: str | bytes, kind: Any = None) -> Row:
    """What a line holds, as an index, a run or one that failed. Raises RecordError."""
    try:
        content = from_json(line)
    except ValueError as error:
        raise RecordError(f"it is not JSON: {error}") from None
    has_failed = isinstance(content, dict) and content.get("state") == "failed"
    if fault := fault_of(content, kind or (Failed if has_failed else Line)):
        raise RecordError(fault)
    row: Row = content
    return row


def packed(lines: Mapping[str, bytes]) -> bytes:
    """Lines by address as the content of a compressed archive; equal lines give equal bytes. Raises RecordError."""
    index = json.dumps({"addresses": sorted(lines)}, separators=(",", ":")).encode()
    return compressed(b"\n".join([index, *(lines[address] for address in sorted(lines)), b""]))


def archive_line(run: Run, points: int = POINTS) -> str:
    """A run as a line of an archive, with so many rounds at most, a curve with all; of one that failed, why.

    The summary is whole, to the bit; numbers of rounds have `DIGITS` digits.
    """
    if run.state == "failed":
        return json.dumps({"address": run.address, "state": "failed", "reason": run.reason}, separators=(",", ":"))
    is_curve = run.config.get("average_models") == "every"  # by which work is matched: every round is needed
    of_rounds = run.rows if is_curve else thinned(run.rows, points)
    rows = [{name: _brief(row[name]) for name in ARCHIVED_FIELDS if name in row} for row in of_rounds]
    kept = {"address": run.address, "config": run.config, "summary": run.summary, "env": run.env, "rows": rows}
    return json.dumps(kept, separators=(",", ":"))


def _brief(value: Any) -> Any:
    """A number with `DIGITS` digits; what is none as it is."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


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
    waiting, last = dict.fromkeys(TOTALS, 0), 0
    for i, row in enumerate(listed):
        waiting = {name: waiting[name] + row.get(name, 0) for name in TOTALS}
        if i in stay:
            stands = row.get("round", i + 1) - (out[-1].get("round", last + 1) if out else 0)
            span = {"rounds": stands} if stands > 1 else {}
            out.append({**row, **{name: value for name, value in waiting.items() if name in row}, **span})
            waiting, last = dict.fromkeys(TOTALS, 0), i
    return out
