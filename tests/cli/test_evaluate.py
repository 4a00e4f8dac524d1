"""``fedskew evaluate``: a run's model on its own test rows, on a file of new rows, on another dataset."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import fedskew as fs
from fedskew.records.folder import read
from support.command import SMALL, fedskew, json_of, mistake, output_of, printed
from support.old_format import as_format_1

DRAW = np.random.default_rng(0)
ROWS = [
    f"{i},{40 + 20 * (i % 3 == 0) + DRAW.normal() * 5:.1f},{'fm'[i % 2]},{'ill' if i % 3 == 0 else 'well'}"
    for i in range(60)
]
DATA = ["--data", "csv", "--data.exclude", "patient_id", "--data.categories", "sex"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "patients.csv").write_text("\n".join(["patient_id,age,sex,label", *ROWS]) + "\n")
    words = [*DATA, "--data.path", tmp_path / "patients.csv", "--partition", "iid", "--clients", 3, "--rounds", 2]
    assert fedskew("run", "fedavg", *words, "--model", "logistic", "--out", tmp_path / "run") == 0
    return tmp_path / "run"


def written(folder: Path, text: str) -> Path:
    (folder / "new.csv").write_text(text)
    return folder / "new.csv"


def test_without_data_the_run_s_own_test_rows_give_its_last_metrics(run: Path) -> None:
    found, last = json_of("evaluate", run), read(run)[1][-1]
    assert found["rows"] == 12 and all(found[name] == last[name] for name in ("accuracy", "loss", "per_class_f1"))
    said = output_of("evaluate", run)
    assert (
        f"patients: 12 rows, accuracy {last['accuracy']:.4f}" in said and "worst class" in said and "precision" in said
    )


def test_new_rows_without_labels_get_scores(run: Path, tmp_path: Path) -> None:
    file = written(tmp_path, "sex,patient_id,age\nf,P7,61.5\n\nm,P8,40\n")
    words = ["--data", "csv", "--data.path", file, "--data.columns", "patient_id"]
    rows = list(csv.DictReader(output_of("evaluate", run, *words).splitlines()))
    assert list(rows[0]) == ["row", "patient_id", "predicted", "p_ill", "p_well"]
    assert [r["row"] for r in rows] == ["2", "4"] and rows[1]["patient_id"] == "P8"
    wanted = fs.load_model(run).probabilities({"sex": ["f", "m"], "age": [61.5, 40]})
    assert np.allclose([[float(r["p_ill"]), float(r["p_well"])] for r in rows], wanted, rtol=1e-5)
    assert "scores.csv" in output_of("evaluate", run, *words, "--out", tmp_path / "scores.csv")
    assert list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines())) == rows
    assert "--out must be a new file" in mistake("evaluate", run, *words, "--out", tmp_path / "scores.csv")
    assert json_of("evaluate", run, *words)["label_names"] == ["ill", "well"]


def test_new_rows_with_labels_get_metrics_over_all_of_them(run: Path, tmp_path: Path) -> None:
    file = written(tmp_path, "age,sex,label\n" + "".join(f"{40 + i},{'fm'[i % 2]},{'ill'}\n" for i in range(7)))
    said = printed("evaluate", run, "--data", "csv", "--data.path", file, "--out", tmp_path / "s.csv")
    assert "7 rows, accuracy" in said.out and said.err == ""
    assert "row,label,predicted,p_ill,p_well" in (tmp_path / "s.csv").read_text()
    said = printed("evaluate", run, "--data", "csv", "--data.path", tmp_path / "patients.csv").err
    assert "is the run's own file, training rows too" in said


LINES = {
    "a column": ("patient_id,sex\n1,f", [], "new.csv must have the column 'age'; it has patient_id, sex"),
    "a class": ("age,sex,label\n1,f,ill\n2,m,dead", [], "column 'label' must hold classes of the model, ill, we"),
    "a blank label": ("age,sex,label\n1,f,ill\n2,m,", [], "column 'label' must have a label in every row; row 3"),
    "the label's column": ("age,sex\n1,f", ["--data.y_column", "lable"], "--data.y_column must name columns"),
    "the run's own": ("age,sex\n1,f", ["--data.standardise", "false"], "--data.standardise has no meaning here"),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_rows_that_do_not_fit_the_run_are_one_line(case: str, run: Path, tmp_path: Path) -> None:
    text, words, expected = LINES[case]
    file = written(tmp_path, text)
    assert expected in mistake("evaluate", run, "--data", "csv", "--data.path", file, *words)


@pytest.mark.parametrize("blank", [True, False])
def test_unknown_categories_are_noted(blank: bool, tmp_path: Path) -> None:
    unknown = ["x1,50,,ill", "x2,50,,well"] * 3 if blank else []
    (tmp_path / "patients.csv").write_text("\n".join(["patient_id,age,sex,label", *ROWS, *unknown]) + "\n")
    words = [*DATA, "--data.path", tmp_path / "patients.csv", "--data.missing", "fill", "--rounds", 1, "--clients", 3]
    assert fedskew("run", "fedavg", *words, "--partition", "iid", "--model", "logistic", "--out", tmp_path / "r") == 0
    file = written(tmp_path, "age,sex\n40,x\n41,\n42,f\n43,y\n44,x\n")
    said = printed("evaluate", tmp_path / "r", "--data", "csv", "--data.path", file).err
    if blank:
        told = "3 of 5 rows have categories that the training rows lack ('x', 'y'); they count as missing"
    else:
        told = "4 of 5 rows have a value that no training row had (blank, 'x', 'y'); they are scored as if"
    assert f"column 'sex': {told}" in said


def test_a_run_that_cannot_be_asked_is_one_line(run: Path, tmp_path: Path) -> None:
    assert "needs a run folder" in mistake("evaluate")
    assert "run must be a run folder; got 'none'" in mistake("evaluate", "none")
    assert "must be used with --data" in mistake("evaluate", run, "--data.path", "x.csv")
    assert "must be encoded as the model's training rows" in mistake("evaluate", run, "--data", "digits")
    (tmp_path / "patients.csv").write_text("\n".join(["patient_id,age,sex,label", *ROWS[:50]]))
    assert "the data must be those of the run; fingerprint was" in mistake("evaluate", run)
    (run / "final.safetensors").unlink()
    (run / "summary.json").unlink()
    assert "it has not ended: resume it" in mistake("evaluate", run)


def test_a_run_that_was_interrupted_is_noted(run: Path) -> None:
    content = json.loads((as_format_1(run) / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**content, "stopped": "interrupted"}))
    assert "the run stopped after round 2 of 2 (interrupted)" in printed("evaluate", run).err


def test_a_run_of_python_is_asked_about_named_data(tmp_path: Path) -> None:
    fed = fs.federate("digits", "iid", clients=3)
    result = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=3, out=tmp_path / "a")
    assert "--data must name the rows" in mistake("evaluate", tmp_path / "a")
    assert json_of("evaluate", tmp_path / "a", "--data", "digits")["accuracy"] == result.rounds[-1]["accuracy"]


def test_images_of_an_npz_file_and_a_subset_of_a_dataset(tmp_path: Path) -> None:
    words = ["--data.classes", "6,0", "--data.normalize", "half"]
    assert fedskew("run", "fedavg", *SMALL, *words, "--out", tmp_path / "a") == 0
    data = fs.data.load("digits", classes=(6, 0))
    names = np.array(data.label_names)[data.y_test.numpy()]
    np.savez(tmp_path / "d.npz", x=data.x_test.numpy(), y=names)
    np.savez(tmp_path / "u.npz", x=data.x_test.numpy())
    accuracy = read(tmp_path / "a")[1][-1]["accuracy"]
    for given in (["npz", "--data.path", tmp_path / "d.npz"], ["digits", "--data.classes", "0,6"]):
        assert json_of("evaluate", tmp_path / "a", "--data", *given)["accuracy"] == accuracy
    said = output_of("evaluate", tmp_path / "a", "--data", "npz", "--data.path", tmp_path / "u.npz")
    assert said.startswith("row,predicted,p_6,p_0\n0,")
    said = mistake("evaluate", tmp_path / "a", "--data", "digits")
    assert "'digits' has the class '1'" in said and "--data.classes leaves the others out" in said


def test_a_folder_of_new_images_is_scaled_as_the_model_s(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        for i in range(10):
            (tmp_path / "p" / name).mkdir(parents=True, exist_ok=True)
            image.fromarray(DRAW.integers(0, 256, (8, 8, 3)).astype(np.uint8)).save(tmp_path / f"p/{name}/{i}.png")
    words = ["--data", "images", "--data.path", tmp_path / "p", "--partition", "iid", "--clients", 2, "--rounds", 1]
    assert fedskew("run", "fedavg", *words, "--model", "logistic", "--out", tmp_path / "a") == 0
    (tmp_path / "new").mkdir()
    image.new("L", (20, 12), 9).save(tmp_path / "new/x.png")
    head, row = output_of("evaluate", tmp_path / "a", "--data", "images", "--data.path", tmp_path / "new").split()
    assert head == "row,predicted,p_cat,p_dog" and row.startswith("x.png,")
    found = json_of("evaluate", tmp_path / "a", "--data", "images", "--data.path", tmp_path / "p")
    assert found["rows"] == 20, "all of them, with labels"


def test_parquet_columns_by_name(run: Path, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"sex": ["f", "m"], "age": [61.5, 40.0]}), tmp_path / "n.parquet")
    found = json_of("evaluate", run, "--data", "parquet", "--data.path", tmp_path / "n.parquet")["probabilities"]
    assert np.allclose(found, fs.load_model(run).probabilities({"sex": ["f", "m"], "age": [61.5, 40]}))
    pq.write_table(pa.table({"sex": ["f", "m"], "age": [61.5, None]}), tmp_path / "n.parquet")
    said = mistake("evaluate", run, "--data", "parquet", "--data.path", tmp_path / "n.parquet")
    assert "column 'age' must have a number in every row; row 1" in said


def test_the_fitted_model_of_a_run(tmp_path: Path) -> None:
    assert fedskew("run", "fedavg", *SMALL, "--out", tmp_path / "a") == 0
    assert fedskew("run", "fedavg", *SMALL, "--fit-logits", "none", "--out", tmp_path / "b") == 0
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    found = json_of("evaluate", tmp_path / "a", "--fitted")
    for name in ("accuracy", "balanced_accuracy", "macro_f1", "loss", "ece"):
        assert found[name] == summary[f"final_fitted_{name}"] and found[name] != summary[f"final_{name}"]
    said = output_of("evaluate", tmp_path / "a", "--fitted", "--out", tmp_path / "scores.csv")
    assert f"accuracy {summary['final_fitted_accuracy']:.4f}" in said
    told = mistake("evaluate", tmp_path / "b", "--fitted")
    assert "fitted must be false: the model has no fit on record" in told
