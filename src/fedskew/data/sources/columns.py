"""What the columns of a table become: labels, owners of rows, and features; one line says what is wrong, and where.

The rules are the same for every file of a table. `Roles` reads them from the options of its source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from fedskew.data.arrays import ClassOptions, Dataset, build, fingerprint, held_out
from fedskew.data.encoding import Column, Encoding, is_absent, lacks_column, number_of, numbers_of, places
from fedskew.data.encoding import categories as one_hot
from fedskew.data.reading import Reading
from fedskew.data.sources.files import insist_on_names, listed
from fedskew.data.sources.multilabel import indicators, several
from fedskew.data.values import lacks
from fedskew.errors import DataError, FieldError, closest, one_line, plural, some
from fedskew.fields import Listed, demand, later

LABELS = ("label", "labels", "y", "target", "class")
IDENTIFIER = re.compile(r"(?i:(?:^|[_\s-])(?:id|uuid|guid|index|key)$|^(?:unnamed: ?\d+)?$)|[a-z](?:Id|ID)$")
LIKELY = 20  # rows from which different whole numbers in every row look like an identifier
AUTO = "auto"
TYPES = ("number", "category", "ordinal", "drop")
MOSTLY = 0.9  # share of numbers from which a column that `auto` sees is one of numbers, with bad cells
DATE = re.compile(  # 2024-03-01, 1/3/24, 1 March 2024, March 1, 2024
    r"(?i)(\d{1,4}([-/.])\d\d?\2\d{1,4}|\d\d?[-. ]+[a-z]{3,9}[-., ]+\d{4}|[a-z]{3,9} \d\d?, \d{4})([T ].*)?$"
)
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
    ordinal (the place in the sorted values) or drop; before what categories finds"""
    split_by: str | None = later()
    """column, such as patient, none of whose values lies on both sides of a split: training and test rows, validation,
    local test"""

    missing: Literal["refuse", "fill"] = later(default="refuse")
    """missing feature values: refuse, or fill; fill uses the median of the training rows for numbers and an extra
    category for categories, which also takes values that no training row has; it says nothing where no training row is
    blank"""
    ordinal: Listed = later(default="")
    """feature columns with ordered categories, comma-separated, encoded by rank: of the sorted values, or as in
    grade=low<mid<high"""

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
    columns: dict[str, np.ndarray]  # strings or numbers, [n]
    rows: Sequence[Any]  # [n] how a message names each row

    @property
    def names(self) -> list[str]:
        """Listed of the columns."""
        return list(self.columns)

    def where(self, name: str) -> str:
        """What a message calls a column."""
        return f"{self.file}: column {name!r}"


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
    return Table(place, columns, [f"{row} of {t.file.name}" for t in tables for row in t.rows])


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
        for table in tables:
            texts = [label, *(groups if table is tables[0] else ())]
            _filled(table, texts)
            table.columns.update({text: _texts(table.columns[text]) for text in texts})
        train, units = np.ones(len(tables[0].rows), bool), self._units(tables)
        if self.options.missing == "fill" and len(tables) == 1:
            (codes, *_), names = self._labels(tables, label)
            train = held_out(codes, names, units)
        encoding, notes = self._encoding(tables[0], features, label, train)
        splits = [encoding.encode(t.columns, str(t.file), t.rows, notes) for t in tables]
        labels, names = self._labels(tables, label)
        pairs = [part for pair in zip(splits, labels, strict=True) for part in pair]
        owners = {group: tables[0].columns[group] for group in groups}
        known = {
            group: _texts(table.columns[group]) for table in tables[1:] for group in groups if group in table.columns
        }
        data = build(
            name, *pairs, columns=owners, label_names=names, source=source, notes=notes, encoding=encoding, units=units,
            columns_test=known, reading=Reading(),
        )  # fmt: skip
        data = _heard(self.options.of_classes(data))
        return _standardised(data) if self.options.standardise else data

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
        demand(
            self.options,
            "y_column",
            holds,
            rule,
            f"{some(apart if given is None else beside)} look like labels; {hint}",
        )

    def _units(self, tables: Sequence[Table]) -> np.ndarray | None:
        """The values of ``split_by``, as `units_of`."""
        name = self.options.split_by
        if name is None:
            return None
        for table in tables:
            _filled(table, [name])
        return units_of(tables[-1].where(name), [_texts(table.columns[name]) for table in tables])

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

    def _encoding(
        self, table: Table, features: Sequence[str], label: str, train: np.ndarray
    ) -> tuple[Encoding, list[str]]:
        """Features without standardisation, and notes. Raises DataError for what is no number and no category.

        Medians and filled categories are those of the training rows. Refused missing values leave the categories those
        of the whole file, so that a held-out row has one.
        """
        filled, grouped, ordered = self.options.missing == "fill", self._grouped(table), self._ordered(table)
        typed, made, notes = self.options.typed, [], list[str]()
        for name in features:
            kind = typed.get(name) or ("ordinal" if name in ordered else "category" if name in grouped else "")
            kind = kind or self._kind_of(table, name)
            if kind == "ordinal":
                made.append(self._places(table, name, ordered[name], train))
            elif kind == "category":
                cells = table.columns[name]
                known = tuple(str(value) for value in np.unique(cells[train] if filled else cells))
                if filled:
                    known = (*(value for value in known if value), "")
                else:
                    advice = f"; set {self.owner}.missing to fill, and a blank is a category of its own"
                    one_hot(cells, [value for value in known if value], table.where(name), table.rows, advice)
                heard = cells[train].astype(str)
                made.append(Column(name, known, unseen=("",) if filled and "" not in heard else ()))
            else:
                made.append(self._number(table, name, train, notes))
        blanks = {column.name: self._blanks(table, column, train) for column in made} if filled else {}
        if told := ", ".join(f"{name} {n}" for name, n in blanks.items() if n):
            notes.append(f"cells without a value in {int(train.sum())} training rows are filled: {told}")
        return Encoding(tuple(made), label=label), notes

    @staticmethod
    def _blanks(table: Table, column: Column, train: np.ndarray) -> int:
        """Training rows whose cell is filled: of numbers also those with a word such as NA."""
        cells = table.columns[column.name][train].astype(str).tolist()
        return sum(not cell if column.values else is_absent(cell) for cell in cells)

    def _number(self, table: Table, name: str, train: np.ndarray, notes: list[str]) -> Column:
        """A column of numbers; notes say that it has none, or looks like an identifier."""
        owner, filled = self.owner, self.options.missing == "fill"
        hint = f"correct them, leave the column out by {owner}.exclude, or take words by {owner}.types {name}=category"
        advice, gone = ("", np.inf) if filled else (f", or set {owner}.missing to fill", None)  # inf itself is refused
        values = numbers_of(table.columns[name], table.where(name), table.rows, gone, hint, advice)
        seen = values[train & np.isfinite(values)]
        missing = float(np.median(seen)) if len(seen) else 0.0
        if not len(seen):
            notes.append(f"feature {name!r} has no value in any training row: it is 0; {owner}.exclude leaves it out")
        values = np.where(np.isfinite(values), values, missing)
        apart = len(np.unique(values)) == len(values) >= LIKELY and bool((values == np.floor(values)).all())
        if apart or IDENTIFIER.search(name):
            why = f"its {len(values)} values are all different whole numbers" if apart else "by its name"
            notes.append(f"feature {name!r} looks like an identifier, {why}; {owner}.exclude {name} leaves it out")
        return Column(name, missing=missing if filled else None)

    def _places(self, table: Table, name: str, order: tuple[str, ...], train: np.ndarray) -> Column:
        """A column of ordered categories: the order given, else that of the sorted values, as numbers where all are."""
        cells, where, filled = table.columns[name], table.where(name), self.options.missing == "fill"
        if not (given := bool(order)):
            seen = [str(value) for value in np.unique(cells[train] if filled else cells) if str(value)]
            numbers = all(np.isfinite(number_of(cell)) for cell in seen)
            order = tuple(sorted(seen, key=float) if numbers else seen)
        if not filled:
            advice = f"; set {self.owner}.missing to fill, and it takes the median place"
            places(cells, order, where, table.rows, fill=advice)
            return Column(name, order, ordered=True)
        if given:  # another value than a blank is no missing one
            present = np.flatnonzero(cells.astype(str) != "")
            places(cells[present], order, where, [table.rows[i] for i in present.tolist()])
        known = places(cells[train], order, where, table.rows, missing=np.nan)
        known = known[~np.isnan(known)]
        return Column(name, order, missing=float(np.median(known)) if len(known) else 0.0, ordered=True)

    def _kind_of(self, table: Table, name: str) -> str:
        """What a column is for which no option says it. Raises DataError for dates, and for too many words."""
        cells = table.columns[name]
        every = [] if cells.dtype.kind in "fiub" else cells.astype(str).tolist()
        texts = [text for text in every if not is_absent(text)]
        dates = [text for text in texts if DATE.match(text)]
        if 2 * len(dates) > len(texts):
            told = f"{len(dates)} of {len(every)} are dates, such as {dates[0]!r}"
            hint = f"leave it out by {self.owner}.exclude, make it a number, or set {self.owner}.types {name}=category"
            raise DataError(f"{table.where(name)} must hold numbers or categories; {told}; {hint}")
        numbers = sum(np.isfinite(number_of(text)) for text in texts)
        if self.options.categories != AUTO or numbers >= MOSTLY * len(texts):
            return "number"
        if (many := len(np.unique(cells))) > MANY:
            rule = f"have at most {MANY} categories to be one by itself; got {many}"
            hint = f"leave it out by {self.owner}.exclude, or list every category column in {self.owner}.categories"
            raise DataError(f"{table.where(name)} must {rule}; {hint}")
        return "category"

    def _insist_on_classes(self, cells: np.ndarray, where: str) -> None:
        """Raise DataError where words are lists of labels."""
        if lists := several(np.unique(cells).tolist()):
            told = (
                f"{np.isin(cells, lists).sum()} of {len(cells)} rows have several, such as {one_line(lists[0], 60)!r}"
            )
            hint = f"give each row one class, or set {self.owner}.named_labels if that is the name of a class"
            raise DataError(f"{where} must hold one label a row (multi-label is not supported); {told}; {hint}")

    def _labels(self, tables: Sequence[Table], name: str) -> tuple[list[np.ndarray], tuple[str, ...]]:
        """(labels of each file as numbers 0..C-1 or strings, names of the classes where they are settled here)."""
        cells = [table.columns[name] for table in tables]
        every = np.concatenate(cells)
        if len(np.unique(every)) < 2:
            told = f"has one class, {str(every[0])!r}, in all {len(every)} rows"
            hint = f"a classifier needs two; is another column meant by {self.owner}.y_column?"
            raise DataError(f"{tables[0].where(name)} {told}; {hint}")
        numbers = np.array([number_of(cell) for cell in every.tolist()])
        if not np.isfinite(numbers).all():
            if not self.options.named_labels:
                self._insist_on_classes(every, tables[0].where(name))
            return cells, ()
        if self.names and not self.options.named_labels:
            return [cell.astype(np.float64) for cell in cells], self.names
        if self.options.named_labels:
            names = sorted(set(every.tolist()), key=lambda cell: (float(cell), cell))
            codes = np.array([names.index(cell) for cell in every.tolist()])
            return np.split(codes, [len(cells[0])])[: len(cells)], tuple(names)
        found = np.unique(numbers)
        if not np.array_equal(found, np.arange(len(found))):
            told = f"{tables[0].where(name)} has labels from {found[0]:.17g} to {found[-1]:.17g}"
            hint = "measured values must be cut into classes" if (found != np.floor(found)).any() else ""
            rule = f"be true where labels are numbers other than 0 to {len(found) - 1}"
            raise FieldError(self.owner, "named_labels", rule, False, f"{told}; {hint}" if hint else told)
        return np.split(numbers.astype(np.int64), [len(cells[0])])[: len(cells)], ()


