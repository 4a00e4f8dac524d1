"""Files as other programs write them: read right, noted or refused, never wrong in silence."""

import io

import numpy as np
import pandas as pd
import pytest
import torch

from fedskew.data import from_arrays, from_table, load
from fedskew.errors import DataError
from support.command import refused
from support.data_files import fails

Y = ["ab"[i % 2] for i in range(60)]
A = np.arange(60) % 13


def table(cells, head="a,v,label"):
    return "\n".join([head, *(f"{a},{c},{y}" for a, c, y in zip(A, cells, Y, strict=True))]) + "\n"


DATES = [
    "%b %d %Y", "%a %b %d %H:%M:%S %Y", "%a, %d %b %Y", "%G-W%V", "%Y年%m月%d日", "%b-%y", "%m/%Y", "%B %Y",
    "%Y%m%dT%H%M%S", "%d/%m/%Y", "%Y-%m-%d", "%dth %B %Y", "%d%b%Y", "%d-%b-%y", "%d%b%y:10:30:00",
]  # fmt: skip
DAYS = pd.date_range("2024-03-01", periods=60, freq="7D")
NO_CATEGORIES = {  # cells, what is said
    **{form: ([day.strftime(form) for day in DAYS], "60 of 60 are dates") for form in DATES},
    "hexadecimal": ([f"0x{i:x}" for i in range(60)], "60 of 60 rows hold no number"),
    "Fortran": ([f"1.{i}D+01" for i in range(60)], "60 of 60 rows hold no number"),
    "a point for nothing": (["." if i % 7 == 0 else i for i in range(60)], "'.', 9 of 60 rows hold no number"),
    "one a row": ([f"P{'abcdef'[i % 6]}{i}" for i in range(60)], "not one a row, to be one by itself; got 60 in 60"),
}  # fmt: skip
CATEGORIES = [["decile 10", "marker12"], ["SEPT9", "DEC1"], ["10-20", "20-30"], ["ward 12", "3rd"], ["A1", "v1.2.3"]]
NOTED = {  # what makes a dataset, its note
    "whole numbers": (
        lambda: from_table({"v": np.arange(60) + 2**60, "label": Y}),
        "too large for float64 to hold apart",
    ),
    "seconds": (
        lambda: from_arrays(np.c_[A, 1.7e9 + A], A % 2),
        "values of feature 1 differ by too little for float32",
    ),
    "None": (
        lambda: from_arrays(A[:, None], ["None", "mild"] * 30),
        "'None': that is often a word for a missing label",
    ),
    "two cases": (lambda: from_arrays(A[:, None], ["mild", "Mild"] * 30), "class 'mild' and class 'Mild' may be one"),
    "two numbers": (lambda: from_arrays(A[:, None], ["1", "1.0"] * 30), "class '1.0' and class '1' may be one"),
    "clients": (lambda: from_arrays(A[:, None], A % 2, columns={"c": A % 2}), "no two of 2 clients share a class"),
}


@pytest.mark.parametrize("case", NOTED)
def test_what_is_doubtful_is_noted(case):
    make, note = NOTED[case]
    assert any(note in one for one in make().notes)
    assert not any("float32" in one or "may be" in one for one in from_arrays(np.c_[A, A * 1e9], A % 2).notes)


@pytest.mark.parametrize("case", NO_CATEGORIES)
def test_dates_numbers_and_names_of_rows_are_no_categories_by_themselves(case):
    cells, said = NO_CATEGORIES[case]
    with pytest.raises(DataError) as caught:
        from_table({"v": cells, "a": A, "label": Y}, categories="auto", missing="fill")
    assert said in str(caught.value)


@pytest.mark.parametrize("words", CATEGORIES)
def test_names_that_look_a_little_like_dates_or_numbers_are_categories(words):
    assert from_table({"v": words * 30, "label": Y}, categories="auto").shape == (2,)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("train", "test"),
    [("Train", "Test"), ("training", "testing"), ("TRAIN", "test"), ("train", "Test"), ("train", "testing")],
)
def test_files_of_splits_are_no_clients_in_any_case(tmp_path, ending, train, test):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    for name in (train, test, "val"):
        frame = pd.DataFrame({"a": A, "v": A + (name == test), "label": Y})
        save = frame.to_parquet if ending == "parquet" else lambda path, frame=frame: frame.to_csv(path, index=False)
        save(tmp_path / f"{name}.{ending}")
    data = load(ending, str(tmp_path))
    assert (len(data.x), len(data.x_test), data.columns) == (60, 60, {})
    assert dict(data.reading.left_out) == {"beside those that are read": 1}


