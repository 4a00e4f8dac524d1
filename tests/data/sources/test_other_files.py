"""Files as other programs write them: read right, noted or refused, never wrong in silence."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from fedskew.data import from_arrays, from_table, load
from fedskew.data.inputs import Inputs, rows_of
from fedskew.data.sources.table import DATASETS
from fedskew.errors import ConfigError, DataError
from support.command import refused
from support.data_files import fails

N = 60
Y = ["ab"[i % 2] for i in range(N)]
A = np.arange(N) % 13
AGE = [20 + i * 7 % 53 for i in range(N)]
FRAME = pd.DataFrame({"age": AGE, "sex": ["f", "m", "f"] * (N // 3), "label": ["well", "ill"] * (N // 2)})


def table(**columns: Any) -> dict[str, Any]:
    """Columns of 60 rows beside an age, a sex and a label; what is shorter is repeated."""
    return {name: np.resize(np.array(cells), N) for name, cells in ({**FRAME, **columns}).items()}


def written(file: Path, cells: Any = A, head: str = "a,v,label") -> Path:
    """A csv file of 60 rows."""
    rows = [f"{a},{c},{y}" for a, c, y in zip(A, cells, Y, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return file


def saved(file: Path, frame: pd.DataFrame) -> None:
    """A frame as the ending of the file says; as npz its first column and its labels."""
    if file.suffix == ".npz":
        np.savez(file, x=frame.to_numpy()[:, :1].astype(float), y=A % 2)
    else:
        frame.to_csv(file, index=False) if file.suffix == ".csv" else frame.to_parquet(file)


def picture(colour: Any, mode: str = "L", kind: str = "PNG", **how: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (6, 6), colour).save(file, kind, **how)
    return file.getvalue()


# Words and numbers


DATES = [
    "%b %d %Y", "%a %b %d %H:%M:%S %Y", "%a, %d %b %Y", "%G-W%V", "%Y年%m月%d日", "%b-%y", "%m/%Y", "%B %Y",
    "%Y%m%dT%H%M%S", "%d/%m/%Y", "%Y-%m-%d", "%dth %B %Y", "%d%b%Y", "%d-%b-%y", "%d%b%y:10:30:00",
]  # fmt: skip
DAYS = pd.date_range("2024-03-01", periods=N, freq="7D")
NO_NUMBER = "60 of 60 rows hold no number"
NO_CATEGORIES: dict[str, tuple[list[Any], str]] = {  # cells, what is said
    **{form: ([day.strftime(form) for day in DAYS], "60 of 60 are dates") for form in DATES},
    "hexadecimal": ([f"0x{i:x}" for i in range(N)], NO_NUMBER),
    "Fortran": ([f"1.{i}D+01" for i in range(N)], NO_NUMBER),
    "a point for nothing": (["." if i % 7 == 0 else i for i in range(N)], "'.', 9 of 60 rows hold no number"),
    "one a row": ([f"P{'abcdef'[i % 6]}{i}" for i in range(N)], "not one a row, to be one by itself; got 60 in 60"),
    "days without a year": (["1-Mar", "2-Mar", "15-Apr"], "60 of 60 are dates"),
    "durations": (["1h30", "2 h 15", "0h45m"], "60 of 60 are times"),
    "a word for below": (["neg"] * 6 + ["1.25", "2.5", "3.75", "9.1"], "36 of 60 rows hold no number"),
    "pressures": (["120/80", "130 / 85", "125/82"], NO_NUMBER),
    "apostrophes": (["1\u2019234", "2\u2019345", "900"], 'set Csv.decimal or Csv.thousands to "\'"'),
    "truth": (["True", "1", "False"], "40 of 60 rows hold no number"),
    "texts of Excel": (["'1", "'2", "'3"], NO_NUMBER),
    "dashes for a minus": (["\u20135", "\u20136", "7", "a"], "45 of 60 rows hold no number"),
}
CATEGORIES = [
    ["decile 10", "marker12"], ["SEPT9", "DEC1"], ["10-20", "20-30"], ["ward 12", "3rd"], ["A1", "v1.2.3"],
    ["+", "++", "+++"], ["missing", "a"], ["unknown", "a"], ["*", "**"], ["nato", "a"],
]  # fmt: skip


@pytest.mark.parametrize("case", NO_CATEGORIES)
def test_dates_numbers_and_names_of_rows_are_no_categories_by_themselves(case: str) -> None:
    cells, said = NO_CATEGORIES[case]
    made = table(v=cells)
    refused(lambda: from_table(made, categories="auto", missing="fill"), said, kind=DataError)
    assert from_table(made, categories="sex,v", missing_words="").shape == (3 + len({*map(str, cells)}),)


@pytest.mark.parametrize("words", CATEGORIES)
def test_names_that_look_a_little_like_dates_numbers_or_nothing_are_names(words: list[str]) -> None:
    assert from_table(table(v=words), categories="auto").shape == (3 + len(words),)
    assert from_table(table(label=words), categories="auto").label_names == tuple(sorted(words))


def test_groups_of_three_may_be_parted_by_a_typographic_apostrophe() -> None:
    column = from_table(table(v=["1\u2019234", "900"]), categories="auto", thousands="'").reading.columns[-1]
    assert (column.type, column.holds) == ("number", "900 to 1234")


@pytest.mark.parametrize(
    ("cells", "options", "order"),
    [
        (["1.500", "2.500", "900"], {"thousands": "."}, "900<1.500<2.500"),
        (["1,5", "10,0", "2,5"], {"decimal": ","}, "1,5<2,5<10,0"),
        (["1,500", "2,500", "900"], {"thousands": ","}, "900<1,500<2,500"),
    ],
)
def test_ranks_and_names_follow_the_declared_notation(cells: list[str], options: dict[str, Any], order: str) -> None:
    column = from_table(table(v=cells), ordinal="v", categories="auto", **options).reading.columns[-1]
    assert (column.type, column.holds) == ("ordinal", order)


def test_a_thousand_is_not_one_in_a_column_of_names() -> None:
    made = table(client=["1.000", "1"])
    assert from_table(made, categories="auto", thousands=".").column_names == {"client": ("1", "1.000")}
    assert from_table(made, categories="auto").column_names == {"client": ("1",)}


@pytest.mark.parametrize("word", [-9, -99, -999, -9999])
def test_a_number_that_may_stand_for_a_missing_one_is_noted(word: int) -> None:
    data = from_table({"v": [word if i % 9 == 0 else i % 20 for i in range(N)], "a": A, "label": Y})
    told = f"column 'v': 7 of 60 rows have {word}, and no other is below 0"
    assert any(note.startswith(told) for note in data.notes)
    assert not any("below 0" in note for note in from_table({"v": A - 9, "label": Y}).notes)
    filled = from_table({"v": [word, *range(59)], "label": Y}, missing_words=str(word), missing="fill")
    assert filled.reading.columns[0].missing == 1


@pytest.mark.parametrize("code", [-1, -9, -99, -999])
@pytest.mark.parametrize("others", [("ill", "well"), (0, 1), (1, 2)])
def test_a_code_for_a_missing_label_is_no_class(code: int, others: tuple[Any, Any]) -> None:
    frame = {"a": A, "label": [*map(str, (code, *others))] * 20}
    told = f"20 of 60 rows have {code}, which often marks rows without a label; set Csv.missing_words to {code} and"
    refused(lambda: from_table(frame, named_labels=True), told, "missing_labels to drop", kind=DataError)
    kept = from_table(frame, named_labels=True, missing_words=str(code), missing_labels="drop")
    assert (len(kept.x) + len(kept.x_test), kept.label_names) == (40, tuple(map(str, others)))
    assert from_table(frame, named_labels=True, missing_words="").classes == 3
    if others == (0, 1) and code == -1:
        assert from_table({"a": A, "label": [-1, 1] * 30}, named_labels=True).classes == 2
        labels = [-1, 0, 1] * 20
        refused(lambda: from_arrays(A[:, None], labels), "-1 often marks rows without a label", kind=DataError)


def test_words_for_a_missing_value_count_in_any_case() -> None:
    frame = {"v": ["Unknown", "x", "y"] * 20, "n": ["UNKNOWN", *map(str, range(59))], "label": Y}
    how: dict[str, Any] = {"categories": "v", "missing": "fill", "missing_words": "unknown"}
    assert [column.missing for column in from_table(frame, **how).reading.columns] == [20, 1, 0]
    assert from_table({**frame, "n": A}, case="keep", **how).reading.columns[0].missing == 0


@pytest.mark.parametrize("other", ["north\u200b", "north\ufeff", "no  rth", "no\u00a0rth"])
def test_names_that_look_the_same_are_refused(tmp_path: Path, other: str) -> None:
    file = written(tmp_path / "t.csv", ["no rth" if other[-2:] == "th" else "north", other] * 30)
    fails("csv", file, "must not hold names that differ in case alone or in blanks", categories="v")
    for case, names in (("fold", 1), ("keep", 2)):
        assert len(load("csv", str(file), categories="v", case=case).encoding.columns[1].values) == names


NOTED: dict[str, tuple[Any, str]] = {  # what makes a dataset, its note
    "whole numbers": (lambda: from_table({"v": np.arange(N) + 2**60, "label": Y}), "too large for float64 to hold a"),
    "seconds": (lambda: from_arrays(np.c_[A, 1.7e9 + A], A % 2), "values of feature 1 differ by too little for float"),
    "None": (lambda: from_arrays(A[:, None], ["None", "mild"] * 30), "'None': that is often a word for a missing la"),
    "two cases": (lambda: from_arrays(A[:, None], ["mild", "Mild"] * 30), "class 'mild' and class 'Mild' may be one"),
    "two numbers": (lambda: from_arrays(A[:, None], ["1", "1.0"] * 30), "class '1.0' and class '1' may be one"),
    "clients": (lambda: from_arrays(A[:, None], A % 2, columns={"c": A % 2}), "no two of 2 clients share a class"),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_is_doubtful_is_noted(case: str) -> None:
    make, note = NOTED[case]
    assert any(note in one for one in make().notes)
    assert not any("float32" in one or "may be" in one for one in from_arrays(np.c_[A, A * 1e9], A % 2).notes)


def test_a_feature_that_tells_the_label_is_noted() -> None:
    notes = from_table(table(state=["fine", "sick"]), categories="auto").notes
    told = "feature 'state' alone tells the class; Csv.exclude state leaves it out"
    assert [note for note in notes if "tells the class" in note] == [told]
    assert not any("tells the class" in note for note in from_table(table(), categories="auto").notes)


# Names of files and columns


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("training", "testing"), ("TRAIN", "test"), ("train", "Test"), ("train", "testing")],
)
def test_files_of_splits_are_no_clients_in_any_case(tmp_path: Path, ending: str, train: str, test: str) -> None:
    for name in (train, test, *(["val"] if ending != "npz" else [])):
        saved(tmp_path / f"{name}.{ending}", pd.DataFrame({"a": A, "v": A + (name == test), "label": Y}))
    data = load(ending, str(tmp_path))
    assert (len(data.x), len(data.x_test), data.columns) == (N, N, {})
    assert dict(data.reading.left_out) == ({"beside those that are read": 1} if ending != "npz" else {})


@pytest.mark.parametrize(
    "names", [("mine_test", "mine_train"), ("TestData", "TrainData"), ("north", "valid"), ("test",)]
)
@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_files_that_tell_of_a_split_are_no_clients(tmp_path: Path, ending: str, names: tuple[str, ...]) -> None:
    for name in names:
        saved(tmp_path / f"{name}.{ending}", pd.DataFrame({"a": A, "label": Y}))
    fails(ending, tmp_path, f"one file a client, named as the client; got {names[0]}")


@pytest.mark.parametrize(
    ("train", "test"),
    [("seg_train", "seg_test"), ("training_set", "test_set"), ("trainset", "testset"), ("MyTrain", "My")],
)
@pytest.mark.parametrize("classes", [["a", "b"], [""]])
def test_folders_that_tell_of_a_training_set_are_no_clients_and_no_classes(
    tmp_path: Path, train: str, test: str, classes: list[str]
) -> None:
    for place in (tmp_path / split / name for split in (train, test) for name in classes):
        place.mkdir(parents=True)
        for i in range(4):
            (place / f"{i}.png").write_bytes(picture(9 * i))
    if "" in classes and test == "My":
        return  # two classes, of which one may be called so
    fails("images", tmp_path, f"{test}, {train}, where splits are named train and test; say what")
    if "" not in classes:
        data = load("images", str(tmp_path), layout="clients")
        assert set(data.column_names["client"]) == {train, test}


def test_files_beside_folders_of_splits_are_no_clients(tmp_path: Path) -> None:
    for name in ("metadata.csv", "train/north.csv", "test/north.csv"):
        written(tmp_path / name)
    fails("csv", tmp_path, "not both; got metadata.csv beside test, train")


def test_files_of_other_kinds_and_in_other_folders_are_counted(tmp_path: Path) -> None:
    for name in ("train/n.csv", "test/n.csv", "val/n.csv", "more.xlsx", ".hidden"):
        written(tmp_path / name)
    assert dict(load("csv", str(tmp_path)).reading.left_out) == {"beside those that are read": 2}


def test_two_files_of_one_client_are_refused(tmp_path: Path) -> None:
    for name in ("1.csv", "01.csv"):
        written(tmp_path / name)
    fails("csv", tmp_path, "files of clients of different names; got '1' twice")


def test_two_columns_with_usual_names_of_labels_are_refused(tmp_path: Path) -> None:
    made = table(target=[0, 1])
    refused(lambda: from_table(made, categories="auto"), "label and target may each be it")
    assert from_table(made, categories="auto", y_column="label", exclude="target").label_names == ("ill", "well")
    saved(tmp_path / "t.parquet", pd.DataFrame(made))
    fails("parquet", tmp_path / "t.parquet", "label and target may each be it", kind=ConfigError, categories="auto")
    points = {"x": AGE, "y": np.arange(N) % 3, "class": Y}  # y is a coordinate
    assert from_table(points).label_names == ("a", "b") and from_table(points).shape == (2,)


def test_a_column_in_another_case_is_the_one_that_is_meant() -> None:
    encoding = from_table({"age": A, "stage": A + 1, "label": Y}).encoding
    told = "must have the column 'age'; is its 'AGE' meant"
    refused(lambda: encoding.encode({"AGE": A, "stage": A}, "new rows"), told, kind=DataError)


# Text


def test_a_column_without_a_name_is_an_index_or_empty(tmp_path: Path) -> None:
    file = written(tmp_path / "t.csv", head="a,,label")
    fails("csv", file, "column 2 has values and no name")
    assert load("csv", str(written(file, head=",v,label"))).shape == (1,)
    file.write_text(written(file).read_text().replace("\n", ",\n"))
    assert load("csv", str(file)).shape == (2,)


def test_a_line_of_names_within_a_file_is_no_row(tmp_path: Path) -> None:
    words = FRAME[["sex", "label"]].to_csv(index=False)
    (tmp_path / "twice.csv").write_text(words + words)
    fails("csv", tmp_path / "twice.csv", "name its columns once; row 62 names them again", categories="auto")


def test_a_blank_before_a_quote_is_none_of_the_value(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('"a", "label"\n' + "".join(f'{a}, "{y}, {y}"\n' for a, y in zip(A, Y, strict=True)))
    assert load("csv", str(tmp_path / "t.csv")).label_names == ("a, a", "b, b")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_speakers_are_spelt_alike(tmp_path: Path, encoding: str) -> None:
    speech = ":\n" + "a line that goes on and on, and has no end to speak of. " * 20
    names = ["ROMÉO", " ROMÉO", "ROME\u0301O ", "NURSE"]
    (tmp_path / "play.txt").write_text("\n\n".join(name + speech for name in names), encoding=encoding)
    assert load("shakespeare", str(tmp_path / "play.txt"), stride=20).column_names == {"client": ("NURSE", "ROMÉO")}


# Parquet


def test_categories_of_parquet_stay_categories_and_what_they_lack_is_missing(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ward": pd.Categorical([[1, 2, 30][i % 3] for i in range(N)]), "label": Y})
    frame["site"] = pd.Categorical([None if i % 7 == 0 else "abc"[i % 3] for i in range(N)])
    frame["grade"] = pd.Categorical([[3, 1, 2][i % 3] for i in range(N)], ordered=True)
    frame["stage"] = pd.Categorical(["mid", "low", "high"] * 20, ["low", "mid", "high"], ordered=True)
    saved(tmp_path / "t.parquet", frame)
    data = load("parquet", str(tmp_path / "t.parquet"), missing="fill")
    types = [column.type for column in data.reading.columns if column.role == "feature"]
    assert types == ["category", "category", "ordinal", "ordinal"] and data.reading.columns[2].missing == 9
    assert data.encoding == from_table(frame, missing="fill").encoding
    assert [column.values for column in data.encoding.columns[1::2]] == [("a", "b", "c", ""), ("low", "mid", "high")]


def test_numbers_of_a_period_are_no_feature(tmp_path: Path) -> None:
    months = pd.period_range("2024-01", periods=N, freq="M")
    saved(tmp_path / "t.parquet", pd.DataFrame({"v": months, "a": A, "label": Y}))
    fails("parquet", tmp_path / "t.parquet", "'v' must hold numbers or words; got ", "; store it as words or numbers")
    assert load("parquet", str(tmp_path / "t.parquet"), exclude="v").shape == (1,)


def test_an_index_of_one_client_alone_is_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": A, "label": Y})
    saved(tmp_path / "north.parquet", frame)
    saved(tmp_path / "south.parquet", frame.sample(frac=1, random_state=0))
    data = load("parquet", str(tmp_path))
    assert data.shape == (1,)
    assert [column.name for column in data.reading.columns if column.role == "left out"] == ["__index_level_0__"]


@pytest.mark.parametrize("names", [("north", "south"), ("train", "test")])
def test_orders_of_two_files_that_contradict_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    for name, order in zip(names, (["x", "y"], ["y", "x"]), strict=True):
        grade = pd.Categorical(["x", "y"] * 30, order, ordered=True)
        saved(tmp_path / f"{name}.parquet", pd.DataFrame({"grade": grade, "a": A, "label": Y}))
    fails("parquet", tmp_path, "'grade' must have an order; ", " x, y, and files contradict each other; give it")
    assert load("parquet", str(tmp_path), ordinal="grade=x<y").encoding.columns[0].values == ("x", "y")
    assert load("parquet", str(tmp_path), categories="grade").reading.columns[0].type == "category"
    assert load("parquet", str(tmp_path), exclude="grade").shape == (1,)


def test_types_of_two_clients_that_no_type_joins_are_named(tmp_path: Path) -> None:
    def clients(*columns: Any) -> Path:
        for name, column in zip("ns", columns, strict=True):
            saved(tmp_path / f"{name}.parquet", pd.DataFrame({"v": column, "label": Y}))
        return tmp_path

    told = "must hold columns of one type in all files: ", " Field v has incompatible"
    for one, other in ((pd.Categorical(Y), Y), (A % 2 == 0, A), (A, Y)):
        fails("parquet", clients(one, other), *told, categories="auto")
    assert load("parquet", str(clients(A, A / 2))).reading.columns[0].holds == "0 to 12"


def test_pictures_of_a_parquet_file_have_an_account(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    turned = [exif if i == 7 else Image.Exif() for i in range(20)]
    encoded = [picture((i, 2 * i, 99), "RGB", "JPEG", exif=turned[i]) for i in range(20)]
    pq.write_table(pa.table({"image": encoded, "label": [i % 2 for i in range(20)]}), tmp_path / "t.parquet")
    for _ in range(2):  # the second time from the cache
        data = load("parquet", str(tmp_path / "t.parquet"))
        told = "pictures: 20 of 6x6 pixels, of the modes RGB (20), read as RGB"
        assert data.reading.pictures == (told,) and "1 picture turned as EXIF says" in data.notes
        assert data.reading.files == ((str(tmp_path / "t.parquet"), 20),)


def test_lists_of_bytes_in_parquet_are_pictures_as_in_npz(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (N, 8, 8)).astype(np.uint8)
    cells = pa.array(pixels.tolist(), pa.list_(pa.list_(pa.uint8())))
    pq.write_table(pa.table({"image": cells, "label": Y}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", x=pixels, y=Y)
    one, other = load("parquet", str(tmp_path / "a.parquet")), load("npz", str(tmp_path / "a.npz"))
    assert one.fingerprint == other.fingerprint and one.shape == (1, 8, 8)


def test_parquet_keeps_owners_in_an_index_and_reads_its_own_labels(tmp_path: Path) -> None:
    FRAME.assign(client=["a", "b", "c"] * 20).set_index("client").to_parquet(tmp_path / "index.parquet")
    made = load("parquet", str(tmp_path / "index.parquet"), categories="auto")
    assert made.column_names == {"client": ("a", "b", "c")}
    file, source = str(tmp_path / "bool.parquet"), DATASETS["parquet"]()
    pq.write_table(pa.table({"x": AGE, "z": AGE[::-1], "label": [True, False] * 30}), file)
    inputs = Inputs.of(source.load(file))
    rows = rows_of(source, file, inputs)
    assert inputs.shape == (2,) and inputs.labels(rows.y)[:4].tolist() == [1, 0, 1, 0]


def test_names_beside_arrays_and_pictures_are_spelt_alike(tmp_path: Path) -> None:
    x = np.ones((N, 2))
    for sites, names in ((["café", "cafe\u0301", " café", "n"], ("café", "n")), ([10.0, 2.0], ("2", "10"))):
        assert from_arrays(x, A % 2, columns={"site": np.resize(sites, N)}).column_names == {"site": names}
    for name, kind in (("train", int), ("test", float)):
        columns = {"image": [picture(0)] * N, "client": list(map(kind, A)), "label": Y}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    data = load("parquet", str(tmp_path))
    assert torch.equal(data.columns_test["client"], data.columns["client"])
    told = "'client' must part test rows from training rows; got 13 values"
    fails("parquet", tmp_path, told, split_by="client")


# Arrays and frames


def test_series_of_different_rows_are_not_put_side_by_side() -> None:
    unlike = {"age": FRAME.age.sort_values(), "label": FRAME.label}
    refused(lambda: from_table(unlike), "table must have series of one index", kind=DataError)
    assert len(from_table({"age": FRAME.age, "label": FRAME.label, "v": AGE}).x) == 48


def test_test_rows_beside_x_and_y_are_the_test_set(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(N, 3)), np.arange(N) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x[:8] + 1, y_test=y[:8], x_valid=x, clients=y)
    data = load("npz", str(tmp_path / "a.npz"))
    assert (len(data.x), len(data.x_test), data.test_is_official) == (N, 8, True)
    assert "arrays left out: x_valid, clients" in data.notes
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y)
    assert len(load("npz", str(tmp_path / "b.npz")).x_test) == 12


@pytest.mark.parametrize("shape", [(3, 8, 6), (8, 8)])
def test_pictures_of_floats_up_to_255_are_noted(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (N, *shape))
    notes = [from_arrays(x, np.arange(N) % 2).notes for x in (pixels.astype(np.float32), pixels / 255.0)]
    assert [any("not divided by 255" in note for note in some) for some in notes] == [True, False]


def test_a_frame_of_nullable_types_is_an_array_of_numbers() -> None:
    frame = pd.DataFrame({"a": A, "b": A / 2}).convert_dtypes()
    assert np.array_equal(from_arrays(frame, A % 2, frame, A % 2).x, np.c_[A, A / 2].astype(np.float32))
    frame.loc[7, "b"] = pd.NA
    told = "x must be finite; got 1 rows with NaN or infinity, the first is row 7, column 1"
    refused(lambda: from_arrays(frame, A % 2), told, kind=DataError)


def test_images_of_more_than_four_channels_are_asked_for() -> None:
    x = np.ones((N, 8, 8, 13), np.float32)
    refused(lambda: from_arrays(x, A % 2), "x must say which axis has the channels", kind=DataError)
    assert from_arrays(x, A % 2, channels="last").shape == (13, 8, 8)
