"""One declaration of every run option: Python, the command and the record read the same fields."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

import fedskew as fs
from fedskew.config.experiment import Experiment, load
from fedskew.config.flags import experiment_from, options_of
from fedskew.config.tables import method_named
from fedskew.engines import ENGINES
from fedskew.errors import ConfigError, FieldError
from fedskew.fields import OMITTED as MARK
from fedskew.fields import choices_of, documented, hints_of, plain_kinds
from fedskew.models.precision import DTYPES
from fedskew.records.diagnostics import Diagnostics
from fedskew.settings import Engine, Settings
from support.federations import blobs, skewed

FIELDS = [f.name for f in dataclasses.fields(Settings)]
WORDS: dict[str, Any] = {  # values of fields whose words have a form, or that stand under a rule between fields
    "init_from": "runs/warm", "init_digest": "0f" * 16, "ray_address": "10.0.0.1:6379", "device": "cuda",
    "secure_threshold": 0.75, "precision": "bfloat16", "diagnose": Diagnostics(("drift",), clients=(1,), every=2),
}  # fmt: skip


def other(name: str) -> Any:
    """A value of a field that is not its default."""
    default, kinds = getattr(Settings(), name), plain_kinds(hints_of(Settings)[name])
    if bool in kinds:
        return not default
    words = [word for word in choices_of(hints_of(Settings)[name]) if word != default]
    return words[-1] if words else (default or 1) / 2 if float in kinds else (default or 0) + 2


OTHER = {name: WORDS[name] if name in WORDS else other(name) for name in FIELDS}
LATER = [f.name for f in dataclasses.fields(Settings) if MARK in f.metadata]
BESIDE: dict[str, Any] = {"patience": {"monitor": "val_loss"}}
BESIDE |= {
    "average_decay": {"average": 3},
    "init_digest": {"init_from": "runs/warm"},
    "dp": {"dp_clip": 1.0, "dp_noise": 1.0},
    "dp_clip": {"dp": "client", "dp_noise": 1.0},
    "dp_noise": {"dp": "client", "dp_clip": 1.0},
    "dp_epsilon": {"dp": "client", "dp_clip": 1.0},
}  # what a field must stand beside


def test_every_field_is_an_option_everywhere() -> None:
    """`fedskew.run`, `Experiment`, the command's flags and the record: nothing is listed a second time."""
    assert set(FIELDS) <= set(inspect.signature(fs.run).parameters)
    assert set(FIELDS) <= {f.name for f in dataclasses.fields(Experiment)}
    flags = {option.place[0] for option in options_of(Experiment(method_named("fedavg")))}
    assert set(FIELDS) <= flags
    unset = (*LATER, "diagnose")  # recorded only where they are set
    recorded = Settings(eval_every=2, **{name: OTHER[name] for name in unset}).to_json()
    assert not {*unset} & {*Settings().to_json()}
    assert set(FIELDS) == set(recorded) and set(FIELDS) <= set(documented(Settings))


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_goes_to_a_file_and_back(name: str, tmp_path: Path) -> None:
    made = Experiment(method_named("fedavg"), **BESIDE.get(name, {}), **{name: OTHER[name]})
    (tmp_path / "config.json").write_text(json.dumps(made.to_json()), encoding="utf-8")
    assert getattr(load(tmp_path), name) == OTHER[name] != getattr(Settings(), name)


@pytest.mark.parametrize("name", [n for n in FIELDS if n not in ("device", "diagnose")])
def test_a_field_is_read_from_the_command_line(name: str) -> None:
    flag = next(o.flag for o in options_of(Experiment(method_named("fedavg"))) if o.place == (name,))
    beside = [word for n, v in BESIDE.get(name, {}).items() for word in (f"--{n.replace('_', '-')}", str(v))]
    assert getattr(experiment_from(["fedavg", flag, str(OTHER[name]), *beside]), name) == OTHER[name]


