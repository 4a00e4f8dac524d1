"""Your own csv files: columns with roles, and one line that says what is wrong in which row and column."""

import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedskew.data.arrays import Dataset
from fedskew.data.encoding import number_of
from fedskew.data.inputs import Inputs, Rows
from fedskew.data.sources.columns import Roles, Table, TableOptions, label_of, of_clients, owner_columns
from fedskew.data.sources.files import beside, given_file, insist_on_different, splits_of, with_options
from fedskew.data.sources.readers import insist_on_width, read_table
from fedskew.data.values import array_of, named, words_of
from fedskew.errors import FieldError, claim, some
from fedskew.fields import Listed, demand, omit_if_default

TAB = "\t"
SEPARATORS = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars", " ": "blanks"}


@dataclass(frozen=True)
class Csv(TableOptions):
    """A csv file with a line of column names; a folder with train.csv and test.csv; or one file a client.

    Features are number columns, standardised by the training rows' mean and standard deviation, and the columns that
    `categories` names, one-hot. Without test rows of its own a stratified 20 % of the rows becomes the test set. A
    missing value is an error that names row and column, unless `missing` fills it; row 1 is the line of names.

    In a folder of other csv files each file is a client, named as the file without its ending; subfolders train and
    test hold training and test rows of clients. Splits may also be called training and testing, in any case.
    """

    name: ClassVar[str] = "csv"

    x_column: Listed | None = None
    """columns of features, comma-separated; unset: all except labels and clients"""
    y_column: str | None = None
    """column of labels, numbers 0..C-1 or strings; unset: label, labels, y, target or class"""
    columns: Listed | None = None
    """columns with the client of each row, comma-separated, for natural clients; unset: client, if present"""
    standardise: bool = True
    """standardise the features"""
    categories: Listed = ""
    """feature columns with categories, comma-separated, encoded one-hot by the values of the training file; auto: every
    column of words, beside others that are named"""
    exclude: Listed = ""
    """columns left out of the features, comma-separated, such as an identifier"""
    named_labels: bool = False
    """treat every label as a name, also numbers such as 1 to 5; classes are then numbered in the order of the names"""
    separator: str = ","
    """separator of the values of a row: one character, or tab; a first line such as sep=; goes before it"""
    encoding: str = omit_if_default(default="utf-8")
    """encoding of a text without a byte order mark, such as cp1252"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "separator", len(self.separator) == 1 or self.separator == "tab", "be one character, or tab")
        known = False
        with suppress(LookupError, ValueError):
            known = bool(io.TextIOWrapper(io.BytesIO(), self.encoding))
        demand(self, "encoding", known, "name an encoding of text", "for example cp1252")

    def load(self, path: str | None = None) -> Dataset:
        """Load the file or folder.

        Args:
            path: The file or folder.

        Returns:
            The dataset. `notes` name columns that look like identifiers, and classes that only test.csv has.

        Raises:
            ConfigError: No path is given, or a column is unknown.
            DataError: The file is absent or damaged, a value is missing, or a column does not hold what it must.

        Example:
            >>> from pathlib import Path
            >>> from fedskew.data import load
            >>> rows = [f"{i % 7},{i % 3},{'ab'[i % 2]},site{i % 2}" for i in range(20)]
            >>> _ = Path("mine.csv").write_text(chr(10).join(["age,dose,label,client", *rows]))
            >>> data = load("csv", "mine.csv")
            >>> data.shape, data.label_names, data.column_names
            ((2,), ('a', 'b'), {'client': ('site0', 'site1')})
        """
        place, tables = self.tables(path)
        data = self.of_classes(Roles(self).dataset(place, tables, place.stem, f"file {place}"))
        return beside(data, place)

    def tables(self, path: str | None) -> tuple[Path, list[Table]]:
        """(the path, its training table and, if it has one, its test table). Raises ConfigError and DataError."""
        place = given_file(self.name, path)
        groups, clients = splits_of(place, ".csv")
        read = [[self.read_rows(file) for file in group] for group in groups]
        return place, [of_clients(place, tables) if clients else tables[0] for tables in read]

    def rows(self, path: str | None, inputs: Inputs) -> Rows:
        """Every row of a file, or of the test rows of a folder that has some, else of all its files."""
        table = self.tables(path)[1][-1]
        names = [*table.columns]
        label = label_of(self, names, inputs.encoding)
        beside = {name: table.columns[name] for name in owner_columns(self, names)}
        return Rows(str(table.file), table.columns, table.columns.get(label), label, list(table.rows), beside)

    def read_rows(self, file: Path) -> Table:
        """The file as text. Raises DataError; FieldError where another separator is likely."""
        mark = TAB if self.separator == "tab" else self.separator
        table = read_table(file, mark, self.encoding)
        alone = table[0][1][0] if table and len(table[0][1]) == 1 else ""
        if other := next((other for other in SEPARATORS if other != mark and other in alone), ""):
            got = f"the first line of {file} has {SEPARATORS[other]}: use {other.replace(TAB, 'tab')!r}"
            raise FieldError(type(self).__name__, "separator", "separate the columns", self.separator, got)
        return columns_of(file, table)


def from_table(table: Mapping[str, Any], *, name: str = "table", **options: Any) -> Dataset:
    """Make a dataset of columns by name, such as a pandas frame, with the options of a csv file.

    Args:
        table: Columns by name, [n] each: numbers or words. None, NaN and blanks are missing values.
        name: Name of the dataset.
        **options: Options of `Csv`, for example `categories="auto", missing="fill", columns="hospital"`.

    Returns:
        The dataset. A stratified 20 % of the rows becomes the test set.

    Raises:
        ConfigError: An option or a column is unknown.
        DataError: A value is missing, or a column does not hold what it must. Rows count from 0.

    Example:
        >>> from fedskew.data import from_table
        >>> rows = range(40)
        >>> table = {"age": [20 + i for i in rows], "sex": ["fm"[i % 2] for i in rows]}
        >>> table["y"] = ["ab"[i % 3 // 2] for i in rows]
        >>> data = from_table(table, categories="auto")
        >>> data.shape, data.label_names
        ((3,), ('a', 'b'))
    """
    source: Csv = with_options(Csv, "from_table", options)
    claim(hasattr(table, "keys"), "table", "be columns by name, such as a pandas frame", type(table).__name__)
    keys = list(table.keys())
    names = named(np.array([str(key) for key in keys])).tolist()
    insist_on_different("table", names)
    held = {column: table[key] for column, key in zip(names, keys, strict=True)}
    orders = [values.index for values in held.values() if hasattr(getattr(values, "index", None), "equals")]
    alike = all(index.equals(orders[0]) for index in orders)
    claim(alike, "table", "have series of one index", hint="put them together by pandas.DataFrame, or give arrays")
    levels = {column: order for column, values in held.items() if (order := _levels(values)) is not None}
    cells = {column: array_of(values) if column in levels else values for column, values in held.items()}
    shapes = {column: np.shape(array_of(values)) for column, values in cells.items()}
    got = some([f"{column} {shape}" for column, shape in shapes.items()]) or "no columns"
    holds = len({*shapes.values()}) == 1 and all(len(shape) == 1 and shape[0] for shape in shapes.values())
    hint = "one-hot labels are classes by argmax(1)" if any(len(shape) == 2 for shape in shapes.values()) else ""
    claim(holds, "table", "have columns of one length, with rows, of one value a row", got, hint)
    rows = range(shapes[names[0]][0])
    whole = Table(Path(name), cells, rows, ((name, len(rows)),), levels)
    return source.of_classes(Roles(source).dataset(whole.file, [whole], name, "table"))


def _levels(values: Any) -> tuple[tuple[str, ...], bool] | None:
    """(the categories of a pandas column, whether they are ordered); None of another column."""
    kind = getattr(values, "dtype", None)
    names = getattr(kind, "categories", None)
    return None if names is None else (tuple(map(str, names)), bool(getattr(kind, "ordered", False)))


def columns_of(file: Path, content: list[tuple[int, list[str]]]) -> Table:
    """The columns of a file.

    Where each row has one value more than the line of names, and the first ones are names of rows as R writes them,
    these are a column without a name. A column without a name is an index, which is left out.

    Raises:
        DataError: Rows are ragged, or names occur twice.
    """
    (_, head), *rows = content or [(1, [])]
    again = [number for number, row in rows if row == head]
    claim(not again, file, f"name its columns once; row {some([*map(str, again)])} names them again")
    names = named(np.array(head, str)).tolist()
    names = ["", *names] if _row_names(names, [row for _, row in rows]) else names
    hint = "a value that holds the separator needs quotes, and the first line names the columns"
    insist_on_width(file, rows, len(names), hint)
    insist_on_different(file, names)
    claim(rows, file, "have rows below a line of column names", "none")
    columns = zip(names, zip(*(r for _, r in rows), strict=True), strict=True)
    cells = {name: words_of(column, f"{file}: column {name!r}") for name, column in columns}
    index = cells.pop("", None)
    fine = index is None or not names[0] or not index.any()
    claim(fine, file, f"name each column; column {[*names, ''].index('') + 1} has values and no name")
    left_out = () if index is None else ("",)
    return Table(file, cells, [number for number, _ in rows], ((str(file), len(rows)),), left_out=left_out)


def _row_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether each row begins with a name that the line of names has no place for: different words or whole numbers."""
    if not any(row[-1] for row in rows) or "" in names or any(len(row) != len(names) + 1 for row in rows):
        return False
    first = [row[0] for row in rows]
    return len({*first}) == len(first) and all(cell.isdecimal() or number_of(cell) == float("inf") for cell in first)
