"""What the columns of a table become: labels, owners of rows, and features; one line says what is wrong, and where.

The rules are the same for every file of a table. `Roles` reads them from the options of its source.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedskew.data.arrays import ClassOptions, Dataset, build, code_of, held_out
from fedskew.data.encoding import (
    TIME,
    Column,
    Encoding,
    Notation,
    is_absent,
    lacks_column,
    number_of,
    numbers_of,
    places,
    spellings,
    spelt,
    value_of,
)
from fedskew.data.encoding import categories as one_hot
from fedskew.data.reading import ColumnRead, Reading
from fedskew.data.sources.files import files_of, insist_on_names, listed
from fedskew.data.sources.multilabel import indicators, several
from fedskew.data.values import FARTHEST, FILL, lacks, numbered, plain
from fedskew.errors import DataError, FieldError, closest, one_line, plural, some
from fedskew.fields import Listed, demand, later

LABELS = ("label", "labels", "y", "target", "class")
IDENTIFIER = re.compile(r"(?i:(?:^|[_\s-])(?:id|uuid|guid|index|key)$|^(?:unnamed: ?\d+)?$)|[a-z](?:Id|ID)$")
LIKELY = 20  # rows from which different whole numbers in every row look like an identifier
AUTO = "auto"
TYPES = ("number", "category", "ordinal", "drop")
DATE = re.compile(  # 2024-03-01, 2024-03, 1/3/24, 1 March 2024, March 1, 2024
    r"(?i)(\d{1,4}([-/.])\d\d?\2\d{1,4}|\d{4}-\d\d|\d\d?[-. ]+[a-z]{3,9}[-., ]+\d{4}|[a-z]{3,9} \d\d?, \d{4}"
    r"|\d\d?[-. ]?(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[-. ]?\d\d(\d\d)?)([T :].*)?$"  # of SAS, Oracle
)
MARKED = re.compile(  # a number with a mark or a unit, or in another notation: <90, 104 %, 7 mg/l, 1,5, $3; not 3rd
    r"0x[0-9a-f]+|[-+]?\d[\d.]*[eEdD][-+]?\d+|"  # of programs
    r"[<>=~≤≥±$€£]*\s*[-+]?\d[\d.,'_ \u00a0\u202f]*\s*(?!(?:st|nd|rd|th)$)(%|‰|[$€£]|°?[a-zA-Zµ/]{1,6}[23]?)?"
)
NUMBER = re.compile(r"\d+([.,]\d+)*")
CODE = re.compile(r"[^\W\d_]#")  # w12, as names have it
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")  # a decimal fraction, or more than a thousand
SENTINELS = (-9, -99, -999, -9999, -99999)  # that often stand for a missing number
SHOWN = 3  # values of a column that the account shows
MANY = 100  # most categories of a column that is taken for one by itself


def known_columns(options: Any, field: str, names: Sequence[str], place: str = "the file") -> list[str]:
    """The columns that a comma-separated field of options names. Raises FieldError for one that is not there."""
    given = listed(getattr(options, field))
    insist_on_names(options, field, f"name columns of {place}", given, names)
    return given


def column_of(options: Any, field: str, names: Sequence[str], usual: Sequence[str], rule: str) -> str:
    """The column that a field of options names, else the first usual name that is there; FieldError without one."""
    given = getattr(options, field)
    column = given if given is not None else next((name for name in usual if name in names), None)
    if column is None or column not in names:
        hint = f"no column is called {' or '.join(usual)}" if given is None else closest(given, names, listed=False)[2:]
        raise FieldError(type(options).__name__, field, f"name {rule} {', '.join(names)}", given, hint)
    return str(column)


def owner_columns(options: Any, names: Sequence[str], place: str = "the file") -> list[str]:
    """The columns that say whose a row is: those asked for, else "client" where it is there."""
    if options.columns is None:
        return [name for name in names if name == "client"]
    return known_columns(options, "columns", names, place)


@dataclass(frozen=True, kw_only=True)
class TableOptions(ClassOptions):
    """Options of every table of a user's own."""

    types: Listed = later(default="")
    """columns of features with their type, comma-separated, as in age=number,ward=category: number, category (one-hot),
    ordinal (the place in its order) or drop; before what categories finds"""
    split_by: str | None = later()
    """column, such as patient, none of whose values lies on both sides of a split: training and test rows, validation,
    local test"""

    missing: Literal["refuse", "fill"] = later(default="refuse")
    """missing feature values: refuse, or fill; fill uses the median of the training rows for numbers and an extra
    category for categories, which also takes values that no training row has; it says nothing where no training row is
    blank"""
    ordinal: Listed = later(default="")
    """feature columns with ordered categories, comma-separated, encoded by rank: of numbers, of a frame's ordered
    categories, or as in grade=low<mid<high"""
    missing_words: Listed | None = later()
    """words that mean that a value is missing, comma-separated, in every column, in any case; '': blanks alone; unset:
    ?, -, NA and the like too, which are refused in columns of words"""
    missing_labels: Literal["refuse", "drop"] = later(default="refuse")
    """rows without a label: refuse, or drop"""
    decimal: Literal["", ".", ","] = later(default="")
    """decimal mark of numbers in a text; unset: the point"""
    thousands: Literal["", ".", ",", "'", "space"] = later(default="")
    """mark between groups of three digits of a number; unset: none"""
    case: Literal["refuse", "keep", "fold"] = later(default="refuse")
    """names that differ in case alone: refuse, keep (they are two), or fold (they are one)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "thousands", not self.thousands or self.thousands != self.decimal, "differ from decimal")

    @property
    def notation(self) -> Notation:
        """How the table writes numbers, missing values and names."""
        words = None if self.missing_words is None else tuple(listed(self.missing_words))
        return Notation(self.decimal, self.thousands, words, self.case)

    @property
    def typed(self) -> dict[str, str]:
        """The type of each column that ``types`` names. Raises FieldError."""
        given = (entry.partition("=") for entry in listed(self.types))
        typed = {name.strip(): kind.strip() for name, _, kind in given}
        for name, kind in typed.items():
            hint = closest(kind, TYPES, listed=False)[2:]
            demand(self, "types", bool(name) and kind in TYPES, f"give NAME={'|'.join(TYPES)}", hint)
        return typed


def units_of(what: str, splits: Sequence[np.ndarray]) -> np.ndarray:
    """What no split may part, [n], of the training rows. Raises DataError where test rows have one of its values."""
    for test in splits[1:]:
        if shared := sorted({*map(str, test)} & {*map(str, splits[0])}):
            told = f"{plural(len(shared), 'value')} of it are among the training rows, too: {some(shared)}"
            raise DataError(f"{what} must part test rows from training rows; {told}")
    return splits[0]


class Table(NamedTuple):
    """Columns of a file, or of files that were put together."""

    file: Path
    columns: dict[str, Any]  # values as they were read, [n]
    rows: Sequence[Any]  # [n] how a message names each row
    files: tuple[tuple[str, int], ...] = ()  # rows of each file
    levels: Mapping[str, tuple[tuple[str, ...], bool]] = {}  # categories that the file or frame declares; ordered?
    left_out: tuple[str, ...] = ()  # columns that are the index of a frame

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns)

    @property
    def parts(self) -> Iterator[tuple[str, slice]]:
        """The rows of each file."""
        at = 0
        for name, rows in self.files or ((str(self.file), len(self.rows)),):
            yield name, slice(at, at := at + rows)

    def where(self, name: str) -> str:
        """What a message calls a column."""
        return f"{self.file}: column {name!r}"

    def at(self, kept: np.ndarray) -> "Table":
        """Some of its rows."""
        rows = [self.rows[i] for i in np.flatnonzero(kept).tolist()]
        files = tuple((name, int(kept[at].sum())) for name, at in self.parts)
        columns = {name: values[kept] if len(values) else values for name, values in self.columns.items()}
        return self._replace(columns=columns, rows=rows, files=files)


def beside(data: Dataset, place: Path, ending: str) -> Dataset:
    """The dataset whose account counts the files of the folder that were not read, as those for validation."""
    read = {Path(name) for name, _ in data.reading.files}
    count = sum(file not in read for file in files_of(place, ending)) if place.is_dir() else 0
    left_out = (("beside those that are read", count),) if count else ()
    return replace(data, reading=data.reading._replace(left_out=left_out))


class Settled(NamedTuple):
    """A column whose type is settled over all tables of a reading."""

    kind: str  # "number", "category" or "ordinal"
    parts: list[np.ndarray]  # of each table: numbers, NaN where one is missing; or words, "" where one is missing
    order: tuple[str, ...] = ()  # of ordered categories


def merged(place: Path, tables: Sequence[Table]) -> Table:
    """Tables of words of several clients as one, with a column client that says whose a row is: the name of its file.

    Args:
        place: What messages call the whole.
        tables: One for each client; those that have such a column keep theirs.

    Raises:
        DataError: A file lacks a column that the first one has, or has one more.
    """
    first = tables[0]
    for table in tables[1:]:
        if odd := {*first.names} ^ {*table.names}:
            raise DataError(f"{table.file} must have the columns of {first.file.name}; one of both lacks {min(odd)!r}")
    columns = {name: np.concatenate([t.columns[name] for t in tables]) for name in first.names}
    if "client" not in columns:
        columns["client"] = np.repeat(np.array([t.file.stem for t in tables]), [len(t.rows) for t in tables])
    rows = [f"{row} of {t.file.name}" for t in tables for row in t.rows]
    files = [part for t in tables for part in t.files]
    return Table(place, columns, rows, tuple(files), left_out=first.left_out)


@dataclass(frozen=True)
class Roles:
    """The roles of columns, from the options of a source: a `Csv`, or a `Parquet` of number and word columns."""

    options: Any
    names: tuple[str, ...] = ()  # of the classes, where the file tells them and labels are their numbers

    @property
    def owner(self) -> str:
        """Name of the class of options, for errors."""
        return type(self.options).__name__

    def dataset(self, tables: Sequence[Table], name: str, source: str) -> Dataset:
        """The dataset of a training table and, if there is one, a test table.

        Raises:
            ConfigError: A column is unknown.
            DataError: A value is missing, or a column does not hold what it must.
        """
        label, groups, features = self._chosen(tables[0])
        by, names_of_all = self.options.split_by, (*tables[0].left_out, *tables[0].names)
        shared = dict.fromkeys((label, *([by] if by else []), *features))
        used = [[n for n in (*groups, *shared) if n in t.columns] for t in tables]
        for table in tables:
            if absent := [column for column in shared if column not in table.columns]:
                raise lacks_column(str(table.file), absent[0], table.names, ", as train.csv has")
            if not len(table.rows):
                raise DataError(f"{table.file} must have rows; it has none")
        tables = [
            t._replace(columns={n: plain(t.columns[n], t.where(n)) for n in names})
            for t, names in zip(tables, used, strict=True)
        ]
        sizes = tuple((file, at.stop - at.start) for t in tables for file, at in t.parts)
        words = self._named(tables, label)
        read = [(np.array([number_of(word) for word in part.tolist()]), part == "") for part in words]
        self._insist_on_kinds(tables, label, read, "write one coding of labels")
        dropped = 0
        if self.options.missing_labels == "drop" and (dropped := sum(int((part == "").sum()) for part in words)):
            tables = [table.at(part != "") for table, part in zip(tables, words, strict=True)]
            words = [part[part != ""] for part in words]
        self._insist_on_values(tables, label, words, f", as by {self.owner}.missing_labels drop")
        owners = {name: self._named(tables, name) for name in dict.fromkeys((*groups, *([by] if by else [])))}
        for column, parts in owners.items():
            self._insist_on_values(tables if column == by else tables[:1], column, parts)
        units = units_of(tables[-1].where(by), owners[by]) if by else None
        settled = {name: self._settled(tables, name) for name in features}
        labels, names = self._labels(tables, label, words)
        train = np.ones(len(tables[0].rows), bool) if len(tables) > 1 else held_out(labels[0], names, units)
        encoding, notes = self._encoding(tables[0], settled, label, train, self._kept(labels, names, train, name))
        splits = [
            encoding.encode({n: column.parts[i] for n, column in settled.items()}, str(t.file), t.rows, notes)
            for i, t in enumerate(tables)
        ]
        if dropped:
            notes.append(f"rows without a label are left out: {dropped}")
        pairs = [part for pair in zip(splits, labels, strict=True) for part in pair]
        data = build(
            name, *pairs, columns={group: owners[group][0] for group in groups}, label_names=names, source=source,
            notes=notes, encoding=encoding, units=units, reading=Reading(),
            columns_test={group: part for group in groups for part in owners[group][1:]},
        )  # fmt: skip
        roles = {label: ("label", words), **{n: ("unit" if n == by else "client", p) for n, p in owners.items()}}
        account = (self._read(tables, n, encoding, settled, roles, dropped) for n in names_of_all)
        made: Dataset = self.options.of_classes(replace(data, reading=Reading(sizes, tuple(account))))
        return made

    def _named(self, tables: Sequence[Table], name: str) -> list[np.ndarray]:
        """A column of names of each table that has it: one spelling for each, "" where a value is missing.

        Raises:
            DataError: A word may mean that a value is missing, or spellings differ in case alone.
        """
        notation, where = self.options.notation, tables[0].where(name)
        parts = [spelt(table.columns[name]) for table in tables if name in table.columns]
        every, times = np.unique(np.concatenate(parts), return_counts=True)
        count = dict(zip(every.tolist(), times.tolist(), strict=True))
        numeric = all(np.isfinite(number_of(word)) for word in count if not is_absent(word))
        doubtful = [] if numeric or notation.missing_words is not None else [w for w in count if w and is_absent(w)]
        if doubtful:
            rows = sum(count[word] for word in doubtful)
            told = f"{rows} of {sum(count.values())} rows have {some([*map(repr, doubtful)])}"
            hint = f"set {self.owner}.missing_words to {doubtful[0]} if the value is missing, to '' if it is a value"
            raise DataError(f"{where} must hold words that say what they mean; {told}; {hint}")
        gone = {word for word in count if (notation.absent if numeric else notation.blank)(word)}
        names = spellings(count.keys() - gone, where, notation, f"{self.owner}.") | dict.fromkeys(gone, "")
        return [np.array([names[word] for word in part.tolist()], dtype=str) for part in parts]

    def _insist_on_values(self, tables: Sequence[Table], name: str, parts: Sequence[np.ndarray], do: str = "") -> None:
        """Raise DataError, with the rows and what to ``do``, unless a column of names has one in every row."""
        for table, part in zip(tables, parts, strict=False):
            if len(blank := np.flatnonzero(part == "")):
                rows = some([str(table.rows[i]) for i in blank.tolist()])
                hint = f"{FILL}{do}" + (f"; they are rows {rows}" if len(blank) > 1 else "")
                raise lacks(table.where(name), blank, len(part), hint=hint, rows=table.rows)

    def _insist_on_kinds(
        self, tables: Sequence[Table], name: str, read: Sequence[tuple[np.ndarray, np.ndarray]], hint: str
    ) -> None:
        """Raise DataError where most values of one file are numbers, and none of another; ``read`` is of `Notation`."""
        kinds: dict[bool, str] = {}
        for table, (found, gone) in zip(tables, read, strict=True):
            for file, at in table.parts:
                numbers = np.isfinite(found[at][~gone[at]])
                if len(numbers) and (not numbers.any() or 2 * numbers.sum() > len(numbers)):
                    first = spelt(table.columns[name][at][~gone[at]][:1])[0]
                    what = "numbers" if numbers.any() else "words"
                    kinds[bool(numbers.any())] = f"{file} has {what}, such as {str(first)!r}"
        if len(kinds) == 2:
            told = f"{kinds[True]}, and {kinds[False]}"
            raise DataError(f"{tables[0].where(name)} must hold values of one type in all files; {told}; {hint}")

    def _kept(self, labels: Sequence[np.ndarray], names: Sequence[str], train: np.ndarray, what: str) -> np.ndarray:
        """The training rows of the classes that the options keep."""
        codes, known = numbered([*labels, None][:2], names)
        known = known or tuple(map(str, range(int(max(np.max(part) for part in codes if part is not None)) + 1)))
        chosen = [code_of(known, name, what) for name in self.options.classes]
        kept = train & np.isin(codes[0], chosen) if chosen else train
        return kept if kept.any() else train  # of no row, which `keep_classes` refuses

    @staticmethod
    def _read(
        tables: Sequence[Table], name: str, encoding: Encoding, settled: Mapping[str, Settled],
        roles: Mapping[str, tuple[str, list[np.ndarray]]], dropped: int,
    ) -> ColumnRead:  # fmt: skip
        """The account of a column."""
        if name not in settled and name not in roles:
            return ColumnRead(name, "left out", change="the index of a frame" * (name in tables[0].left_out))
        column = next((column for column in encoding.columns if column.name == name), None)
        role, parts = roles[name] if column is None else ("feature", settled[name].parts)
        raw = np.concatenate([spelt(t.columns[name]) for t in tables if name in t.columns])
        values = np.concatenate(parts)
        number = column is not None and not column.values
        gone = np.isnan(values) if number else values == ""
        levels = [one_line(word, 40) for word in (column.values if column else np.unique(values).tolist()) if word]
        holds, kind, filled = f"{plural(len(levels), 'value')}: {some(levels)}", "category", "a category of its own"
        if column is not None and column.ordered:
            holds, kind, filled = "<".join(levels[:12]), "ordinal", "filled by the median place"
        elif column is not None and number:
            seen = values[~gone] if not gone.all() else np.zeros(1)
            holds, kind = f"{seen.min():.6g} to {seen.max():.6g}", "number"
            filled = f"filled by {column.missing or 0:.6g}"
        spelled = [] if number else sorted({*zip(raw.tolist(), values.tolist(), strict=True)})
        change = [filled] * bool(gone.any()) + ["their rows are left out"] * bool(role == "label" and dropped)
        change += [f"{a!r} is read as {b!r}" for a, b in spelled if b and a != b][:SHOWN]
        first = tuple(one_line(word, 40) for word in raw[:SHOWN].tolist())
        missing = dropped if role == "label" else int(gone.sum())
        return ColumnRead(name, role, kind, holds, first, missing, "; ".join(change))

    def _chosen(self, table: Table) -> tuple[str, list[str], list[str]]:
        """(column of labels, columns of clients, columns of features)."""
        names, options = table.names, self.options
        self._insist_on_one_label(table)
        label = column_of(options, "y_column", names, LABELS, "the column of labels, one of")
        groups = owner_columns(options, names, table.file.name)
        typed = options.typed
        insist_on_names(options, "types", f"name columns of {table.file.name}", typed, names)
        dropped = {label, *groups, *self._listed("exclude", table), *self._listed("split_by", table)}
        dropped |= {name for name, kind in typed.items() if kind == "drop"}
        asked = [name for name in self._listed("x_column", table) if typed.get(name) != "drop"]
        features = [n for n in names if n not in dropped] if options.x_column is None else asked
        demand(options, "x_column", bool(features), "name a column of features")
        demand(options, "x_column", label not in features, f"not hold the column of labels, {label!r}")
        used = [name for name, kind in typed.items() if kind != "drop"]
        for field, part in (("categories", self._grouped(table)), ("ordinal", self._ordered(table)), ("types", used)):
            for name in part:
                demand(options, field, name in features, f"name columns of features; {name!r} is none")
        return label, groups, features

    def _insist_on_one_label(self, table: Table) -> None:
        """Raise FieldError where several columns look like labels of a row."""
        given, apart = self.options.y_column, indicators(table.columns)
        beside = [name for name in apart if name != given and name not in listed(self.options.exclude)]
        if given is None:
            holds = len(apart) < 2 or any(name in table.names for name in LABELS)
        elif given in apart:
            holds = not beside or self.options.x_column is not None
        else:
            beside = listed(given)
            holds = given in table.names or len(beside) < 2 or not {*beside} <= {*table.names}
        rule = "name one column of labels: several labels a row (multi-label) are not supported"
        hint = f"make one column of classes of them, or leave others out by {self.owner}.exclude"
        told = f"{some(apart if given is None else beside)} look like labels; {hint}"
        demand(self.options, "y_column", holds, rule, told)

    def _listed(self, field: str, table: Table) -> list[str]:
        """The columns that a field names."""
        return known_columns(self.options, field, table.names, table.file.name)

    def _grouped(self, table: Table) -> list[str]:
        """Columns that are listed as categories; none of those that are found by themselves."""
        return [] if self.options.categories == AUTO else self._listed("categories", table)

    def _ordered(self, table: Table) -> dict[str, tuple[str, ...]]:
        """Columns whose categories have an order, with the order; () for that of the sorted values."""
        found: dict[str, tuple[str, ...]] = {}
        for entry in self.options.ordinal.split(","):
            name, _, order = (part.strip() for part in entry.partition("="))
            if name:
                insist_on_names(self.options, "ordinal", f"name columns of {table.file.name}", [name], table.names)
                found[name] = tuple(value.strip() for value in order.split("<")) if order else ()
                holds = len(set(found[name])) == len(found[name]) != 1 and "" not in found[name]
                demand(self.options, "ordinal", holds, "give an order of different values", "as in grade=low<mid<high")
        return {name: () for name, kind in self.options.typed.items() if kind == "ordinal"} | found

    def _settled(self, tables: Sequence[Table], name: str) -> Settled:
        """A column of features of a type, which all files share. Raises DataError for a value of another type."""
        levels, named_order = tables[0].levels.get(name), self._ordered(tables[0])
        asked = "ordinal" if name in named_order else "category" if name in self._grouped(tables[0]) else ""
        declared = "" if levels is None else "ordinal" if levels[1] else "category"
        kind = self.options.typed.get(name) or asked or declared or self._kind_of(tables, name)
        if kind == "number":
            return Settled(kind, self._numbers(tables, name))
        parts, filled = self._named(tables, name), self.options.missing == "fill"
        if kind == "category":
            if not filled:
                known = [value for value in np.unique(parts[0]).tolist() if value]
                advice = f"; set {self.owner}.missing to fill, and a blank is a category of its own"
                one_hot(parts[0], known, tables[0].where(name), tables[0].rows, advice)
            return Settled(kind, parts)
        order, seen = named_order.get(name, ()), [word for word in np.unique(np.concatenate(parts)).tolist() if word]
        if order:
            parts = [self.options.notation.meant(part, order) for part in parts]
        elif 2 * sum(np.isfinite(number_of(w)) for p in parts for w in p.tolist()) > sum(map(np.count_nonzero, parts)):
            self._numbers(tables, name)  # which names a word among them
            order = tuple(sorted(seen, key=float))
        elif levels is not None and levels[1]:
            order = tuple(spelt(np.array(levels[0])).tolist())
        else:
            words = [word for word in seen if not np.isfinite(number_of(word))]
            told = f"of its {plural(len(seen), 'value')} {len(words)} hold no number: {some(words)}"
            hint = f"give it, as in {self.owner}.ordinal {name}=low<mid<high, or set {self.owner}.missing_words"
            raise DataError(f"{tables[0].where(name)} must have an order; {told}; {hint}")
        for table, part in zip(tables, parts, strict=True):
            advice = f"; set {self.owner}.missing to fill, and it takes the median place"
            present = np.flatnonzero(part != "") if filled else np.arange(len(part))
            places(part[present], order, table.where(name), [table.rows[i] for i in present.tolist()], fill=advice)
        return Settled(kind, parts, order)

    def _numbers(self, tables: Sequence[Table], name: str) -> list[np.ndarray]:
        """The numbers of each table, NaN where one is missing and is filled. Raises DataError."""
        owner, notation, filled = self.owner, self.options.notation, self.options.missing == "fill"
        hint = f"correct them, leave the column out by {owner}.exclude, or take words by {owner}.types {name}=category"
        hint += f"; words for a missing value stand in {owner}.missing_words"
        advice, gone = ("", np.nan) if filled else (f", or set {owner}.missing to fill", None)
        found, parted = list[np.ndarray](), list[str]()
        for table in tables:
            values, where = table.columns[name], table.where(name)
            found.append(numbers_of(values, where, table.rows, gone, hint, advice, notation, f"{owner}."))
            if values.dtype.kind == "U":
                parted += [text.strip() for text in values.tolist() if "." in text or "e" in text or "E" in text]
        if parted and not notation.decimal and not notation.thousands and all(map(THOUSANDS.fullmatch, parted)):
            told = f"{parted[0]} may be {parted[0].replace('.', '')}: each cell with a point has three digits behind it"
            hint = f"set {owner}.decimal to '.' if it is a decimal point, or {owner}.thousands to '.'"
            raise DataError(f"{tables[0].where(name)} must hold numbers of one reading; {told}; {hint}")
        return found

    def _encoding(
        self, table: Table, settled: Mapping[str, Settled], label: str, train: np.ndarray, kept: np.ndarray
    ) -> tuple[Encoding, list[str]]:
        """Features by the training rows, and notes.

        Medians and filled categories are those of the training rows. Refused missing values leave the categories those
        of the whole file, so that a held-out row has one. Numbers are standardised in float64 by the rows ``kept``.
        """
        filled, made, notes = self.options.missing == "fill", list[Column](), list[str]()
        for name, column in settled.items():
            cells = column.parts[0]
            if column.kind == "category":
                known = tuple(np.unique(cells[train] if filled else cells).tolist())
                known = (*(value for value in known if value), "") if filled else known
                heard = {*cells[kept].tolist()}
                made.append(Column(name, known, unseen=tuple(value for value in known if value not in heard)))
                continue
            ordered = column.kind == "ordinal"
            if ordered:
                cells = places(cells, column.order, table.where(name), table.rows, missing=np.nan)
            else:
                notes += self._doubts(name, cells, train)
            seen = cells[train & np.isfinite(cells)]
            missing = float(np.median(seen)) if len(seen) else 0.0
            mean, std = 0.0, 1.0
            if self.options.standardise:
                values = np.where(np.isnan(cells), missing, cells)[kept]
                mean, std = float(values.mean()), float(values.std()) if values.min() < values.max() else 1.0
            elif len(np.unique(seen.astype(np.float32))) < len(np.unique(seen)):
                told = f"float32 holds fewer different values; {self.owner}.standardise keeps them"
                notes.append(f"column {name!r}: {told}")
            made.append(Column(name, column.order, mean, std or 1.0, missing if filled else None, ordered))
        if filled:
            blanks = {
                n: c.parts[0] != c.parts[0] if c.kind == "number" else c.parts[0] == "" for n, c in settled.items()
            }
            if told := ", ".join(f"{name} {n}" for name, gone in blanks.items() if (n := int(gone[train].sum()))):
                notes.append(f"cells without a value in {int(train.sum())} training rows are filled: {told}")
        return Encoding(tuple(made), False, label, self.options.notation), notes

    def _doubts(self, name: str, values: np.ndarray, train: np.ndarray) -> Iterator[str]:
        """Notes that a column of numbers has none, or looks like an identifier."""
        seen = values[~np.isnan(values)]
        if not len(values[train & ~np.isnan(values)]):
            yield f"feature {name!r} has no value in any training row: it is 0; {self.owner}.exclude leaves it out"
        whole, least = bool((seen == np.floor(seen)).all()), float(seen.min(initial=0))
        apart, far = len(np.unique(seen)) == len(values) >= LIKELY, np.abs(seen).max(initial=0) > FARTHEST
        if least in SENTINELS and len(others := seen[seen != least]) and others.min() >= 0:
            rows = int((seen == least).sum())
            told = f"{rows} of {plural(len(values), 'row')} have {least:g}, and no other is below 0"
            yield f"column {name!r}: {told}; set {self.owner}.missing_words to {least:g} if the value is missing"
        if (whole and (apart or far)) or IDENTIFIER.search(name):
            why = f"its {len(values)} values are all different whole numbers" if whole and apart else "by its name"
            why = "its whole numbers are too large for float64 to hold apart" if whole and far else why
            yield f"feature {name!r} looks like an identifier, {why}; {self.owner}.exclude {name} leaves it out"

    def _kind_of(self, tables: Sequence[Table], name: str) -> str:
        """What a column is for which no option says it. Raises DataError for dates, and for too many words."""
        cells, notation = [table.columns[name] for table in tables], self.options.notation
        read = [notation.read(part) for part in cells]
        as_words = f"set {self.owner}.types {name}=category"
        self._insist_on_kinds(tables, name, read, f"write it alike, or {as_words}")
        numbers = sum(int(np.isfinite(found[~gone]).sum()) for found, gone in read)
        if 2 * numbers > (total := sum(int((~gone).sum()) for _, gone in read)) or not total:
            return "number"
        every = np.concatenate(cells).tolist()
        texts = [text for text in every if not notation.absent(text)]
        for what, form in (("dates", DATE), ("times", TIME)):
            found = [text for text in texts if form.fullmatch(text)]
            if 2 * len(found) > len(texts):
                told = f"{len(found)} of {len(every)} are {what}, such as {found[0]!r}"
                hint = f"leave it out by {self.owner}.exclude, make it a number, or {as_words}"
                raise DataError(f"{tables[0].where(name)} must hold numbers or categories; {told}; {hint}")
        if self.options.categories != AUTO:
            return "number"
        shape, times = Counter(NUMBER.sub("#", text) for text in texts).most_common(1)[0]  # "USD #", "(#)"
        alike = shape.count("#") == 1 and not CODE.search(shape) and 2 * times > len(texts) and len({*texts}) > LIKELY
        if alike or 2 * sum(np.isfinite(notation.number(t)) or bool(MARKED.fullmatch(t)) for t in texts) > len(texts):
            return "number"
        if (many := len({*every})) > MANY:
            rule = f"have at most {MANY} categories to be one by itself; got {many}"
            hint = f"leave it out by {self.owner}.exclude, or list every category column in {self.owner}.categories"
            raise DataError(f"{tables[0].where(name)} must {rule}; {hint}")
        return "category"

    def _insist_on_classes(self, cells: np.ndarray, where: str) -> None:
        """Raise DataError where words are lists of labels."""
        if lists := several(np.unique(cells).tolist()):
            rows = f"{np.isin(cells, lists).sum()} of {len(cells)} rows"
            told = f"{rows} have several, such as {one_line(lists[0], 60)!r}"
            hint = f"give each row one class, or set {self.owner}.named_labels if that is the name of a class"
            raise DataError(f"{where} must hold one label a row (multi-label is not supported); {told}; {hint}")

    def _labels(
        self, tables: Sequence[Table], name: str, cells: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], tuple[str, ...]]:
        """(labels of each file as numbers 0..C-1 or strings, names of the classes where they are settled here)."""
        every, where = np.concatenate(cells), tables[0].where(name)
        if len(different := {*every.tolist()}) < 2:
            told = f"has one class, {str(every[0])!r}, in all {len(every)} rows"
            hint = f"a classifier needs two; is another column meant by {self.owner}.y_column?"
            raise DataError(f"{where} {told}; {hint}")
        numbers = np.array([number_of(cell) for cell in every.tolist()])
        named, ends = self.options.named_labels, [len(cells[0])]
        if not np.isfinite(numbers).all():
            if not named:
                self._insist_on_classes(every, where)
            odd = Counter(every[~np.isfinite(numbers)].tolist())
            if 2 * odd.total() <= len(every) and not named:
                most = ", ".join(f"{word!r} ({count})" for word, count in odd.most_common(3))
                hint = f"set {self.owner}.named_labels if they are classes, {self.owner}.missing_words if they are none"
                raise DataError(f"{where} must hold numbers or words; most are numbers, others are {most}; {hint}")
            return list(cells), ()
        signs = named and {*map(value_of, different)} == {"-1", "1"}
        if (numbers == -1).any() and numbers.max() >= 0 and self.options.missing_words is None and not signs:
            rows = f"{int((numbers == -1).sum())} of {len(numbers)} rows"
            told = f"{rows} have -1, which often marks rows without a label"
            hint = f"set {self.owner}.missing_words to -1 and {self.owner}.missing_labels to drop"
            other = f"if it is a class, {self.owner}.missing_words to '' and {self.owner}.named_labels"
            raise DataError(f"{where} must hold labels; {told}; {hint}; {other}")
        if self.names and not named:
            return np.split(numbers, ends)[: len(cells)], self.names
        if named:
            names = sorted(different, key=lambda cell: (float(cell), cell))
            place = {cell: code for code, cell in enumerate(names)}
            return np.split(np.array([place[cell] for cell in every.tolist()]), ends)[: len(cells)], tuple(names)
        found = np.unique(numbers)
        if not np.array_equal(found, np.arange(len(found))):
            told = f"{where} has labels from {found[0]:.17g} to {found[-1]:.17g}"
            hint = "measured values must be cut into classes" if (found != np.floor(found)).any() else ""
            rule = f"be true where labels are numbers other than 0 to {len(found) - 1}"
            raise FieldError(self.owner, "named_labels", rule, False, f"{told}; {hint}" if hint else told)
        return np.split(numbers.astype(np.int64), ends)[: len(cells)], ()
