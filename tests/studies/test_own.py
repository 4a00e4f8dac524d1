"""Studies of objects: own ingredients, networks and datasets are tuned, stored, found again and gone on with."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch
from torch import nn

import fedskew as fs
from fedskew.config import experiment as experiment_module
from fedskew.config.experiment import load
from fedskew.config.own import source_of, sources
from fedskew.config.recorded import read_run
from fedskew.errors import ConfigError, RecordError
from fedskew.fields import Above
from fedskew.studies import study as study_module
from fedskew.studies.address import address
from fedskew.studies.archiving import reuse_archived, write
from support.command import fedskew

SCALE = 1.0
RUNS: dict[str, Any] = {"clients": 4, "cohort": 2, "rounds": 2}


def scaled(gradient: Any, factor: float) -> Any:
    return SCALE * factor * gradient


@dataclass(frozen=True)
class Halved(fs.Component):
    """Gradients times a factor."""

    name = "halved"

    factor: Annotated[float, Above(0)] = 0.5
    """on every gradient"""

    def correct(self, grads: Any, view: Any) -> Any:
        return {name: scaled(gradient, self.factor) for name, gradient in grads.items()}


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU())
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        return self.fc(self.body(x))


def net(seed: int = 0, width: int = 8) -> Net:
    torch.manual_seed(seed)
    return Net(width)


def arrays(rows: int = 200) -> Any:
    x, y = np.random.default_rng(0).random((rows, 64), np.float32), np.arange(rows) % 10
    return fs.from_arrays(x, y, name="mine")


def objects(store: Path, factor: float = 0.5, **more: Any) -> Any:
    mine = fs.Method("mine", parts=(Halved(factor),))
    return fs.study([mine, "fedavg"], **{"data": arrays(), "model": net(), "store": store, **RUNS, **more})


def addresses(study: Any) -> list[str]:
    return [one.address for one in study.plan()]


def test_a_study_of_objects_is_stored_and_found_again(tmp_path: Path) -> None:
    study = objects(tmp_path / "s")
    ended: list[str] = []
    study.run(on_end=lambda _, one: ended.append(one.cell.label))
    rows = study.table()
    assert [row["state"] for row in rows] == ["finished"] * 2 and ended == ["mine", "fedavg"]
    again = objects(tmp_path / "s")
    assert again.missing() == [] and again.table() == rows and addresses(again) == addresses(study)
    alone = fs.run(
        fs.federate(arrays(), fs.partitioners.Dirichlet(), clients=4, seed=0), fs.Method("mine", parts=(Halved(),)),
        model=net(), rounds=2, cohort=2, threads=1,
    )  # fmt: skip
    assert alone.summary["final_loss"] == rows[0]["final_loss"] != rows[1]["final_loss"]


def test_what_an_object_computes_is_in_its_address(tmp_path: Path) -> None:
    seen = [
        addresses(objects(tmp_path / "s", **more))[0]
        for more in ({}, {"factor": 0.25}, {"model": net(1)}, {"model": net(width=9)}, {"data": arrays(220)},
                     {"partition": fs.partitioners.PARTITIONERS["iid"]()})
    ]  # fmt: skip
    assert len(set(seen)) == len(seen)


def test_an_own_ingredient_is_tuned_and_a_study_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = {"tune": "lr=0.1..0.4", "tune_trials": 2, "validation": 0.2}
    study = objects(tmp_path / "s", **tuned)
    ended: list[str] = []

    def stop(outcome: Any, planned: Any) -> None:
        ended.append(outcome.address)
        if len(ended) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.run(on_end=stop)
    study = objects(tmp_path / "s", **tuned)
    study.run(on_end=lambda outcome, planned: ended.append(outcome.address))
    assert len(ended) == len(set(ended)) == 6 and study.missing() == []
    own = fs.study([fs.Method("mine", parts=(Halved(),))], tune="parts.halved.factor=0.1..1", tune_trials=2, **RUNS,
                   store=tmp_path / "own")  # fmt: skip
    assert {name for one in own.trials() for name, _ in one.options} == {"parts.halved.factor"}
    assert len({one.address for one in own.trials()}) == 2


def test_a_stored_run_of_objects_is_read_without_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = objects(tmp_path / "s")
    study.run()
    folder = study.store.run_folder(addresses(study)[0])
    run = read_run(folder)
    assert run.config["sources"].keys() == {"mine", "halved", "Net"} and run.label == "mine"
    with pytest.raises(RecordError, match="by its study"):
        load(folder)
    assert fedskew("show", folder) == 0 and "started from Python" in capsys.readouterr().out
    assert fs.load_model(folder, net(3)).predict(arrays().x_test[:2]).shape == (2,)
    held = json.loads((folder / "config.json").read_text())
    assert held["model"] == {"name": "Net"} and held["data"] == {"name": "mine"}


def test_an_object_of_the_table_is_its_name(tmp_path: Path) -> None:
    named = fs.study(["fedprox", "fedavg"], model="mlp", partition="iid", **RUNS, store=tmp_path)
    methods, parts = [fs.methods.fedprox(), fs.methods.fedavg()], {"partition": fs.partitioners.PARTITIONERS["iid"]()}
    given = fs.study(methods, model=fs.models.MLP(), **parts, **RUNS, store=tmp_path)
    assert addresses(given) == addresses(named)
    assert [(one.cell.label, one.cell.setting) for one in given.plan()] == [("fedprox", "all"), ("fedavg", "all")]
    assert all(isinstance(one.job, dict) for one in given.plan())
    several = fs.study(["fedavg"], **RUNS, store=tmp_path, options={"data": [arrays(), "digits"]})
    assert [one.cell.setting for one in several.plan()] == ["data mine", "data digits"]


BASE = '''
import math
from dataclasses import dataclass
import fedskew as fs
SCALE = 1.0
TABLE = (1, 2)
def helper(g):
    return SCALE * g
class Part:
    def halved(self, g):
        return helper(g) / TABLE[1]
@dataclass(frozen=True)
class Mine(fs.Component, Part):
    name = "mine"
    factor: float = 0.5
    def correct(self, grads, view):
        """Halve."""
        return {n: self.halved(g) * self.factor for n, g in grads.items()}
'''
OTHER = {
    "a global": ("SCALE = 1.0", "SCALE = 2.0"),
    "a tuple": ("TABLE = (1, 2)", "TABLE = (1, 3)"),
    "a helper": ("return SCALE * g", "return SCALE * g * g"),
    "a base": ("/ TABLE[1]", "* TABLE[1]"),
    "a hook": ("* self.factor", "/ self.factor"),
    "a default": ("factor: float = 0.5", "factor: float = 0.25"),
}
REFUSED = {
    "a list that it reads": ("TABLE = (1, 2)", "TABLE = [1, 2]", "the global 'TABLE' of Part.halved is of type list"),
    "a lambda": ("def helper(g):\n    return SCALE * g", "helper = lambda g: g", "'helper' of Part.halved is a lambda"),
    "a variable that changes": (
        "def helper(g):\n    return SCALE * g",
        "def outer():\n    seen = []\n    def inner(g):\n        seen.append(g)\n        return g\n    return inner\n"
        "helper = outer()",
        "the variable 'seen' around the global 'helper' of Part.halved is of type list",
    ),
    "a field that is no value": ("factor: float = 0.5", "factor: object = object()", "fields of Mine must be numbers"),
}  # fmt: skip


def made(folder: Path, text: str) -> Any:
    """The class Mine of a new module with this text."""
    name = f"of_a_user_{len(list(folder.glob('*.py')))}"
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec and spec.loader
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Mine


@pytest.mark.parametrize("case", OTHER)
def test_another_source_has_another_digest(case: str, tmp_path: Path) -> None:
    before = source_of(made(tmp_path, BASE)())
    assert source_of(made(tmp_path, f"# moved\nUNREAD = [1]\n{BASE}")()) == before
    assert source_of(made(tmp_path, BASE.replace(*OTHER[case]))()) != before


SAME = {
    "a comment": ("return SCALE * g", "return SCALE * g  # scaled"),
    "a docstring": ('"""Halve."""', '"""Halve\n\n    it."""'),
    "no docstring": ('        """Halve."""\n', ""),
    "annotations": ("def halved(self, g):", "def halved(self, g: 'dict[str, float]') -> float:"),
    "an annotated variable": (
        "return helper(g) / TABLE[1]", "made: float = helper(g) / TABLE[1]\n        return made",
        "return helper(g) / TABLE[1]", "made = helper(g) / TABLE[1]\n        return made",
    ),
    "other spaces": ("return SCALE * g", "return (SCALE\n        * g)"),
    "other quotes": ('name = "mine"', "name = 'mine'"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_what_computes_nothing_is_not_in_the_digest(case: str, tmp_path: Path) -> None:
    old, new, *before = SAME[case]
    text = BASE.replace(*before) if before else BASE
    assert BASE.replace(old, new) != BASE
    kinds = [made(tmp_path, one) for one in (text, BASE.replace(old, new))]
    assert len({source_of(kind()) for kind in kinds}) == 1


def test_every_python_has_the_same_digest(tmp_path: Path) -> None:
    """The digest that Python 3.11 has; a later one gives each class more entries, which do not count."""
    told = "return [f'{x:{n}.3f}{y!r:}' for x, y in g.items()][0]"
    kind = made(tmp_path, BASE.replace("return SCALE * g", f"n: int = 3\n    {told}"))
    kind.__static_attributes__, kind.__firstlineno__ = ("factor",), 14
    kind.__replace__, kind.__annotate_func__ = kind.halved, kind.correct
    assert source_of(kind()) == "550f53417622ca73"


def former(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses and records are as they were when text and bytecode were digested."""
    monkeypatch.setattr(study_module, "address", lambda made, data, earlier=False: address(made, data, True))
    monkeypatch.setattr(experiment_module, "sources", lambda made, earlier=False: sources(made, True))


