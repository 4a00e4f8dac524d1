"""A trained model predicts for rows that it never saw as it did in its run, also when it comes from a folder."""

from __future__ import annotations

import csv
import json
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.data import load
from fedskew.errors import ConfigError, DataError, RecordError
from fedskew.methods import METHODS
from support.federations import small_digits
from support.methods import BY_HOOK
from support.old_format import as_format_1


def digits(auxiliary: int = 0) -> Any:
    return fs.federate("digits", fs.partitioners.Dirichlet(0.5), clients=6, seed=1, auxiliary=auxiliary)


@pytest.mark.parametrize("method", BY_HOOK)
def test_every_method_s_final_model_gives_the_metrics_of_its_last_round(method: str, tmp_path: Path) -> None:
    """The model that is evaluated is the one that is kept: CReFF's head, MOON's projection, and so on."""
    made = METHODS[method]()
    fed = digits(max(c.auxiliary for c in made.components))
    result = fs.run(fed, made, model="logistic", rounds=2, cohort=3, out=tmp_path / "a")
    trained = fs.load_model(tmp_path / "a")
    for model in (trained, result.trained):
        found = model.evaluate(fed.dataset)
        last = result.rounds[-1]
        assert found["loss"] == last["loss"] and found["per_class_recall"] == last["per_class_recall"]
    assert trained.label_names == tuple(map(str, range(10)))


@pytest.mark.parametrize("options", [{"dtype": "float64"}, {"precision": "bfloat16"}, {"dtype": "bfloat16"}])
@pytest.mark.parametrize("model", ["mlp", fs.models.MLP(hidden=7), "pfllib_cnn"])
def test_network_options_dtype_and_precision_come_back(options: dict, model: Any, tmp_path: Path) -> None:
    data = small_digits()
    if model == "pfllib_cnn":
        x = [torch.nn.functional.pad(part, (10, 10, 10, 10)) for part in (data.x, data.x_test)]
        data = fs.from_arrays(x[0], data.y, x[1], data.y_test, mean=(0.3,), std=(0.4,))
    fed = fs.federate(data, fs.partitioners.Iid(), clients=3)
    result = fs.run(fed, METHODS["fedavg"](), model=model, rounds=1, cohort=2, out=tmp_path / "a", **options)
    assert fs.load_model(tmp_path / "a").evaluate(fed.dataset)["loss"] == result.rounds[-1]["loss"]


def patients(folder: Path) -> Path:
    draw = np.random.default_rng(0)
    lines = ["age,sex,pressure,client,label"]
    for i in range(80):
        ill, age = i % 3 == 0, 40 + 20 * (i % 3 == 0) + draw.normal() * 5
        lines.append(f"{age:.1f},{'fm'[i % 2]},{draw.normal() * 8 + 120:.1f},s{i % 2},{'ill' if ill else 'well'}")
    (folder / "patients.csv").write_text("\n".join(lines))
    return folder / "patients.csv"


@pytest.fixture
def run(tmp_path: Path) -> tuple[fs.Result, Any]:
    fed = fs.federate("csv", "natural", path=str(patients(tmp_path)), categories="sex")
    return fs.run(fed, METHODS["fedavg"](), model="logistic", rounds=3, out=tmp_path / "run"), fed


def test_raw_columns_of_a_new_patient_get_the_training_rows_standardisation(run: Any, tmp_path: Path) -> None:
    result, fed = run
    with open(tmp_path / "patients.csv") as file:
        rows = list(csv.DictReader(file))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    encoding = fed.dataset.encoding
    whole = torch.from_numpy(encoding.encode(columns, "t"))
    both = torch.cat([fed.dataset.x, fed.dataset.x_test])
    assert {tuple(r) for r in whole.tolist()} == {tuple(r) for r in both.tolist()}  # bit for bit
    trained = fs.load_model(result.folder)
    assert torch.equal(trained.probabilities(columns), result.probabilities(columns))
    assert torch.equal(trained.probabilities(columns), trained.probabilities(whole, encoded=True))
    one = {name: values[:1] for name, values in columns.items()}  # its own mean and deviation play no part
    assert torch.allclose(trained.probabilities(one), trained.probabilities(columns)[:1])
    numbers = {**one, "age": np.array([float(one["age"][0])]), "pressure": torch.tensor([float(one["pressure"][0])])}
    assert torch.allclose(trained.probabilities(numbers), trained.probabilities(one))
    assert [trained.label_names[c] for c in trained.predict(columns)].count("ill") > 0