@pytest.mark.parametrize(
    "names", [("mine_test", "mine_train"), ("TestData", "TrainData"), ("north", "valid"), ("test",)]
)
@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_files_that_tell_of_a_split_are_no_clients(tmp_path, ending, names):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    for name in names:
        frame = pd.DataFrame({"a": A, "label": Y})
        if ending == "npz":
            np.savez(tmp_path / name, x=np.ones((60, 2)), y=A % 2)
        elif ending == "csv":
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            frame.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match=f"one file a client, named as the client; got {names[0]}"):
        load(ending, str(tmp_path))


@pytest.mark.parametrize(
    ("train", "test"),
    [("seg_train", "seg_test"), ("training_set", "test_set"), ("trainset", "testset"), ("MyTrain", "My")],
)
@pytest.mark.parametrize("classes", [["a", "b"], [""]])
def test_folders_that_tell_of_a_training_set_are_no_clients_and_no_classes(tmp_path, train, test, classes):
    image = pytest.importorskip("PIL.Image")
    for place in (tmp_path / split / name for split in (train, test) for name in classes):
        place.mkdir(parents=True)
        for i in range(4):
            image.new("L", (4, 4), 9 * i).save(place / f"{i}.png")
    if "" in classes and test == "My":
        return  # two classes, of which one may be called so
    with pytest.raises(DataError, match=f"{test}, {train}, where splits are named train and test; say what"):
        load("images", str(tmp_path))
    if "" not in classes:
        data = load("images", str(tmp_path), layout="clients")
        assert set(data.column_names["client"]) == {train, test}


@pytest.mark.parametrize("other", ["north\u200b", "north\ufeff", "no  rth", "no\u00a0rth"])
def test_names_that_look_the_same_are_refused(tmp_path, other):
    name = "no rth" if other[-2:] == "th" else "north"
    (tmp_path / "t.csv").write_text(table([name, other] * 30), encoding="utf-8")
    fails("csv", tmp_path / "t.csv", "must not hold names that differ in case alone or in blanks", categories="v")
    folded = load("csv", str(tmp_path / "t.csv"), categories="v", case="fold")
    assert len(folded.encoding.columns[1].values) == 1
    assert len(load("csv", str(tmp_path / "t.csv"), categories="v", case="keep").encoding.columns[1].values) == 2


@pytest.mark.parametrize("word", [-9, -99, -999, -9999])
def test_a_number_that_may_stand_for_a_missing_one_is_noted(word):
    data = from_table({"v": [word if i % 9 == 0 else i % 20 for i in range(60)], "a": A, "label": Y})
    told = f"column 'v': 7 of 60 rows have {word}, and no other is below 0"
    assert any(note.startswith(told) for note in data.notes)
    assert not any("below 0" in note for note in from_table({"v": A - 9, "label": Y}).notes)
    filled = from_table({"v": [word, *range(59)], "label": Y}, missing_words=str(word), missing="fill")
    assert filled.reading.columns[0].missing == 1


def test_a_column_without_a_name_is_an_index_or_empty(tmp_path):
    (tmp_path / "t.csv").write_text(table(A, "a,,label"))
    fails("csv", tmp_path / "t.csv", "column 2 has values and no name")
    (tmp_path / "t.csv").write_text(table(A).replace("\n", ",\n"))
    assert load("csv", str(tmp_path / "t.csv")).shape == (2,)
    (tmp_path / "t.csv").write_text(table(A, ",v,label"))
    assert load("csv", str(tmp_path / "t.csv")).shape == (1,)


def test_a_category_that_parquet_lacks_is_missing(tmp_path):
    pytest.importorskip("pyarrow")
    ward = pd.Categorical([None if i % 7 == 0 else "abc"[i % 3] for i in range(60)])
    pd.DataFrame({"ward": ward, "age": A, "label": Y}).to_parquet(tmp_path / "t.parquet")
    data = load("parquet", str(tmp_path / "t.parquet"), missing="fill")
    column = data.reading.columns[0]
    assert (column.name, column.type, column.missing) == ("ward", "category", 9)
    assert data.encoding.columns[0].values == ("a", "b", "c", "")


