"""Tables of UCI: Adult, and the four hospitals of Heart Disease."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedskew import rng
from fedskew.data.arrays import SPLIT_SEED, TEST_SHARE, ClassOptions, Dataset, build, draw, share
from fedskew.data.encoding import Column, Encoding, numbers_of
from fedskew.data.sources import cache
from fedskew.data.sources.files import absent, altered, insist_on_names, listed, places, together
from fedskew.data.sources.readers import read_table
from fedskew.data.values import words_of
from fedskew.errors import DataError
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
        train, test = (_adult_rows(f, ADULT_ROWS[f.name] if self.verify else None) for f in files)
        encoding = _adult_encoding(train, dropped)
        demand(self, "exclude", bool(encoding.columns), "leave a feature")
        cells = [dict(zip(ADULT_COLUMNS, rows.T, strict=False)) for rows in (train, test)]
        features = [encoding.encode(table, self.name) for table in cells]
        labels = [np.char.startswith(rows[:, -1], ">50K").astype(np.int64) for rows in (train, test)]
        named = [(i, c) for i, c in enumerate(ADULT_COLUMNS) if c not in ADULT_NUMBERS]
        columns, columns_test = ({c: rows[:, i] for i, c in named} for rows in (train, test))
        return build(
            self.name, features[0], labels[0], features[1], labels[1],
            label_names=("<=50K", ">50K"), columns=columns, source="UCI files",
            encoding=encoding, columns_test=columns_test,
        )  # fmt: skip


@dataclass(frozen=True)
class HeartDisease(ClassOptions):
    """UCI Heart Disease (Janosi and others, 1988): disease (1-4) or none (0), from 13 features in four hospitals.

    "?" becomes the median of the training rows; then each feature is standardised by the training rows. The column
    ``hospital`` is for the partition "natural". The test set is a stratified 20 % of each hospital, always the same.

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
        names = [f"processed.{h}.data" for h in HOSPITALS]
        files = _find(self.name, path, ("heart-disease", "heart_disease", "heart+disease"), names)
        tables = [_heart_rows(f, n if self.verify else None) for f, n in zip(files, HOSPITALS.values(), strict=True)]
        hospital = np.repeat(np.arange(len(tables)), [len(t) for t in tables])
        rows = np.concatenate(tables)
        y = (rows[:, -1] > 0).astype(np.int64)
        stratum = 2 * hospital + y
        key = rng.key(SPLIT_SEED, "data", self.name, "test")
        test = np.zeros(len(y), bool)
        test[draw(stratum, share(stratum, 2 * len(tables), TEST_SHARE), key)] = True
        trained = rows[~test, :-1].T  # [F, n]
        medians = np.array([np.median(seen) if (seen := c[~np.isnan(c)]).size else 0.0 for c in trained])
        mean, std = _statistics(np.where(np.isnan(rows[:, :-1]), medians, rows[:, :-1])[~test])
        facts = zip(HEART_COLUMNS, mean.tolist(), std.tolist(), medians.tolist(), strict=True)
        encoding = Encoding(tuple(Column(n, mean=m, std=s, missing=v) for n, m, s, v in facts), single=False)
        x = encoding.encode(dict(zip(HEART_COLUMNS, rows.T, strict=False)), self.name)
        made = build(
            self.name, x[~test], y[~test], x[test], y[test], label_names=("no disease", "disease"),
            columns={"hospital": np.array(list(HOSPITALS))[hospital[~test]]}, source="UCI files", official=False,
            encoding=encoding, columns_test={"hospital": np.array(list(HOSPITALS))[hospital[test]]},
        )  # fmt: skip
        return self.of_classes(made)


def _find(name: str, path: str | None, folders: Sequence[str], names: Sequence[str]) -> tuple[Path, ...]:
    """The files of a dataset. Raises DataError if they are nowhere."""
    for place in places(path, folders):
        if place.is_dir() and (files := together(place, [[n] for n in names])):
            return files
    raise absent(name, path)


def _cells(file: Path, width: int, rows: int | None) -> np.ndarray:
    """Comma-separated text as strings [n, width], without blank lines and comments."""
    numbered = [(n, row) for n, row in read_table(file) if any(row) and not row[0].startswith("|")]
    for number, row in numbered:
        if len(row) != width:
            raise DataError(f"{file} must have {width} values a row; row {number} has {len(row)}")
    if not numbered or (rows is not None and len(numbered) != rows):
        raise altered([file], f"truncated or altered: expected {rows or 'some'} rows, got {len(numbered)}")
    return words_of([row for _, row in numbered], str(file))


def _adult_rows(file: Path, rows: int | None) -> np.ndarray:
    """Checked rows of an Adult file, as strings."""
    cells = _cells(file, len(ADULT_COLUMNS) + 1, rows)
    bad = np.flatnonzero(~np.isin(np.char.rstrip(cells[:, -1], "."), ["<=50K", ">50K"]))
    if bad.size:
        raise DataError(f"{file} must end each row with <=50K or >50K; row {bad[0]} ends with {cells[bad[0], -1]!r}")
    return cells


def _adult_encoding(train: np.ndarray, dropped: set[str]) -> Encoding:
    """Numbers first, then one-hot blocks with the training set's values in sorted order."""
    numbers, groups = (
        [i for i, c in enumerate(ADULT_COLUMNS) if (c in ADULT_NUMBERS) is number and c not in dropped]
        for number in (True, False)
    )
    mean, std = _statistics(_numbers(train[:, numbers], "adult")) if numbers else (np.empty(0), np.empty(0))
    facts = zip(numbers, mean.tolist(), std.tolist(), strict=True)
    columns = [Column(ADULT_COLUMNS[i], mean=m, std=s) for i, m, s in facts]
    columns += [Column(ADULT_COLUMNS[i], tuple(map(str, np.unique(train[:, i])))) for i in groups]
    return Encoding(tuple(columns), single=False)


def _heart_rows(file: Path, rows: int | None) -> np.ndarray:
    """Checked rows of a hospital's file, as numbers; "?" is NaN."""
    cells = _cells(file, 14, rows)
    values = _numbers(cells, str(file))
    odd = ~np.isin(values[:, -1], range(5))
    if odd.any():
        raise DataError(f"{file} must end each row with a class 0..4; got {cells[odd, -1][0]!r}")
    return values


def _numbers(cells: np.ndarray, what: str) -> np.ndarray:
    """Numbers of the cells [n, width]; "?" is NaN."""
    return np.stack([numbers_of(column, what, range(len(cells)), missing=np.nan) for column in cells.T], axis=1)


def _statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard deviation) of each feature; 1 for the deviation of a constant one."""
    std = x.std(axis=0)
    return x.mean(axis=0), np.where(std > 0, std, 1.0)
