"""Some of a dataset's classes: every dataset takes them, relabelled in the order given or with their numbers."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.data import DATASETS, keep_classes, load
from fedskew.data.arrays import ClassOptions
from fedskew.errors import DataError, FieldError
from support.command import SMALL, fedskew, mistake


def test_every_dataset_takes_classes() -> None:
    for name, kind in DATASETS.items():
        assert issubclass(kind, ClassOptions) and {"classes", "relabel"} <= {f.name for f in fields(kind)}, name
        assert kind(classes=(1, "0")).classes == ("1", "0")


def test_classes_are_relabelled_in_the_order_given() -> None:
    whole = load("digits")
    for order in ((6, 0), (0, 6), (9, 1, 4)):
        two = load("digits", classes=order)
        assert two.classes == len(order) and two.label_names == tuple(map(str, order))
        for split in ("", "_test"):
            x, y, kept = getattr(whole, f"x{split}"), getattr(whole, f"y{split}"), getattr(two, f"y{split}")
            rows = torch.isin(y, torch.tensor(order))
            assert torch.equal(getattr(two, f"x{split}"), x[rows])
            assert torch.equal(torch.tensor(order)[kept], y[rows])
    assert len({load("digits", classes=o).fingerprint for o in ((6, 0), (0, 6))} | {whole.fingerprint}) == 3


def test_kept_labels_leave_classes_without_rows() -> None:
    kept = load("digits", classes=("6", "0"), relabel=False)
    assert (
        kept.classes == 10 and sorted(set(kept.y.tolist())) == [0, 6] and kept.label_names == load("digits").label_names
    )
    fed = fs.federate(kept, fs.partitioners.Dirichlet(0.3), clients=4)
    row = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=2).rounds[-1]
    assert row["support"][6] and not row["support"][1] and row["accuracy"] > row["macro_f1"]


def test_classes_by_name_with_their_clients(tmp_path: Path) -> None:
    x, y = np.arange(60.0)[:, None], np.array(["ill", "well", "lost"] * 20)
    data = keep_classes(fs.from_arrays(x, y, columns={"site": np.arange(60) // 20}), ("well", "ill"))
    assert data.label_names == ("well", "ill") and len(data.columns["site"]) == len(data.y)
    assert torch.equal(data.columns["site"], (data.x.flatten() // 20).long())
    assert fs.federate(data, "natural").clients == 3
    with pytest.raises(DataError, match=r"classes must be classes of .*; got 'dead'; known: ill, lost, well"):
        keep_classes(fs.from_arrays(x, y), ("well", "dead"))


def test_a_csv_file_is_standardised_by_the_rows_that_are_kept(tmp_path: Path) -> None:
    rows = [f"{i % 3 * 10 + i % 7},{'abc'[i % 3]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["v,label", *rows]))
    assert abs(float(load("csv", str(tmp_path / "t.csv"), classes=("c", "b")).x.mean())) < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ("6",)}, "Digits.classes must name two classes at least, each once"),
        ({"classes": ("6", "6")}, "each once"),
        ({"classes": ("6", "11")}, "classes must be classes of 'digits'; got '11'"),
        ({"classes": "6,0"}, "Digits.classes must be a tuple"),
        ({"relabel": False}, "Digits.relabel must be true if all classes are kept"),
    ],
)
def test_classes_that_are_not_there_are_one_line(options: dict, message: str) -> None:
    with pytest.raises((FieldError, DataError)) as error:
        load("digits", **options)
    assert message in str(error.value)


def test_the_command_takes_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--data.classes", "6,0", "--out", tmp_path / "a") == 0
    assert fedskew("run", "--from", tmp_path / "a", "--out", tmp_path / "b") == 0
    assert (tmp_path / "a/final.safetensors").read_bytes() == (tmp_path / "b/final.safetensors").read_bytes()
    assert "classes must be classes of 'digits'; got 'x'" in mistake(capsys, "run", "fedavg", "--data.classes", "6,x")
