"""Tables of a user's own: categories, missing values, one file a client; from csv, parquet and the hub's packages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedskew as fs
from fedskew.data import load
from fedskew.data.arrays import held_out
from fedskew.data.encoding import Encoding
from fedskew.data.inputs import Inputs
from fedskew.data.sources.files import reading
from fedskew.errors import ConfigError
from fedskew.fields import typed, untyped
from support.command import fedskew, mistake, refused
from support.data_files import GEN, fails

SITES = ("north", "south", "west")


def rows() -> pd.DataFrame:
    """Every ninth age and every seventh sex is blank; grades have an order that their names do not have."""
    i = np.arange(60)
    sex = [None if k % 7 == 3 else "fm"[k % 2] for k in i]
    made = pd.DataFrame({"age": np.where(i % 9 == 4, np.nan, i + 30.5), "sex": sex})
    made["grade"], made["label"] = np.array(["low", "mid", "high"])[i % 3], np.array(["ill", "well"])[i // 3 % 2]
    return made.assign(client=np.array(SITES)[i % 3])


def file_of(folder: Path, kind: str, frame: pd.DataFrame, name: str = "t") -> Path:
    """The same rows as csv, with blanks, or as parquet, with nulls."""
    file = folder / f"{name}.{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    frame.to_csv(file, index=False) if kind == "csv" else frame.to_parquet(file)
    return file


FILL: dict[str, Any] = {"categories": "sex", "ordinal": "grade=low<mid<high", "missing": "fill"}


def test_categories_and_missing_values_by_the_training_rows(tmp_path: Path) -> None:
    one, two = (load(kind, str(file_of(tmp_path, kind, rows())), **FILL) for kind in ("csv", "parquet"))
    assert one.fingerprint == two.fingerprint and one.encoding == two.encoding
    data = load("csv", str(tmp_path / "t.csv"), **FILL, standardise=False)
    assert data.label_names == ("ill", "well") and data.shape == (5,)
    age, sex, grade = data.encoding.columns
    assert sex.values == ("f", "m", "") and grade.values == ("low", "mid", "high") and grade.ordered
    given = {*rows().age.dropna()}  # each once
    seen = sorted(given & set(data.x[:, 0].tolist()))
    assert age.missing == float(np.median(seen)) != float(np.median(sorted(given)))
    filled = torch.cat([data.x, data.x_test])[:, 0] == age.missing
    assert int(filled.sum()) == 7 + (age.missing in given)
    assert torch.all(data.x[:, 1:4].sum(1) == 1) and int(torch.cat([data.x, data.x_test])[:, 3].sum()) == 9
    assert set(data.x[:, 4].tolist()) == {0.0, 1.0, 2.0}
    fed = fs.federate(data, "natural")
    assert fed.client_names == SITES


def test_a_filled_value_depends_on_training_rows_alone(tmp_path: Path) -> None:
    lines = rows()
    first = load("csv", str(file_of(tmp_path, "csv", lines)), **FILL, standardise=False)
    ages = first.x_test[:, 0]
    lines.loc[lines.age == float(ages.max()), ["age", "sex"]] = (
        900.5,
        "x",
    )  # of a test row
    other = load("csv", str(file_of(tmp_path, "csv", lines)), **FILL, standardise=False)
    assert torch.equal(first.x, other.x) and first.encoding == other.encoding
    changed = torch.isclose(other.x_test[:, 0], torch.tensor(900.5)).nonzero().item()
    assert other.x_test[changed, 1:4].tolist() == [0, 0, 1]  # an unknown category counts as a blank


def test_auto_finds_the_columns_of_words_and_new_rows_are_filled_alike(tmp_path: Path) -> None:
    file = file_of(tmp_path, "csv", rows())
    data = load("csv", str(file), categories="auto", missing="fill")
    (note,) = [note for note in data.notes if "filled" in note]
    blanks = rows()[held_out(rows().label)].isna().sum()
    told = ", ".join(f"{name} {n}" for name, n in blanks.items() if n)
    assert note == f"cells without a value in {len(data.x)} training rows are filled: {told}" and "," in told
    assert [column.values for column in data.encoding.columns] == [(), ("f", "m", ""), ("high", "low", "mid", "")]
    table = {"age": ["", "40"], "sex": ["x", "f"], "grade": ["low", ""]}
    notes: list[str] = []
    coded = data.encoding.encode(table, "new.csv", notes=notes)
    assert [note.partition(" (")[0] for note in notes] == [
        "new.csv: column 'sex': 1 of 2 rows have categories that the training rows lack",
        "new.csv: column 'grade': 1 of 2 rows have a value that no training row had",
    ]
    assert coded[:, 1:].tolist() == [[0, 0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]], "no training row lacks a grade"
    column = data.encoding.columns[0]
    assert np.isclose(coded[0, 0], (column.missing - column.mean) / column.std)
    assert typed(untyped(data.encoding), Encoding) == data.encoding


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_a_folder_with_one_file_a_client(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for site, part in rows().fillna({"age": 50}).groupby("client"):
        if kind == "npz":
            np.savez(folder / f"{site}.npz", x=part[["age"]], y=part[["label"]].astype(str).to_numpy("U4"))  # [n, 1]
        else:
            file_of(folder, kind, part[["age", "label"]], site)
    fed = fs.federate(kind, "natural", path=str(folder))
    assert fed.client_names == SITES and fed.dataset.label_names == ("ill", "well")
    assert len(fed.dataset.y) == 48 and fed.dataset.shape == (1,) and int(fed.sizes.sum()) == 48
    words = ["--data", kind, "--data.path", folder, "--partition", "natural", "--model", "logistic", "--rounds", 1]
    assert fedskew("run", "fedavg", *words, "--out", tmp_path / "run") == 0
    (folder / "train").mkdir()
    (folder / "test").mkdir()
    for file in sorted(folder.glob(f"*.{kind}")):
        (folder / "test" / file.name).write_bytes(file.read_bytes())
        file.rename(folder / "train" / file.name)
    data = load(kind, str(folder))
    assert data.test_is_official and len(data.y) == len(data.y_test) == 60 and data.column_names["client"] == SITES


def test_npz_files_that_do_not_fit_together(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=np.arange(4) % 2)
    np.savez(tmp_path / "b.npz", x=np.zeros((4, 3)), y=np.arange(4) % 2)
    fails("npz", tmp_path, "b.npz: 'x' must be as in a.npz, float64 (4, 2); got float64 (4, 3)")
    np.savez(tmp_path / "b.npz", z=np.zeros((4, 2)))
    fails("npz", tmp_path, "b.npz must hold the arrays of the other clients' files; got z, without x")


@pytest.mark.parametrize("part", ["train", "test"])
def test_npz_files_of_a_training_and_a_test_folder_hold_x_and_y(part: str, tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        given = {"x_train": np.zeros((4, 2)), "y_train": np.arange(4) % 2}
        plain = {"x": np.zeros((4, 2)), "y": np.arange(4) % 2}
        np.savez(tmp_path / name / "a.npz", **(given if name == part else plain))
    fails("npz", tmp_path, f"{part}/a.npz must hold x and y, as ", "got client, x_train, y_train")


@pytest.mark.parametrize("channels", [(), (3,)])
def test_medmnist_files_are_known(channels: tuple[int, ...], tmp_path: Path) -> None:
    gen = np.random.default_rng(0)
    parts: dict[str, np.ndarray] = {}
    for split, count in (("train", 12), ("val", 6), ("test", 4)):
        parts[f"{split}_images"] = gen.integers(0, 256, (count, 28, 28, *channels)).astype(np.uint8)
        parts[f"{split}_labels"] = (np.arange(count) % 2)[:, None].astype(np.uint8)
    np.savez(tmp_path / "pathmnist.npz", **parts)
    data = load("npz", str(tmp_path / "pathmnist.npz"))
    assert data.shape == (channels[0] if channels else 1, 28, 28) and len(data.y) == 12 and data.test_is_official
    assert "arrays left out: x_val, y_val" in data.notes


def test_columns_in_memory_and_a_pandas_frame_give_what_the_file_gives(tmp_path: Path) -> None:
    file = file_of(tmp_path, "csv", rows())
    whole = load("csv", str(file), **FILL)
    frame = pd.read_csv(file)
    for table in (frame, frame.to_dict("list")):
        data = fs.from_table(table, **FILL)
        assert torch.equal(data.x, whole.x) and data.encoding == whole.encoding and data.column_names["client"] == SITES
    result = fs.run(fs.federate(data, "natural"), fs.methods.fedavg(), model="logistic", rounds=1)
    with pytest.warns(RuntimeWarning, match="column 'age': 1 of 2 rows have no number; "):
        assert result.predict({"age": [None, 40.0], "sex": ["f", None], "grade": ["low", "high"]}).shape == (2,)
    for table, options, *told in (
        ({"a": [1, 2], "y": [0, 1, 0]}, {}, "must have columns of one length, with rows, ", "got a (2,), y (3,)"),
        ({"a": [1.0, None], "y": [0, 1]}, {}, "table: column 'a' must have a number in every row; row 1 has none"),
        ({"a": [1], "y": [0]}, {"categorys": "a"}, "from_table has no option 'categorys'; did you mean 'categories'"),
    ):
        refused(partial(fs.from_table, table, **options), *told, kind=fs.FedskewError)


def bedside(**changes: list[str]) -> dict[str, list[str]]:
    """Rows of 50 patients, four each."""
    rows = range(200)
    table = {"age": [str(20 + i % 60) for i in rows], "ward": ["abc"[i % 3] for i in rows]}
    table |= {
        "visit": [f"2024-0{1 + i % 9}-{1 + i % 28:02d}" for i in rows],
        "stage": [["I", "II"][i % 2] for i in rows],
    }
    return table | {"patient": [f"p{i // 4}" for i in rows], "y": [["ill", "well"][i // 4 % 2] for i in rows]} | changes


def test_one_row_is_given_as_lists_of_one_value() -> None:
    data = fs.from_table(bedside(), exclude="visit, patient", categories="auto, age", ordinal="stage=I<II")
    age, ward, stage = data.encoding.columns
    assert "20" in age.values and ward.values == ("a", "b", "c") and stage.ordered and stage.values == ("I", "II")
    told = "'age' has shape (); for one row give {'age': [61], ...}"
    refused(lambda: data.encoding.encode({"age": 61, "ward": "a", "stage": "I"}, "x"), told, kind=fs.DataError)
    options = {"exclude": "visit", "categories": "auto", "split_by": "patient"}
    told = "must have values that a test set of 20% can take"
    refused(lambda: fs.from_table(bedside(patient=["p"] * 200), **options), told, kind=fs.DataError)


def test_no_patient_lies_on_both_sides_of_a_split(tmp_path: Path) -> None:
    table = bedside()
    options: dict[str, Any] = {"exclude": "visit", "categories": "auto", "split_by": "patient"}
    ages = [str(i) for i in range(200)]  # each row is known by its age
    data = fs.from_table(bedside(age=ages), **options, standardise=False)
    patient = np.array(table["patient"])
    train, test = (set(patient[x[:, 0].numpy().astype(int)]) for x in (data.x, data.x_test))
    assert not train & test and len(data.y_test) == 40 and data.counts.tolist() == [80, 80]
    pairs = {"client": [f"c{i // 100}" for i in range(200)]}
    data = fs.from_table(bedside(**pairs), **options)
    assert data.column_names == {"client": ("c0", "c1")}
    fed = fs.federate(data, "natural", validation=0.2, local_test=0.2, seed=3)
    parts = (fed.partition.rows, fed.validation_rows, fed.local_test_rows())
    first, second, third = (set(data.units[torch.from_numpy(rows)].tolist()) for rows in parts)
    assert first and second and third and not (first & second or first & third or second & third)
    assert len(parts[1]) == 32 and all(len(fed.local_test_rows(k)) for k in (0, 1))
    lines = pd.DataFrame(table)[["age", "patient", "y"]]
    file_of(tmp_path, "csv", lines[:100], "train")
    file_of(tmp_path, "csv", lines[100:], "test")
    apart, alone = (load("csv", str(tmp_path), exclude="patient", split_by=by) for by in ("patient", None))
    assert torch.equal(apart.x, alone.x) and apart.fingerprint != alone.fingerprint, "their validation rows differ"
    file_of(tmp_path, "csv", lines[98:], "test")
    fails("csv", tmp_path, "must part test rows from training rows; got 1 value that ", ": p24", split_by="patient")


def smokers(**cells: str) -> dict[str, Any]:
    """A table of 80 rows; ``cells`` are words of the column smoker, by row number after "r"."""
    smoker = ["no", "yes"] * 40
    for row, word in cells.items():
        smoker[int(row[1:])] = word
    return {"age": [40 + i % 30 for i in range(80)], "smoker": smoker, "y": [0, 1, 1, 0] * 20}


@pytest.mark.parametrize(("value", "shown"), [("", "blank"), ("sometimes", "'sometimes'")])
def test_a_category_that_no_training_row_had_says_nothing_whatever_the_seed(value: str, shown: str) -> None:
    data = fs.from_table(smokers(), categories="auto", missing="fill")
    assert data.encoding.columns[1].values == ("no", "yes", "")
    age = data.encoding.columns[0]
    for seed in (0, 1):
        run = fs.run(
            fs.federate(data, "iid", clients=2), fs.methods.fedavg(), model="logistic", rounds=1, cohort=2, seed=seed
        )
        with pytest.warns(RuntimeWarning, match="smoker") as warned:
            scores = run.trained.probabilities({"age": [41, 41, 41], "smoker": [value, "no", value]})
        told = f"2 of 3 rows have a value that no training row had ({shown}); they are scored as if the column said"
        assert [str(w.message) for w in warned] == [f"x: column 'smoker': {told} nothing"]
        bare = np.array([[(41 - age.mean) / age.std, 0, 0, 0]], np.float32)
        assert torch.equal(scores[0], run.trained.probabilities(bare, encoded=True)[0])
        assert not torch.equal(scores[0], scores[1])


def test_a_category_of_test_rows_alone_is_zeros_and_noted() -> None:
    test = f"r{np.flatnonzero(~held_out(smokers()['y']))[0]}"
    data = fs.from_table(smokers(**{test: "pipe"}), categories="smoker")
    column = data.encoding.columns[1]
    assert (column.values, column.unseen) == (("no", "pipe", "yes"), ("pipe",))
    assert (data.x[:, 1:].sum(1) == 1).all() and (data.x_test[:, 1:].sum(1) == 0).sum() == 1
    said = "1 of 80 rows have a value that no training row had ('pipe'); they are scored as if the column said nothing"
    assert data.notes[0] == f"table: column 'smoker': {said}"
    again = typed(untyped(data.encoding), Encoding).columns[1]
    assert again.unseen == column.unseen
    notes: list[str] = []
    rows = {"age": [41, 42], "smoker": ["pipe", "no"]}
    assert not Inputs.of(data).samples(rows, notes=notes)[0, 1:].any()
    assert notes == [
        "x: column 'smoker': 1 of 2 rows have a value that no training row had ('pipe'); they are scored as if the "
        "column said nothing",
    ]


def test_without_training_rows_at_hand_an_encoding_stays_as_it_is() -> None:
    data = fs.from_table(smokers(), categories="auto", missing="fill")
    inputs = Inputs.of(data)
    of_nodes = Inputs.of(replace(data, x=data.x[:0], y=data.y[:0], encoding=inputs.encoding))
    assert of_nodes.encoding is not None
    assert [c.unseen for c in of_nodes.encoding.columns] == [c.unseen for c in inputs.encoding.columns] == [(), ("",)]


def test_a_number_that_is_filled_for_a_new_row_is_noted() -> None:
    table = smokers() | {"grade": ["low", "mid"] * 40}
    data = fs.from_table(table, categories="smoker", ordinal="grade=low<mid", missing="fill")
    notes: list[str] = []
    Inputs.of(data).samples({"age": ["41", "NA", ""], "smoker": ["no"] * 3, "grade": ["low", "", "mid"]}, notes=notes)
    assert all(note.startswith("rows: ") for note in data.notes)
    assert notes == [
        f"x: column 'age': 2 of 3 rows have no number; {data.encoding.columns[0].missing:g}, the median of the "
        "training rows, takes its place",
        "x: column 'grade': 1 of 3 rows have no value; the median place of the training rows counts",
    ]


def test_a_machine_short_of_memory_says_nothing_of_the_file() -> None:
    with pytest.raises(MemoryError), reading("a.csv", "is not a csv file"):
        raise MemoryError


def test_npz_files(tmp_path: Path) -> None:
    x, y = GEN.normal(size=(20, 4)).astype(np.float32), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4])
    one, two = load("npz", str(tmp_path / "a.npz")), load("npz", str(tmp_path / "b.npz"))
    assert len(one.y) == 16 and one.name == "a" and not one.test_is_official
    assert len(two.y) == 20 and len(two.y_test) == 4 and two.test_is_official
    np.savez(tmp_path / "c.npz", x=x)
    fails("npz", tmp_path / "c.npz", "got x, without y")
    np.savez(tmp_path / "d.npz", x=np.array([{}] * 4, dtype=object), y=np.arange(4) % 2)
    fails("npz", tmp_path / "d.npz", "not a readable npz file of plain arrays")
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    fails("npz", tmp_path / "a.npz", "must be an npz file")
    fails("npz", None, "path must name the file of dataset 'npz'; got ''", kind=ConfigError)


def written(folder: Path, *lines: str, name: str = "t.csv") -> Path:
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


WRONG: dict[str, tuple[Any, dict, str]] = {  # text, or one a client; options; what is said
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
    "another column": ({"a": "u,label\n1,x", "b": "v,label\n1,x"}, {}, "b.csv must have the columns of a.csv"),
    "one more column": ({"a": "u,label\n1,x", "b": "u,w,label\n1,2,x"}, {}, "one of both lacks 'w'"),
    "a word in one": ({"a": "u,label\n1,x", "b": "u,label\n1,x\nold,y"}, {}, "row 3 of b.csv has 'old', 1 of 3 rows"),
    "a blank in one": ({"a": "u,label\n1,x", "b": "u,label\n,x"}, {}, "row 2 of b.csv has none, 1 of 2 rows lack one"),
    "how to fill": ({"a": "u,label\n1,x", "b": "u,label\n,x"}, {}, "column out, or set Csv.missing to fill"),
    "an order of one": ({"a": "u,label\nl,x"}, {"ordinal": "u=l"}, "Csv.ordinal must give an order of different val"),
    "an unknown place": ({"a": "u,label\nl,x\nz,y"}, {"ordinal": "u=l<h"}, "one of its categories, l, h; got 'z' in r"),
    "ordinal of a label": ({"a": "u,label\nl,x"}, {"ordinal": "label"}, "Csv.ordinal must name columns of features"),
    "a category of the test file": (
        {"train": "sex,label\nf,a\nm,b\nf,b", "test": "sex,label\nf,a\nx,b"}, {"categories": "sex"},
        "column 'sex' must hold one of its categories, f, m; got 'x' in row 3 of test.csv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_names_file_row_and_column(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, options, expected = WRONG[case]
    monkeypatch.chdir(tmp_path)
    for name, content in text.items() if isinstance(text, dict) else [("t", text)]:
        written(tmp_path, content, name=f"{name}.csv")
    fails("csv", "." if isinstance(text, dict) else "t.csv", expected, kind=fs.FedskewError, **options)


def test_the_command_says_the_flag_for_class_and_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "run", "fedavg", "--data", "csv", "--data.path", tmp_path / "t.csv"
    written(tmp_path, "age,sex,label", "1,f,a", "2,m,b")
    said = mistake(capsys, *words)
    assert "leave the column out by --data.exclude, or name it in --data.categories; " in said
    written(tmp_path, "age;label", "1;a", "2;b")
    assert "--data.separator must separate the columns" in mistake(capsys, *words)
    assert "Csv." not in mistake(capsys, *words, "--data.y_column", "x")
    written(tmp_path, "age,label", *(f"{'' if i % 9 == 4 else i},{'ab'[i % 2]}" for i in range(30)))
    said = mistake(capsys, *words)
    assert "row 6 has none" in said and "or set --data.missing to fill" in said


def test_named_labels_and_another_separator_are_options(tmp_path: Path) -> None:
    file = written(tmp_path, "age;label", *(f"{i};{(1, 2, 10)[i % 3]}" for i in range(30)))
    data = load("csv", str(file), separator=";", named_labels=True)
    assert data.label_names == ("1", "2", "10") and data.counts.tolist() == [8, 8, 8]  # sorted as numbers
    file = written(tmp_path, "age,label", *(f"{i},{('01', '02')[i % 2]}" for i in range(30)))
    assert load("csv", str(file), named_labels=True).label_names == ("01", "02")
    whole = written(tmp_path, "age,label", *(f"{i},{i % 2}.0" for i in range(30)))
    assert load("csv", str(whole)).label_names == ("0", "1")


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
    rows = [f"{i},{i % 7}.5,{'ab'[i % 2]}" for i in range(40)]
    file = written(tmp_path, "patient_id,age,label", *rows)
    words = ["--data", "csv", "--data.path", file, "--partition", "iid", "--clients", 2, "--rounds", 1]
    assert fedskew("run", "fedavg", *words, "--model", "logistic", "--out", tmp_path / "r") == 0
    said = capfd.readouterr().err
    assert "fedskew: note: feature 'patient_id' looks like" in said
    assert "--data.exclude patient_id leaves it out" in said
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
    told = "one label a row (multi-label is not supported); ", " rows have several", "Csv.named_labels"
    fails("csv", labelled(tmp_path, labels), *told)
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
