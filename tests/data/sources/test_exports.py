"""Exports of other programs that were read wrong without a word: each is read right, refused or noted."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedskew as fs
from fedskew.data import from_arrays, from_table, load
from fedskew.data.counts import read_counts
from fedskew.data.inputs import Inputs, rows_of
from fedskew.data.partitioners import Counts
from fedskew.data.sources.table import DATASETS
from support.command import refused
from support.data_files import fails

N = 60
Y = ["well", "ill"] * (N // 2)
AGE = [20 + i * 7 % 53 for i in range(N)]
FRAME = pd.DataFrame({"age": AGE, "sex": ["f", "m", "f"] * (N // 3), "label": Y})
WORDS = [
    ".", "..", "--", "\u2014", ":", "#NULL!", "#REF!", "#DIV/0!", "#NAME?", "\\N", "NaT", "(null)", "n.a.", "k. A.",
    "<undefined>", "unlabelled",
]  # fmt: skip


def table(**columns: Any) -> dict[str, Any]:
    return {name: np.resize(np.array(cells), N) for name, cells in ({**FRAME, **columns}).items()}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("column", ["sex", "label", "client"])
def test_a_word_that_other_programs_write_for_nothing_is_no_name(column: str, word: str) -> None:
    made = table(**{column: ["low", "high", "low", "high", word]})
    with pytest.raises(fs.DataError, match="must hold words that say what they mean; 12 of 60 rows have"):
        from_table(made, categories="auto")
    kept = from_table(made, categories="auto", missing_words="")
    assert word in kept.label_names or column != "label"


@pytest.mark.parametrize("cells", [["+", "++", "+++"], ["missing", "a"], ["unknown", "a"], ["*", "**"], ["nato", "a"]])
def test_names_that_look_a_little_like_nothing_are_names(cells: list[str]) -> None:
    assert from_table(table(label=cells), categories="auto").label_names == tuple(sorted(cells))


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1-Mar", "2-Mar", "15-Apr"], "60 of 60 are dates"),
        (["1h30", "2 h 15", "0h45m"], "60 of 60 are times"),
        (["neg"] * 6 + ["1.25", "2.5", "3.75", "9.1"], "24 of 60 rows hold no number|36 of 60 rows hold no number"),
        (["120/80", "130 / 85", "125/82"], "60 of 60 rows hold no number"),
        (["1\u2019234", "2\u2019345", "900"], 'set Csv.decimal or Csv.thousands to "\'"'),
        (["True", "1", "False"], "40 of 60 rows hold no number"),
        (["'1", "'2", "'3"], "60 of 60 rows hold no number"),
        (["\u20135", "\u20136", "7", "a"], "rows hold no number"),
    ],
)
def test_measured_values_among_words_are_no_categories_by_themselves(cells: list[str], said: str) -> None:
    with pytest.raises(fs.DataError, match=said):
        from_table(table(v=cells), categories="auto")
    assert from_table(table(v=cells), categories="sex,v").shape == (3 + len({*cells}),)


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


def test_two_columns_with_usual_names_of_labels_are_refused(tmp_path: Path) -> None:
    made = table(target=[0, 1])
    refused(lambda: from_table(made, categories="auto"), "label and target may each be it")
    assert from_table(made, categories="auto", y_column="label", exclude="target").label_names == ("ill", "well")
    pytest.importorskip("pyarrow")
    pd.DataFrame(made).to_parquet(tmp_path / "two.parquet")
    fails(
        "parquet", tmp_path / "two.parquet", "label and target may each be it", kind=fs.ConfigError, categories="auto"
    )


def test_y_beside_x_is_a_coordinate() -> None:
    points = {"x": AGE, "y": np.arange(N) % 3, "class": Y}
    assert from_table(points).label_names == ("ill", "well") and from_table(points).shape == (2,)


def test_a_feature_that_tells_the_label_is_noted() -> None:
    notes = from_table(table(state=["fine", "sick"]), categories="auto").notes
    assert [note for note in notes if "tells the class" in note] == [
        "feature 'state' alone tells the class; Csv.exclude state leaves it out"
    ]
    assert not any("tells the class" in note for note in from_table(table(), categories="auto").notes)


def test_a_line_of_names_within_a_file_is_no_row(tmp_path: Path) -> None:
    words = FRAME[["sex", "label"]].to_csv(index=False)
    (tmp_path / "twice.csv").write_text(words + words)
    fails("csv", tmp_path / "twice.csv", "name its columns once; row 62 names them again", categories="auto")


def test_series_of_different_rows_are_not_put_side_by_side() -> None:
    with pytest.raises(fs.DataError, match="table must have series of one index"):
        from_table({"age": FRAME.age.sort_values(), "label": FRAME.label})
    assert len(from_table({"age": FRAME.age, "label": FRAME.label, "v": AGE}).x) == 48


def test_test_rows_beside_x_and_y_are_the_test_set(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(N, 3)), np.arange(N) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y, x_test=x[:8] + 1, y_test=y[:8], x_valid=x, clients=y)
    data = load("npz", str(tmp_path / "a.npz"))
    assert (len(data.x), len(data.x_test), data.test_is_official) == (60, 8, True)
    assert "arrays left out: x_valid, clients" in data.notes
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y)
    assert len(load("npz", str(tmp_path / "b.npz")).x_test) == 12


@pytest.mark.parametrize("shape", [(3, 8, 6), (8, 8)])
def test_pictures_of_floats_up_to_255_are_noted(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (N, *shape))
    notes = [from_arrays(x, np.arange(N) % 2).notes for x in (pixels.astype(np.float32), pixels / 255.0)]
    assert [any("not divided by 255" in note for note in some) for some in notes] == [True, False]


def test_lists_of_bytes_in_parquet_are_pictures_as_in_npz(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pixels = np.random.default_rng(0).integers(0, 256, (N, 8, 8)).astype(np.uint8)
    cells = pa.array(pixels.tolist(), pa.list_(pa.list_(pa.uint8())))
    pq.write_table(pa.table({"image": cells, "label": Y}), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", x=pixels, y=Y)
    one, other = load("parquet", str(tmp_path / "a.parquet")), load("npz", str(tmp_path / "a.npz"))
    assert one.fingerprint == other.fingerprint and one.shape == (1, 8, 8)


def test_parquet_keeps_owners_in_an_index_and_reads_its_own_labels(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    FRAME.assign(client=["a", "b", "c"] * 20).set_index("client").to_parquet(tmp_path / "index.parquet")
    made = load("parquet", str(tmp_path / "index.parquet"), categories="auto")
    assert made.column_names == {"client": ("a", "b", "c")}
    file, source = str(tmp_path / "bool.parquet"), DATASETS["parquet"]()
    pq.write_table(pa.table({"x": AGE, "z": AGE[::-1], "label": [True, False] * 30}), file)
    inputs = Inputs.of(source.load(file))
    rows = rows_of(source, file, inputs)
    assert inputs.shape == (2,) and inputs.labels(rows.y)[:4].tolist() == [1, 0, 1, 0]


def tiff(photometric: int, bits: int, kind: int) -> bytes:
    pixels = np.arange(64).astype(f"<u{bits // 8}").tobytes()
    facts = {
        256: 8, 257: 8, 258: bits, 259: 1, 262: photometric, 273: 8, 277: 1, 278: 8, 279: len(pixels), 339: kind
    }  # fmt: skip
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in facts.items())
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + pixels + struct.pack("<H", 10) + tags + bytes(4)


@pytest.mark.parametrize(("photometric", "bits", "kind"), [(0, 16, 1), (1, 8, 2)])
def test_a_tiff_whose_numbers_pillow_mistakes_is_refused(
    photometric: int, bits: int, kind: int, tmp_path: Path
) -> None:
    pytest.importorskip("PIL")
    for name, content in (("cat/a", tiff(1, bits, 1)), ("dog/b", tiff(photometric, bits, kind))):
        for copy in range(4):
            file = tmp_path / f"{name}{copy}.tif"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
    fails("images", tmp_path, "dog/b0.tif', mend it or take it out: its numbers are turned or signed")


TURNED = "must have a row for each client and a column for each class"
COUNTS = {
    "a class a row": ("label,site_a,site_b\ncat,5,3\ndog,1,9\n", TURNED),
    "sites in the head": (",Hospital A,Hospital B\ncat,5,3\ndog,1,9\n", TURNED),
    "long form": ("client,label,count\na,0,5\nb,1,3\nc,0,7\n", TURNED),
    "numbers of sites": ("101,5,3\n102,1,9\n103,4,4\n", "column 1 numbers the rows"),
    "classes in another order": ("2,0,1\n5,3,1\n1,9,1\n", "2,0,1 may be either"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_counts_that_are_turned_or_long_are_refused(case: str, tmp_path: Path) -> None:
    text, said = COUNTS[case]
    (tmp_path / "counts.csv").write_text(text)
    with pytest.raises(fs.DataError, match=said):
        read_counts(tmp_path / "counts.csv")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ill,well\n5,1\n1,7\n", ""),
        ("sick,fine\n5,1\n1,7\n", ""),
        ("5,1\n1,7\n", ""),
        ("well,ill\n5,1\n1,7\n", "columns in the order of the classes, ill, well; got well, ill"),
        ("client,Well,Ill\na,5,1\nb,1,7\n", "columns in the order of the classes, ill, well; got Well, Ill"),
        (",north,south\nill,5,1\nwell,1,7\n", TURNED),
    ],
)
def test_the_names_in_a_table_of_counts_are_those_of_the_data(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text(text)
    data, counts = from_table(table(), categories="auto"), Counts(path=str(tmp_path / "counts.csv"))
    if not said:
        assert fs.federate(data, counts).counts.tolist() == [[5, 1], [1, 7]]
        return
    with pytest.raises(fs.DataError, match=said):
        fs.federate(data, counts)
