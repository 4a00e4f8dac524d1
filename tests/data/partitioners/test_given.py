"""Partitioners that follow what is given: a column, a matrix of counts."""

from __future__ import annotations

import numpy as np
import pytest

from fedskew.data import federate, from_arrays
from fedskew.data.partitioners import (
    Counts,
    Natural,
)
from fedskew.errors import DataError
from support.command import refused


def test_the_only_column_is_guessed_and_natural_names_are_kept():
    x, names = np.zeros((6, 1)), ["b", "a", "b", "c", "a", "c"]
    data = from_arrays(x, [0, 1, 0, 1, 0, 1], x[:2], [0, 1], columns={"writer": names})
    fed = federate(data, "natural")
    assert fed.client_names == ("a", "b", "c") and fed.rows(1).tolist() == [0, 2]
    assert federate(data, "natural", longtail=1.0).client_names == ("a", "b", "c")
    assert federate(data, "iid", clients=2).client_names == ()
    two = {"writer": np.arange(6), "site": np.arange(6)}
    refused(lambda: Natural().count(two), "must name a column of the data; got ''; use one of writer, site")
    assert Natural().count({**two, "client": np.zeros(6)}) == 1
    refused(lambda: Natural().split([0, 1], 1, 0), "these data have none; of a csv or parquet file")


def test_a_matrix_is_dealt_exactly():
    matrix = [[3, 0, 5], [0, 0, 0], [7, 2, 1]]
    labels = np.repeat([0, 1, 2], [10, 4, 6])
    parts = Counts(matrix=matrix).split(labels, 3, 0)
    assert parts.counts(labels, 3).tolist() == matrix and Counts(matrix=np.array(matrix)) == Counts(matrix=matrix)
    assert hash(Counts(matrix=matrix)) == hash(Counts(matrix=np.array(matrix, dtype=float)))
    told = "at most the 5 rows of class 0; got 10; scaled by 0.5 it would fit"
    refused(lambda: Counts(matrix=matrix).split(np.repeat([0, 1, 2], [5, 4, 6]), 3, 0), told)
    told = "clients must equal the rows of the matrix of counts; got 2; use 3"
    refused(lambda: Counts(matrix=matrix).split(labels, 2, 0), told)
    told = "have a column for each label, it has 3; got labels 0..3"
    refused(lambda: Counts(matrix=matrix).split([0, 3], 3, 0), told, kind=DataError)
    absent = Counts(matrix=[[1, 0, 2]]).split([0, 2, 2, 0], 1, 0)  # a class without rows keeps its column
    assert len(absent.rows) == 3


@pytest.mark.parametrize("bad", [[[1.5]], [[-1]], [[0, 0]], [1, 2], [["a"]]])
def test_a_matrix_must_hold_whole_numbers(bad):
    told = "Counts.matrix must be a matrix [clients, classes] of whole numbers"
    refused(lambda: Counts(matrix=bad), told, kind=DataError)


def test_a_matrix_comes_from_a_file(tmp_path):
    matrix = np.array([[3, 0, 5], [7, 2, 1]])
    labels = np.repeat([0, 1, 2], [10, 4, 6])
    np.save(tmp_path / "m.npy", matrix)
    data = from_arrays(np.zeros((20, 1)), labels, np.zeros((3, 1)), [0, 1, 2])
    assert federate(data, Counts(path=str(tmp_path / "m.npy"))).counts.tolist() == matrix.tolist()
    for name, text, message in (
        ("c.csv", "1,2.5\n", "a count must be a whole number >= 0; got '2.5'"),
        ("d.csv", "", "must have a line of counts for each client"),
        ("e.txt", "1", "must end in .csv or .npy"),
        ("f.npy", "1", "not a readable npy file"),
    ):
        (tmp_path / name).write_text(text)
        refused(Counts(path=str(tmp_path / name)).load, message, kind=DataError)
    told = "absent.csv is not a csv file: ", "No such file"
    refused(Counts(path=str(tmp_path / "absent.csv")).load, *told, kind=DataError)
    refused(Counts().load, "Counts.path must name a csv or npy file")
    refused(lambda: Counts("m.csv", ((1,),)), "give only one of them")
