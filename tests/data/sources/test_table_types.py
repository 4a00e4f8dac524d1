"""What tables of a user's own hold: types over all files, missing words, notations, order, names; and the account."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedskew as fs
from fedskew.data import Dataset, load
from fedskew.data.arrays import Reading
from fedskew.data.encoding import ABSENT, Encoding, Notation, number_of, value_of
from fedskew.data.inputs import Inputs
from fedskew.fields import typed, untyped
from support.data_files import fails

ROWS = 40
NUMBERS = np.arange(ROWS) % 7 + 0.5
LABELS = np.array(["ill", "well"])[np.arange(ROWS) % 2]


def table(**columns: Any) -> dict[str, Any]:
    """Columns of 40 rows beside a number and a label."""
    return {"age": NUMBERS, "label": LABELS} | columns


def written(file: Path, columns: dict[str, Any], mark: str = ",") -> Path:
    """A csv file whose cells with the separator are quoted."""
    lines = [mark.join(columns), *(mark.join(map(quoted, row)) for row in zip(*columns.values(), strict=True))]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def quoted(cell: Any) -> str:
    return f'"{cell}"' if set(str(cell)) & set(",;\n") else str(cell)


def refused(columns: dict[str, Any], **options: Any) -> str:
    """The one line that refuses a table."""
    with pytest.raises(fs.FedskewError) as error:
        fs.from_table(columns, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def values_of(data: Dataset, name: str) -> np.ndarray:
    """A column of numbers of all rows before it was standardised, sorted."""
    ((column, at),) = [(c, at) for c, at in data.encoding.blocks() if c.name == name]
    x = torch.cat([data.x, data.x_test])[:, at.start].double().numpy()
    return np.sort(x * column.std + column.mean)


# Missing words


@pytest.mark.parametrize("word", [*ABSENT, "NA", "NaN", "NULL", "None", "#N/A", "N/A", " n/a "])
@pytest.mark.parametrize("kind", ["number", "ordinal"])
def test_a_missing_word_in_a_column_of_numbers_is_a_missing_value(kind: str, word: str) -> None:
    cells = [word if i % 10 == 0 else str(1 + i % 12) for i in range(ROWS)]
    options = {"missing": "fill"} | ({"ordinal": "grade"} if kind == "ordinal" else {})
    data, blank = (
        fs.from_table(table(grade=column), **options) for column in (cells, ["" if c == word else c for c in cells])
    )
    assert data.encoding == blank.encoding and torch.equal(data.x, blank.x)
    assert "row 0" in refused(table(grade=cells), **(options | {"missing": "refuse"}))


WORDS = [  # of several programs
    "NA", "None", "null", "?", "-", "#N/A", ".", "..", "--", "\u2014", ":", "#NULL!", "#REF!", "#DIV/0!", "#NAME?",
    "\\N", "NaT", "(null)", "n.a.", "k. A.", "<undefined>", "unlabelled",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("role", ["feature", "label", "client", "unit"])
def test_a_missing_word_among_words_is_refused_until_the_option_says_what_it_is(role: str, word: str) -> None:
    words = [word if i % 8 == 1 else ["DE", "FR", "NL"][i % 3] for i in range(ROWS)]
    name = {"feature": "land", "label": "label", "client": "client", "unit": "unit"}[role]
    options: dict[str, Any] = {"categories": "auto"} | ({"split_by": "unit"} if role == "unit" else {})
    said = refused(table(**{name: words}), **options)
    assert f"column {name!r}" in said and f"5 of 40 rows have {word!r}" in said and "Csv.missing_words to" in said
    if role == "feature":
        data = fs.from_table(table(land=words), **options, missing_words=f"{word},gone", missing="fill")
        assert data.encoding.columns[1].values == ("DE", "FR", "NL", "")
    else:
        said = refused(table(**{name: words}), **options, missing_words=word)
        assert "row 1 has none, 5 of 40 rows lack one" in said
    if role != "unit":  # four values of ten rows are too few for a test set
        kept = fs.from_table(table(**{name: words}), **options, missing_words="").reading
        (column,) = [column for column in kept.columns if column.name == name]
        assert column.missing == 0 and column.holds.startswith("4 values")


def test_rows_without_a_label_are_refused_with_their_rows_or_dropped(tmp_path: Path) -> None:
    for none, kinds in ((None, [0, 1]), ("", "ab")):
        labels = [none if i in (3, 9) else kinds[i % 2] for i in range(ROWS)]
        said = refused(table(label=labels))
        assert "row 3 has none, 2 of 40 rows lack one" in said and "rows 3, 9" in said and "missing_labels drop" in said
        data = fs.from_table(table(label=labels, client=["n", "s"] * 20), missing_labels="drop")
        assert len(data.y) + len(data.y_test) == 38 and "rows without a label are left out: 2" in data.notes
        assert any("2 missing: their rows are left out" in line for line in data.reading.lines())
    written(tmp_path / "train.csv", {"age": range(30), "label": [i % 2 for i in range(30)]})
    written(tmp_path / "test.csv", {"age": range(8), "label": ["NA", *(i % 2 for i in range(7))]})
    assert len(load("csv", str(tmp_path), missing_labels="drop").y_test) == 7


# Numbers


@pytest.mark.parametrize("share", [1, 5, 19])
def test_a_column_of_which_most_are_numbers_is_never_one_of_categories(share: int) -> None:
    cells = [["unknown", "n.d.", "<90"][i % 3] if i < share else str(90 + i) for i in range(ROWS)]
    said = refused(table(dose=cells), categories="auto", missing="fill")
    assert "column 'dose' must hold numbers; row 0 has 'unknown'" in said and f"{share} of 40 rows" in said
    assert (share == 1) == ("most often" not in said) and "name it in Csv.categories" in said
    assert fs.from_table(table(dose=cells), categories="dose").shape[0] > 20


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("{} %", "hold no number"), ("<{}", "hold no number"), ("{} mg/l", "hold no number"), ("€{}", "hold no number"),
        ("{},0", "set Csv.decimal or Csv.thousands to ','"), ("1,{}", "Csv.thousands to ','"),
        ("1 {}", "thousands to space"), ("1'{}", 'thousands to "\'"'), ("1.{},5", "to ',' and '.'"),
        ("USD {}", "hold no number"), ("({})", "hold no number"), ("{}-", "hold no number"),
        ("1_{}", "hold no number"), ("12:{}", "times"), ("3 days 02:00:{}", "times"), ("2024-03-{}", "dates"),
    ],
)  # fmt: skip
def test_numbers_in_another_notation_are_no_categories(cell: str, said: str) -> None:
    short = cell.startswith(("12:", "3 days", "2024"))
    cells = [cell.format(10 + i % 18 if short else 100 + i) for i in range(ROWS)]
    assert said in refused(table(dose=cells), categories="auto", missing="fill")


@settings(deadline=None, max_examples=40)
@given(
    values=st.lists(st.integers(-(10**9), 10**9), min_size=8, max_size=20),
    places=st.integers(1, 4),
    marks=st.sampled_from([(".", ","), (",", "."), (",", "space"), (".", "'"), (".", ""), (",", "")]),
)  # fmt: skip
def test_numbers_written_in_a_declared_notation_are_read_back(
    values: list[int], places: int, marks: tuple[str, str]
) -> None:
    decimal, thousands = marks
    part = {"space": "\u202f"}.get(thousands, thousands)
    notation = Notation(decimal, thousands)
    for value in values:
        number = value / 10**places
        text = f"{number:,.{places}f}".replace(",", "_").replace(".", decimal).replace("_", part)
        assert notation.number(text) == float(f"{number:.{places}f}")


@pytest.mark.parametrize("text", ["1,1.1", "1,00", "10,00", "0,100", ",100", "1,000,00", "1.1,000", "1,0000"])
def test_groups_that_are_none_are_no_number(text: str) -> None:
    assert Notation(".", ",").number(text) == np.inf


def test_an_ambiguous_point_is_refused_until_an_option_says_what_it_is() -> None:
    cells = [f"{900 + 20 * i:,}".replace(",", ".") for i in range(ROWS)]
    said = refused(table(income=cells))
    assert "column 'income'" in said and "1.000 may be 1000" in said and "Csv.decimal to '.'" in said
    assert values_of(fs.from_table(table(income=cells), thousands="."), "income").max() == pytest.approx(1680)
    assert values_of(fs.from_table(table(income=cells), decimal="."), "income").max() == pytest.approx(980)
    for clear in ("0.125", "12.5", "1234.567", "-0.001"):
        assert fs.from_table(table(income=[clear, *cells[1:]])).shape == (2,)
    assert fs.from_table(table(income=[Decimal(c) for c in cells])).shape == (2,), "a typed number has one reading"


def test_a_new_cell_that_may_be_a_thousand_is_refused_where_the_training_rows_were_whole() -> None:
    whole = [str(900 + 20 * i) for i in range(ROWS)]

    def income(*cells: Any, trained: Any = whole, **options: Any) -> list[float]:
        inputs = Inputs.of(fs.from_table(table(income=trained), **options))
        column = inputs.encoding.columns[1]
        x = inputs.samples({"age": [40] * len(cells), "income": list(cells)})[:, 1]
        return [round(v, 3) for v in (x * column.std + column.mean).tolist()]

    for cells in (["1.100"], ["900", "1.100", "12.250"]):
        with pytest.raises(fs.DataError, match=r"hold numbers of one reading; 1\.100 may be 1100.*write 1\.1 or 1100"):
            income(*cells)
    assert income("1.1") == [1.1] and income("1100") == [1100.0]
    assert income("1.100", "12.5") == [1.1, 12.5], "a cell beside it shows what the point is"
    assert income(1.1, 1.125) == [1.1, 1.125], "a typed number has one reading"
    assert income("1.100", decimal=".") == [1.1] and income("1.100", thousands=".") == [1100.0]
    assert income("1.100", trained=[str(i / 4) for i in range(ROWS)]) == [1.1], "fractions of the training rows show it"


@settings(deadline=None, max_examples=25)
@given(offset=st.sampled_from([0.0, 1e5, 1e8, 1.7e9, 20240301.0, -3e12]), seed=st.integers(0, 99))
def test_standardising_keeps_the_values_of_a_far_column(offset: float, seed: int) -> None:
    v = np.random.default_rng(seed).normal(size=60)
    data = fs.from_table({"a": v + offset, "y": np.arange(60) % 2})
    assert len(np.unique(torch.cat([data.x, data.x_test]).numpy())) >= 59
    close = {"rtol": 1e-6 if offset == 0 else 0, "atol": 1e-5 + abs(offset) * 1e-15}
    assert np.allclose(values_of(data, "a"), np.sort(v + offset), **close)
    again = Inputs.of(data).samples({"a": v + offset})
    assert {*again.flatten().tolist()} == {*torch.cat([data.x, data.x_test]).flatten().tolist()}


def test_numbers_that_float32_does_not_hold_are_refused_or_noted() -> None:
    assert "row 3 has 1e39" in refused(table(dose=["1e39" if i == 3 else str(i / 2) for i in range(ROWS)]))
    assert "row 3 has -1e+300" in refused(table(dose=[-1e300 if i == 3 else i / 2 for i in range(ROWS)]))
    data = fs.from_table(table(t=1.7e9 + np.arange(ROWS) / 8), standardise=False)
    assert any("column 't': float32 holds fewer different values" in note for note in data.notes)
    assert fs.from_table(table(same=[0.1] * ROWS)).x[:, 1].abs().max() == 0


# Order


def test_an_ordinal_column_is_ordered_by_numbers_by_the_frame_or_by_the_list_given() -> None:
    grades = [str(1 + i % 12) for i in range(ROWS)]
    words = [("low", "mid", "high")[i % 3] for i in range(ROWS)]
    ordered = pd.Categorical(words, categories=["low", "mid", "high"], ordered=True)
    by_text = pd.Categorical(grades, ordered=True)  # 1 < 10 < 11 < 12 < 2
    rising, by = ("low", "mid", "high"), {"ordinal": "g"}
    numbers, falling = tuple(map(str, range(1, 13))), tuple(map(str, range(12, 0, -1)))
    for column, options, order in (
        (grades, by, numbers), (by_text, by, numbers), (ordered, by, rising), (ordered, {}, rising),
        (words, {"ordinal": "g=high<mid<low"}, rising[::-1]),
        ([f"{g}.0" for g in grades], {"ordinal": "g=" + "<".join(falling)}, falling),
    ):  # fmt: skip
        data = fs.from_table(pd.DataFrame(table(g=column)), **options)
        assert data.encoding.columns[1].values == order and data.encoding.columns[1].ordered
    said = refused(table(g=words), ordinal="g")
    assert "must have an order" in said and "Csv.ordinal g=low<mid<high" in said
    said = refused(table(g=["unknown" if i == 2 else g for i, g in enumerate(grades)]), ordinal="g", missing="fill")
    assert "row 2 has 'unknown'" in said


# Names


@pytest.mark.parametrize(
    "pair", [("1", "1.0"), ("1", "01"), ("2e0", "2"), ("café", unicodedata.normalize("NFD", "café"))]
)
@pytest.mark.parametrize("role", ["label", "client", "ward"])
def test_spellings_of_one_name_are_one_in_all_files(pair: tuple[str, str], role: str, tmp_path: Path) -> None:
    other = "thé" if "caf" in pair[0] else "7"
    for name, spelling in zip(("north", "south"), pair, strict=True):
        cells = [spelling, other] * 20
        written(tmp_path / f"{name}.csv", {**table(), "client": ["n", "s"] * 20, role: cells})
    data = load("csv", str(tmp_path), named_labels=True, categories="ward" if role == "ward" else "")
    known = {"label": data.label_names, "client": data.column_names["client"]}
    ward = data.encoding.columns[1].values if role == "ward" and data.encoding else ()
    assert len(known.get(role, ward)) == 2


def test_a_number_s_shortest_spelling_is_exact() -> None:
    long, minus = "123456789012345678", [f"\u2212{i}" for i in range(ROWS)]
    assert values_of(fs.from_table(table(v=minus)), "v").min() == pytest.approx(1 - ROWS) and value_of(minus[3]) == "-3"
    assert value_of(long + ".0") == long != value_of(long[:-1] + "9") and value_of("-0") == "0"
    units = [f"12345678901234567{i // 2 % 10}{i // 20}" for i in range(ROWS)]
    assert fs.from_table(table(patient=units), split_by="patient").units is not None
    assert len(np.unique(fs.from_table(table(client=[int(u) for u in units])).columns["client"])) > 10


@settings(deadline=None, max_examples=30)
@given(st.integers(-(10**20), 10**20), st.integers(0, 3), st.integers(0, 3))
@example(0, 1, 1)
def test_every_spelling_of_a_number_has_one_value(value: int, zeros: int, decimals: int) -> None:
    sign, digits = ("-" if value < 0 else ""), str(abs(value))
    text = sign + "0" * zeros + digits + ("." + "0" * decimals if decimals else "")
    assert value_of(text) == value_of(str(value)) and number_of(text) == float(value)


def test_names_that_differ_in_case_are_refused_until_an_option_says_what_they_are() -> None:
    spelt = ["Ill" if i % 4 == 0 else ["ill", "well"][i % 2] for i in range(ROWS)]
    for role in ("label", "client", "ward"):
        said = refused(table(**{role: spelt}), categories="auto")
        assert "'Ill' and 'ill'" in said and "Csv.case to fold" in said and f"column {role!r}" in said
    assert fs.from_table(table(label=spelt), case="keep").label_names == ("Ill", "ill", "well")
    data = fs.from_table(table(label=spelt, ward=spelt), case="fold", categories="auto")
    assert data.label_names == ("Ill", "well") and data.shape == (3,)
    assert any("'ill' is read as 'Ill'" in line for line in data.reading.lines())
    inputs = typed(json.loads(json.dumps(untyped(Inputs.of(data)))), Inputs)
    assert inputs.labels(["ILL", "well", "ill"]).tolist() == [0, 1, 0]
    assert inputs.samples({"age": [1, 1], "ward": ["iLL", "Well"]})[:, 1:].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("names", [("north", "south"), ("train/north", "train/south"), ("train", "test")])
def test_columns_are_of_one_kind_in_all_files(names: tuple[str, str], tmp_path: Path) -> None:
    one, two = (tmp_path / f"{name}.csv" for name in names)
    written(one, table(label=[0, 1] * 20, patient=[i // 4 for i in range(ROWS)]))
    written(two, table(label=["no", "yes"] * 20, patient=[f"{i // 4}.0" for i in range(ROWS)]))
    told = f"{one.name} has numbers, such as '0', ", f"{two.name} has words, such as 'no'"
    fails("csv", tmp_path, *told)
    written(two, table(label=["0.0", "1.0"] * 20, age=["young"] * 40, patient=[""] * 40))
    told = "column 'age' must hold values of one type in all files; ", f"{one.name} has"
    fails("csv", tmp_path, *told, categories="auto")
    written(two, table(label=["0.0", "1.0"] * 20, patient=[f"{i // 4}.0" for i in range(ROWS)]))
    assert load("csv", str(tmp_path), exclude="patient").classes == 2
    if names[1] == "test":  # a patient is one in both files, however it is written
        fails("csv", tmp_path, "must part test rows from training rows; got 10 values", split_by="patient")


def test_new_rows_are_read_as_the_training_rows_were() -> None:
    rows = table(dose=[f"{1000 + i},{i % 10}" for i in range(ROWS)], ward=["1", "2"] * 20)
    data = fs.from_table(rows, decimal=",", categories="ward")
    inputs = typed(json.loads(json.dumps(untyped(Inputs.of(data)))), Inputs)
    given = {"age": [1.5, 1.5], "dose": ["1004,5", "1004,5"], "ward": [1.0, "02"]}
    x = inputs.samples(given)
    assert x[:, 2:].tolist() == [[1, 0], [0, 1]]
    column = data.encoding.columns[1]
    assert float(x[0, 1]) == pytest.approx((1004.5 - column.mean) / column.std)
    assert inputs.labels([unicodedata.normalize("NFD", "ill"), " well "]).tolist() == [0, 1]


def test_a_model_of_an_older_run_scores_as_before() -> None:
    old = {
        "columns": [
            {"name": "age", "values": [], "mean": 3.0, "std": 2.0, "missing": None},
            {"name": "ward", "values": ["1", "1.0", "NA"], "mean": 0.0, "std": 1.0, "missing": None},
        ],
        "single": True, "label": "y",
    }  # fmt: skip
    encoding = typed(old, Encoding)
    x = encoding.encode({"age": ["5", 7], "ward": ["1.0", "NA"]}, "x")
    assert x.tolist() == [[1, 0, 1, 0], [2, 0, 0, 1]]


# Frames


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.data())
def test_a_frame_of_any_type_is_read_as_pandas_holds_it(data: Any) -> None:
    kinds = ["Int64", "int32", "Float64", "float32", "boolean", "bool", "UInt8", "double[pyarrow]"]
    kind = data.draw(st.sampled_from(kinds))
    cells = [data.draw(st.integers(0, 1 if "bool" in kind else 200)) for _ in range(ROWS)]
    gone = {i for i in range(2, ROWS) if kind[0].isupper() and data.draw(st.integers(0, 5)) == 0}
    column = pd.array([None if i in gone else cells[i] for i in range(ROWS)], dtype=kind)
    made = fs.from_table(pd.DataFrame(table(v=column)), missing="fill", standardise=False)
    median = made.encoding.columns[1].missing
    right = np.sort([median if i in gone else float(cells[i]) for i in range(ROWS)])
    assert np.array_equal(np.sort(torch.cat([made.x, made.x_test])[:, 1].numpy()), right.astype(np.float32))


def test_missing_values_of_pandas_are_missing() -> None:
    sexes = ["f" if i % 2 else None for i in range(ROWS)]
    words = pd.array(sexes, dtype="string")
    for column in (words, sexes, pd.Series(sexes).convert_dtypes(), pd.Categorical(sexes)):
        data = fs.from_table(pd.DataFrame(table(sex=column)), missing="fill", categories="auto")
        assert data.encoding.columns[1].values == ("f", "")
        with pytest.warns(RuntimeWarning, match="categories that the training rows lack"):
            new = pd.DataFrame({"age": [1.0] * 3, "sex": pd.array(["f", None, "x"], dtype="string")})
            x = Inputs.of(data).samples(new)
        assert x[:, 1:].tolist() == [[1, 0], [0, 1], [0, 1]]
    with pytest.raises(fs.DataError, match="row 1 has none"):
        Inputs.of(data).labels(pd.array(["ill", None], dtype="string"))
    masked = np.ma.MaskedArray(np.arange(ROWS) / 3, mask=np.arange(ROWS) == 5)
    assert "row 5 has none" in refused(table(v=masked))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (np.eye(2)[np.arange(ROWS) % 2], "v (40, 2); one-hot labels are classes by argmax(1)"),
        (np.arange(ROWS) * 1j, "got complex128"),
        ([[1, 2]] * (ROWS - 1) + [[1]], "one value a row"),
        ([timedelta(days=i) for i in range(ROWS)], "are times"),
        (np.arange(ROWS).astype("m8[s]"), "are times"),
        ([datetime(2024, 3, 1 + i % 28) for i in range(ROWS)], "are dates"),
        (np.arange(ROWS).astype("M8[D]"), "are dates"),
        ([b"\xff\xfe"] * ROWS, "bytes in UTF-8"),
    ],
)  # fmt: skip
def test_columns_of_other_types_are_one_line(column: Any, said: str) -> None:
    if isinstance(column, list) and isinstance(column[0], list):
        held = np.empty(ROWS, object)
        held[:] = column
        column = held
    assert said in refused(table(v=column), categories="auto")
    if np.ndim(column) == 1:
        assert fs.from_table(table(v=column), categories="auto", exclude="v").shape == (1,)


def test_names_that_occur_twice_no_rows_and_no_frame_are_one_line() -> None:
    frame = pd.DataFrame(table())
    assert "'age' twice" in refused(pd.concat([frame, frame[["age"]]], axis=1))
    assert "'0' twice" in refused(table() | {0: NUMBERS, "0": NUMBERS})
    assert "one length, with rows" in refused(frame[:0])
    mixed = table(label=["True", "1", "False", "0"] * 10)
    assert "most are numbers, others are 'False' (10), 'True' (10)" in refused(mixed)
    assert "must be columns by name" in refused(NUMBERS)  # type: ignore[arg-type]


def test_bytes_are_words_and_bfloat16_is_a_number() -> None:
    sex = np.array([b"f", b"m"] * 20)
    for column in (sex, sex.astype(object)):
        data = fs.from_table(table(sex=column, label=np.array([b"no", b"yes"] * 20)), categories="auto")
        assert data.label_names == ("no", "yes")
        assert data.encoding.columns[1].values == ("f", "m")
    assert fs.from_arrays(torch.ones(ROWS, 3, dtype=torch.bfloat16), [0, 1] * 20).x.dtype == torch.float32


@pytest.mark.parametrize("index", [None, "row", ["ward", "bed"]])
def test_the_index_of_a_frame_is_no_feature_of_its_parquet_file(index: Any, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    frame = pd.DataFrame(table(ward=np.arange(ROWS) % 3, bed=np.arange(ROWS) % 5, row=np.arange(ROWS) * 7 % 41))
    (frame.sample(frac=1, random_state=0) if index is None else frame.set_index(index)).to_parquet(file)
    data = load("parquet", str(file))
    left = {"age", "ward", "bed", "row"} - {*([index] if isinstance(index, str) else index or [])}
    assert {column.name for column in data.encoding.columns} == left
    assert any("the index of a frame" in line for line in data.reading.lines())
    if index == "row":
        assert load("parquet", str(file), x_column="age,row").shape == (2,)
        assert load("parquet", str(file), split_by="row").units is not None


# Text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-16-le", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_texts_of_any_encoding_are_read_or_named(encoding: str, end: str, tmp_path: Path) -> None:
    rows = ["größe;label", *(f"{i % 7};{('ja', 'nö')[i % 2]}" for i in range(ROWS))]
    (tmp_path / "t.csv").write_bytes(end.join([*rows, ""]).encode(encoding))
    if encoding in ("cp1252", "utf-16-le", "latin-1"):
        fails("csv", tmp_path / "t.csv", "set encoding", separator=";")
    data = load("csv", str(tmp_path / "t.csv"), separator=";", encoding=encoding)
    assert data.label_names == ("ja", "nö") and data.encoding.columns[0].name == "größe"
    told = "Csv.encoding must name an encoding of text; got 'rot13'"
    fails("csv", tmp_path / "t.csv", told, kind=fs.ConfigError, encoding="rot13")


def test_the_line_of_excel_and_the_row_names_of_r_are_read(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", {"age": [f"{i % 7}" for i in range(ROWS)], "label": LABELS}, ";")
    plain = load("csv", str(file), separator=";")
    file.write_text("sep=;\n" + file.read_text())
    for mark in (",", ";"):
        assert torch.equal(load("csv", str(file), separator=mark).x, plain.x)
    for names in ([str(i + 1) for i in range(ROWS)], [f"Mazda {i}" for i in range(ROWS)]):
        rows = [f'"{n}",{i % 7},"{y}"' for i, (n, y) in enumerate(zip(names, LABELS, strict=True))]
        for head in ('"age","label"', '"","age","label"'):
            (tmp_path / "r.csv").write_text("\n".join([head, *rows]))
            data = load("csv", str(tmp_path / "r.csv"))
            assert torch.equal(data.x, plain.x)
            assert data.reading.columns[0].role == "left out"
    for rows in ([f"{i % 7},{i / 3},a" for i in range(ROWS)], [f"{i},{LABELS[i]}," for i in range(ROWS)]):
        (tmp_path / "r.csv").write_text("\n".join(["age,label", *rows]))
        fails("csv", tmp_path / "r.csv", "must have 2 values a row; row 2 has 3")


def test_the_row_of_a_message_is_that_of_the_record(tmp_path: Path) -> None:
    cells = ["bad" if i == 30 else str(i % 9) for i in range(ROWS)]
    file = written(tmp_path / "t.csv", table(age=cells, note=["x\ny"] * ROWS))
    fails("csv", file, "row 32 has 'bad'", categories="note")


@pytest.mark.parametrize(
    "start", [b"\x1f\x8b\x08", b"BZh91AY&SY\xe1", b"\xfd7zXZ", b"\xd0\xcf\x11\xe0", b"PK\x03\x04\x14\0\xff"]
)
def test_a_file_that_is_no_text_is_refused(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(start + bytes(range(256)))
    fails("csv", tmp_path / "t.csv", "must be a text")


# The account


def test_the_account_says_what_became_of_each_column(tmp_path: Path) -> None:
    ages = ["" if i == 3 else 20 + i % 5 for i in range(ROWS)]
    for name in ("north", "south"):
        written(tmp_path / f"{name}.csv", table(age=ages, sex=["f", "m"] * 20, name=[f"n{i}" for i in range(ROWS)]))
    fed = fs.federate("csv", "natural", path=str(tmp_path), categories="sex", exclude="name", missing="fill")
    reading = fed.dataset.reading
    assert typed(json.loads(json.dumps(untyped(reading))), Reading) == reading
    lines = [line.replace(str(tmp_path), "") for line in reading.lines()]
    assert lines[:6] == [
        "read: /north.csv (40), /south.csv (40)",
        "age: number, feature, 20 to 24, first 20, 21, 22; 2 missing: filled by 22",
        "label: category, label, 2 values: ill, well, first ill, well, ill",
        "sex: category, feature, 2 values: f, m, first f, m, f",
        "name: left out",
        "client: category, client, 2 values: north, south, first north, north, north",
    ]
    fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, out=tmp_path / "run")
    kept = json.loads((tmp_path / "run/model.json").read_text())["data"]["reading"]
    assert typed(kept, Reading) == reading


def test_a_table_is_read_without_the_packages_of_others(tmp_path: Path) -> None:
    file = str(written(tmp_path / "t.csv", table()))
    code = "import sys, fedskew as fs; fs.data.load('csv', sys.argv[1]); print({*sys.modules} & {'pandas', 'pyarrow'})"
    told = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, check=True, timeout=120)
    assert told.stdout.strip() == "set()"