def test_runs_under_the_earlier_digest_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as then:
        former(then)
        before = objects(tmp_path / "s", seeds="0-1")
        before.run()
        rows = before.table()
    study = objects(tmp_path / "s", seeds="0-1")
    assert study.missing() == [] and study.table() == rows
    assert not set(addresses(study)[:2]) & set(addresses(before)), "the digest is another"
    assert [one.place(study.store) for one in study.plan()] == addresses(before)
    write(tmp_path / "s", tmp_path / "all.jsonl")
    for keep in (True, False):
        other = objects(tmp_path / f"other-{keep}", seeds="0-1")
        assert reuse_archived(other, tmp_path / "all.jsonl", keep) == 4 and other.missing() == []
        assert [row["final_loss"] for row in other.table()] == [row["final_loss"] for row in rows]


def test_a_run_under_the_earlier_digest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = fs.federate(arrays(), "iid", clients=4)
    given: dict[str, Any] = {"model": net(), "cohort": 2, "out": tmp_path / "run"}
    with monkeypatch.context() as then:
        former(then)
        fs.run(fed, fs.Method("mine", parts=(Halved(),)), rounds=1, **given)
    went_on = fs.run(fed, fs.Method("mine", parts=(Halved(),)), rounds=2, resume=True, **given)
    assert len(went_on.rounds) == 2


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_digest_is_refused_with_the_reason(case: str, tmp_path: Path) -> None:
    old, new, said = REFUSED[case]
    kind = made(tmp_path, BASE.replace(old, new))
    with pytest.raises(ConfigError, match=said) as error:
        fs.study([fs.Method("mine", parts=(kind(),))], store=tmp_path / "s")
    assert "\n" not in str(error.value)


