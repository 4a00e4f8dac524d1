"""How a row of a table becomes a sample: its columns in order, categories, and the numbers that standardise.

A dataset of a table carries its `Encoding`, and a run folder keeps it beside the model: raw values of new rows are made
into samples by the training rows' statistics, never by their own.
"""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from fedskew.data.values import lacking, lacks, words_of
from fedskew.errors import DataError, afford, plural, some
from fedskew.fields import check

ABSENT = ("", "?", "na", "nan", "n/a", "null", "none", "-")  # how tables write that a number is missing


@dataclass(frozen=True)
class Column:
    """One column of a table and the features that it becomes.

    A number v becomes (v - mean) / std. A category becomes a one-hot block, in the order of ``values``; with
    ``ordered`` it becomes the number of its place in ``values``, from 0.

    Attributes:
        name: Its name in the table.
        values: The categories; empty for a number. "" among them is the category of a blank cell and of a category
            that is not among them.
        mean: Of the training rows.
        std: Of the training rows; 1 where it is 0.
        missing: What takes the place of a missing number, or of an unknown place; None: it is an error.
        ordered: Whether the categories are places.
        unseen: Categories of a one-hot block that no training row has. No step moved their weights, which depend on
            the seed alone, so their rows are encoded as zeros.
    """

    name: str
    values: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    missing: float | None = None
    ordered: bool = False
    unseen: tuple[str, ...] = field(default=(), compare=False)

    @property
    def number(self) -> bool:
        """Whether it is one number, which is standardised."""
        return self.ordered or not self.values

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 if self.number else len(self.values)

    def notes(self, values: np.ndarray, new: bool) -> Iterator[str]:
        """What to know of raw values [n] that could be encoded; ``new``: also of what is filled."""
        if not self.values:
            told = f"no number; {self.missing or 0:g}, the median of the training rows, takes its place"
            found = {told: _absent(values)} if new and self.missing is not None else {}
        else:
            words = values.astype(str)
            known, blank = _placed(values, self.values, other=-1) >= 0, words == ""
            meant = np.where(known, words, "")  # an unknown category counts as missing
            silent = np.isin(meant, self.unseen)
            found = {
                "a value that no training row had ({}); they are scored as if the column said nothing": silent,
                "categories that the training rows lack ({}); they count as missing": ~known & ~blank & ~silent,
            }
            if new and self.ordered:
                found["no value; the median place of the training rows counts"] = blank
        for told, rows in found.items():
            if rows.any():
                names = some([repr(str(value)) if value else "blank" for value in np.unique(values.astype(str)[rows])])
                yield f"column {self.name!r}: {rows.sum()} of {plural(len(rows), 'row')} have {told.format(names)}"