def test_names_in_annotations_are_those_of_the_tables() -> None:
    assert set(get_args(Engine)) == {*ENGINES, "auto", "flower"}
    hints = {f.name: f.type for f in dataclasses.fields(Settings)}
    assert all(name in str(hints["dtype"]) for name in DTYPES)


def test_a_run_takes_names_and_options_as_a_study_does(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"model": "logistic", "rounds": 2, "cohort": 2}
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=6)
    method = fs.methods.fedavg().with_("pace", lr=0.05, epochs=2)
    wanted = fs.run(fed, method, **plain)
    split = {"partition": fs.partitioners.Dirichlet(alpha=0.3), "clients": 6}
    for made in (
        fs.run(fed, "fedavg", lr=0.05, epochs=2, **plain),
        fs.run(fed, fs.methods.fedavg(), lr=0.05, epochs=2, **plain),
        fs.run(fed, "fedavg(lr=0.05, epochs=2)", Settings(rounds=2), model="logistic", cohort=2),
        fs.run("digits", "fedavg", lr=0.05, epochs=2, **split, **plain),
        fs.run("digits", method, options={"partition.alpha": 0.3}, clients=6, **plain),
        fs.run(fed.dataset, method, Settings(rounds=2), **split, model="logistic", cohort=2),
    ):
        assert all((made.params[n] == wanted.params[n]).all() for n in wanted.params)
    assert len(fs.run("digits", clients=4, batch_size=32, **plain).rounds) == 2, "FedAvg where none is named"
    fs.run("digits", "fedprox", clients=4, out=tmp_path / "run", **plain)
    assert load(tmp_path / "run").method.name == "fedprox", "its record can be repeated by the command"


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        (("digits", "fedavg"), {"lrr": 1}, r"run\(\) has no option 'lrr'; did you mean 'lr'"),
        (("digits", "fedavgg"), {}, "did you mean 'fedavg'"),
        (("digit", "fedavg"), {}, "did you mean 'digits'"),
        (("fedavg",), {}, r'fs\.run\("digits", "fedavg"\)'),
        (("digits", "fedavg"), {"data": "digits"}, "data must be given once"),
        ((None, "fedavg"), {"clients": 4}, "clients must not go with a federation, which is divided already"),
        ((None, "fedavg"), {"options": {"partition.alpha": 4}}, "must not go with a federation"),
        ((None, "fedavg"), {"batchsize": 4}, "did you mean 'batch_size'"),
        ((None, fs.methods.fedavg()), {"eval_evry": 2}, r"\(\) has no option 'eval_evry'; did you mean 'eval_every'"),
        ((None, "fedavg"), {"lr": -1}, "lr must be"),
        ((3, "fedavg"), {}, "fed must be a federation, a dataset or its name; got 3"),
    ],
)
def test_a_mistake_in_a_run_is_named_as_python_names_it(given: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as error:
        fs.run(*(skewed() if one is None else one for one in given), **options)
    assert "'--" not in str(error.value)


def test_a_default_cohort_is_cut_and_one_that_was_asked_for_is_not() -> None:
    """Python and the command alike."""
    fed = blobs([[4, 4], [4, 4], [0, 0]])
    result = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1)
    assert sorted(result.rounds[0]["clients"]) == [0, 1]
    with pytest.raises(FieldError, match=r"Settings.cohort must be at most .* that have rows, 2 of 3"):
        fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=3)
    with pytest.raises(FieldError, match=r"Settings.cohort must be at most the number of clients, 3"):
        fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=4)


