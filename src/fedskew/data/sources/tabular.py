"""Tables of UCI: Adult, and the four hospitals of Heart Disease."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedskew import rng
from fedskew.data.arrays import SPLIT_SEED, TEST_SHARE, ClassOptions, Dataset, build, draw, share
from fedskew.data.encoding import Column, Encoding, numbers_of
from fedskew.data.sources import cache
from fedskew.data.sources.files import absent, altered, insist_on_names, listed, places, together
from fedskew.data.sources.readers import insist_on_width, read_table
from fedskew.data.values import words_of
from fedskew.errors import claim, some
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
        files = _find(
            self.name,
            path,
            ("heart-disease", "heart_disease", "heart+disease"),
            [f"processed.{h}.data" for h in HOSPITALS],
        )
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
