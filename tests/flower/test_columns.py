"""Scale and categories of columns from the rows of all nodes: sums and sets leave a node, and no row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedskew as fs
from fedskew.config.experiment import load as load_experiment
from fedskew.data.arrays import Dataset
from fedskew.data.encoding import Column, Encoding
from fedskew.data.inputs import Inputs
from fedskew.data.sources.delimited import Csv
from fedskew.errors import ConfigError, RecordError
from fedskew.fields import untyped
from fedskew.flower.columns import MOST, column_facts, encoding_of, inputs_with, pooled_inputs
from fedskew.flower.declared import Hello
from fedskew.flower.options import experiment_of
from fedskew.flower.rows import RawRows, inputs_text
from fedskew.flower.wire import Envelope, pack, read, record
from support.flower_grid import bits, config, heard, plain, served

pytestmark = pytest.mark.flower
WARDS = (("north", "south"), ("south", "west", "east"), ("north",))  # of each node


def lines_of(k: int, n: int, filled: bool) -> list[str]:
    """Rows of a node; of the example where k is -1. Values lie far from 0, and no two nodes have one scale."""
    draw = np.random.default_rng(k + 10)
    age, dose = draw.normal(50 + 5 * k, 5 + k, n), 20_000 + draw.normal(0, 1 + k, n)
    sex, ward = draw.choice(["f", "m"], n), draw.choice(WARDS[k], n)
    label = np.where(age + 8 * (sex == "m") + draw.normal(0, 5, n) > 55, "ill", "well")
    cells = [[f"{a:.2f}", f"{d:.4f}", "7", s, w, y] for a, d, s, w, y in zip(age, dose, sex, ward, label, strict=True)]
    if filled:
        for row, column in ((1, 0), (4, 1), (6, 4)):
            cells[row][column] = ""
    return [",".join(row) for row in cells]


HEAD = "age,dose,always,sex,ward,label"


def app_of(tmp_path: Path, filled: bool = False, **options: Any) -> tuple[Csv, dict[str, Any], dict[int, Any]]:
    """(source, configuration, nodes) of an app with 3 nodes, an example, and test rows at the server."""
    source = Csv(categories="sex,ward", missing="fill" if filled else "refuse")
    (tmp_path / "example.csv").write_text("\n".join([HEAD, *lines_of(-1, 40, filled)]))
    inputs = Inputs.of(source.load(str(tmp_path / "example.csv")))
    (tmp_path / "inputs.json").write_text(inputs_text(inputs, ()))
    rows = {k: lines_of(k, 20 + 10 * k, filled) for k in range(3)}
    for k, lines in rows.items():
        (tmp_path / f"{k}.csv").write_text("\n".join([HEAD, *lines]))
    (tmp_path / "pooled").mkdir(exist_ok=True)
    train = [f"{line},{k}" for k, lines in rows.items() for line in lines]
    (tmp_path / "pooled" / "train.csv").write_text("\n".join([f"{HEAD},client", *train]))
    test = "\n".join([f"{HEAD},client", *(f"{line},0" for line in lines_of(0, 30, False))])
    for place in ("pooled/test.csv", "test.csv"):
        (tmp_path / place).write_text(test)
    content = {
        "method": "fedla", "clients": 3, "cohort": 3, "rounds": 2, "model": "logistic", "checkpoint-every": 1,
        "data": "csv", "data.categories": "sex,ward", "data.missing": source.missing,
        "flower.out": str(tmp_path / "run"), "flower.own-data": True, "flower.encoding": "nodes",
        "flower.test": str(tmp_path / "test.csv"), "flower.poll-s": 0.01, "flower.wait-s": 0.2, **options,
    }  # fmt: skip
    return source, content, {k: {"data": str(tmp_path / f"{k}.csv")} for k in range(3)}


@pytest.mark.parametrize("filled", [False, True])
def test_it_is_the_encoding_of_the_pooled_table_and_trains_as_it(filled: bool, tmp_path: Path) -> None:
    source, content, nodes = app_of(tmp_path, filled)
    told: list[Envelope] = []
    found = served(tmp_path, content, nodes=nodes, app=tmp_path, lie=heard(told))
    made, pooled = found.trained.inputs.encoding, source.load(str(tmp_path / "pooled"))
    example = json.loads((tmp_path / "inputs.json").read_text())["inputs"]["encoding"]["columns"]
    for one, two, first in zip(made.columns, pooled.encoding.columns, example, strict=True):
        assert one.values == two.values and (one.name == "ward") == (one.values != tuple(first["values"]))
        assert one.missing == first["missing"]  # what fills is the example's: a median is no sum
        if filled and one.number and one.name != "always":
            continue
        assert one.mean == pytest.approx(two.mean, rel=1e-12) and one.std == pytest.approx(two.std, rel=1e-9)
    assert made.columns[2].std == 1.0 and made.columns[2].mean == 7.0
    # training is that of the simulated run on the pooled table with this encoding
    table, tests = source.tables(str(tmp_path / "pooled"))[1]
    x, x_test = (torch.from_numpy(made.encode(part.columns, "pooled", notes=[])) for part in (table, tests))
    data: Dataset = replace(pooled, x=x, x_test=x_test, encoding=made)
    if filled:  # by the example's values: the mean is then 0 to rounding, as of any standardised column
        numbers = x[:, [0, 1]].double()
        assert numbers.mean(0).abs().max() < 1e-5 and (numbers.std(0, correction=0) - 1).abs().max() < 1e-5
    fed = fs.federate(data, fs.partitioners.Natural(), seed=0)
    alone = experiment_of({n: v for n, v in content.items() if not n.startswith(("flower.", "data"))})
    expected = fs.run(fed, alone.method, alone.settings, model="logistic", engine="sequential")
    assert bits(found) == bits(expected) and plain(found.rounds)[-1]["loss"] == plain(expected.rounds)[-1]["loss"]
    # what a node has said: sums and categories of its rows, once
    first = [one.facts for one in told if "columns" in one.facts]
    assert len(first) == 3 and {name for facts in first for name in facts["columns"]} == set(HEAD.split(",")[:-1])
    assert first[1]["columns"]["ward"] == {"values": sorted(WARDS[1])}
    assert all(set(part) in ({"sum", "squares"}, {"values"}) for facts in first for part in facts["columns"].values())


def test_rows_for_a_nodes_own_test_are_in_no_sum(tmp_path: Path) -> None:
    _, content, nodes = app_of(tmp_path)
    told: list[Envelope] = []
    held = {k: {**node, "local-test": 0.25} for k, node in nodes.items()}
    found = served(tmp_path, content, nodes=held, app=tmp_path, lie=heard(told))
    first = [one.facts for one in told if "columns" in one.facts]
    assert [(facts["rows"], facts["test_rows"]) for facts in first] == [(15, 5), (22, 8), (30, 10)]
    column, number = found.trained.inputs.encoding.columns[0], sum(facts["rows"] for facts in first)
    shift = json.loads((tmp_path / "inputs.json").read_text())["inputs"]["encoding"]["columns"][0]["mean"]
    total = sum(float.fromhex(facts["columns"]["age"]["sum"]) for facts in first)
    assert column.mean == pytest.approx(shift + total / number)


def test_a_run_goes_on_with_its_encoding_and_with_no_other(tmp_path: Path) -> None:
    _, content, nodes = app_of(tmp_path)
    whole = served(tmp_path, {**content, "rounds": 3, "flower.out": str(tmp_path / "whole" / "run")}, nodes=nodes,
                   app=tmp_path)  # fmt: skip
    served(tmp_path, content, nodes=nodes, app=tmp_path)
    told: list[Envelope] = []
    found = served(tmp_path, {**content, "rounds": 3}, nodes=nodes, app=tmp_path, lie=heard(told))
    assert bits(found) == bits(whole) and not [one for one in told if "columns" in one.facts]
    with pytest.raises(ConfigError, match=r"flower.encoding must be nodes, that of the run in .*run; got 'example'"):
        served(tmp_path, {**content, "flower.encoding": "example", "rounds": 4}, nodes=nodes, app=tmp_path)
    with pytest.raises(RecordError, match="whose nodes kept their rows"):
        load_experiment(tmp_path / "run")
    model = fs.load_model(tmp_path / "run")
    assert model.inputs.encoding.columns[4].values == ("east", "north", "south", "west")


def test_a_node_may_refuse(tmp_path: Path) -> None:
    _, content, nodes = app_of(tmp_path)
    nodes[1] |= {"allow": "histogram", "name": "ours"}
    with pytest.raises(ConfigError, match=r"client 1.* must agree with the server: this node does not allow columns"):
        served(tmp_path, content, nodes=nodes, app=tmp_path)
    assert not (tmp_path / "run").exists()
    found = served(tmp_path, {**content, "flower.bad": "drop", "flower.missing": "drop"}, nodes=nodes, app=tmp_path)
    assert found.rounds[-1]["clients"] == [0, 2]
    assert found.trained.inputs.encoding.columns[4].values == ("north", "south"), "none of the node that refused"


WRONG: tuple[Any, ...] = ("north", ["a", "a"], [""], ["x" * 201], [3], [str(i) for i in range(MOST + 1)])


def altered(change: Callable[[dict[str, Any]], object]) -> Any:
    """A lie: what node 1 tells of its columns is changed."""

    def lie(client: int, content: Any) -> Any:
        envelope = read(content)
        if client != 1 or "columns" not in envelope.facts:
            return content
        facts = json.loads(json.dumps(envelope.facts))
        change(facts["columns"])
        return record(facts, sent=pack({}))

    return lie


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"other": {}}, "they must be"), ({"age": 3}, "age must be a table"),
        ({"age": {"sum": "nan", "squares": "0x1p0"}}, "sum must be a finite number"),
        ({"age": {"sum": "0x1p1023", "squares": "0x1p1023"}}, "sums must be of 30 numbers"),
        ({"age": {"sum": "0x1p0", "squares": "-0x1p0"}}, "sums must be of 30 numbers"),
        ({"age": {"sum": "0x1p10", "squares": "0x1p0"}}, "sums must be of 30 numbers"),
        *[({"ward": {"values": values}}, "categories must be") for values in WRONG],
        ({"ward": {}}, "categories must be"), ({"ward": {"values": ["\ud800"]}}, "half of a surrogate pair"),
    ],
)  # fmt: skip
def test_what_cannot_be_true_is_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    _, content, nodes = app_of(tmp_path)
    lie = altered(lambda columns: columns.update(changes))
    with pytest.raises(ConfigError, match=f"client 1.* must tell of its columns what was asked for: .*{told}") as error:
        served(tmp_path, content, nodes=nodes, app=tmp_path, lie=lie)
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


def test_a_column_has_no_end_of_categories_by_many_nodes(tmp_path: Path) -> None:
    _, content, nodes = app_of(tmp_path)
    lie = altered(lambda c: c.update(ward={"values": [str(i) for i in range(MOST)]}))
    with pytest.raises(ConfigError, match=f"'ward' must have 1 to {MOST} categories at all nodes together; got 1002"):
        served(tmp_path, content, nodes=nodes, app=tmp_path, lie=lie)


COLUMNS = (
    Column("age", mean=50.0, std=10.0), Column("sex", ("f", "m")), Column("grade", ("low", "high"), ordered=True),
)  # fmt: skip
OURS = Inputs((4,), False, (), (), Encoding(COLUMNS, label="y"), ("ill", "well"))


@pytest.mark.parametrize("change", [None, [], {"columns": []}, {"label": "age"}, {"single": False}])
def test_a_node_takes_an_encoding_of_the_apps_alone(change: Any) -> None:
    content = untyped(OURS.encoding)
    with pytest.raises(ConfigError, match="the server's encoding must be"):
        inputs_with(OURS, {**content, **change} if change else change)


@pytest.mark.parametrize(
    ("at", "field", "value"),
    [(0, "name", "weight"), (0, "std", 0.0), (0, "std", math.nan), (0, "mean", math.inf), (0, "missing", 3.0),
     (0, "more", 1), (1, "values", []), (1, "values", ["f", "f"]), (1, "values", ["f", ""]), (1, "values", [[]]),
     (1, "unseen", ["f"]), (2, "values", ["high", "low"]), (2, "ordered", False)],
)  # fmt: skip
def test_a_node_takes_an_encoding_of_the_apps_columns_alone(at: int, field: str, value: Any) -> None:
    content = json.loads(json.dumps(untyped(OURS.encoding)))
    content["columns"][1]["values"] = ["f", "m", "x"]
    assert inputs_with(OURS, content).shape == (5,)
    content["columns"][at][field] = value
    with pytest.raises(ConfigError, match="the server's encoding must be") as error:
        inputs_with(OURS, content)
    assert "\n" not in str(error.value)


def test_before_there_is_an_encoding_a_node_answers_a_hello_alone(tmp_path: Path) -> None:
    from fedskew.flower import serve

    _, content, nodes = app_of(tmp_path)
    own = {"client": 0, "allow": "all", "state": str(tmp_path / "state"), **nodes[0]}
    node = serve._node(json.dumps([content, own, str(tmp_path), None]), serve.experiment_of)
    for kind, contract in (("train", {}), (None, {}), ("hello", 3)):
        with pytest.raises(ConfigError, match="must be"):
            node.answer(Envelope({"kind": kind, "contract": contract}, {}))
    assert node.answer(Envelope({"kind": "hello", "contract": {"columns": "other"}}, {}))[0]["fatal"] is True


def test_an_app_without_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"flower.encoding must be example where the app's inputs are no columns"):
        inputs_with(Inputs((2,), False, (), (), None, ("a", "b")), {})
    content = config(tmp_path, **{"flower.encoding": "nodes"})
    with pytest.raises(ConfigError, match=r"flower.encoding must be example where nodes hold the app's dataset"):
        served(tmp_path, content)


def test_spellings_of_one_category_at_two_nodes_are_one_and_sums_keep_what_float32_drops(tmp_path: Path) -> None:
    seconds = 1.7e9 + np.arange(40) / 8
    rows = {"t": seconds, "ward": ["1", "2"] * 20, "label": ["ill", "well"] * 20}
    inputs = Inputs.of(fs.from_table(rows, categories="ward"))
    encoding = encoding_of(inputs)
    told = []
    for spelling in ("{}", "{}.0"):
        node = {"t": [*map(repr, seconds.tolist())], "ward": [spelling.format(i % 4) for i in range(40)]}
        raw = RawRows("node", node, torch.zeros(40, dtype=torch.int64))
        facts = {"rows": 40, "columns": column_facts(encoding, raw, np.zeros(40, bool))}
        told.append(Hello(len(told), len(told), facts))
    made = pooled_inputs(inputs, told).encoding
    assert made is not None and made.columns[1].values == ("0", "1", "2", "3")
    assert made.columns[0].mean == pytest.approx(seconds.mean(), abs=1e-6)
    assert made.columns[0].std == pytest.approx(seconds.std(), rel=1e-6)
    assert made.encode({"t": seconds[:1], "ward": ["03"]}, "x").tolist()[0][1:] == [0, 0, 0, 1]
    raw = RawRows("node", {"t": seconds, "ward": ["NA"] * 40}, torch.zeros(40, dtype=torch.int64))
    with pytest.raises(fs.DataError, match="'NA', which may mean no value"):
        column_facts(encoding, raw, np.zeros(40, bool))
