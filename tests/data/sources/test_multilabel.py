"""Several labels a row are refused in one line; a class whose name holds a separator is a class."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedskew as fs
from fedskew.errors import ConfigError, DataError


def table(folder: Path, labels: list[str]) -> str:
    rows = [f'{i},"{label}"' for i, label in enumerate(labels * 12)]
    (folder / "own.csv").write_text("\n".join(["age,label", *rows]), encoding="utf-8")
    return str(folder / "own.csv")


SETS = {
    "a label by itself too": ["cat", "dog", "cat;dog"],
    "bars": ["cat|dog", "dog|cow", "cow"],
    "only lists": ["cat;dog", "dog;cow", "cat;cow"],
    "fixed places": ["red;large", "red;small", "blue;small"],
    "commas": ["cat, dog", "dog, cow", "cow, ant"],
    "one row in many": ["cat", "dog"] * 20 + ["cat|dog"],
    "lists of Python": ["['cat', 'dog']", "['cat']", "['dog', 'cow']"],
    "lists of JSON": ["[1, 3]", "[2]", "[]", "[1, 2, 3]"],
    "sets": ["{'cat', 'dog'}", "{'cow', 'dog'}"],
    "codes": ["1|3", "2", "1"],
}
CLASSES = {
    "names of persons": ["Doe, John", "Doe, Jane", "Poe, Jane"],
    "a firm": ["Smith; Sons", "Miller", "Jones | Co"],
    "a tree": ["animal|cat", "animal|dog", "plant|rose"],
    "synonyms": ["tench, Tinca tinca", "goldfish, Carassius auratus", "crane"],
    "ranges": ["[0, 10]", "[10, 20]", "[20, 30]"],
    "half-open ranges": ["(0, 10]", "(10, 20]", "(20, 30]"],
    "brackets": ["stage (I)", "(none)", "[other]"],
    "slashes and blanks": ["N/A", "yes/no", "very good", "good"],
    "a trailing separator": ["a;", "a", "b"],
}


@pytest.mark.parametrize("labels", SETS.values(), ids=SETS)
def test_lists_of_labels_are_refused(tmp_path: Path, labels: list[str]) -> None:
    with pytest.raises(DataError, match=r"one label a row \(multi-label is not supported\); \d+ of \d+ rows") as caught:
        fs.data.load("csv", table(tmp_path, labels))
    assert "\n" not in str(caught.value) and "Csv.named_labels" in str(caught.value)
    named = fs.data.load("csv", table(tmp_path, labels), named_labels=True)
    assert set(named.label_names) == set(labels)


@pytest.mark.parametrize("labels", CLASSES.values(), ids=CLASSES)
def test_names_with_a_separator_are_classes(tmp_path: Path, labels: list[str]) -> None:
    assert set(fs.data.load("csv", table(tmp_path, labels), missing_words="").label_names) == set(labels)


def test_several_columns_of_labels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"{i},{i % 2},{i % 3 // 2},{i % 2}" for i in range(40)]
    path.write_text("\n".join(["age,label_cat,label_dog,sick", *rows]))
    for options in ({}, {"y_column": "label_cat"}, {"y_column": "label_cat,label_dog"}):
        with pytest.raises(ConfigError, match=r"one column of labels: .*\(multi-label\) are not supported.*label_dog"):
            fs.data.load("csv", str(path), **options)
    for options in ({"exclude": "label_dog"}, {"x_column": "age,label_dog"}):  # what is asked for by name
        assert fs.data.load("csv", str(path), y_column="label_cat", **options).classes == 2
    assert fs.data.load("csv", str(path), y_column="sick").shape == (3,)