@dataclass(frozen=True)
class Encoding:
    """The columns of a table that are features, in their order.

    Attributes:
        columns: The columns.
        single: Whether numbers are rounded to float32 before they are standardised.
        label: Name of the column of labels; "" where it has none.

    Example:
        >>> from fedskew.data.encoding import Column, Encoding
        >>> encoding = Encoding((Column("age", mean=50.0, std=10.0), Column("sex", values=("f", "m"))))
        >>> encoding.encode({"sex": ["m"], "age": [60]}, "new.csv").tolist()
        [[1.0, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]
    single: bool = True
    label: str = ""

    @property
    def width(self) -> int:
        """Number of features F."""
        return sum(column.width for column in self.columns)

    def encode(
        self, table: Mapping[str, Any], what: str, rows: Sequence[Any] | None = None, notes: list[str] | None = None,
        new: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Rows of a table as samples.

        Args:
            table: Raw values by column, each [n]: numbers, or strings that are numbers or categories. Other columns
                are not read.
            what: Name of the table in error messages.
            rows: Number of each row in error messages; None counts from 0.
            notes: Gets a note for each column with categories that count as missing or say nothing; None: each is a
                RuntimeWarning.
            new: Whether a model is asked about the rows: filled values are noted.

        Returns:
            Features, float32 [n, F].

        Raises:
            DataError: A column is missing, a value is missing, no number or an unknown category.
        """
        known = list(table.keys())
        for column in self.columns:
            if column.name not in known:
                raise lacks_column(what, column.name, known)
        read = {c.name: plain(table[c.name]) for c in self.columns}
        for name, values in read.items():
            if values.ndim != 1:
                hint = f"; for one row give {{{name!r}: [{values.item()!r}], ...}}" if values.ndim == 0 else ""
                raise DataError(f"{what} must have columns of one value a row; {name!r} has shape {values.shape}{hint}")
        if len(lengths := {len(values) for values in read.values()}) > 1:
            raise DataError(f"{what} must have columns of one length; got {', '.join(map(str, sorted(lengths)))}")
        numbers = range(lengths.pop()) if rows is None else rows
        x = np.concatenate([self._features(column, read[column.name], what, numbers) for column in self.columns], 1)
        said = [f"{what}: {note}" for c in self.columns for note in c.notes(read[c.name], new)]
        for note in said if notes is None else ():
            warnings.warn(note, RuntimeWarning, stacklevel=2)
        if notes is not None:
            notes += said
        return x

    def blocks(self) -> Iterator[tuple[Column, slice]]:
        """Each column with the places of its features."""
        at = 0
        for column in self.columns:
            yield column, slice(at, at := at + column.width)

    def seen(self, x: np.ndarray) -> Encoding:
        """The encoding that knows which categories no row of training features [n, F] has.

        Without rows it stays as it is: nodes keep theirs, and what the example lacks is known already.
        """
        if not len(x):
            return self
        columns = []
        for column, at in self.blocks():
            if not column.number:
                column = replace(column, unseen=tuple(np.array(column.values)[~x[:, at].any(axis=0)].tolist()))
            columns.append(column)
        return replace(self, columns=tuple(columns))

    def _features(self, column: Column, values: np.ndarray, what: str, rows: Sequence[Any]) -> np.ndarray:
        """The features of one column, float32 [n, width]."""
        where = f"{what}: column {column.name!r}"
        if not column.number:
            return categories(values, column.values, where, rows, unseen=column.unseen)
        if column.ordered:
            found = places(values, column.values, where, rows, column.missing)
        else:
            found = numbers_of(values, where, rows, column.missing)
        with np.errstate(over="ignore"):  # what float32 does not hold becomes infinite, which `build` refuses
            if self.single:
                found = found.astype(np.float32).astype(np.float64)
            return ((found - column.mean) / column.std).astype(np.float32)[:, None]

    def of_example(self) -> Encoding:
        """The encoding for rows elsewhere, of which these were an example: a blank that it lacked stays unseen."""
        seen = (replace(c, unseen=tuple(v for v in c.unseen if not v)) for c in self.columns)
        return replace(self, columns=tuple(seen))

    def to_json(self) -> dict[str, Any]:
        """Plain values; the inverse of `from_json`."""
        told = dataclasses.asdict(self)
        for column in told["columns"]:
            for name in ("ordered", "unseen"):
                if not column[name]:  # as files of earlier versions have it
                    del column[name]
        return told

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Encoding:
        """The encoding of plain values. Raises FieldError for one of another type; KeyError where one is missing."""
        made = []
        for column in content["columns"]:
            lists = {"values": tuple(column["values"]), "unseen": tuple(column.get("unseen", ()))}
            made.append(Column(**{name: value for name, value in column.items() if name != "once"} | lists))
        found = Encoding(tuple(made), content["single"], content["label"])
        for value in (found, *made):
            check(value)
        return found


def numbers_of(
    values: np.ndarray, what: str, rows: Sequence[Any], missing: float | None = None, hint: str = "", fill: str = ""
) -> np.ndarray:
    """A column as finite numbers, float64 [n].

    Args:
        values: Numbers, or strings.
        what: Name of the column in error messages.
        rows: Number of each row in error messages.
        missing: What takes the place of a missing value; None: it is an error.
        hint: What to do with a column that does not hold numbers.
        fill: What else to do about a missing value.

    Raises:
        DataError: A value is missing or no finite number; the message names the first row.
    """
    gone = _absent(values)
    if values.dtype.kind in "fiub":
        found = values.astype(np.float64)
    else:
        cells = [str(value).strip() for value in values.tolist()]
        found = np.array([np.nan if absent else number_of(c) for c, absent in zip(cells, gone, strict=True)])
    if missing is None and gone.any():
        advice = f"fill them, or leave those rows or the column out{fill}"
        raise lacks(what, np.flatnonzero(gone), len(values), "a number", advice, rows)
    bad = ~np.isfinite(found) & ~gone
    if bad.any():
        cell = str(values[int(bad.argmax())])
        decimal = cell.count(",") == 1 and np.isfinite(number_of(cell.replace(",", ".")))
        hint = "write a decimal point" if decimal else hint
        told = f"row {rows[int(bad.argmax())]} has {cell!r}, {int(bad.sum())} of {len(bad)} rows hold no number"
        raise DataError(f"{what} must hold numbers; {told}" + (f"; {hint}" if hint else ""))
    return np.array(np.where(gone, 0.0 if missing is None else missing, found))