def test_categories_that_are_numbers_stay_categories_in_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"ward": pd.Categorical([[1, 2, 30][i % 3] for i in range(60)]), "label": Y})
    frame["grade"] = pd.Categorical([[3, 1, 2][i % 3] for i in range(60)], ordered=True)
    frame["stage"] = pd.Categorical(["mid", "low", "high"] * 20, ["low", "mid", "high"], ordered=True)
    frame.to_parquet(tmp_path / "t.parquet")
    data = load("parquet", str(tmp_path / "t.parquet"))
    assert [column.type for column in data.reading.columns] == ["category", "category", "ordinal", "ordinal"]
    assert data.encoding.columns[2].values == ("low", "mid", "high")
    assert data.encoding == from_table(frame).encoding


def test_numbers_of_a_period_are_no_feature(tmp_path):
    pytest.importorskip("pyarrow")
    months = pd.period_range("2024-01", periods=60, freq="M")
    pd.DataFrame({"v": months, "a": A, "label": Y}).to_parquet(tmp_path / "t.parquet")
    fails("parquet", tmp_path / "t.parquet", "'v' must hold numbers or words; got ", "; store it as words or numbers")
    assert load("parquet", str(tmp_path / "t.parquet"), exclude="v").shape == (1,)


def test_an_index_of_one_client_alone_is_left_out(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": A, "label": Y})
    frame.to_parquet(tmp_path / "north.parquet")
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "south.parquet")
    data = load("parquet", str(tmp_path))
    assert data.shape == (1,)
    assert [column.name for column in data.reading.columns if column.role == "left out"] == ["__index_level_0__"]


@pytest.mark.parametrize("names", [("north", "south"), ("train", "test")])
def test_orders_of_two_files_that_contradict_are_refused(tmp_path, names):
    pytest.importorskip("pyarrow")
    for name, order in zip(names, (["x", "y"], ["y", "x"]), strict=True):
        grade = pd.Categorical(["x", "y"] * 30, order, ordered=True)
        pd.DataFrame({"grade": grade, "a": A, "label": Y}).to_parquet(tmp_path / f"{name}.parquet")
    fails("parquet", tmp_path, "'grade' must have an order; ", " x, y, and files contradict each other; give it")
    assert load("parquet", str(tmp_path), ordinal="grade=x<y").encoding.columns[0].values == ("x", "y")
    assert load("parquet", str(tmp_path), categories="grade").reading.columns[0].type == "category"
    assert load("parquet", str(tmp_path), exclude="grade").shape == (1,)


def test_words_for_a_missing_value_count_in_any_case():
    frame = {"v": ["Unknown", "x", "y"] * 20, "n": ["UNKNOWN", *map(str, range(59))], "label": Y}
    how = {"categories": "v", "missing": "fill", "missing_words": "unknown"}
    assert [column.missing for column in from_table(frame, **how).reading.columns] == [20, 1, 0]
    assert from_table({**frame, "n": A}, case="keep", **how).reading.columns[0].missing == 0