def test_what_was_typed_at_the_prompt_has_no_digest() -> None:
    typed: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(BASE, "<stdin>", "exec"), typed)
    with pytest.raises(
        ConfigError, match=r"Mine\.correct has none, as what is typed at the prompt; put it into a file"
    ):
        source_of(typed["Mine"]())
    hooked = net()
    hooked.fc.register_forward_hook(lambda *given: None)
    with pytest.raises(ConfigError, match="is a lambda"):
        source_of(hooked)


@pytest.mark.parametrize(
    "change",
    [("* self.factor", "/ self.factor"), ("return {n: self", "return {n: 2 * self"), ("halved(g)", "other(g)")],
)
def test_a_file_that_has_changed_since_it_was_imported_answers_for_neither_text(
    change: tuple[str, str], tmp_path: Path
) -> None:
    before, after = (source_of(made(tmp_path, text)()) for text in (BASE, BASE.replace(*change)))
    stale = made(tmp_path, BASE)
    (tmp_path / "of_a_user_2.py").write_text(BASE.replace(*change) + "# longer")
    assert len({before, after, source_of(stale())}) == 3


def test_a_network_has_the_digest_of_its_layers_and_weights() -> None:
    digest = source_of(net())
    assert source_of(net()) == digest and len({digest, source_of(net(1)), source_of(net(width=9))}) == 3
    other = net()
    other.body[2] = nn.Tanh()
    assert source_of(other) != digest
    attention = nn.TransformerEncoderLayer(8, 2, dropout=0.0)  # lists, functions of torch and nothing else
    assert len(source_of(attention)) == 16


def test_what_cannot_stand_for_a_name_is_one_line(tmp_path: Path) -> None:
    for given, said in (
        ({"data": object()}, "options.data must be a word, a number or a list of them"),
        ({"model": Net}, "options.model must be a word"),
        ({"lr": net()}, "options.lr must be a word"),
    ):
        with pytest.raises(ConfigError, match=said):
            fs.study(["fedavg"], store=tmp_path / "s", **given)
    with pytest.raises(ConfigError, match="method must be a name"):
        fs.study([Halved()], store=tmp_path / "s")  # type: ignore[list-item]
