"""Files as other programs write them: read right, noted or refused, never wrong in silence."""

import io

import numpy as np
import pandas as pd
import pytest

from fedskew.data import from_arrays, from_table, load
from fedskew.data.counts import count_table
from fedskew.errors import DataError

Y = ["ab"[i % 2] for i in range(60)]
A = np.arange(60) % 13


def table(cells, head="a,v,label"):
    return "\n".join([head, *(f"{a},{c},{y}" for a, c, y in zip(A, cells, Y, strict=True))]) + "\n"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(("train", "test"), [("Train", "Test"), ("training", "testing"), ("TRAIN", "test")])
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


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_files_that_tell_of_a_training_set_are_no_clients(tmp_path, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    for name in ("mine_train", "mine_test"):
        frame = pd.DataFrame({"a": A, "label": Y})
        if ending == "npz":
            np.savez(tmp_path / name, x=np.ones((60, 2)), y=A % 2)
        elif ending == "csv":
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        else:
            frame.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match="one file a client, named as the client; got mine_test"):
        load(ending, str(tmp_path))


@pytest.mark.parametrize(("train", "test"), [("seg_train", "seg_test"), ("training_set", "test_set")])
def test_folders_that_tell_of_a_training_set_are_no_clients(tmp_path, train, test):
    image = pytest.importorskip("PIL.Image")
    for split in (train, test):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(4):
                image.new("L", (4, 4), 9 * i).save(tmp_path / split / name / f"{i}.png")
    with pytest.raises(DataError, match=f"{test}, {train}, where splits are named train and test; say what"):
        load("images", str(tmp_path))
    assert set(load("images", str(tmp_path), layout="clients").column_names["client"]) == {train, test}


@pytest.mark.parametrize("other", ["north\u200b", "north\ufeff", "no  rth", "no\u00a0rth"])
def test_names_that_look_the_same_are_refused(tmp_path, other):
    name = "no rth" if other[-2:] == "th" else "north"
    (tmp_path / "t.csv").write_text(table([name, other] * 30), encoding="utf-8")
    with pytest.raises(DataError, match="must not hold names that differ in case alone or in blanks"):
        load("csv", str(tmp_path / "t.csv"), categories="v")
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


def test_numbers_that_float64_does_not_hold_apart_are_noted():
    data = from_table({"v": np.arange(60) + 2**60, "a": A, "label": Y})
    assert any("too large for float64 to hold apart" in note for note in data.notes)


@pytest.mark.parametrize("cell", ["01JAN2024", "1-Feb-24", "03MAR24:10:30:00"])
def test_dates_of_sas_and_oracle_are_no_categories(tmp_path, cell):
    (tmp_path / "t.csv").write_text(table([cell] * 60))
    with pytest.raises(DataError, match="60 of 60 are dates"):
        load("csv", str(tmp_path / "t.csv"), categories="auto")


@pytest.mark.parametrize("form", ["0x{:x}", "1.{}D+01"])
def test_numbers_in_the_notation_of_a_program_are_no_categories(tmp_path, form):
    (tmp_path / "t.csv").write_text(table([form.format(i) for i in range(60)]))
    with pytest.raises(DataError, match="60 of 60 rows hold no number"):
        load("csv", str(tmp_path / "t.csv"), categories="auto")


def test_a_word_among_numbers_leads_to_missing_words(tmp_path):
    (tmp_path / "t.csv").write_text(table(["." if i % 7 == 0 else i for i in range(60)]))
    with pytest.raises(DataError, match=r"'\.', 9 of 60 .* missing value stand in Csv.missing_words"):
        load("csv", str(tmp_path / "t.csv"), missing="fill")
    data = load("csv", str(tmp_path / "t.csv"), missing="fill", missing_words=".")
    assert data.reading.columns[1].missing == 9


def test_a_column_without_a_name_is_an_index_or_empty(tmp_path):
    (tmp_path / "t.csv").write_text(table(A, "a,,label"))
    with pytest.raises(DataError, match="column 2 has values and no name"):
        load("csv", str(tmp_path / "t.csv"))
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
    frame.to_parquet(tmp_path / "t.parquet")
    read = {column.name: column.type for column in load("parquet", str(tmp_path / "t.parquet")).reading.columns}
    assert (read["ward"], read["grade"]) == ("category", "ordinal")


