"""What was read of data of a user's own: one account for the command, for Python and for the record of a run."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedskew.errors import plural, some


@dataclass(frozen=True)
class ColumnRead:
    """What became of one column of a table.

    Attributes:
        name: Its name.
        role: "feature", "label", "client", "unit" (never parted by a split), or "left out".
        type: "number", "category", "ordinal", or "" of a column that was left out.
        holds: Its range or its levels, in words.
        first: Its first values as the file has them, three at most.
        missing: Cells without a value.
        change: What was done to values: filled, dropped, folded; "" for nothing.
    """

    name: str
    role: str
    type: str = ""
    holds: str = ""
    first: tuple[str, ...] = ()
    missing: int = 0
    change: str = ""

    def line(self) -> str:
        """As in "age: number, feature, 17 to 90, first 39, 50, 38; 3 missing: filled by the median"."""
        kind = ", ".join(filter(None, (self.type, self.role, self.holds)))
        shown = f", first {', '.join(self.first)}" if self.first else ""
        gone = f"{self.missing} missing" if self.missing else ""
        return "; ".join(filter(None, (f"{self.name}: {kind}{shown}", ": ".join(filter(None, (gone, self.change))))))


@dataclass(frozen=True)
class Reading:
    """What was read of files or arrays of a user's own; notes stand beside it in the dataset.

    Attributes:
        files: Rows or pictures by file or folder, at most a few; what they are of others together.
        columns: Of a table.
        pictures: What pictures were: their count by mode and by size, in words.
        left_out: Count by reason of what was not read.
    """

    files: tuple[tuple[str, int], ...] = ()
    columns: tuple[ColumnRead, ...] = ()
    pictures: tuple[str, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()

    def lines(self) -> Iterator[str]:
        """The account, a line each."""
        if self.files:
            yield f"read: {some([f'{name} ({rows:,})' for name, rows in self.files])}"
        yield from self.pictures
        yield from (column.line() for column in self.columns)
        yield from (f"left out: {plural(count, 'file')}, {reason}" for reason, count in self.left_out)
