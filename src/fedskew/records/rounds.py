"""rounds.jsonl: a JSON object a round, each with a digest of itself and of all before it.

The chain begins with the run's own name, so a row that was changed, left out, repeated, or taken from another run is
noticed, and its round is known. A torn last line is what a kill leaves; it is dropped.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from fedskew import digests
from fedskew.errors import RecordError, content_of, from_json
from fedskew.records.files import DAMAGED, UnwritableError, write_atomic
from fedskew.records.typed import Row

__all__ = ["FILE", "Found", "Rounds", "scan"]

FILE = "rounds.jsonl"
MARK = b', "digest": "'
LENGTH = 32  # hex digits of a digest


@dataclass
class Found:
    """The rounds of a file, up to the first line that is not as it was written."""

    rows: list[Row] = field(default_factory=list)  # without their digests
    lines: list[bytes] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)  # of the chain; "" in a folder of format 1
    trouble: str = ""  # what is wrong with the next line, where it is more than torn

    def digest(self, last: int, run: str) -> str:
        """The chain's digest after so many rounds."""
        return self.digests[last - 1] if last else run

    def ends(self, last: int, digest: str, run: str) -> str:
        """What is wrong where the run ended with this round and digest; "" where it did."""
        if len(self.rows) < last:
            return f"round {len(self.rows) + 1} is missing"
        whole = len(self.rows) == last and self.digest(last, run) == digest
        return "" if whole else f"it must end with round {last}, as the run did"


def sealed(before: str, row: Row) -> tuple[bytes, str]:
    """(line of a row, digest of the chain with it)."""
    body = json.dumps(row)[:-1].encode()
    now = digests.of_parts(before, body)
    return body + MARK + now.encode() + b'"}\n', now


def scan(file: Path, run: str | None) -> Found:
    """Read the rounds of a file.

    Args:
        file: The file; one that is not there holds no rounds.
        run: Name of the run, with which the chain begins; None of a folder of format 1, whose rows have no digests.

    Returns:
        What was found.

    Raises:
        RecordError: The file cannot be read.
    """
    found = Found()
    try:
        content = content_of(file) if file.exists() else b""
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from None
    before = run or ""
    for line in content.splitlines(keepends=True):
        row, now = _plain(line) if run is None else _unsealed(before, line)
        if not now or row is None:
            torn = run is None or not line.endswith(b"\n")
            found.trouble = "" if torn else _trouble(row, len(found.rows) + 1)
            break
        found.rows.append(row)
        found.lines.append(line)
        found.digests.append(now)
        before = now
    return found


def _plain(line: bytes) -> tuple[Row | None, str]:
    """(row, a word) of a line without a digest."""
    return _parsed(line), "none"


def _unsealed(before: str, line: bytes) -> tuple[Row | None, str]:
    """(row, digest of the chain with it), or (what can be read of the row, "") where it is not what was written."""
    body, _, rest = line.rpartition(MARK)
    now = digests.of_parts(before, body)
    if rest == now.encode() + b'"}\n':
        return _parsed(body + b"}"), now
    return _parsed(line), ""


def _parsed(text: bytes) -> Row | None:
    try:
        row = from_json(text)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _trouble(row: Row | None, expected: int) -> str:
    """What is wrong where the row of a round was expected."""
    other = row is not None and row.get("round") != expected
    return f"round {expected} is missing" if other else f"round {expected} was altered"


class Rounds:
    """Writer of the file of a run.

    Args:
        folder: The run folder.
        run: Name of the run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.file, self.run = folder / FILE, run
        self.digest = run  # of the chain so far

    def append(self, row: Row) -> None:
        """Append a round. Raises RecordError where it cannot be written."""
        line, now = sealed(self.digest, row)
        try:
            with open(self.file, "ab") as file:
                file.write(line)
        except OSError as error:
            raise UnwritableError(f"cannot write {self.file}: {error.strerror}") from None
        self.digest = now

    def sync(self) -> None:
        """Return when all rounds are on the disk. Raises RecordError where they cannot be written."""
        try:
            with open(self.file, "rb") as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise UnwritableError(f"cannot write {self.file}: {error.strerror}") from None

    def keep(self, last: int, digest: str) -> list[Row]:
        """Drop the rounds after the checkpoint, and a torn last line.

        Args:
            last: Round of the checkpoint.
            digest: Of the chain at that round, as the checkpoint has it.

        Returns:
            Rounds 1 to ``last``.

        Raises:
            RecordError: The file does not hold these rounds as they were written; it is then left as it is.
        """
        found = scan(self.file, self.run)
        trouble = ""
        if len(found.rows) < last:
            trouble = found.trouble or f"round {len(found.rows) + 1} is missing"
        elif found.digest(last, self.run) != digest:
            trouble = f"round {last} is that of another run, or of another life of this one"
        if trouble:
            rule = f"hold rounds 1 to {last}, those before the checkpoint, as they were written"
            raise RecordError(f"{self.file} must {rule}; {trouble}; {DAMAGED}")
        self._cut(found, last)
        return found.rows[:last]

    def settle(self, rows: list[Row]) -> None:
        """Make the file hold exactly these rounds of this run: the last append may have been interrupted halfway."""
        found = scan(self.file, self.run)
        kept = min(len(found.rows), len(rows))
        self._cut(found, kept)
        for row in rows[kept:]:
            self.append(row)

    def _cut(self, found: Found, last: int) -> None:
        kept = b"".join(found.lines[:last])
        if not self.file.exists() or self.file.stat().st_size != len(kept):
            write_atomic(self.file, kept)
        self.digest = found.digest(last, self.run)
