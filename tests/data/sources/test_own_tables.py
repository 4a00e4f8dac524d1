"""Tables of a user's own: categories, missing values, one file a client; from csv, parquet and the hub's packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import load
from fedskew.data.arrays import held_out
from fedskew.data.encoding import Encoding
from fedskew.data.inputs import Inputs
from fedskew.fields import typed, untyped
from support.command import fedskew
from support.data_files import fails

HEAD = "age,sex,grade,label,client"
SITES = ("north", "south", "west")


def rows(count: int = 60) -> list[list[str]]:
    """Every ninth age and every seventh sex is blank; grades have an order that their names do not have."""
    made = []
    for i in range(count):
        age, sex = ("" if i % 9 == 4 else f"{30 + i}.5"), ("" if i % 7 == 3 else "fm"[i % 2])
        made.append([age, sex, ("low", "mid", "high")[i % 3], ("ill", "well")[i // 3 % 2], SITES[i % 3]])
    return made


def file_of(folder: Path, kind: str, lines: list[list[str]], name: str = "t", columns: str = HEAD) -> Path:
    """The same rows as csv, with blanks, or as parquet, with nulls."""
    file, names = folder / f"{name}.{kind}", columns.split(",")
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        file.write_text("\n".join([columns, *map(",".join, lines)]) + "\n")
        return file
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    held: dict[str, Any] = {n: [row[i] or None for row in lines] for i, n in enumerate(names)}
    if "age" in held:
        held["age"] = [None if age is None else float(age) for age in held["age"]]
    pq.write_table(pa.table(held), file)
    return file


FILL: dict[str, Any] = {"categories": "sex", "ordinal": "grade=low<mid<high", "missing": "fill"}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_categories_and_missing_values_by_the_training_rows(kind: str, tmp_path: Path) -> None:
    data = load(kind, str(file_of(tmp_path, kind, rows())), **FILL, standardise=False)
    assert data.encoding is not None and data.label_names == ("ill", "well") and data.shape == (5,)
    age, sex, grade = data.encoding.columns
    assert sex.values == ("f", "m", "") and grade.values == ("low", "mid", "high") and grade.ordered
    given = {float(row[0]) for row in rows() if row[0]}  # each once
    seen = sorted(given & set(data.x[:, 0].tolist()))
    assert age.missing == float(np.median(seen)) != float(np.median(sorted(given)))
    filled = torch.cat([data.x, data.x_test])[:, 0] == age.missing
    assert int(filled.sum()) == 7 + (age.missing in given)
    assert torch.all(data.x[:, 1:4].sum(1) == 1) and int(torch.cat([data.x, data.x_test])[:, 3].sum()) == 9
    assert set(data.x[:, 4].tolist()) == {0.0, 1.0, 2.0}
    fed = fs.federate(data, "natural")
    assert fed.client_names == SITES


def test_csv_and_parquet_give_the_same_samples(tmp_path: Path) -> None:
    one, two = (load(kind, str(file_of(tmp_path, kind, rows())), **FILL) for kind in ("csv", "parquet"))
    assert torch.equal(one.x, two.x) and torch.equal(one.y_test, two.y_test) and one.encoding == two.encoding
    assert one.fingerprint == two.fingerprint


def test_a_filled_value_depends_on_training_rows_alone(tmp_path: Path) -> None:
    lines = rows()
    first = load("csv", str(file_of(tmp_path, "csv", lines)), **FILL, standardise=False)
    ages = first.x_test[:, 0]
    (at,) = [i for i, row in enumerate(lines) if row[0] and float(row[0]) == float(ages.max())]
    lines[at][0], lines[at][1] = "900.5", "x"  # a test row with an extreme age and a sex of its own
    other = load("csv", str(file_of(tmp_path, "csv", lines)), **FILL, standardise=False)
    assert torch.equal(first.x, other.x) and first.encoding == other.encoding
    changed = torch.isclose(other.x_test[:, 0], torch.tensor(900.5)).nonzero().item()
    assert other.x_test[changed, 1:4].tolist() == [0, 0, 1]  # an unknown category counts as a blank


def test_auto_finds_the_columns_of_words_and_new_rows_are_filled_alike(tmp_path: Path) -> None:
    file = file_of(tmp_path, "csv", rows())
    data = load("csv", str(file), categories="auto", missing="fill")
    assert data.encoding is not None
    (note,) = [note for note in data.notes if "filled" in note]
    kept = [row for row, stays in zip(rows(), held_out([row[3] for row in rows()]), strict=True) if stays]
    blanks = {name: n for i, name in enumerate(("age", "sex", "grade")) if (n := sum(not row[i] for row in kept))}
    told = ", ".join(f"{name} {n}" for name, n in blanks.items())
    assert note == f"cells without a value in {len(data.x)} training rows are filled: {told}" and len(blanks) > 1
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
    for k, site in enumerate(SITES):
        lines = [[row[0] or "50", row[3]] for row in rows()[k::3]]
        if kind == "npz":
            x = np.array([[float(row[0])] for row in lines])
            np.savez(folder / f"{site}.npz", x=x, y=np.array([[row[1]] for row in lines]))  # labels [n, 1]
        else:
            file_of(folder, kind, lines, site, "age,label")
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


WRONG: dict[str, tuple[dict[str, str], dict[str, Any], str]] = {
    "another column": ({"a": "u,label\n1,x", "b": "v,label\n1,x"}, {}, "b.csv must have the columns of a.csv"),
    "one more column": ({"a": "u,label\n1,x", "b": "u,w,label\n1,2,x"}, {}, "one of both lacks 'w'"),
    "a word in one": ({"a": "u,label\n1,x", "b": "u,label\n1,x\nold,y"}, {}, "row 3 of b.csv has 'old', 1 of 3 rows"),
    "a blank in one": ({"a": "u,label\n1,x", "b": "u,label\n,x"}, {}, "row 2 of b.csv has none, 1 of 2 rows lack one"),
    "how to fill": ({"a": "u,label\n1,x", "b": "u,label\n,x"}, {}, "column out, or set Csv.missing to fill"),
    "an order of one": ({"a": "u,label\nl,x"}, {"ordinal": "u=l"}, "Csv.ordinal must give an order of different val"),
    "an unknown place": ({"a": "u,label\nl,x\nz,y"}, {"ordinal": "u=l<h"}, "one of its categories, l, h; got 'z' in r"),
    "ordinal of a label": ({"a": "u,label\nl,x"}, {"ordinal": "label"}, "Csv.ordinal must name columns of features"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_names_the_client_s_file_and_the_row(case: str, tmp_path: Path) -> None:
    files, options, expected = WRONG[case]
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    with pytest.raises(fs.FedskewError) as error:
        load("csv", str(tmp_path), **options)
    assert expected in str(error.value) and "\n" not in str(error.value)


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
    with pytest.raises(fs.DataError, match=rf"{part}/a.npz must hold x and y, as .*got client, x_train, y_train"):
        load("npz", str(tmp_path))


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
    pandas = pytest.importorskip("pandas")
    file = file_of(tmp_path, "csv", rows())
    whole = load("csv", str(file), **FILL)
    frame = pandas.read_csv(file)
    for table in (frame, {name: frame[name].tolist() for name in frame}):
        data = fs.from_table(table, **FILL)
        assert torch.equal(data.x, whole.x) and data.encoding == whole.encoding and data.column_names["client"] == SITES
    result = fs.run(fs.federate(data, "natural"), fs.methods.fedavg(), model="logistic", rounds=1)
    with pytest.warns(RuntimeWarning, match="column 'age': 1 of 2 rows have no number; "):
        assert result.predict({"age": [None, 40.0], "sex": ["f", None], "grade": ["low", "high"]}).shape == (2,)
    with pytest.raises(fs.DataError, match=r"must have columns of one length, with rows, .*; got a \(2,\), y \(3,\)"):
        fs.from_table({"a": [1, 2], "y": [0, 1, 0]})
    with pytest.raises(fs.ConfigError, match=r"from_table has no option 'categorys'; did you mean 'categories'"):
        fs.from_table({"a": [1, 2], "y": [0, 1]}, categorys="a")
    with pytest.raises(fs.DataError, match=r"table: column 'a' must have a number in every row; row 1 has none"):
        fs.from_table({"a": [1.0, None], "y": [0, 1]})


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
    assert data.encoding is not None
    age, ward, stage = data.encoding.columns
    assert "20" in age.values and ward.values == ("a", "b", "c") and stage.ordered and stage.values == ("I", "II")
    with pytest.raises(fs.DataError, match=r"'age' has shape \(\); for one row give \{'age': \[61\], ...\}"):
        data.encoding.encode({"age": 61, "ward": "a", "stage": "I"}, "x")
    with pytest.raises(fs.DataError, match="must have values that a test set of 20% can take"):
        fs.from_table(bedside(patient=["p"] * 200), exclude="visit", categories="auto", split_by="patient")


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
    assert data.units is not None and data.column_names == {"client": ("c0", "c1")}
    fed = fs.federate(data, "natural", validation=0.2, local_test=0.2, seed=3)
    parts = (fed.partition.rows, fed.validation_rows, fed.local_test_rows())
    first, second, third = (set(data.units[torch.from_numpy(rows)].tolist()) for rows in parts)
    assert first and second and third and not (first & second or first & third or second & third)
    assert len(parts[1]) == 32 and all(len(fed.local_test_rows(k)) for k in (0, 1))
    lines = [list(row) for row in zip(*(table[name] for name in ("age", "patient", "y")), strict=True)]
    for name, part in (("train", lines[:100]), ("test", lines[98:])):
        file_of(tmp_path, "csv", part, name, "age,patient,y")
    file_of(tmp_path, "csv", lines[100:], "test", "age,patient,y")
    apart, alone = (load("csv", str(tmp_path), exclude="patient", split_by=by) for by in ("patient", None))
    assert torch.equal(apart.x, alone.x) and apart.fingerprint != alone.fingerprint, "their validation rows differ"
    file_of(tmp_path, "csv", lines[98:], "test", "age,patient,y")
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
    assert data.encoding is not None and data.encoding.columns[1].values == ("no", "yes", "")
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
    assert data.encoding is not None
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
    assert inputs.encoding is not None and of_nodes.encoding is not None
    assert [c.unseen for c in of_nodes.encoding.columns] == [c.unseen for c in inputs.encoding.columns] == [(), ("",)]


def test_a_number_that_is_filled_for_a_new_row_is_noted() -> None:
    table = smokers() | {"grade": ["low", "mid"] * 40}
    data = fs.from_table(table, categories="smoker", ordinal="grade=low<mid", missing="fill")
    notes: list[str] = []
    Inputs.of(data).samples({"age": ["41", "NA", ""], "smoker": ["no"] * 3, "grade": ["low", "", "mid"]}, notes=notes)
    assert data.encoding is not None and all(note.startswith("rows: ") for note in data.notes)
    assert notes == [
        f"x: column 'age': 2 of 3 rows have no number; {data.encoding.columns[0].missing:g}, the median of the "
        "training rows, takes its place",
        "x: column 'grade': 1 of 3 rows have no value; the median place of the training rows counts",
    ]
