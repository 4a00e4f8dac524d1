"""Your own csv files: columns with roles, and one line that says what is wrong in which row and column."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from fedskew.data.arrays import Dataset
from fedskew.data.encoding import plain
from fedskew.data.sources.columns import Roles, Table, TableOptions, merged
from fedskew.data.sources.files import client_files, given_file
from fedskew.data.sources.readers import read_table
from fedskew.data.values import words_of
from fedskew.errors import ConfigError, DataError, FieldError, closest
from fedskew.fields import Listed, demand

TAB = "\t"
SEPARATORS = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars"}


@dataclass(frozen=True)
class Csv(TableOptions):
    """A csv file with a line of column names, in UTF-8; a folder with train.csv and test.csv; or one file a client.

    Features are number columns, standardised by the training rows' mean and standard deviation, and the columns that
    ``categories`` names, one-hot. Without test rows of its own a stratified 20 % of the rows becomes the test set. A
    missing value is an error that names row and column, unless ``missing`` fills it; row 1 is the line of names.

    In a folder of other csv files each file is a client, named as the file without its ending; subfolders train and
    test hold training and test rows of clients.
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
    column of words"""
    exclude: Listed = ""
    """columns left out of the features, comma-separated, such as an identifier"""
    named_labels: bool = False
    """treat every label as a name, also numbers such as 1 to 5; classes are then numbered in the order of the names"""
    separator: str = ","
    """separator of the values of a row: one character, or tab"""

    def __post_init__(self) -> None:
        super().__post_init__()
        demand(self, "separator", len(self.separator) == 1 or self.separator == "tab", "be one character, or tab")

    def load(self, path: str | None = None) -> Dataset:
        """Load the file or folder.

        Args:
            path: The file or folder.

        Returns:
            The dataset. ``notes`` name columns that look like identifiers, and classes that only test.csv has.

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
        return Roles(self).dataset(tables, place.stem, f"file {place}")

    def tables(self, path: str | None) -> tuple[Path, list[Table]]:
        """(the path, its training table and, if it has one, its test table). Raises ConfigError and DataError."""
        place = given_file(self.name, path)
        if place.is_file():
            return place, [self.read_rows(place)]
        if (place / "train.csv").is_file():
            files = [f for f in (place / "train.csv", place / "test.csv") if f.is_file()]
            return place, [self.read_rows(file) for file in files]
        groups = client_files(place, ".csv", "train.csv")
        return place, [merged(place, [self.read_rows(file) for file in group]) for group in groups]

    def read_rows(self, file: Path) -> Table:
        """The file as text. Raises DataError; FieldError where another separator is likely."""
        mark = TAB if self.separator == "tab" else self.separator
        table = read_table(file, mark)
        alone = table[0][1][0] if table and len(table[0][1]) == 1 else ""
        others = [other for other in SEPARATORS if other != mark and other in alone]
        if others:
            told = f"the first line of {file} has {SEPARATORS[others[0]]}: use {others[0].replace(TAB, 'tab')!r}"
            raise FieldError(type(self).__name__, "separator", "separate the columns", self.separator, told)
        return columns_of(file, table)


def from_table(table: Mapping[str, Any], *, name: str = "table", **options: Any) -> Dataset:
    """Make a dataset of columns by name, such as a pandas frame, with the options of a csv file.

    Args:
        table: Columns by name, [n] each: numbers or words. None, NaN and blanks are missing values.
        name: Name of the dataset.
        **options: Options of `Csv`, for example ``categories="auto", missing="fill", columns="hospital"``.

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
    known = [field.name for field in fields(Csv)]
    for option in options:
        if option not in known:
            raise ConfigError(f"from_table has no option {option!r}{closest(option, known)}")
    held = {str(column): plain(table[column]) for column in list(table.keys())}
    lengths = {column: len(values) for column, values in held.items()}
    if len(set(lengths.values())) != 1 or not all(lengths.values()):
        told = ", ".join(f"{column} {length}" for column, length in list(lengths.items())[:8])
        raise DataError(f"table must have columns of one length, with rows; got {told or 'no columns'}")
    rows = range(next(iter(lengths.values())))
    return Roles(Csv(**options)).dataset([Table(Path(name), held, rows)], name, "table")


def columns_of(file: Path, content: list[tuple[int, list[str]]] | None = None) -> Table:
    """The columns of a file. Raises DataError for ragged rows and names that occur twice."""
    (_, names), *rows = (read_table(file) if content is None else content) or [(1, [])]
    for number, row in rows:
        if len(row) != len(names):
            hint = "a value that holds the separator needs quotes"
            raise DataError(f"{file} must have {len(names)} values a row; row {number} has {len(row)}; {hint}")
    if not rows or len(set(names)) != len(names):
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        told = f"got {len(rows)} rows" if twice is None else f"got {twice!r} twice"
        raise DataError(f"{file} must have rows below a line of different column names; {told}")
    columns = zip(names, zip(*(r for _, r in rows), strict=True), strict=True)
    cells = {name: words_of(column, f"{file}: column {name!r}") for name, column in columns}
    return Table(file, cells, [number for number, _ in rows])
