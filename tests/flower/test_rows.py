"""A node's own data: files, folders and functions; what the server has without data of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import methods
from fedskew.config.experiment import Experiment
from fedskew.data.encoding import Column, Encoding
from fedskew.data.inputs import Inputs
from fedskew.errors import ConfigError, DataError, FedskewError
from fedskew.flower import serve
from fedskew.flower.node import check_data
from fedskew.flower.options import NodeOptions, experiment_of, node_options, server_options
from fedskew.flower.rows import inputs_of, inputs_text, read_raw, rows_of_node
from support.command import fedskew
from support.flower_grid import own_data, served

TABLE = Inputs(
    (3,), False, (), (), Encoding((Column("age", mean=50.0, std=10.0), Column("sex", values=("f", "m")))),
    ("ill", "well"),
)  # fmt: skip
NUMBERS = Inputs((2,), False, (), (), None, ("a", "b", "c"))
PICTURES = Inputs((1, 4, 4), True, (0.5,), (0.5,), None, ("cat", "dog"))


def rows(inputs: Inputs, data: Any, **options: Any) -> Any:
    given = NodeOptions(client=0, data=str(data), **options)
    return rows_of_node(inputs, read_raw(inputs, given), given)


def test_a_csv_file_is_encoded_as_the_app_says(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("sex,age,class\nm,60,well\nf,45,ill\n")
    found = rows(TABLE, file)
    assert found.x.tolist() == [[1.0, 0.0, 1.0], [-0.5, 1.0, 0.0]]
    assert found.y.tolist() == [1, 0]
    assert found.federation(2, 5).counts.tolist() == [[0, 0], [0, 0], [1, 1], [0, 0], [0, 0]]


def test_a_node_is_told_of_categories_that_the_example_lacks(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("sex,class\nm,well\nx,ill\n,ill\n")
    filled = replace(TABLE, encoding=Encoding((Column("sex", values=("f", "m", "")),)))
    with pytest.warns(RuntimeWarning, match=r"mine.csv: column 'sex': 1 of 3 rows have categories .* lack \('x'\)"):
        found = rows(filled, tmp_path / "mine.csv")
    assert found.x.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]


def test_a_csv_file_is_for_an_app_whose_example_is_a_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("u,v,kind\n1,2,c\n3,4,a\n")
    with pytest.raises(DataError, match=r"must be an array \[n, 2\]: the model has no columns by name"):
        rows(NUMBERS, file, y_column="kind")


@pytest.mark.parametrize(
    ("text", "told"),
    [("m,60,better", "class of .* must hold classes of the model, ill, well; got 'better' in row 2"),
     ("x,60,well", "row 2"), ("m,60", "must have 3 values a row; row 2 has 2")],
)  # fmt: skip
def test_a_csv_file_that_does_not_fit_is_told_by_row_and_column(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(f"sex,age,class\n{text}\n")
    with pytest.raises(DataError, match=told) as error:
        rows(TABLE, tmp_path / "mine.csv")
    assert "\n" not in str(error.value)
    (tmp_path / "mine.csv").write_text("sex,age\nm,60\n")
    with pytest.raises(DataError, match="y-column must be a column of labels"):
        rows(TABLE, tmp_path / "mine.csv")


def test_arrays_are_taken_with_labels_by_name_or_number(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.arange(6.0).reshape(3, 2), y=np.array(["b", "a", "c"]))
    assert rows(NUMBERS, tmp_path / "mine.npz").y.tolist() == [1, 0, 2]
    np.savez(tmp_path / "wide.npz", x=np.ones((2, 5)), y=np.array([0, 1]))
    with pytest.raises(DataError, match="as the model was trained on"):
        rows(Inputs((2,), False, (), (), None, ("0", "1")), tmp_path / "wide.npz")


def test_a_folder_of_images_by_class(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, grey in (("dog", 200), ("cat", 10)):
        (tmp_path / name).mkdir()
        image.new("L", (4, 4), grey).save(tmp_path / name / "1.png")
    found = rows(PICTURES, tmp_path)
    assert found.x.shape == (2, 1, 4, 4)
    assert found.x.dtype == torch.uint8
    assert found.y.tolist() == [0, 1]
    (tmp_path / "horse").mkdir()
    image.new("L", (4, 4)).save(tmp_path / "horse" / "1.png")
    with pytest.raises(DataError, match="must hold classes of the model, cat, dog; got 'horse'"):
        rows(PICTURES, tmp_path)


def test_a_node_says_at_its_start_which_files_of_its_data_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("dog", "cat"):
        (tmp_path / "own" / name).mkdir(parents=True)
        image.new("L", (4, 4)).save(tmp_path / "own" / name / "1.png")
    (tmp_path / "inputs.json").write_text(inputs_text(PICTURES, ()))
    content = {"method": "fedavg", "clients": 2, "model": "logistic", "flower.own-data": True}
    own = {"client": 0, "data": str(tmp_path / "own"), "state": str(tmp_path / "state")}

    def said() -> list[str]:
        caplog.clear()
        serve._node.cache_clear()
        with caplog.at_level("INFO", "flwr"):
            serve._node(json.dumps([content, own, str(tmp_path), None]), serve.experiment_of)
        return caplog.messages

    assert said() == []
    for name in ("notes.txt", "more.txt", "scan.dcm"):
        (tmp_path / "own" / "dog" / name).write_text("no picture")
    assert said() == ["fedskew: client 0: 1 file left out: ends in .dcm; 2 files left out: ends in .txt"]


def test_a_function_returns_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_rows_of_a_node.py").write_text(
        "import numpy as np\ndef pair(): return np.ones((3, 2)), ['a', 'c', 'b']\ndef wrong(): return 3\n"
    )
    assert rows(NUMBERS, "own_rows_of_a_node:pair").y.tolist() == [0, 2, 1]
    with pytest.raises(DataError, match=r"must return \(x, y\); got int"):
        rows(NUMBERS, "own_rows_of_a_node:wrong")
    with pytest.raises(DataError, match="data must name a function as module:function"):
        rows(NUMBERS, "own_rows_of_a_node:lost")
    with pytest.raises(DataError, match="data must be a csv, npz or parquet file"):
        rows(NUMBERS, tmp_path / "nowhere.csv")


def test_rows_are_kept_for_the_nodes_own_test(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.arange(40.0).reshape(20, 2), y=np.array(["a", "b"] * 10))
    found = rows(NUMBERS, tmp_path / "mine.npz", local_test=0.25)
    assert (len(found.y), len(found.y_test)) == (15, 5)
    fed = found.federation(1, 3)
    assert fed.local_test_rows(1).tolist() == [15, 16, 17, 18, 19]
    assert torch.equal(fed.dataset.x[15:], found.x_test)


@pytest.mark.parametrize("kind", ["csv", "parquet", "function"])
def test_no_patient_is_on_both_sides_of_a_nodes_own_test(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, n = np.random.default_rng(0), 60
    patient, age, sex = draw.integers(0, 20, n), np.arange(n) + 0.5, draw.choice(["f", "m"], n)
    label = draw.choice(["ill", "well"], n)
    columns = {"patient": patient, "age": age, "sex": sex, "class": label}
    data = str(tmp_path / f"mine.{kind}")
    if kind == "csv":
        cells = zip(*columns.values(), strict=True)
        Path(data).write_text("\n".join([",".join(columns), *(",".join(map(str, row)) for row in cells)]))
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), data)
    else:
        monkeypatch.syspath_prepend(tmp_path)
        np.savez(tmp_path / "mine.npz", **columns)
        (tmp_path / "patients_of_a_node.py").write_text(
            f"import numpy as np\ndef rows():\n    d = dict(np.load({str(tmp_path / 'mine.npz')!r}))\n"
            "    return d, d.pop('class')\n"
        )
        data = "patients_of_a_node:rows"
    given = NodeOptions(client=0, data=data, local_test=0.25, y_column="class" if kind != "function" else "")
    raw = read_raw(TABLE, given, "patient")
    found, held = rows_of_node(TABLE, raw, given), raw.for_test(0.25)
    assert not set(patient[held]) & set(patient[~held]) and 12 <= held.sum() <= 18 == n * 0.3
    assert torch.equal(found.x_test[:, 0], torch.tensor((age[held] - 50) / 10, dtype=torch.float32))
    assert found.x.shape[1] == 3, "the patient is no feature"
    parted = rows_of_node(TABLE, read_raw(TABLE, given), given)
    assert len(parted.y_test) == 15 and np.array_equal(raw.for_test(0.25), held)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sex,age,class\nm,60,well\nf,45,ill\n", "must have the column 'patient' of split_by"),
        ("sex,age,class,patient\nm,60,well,1\nf,45,ill,\n", "column 'patient' must have a value in every row"),
        ("sex,age,class,patient\n" + "m,60,well,1\nf,45,ill,1\n" * 4, "values of split_by that a test of 2 rows"),
    ],
)
def test_patients_that_cannot_be_kept_apart_are_an_error(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(text)
    given = NodeOptions(client=0, data=str(tmp_path / "mine.csv"), local_test=0.2)
    with pytest.raises(DataError, match=told):
        rows_of_node(TABLE, read_raw(TABLE, given, "patient"), given)
    np.savez(tmp_path / "mine.npz", x=np.ones((3, 2)), y=np.array(["a", "b", "c"]))
    with pytest.raises(DataError, match="must have the column 'patient' of split_by"):
        read_raw(NUMBERS, NodeOptions(client=0, data=str(tmp_path / "mine.npz")), "patient")


def test_what_an_app_says_of_its_inputs_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "inputs.json").write_text(inputs_text(TABLE, ("flip",)))
    assert inputs_of(tmp_path) == (TABLE, ("flip",))
    for text in ("", "{}", "[]", json.dumps({"inputs": {"shape": [0]}})):
        (tmp_path / "inputs.json").write_text(text)
        with pytest.raises(FedskewError, match=r"inputs.json must be what `fedskew flower init` writes|Inputs"):
            inputs_of(tmp_path)
    with pytest.raises(ConfigError, match="must be what `fedskew flower init` writes: FileNotFoundError"):
        inputs_of(tmp_path / "other")


# options


def test_the_apps_configuration_has_the_words_of_the_command() -> None:
    found = experiment_of({"method": "fedprox", "lr": 0.5, "parts.proximal.mu": 0.3, "clients": 4, "flower.out": "x",
                           "path": "", "partition": "shards"})  # fmt: skip
    expected = Experiment(methods.fedprox().with_("pace", lr=0.5).with_("proximal", mu=0.3), clients=4)
    assert found.method == expected.method
    assert (found.clients, found.partition.name) == (4, "shards")
    with pytest.raises(ConfigError, match=r"unknown option '--partition.alpah'; did you mean"):
        experiment_of({"method": "fedavg", "partition.alpah": 0.3})


@pytest.mark.parametrize(
    ("make", "given", "told"),
    [
        (node_options, {"allow": "histograms"}, "unknown word of allow 'histograms'; did you mean 'histogram'"),
        (node_options, {"alow": "all"}, "unknown key of the configuration 'alow'; did you mean 'allow'"),
        (node_options, {"client": "zero"}, "client must be"),
        (node_options, {"local-test": 1.0}, "local-test must be below 1; got 1.0"),
        (server_options, {"flower.missing": "skip"}, "flower.missing must be one of wait, drop, stop; got 'skip'"),
        (server_options, {"flower.wait": 3}, "unknown key of the configuration 'flower.wait'; did you mean"),
        (server_options, {"flower.wait-s": -1}, "flower.wait-s must be at least 0; got -1"),
    ],
)
def test_options_are_checked(make: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make(given)
    assert server_options({"flower.wait-s": 3}).wait_s == 3.0


def test_a_simulated_node_is_the_client_of_its_number(tmp_path: Path) -> None:
    found = node_options({"partition-id": 3, "num-partitions": 5}, "out/run")
    assert (found.client, found.state) == (3, "out/run/nodes")
    assert "histogram" in found.permits
    assert node_options({"client": 1}).permits == frozenset()
    assert node_options({"client": 1, "allow": "histogram"}).permits == {"histogram", "labels"}


# whole runs with data of the nodes' own


@pytest.mark.flower
def test_nodes_with_files_train_and_measure_on_rows_of_their_own(tmp_path: Path) -> None:

    config, nodes = own_data(tmp_path)
    found = served(tmp_path, config, nodes=nodes, app=tmp_path)
    last = found.rounds[-1]
    assert last["accuracy"] > 0.6
    assert sum(last["support"]) == 3 * 12
    assert found.predict(np.array([[3.0, 0.0]], np.float32)).tolist() == [1]
    # with test rows at the server they come first, and the nodes' own beside them
    np.savez(tmp_path / "test.npz", x=np.array([[0, 0], [3, 0], [0, 3.0]]), y=np.array(["a", "b", "c"]))
    more = {**config, "flower.test": str(tmp_path / "test.npz"), "flower.out": str(tmp_path / "more")}
    row = served(tmp_path, more, nodes=nodes, app=tmp_path).rounds[-1]
    assert sum(row["support"]) == 3
    assert row["local_accuracy"] == last["accuracy"]


@pytest.mark.flower
def test_an_apps_option_split_by_reaches_its_nodes(tmp_path: Path) -> None:
    lines = [f"{'mf'[i % 2]},{i},{('ill', 'well')[i % 2]},{i // 2}" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["sex,age,class,patient", *lines]))
    (tmp_path / "inputs.json").write_text(inputs_text(TABLE, ()))
    content = {"method": "fedavg", "clients": 2, "model": "logistic", "flower.own-data": True, "data": "csv"}
    own = {"client": 0, "data": str(tmp_path / "mine.csv"), "local-test": 0.2, "state": str(tmp_path / "state")}
    ages = []
    for more in ({}, {"data.split_by": "patient"}):
        node = serve._node(json.dumps([content | more, own, str(tmp_path), None]), serve.experiment_of)
        ages.append([round(float(x) * 10 + 50) for x in node.rows.x_test[:, 0]])  # type: ignore[union-attr]
    assert all(any(age // 2 == other // 2 for other in ages[1] if other != age) for age in ages[1]) and ages[1]
    assert not all(any(age // 2 == other // 2 for other in ages[0] if other != age) for age in ages[0])


@pytest.mark.flower
def test_the_commands_say_that_the_nodes_kept_their_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:

    config, nodes = own_data(tmp_path)
    served(tmp_path, {**config, "rounds": 1}, nodes=nodes, app=tmp_path)
    run = tmp_path / "run"
    assert fedskew("show", run) == 0
    assert "on the nodes' own rows: `sh run.sh`" in capfd.readouterr().out
    assert fedskew("run", "--from", run) == 2 and fedskew("evaluate", run) == 2
    assert capfd.readouterr().err.count("its nodes kept theirs") == 1
    assert fedskew("report", run, "--out", tmp_path / "page.html") == 0


@pytest.mark.flower
def test_somebody_must_be_able_to_measure(tmp_path: Path) -> None:
    config, nodes = own_data(tmp_path)
    shy = {k: {**node, "allow": "histogram"} for k, node in nodes.items()}
    with pytest.raises(ConfigError, match="somebody must have test rows that may be used; got none"):
        served(tmp_path, config, nodes=shy, app=tmp_path)
    assert not (tmp_path / "run").exists()


@pytest.mark.flower
def test_a_node_whose_labels_are_others_is_refused_with_its_file_and_row(tmp_path: Path) -> None:

    config, nodes = own_data(tmp_path)
    np.savez(tmp_path / "1.npz", x=np.ones((3, 2), np.float32), y=np.array(["a", "d", "b"]))
    with pytest.raises(ConfigError, match="its data do not fit; the node's own log says more"):
        served(tmp_path, config, nodes=nodes, app=tmp_path)  # what is in a node's file is not told to others
    nodes[1]["trace"] = True
    with pytest.raises(ConfigError, match=r"y of .*1.npz must hold classes of the model, a, b, c; got 'd' in row 1"):
        served(tmp_path, config, nodes=nodes, app=tmp_path)


@pytest.mark.parametrize(
    "change", [{"data": "csv"}, {"path": "/etc/passwd"}, {"data.path": "x"}, {"partition.path": "y"}, {"from": "z"},
               {"model.path": ""}, {"model.path": "/a/model"}, {"model.revision": "main"}],
)  # fmt: skip
def test_a_run_names_no_other_data_or_model_than_the_app(change: dict[str, str], tmp_path: Path) -> None:
    """A node without data of its own reads those that the configuration names, which the server may change."""
    lines = ["[tool.flwr.app.config]", "data = 'digits'", "lr = 0.1", "'model.path' = 'my-bert'"]
    (tmp_path / "pyproject.toml").write_text("\n".join(lines))
    (tmp_path / "app").mkdir()
    content = {"method": "fedavg", "data": "digits", "lr": 0.5, "clients": 4, "model.path": "my-bert"}
    check_data(content, tmp_path / "app")
    with pytest.raises(ConfigError, match=rf"^{next(iter(change))} must be .*, as in the app of this node; got"):
        serve._node(json.dumps([content | change, {"client": 0}, str(tmp_path / "app"), None]), serve.experiment_of)