MISTAKES: dict[str, tuple[Any, str]] = {
    "a column": ({"age": [50]}, "x must have the column 'sex'"),
    "a category": ({"age": [5], "sex": ["x"], "pressure": [1]}, "column 'sex' must hold one of its categories, f, m"),
    "a missing value": ({"age": [5, None], "sex": ["f", "m"], "pressure": [1, 2]}, "'age' must have a number in"),
    "a word": ({"age": ["old"], "sex": ["f"], "pressure": [1]}, "column 'age' must hold numbers; row 0 has 'old'"),
    "lengths": ({"age": [5, 6], "sex": ["f"], "pressure": [1]}, "columns of one length; got 1, 2"),
    "no names": (np.zeros((2, 4)), "x must be columns by name, {'age', 'sex', 'pressure', ...: values}"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_row_that_does_not_fit_is_one_line(case: str, run: Any) -> None:
    x, expected = MISTAKES[case]
    frame = x  # as much of a pandas frame as is read
    if isinstance(x, dict):
        frame = UserDict({name: np.array(column, dtype=object) for name, column in x.items()})
    for given in (x, frame):
        with pytest.raises(DataError) as error:
            run[0].predict(given)
        assert expected in str(error.value) and "\n" not in str(error.value)


def test_labels_are_the_model_s_classes_by_name(run: Any) -> None:
    x = {"age": [50, 70], "sex": ["f", "m"], "pressure": [120, 130]}
    found = run[0].trained.evaluate(x, ["ill", "well"])
    assert found["support"] == [1, 1] and 0 <= found["accuracy"] <= 1
    for y, expected in (
        (["ill", "dead"], "classes of the model, ill, well; got 'dead' in row 1"),
        (["ill", ""], "row 1 ha"),
    ):
        with pytest.raises(DataError, match=expected):
            run[0].trained.evaluate(x, y)
    with pytest.raises(ConfigError, match="y must hold the label of each row"):
        run[0].trained.evaluate(x)
    with pytest.raises(DataError, match="same number of rows; got 2 and 1"):
        run[0].trained.evaluate(x, ["ill"])


def test_images_are_normalised_as_in_training(tmp_path: Path) -> None:
    fed = fs.federate("digits", "iid", clients=3, normalize="channel")
    result = fs.run(fed, METHODS["fedavg"](), model="logistic", rounds=2, cohort=3)
    plain = load("digits")  # without normalisation
    assert torch.equal(result.predict(plain.x_test), result.predict(fed.dataset.x_test))
    assert float((result.predict(plain.x_test) == plain.y_test).double().mean()) == result.rounds[-1]["accuracy"]
    with pytest.raises(
        DataError, match=r"x must be uint8 images of shape \(1, 8, 8\), as the model was trained on; got"
    ):
        result.predict(np.zeros((2, 9, 9), np.uint8))
    with pytest.raises(DataError, match="must be uint8 images"):
        result.predict(np.zeros((2, 1, 8, 8)))
    with pytest.raises(DataError, match="the model has no columns by name"):
        result.predict({"age": [1]})


def test_other_classes_are_refused_and_a_subset_by_name_is_not() -> None:
    two = fs.federate("digits", "iid", clients=3, classes=(6, 0))
    trained = fs.run(two, METHODS["fedavg"](), model="logistic", rounds=1, cohort=3).trained
    with pytest.raises(
        DataError, match="'digits' has the class '1', which the model was not trained on; it knows 6, 0"
    ):
        trained.evaluate(load("digits"))
    assert trained.evaluate(load("digits", classes=(0, 6))) == trained.evaluate(two.dataset)


class Net(nn.Module):
    """A network of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.fc = nn.Flatten(), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.flat(x))


def test_a_network_of_one_s_own_is_given_again(tmp_path: Path) -> None:
    """Without the head that a method put into it."""
    fed = digits()
    for out, method, head in (("a", "fedavg", "fc"), ("b", "moon", "fc"), ("c", "moon", None)):
        made = METHODS[method](**({"projection": 8} if method == "moon" else {}))
        result = fs.run(fed, made, model=Net(), head=head, rounds=1, cohort=3, out=tmp_path / out)
        assert fs.load_model(tmp_path / out, Net()).evaluate(fed.dataset)["loss"] == result.rounds[-1]["loss"]
    with pytest.raises(ConfigError, match=r"model must be given: the run .* trained a network of your own, Net"):
        fs.load_model(tmp_path / "a")
    with pytest.raises(RecordError, match=r"must have 'hidden1.weight' of shape"):
        fs.load_model(tmp_path / "a", fs.models.MLP())


class Drawn(nn.Module):
    """A buffer that no state dict has, drawn anew by each module."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.register_buffer("drawn", torch.randn(4), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.head(x * self.drawn)


class Tied(nn.Module):
    def __init__(self, frozen: bool = True, tied: bool = True) -> None:
        super().__init__()
        self.still, self.a, self.b = (nn.Linear(4, 4, bias=False) for _ in range(3))
        self.norm, self.head = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("mask", torch.tensor([True, True, False, True]))
        self.still.requires_grad_(not frozen)
        if tied:
            self.b.weight = self.a.weight

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(torch.relu(self.b(torch.relu(self.a(self.still(x * self.mask)))))))


@pytest.fixture(scope="module")
def rows() -> fs.data.Federation:
    gen = np.random.default_rng(0)
    return fs.federate(fs.from_arrays(gen.normal(size=(91, 4)).astype("float32"), np.arange(91) % 3), "iid", clients=3)


def test_a_buffer_that_is_not_saved_must_be_the_runs(rows: fs.data.Federation, tmp_path: Path) -> None:
    net, out = Drawn(), tmp_path / "a"
    done = fs.run(rows, fs.methods.fedavg(), model=net, head="head", rounds=1, out=out)
    x = rows.dataset.x_test
    assert torch.equal(fs.load_model(out, model=net).probabilities(x), done.probabilities(x))
    with pytest.raises(ConfigError, match="model must have the non-persistent buffers that the run had; got others"):
        fs.load_model(out, model=Drawn())
    with pytest.raises(RecordError, match="resume must continue the same run; non_persistent was"):
        fs.run(rows, fs.methods.fedavg(), model=Drawn(), head="head", rounds=2, out=out, resume=True)
    fs.run(rows, fs.methods.fedavg(), model=net, head="head", rounds=2, out=out, resume=True)


@pytest.mark.parametrize("make", [Drawn, Tied, lambda: nn.Sequential(nn.Linear(4, 3))])
def test_trained_values_go_into_the_users_network(make: Any, rows: fs.data.Federation) -> None:
    net = make()
    done = fs.run(rows, fs.methods.fedavg(), model=net, rounds=2)
    done.load_into(net)
    found = net.eval()(rows.dataset.x_test).double().softmax(1)
    assert torch.allclose(found, done.probabilities(rows.dataset.x_test), atol=1e-6)


def test_a_network_into_which_they_do_not_fit_stays_as_it_is(rows: fs.data.Federation) -> None:
    net = Tied()
    done = fs.run(rows, fs.methods.fedavg(), model=net, rounds=1)
    untied = Tied(tied=False)
    for name in ("still", "a", "b"):
        getattr(untied, name).load_state_dict(getattr(net, name).state_dict())
    wrong = {
        "have 'a.weight' of shape": nn.Sequential(nn.Linear(4, 3)),
        "have the 'still.weight' that the run had, which it did not train; got 'another'": Tied(),
        "have the 'b.weight' that the run had, which it did not train; got 'one that the run lacked'": untied,
    }
    for told, other in wrong.items():
        before = {name: leaf.clone() for name, leaf in other.state_dict().items()}
        with pytest.raises(ConfigError, match=f"module must {told}"):
            done.load_into(other)
        assert all(torch.equal(leaf, before[name]) for name, leaf in other.state_dict().items())


def test_a_folder_without_a_final_model_is_one_line(run: Any, tmp_path: Path) -> None:
    folder = run[0].folder
    with pytest.raises(RecordError, match=r"run must be a run folder; got .*, which is no folder"):
        fs.load_model(tmp_path / "nowhere")
    (folder / "model.json").write_text("{}")
    with pytest.raises(RecordError, match=r"model.json was altered .*; resume the run, which writes it again"):
        fs.load_model(folder)
    as_format_1(folder)
    (folder / "model.json").write_text(json.dumps({"format": 9, "round": 1, "data": {"fingerprint": ""}}))
    with pytest.raises(RecordError, match="must be of format 1"):
        fs.load_model(folder)
    (folder / "model.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(RecordError, match="is damaged: 'round' is missing"):
        fs.load_model(folder)
    (folder / "final.safetensors").unlink()
    (folder / "summary.json").unlink()
    with pytest.raises(RecordError, match=r"has no final model and model.json; it has not ended: resume it"):
        fs.load_model(folder)


DIVIDED: dict[str, Any] = {"clients": 5, "seed": 4, "validation": 0.2, "local_test": 0.2}
OTHERS: dict[str, dict[str, Any]] = {
    "another seed": {"seed": 9}, "another share for validation": {"validation": 0.1},
    "another share for the local test": {"local_test": 0.1}, "another partition": {"partition": "iid"},
    "other clients": {"clients": 4}, "held-out clients": {"heldout_clients": 0.2}, "a tail": {"longtail": 10.0},
    "auxiliary rows": {"auxiliary": 2}, "other data": {"data": "blobs"},
}  # fmt: skip


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> tuple[fs.Result, Any]:
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), **DIVIDED)
    folder = tmp_path_factory.mktemp("divided") / "run"
    return fs.run(fed, METHODS["fedavg"](), model="logistic", rounds=1, seed=4, out=folder), fed