def test_numbers_of_a_period_are_no_feature(tmp_path):
    pytest.importorskip("pyarrow")
    months = pd.period_range("2024-01", periods=60, freq="M")
    pd.DataFrame({"v": months, "a": A, "label": Y}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"'v' must hold numbers or words; got .*; store it as words or numbers"):
        load("parquet", str(tmp_path / "t.parquet"))
    assert load("parquet", str(tmp_path / "t.parquet"), exclude="v").shape == (1,)


def test_an_index_of_one_client_alone_is_left_out(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": A, "label": Y})
    frame.to_parquet(tmp_path / "north.parquet")
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "south.parquet")
    data = load("parquet", str(tmp_path))
    assert data.shape == (1,)
    assert [column.name for column in data.reading.columns if column.role == "left out"] == ["__index_level_0__"]


def test_orders_of_two_clients_that_contradict_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    for name, order in (("north", ["y", "x"]), ("south", ["x", "y"])):
        grade = pd.Categorical(["x", "y"] * 30, order, ordered=True)
        pd.DataFrame({"grade": grade, "label": Y}).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match="'grade' must have one order in all files; got x<y and y<x"):
        load("parquet", str(tmp_path))


def test_names_of_classes_in_arrays_that_may_be_wrong_are_noted():
    names = from_arrays(np.ones((60, 2)), np.array(["None", "mild", "Mild"] * 20)).notes
    assert "class 'None': that is often a word for a missing label" in names
    assert "class 'mild' and class 'Mild' differ in case or blanks alone" in names


def test_clients_without_a_common_class_are_noted_for_arrays():
    data = from_arrays(np.ones((60, 2)), A % 2, columns={"site": A % 2})
    assert "no two of 2 clients share a class" in data.notes


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hospital,a,b\n101,1,2\n205,3,4\n", "column 'hospital' tells of clients: name it client"),
        ("client_id,a,b\n7,1,2\n3,3,4\n", "column 'client_id' tells of clients"),
        ("client,a,total\nx,1,1\ny,3,3\n", "'total' is a sum"),
        ("client,a,b\nx,1,2\nTotal,1,2\n", "'Total' is a sum"),
        ("client,a,b\nx,1,2\nX,3,4\n", "name each client or site once; got x, X"),
        ("client,a,A\nx,1,2\ny,3,4\n", "columns of different names; got 'a' twice"),
    ],
)
def test_a_table_of_counts_holds_no_names_of_clients_and_no_sums(tmp_path, text, told):
    (tmp_path / "k.csv").write_text(text)
    with pytest.raises(DataError, match=told):
        count_table(tmp_path / "k.csv")


def test_words_for_a_missing_value_count_in_any_case():
    frame = {"v": ["Unknown", "x", "y"] * 20, "n": ["UNKNOWN", *map(str, range(59))], "label": Y}
    how = {"categories": "v", "missing": "fill", "missing_words": "unknown"}
    assert [column.missing for column in from_table(frame, **how).reading.columns] == [20, 1, 0]
    assert from_table({**frame, "n": A}, case="keep", **how).reading.columns[0].missing == 0


def test_features_that_float32_does_not_tell_apart_are_noted():
    x = np.c_[A, 1.7e9 + A]
    told = "values of feature 1 differ by too little for float32"
    assert any(note.startswith(told) for note in from_arrays(x, A % 2).notes)
    assert not any("float32" in note for note in from_arrays(np.c_[A, A * 1e9], A % 2).notes)


def test_a_single_line_of_counts_without_a_head_may_begin_with_an_index(tmp_path):
    (tmp_path / "k.csv").write_text("0,0,1\n")
    with pytest.raises(DataError, match="column 1 numbers the rows"):
        count_table(tmp_path / "k.csv")


def test_files_beside_folders_of_splits_are_no_clients(tmp_path):
    for name in ("metadata.csv", "train/north.csv", "test/north.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(table(A))
    with pytest.raises(DataError, match=r"not both; got metadata.csv beside test, train"):
        load("csv", str(tmp_path))


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
