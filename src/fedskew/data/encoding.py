"""How a row of a table becomes a sample: its columns in order, categories, and the numbers that standardise.

A dataset of a table carries its `Encoding`, and a run folder keeps it beside the model: raw values of new rows are made
into samples by the training rows' statistics, never by their own.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any

import numpy as np

from fedskew.data.values import lacks, lacks_column, named, plain, spelt
from fedskew.errors import DataError, afford, claim, plural, some
from fedskew.fields import LARGEST, Checked

ABSENT = (  # how tables write that a value is missing, pandas' list among it; case does not matter
    "", "?", "-", "none", "null", "na", "n/a", "<na>", "nan", "-nan", "#na", "#n/a", "#n/a n/a", "1.#ind", "-1.#ind",
    "1.#qnan", "-1.#qnan",
)  # fmt: skip
NO_NAME = re.compile(  # of SAS, the World Bank, Eurostat; of SPSS and Excel; of SQL, pandas, MATLAB; of people
    r"(?i)[-.:…–—_]+|#(null|ref|value|name|num|div/0|calc)[!?]|\\n|\(null\)|\(blank\)|nat|<missing>|<undefined>"
    r"|[nk]\. ?a\.?|not available|unlabell?ed"
)
TRUTH = {"False": 0.0, "True": 1.0}  # a column of nothing else is one of numbers, as one of type bool is
MINUS = "\u2212"  # the minus sign of typography
SPACES = re.compile(r"[ \u00a0\u202f\u2009]")  # between groups of digits
WRITTEN = re.compile(r"[-+]?\d+([.,' \u00a0\u202f\u2009]\d+)+")  # perhaps a number: 1,000 or 1.234,5
UNCLEAR = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")  # 1.100: a decimal fraction, or more than a thousand


@dataclass(frozen=True)
class Notation(Checked):
    """How a table writes numbers, missing values and names.

    Attributes:
        decimal: The decimal mark, "." or ","; "": the point, or what ``thousands`` leaves.
        thousands: What parts groups of three digits: ".", ",", "'" or "space"; "": nothing does.
        missing_words: The words for a missing value; None: those of `ABSENT`, in columns of numbers alone.
        case: Whether spellings that differ in case alone are "refused", "keep" (several names) or "fold" (one name).
    """

    decimal: str = ""
    thousands: str = ""
    missing_words: tuple[str, ...] | None = None
    case: str = "refuse"

    @property
    def mark(self) -> str:
        """The decimal mark."""
        return self.decimal or ("," if self.thousands == "." else ".")

    def number(self, cell: str) -> float:
        """A cell as a number; infinity for a word, which is refused where infinity is."""
        if self.mark == "." and not self.thousands:
            return number_of(cell)
        whole, point, rest = cell.replace("\u2019", "'").partition(self.mark)
        if self.thousands:
            whole, part = (SPACES.sub(" ", whole), " ") if self.thousands == "space" else (whole, self.thousands)
            if part in whole and not re.fullmatch(rf"[-+]?[1-9]\d{{0,2}}({re.escape(part)}\d{{3}})+", whole):
                return float("inf")
            whole = whole.replace(part, "")
        return float("inf") if "." in whole + rest else number_of(f"{whole}.{rest}" if point else whole)

    def absent(self, cell: str) -> bool:
        """Whether a cell of a column of numbers says that its number is missing."""
        words = self.missing_words
        return is_absent(cell) if words is None else self.blank(cell) or value_of(cell) in map(value_of, words)

    def doubtful(self, word: str) -> bool:
        """Whether a name may say that there is none, and no option says what it means."""
        return self.missing_words is None and bool(word) and (is_absent(word) or bool(NO_NAME.fullmatch(word)))

    def blank(self, word: str) -> bool:
        """Whether a cell of a column of words has none."""
        spelling = str if self.case == "keep" else folded
        return not word or spelling(word) in map(spelling, self.missing_words or ())

    def numeric(self, names: Iterable[str]) -> bool:
        """Whether all names are numbers, of which 1 and 1.0 are one; 1.000 is none where the point parts thousands."""
        return all(np.isfinite(number_of(name)) and (self.mark == "." or "." not in name) for name in names if name)

    def key(self, word: str, numeric: bool) -> str:
        """What two spellings of one thing have in common."""
        return value_of(word) if numeric else folded(word) if self.case == "fold" else word

    def read(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(numbers, infinite for a word, float64 [n]; whether the cell says that its number is missing, bool [n])."""
        if values.dtype.kind in "fiub":
            array = values.astype(np.float64)
            meant = [self.number(word) for word in self.missing_words or ()]
            return array, np.isnan(array) | np.isin(array, [number for number in meant if np.isfinite(number)])
        cells = [cell.strip() for cell in values.astype(str).tolist()]
        if self.missing_words is None and self.mark == "." and not self.thousands:
            with suppress(ValueError):  # of most columns of numbers each cell is one, or blank
                array = np.array([float(cell or "nan") for cell in cells])
                if np.isnan(array).sum() == cells.count("") and not np.isinf(array).any() and "_" not in "".join(cells):
                    return array, np.isnan(array)
        known = {cell: np.nan if self.absent(cell) else self.number(cell) for cell in {*cells}}
        if known.keys() & TRUTH.keys() and all(cell in TRUTH or number != number for cell, number in known.items()):
            known |= TRUTH
        array = np.array([known[cell] for cell in cells], float)
        return array, np.isnan(array)

    def meant(self, values: np.ndarray, known: Sequence[str]) -> np.ndarray:
        """Words as the known ones that they are other spellings of, "" where they say nothing; others as they are."""
        words, at = np.unique(spelt(values), return_inverse=True)
        numeric = self.numeric(known)
        keys = [self.key(word, numeric) for word in named(np.array(known, str)).tolist()]
        times, by = Counter(keys), dict(zip(keys, known, strict=True)) | {word: word for word in known}

        def name(word: str) -> str:
            if word in by and by[word] == word:
                return word
            key = self.key(word, numeric)
            return "" if self.blank(word) else by[key] if times[key] == 1 else word

        return np.array([name(word) for word in words.tolist()], dtype=str)[at] if len(words) else words