@pytest.mark.parametrize("case", OTHERS)
def test_rows_of_a_federation_that_is_divided_otherwise_are_refused(case: str, divided: Any) -> None:
    """They may have trained the model: 79 % of the validation rows of another seed have."""
    result, fed = divided
    given: dict[str, Any] = {**DIVIDED, "data": "digits", "partition": fed.partitioner} | OTHERS[case]
    if given["data"] == "blobs":
        x = fed.dataset.x + 1
        given["data"] = fs.data.from_arrays(x, fed.dataset.y, fed.dataset.x_test, fed.dataset.y_test, name="blobs")
    other = fs.federate(given.pop("data"), given.pop("partition"), **given)
    for trained in (result.trained, fs.load_model(result.folder)):
        decision = trained.decide(fed, "prevalence", "8")
        doors: dict[str, Any] = {
            "decide": lambda t=trained: t.decide(other, "prevalence", "8"),
            **{on: lambda t=trained, on=on, d=decision: t.evaluate_decision(other, d, on=on)
               for on in ("validation", "train", "local", *(() if case == "other data" else ("test",)))},
        }  # fmt: skip
        for door, ask in doors.items():
            with pytest.raises(
                fs.ConfigError, match="fed must be the federation that the model was trained on"
            ) as error:
                ask()
            assert "\n" not in str(error.value), door


def test_the_same_split_made_again_is_taken_and_so_are_test_rows_of_other_data(divided: Any, tmp_path: Path) -> None:
    result, fed = divided
    trained = fs.load_model(result.folder)
    again = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), **DIVIDED)
    fs.data.save_partition(tmp_path / "split.npz", fed)
    decision = trained.decide(again, "prevalence", "8")
    assert decision == trained.decide(fs.federate("digits", tmp_path / "split.npz"), "prevalence", "8")
    data = fed.dataset
    shifted = fs.data.from_arrays(data.x, data.y, data.x_test[:50], data.y_test[:50], name="elsewhere")
    elsewhere = fs.federate(shifted, "iid", clients=2)
    assert trained.evaluate_decision(elsewhere, decision)["rows"] == 50