MADE_UP = [  # of `option`, beside the default
    'decides="numbers"', 'decides="numbers", resume="new"', 'decides="numbers", omit_if_default=True',
    'decides="measures"', 'decides="seed"', 'decides="bits"',
    'decides="nothing"', 'decides="nothing", omit_if_default=True',
]  # fmt: skip
HANDLED = """
import inspect
import sys
import fedskew as fs
from pathlib import Path
from fedskew.cli.command import root
from fedskew.config.experiment import Experiment, load
from fedskew.config.flags import experiment_from
from fedskew.errors import RecordError
from fedskew.plots.groups import groups_of
from fedskew.studies.address import address

words = ["fedavg", "--clients", "4", "--cohort", "2", "--rounds", "1", "--model", "logistic"]
usual, data = experiment_from(words), experiment_from(words).data.load()
usual.run("usual")
page = root.commands["run"].get_help(root.commands["run"].make_context("run", ["fedavg"]))
for name, decides in zip(sys.argv[1::2], sys.argv[2::2]):
    other = experiment_from([*words, f"--{name.replace('_', '-')}", "3", "--seed", "1"])
    assert f"--{name.replace('_', '-')} INT a number that was made up" in " ".join(page.split()), name
    assert inspect.signature(fs.run).parameters[name].default == 1
    assert (name in usual.to_json()) == ("omit_if_default=" not in decides) and other.to_json()[name] == 3, name

    hashed = any(f'decides="{what}"' in decides for what in ("numbers", "measures"))
    assert (address(other, data) == address(experiment_from([*words, "--seed", "1"]), data)) == (not hashed), name

    other.run(name)
    assert len(groups_of(["usual", name])) == 1 + ('decides="numbers"' in decides), name

    file = Path(name, "config.json")
    assert getattr(load(name), name) == 3
    again = experiment_from([*words, "--seed", "1"])
    free = "resume=" in decides or 'decides="nothing"' in decides
    try:
        again.run(name, resume=True)
    except RecordError as error:
        assert not free and f"resume must continue the same run; {name} was 3 and is 1" in str(error), error
    else:
        assert free
        held = 1 if 'resume="new"' in decides else 3
        assert getattr(load(name), name) == held, (name, getattr(load(name), name))
"""


def test_what_an_option_decides_stands_on_its_field_alone(tmp_path: Path) -> None:
    """A field more in settings.py: keyword, record, help, address, groups and what may resume a run go by it."""
    package = Path(fs.__file__).parent
    shutil.copytree(package, tmp_path / "src/fedskew", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "src/fedskew/settings.py"
    fields = [
        f'    made_up_{i}: int = option(1, {facts})\n    """a number that was made up"""\n'
        for i, facts in enumerate(MADE_UP)
    ]
    head, end, tail = file.read_text(encoding="utf-8").partition("    diagnose: Diagnostics = ")
    file.write_text(head + "".join(fields) + end + tail, encoding="utf-8")
    words = [word for i, facts in enumerate(MADE_UP) for word in (f"made_up_{i}", facts)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-W", "error", "-c", HANDLED, *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


WHEN = [
    # what is set, which option is asked about, the rounds of twelve that it measures, and whether the end does
    ({"eval_every": 5}, "eval_every", [5, 10, 12], True),
    ({}, "personal_every", [12], True),
    ({"fit_logits": "none"}, "fit_logits", [], False),
    ({}, "fit_logits", [], True),
    ({"served": "tail"}, "served", [*range(3, 13)], True),
    ({"average_models": "every"}, "average_models", [*range(1, 13)], True),
    ({}, "clients_every", [], True),
    ({"served": "none"}, "clients_every", [], False),
    ({}, "diagnose", [], False),
    ({"diagnose": Diagnostics(("drift",), every=5)}, "diagnose", [5, 10, 12], True),
]


@pytest.mark.parametrize(("options", "what", "rounds", "end"), WHEN)
def test_an_evaluation_says_which_rounds_measure_what(
    options: dict[str, Any], what: str, rounds: list[int], end: bool
) -> None:
    evaluation = Settings(rounds=12, **options).evaluation()
    assert [number for number in range(1, 13) if evaluation.due(what, number)] == rounds
    assert evaluation.due(what, 7, over=True) == end