def categories(
    values: np.ndarray, known: Sequence[str], what: str, rows: Sequence[Any], fill: str = "", unseen: Sequence[str] = ()
) -> np.ndarray:
    """A column as a one-hot block in the order of the known categories, float32 [n, len(known)].

    With "" among the known categories, every other value counts as it. Rows of ``unseen`` ones are zeros.

    Raises:
        DataError: A value is not among them; the message names the first row, and ``fill`` says what to do.
    """
    afford(4 * len(values) * len(known), f"{what}: a one-hot block", "leave the column out, or number it")
    other = list(known).index("") if "" in known else None
    place = _placed(values, known, what, rows, fill, other)
    block = np.zeros((len(place), len(known)), np.float32)
    block[np.arange(len(place)), place] = 1
    block[:, np.isin(known, unseen)] = 0
    return block


def places(
    values: np.ndarray, known: Sequence[str], what: str, rows: Sequence[Any], missing: float | None = None,
    fill: str = "",
) -> np.ndarray:  # fmt: skip
    """The place of each value among ordered categories, from 0, float64 [n]; ``missing`` for any other value.

    Raises:
        DataError: A value is not among them, and nothing takes its place; the message names the first row.
    """
    place = _placed(values, known, what, rows, fill, None if missing is None else -1)
    return np.where(place < 0, missing or 0.0, place)


def _placed(
    values: np.ndarray, known: Sequence[str], what: str = "", rows: Sequence[Any] = (), fill: str = "",
    other: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Place of each value among the known ones, int64 [n], the last of one that is known twice.

    Any other value has the place ``other``; None: it raises DataError.
    """
    words, order = values.astype(str), np.argsort(np.array(known, str), kind="stable")
    ranked = np.array(known, str)[order]
    at = np.searchsorted(ranked, words, side="right") - 1  # -1, before the first, is no place of the word either
    there = ranked[at] == words
    if other is None and not there.all():
        first, count = int(there.argmin()), int((~there).sum())
        told = f"{str(words[first])!r} in row {rows[first]}" if words[first] else f"no value in row {rows[first]}"
        held = f"{count} of {len(there)} rows hold none of them"
        raise DataError(f"{what} must hold one of its categories, {some(known)}; got {told}, {held}{fill}")
    return np.where(there, order[at], -1 if other is None else other)


def _absent(values: np.ndarray) -> np.ndarray:
    """Whether each cell of a column of numbers says that its number is missing, bool [n]."""
    if values.dtype.kind in "fiub":
        return np.isnan(values.astype(np.float64))
    return np.array([is_absent(str(value).strip()) for value in values.tolist()], bool)


def is_absent(cell: str) -> bool:
    """Whether a cell says that its number is missing: blank, or a word such as NA."""
    return cell.lower() in ABSENT


def number_of(cell: str) -> float:
    """A cell as a number; infinity for a word, which is refused where infinity is."""
    try:
        return float(cell)
    except ValueError:
        return float("inf")


def lacks_column(what: str, name: str, names: Sequence[str], rule: str = "") -> DataError:
    """The error for a table without a column, which names the one that may be misspelt, else all that it has."""
    names = list(map(str, names))
    near = difflib.get_close_matches(name, names, n=1)
    told = f"; is its {near[0]!r} meant? then rename it" if near else f"; it has {some(names)}" if names else ""
    return DataError(f"{what} must have the column {name!r}{rule}{told}")


def plain(values: Any) -> np.ndarray:
    """A column as a numpy array: strings where it holds words; None and NaN as missing."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype.kind == "U" and isinstance(values, list | tuple) and not all(isinstance(v, str) for v in values):
        array = np.array(values, dtype=object)  # numpy would write NaN beside words as the word "nan"
    if array.dtype.kind != "O":
        return array
    blank = set(lacking(array).tolist())
    return words_of(["" if i in blank else str(value) for i, value in enumerate(array.tolist())], "a column")
