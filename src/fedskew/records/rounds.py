"""rounds.jsonl: a JSON object a round, each with a digest of itself and of all before it.

The chain begins with the run's own name, so a row that was changed, left out, repeated, or taken from another run is
noticed, and its round is known. A torn last line is what a kill leaves; it is dropped.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from fedskew.errors import RecordError, content_of, from_json
from fedskew.records import digests
from fedskew.records.files import DAMAGED, member, sync, write_atomic, writing
from fedskew.records.typed import Row

FILE = "rounds.jsonl"
MARK = b', "digest": "'


@dataclass
class Scan:
    """The rounds of a file, up to the first line that is not as it was written."""

    rows: list[Row] = field(default_factory=list)  # without their digests
    lines: list[bytes] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)  # of the chain; of no use in a folder of format 1
    trouble: str = ""  # what is wrong with the next line, where it is more than torn

    def digest(self, last: int, run: str) -> str:
        """The chain's digest after so many rounds."""
        return self.digests[last - 1] if last else run


def sealed(before: str, row: Row) -> tuple[bytes, str]:
    """(line of a row, digest of the chain with it)."""
    body = json.dumps(row)[:-1].encode()
    now = digests.of_parts(before, body)
    return body + MARK + now.encode() + b'"}\n', now


def scan(file: Path, run: str | None, last: tuple[int, str] | None = None) -> Scan:
    """Read the rounds of a file.

    Args:
        file: The file; one that is not there holds no rounds.
        run: Name of the run, with which the chain begins; None of a folder of format 1, whose rows have no digests.
        last: (number, digest of the chain) of the last round of a run that has ended.

    Returns:
        What can be read.

    Raises:
        RecordError: The file cannot be read.
    """
    read = Scan()
    try:
        content = content_of(file) if file.exists() else b""
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from None
    before = run or ""
    for line in content.splitlines(keepends=True):
        body, _, end = line.rpartition(MARK)
        now = digests.of_parts(before, body)
        fits = run is not None and end == now.encode() + b'"}\n'
        row = _parsed(body + b"}" if fits else line)
        if row is None or not (fits or run is None):
            if run is not None and line.endswith(b"\n"):
                expected = len(read.rows) + 1
                other = row is not None and row.get("round") != expected
                read.trouble = f"round {expected} {'is missing' if other else 'was altered'}"
            break
        read.rows.append(row)
        read.lines.append(line)
        read.digests.append(now)
        before = now
    if last and not read.trouble:
        if len(read.rows) < last[0]:
            read.trouble = f"round {len(read.rows) + 1} is missing"
        elif (len(read.rows), before) != last:
            read.trouble = f"it must end with round {last[0]}, as the run did"
    return read


def _parsed(text: bytes) -> Row | None:
    try:
        row = from_json(text)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


class Rounds:
    """Writer of the file of a run.

    Args:
        folder: The run folder.
        run: Name of the run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.file, self.run = member(folder, FILE), run
        self.digest = run  # of the chain so far

    def append(self, row: Row) -> None:
        """Append a round. Raises RecordError where it cannot be written."""
        line, now = sealed(self.digest, row)
        with writing(self.file), open(self.file, "ab") as file:
            file.write(line)
        self.digest = now

    def sync(self) -> None:
        """Return when all rounds are on the disk. Raises RecordError where they cannot be written."""
        with writing(self.file):
            sync(self.file)

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
        read = scan(self.file, self.run)
        trouble = ""
        if len(read.rows) < last:
            trouble = read.trouble or f"round {len(read.rows) + 1} is missing"
        elif read.digest(last, self.run) != digest:
            trouble = f"round {last} belongs to another run, or to another start of this run"
        if trouble:
            rule = f"hold rounds 1 to {last}, those before the checkpoint, unchanged"
            raise RecordError(f"{self.file} must {rule}; {trouble}; {DAMAGED}")
        self._cut(read, last)
        return read.rows[:last]

    def settle(self, rows: list[Row]) -> None:
        """Make the file hold exactly these rounds of this run: the last append may have been interrupted halfway."""
        read = scan(self.file, self.run)
        kept = min(len(read.rows), len(rows))
        self._cut(read, kept)
        for row in rows[kept:]:
            self.append(row)

    def _cut(self, read: Scan, last: int) -> None:
        kept = b"".join(read.lines[:last])
        if not self.file.exists() or self.file.stat().st_size != len(kept):
            write_atomic(self.file, kept)
        self.digest = read.digest(last, self.run)