def _filled(table: Table, names: Sequence[str]) -> None:
    """Raise DataError unless these columns have a value in every row."""
    for name in names:
        if name not in table.columns:
            raise lacks_column(str(table.file), name, table.names, ", as train.csv has")
        blank = np.flatnonzero(np.isin(np.char.lower(table.columns[name].astype(str)), ("", "nan")))
        if len(blank):
            raise lacks(table.where(name), blank, len(table.rows), rows=table.rows)


def _texts(cells: np.ndarray) -> np.ndarray:
    """A column as strings; whole numbers without a decimal point."""
    if cells.dtype.kind != "f":
        return cells.astype(str)
    return np.array([f"{value:.17g}" for value in cells.tolist()])


def _heard(data: Dataset) -> Dataset:
    """A dataset without what its test rows alone say: a category that no training row has is zeros; notes tell."""
    assert data.encoding is not None
    encoding, x, notes = data.encoding.seen(data.x.numpy()), data.x_test.numpy().copy(), list(data.notes)
    for column, at in encoding.blocks():
        if column.unseen and (count := np.count_nonzero(x[:, at][:, np.isin(column.values, column.unseen)])):
            told = f"{count} of {plural(len(x), 'test row')} have a value that no training row has"
            notes.append(f"column {column.name!r}: {told}; they are scored as if the column said nothing")
            x[:, at] *= ~np.isin(column.values, column.unseen)
    made = replace(data, encoding=encoding, notes=tuple(notes))
    if np.array_equal(x, data.x_test.numpy()):
        return made
    made = replace(made, x_test=torch.from_numpy(x))
    return replace(made, fingerprint=fingerprint(made))


def _standardised(data: Dataset) -> Dataset:
    """A dataset with its numbers standardised by the training rows; the encoding says by which values."""
    assert data.encoding is not None
    x = data.x.numpy().astype(np.float64)
    single = np.concatenate([np.full(c.width, c.number) for c in data.encoding.columns])  # numbers, not categories
    std = x.std(axis=0)
    mean, std = np.where(single, x.mean(axis=0), 0.0), np.where(single & (std > 0), std, 1.0)
    scaled = [((part.numpy().astype(np.float64) - mean) / std).astype(np.float32) for part in (data.x, data.x_test)]
    blocks = ((column, at.start) for column, at in data.encoding.blocks())
    columns = tuple(replace(c, mean=float(mean[i]), std=float(std[i])) for c, i in blocks)
    encoding = replace(data.encoding, columns=columns)
    made = replace(data, x=torch.from_numpy(scaled[0]), x_test=torch.from_numpy(scaled[1]), encoding=encoding)
    return replace(made, fingerprint=fingerprint(made))
