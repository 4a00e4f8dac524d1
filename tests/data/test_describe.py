"""The skew report of any source: a federation, a partition file, a matrix, a file of counts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.config.tables import TABLES
from fedskew.data import describe, federate, save_partition, skew
from fedskew.data.partitioners import Counts, Dirichlet, Shared
from fedskew.errors import DataError
from support.command import fedskew, output_of
from support.pictures import printed


def told(source) -> str:
    return printed(describe.describe_table(source, wide=True))


MATRIX = np.array([[5, 0, 1], [0, 3, 3], [2, 2, 2], [0, 0, 0]])


def test_every_source_of_the_same_counts_has_the_same_numbers(tmp_path: Path) -> None:
    fed = federate("digits", Shared(Dirichlet(0.3)), clients=8, seed=1)
    counts = fed.counts.numpy()
    save_partition(tmp_path / "p.npz", fed)
    np.save(tmp_path / "c.npy", counts)
    head = ",".join("abcdefghij")
    np.savetxt(tmp_path / "c.csv", counts, "%d", ",", header=head, comments="")
    expected = skew.summary(counts)
    sources = [fed, tmp_path / "p.npz", *(str(tmp_path / f"c.{kind}") for kind in ("npy", "csv")), counts]
    for source in [*sources, fed.counts]:
        found = describe.describe(source)
        assert {k: found[k] for k in expected} == expected
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        text = told(source)
        assert f"{expected['js_mean']:.3f}" in text and max(map(len, text.splitlines())) <= 80
    assert "training rows" in told(fed) and "training rows" not in told(counts)
    head = "shared (alpha 0.5, base dirichlet (alpha 0.3), beta 0.05), 8 clients, \nseed 1"
    assert head in told(tmp_path / "p.npz") and "dirichlet (alpha 0.3)" in told(fed)
    assert describe.describe(tmp_path / "c.csv")["label_names"] == list("abcdefghij")
    assert describe.describe(fed)["partition_options"]["base"] == {"name": "dirichlet", "alpha": 0.3}


def test_a_matrix_of_counts_is_no_part_of_the_description() -> None:
    fed = federate("digits", Counts(matrix=[[5] * 10]))
    found = describe.describe(fed)
    assert "matrix" not in found["partition_options"] and (found["clients"], found["classes"]) == (1, 10)


def test_of_many_clients_pairs_are_sampled_and_of_many_classes_the_largest_and_smallest_shown() -> None:
    many = np.tile(MATRIX[:3], (300, 1))
    assert describe.describe(many)["pair_clients"] == 500 and "pairs of 500 drawn clients" in told(many)
    assert describe.describe(many, most=50)["pair_clients"] == 50
    lines = told(np.arange(100, 0, -1)[None]).splitlines()
    assert any("80 more" in line for line in lines) and sum("█" in line for line in lines) == 20
    assert describe.describe(MATRIX)["pair_clients"] == 3 and "mean over pairs" in told(MATRIX)


@pytest.mark.parametrize("source", ["absent.npz", "absent.csv", np.zeros((2, 2)), torch.zeros(3)])
def test_a_source_without_counts_is_refused(source) -> None:
    with pytest.raises(DataError):
        describe.describe(source)


def test_what_is_known_of_the_data_is_told_by_describe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = TABLES["data"]["digits"].load
    noted = lambda self, path=None: replace(plain(self, path), notes=("rows are not in the official order",))
    monkeypatch.setattr(TABLES["data"]["digits"], "load", noted)
    assert "note: rows are not in the official order" in output_of(capsys, "describe")
    assert fedskew("describe", "--json") == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["rows are not in the official order"]


@pytest.fixture(scope="module")
def fed() -> Any:
    return fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.05), clients=30, longtail=10, validation=0.1)


def test_the_skew_report_fits_80_columns_and_holds_the_numbers(fed: Any) -> None:
    text, d = told(fed), describe.describe(fed)
    report = fed.report()
    assert {k: d[k] for k in report} == report and json.dumps(d, allow_nan=False)
    assert d["partition_options"] == {"alpha": 0.05} and d["label_names"] == [str(c) for c in range(10)]
    assert describe.counted(fed).title == "digits, long tail 10, dirichlet (alpha 0.05), 30 clients, seed 0"
    assert len(printed(describe.describe_table(fed)).splitlines()) < 25, "one screen, unless all measures are asked for"
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    for key in ("js_mean", "kl_mean", "tv_mean", "missing_rate", "hellinger_mean", "emd_mean", "quantity_gini"):
        assert f"{d[key]:.3f}" in text, key
    assert f"{d['empty_clients']} without rows" in text and "alpha 0.05" in text and "long tail" in text


def test_clients_with_names_have_their_rows_and_the_share_of_each_class() -> None:
    rng = np.random.default_rng(0)
    place = np.repeat(["north", "south"], 20)
    y = np.where(place == "north", "ill", np.where(np.arange(40) % 4 > 0, "ill", "well"))
    data = fs.from_arrays(rng.random((40, 3)), y, rng.random((4, 3)), np.array(["ill", "well"] * 2),
                          columns={"client": place})  # fmt: skip
    lines = [line.split() for line in told(federate(data, fs.partitioners.Natural())).splitlines()]
    assert ["client", "rows", "ill", "well"] in lines
    assert ["north", "20", "100.0%", "0.0%"] in lines and ["south", "20", "75.0%", "25.0%"] in lines
    assert "clients by name" not in told(federate(data, Dirichlet(alpha=1.0), clients=2))


def test_a_client_with_many_classes_of_one_row_is_named() -> None:
    cut = federate("digits", Dirichlet(0.05, rounding="cut"), clients=20)
    held = cut.counts[19]
    line = f"19  holds {(held > 0).sum()} classes, {(held == 1).sum()} with one row"
    assert "client with stray rows" in told(cut) and line in told(cut)
    assert describe.describe(cut)["stray_client"] == 19
    plain = federate("digits", Dirichlet(0.05), clients=20)
    assert "stray" not in told(plain) and "stray_client" not in describe.describe(plain)
    assert "stray" not in told(np.array([[1, 1, 0], [9, 9, 9]])), "two rows of two classes are no fault of a split"


def test_a_partition_file_of_the_former_dirichlet_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"name": "dirichlet", "alpha": 0.3, "balance_guard": None, "least": None, "rounding": None}
    for how in (old, {"name": "shared", "base": old, "beta": 0.1}):
        monkeypatch.setattr("fedskew.data.partitioners.file.convention_of", lambda made, how=how: how)
        save_partition(tmp_path / f"{how['name']}.npz", federate("digits", Dirichlet(0.3, rounding="cut"), clients=4))
        assert "dirichlet (alpha 0.3, rounding cut)" in told(tmp_path / f"{how['name']}.npz")
        assert "dirichlet (alpha 0.3, rounding cut)" in describe.named(how)
