"""A user's csv file: a mistake is one line with row, column and what to do; what is doubtful is a note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedskew as fs
from fedskew.data import load
from support.command import mistake
from support.data_files import fails


def written(folder: Path, *lines: str, name: str = "t.csv") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


WRONG: dict[str, tuple[str, dict, str]] = {  # text, options, what is said
    "a blank label": ("age,label\n1,a\n2,\n3,b", {}, "column 'label' must have a value in every row; row 3"),
    "a label of blanks": ("age,label\n1,a\n2,  \n3,b", {}, "row 3 has none, 1 of 3 rows lack one; fill"),
    "a blank client": ("age,client,label\n1,x,a\n2,,b", {}, "column 'client' must have a value in every row; row 3"),
    "rows after an empty line": ("age,label\n1,a\n\n2,\n3,b", {}, "row 4 has none"),
    "a missing number": ("age,dose,label\n1,2,a\n1,NA,b\n1,?,b", {}, "'dose' must have a number in every row; row 3"),
    "how many are missing": ("age,label\n1,a\nnan,b\n,b", {}, "2 of 3 rows lack one; fill them, or le"),
    "a word": ("age,label\n1,a\nold,b", {}, "column 'age' must hold numbers; row 3 has 'old', 1 of 2 rows hold no nu"),
    "a decimal comma": ('age,label\n"1,5",a\n2,b', {}, "row 2 has '1,5', 1 of 2 rows hold no number; if these"),
    "an infinite number": ("age,label\n1,a\ninf,b", {}, "column 'age' must hold numbers; row 3 has 'inf'"),
    "labels 1 to 5": ("age,y\n1,1\n2,3\n3,5", {}, "Csv.named_labels must be true where labels are numbers ot"),
    "where labels begin": ("age,y\n1,1\n2,3\n3,5", {}, "t.csv: column 'y' has labels from 1 to 5"),
    "a gap": ("age,y\n1,0\n2,1\n3,3", {}, "has labels from 0 to 3"),
    "a measured value": ("age,y\n1,0\n2,0.5", {}, "has labels from 0 to 0.5; measured values must be cut into classes"),
    "one class": ("age,label\n1,ill\n2,ill", {}, "must have two classes; got one class, 'ill', in all 2 rows"),
    "semicolons": ("age;dose;label\n1;2;a", {}, "Csv.separator must separate the columns; got ','; the first line"),
    "what to separate by": ("age;dose;label\n1;2;a", {}, "t.csv has semicolons: use ';'"),
    "tabs": ("age\tlabel\n1\ta", {}, "has tabs: use 'tab'"),
    "a value too few": ("a,y\n1,0\n1", {}, "must have 2 values a row; row 3 has 1"),
    "no rows": ("a,y\n", {}, "must have rows"),
    "nothing": ("", {}, "must have rows"),
    "labels alone": ("y\n1", {}, "Csv.x_column must name a column of features"),
    "an unknown feature": ("a,y\n1,0", {"x_column": "c"}, "Csv.x_column must name columns of t.csv; got 'c'"),
    "a value too many": ("age,label\n1,a\n2,b,c", {}, "row 3 has 3; a value that holds the separator needs quotes"),
    "a name twice": ("a,a,label\n1,2,x", {}, "got 'a' twice"),
    "no label column": ("age,dose\n1,2", {}, "Csv.y_column must name the column of labels, one of age, dose"),
    "labels as a feature": ("age,label\n1,a", {"x_column": "age,label"}, "Csv.x_column must not hold the colu"),
    "an unknown column left out": ("age,label\n1,a", {"exclude": "aeg"}, "Csv.exclude must name columns of t.csv"),
    "a category that is no feature": ("age,label\n1,a", {"categories": "label"}, "Csv.categories must name columns"),
    "a missing category": ("sex,label\nf,a\n,b", {"categories": "sex"}, "in every row; row 3 has none"),
    "a separator of two": ("age,label\n1,a", {"separator": "::"}, "Csv.separator must be one character, or tab"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_in_a_csv_file_names_row_and_column(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, options, expected = WRONG[case]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fs.FedskewError) as error:
        load("csv", str(written(tmp_path, text).name), **options)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_the_command_says_the_flag_for_class_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, "age,sex,label", "1,f,a", "2,m,b")
    said = mistake(capsys, "run", "fedavg", "--data", "csv", "--data.path", file)
    assert "leave the column out by --data.exclude, or name it in --data.categories; " in said
    file = written(tmp_path, "age;label", "1;a", "2;b")
    assert "--data.separator must separate the columns" in mistake(
        capsys, "run", "fedavg", "--data", "csv", "--data.path", file
    )
    said = mistake(capsys, "run", "fedavg", "--data", "csv", "--data.path", file, "--data.y_column", "x")
    assert "Csv." not in said
    file = written(tmp_path, "age,label", *(f"{'' if i % 9 == 4 else i},{'ab'[i % 2]}" for i in range(30)))
    said = mistake(capsys, "run", "fedavg", "--data", "csv", "--data.path", file)
    assert "row 6 has none" in said and "or set --data.missing to fill" in said


def test_named_labels_and_another_separator_are_options(tmp_path: Path) -> None:
    file = written(tmp_path, "age;label", *(f"{i};{(1, 2, 10)[i % 3]}" for i in range(30)))
    data = load("csv", str(file), separator=";", named_labels=True)
    assert data.label_names == ("1", "2", "10") and data.counts.tolist() == [8, 8, 8]  # sorted as numbers
    file = written(tmp_path, "age,label", *(f"{i},{('01', '02')[i % 2]}" for i in range(30)))
    assert load("csv", str(file), named_labels=True).label_names == ("01", "02")
    whole = written(tmp_path, "age,label", *(f"{i},{i % 2}.0" for i in range(30)))
    assert load("csv", str(whole)).label_names == ("0", "1")


def test_a_category_that_the_training_file_lacks_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, "sex,label", "f,a", "m,b", "f,b", name="train.csv")
    written(tmp_path, "sex,label", "f,a", "x,b", name="test.csv")
    fails(
        "csv",
        tmp_path,
        "column 'sex' must hold one of its categories, f, m; got 'x' in row 3 of test.csv",
        categories="sex",
    )


def test_a_class_that_only_the_test_file_has_is_a_note(tmp_path: Path) -> None:
    written(tmp_path, "age,label", "1,a", "2,b", "3,b", name="train.csv")
    written(tmp_path, "age,label", "1,a", "2,c", "3,c", name="test.csv")
    notes = load("csv", str(tmp_path)).notes
    assert notes[:1] == ("class 'c' has 2 test rows and no training row: it counts against every model",)
    made = fs.from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], np.zeros((2, 2)), [0, 2], classes=3)
    assert "class '2' has 1 test rows" in made.notes[0]


@pytest.mark.parametrize("name", ["patient_id", "id", "ID", "patientId", "Unnamed: 0", "subject id"])
def test_a_column_named_as_an_identifier_is_a_note(name: str, tmp_path: Path) -> None:
    file = written(tmp_path, f"{name},age,label", *(f"{i % 4},{i % 7},{'ab'[i % 2]}" for i in range(30)))
    note, *others = load("csv", str(file)).notes
    assert f"feature {name!r} looks like an identifier, by its name; Csv.exclude" in note
    assert all(one.startswith("rows: ") for one in (*load("csv", str(file), exclude=name).notes, *others))


def test_different_whole_numbers_in_every_row_are_a_note_and_measured_values_are_not(tmp_path: Path) -> None:
    rows = [f"{900 + i},{i + 0.5},{i % 7},{'ab'[i % 2]}" for i in range(30)]
    (note,) = load("csv", str(written(tmp_path, "number,pressure,humid,label", *rows))).notes
    assert "feature 'number' looks like an identifier, its 30 values are all different whole numbers" in note


def test_the_command_prints_notes_before_it_trains(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from support.command import fedskew

    rows = [f"{i},{i % 7}.5,{'ab'[i % 2]}" for i in range(40)]
    file = written(tmp_path, "patient_id,age,label", *rows)
    words = ["--data", "csv", "--data.path", file, "--partition", "iid", "--clients", 2, "--rounds", 1]
    assert fedskew("run", "fedavg", *words, "--model", "logistic", "--out", tmp_path / "r") == 0
    said = capfd.readouterr().err
    assert (
        "fedskew: note: feature 'patient_id' looks like" in said and "--data.exclude patient_id leaves it out" in said
    )
    assert said.index("note") < said.index("round 1/1")


# Several labels a row


def labelled(folder: Path, labels: list[str]) -> Path:
    return written(folder, "age,label", *(f'{i},"{label}"' for i, label in enumerate(labels * 12)))


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
    with pytest.raises(
        fs.DataError, match=r"one label a row \(multi-label is not supported\); \d+ of \d+ rows"
    ) as caught:
        fs.data.load("csv", str(labelled(tmp_path, labels)))
    assert "\n" not in str(caught.value) and "Csv.named_labels" in str(caught.value)
    named = fs.data.load("csv", str(labelled(tmp_path, labels)), named_labels=True)
    assert set(named.label_names) == set(labels)


@pytest.mark.parametrize("labels", CLASSES.values(), ids=CLASSES)
def test_names_with_a_separator_are_classes(tmp_path: Path, labels: list[str]) -> None:
    assert set(fs.data.load("csv", str(labelled(tmp_path, labels)), missing_words="").label_names) == set(labels)


def test_several_columns_of_labels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = [f"{i},{i % 2},{i % 3 // 2},{i % 2}" for i in range(40)]
    path.write_text("\n".join(["age,label_cat,label_dog,sick", *rows]))
    for options in ({}, {"y_column": "label_cat"}, {"y_column": "label_cat,label_dog"}):
        fails(
            "csv",
            path,
            "one column of labels: ",
            "(multi-label) are not supported",
            "label_dog",
            kind=fs.ConfigError,
            **options,
        )
    for options in ({"exclude": "label_dog"}, {"x_column": "age,label_dog"}):  # what is asked for by name
        assert fs.data.load("csv", str(path), y_column="label_cat", **options).classes == 2
    assert fs.data.load("csv", str(path), y_column="sick").shape == (3,)
