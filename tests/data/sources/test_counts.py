"""Tables of class counts, as pandas, R, numpy and spreadsheets write them: read right, or refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedskew as fs
from fedskew.data.counts import count_table, read_consortium, read_counts
from fedskew.data.partitioners import Counts
from support.command import refused

COUNTS = np.array([[12, 0, 9], [0, 30, 2], [5, 5, 5]])
FRAME = pd.DataFrame(COUNTS, columns=list("abc"))
R = '"","a","b","c"\n"1",12,0,9\n"2",0,30,2\n"3",5,5,5\n'


def numpy_text(**how: Any) -> str:
    out = io.StringIO()
    np.savetxt(out, COUNTS, delimiter=",", **how)
    return out.getvalue()


RIGHT = {  # text, classes, clients
    "pandas": (FRAME.to_csv(), "abc", "012"),
    "pandas, no index": (FRAME.to_csv(index=False), "abc", ""),
    "pandas, no names": (pd.DataFrame(COUNTS).to_csv(), "012", "012"),
    "pandas, no names, no index": (pd.DataFrame(COUNTS).to_csv(index=False), "012", ""),
    "pandas, no index, from 1": (FRAME.set_axis([1, 2, 3], axis=1).to_csv(index=False), "123", ""),
    "pandas, other numbers": (FRAME.set_axis([3, 7, 9], axis=1).to_csv(), "379", "012"),
    "pandas, no head": (FRAME.to_csv(index=False, header=False), "", ""),
    "pandas, named rows": (FRAME.set_axis(list("xyz")).to_csv(), "abc", "xyz"),
    "pandas, a named index": (FRAME.set_axis(list("xyz")).rename_axis("hospital").to_csv(), "abc", "xyz"),
    "pandas, floats": (FRAME.astype(float).to_csv(), "abc", "012"),
    "pandas, CRLF and a mark": ("\ufeff" + FRAME.to_csv(lineterminator="\r\n"), "abc", "012"),
    "pandas, a column of sites": (FRAME.assign(Site=list("xyz")).to_csv(), "abc", "xyz"),
    "R": (R, "abc", "123"),
    "R, a short head": (R.removeprefix('"",'), "abc", "123"),
    "R, write.csv2": (R.replace(",", ";"), "abc", "123"),
    "Excel": ("sep=;\n" + FRAME.to_csv(sep=";", index=False), "abc", ""),
    "tabs": (FRAME.to_csv(sep="\t"), "abc", "012"),
    "numpy": (numpy_text(), "", ""),
    "numpy, a head": (numpy_text(header="a,b,c", fmt="%d"), "abc", ""),
}
TURNED = "must have a row for each client and a column for each class"
SUMS = FRAME.assign(All=FRAME.sum(axis=1))
REFUSED = {
    "row numbers without a head": (FRAME.to_csv(header=False), "column 1 numbers the rows: name it client"),
    "row numbers with a name": (FRAME.rename_axis("hospital").to_csv(), "column 'hospital' numbers the rows"),
    "names without a head": (FRAME.set_axis(list("xyz")).to_csv(header=False), "x,12,0,9 may be either"),
    "names of two classes": ("0,1\n5,0\n1,4\n", "0,1 may be either; name the classes by words"),
    "names from 5": (FRAME.set_axis([5, 6, 7], axis=1).to_csv(index=False), "5,6,7 may be either"),
    "a column of sums": (SUMS.to_csv(), "column 'All' is the sum of the others: leave it out"),
    "a row of sums": (pd.concat([FRAME, FRAME.sum().to_frame("All").T]).to_csv(), "row All is the sum of the others"),
    "a thousand": ("a,b\n1.000,3\n4,5\n", "line 2: the cases of 'a' must be a whole number >= 0; got '1.000'"),
    "a thousand in quotes": ('a,b\n"1,000",3\n4,5\n', "got '1,000'"),
    "a blank": ("a,b\n5,\n1,4\n", "line 2: the cases of 'b' must be a whole number >= 0; got ''"),
    "a comma at the end": ("a,b,\n5,0,\n1,4,\n", "must name each class, and have one column of client names"),
    "long form": ("client,label,count\n0,0,12\n0,1,3\n", "have a row for each client and a column for each class"),
    "a class twice": ("a,a\n5,0\n1,4\n", "must have columns of different names; got 'a' twice"),
    "facts of sites": ("a,b,up,down\n5,2,8,8\n1,4,4,4\n", "which are facts of a site for `fedskew rehearse`"),
    "a hospital": ("hospital,a,b\n101,1,2\n205,3,4\n", "column 'hospital' tells of clients: name it client"),
    "an identifier": ("client_id,a,b\n7,1,2\n3,3,4\n", "column 'client_id' tells of clients"),
    "a total by name": ("client,a,total\nx,1,1\ny,3,3\n", "'total' is a sum"),
    "a row of totals": ("client,a,b\nx,1,2\nTotal,1,2\n", "'Total' is a sum"),
    "a client twice": ("client,a,b\nx,1,2\nX,3,4\n", "name each client or site once; got x, X"),
    "a class in two cases": ("client,a,A\nx,1,2\ny,3,4\n", "columns of different names; got 'a' twice"),
    "a class as two numbers": ("client,1,01\nx,1,2\ny,3,4\n", "columns of different names; got '1' twice"),
    "a column of words": ("client,country,a\nx,DE,1\ny,FR,3\n", "'country' must be a whole number"),
    "an index alone": ("0,0,1\n", "column 1 numbers the rows"),
    "a class a row": ("label,site_a,site_b\ncat,5,3\ndog,1,9\n", TURNED),
    "sites in the head": (",Hospital A,Hospital B\ncat,5,3\ndog,1,9\n", TURNED),
    "numbers of sites": ("101,5,3\n102,1,9\n103,4,4\n", "column 1 numbers the rows"),
    "classes in another order": ("2,0,1\n5,3,1\n1,9,1\n", "2,0,1 may be either"),
    "ragged": ("a,b\n5,2\n1\n4,3\n", "must have 2 values a row; row 3 has 1"),
}


@pytest.mark.parametrize("case", RIGHT)
def test_a_table_of_counts_is_read_as_it_was_meant(case: str, tmp_path: Path) -> None:
    text, classes, clients = RIGHT[case]
    file = tmp_path / "counts.csv"
    file.write_bytes(text.encode())
    found = count_table(file)
    assert np.array_equal(found.counts, COUNTS)
    assert (found.classes, found.sites) == (tuple(classes), tuple(clients))
    assert np.array_equal(read_counts(file)[0], COUNTS) and np.array_equal(Counts(path=str(file)).load(), COUNTS)
    if classes:
        assert np.array_equal(read_consortium(file).counts, COUNTS)


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_can_be_read_in_two_ways_is_refused(case: str, tmp_path: Path) -> None:
    text, said = REFUSED[case]
    (tmp_path / "counts.csv").write_text(text)
    refused(lambda: read_counts(tmp_path / "counts.csv"), said, kind=fs.DataError)


@settings(max_examples=150, deadline=None)
@given(
    counts=st.integers(2, 6).flatmap(
        lambda c: st.lists(st.lists(st.integers(0, 999), min_size=c, max_size=c), min_size=1, max_size=6)
    ),
    index=st.booleans(), names=st.sampled_from(["words", "numbers", "none"]), sep=st.sampled_from([",", ";", "\t"]),
)  # fmt: skip
def test_any_frame_that_pandas_writes_is_read_or_refused(
    counts: list[list[int]], index: bool, names: str, sep: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame = pd.DataFrame(counts)
    if names == "words":
        frame.columns = [f"class {c}" for c in frame.columns]
    file = tmp_path_factory.getbasetemp() / "frame.csv"
    frame.to_csv(file, index=index, header=names != "none", sep=sep)
    try:
        found = count_table(file)
    except fs.DataError:
        return
    if index and names == "none" and len(counts) == 1:
        return  # one line of numbers without a head may be anything
    assert found.counts.tolist() == counts
    assert found.classes == (() if names == "none" else tuple(map(str, frame.columns)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ill,well\n5,1\n1,7\n", ""), ("sick,fine\n5,1\n1,7\n", ""), ("5,1\n1,7\n", ""),
        ("well,ill\n5,1\n1,7\n", "columns in the order of the classes, ill, well; got well, ill"),
        ("client,Well,Ill\na,5,1\nb,1,7\n", "columns in the order of the classes, ill, well; got Well, Ill"),
        (",north,south\nill,5,1\nwell,1,7\n", TURNED),
    ],
)  # fmt: skip
def test_the_names_in_a_table_of_counts_are_those_of_the_data(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text(text)
    data = fs.from_arrays(np.arange(60.0)[:, None], ["ill", "well"] * 30)
    counts = Counts(path=str(tmp_path / "counts.csv"))
    if said:
        refused(lambda: fs.federate(data, counts), said, kind=fs.DataError)
    else:
        assert fs.federate(data, counts).counts.tolist() == [[5, 1], [1, 7]]