PLAIN = Notation()


@dataclass(frozen=True)
class Column(Checked):
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
        whole: Whether its numbers were whole in all training rows: then 1.100 in a text may be 1100.
    """

    name: str
    values: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    missing: float | None = None
    ordered: bool = False
    unseen: tuple[str, ...] = field(default=(), compare=False)
    whole: bool = field(default=False, compare=False)

    @property
    def number(self) -> bool:
        """Whether it is one number, which is standardised."""
        return self.ordered or not self.values

    @property
    def width(self) -> int:
        """Number of features."""
        return 1 if self.number else len(self.values)

    def notes(self, values: np.ndarray, new: bool, notation: Notation) -> Iterator[str]:
        """What to know of raw values [n] that could be encoded; ``new``: also of what is filled."""
        if not self.values:
            effect = f"no number; {self.missing or 0:g}, the median of the training rows, takes its place"
            effects = {effect: notation.read(values)[1]} if new and self.missing is not None else {}
        else:
            words = notation.meant(values, self.values)
            known, blank = _placed(words, self.values, other=-1) >= 0, words == ""
            meant = np.where(known, words, "")  # an unknown category counts as missing
            silent = np.isin(meant, self.unseen)
            effects = {
                "a value that no training row had ({}); they are scored as if the column said nothing": silent,
                "categories that the training rows lack ({}); they count as missing": ~known & ~blank & ~silent,
            }
            if new and self.ordered:
                effects["no value; the median place of the training rows counts"] = blank
        for effect, rows in effects.items():
            if rows.any():
                names = some([repr(str(value)) if value else "blank" for value in np.unique(spelt(values)[rows])])
                yield f"column {self.name!r}: {rows.sum()} of {plural(len(rows), 'row')} have {effect.format(names)}"


@dataclass(frozen=True)
class Encoding(Checked):
    """The columns of a table that are features, in their order.

    Attributes:
        columns: The columns.
        single: Whether numbers are rounded to float32 before they are standardised.
        label: Name of the column of labels; "" where it has none.
        notation: How the table writes numbers, missing values and names.

    Example:
        >>> from fedskew.data.encoding import Column, Encoding
        >>> encoding = Encoding((Column("age", mean=50.0, std=10.0), Column("sex", values=("f", "m"))))
        >>> encoding.encode({"sex": ["m"], "age": [60]}, "new.csv").tolist()
        [[1.0, 0.0, 1.0]]
    """

    columns: tuple[Column, ...]
    single: bool = True
    label: str = ""
    notation: Notation = PLAIN

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
        read = {c.name: plain(table[c.name], f"{what}: column {c.name!r}") for c in self.columns}
        for name, values in read.items():
            hint = f"for one row give {{{name!r}: [{values.item()!r}], ...}}" if values.ndim == 0 else ""
            got = f"{name!r} has shape {values.shape}"
            claim(values.ndim == 1, what, f"have columns of one value a row; {got}", hint=hint)
        lengths = {len(values) for values in read.values()}
        claim(len(lengths) == 1, what, "have columns of one length", ", ".join(map(str, sorted(lengths))))
        numbers = range(lengths.pop()) if rows is None else rows
        x = np.concatenate([self._features(column, read[column.name], what, numbers) for column in self.columns], 1)
        remarks = [f"{what}: {remark}" for c in self.columns for remark in c.notes(read[c.name], new, self.notation)]
        for remark in remarks if notes is None else ():
            warnings.warn(remark, RuntimeWarning, stacklevel=2)
        if notes is not None:
            notes += remarks
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
        there = [(column, x[:, at].any(axis=0)) for column, at in self.blocks()]
        made = (c if c.number else replace(c, unseen=tuple(np.array(c.values)[~seen].tolist())) for c, seen in there)
        return replace(self, columns=tuple(made))

    def _features(self, column: Column, values: np.ndarray, what: str, rows: Sequence[Any]) -> np.ndarray:
        """The features of one column, float32 [n, width]."""
        where = f"{what}: column {column.name!r}"
        if not column.number:
            words = self.notation.meant(values, column.values)
            return categories(words, column.values, where, rows, unseen=column.unseen)
        numbers = self.values(column, values, what, rows)
        with np.errstate(over="ignore"):  # what float32 does not hold becomes infinite, which `build` refuses
            if self.single:
                numbers = numbers.astype(np.float32).astype(np.float64)
            return ((numbers - column.mean) / column.std).astype(np.float32)[:, None]

    def values(self, column: Column, values: Any, what: str, rows: Sequence[Any]) -> np.ndarray:
        """The numbers or places of a column before they are standardised, float64 [n]. Raises DataError."""
        where, values = f"{what}: column {column.name!r}", plain(values)
        if column.ordered:
            return places(self.notation.meant(values, column.values), column.values, where, rows, column.missing)
        hint = "training rows hold whole numbers alone; write 1.1 or 1100 for such a cell" if column.whole else ""
        return numbers_of(values, where, rows, column.missing, self.notation, unclear=hint)

    def of_example(self) -> Encoding:
        """The encoding for rows elsewhere, of which these were an example: a blank that it lacked stays unseen."""
        seen = (replace(c, unseen=tuple(v for v in c.unseen if not v)) for c in self.columns)
        return replace(self, columns=tuple(seen))


def numbers_of(
    values: np.ndarray, what: str, rows: Sequence[Any], missing: float | None = None, notation: Notation = PLAIN,
    options: str = "", unclear: str = "",
) -> np.ndarray:  # fmt: skip
    """A column as finite numbers, float64 [n].

    Args:
        values: Numbers, or strings.
        what: Name of the column in error messages.
        rows: Number of each row in error messages.
        missing: What takes the place of a missing value; None: it is an error.
        notation: How the table writes numbers.
        options: Name of the class whose options say what to do, with a point; "" for none.
        unclear: What to do where each point in the words has three digits behind it, as in 1.100, and nothing says that
            it parts no thousands; "": it is a decimal point.

    Raises:
        DataError: A value is missing, no number that float32 holds, or unclear; the message names the first row.
    """
    numbers, gone = notation.read(values)
    if missing is None and gone.any():
        advice = f", or set {options}missing to fill" if options else ""
        advice = f"fill them, or leave those rows or the column out{advice}"
        raise lacks(what, np.flatnonzero(gone), len(values), "a number", advice, rows)
    bad = ~gone & ~(np.abs(numbers) <= LARGEST)
    if bad.any():
        row = int(bad.argmax())
        cells = [cell.strip().replace("\u2019", "'") for cell in values[bad].astype(str).tolist()]
        got = f"at most {LARGEST:g}; row {rows[row]} has {cells[0]}"
        claim(not np.isfinite(numbers[row]), what, f"hold numbers that float32 holds, {got}")
        often = [repr(word) for word, _ in Counter(cells).most_common(3)]
        got = f"row {rows[row]} has {cells[0]!r}, {len(cells)} of {len(bad)} rows hold no number"
        got += f", most often {', '.join(often)}" if len(often) > 1 else ""
        marks = {mark for cell in cells if WRITTEN.fullmatch(cell) for mark in cell if mark not in "+-0123456789"}
        hint = f"correct them, leave the column out by {options}exclude, or name it in {options}categories"
        hint += f"; words for a missing value stand in {options}missing_words"
        if marks:
            named = " and ".join("space" if mark.isspace() else repr(mark) for mark in sorted(marks))
            hint = f"if these are numbers, set {options}decimal or {options}thousands to {named}"
        claim(False, what, f"hold numbers; {got}", hint=hint if options else "")
    words = values.tolist() if values.dtype.kind == "U" and not notation.decimal + notation.thousands else []
    marked = (cell.strip() for cell in words if "." in cell or "e" in cell or "E" in cell)
    if unclear and UNCLEAR.fullmatch(first := next(marked, "")) and all(map(UNCLEAR.fullmatch, marked)):
        got = f"{first} may be {first.replace('.', '')}: each cell with a point has three digits behind it"
        claim(False, what, f"hold numbers of one reading; {got}", hint=unclear)
    return np.array(np.where(gone, 0.0 if missing is None else missing, numbers))


def categories(
    values: np.ndarray, known: Sequence[str], what: str, rows: Sequence[Any], unseen: Sequence[str] = ()
) -> np.ndarray:
    """A column as a one-hot block in the order of the known categories, float32 [n, len(known)].

    With "" among the known categories, every other value counts as it. Rows of ``unseen`` ones are zeros.

    Raises:
        DataError: A value is not among them; the message names the first row.
    """
    afford(4 * len(values) * len(known), f"{what}: a one-hot block", "leave the column out, or number it")
    other = list(known).index("") if "" in known else None
    place = _placed(values, known, what, rows, other)
    block = np.zeros((len(place), len(known)), np.float32)
    block[np.arange(len(place)), place] = 1
    block[:, np.isin(known, unseen)] = 0
    return block


def places(
    values: np.ndarray, known: Sequence[str], what: str = "", rows: Sequence[Any] = (), missing: float | None = None
) -> np.ndarray:
    """The place of each value among ordered categories, from 0, float64 [n]; ``missing`` for any other value.

    Raises:
        DataError: A value is not among them, and nothing takes its place; the message names the first row.
    """
    place = _placed(values, known, what, rows, None if missing is None else -1)
    return np.where(place < 0, missing or 0.0, place)


def _placed(
    values: np.ndarray, known: Sequence[str], what: str = "", rows: Sequence[Any] = (), other: int | None = None
) -> np.ndarray:
    """Place of each value among the known ones, int64 [n], the last of one that is known twice.

    Any other value has the place ``other``; None: it raises DataError.
    """
    words, order = values.astype(str), np.argsort(np.array(known, str), kind="stable")
    ranked = np.array(known, str)[order]
    at = np.searchsorted(ranked, words, side="right") - 1  # -1, before the first, is no place of the word either
    there = ranked[at] == words
    if other is None and not there.all():
        first, count = int(there.argmin()), int((~there).sum())
        got = f"{str(words[first])!r} in row {rows[first]}" if words[first] else f"no value in row {rows[first]}"
        held = f"{count} of {len(there)} rows hold none of them"
        raise DataError(f"{what} must hold one of its categories, {some(known)}; got {got}, {held}")
    return np.where(there, order[at], -1 if other is None else other)


def is_absent(cell: str) -> bool:
    """Whether a cell says that its number is missing: blank, or a word such as NA."""
    return cell.lower() in ABSENT


def number_of(cell: str) -> float:
    """A cell as a number; infinity for a word, which is refused where infinity is."""
    try:
        value = float(cell.replace(MINUS, "-")) if "_" not in cell else float("inf")
        return value if value == value else float("inf")
    except ValueError:
        return float("inf")


def value_of(word: str) -> str:
    """A number as it is written shortest, so that 1, 1.0 and 01 are one; any other word as it is."""
    if not np.isfinite(number_of(word)):
        return word
    value = EXACT.normalize(Decimal(word.replace(MINUS, "-")))
    return f"{value:f}" if abs(value.adjusted()) < 40 and value else "0" if not value else str(value)


EXACT = Context(prec=5000)  # digits: more than a cell has


def folded(word: str) -> str:
    """A name without case, doubled blanks and characters that nobody sees: what spellings of one name share."""
    seen = "".join(c for c in word if unicodedata.category(c) != "Cf")
    return " ".join(seen.split()).casefold()


def spellings(cells: Iterable[str], what: str, notation: Notation, options: str = "") -> dict[str, str]:
    """The name that each word of a column stands for.

    Where all words are numbers, spellings of one number have one name. Of spellings that differ in case alone, folded
    ones have the name that comes first.

    Args:
        cells: Words of all files, as `spelt` writes them.
        what: Name of the column in error messages.
        notation: How the table writes names.
        options: Name of the class whose option says so, with a point.

    Raises:
        DataError: Spellings differ in case alone, and nothing says whether they are one name.
    """
    words = sorted(set(cells))
    numeric = notation.numeric(words)
    first: dict[str, str] = {}
    for word in words:
        other = first.setdefault(folded(word), word)
        if not numeric and notation.case == "refuse" and other != word:
            got = f"{other!r} and {word!r}; set {options}case to fold if they are one name, to keep if they are two"
            rule = "must not hold names that differ in case alone" + " or in blanks" * (other.lower() != word.lower())
            raise DataError(f"{what} {rule}; got {got}")
    if numeric:
        apart = len({*map(value_of, words)}) < len(words)
        return {word: value_of(word) if apart else word for word in words}
    return {word: first[folded(word)] if notation.case == "fold" else word for word in words}
