"""What the columns of a table become: labels, owners of rows, and features; one line says what is wrong, and where.

The rules are the same for every file of a table. `Roles` reads them from the options of its source.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedskew.data.arrays import ClassOptions, ColumnRead, Dataset, Reading, build, code_of, held_out
from fedskew.data.encoding import TRUTH, Column, Encoding, Notation, is_absent, number_of, numbers_of, places, spellings
from fedskew.data.sources.files import insist_on_names, listed, paired
from fedskew.data.values import FARTHEST, FILL, lacks, lacks_column, numbered, one_order, plain, spelt, units_of
from fedskew.errors import DataError, FieldError, claim, closest, one_line, plural, some
from fedskew.fields import Listed, demand, omit_if_default

BRACKETED = re.compile(r"\[(.*)\]|\{(.*)\}|\((.*)\)", re.DOTALL)
QUOTED = re.compile(r"""\s*(['"]).*\1\s*,\s*(['"]).*\2\s*""", re.DOTALL)
SETS = (";", "|")  # they join labels more often than they stand in a name
JOINTS = (*SETS, ",")
ONE_OF_SEVERAL = re.compile(r"(?i)(label|labels|y|target|class)([_.\- ]\w+|\d+)")
LABELS = ("label", "labels", "y", "target", "class")
IDENTIFIER = re.compile(r"(?i:(?:^|[_\s-])(?:id|uuid|guid|index|key)$|^(?:unnamed: ?\d+)?$)|[a-z](?:Id|ID)$")
LIKELY = 20  # rows from which different whole numbers in every row look like an identifier
AUTO = "auto"
MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
DATE = re.compile(  # 2024-03-01, 1/3/24, 2024-03, 2024Q1, 1 March 2024, Fri Mar 1 05:07:09 2024, 01MAR24, Mar-24, 1-Mar
    r"(?i)([a-z]{3,9}\.?,? )?(\d{1,4}([-/.])\d\d?\3\d{1,4}\.?|\d{4}年\d\d?月\d\d?日|\d{4}-\d\d|[01]\d/(19|20)\d\d"
    r"|\d{4}-?[qw]\d\d?(-\d)?|\d{8}T\d{4,6}|\d\d?(st|nd|rd|th)?[-. ]+[^\W\d_]{3,9}[-., ]+\d{4}"
    r"|[a-z]{3,9}\.? \d\d?(st|nd|rd|th)?,? ([\d:]+ )?\d{4}"
    rf"|{MONTH}[a-z]*[-. ]+(19|20)\d\d|{MONTH}-\d\d|\d\d?-{MONTH}|\d\d?[-. ]?{MONTH}[-. ]?\d\d(\d\d)?)([T :/].*)?$"
)
TIME = re.compile(  # 12:30, 3 days 02:00:00, 86400 seconds, 1h30
    r"(?i)(-?\d+ days?,? )?[-+]?\d+:\d\d(:\d\d)?([.,]\d+)?( ?[ap]m)?|-?\d+ (\w*seconds?|minutes?|hours?|days?|weeks?)"
    r"|\d+ ?h ?\d+( ?m(in)?)?"
)
MARKED = re.compile(  # a number with a mark or a unit, or in another notation: <90, 104 %, 7 mg/l, 1,5, $3; not 3rd
    r"0x[0-9a-f]+|[-+]?\d[\d.]*[eEdD][-+]?\d+|\d+ ?/ ?\d+|"  # of programs; 120/80
    r"[<>=~≤≥±$€£']*\s*[-+–]?\d[\d.,'’_ \u00a0\u202f]*\s*(?!(?:st|nd|rd|th)$)(%|‰|[$€£]|°?[a-zA-Zµ/]{1,6}[23]?)?"
)
NUMBER = re.compile(r"\d+([.,]\d+)*")
CODE = re.compile(r"[^\W\d_]#")  # w12, as names have it
SENTINELS = (-9, -99, -999, -9999, -99999)  # that often stand for a missing number
SHOWN = 3  # values of a column that the account shows
MANY = 100  # most categories of a column that is taken for one by itself


def known_columns(options: Any, field: str, names: Sequence[str], place: str = "the file") -> list[str]:
    """The columns that a comma-separated field of options names. Raises FieldError for one that is not there."""
    given = listed(getattr(options, field))
    insist_on_names(options, field, f"name columns of {place}", given, names)
    return given


def column_of(options: Any, field: str, names: Sequence[str], usual: Sequence[str], rule: str) -> str:
    """The column that a field of options names, else that with a usual name; FieldError without one, or for two."""
    given = getattr(options, field)
    chosen = [name for name in usual if name in names] if given is None else [given]
    if len(chosen) > 1 and "x" in names:  # beside which y is a coordinate
        chosen = [name for name in chosen if name != "y"]
    if len(chosen) != 1 or chosen[0] not in names:
        hint = f"no column is called {' or '.join(usual)}" if given is None else closest(given, names, listed=False)[2:]
        hint = f"{' and '.join(chosen)} may each be it: the others are features unless excluded" if chosen[1:] else hint
        raise FieldError(type(options).__name__, field, f"name {rule} {', '.join(names)}", given, hint)
    return str(chosen[0])


def owner_columns(options: Any, names: Sequence[str], place: str = "the file") -> list[str]:
    """The columns that say whose a row is: those asked for, else "client" where it is there."""
    if options.columns is None:
        return [name for name in names if name == "client"]
    return known_columns(options, "columns", names, place)


def label_of(options: Any, names: Sequence[str], encoding: Encoding | None) -> str:
    """The column of labels of new rows: the one asked for, that of the training table, or a usual name; "" for none."""
    features = [column.name for column in encoding.columns] if encoding else []
    known = encoding.label if encoding else ""
    usual = [name for name in ([known] if known in names else LABELS) if name in names and name not in features]
    asked = options.y_column is not None
    return column_of(options, "y_column", names, usual, "columns of the file:") if asked or usual else ""


def several(names: Sequence[str]) -> list[str]:
    """The labels that are lists of labels.

    A label in brackets is one where its parts are quoted, or where others have more or fewer; "[0, 10]" and "[10, 20]"
    are ranges. A label that a separator parts is one where a part is also a label by itself, or stands at different
    places of different lists; "Doe, John" and "Doe, Jane" are names. Where ";" or "|" parts them, it is enough that
    parts of two places occur in several lists; of "animal|cat" and "animal|dog" it is one place.

    Args:
        names: Different labels.

    Returns:
        Those that are lists, in order; empty where the labels are classes.

    Example:
        >>> from fedskew.data.sources.columns import several
        >>> several(["cat", "cat;dog", "dog"]), several(["['a', 'b']", "['a']"]), several(["Doe, John", "Doe, Jane"])
        (['cat;dog'], ["['a', 'b']"], [])
    """
    inside = {name: "".join(filter(None, match.groups())) for name in names if (match := BRACKETED.fullmatch(name))}
    listed = [name for name in inside if "," in inside[name]]
    if len({text.count(",") for text in inside.values()}) > 1 or any(QUOTED.fullmatch(inside[name]) for name in listed):
        return listed
    for separator in JOINTS:
        lists = {name: [part.strip() for part in name.split(separator)] for name in names if separator in name}
        whole = {name.strip() for name in names if name not in lists}
        lists = {name: parts for name, parts in lists.items() if all(parts) and len(set(parts)) == len(parts)}
        seen = Counter((part, place) for parts in lists.values() for place, part in enumerate(parts))
        placed = Counter(part for part, _ in seen)
        places = {place for (_, place), times in seen.items() if times > 1}
        if whole & {*placed} or max(placed.values(), default=0) > 1 or (separator in SETS and len(places) > 1):
            return [*lists]
    return []


def indicators(columns: Mapping[str, Any]) -> list[str]:
    """Columns that look like one label each: label_a, label_b and so on, all of 0 and 1."""
    binary = {"0", "1", "0.0", "1.0", "False", "True", "false", "true"}
    named = [name for name in columns if ONE_OF_SEVERAL.fullmatch(name)]
    return [name for name in named if {*spelt(plain(columns[name])).tolist()} <= binary]


@dataclass(frozen=True, kw_only=True)
class TableOptions(ClassOptions):
    """Options of every table of a user's own."""

    split_by: str | None = omit_if_default()
    """column, such as patient, none of whose values lies on both sides of a split: training and test rows, validation,
    local test"""

    missing: Literal["refuse", "fill"] = omit_if_default(default="refuse")
    """missing feature values: refuse, or fill; fill uses the median of the training rows for numbers and an extra
    category for categories, which also takes values that no training row has; it says nothing where no training row is
    blank"""
    ordinal: Listed = omit_if_default(default="")
    """feature columns with ordered categories, comma-separated, encoded by rank: of numbers, of a frame's ordered
    categories, or as in grade=low<mid<high"""
    missing_words: Listed | None = omit_if_default()
    """words that mean that a value is missing, comma-separated, in every column, in any case; '': blanks alone; unset:
    ?, -, NA and the like too, which are refused in columns of words"""
    missing_labels: Literal["refuse", "drop"] = omit_if_default(default="refuse")
    """rows without a label: refuse, or drop"""
    decimal: Literal["", ".", ","] = omit_if_default(default="")
    """decimal mark of numbers in a text; unset: the point"""
    thousands: Literal["", ".", ",", "'", "space"] = omit_if_default(default="")
    """mark between groups of three digits of a number; unset: none"""
    case: Literal["refuse", "keep", "fold"] = omit_if_default(default="refuse")
    """names that differ in case alone: refuse, keep (they are two), or fold (they are one)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "thousands", not self.thousands or self.thousands != self.decimal, "differ from decimal")

    @property
    def notation(self) -> Notation:
        """How the table writes numbers, missing values and names."""
        words = None if self.missing_words is None else tuple(listed(self.missing_words))
        return Notation(self.decimal, self.thousands, words, self.case)


class Table(NamedTuple):
    """Columns of a file, or of files that were put together."""

    file: Path
    columns: dict[str, Any]  # values as they were read, [n]
    rows: Sequence[Any]  # [n] how a message names each row
    files: tuple[tuple[str, int], ...]  # rows of each file
    levels: Mapping[str, tuple[tuple[str, ...], bool]] = {}  # declared categories, () where orders differ; ordered?
    left_out: tuple[str, ...] = ()  # columns that are the index of a frame

    @property
    def parts(self) -> Iterator[tuple[str, slice]]:
        """The rows of each file."""
        at = 0
        for name, rows in self.files:
            yield name, slice(at, at := at + rows)

    def where(self, name: str) -> str:
        """What a message calls a column."""
        return f"{self.file}: column {name!r}"

    def at(self, kept: np.ndarray) -> "Table":
        """Some of its rows."""
        rows = [self.rows[i] for i in np.flatnonzero(kept).tolist()]
        files = tuple((name, int(kept[at].sum())) for name, at in self.parts)
        return self._replace(columns={n: v[kept] for n, v in self.columns.items()}, rows=rows, files=files)


def stacked(place: Path, tables: Sequence[Table], names: Iterable[str]) -> Table:
    """Some columns of tables, one table below the other; blanks where one lacks a column.

    Several tables are called by `place`, and their rows by row and file. Declared orders that contradict count as none.
    """
    first, apart = tables[0], len(tables) > 1
    orders = {n: one_order([t.levels[n][0] for t in tables if n in t.levels]) for n in first.levels}
    whole = first._replace(file=place if apart else first.file, files=tuple(f for t in tables for f in t.files))
    columns = {}
    for name in names:
        parts = [plain(t.columns.get(name, np.full(len(t.rows), "")), t.where(name)) for t in tables]
        alike = len({part.dtype.kind == "U" for part in parts}) == 1
        columns[name] = np.concatenate(parts if alike else [*map(spelt, parts)])
    rows = [row if isinstance(row, str) else f"{row} of {t.file.name}" for t in tables for row in t.rows]
    levels = {n: (orders[n], ordered) for n, (_, ordered) in first.levels.items()}
    return whole._replace(columns=columns, rows=rows if apart else first.rows, levels=levels)


def of_clients(place: Path, tables: Sequence[Table]) -> Table:
    """Tables of words of several clients as one, with a column client that says whose a row is: the name of its file.

    Args:
        place: What messages call the whole.
        tables: One for each client; those that have such a column keep theirs.

    Raises:
        DataError: A file lacks a column that the first one has, or has one more.
    """
    first = tables[0]
    for table in tables[1:]:
        odd = some([*map(repr, sorted({*first.columns} ^ {*table.columns}))])
        claim(not odd, table.file, f"have the columns of {first.file.name}; one of both lacks {odd}")
    whole = stacked(place, tables, first.columns)
    whole.columns.setdefault("client", np.repeat([t.file.stem for t in tables], [len(t.rows) for t in tables]))
    return whole._replace(file=place)


class Settled(NamedTuple):
    """A column whose type is settled over all files."""

    kind: str  # "number", "category" or "ordinal"
    cells: np.ndarray  # [n] numbers, NaN where one is missing; or words, "" where one is missing
    order: tuple[str, ...] = ()  # of ordered categories

    @property
    def gone(self) -> np.ndarray:
        """Where a value is missing, bool [n]."""
        return np.asarray(np.isnan(self.cells) if self.kind == "number" else self.cells == "")


@dataclass(frozen=True)
class Roles:
    """The roles of columns, from the options of a source: a `Csv`, or a `Parquet` of number and word columns."""

    options: Any
    names: tuple[str, ...] = ()  # of the classes, where the file tells them and labels are their numbers

    @property
    def owner(self) -> str:
        """Name of the class of options, for errors."""
        return type(self.options).__name__

    def dataset(self, place: Path, tables: Sequence[Table], name: str, source: str) -> Dataset:
        """The dataset of a training table and, if there is one, a test table.

        Raises:
            ConfigError: A column is unknown.
            DataError: A value is missing, or a column does not hold what it must.
        """
        label, groups, features, kinds, orders = self._chosen(tables[0])
        by = self.options.split_by
        shared = [*dict.fromkeys((label, *([by] if by else []), *features))]
        for table in tables:
            if absent := [column for column in shared if column not in table.columns]:
                raise lacks_column(str(table.file), absent[0], [*table.columns], ", as the training file has")
            claim(len(table.rows), table.file, "have rows", "none")
        first, table = tables[0], stacked(place, tables, dict.fromkeys((*groups, *shared)))
        sizes, test = table.files, np.arange(len(table.rows)) >= len(first.rows)
        words = self._named(table, label)
        self._insist_on_kinds(table, label, _numbers_in(words), words == "", "write one coding of labels")
        dropped = int((words == "").sum()) if self.options.missing_labels == "drop" else 0
        if dropped:
            table, test, words = table.at(words != ""), test[words != ""], words[words != ""]
        self._insist_on_values(table, label, words, f", as by {self.owner}.missing_labels drop")
        owners = {column: self._named(table, column) for column in dict.fromkeys((*groups, *([by] if by else [])))}
        for column, cells in owners.items():
            self._insist_on_values(table, column, cells if column == by else cells[~test])
        units = units_of(table.where(by), [owners[by][~test], owners[by][test]]) if by else None
        settled = {n: self._settled(table, n, kinds.get(n, ""), orders.get(n, ())) for n in features}
        labels, names = self._labels(table.where(label), words)
        train = np.ones((~test).sum(), bool) if test.any() else held_out(labels, names, units)
        kept = train & self._kept(labels, names, name)[~test]
        known = {n: column._replace(cells=column.cells[~test]) for n, column in settled.items()}
        encoding, notes = self._encoding(known, label, train, kept if kept.any() else train)
        x = encoding.encode({n: c.cells for n, c in settled.items()}, str(table.file), table.rows, notes)
        notes += [f"rows without a label are left out: {dropped}"] * bool(dropped)
        for feature, column in settled.items():
            if one_to_one(column.cells, words):
                notes.append(f"feature {feature!r} alone tells the class; {self.owner}.exclude {feature} leaves it out")
        apart = test.any()
        data = build(
            name, x[~test], labels[~test], *((x[test], labels[test]) if apart else ()), label_names=names,
            source=source, notes=notes, encoding=encoding, units=units, reading=Reading(),
            columns={group: owners[group][~test] for group in groups},
            columns_test={group: owners[group][test] for group in groups if apart and group in tables[-1].columns},
        )  # fmt: skip
        roles = {n: ("unit" if n == by else "client", cells[~test]) for n, cells in owners.items()}
        roles[label] = ("label", words)
        account = (self._read(table, n, encoding, settled, roles, dropped) for n in (*first.left_out, *first.columns))
        return replace(data, reading=Reading(sizes, tuple(account)))

    def _named(self, table: Table, name: str) -> np.ndarray:
        """A column of names: one spelling for each, "" where a value is missing.

        Raises:
            DataError: A word may mean that a value is missing, or spellings differ in case alone.
        """
        notation, where = self.options.notation, table.where(name)
        every, at, times = np.unique(spelt(table.columns[name]), return_inverse=True, return_counts=True)
        count = dict(zip(every.tolist(), times.tolist(), strict=True))
        numeric = all(np.isfinite(number_of(word)) for word in count if not is_absent(word))
        doubtful = [] if numeric else [word for word in count if notation.doubtful(word)]
        got = f"{sum(map(count.__getitem__, doubtful))} of {len(at)} rows have {some([*map(repr, doubtful)])}"
        hint = f"set {self.owner}.missing_words to {some(doubtful)} if the value is missing, to '' if it is a value"
        claim(not doubtful, where, f"hold words that say what they mean; {got}", hint=hint)
        gone = {word for word in count if (notation.absent if numeric else notation.blank)(word)}
        names = spellings(count.keys() - gone, where, notation, f"{self.owner}.") | dict.fromkeys(gone, "")
        return np.array([names[word] for word in count], dtype=str)[at]

    def _insist_on_values(self, table: Table, name: str, cells: np.ndarray, do: str = "") -> None:
        """Raise DataError, with the rows and what to `do`, unless a column of names has one in every row."""
        if len(blank := np.flatnonzero(cells == "")):
            others = f"; they are rows {some([str(table.rows[i]) for i in blank.tolist()])}" if len(blank) > 1 else ""
            raise lacks(table.where(name), blank, len(cells), hint=f"{FILL}{do}{others}", rows=table.rows)

    def _insist_on_kinds(self, table: Table, name: str, read: np.ndarray, gone: np.ndarray, hint: str) -> None:
        """Raise DataError where most values of one file are numbers, and none of another; as `Notation.read` has it."""
        kinds: dict[str, str] = {}
        for file, at in table.parts:
            numbers = np.isfinite(read[at][~gone[at]])
            if len(numbers) and (not numbers.any() or 2 * numbers.sum() > len(numbers)):
                first = spelt(table.columns[name][at][~gone[at]][:1])[0]
                what = "numbers" if numbers.any() else "words"
                kinds[what] = f"{file} has {what}, such as {str(first)!r}"
        got = ", and ".join(kinds[kind] for kind in sorted(kinds))
        claim(len(kinds) < 2, table.where(name), f"hold values of one type in all files; {got}", hint=hint)

    def _kept(self, labels: np.ndarray, names: Sequence[str], what: str) -> np.ndarray:
        """The rows of the classes that the options keep, bool [n]."""
        (codes,), known = numbered([labels], names)
        known = known or tuple(map(str, range(int(np.max(codes)) + 1)))
        chosen = [code_of(known, name, what) for name in self.options.classes or known]
        return np.isin(codes, chosen)

    @staticmethod
    def _read(
        table: Table, name: str, encoding: Encoding, settled: Mapping[str, Settled],
        roles: Mapping[str, tuple[str, np.ndarray]], dropped: int,
    ) -> ColumnRead:  # fmt: skip
        """The account of a column."""
        if name not in table.columns:
            return ColumnRead(name, "left out", change="the index of a frame" * (name in table.left_out))
        column = next((column for column in encoding.columns if column.name == name), None)
        role, values = roles[name] if column is None else ("feature", settled[name].cells)
        raw, number = table.columns[name], column is not None and not column.values
        gone = np.isnan(values) if number else values == ""
        levels = [one_line(word, 40) for word in (column.values if column else np.unique(values).tolist()) if word]
        holds, kind, filled = f"{plural(len(levels), 'value')}: {some(levels)}", "category", "a category of its own"
        if column is not None and column.ordered:
            holds, kind, filled = "<".join(levels[:12]), "ordinal", "filled by the median place"
        elif column is not None and number:
            seen = values[~gone] if not gone.all() else np.zeros(1)
            holds, kind = f"{seen.min():.6g} to {seen.max():.6g}", "number"
            filled = f"filled by {column.missing or 0:.6g}"
        spelled = [] if number else sorted({*zip(spelt(raw).tolist(), values.tolist(), strict=False)})
        change = [filled] * bool(gone.any()) + ["their rows are left out"] * bool(role == "label" and dropped)
        change += [f"{a!r} is read as {b!r}" for a, b in spelled if b and a != b][:SHOWN]
        first = tuple(one_line(word, 40) for word in spelt(raw[:SHOWN]).tolist())
        missing = dropped if role == "label" else int(gone.sum())
        return ColumnRead(name, role, kind, holds, first, missing, "; ".join(change))

    def _chosen(self, table: Table) -> tuple[str, list[str], list[str], dict[str, str], dict[str, tuple[str, ...]]]:
        """(column of labels, columns of clients, columns of features, kinds that are told, orders that are told)."""
        options, names, place = self.options, [*table.columns], table.file.name
        self._insist_on_one_label(table.columns)
        label = column_of(options, "y_column", names, LABELS, "the column of labels, one of")
        groups = owner_columns(options, names, place)
        exclude, apart, asked = (known_columns(options, f, names, place) for f in ("exclude", "split_by", "x_column"))
        unasked = [name for name in names if name not in {label, *groups, *exclude, *apart}]
        features = unasked if options.x_column is None else asked
        demand(options, "x_column", bool(features), "name a column of features")
        demand(options, "x_column", label not in features, f"not hold the column of labels, {label!r}")
        categories = [name for name in listed(options.categories) if name != AUTO]
        insist_on_names(options, "categories", f"name columns of {place}", categories, names)
        orders: dict[str, tuple[str, ...]] = {}
        for name, text in paired(options.ordinal).items():
            insist_on_names(options, "ordinal", f"name columns of {place}", [name], names)
            orders[name] = order = tuple(map(str.strip, text.split("<"))) if text else ()
            holds = len(set(order)) == len(order) != 1 and "" not in order
            demand(options, "ordinal", holds, "give an order of different values", "as in grade=low<mid<high")
        for field, part in (("categories", categories), ("ordinal", orders)):
            for name in part:
                demand(options, field, name in features, f"name columns of features; {name!r} is none")
        kinds = dict.fromkeys(categories, "category") | dict.fromkeys(orders, "ordinal")
        return label, groups, features, kinds, orders

    def _insist_on_one_label(self, columns: Mapping[str, Any]) -> None:
        """Raise FieldError where several columns look like labels of a row."""
        given, apart = self.options.y_column, indicators(columns)
        if given in columns:
            beside = [name for name in apart if name != given and name not in listed(self.options.exclude)]
            several = [given, *beside] if given in apart and self.options.x_column is None else []
        else:
            asked = listed(given) if {*listed(given)} <= {*columns} else []
            several = asked if given is not None else [] if {*LABELS} & {*columns} else apart
        rule = "name one column of labels: several labels a row (multi-label) are not supported"
        hint = f"make one column of classes of them, or leave others out by {self.owner}.exclude"
        demand(self.options, "y_column", len(several) < 2, rule, f"{some(several)} look like labels; {hint}")

    def _settled(self, table: Table, name: str, given: str, order: tuple[str, ...]) -> Settled:
        """A column of features of a type, which all files share. Raises DataError for a value of another type."""
        levels, where = table.levels.get(name), table.where(name)
        declared = "" if levels is None else "ordinal" if levels[1] else "category"
        kind = given or declared or self._kind_of(table, name)
        if kind == "number":
            return Settled(kind, self._numbers(table, name))
        cells = self._named(table, name)
        if self.options.missing == "refuse":
            self._insist_on_values(table, name, cells, f", or set {self.owner}.missing to fill")
        if kind == "category":
            return Settled(kind, cells)
        words, number = [word for word in np.unique(cells).tolist() if word], self.options.notation.number
        if order:
            cells = self.options.notation.meant(cells, order)
        elif 2 * np.isfinite(_numbers_in(cells, number)).sum() > np.count_nonzero(cells):
            self._numbers(table, name)  # which names a word among them
            order = tuple(sorted(words, key=number))
        elif levels is not None and all(levels):
            order = tuple(spelt(np.array(levels[0])).tolist())
        else:
            odd = [word for word in words if not np.isfinite(number(word))]
            got = f"of its {plural(len(words), 'value')} {len(odd)} hold no number: {some(odd)}"
            got += ", and files contradict each other" if declared == "ordinal" else ""
            hint = f"give it, as in {self.owner}.ordinal {name}=low<mid<high, or set {self.owner}.missing_words"
            raise DataError(f"{where} must have an order; {got}; {hint}")
        there = np.flatnonzero(cells != "")
        places(cells[there], order, where, [table.rows[i] for i in there.tolist()])  # which names a value without one
        return Settled(kind, cells, order)

    def _numbers(self, table: Table, name: str) -> np.ndarray:
        """The numbers of a column, NaN where one is missing and is filled. Raises DataError."""
        gone, owner = np.nan if self.options.missing == "fill" else None, f"{self.owner}."
        hint = f"set {owner}decimal to '.' if it is a decimal point, or {owner}thousands to '.'"
        cells, notation = table.columns[name], self.options.notation
        return numbers_of(cells, table.where(name), table.rows, gone, notation, owner, hint)

    def _encoding(
        self, settled: Mapping[str, Settled], label: str, train: np.ndarray, kept: np.ndarray
    ) -> tuple[Encoding, list[str]]:
        """Features by the training rows, and notes.

        Medians and filled categories are those of the training rows. Refused missing values leave the categories those
        of the whole file, so that a held-out row has one. Numbers are standardised in float64 by the rows `kept`.
        """
        filled, made, notes = self.options.missing == "fill", list[Column](), list[str]()
        for name, column in settled.items():
            cells = column.cells
            if column.kind == "category":
                known = tuple(np.unique(cells[train] if filled else cells).tolist())
                known = (*(value for value in known if value), "") if filled else known
                heard = {*cells[kept].tolist()}
                made.append(Column(name, known, unseen=tuple(value for value in known if value not in heard)))
                continue
            if column.order:
                cells = places(cells, column.order, missing=np.nan)
            else:
                notes += self._doubts(name, cells, train)
            seen = cells[train & np.isfinite(cells)]
            missing = float(np.median(seen)) if len(seen) else 0.0
            mean, std = 0.0, 1.0
            if self.options.standardise:
                values = np.where(np.isnan(cells), missing, cells)[kept]
                mean, std = float(values.mean()), float(values.std()) if values.min() < values.max() else 1.0
            elif len(np.unique(seen.astype(np.float32))) < len(np.unique(seen)):
                effect = f"float32 holds fewer different values; {self.owner}.standardise keeps them"
                notes.append(f"column {name!r}: {effect}")
            fills, whole = missing if filled else None, bool((seen == np.floor(seen)).all())
            made.append(Column(name, column.order, mean, std or 1.0, fills, bool(column.order), whole=whole))
        if effect := ", ".join(f"{name} {n}" for name, c in settled.items() if (n := int(c.gone[train].sum()))):
            notes.append(f"cells without a value in {int(train.sum())} training rows are filled: {effect}")
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
            effect = f"{rows} of {plural(len(values), 'row')} have {least:g}, and no other is below 0"
            yield f"column {name!r}: {effect}; set {self.owner}.missing_words to {least:g} if the value is missing"
        if (whole and (apart or far)) or IDENTIFIER.search(name):
            why = f"its {len(values)} values are all different whole numbers" if whole and apart else "by its name"
            why = "its whole numbers are too large for float64 to hold apart" if whole and far else why
            yield f"feature {name!r} looks like an identifier, {why}; {self.owner}.exclude {name} leaves it out"

    def _kind_of(self, table: Table, name: str) -> str:
        """What a column is for which no option says it. Raises DataError for dates, and for too many words."""
        cells, notation, where = table.columns[name], self.options.notation, table.where(name)
        values, gone = notation.read(cells)
        as_words = f"name it in {self.owner}.categories"
        self._insist_on_kinds(table, name, values, gone, f"write it alike, or {as_words}")
        if 2 * np.isfinite(values[~gone]).sum() > (total := int((~gone).sum())) or not total or cells.dtype.kind != "U":
            return "number"
        times = Counter(cells[~gone].tolist())

        def rows(holds: Callable[[str], Any]) -> int:
            return sum(count for text, count in times.items() if holds(text))

        for what, form in (("dates", DATE), ("times", TIME)):
            count, first = rows(form.fullmatch), next(filter(form.fullmatch, times), "")
            share = f"{count} of {len(cells)} are {what}, such as {first!r}"
            hint = f"leave it out by {self.owner}.exclude, make it a number, or {as_words}"
            claim(2 * count <= total, where, f"hold numbers or categories; {share}", hint=hint)
        if AUTO not in listed(self.options.categories):
            return "number"
        shapes = Counter[str]()
        for text, count in times.items():
            shapes[NUMBER.sub("#", text)] += count
        shape, count = shapes.most_common(1)[0]  # "USD #", "(#)"
        alike = shape.count("#") == 1 and not CODE.search(shape) and 2 * count > total and len(times) > LIKELY
        numbers = {text: notation.number(text) for text in times}
        measured = sum(np.isfinite(number) and number != int(number) for number in numbers.values()) > 1
        measured |= bool(TRUTH.keys() & times.keys()) and any(map(np.isfinite, numbers.values()))  # True, 0 and 1
        if alike or measured or 2 * rows(lambda text: np.isfinite(numbers[text]) or MARKED.fullmatch(text)) > total:
            return "number"
        hint = f"leave it out by {self.owner}.exclude, or list every category column in {self.owner}.categories"
        fits, got = len(times) <= MANY and not len(times) == total >= LIKELY, f"{len(times)} in {plural(total, 'row')}"
        claim(fits, where, f"have at most {MANY} categories, not one a row, to be one by itself", got, hint)
        return "category"

    def _labels(self, where: str, cells: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        """(labels as numbers 0..C-1 or strings, [n]; names of the classes where they are settled here)."""
        different, at, times = np.unique(cells, return_inverse=True, return_counts=True)
        words, numbers, named = different.tolist(), _numbers_in(different), self.options.named_labels
        hint = f"is another column meant by {self.owner}.y_column?"
        claim(len(words) > 1, where, "have two classes", f"one class, {words[0]!r}, in all {len(cells)} rows", hint)
        signs = named and {*numbers.tolist()} == {-1.0, 1.0}
        code = -1 if -1 in numbers else numbers.min()
        unclear = code in (-1, *SENTINELS) and numbers.max() >= 0 and self.options.missing_words is None and not signs
        rows = times[numbers == code].sum()
        got = f"{rows} of {len(cells)} rows have {code:g}, which often marks rows without a label"
        hint = f"set {self.owner}.missing_words to {code:g} and {self.owner}.missing_labels to drop"
        hint += f"; if it is a class, {self.owner}.missing_words to '' and {self.owner}.named_labels"
        claim(not unclear, where, f"hold labels; {got}", hint=hint)
        if not np.isfinite(numbers).all():
            lists = [] if named else several(words)
            got = f"{times[np.isin(different, lists)].sum()} of {len(cells)} rows have several, such as {lists[:1]}"
            hint = f"give each row one class, or set {self.owner}.named_labels if that is the name of a class"
            claim(not lists, where, f"hold one label a row (multi-label is not supported); {one_line(got)}", hint=hint)
            odd = Counter({words[i]: int(times[i]) for i in np.flatnonzero(~np.isfinite(numbers))})
            most = ", ".join(f"{word!r} ({count})" for word, count in odd.most_common(3))
            hint = f"set {self.owner}.named_labels if they are classes, {self.owner}.missing_words if they are none"
            fine = named or 2 * odd.total() > len(cells)
            claim(fine, where, f"hold numbers or words; most are numbers, others are {most}", hint=hint)
            return cells, ()
        if named:
            order = sorted(range(len(words)), key=lambda code: (numbers[code], words[code]))
            return np.argsort(order)[at], tuple(words[code] for code in order)
        if self.names:
            return numbers[at], self.names
        known = np.unique(numbers)
        got = f"{where} has labels from {known[0]:.17g} to {known[-1]:.17g}"
        got += "; measured values must be cut into classes" if (known != np.floor(known)).any() else ""
        rule = f"be true where labels are numbers other than 0 to {len(known) - 1}"
        demand(self.options, "named_labels", np.array_equal(known, np.arange(len(known))), rule, got)
        return numbers[at].astype(np.int64), ()


def one_to_one(values: np.ndarray, labels: np.ndarray) -> bool:
    """Whether each value of a feature stands beside one label, and each label beside one value."""
    (distinct, at), (names, beside) = (np.unique(column, return_inverse=True) for column in (values, labels))
    return len(distinct) == len(names) == len(np.unique(at * len(names) + beside))


def _numbers_in(words: np.ndarray, number: Callable[[str], float] = number_of) -> np.ndarray:
    """Words as numbers, infinite for any other, float64 [n]."""
    different, at = np.unique(words, return_inverse=True)
    return np.array([number(word) for word in different.tolist()], float)[at]