def test_files_beside_folders_of_splits_are_no_clients(tmp_path):
    for name in ("metadata.csv", "train/north.csv", "test/north.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(table(A))
    fails("csv", tmp_path, "not both; got metadata.csv beside test, train")


def test_pictures_of_a_parquet_file_have_an_account(tmp_path):
    image, pa = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    exif = image.Exif()
    exif[0x0112] = 3
    encoded = []
    for i in range(20):
        file = io.BytesIO()
        image.new("RGB", (6, 6), (i, 2 * i, 99)).save(file, "JPEG", exif=exif if i == 7 else image.Exif())
        encoded.append(file.getvalue())
    pq.write_table(pa.table({"image": encoded, "label": [i % 2 for i in range(20)]}), tmp_path / "t.parquet")
    for _ in range(2):  # the second time from the cache
        data = load("parquet", str(tmp_path / "t.parquet"))
        told = "pictures: 20 of 6x6 pixels, of the modes RGB (20), read as RGB"
        assert data.reading.pictures == (told,) and "1 picture turned as EXIF says" in data.notes
        assert data.reading.files == ((str(tmp_path / "t.parquet"), 20),)


def test_files_of_other_kinds_and_in_other_folders_are_counted(tmp_path):
    for name in ("train/n.csv", "test/n.csv", "val/n.csv", "more.xlsx", ".hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(table(A))
    assert dict(load("csv", str(tmp_path)).reading.left_out) == {"beside those that are read": 2}


def test_two_files_of_one_client_are_refused(tmp_path):
    for name in ("1.csv", "01.csv"):
        (tmp_path / name).write_text(table(A))
    fails("csv", tmp_path, "files of clients of different names; got '1' twice")


@pytest.mark.parametrize("code", [-1, -9, -99, -999])
@pytest.mark.parametrize("others", [("ill", "well"), (0, 1), (1, 2)])
def test_a_code_for_a_missing_label_is_no_class(code, others):
    frame = {"a": A, "label": [*map(str, (code, *others))] * 20}
    with pytest.raises(DataError, match=f"20 of 60 rows have {code}, which often marks rows without a label"):
        from_table(frame, named_labels=True)
    kept = from_table(frame, named_labels=True, missing_words=str(code), missing_labels="drop")
    assert (len(kept.x) + len(kept.x_test), kept.label_names) == (40, tuple(map(str, others)))
    assert from_table(frame, named_labels=True, missing_words="").classes == 3


def test_a_blank_before_a_quote_is_none_of_the_value(tmp_path):
    (tmp_path / "t.csv").write_text('"a", "label"\n' + "".join(f'{a}, "{y}, {y}"\n' for a, y in zip(A, Y, strict=True)))
    assert load("csv", str(tmp_path / "t.csv")).label_names == ("a, a", "b, b")


def test_types_of_two_clients_that_no_type_joins_are_named(tmp_path):
    pytest.importorskip("pyarrow")
    for one, other in ((pd.Categorical(Y), Y), (A % 2 == 0, A), (A, Y)):
        for name, column in (("n", one), ("s", other)):
            pd.DataFrame({"v": column, "label": Y}).to_parquet(tmp_path / f"{name}.parquet")
        with pytest.raises(DataError, match=r"must hold columns of one type in all files: .* Field v has incompatible"):
            load("parquet", str(tmp_path), categories="auto")
    for name, column in (("n", A), ("s", A / 2)):
        pd.DataFrame({"v": column, "label": Y}).to_parquet(tmp_path / f"{name}.parquet")
    assert load("parquet", str(tmp_path)).reading.columns[0].holds == "0 to 12"


def test_names_beside_arrays_and_pictures_are_spelt_alike(tmp_path):
    sites = ["café", "cafe\u0301", " café", "n"] * 15
    assert from_arrays(np.ones((60, 2)), A % 2, columns={"site": sites}).column_names == {"site": ("café", "n")}
    assert from_arrays(np.ones((60, 2)), A % 2, columns={"site": [10.0, 2.0] * 30}).column_names == {
        "site": ("2", "10")
    }
    image, pa = pytest.importorskip("PIL.Image"), pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    image.new("L", (4, 4)).save(file, "PNG")
    for name, kind in (("train", int), ("test", float)):
        columns = {"image": [file.getvalue()] * 60, "client": list(map(kind, A)), "label": Y}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    data = load("parquet", str(tmp_path))
    assert torch.equal(data.columns_test["client"], data.columns["client"])
    fails("parquet", tmp_path, "'client' must part test rows from training rows; got 13 values", split_by="client")


def test_a_frame_of_nullable_types_is_an_array_of_numbers():
    frame = pd.DataFrame({"a": A, "b": A / 2}).convert_dtypes()
    assert np.array_equal(from_arrays(frame, A % 2, frame, A % 2).x, np.c_[A, A / 2].astype(np.float32))
    frame.loc[7, "b"] = pd.NA
    with pytest.raises(
        DataError, match="x must be finite; got 1 rows with NaN or infinity, the first is row 7, column 1"
    ):
        from_arrays(frame, A % 2)


def test_images_of_more_than_four_channels_are_asked_for():
    x = np.ones((60, 8, 8, 13), np.float32)
    refused(lambda: from_arrays(x, A % 2), "x must say which axis has the channels", kind=DataError)
    assert from_arrays(x, A % 2, channels="last").shape == (13, 8, 8)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_speakers_are_spelt_alike(tmp_path, encoding):
    speech = ":\n" + "a line that goes on and on, and has no end to speak of. " * 20
    names = ["ROMÉO", " ROMÉO", "ROME\u0301O ", "NURSE"]
    (tmp_path / "play.txt").write_text("\n\n".join(name + speech for name in names), encoding=encoding)
    assert load("shakespeare", str(tmp_path / "play.txt"), stride=20).column_names == {"client": ("NURSE", "ROMÉO")}


def test_a_column_in_another_case_is_the_one_that_is_meant():
    encoding = from_table({"age": A, "stage": A + 1, "label": Y}).encoding
    with pytest.raises(DataError, match="must have the column 'age'; is its 'AGE' meant"):
        encoding.encode({"AGE": A, "stage": A}, "new rows")
