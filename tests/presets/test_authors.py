"""The authors' paces: one row a method, explicit values win, the cohort is a share, the record says what was used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.config.experiment import Experiment, load
from fedskew.config.flags import experiment_from
from fedskew.config.presets import GRADES, Preset, applied, authors, every, named
from fedskew.errors import ConfigError
from fedskew.methods import METHODS
from fedskew.settings import Settings
from support.command import refused
from support.federations import skewed
from support.paths import ROOT
from support.scripts import script

AUTHORS = every()["authors"]
PUBLISHED = [name for name, row in AUTHORS.items() if isinstance(row, Preset)]
UNPUBLISHED = [name for name, row in AUTHORS.items() if isinstance(row, str)]


def test_every_method_of_the_table_has_a_row() -> None:
    assert list(AUTHORS) == list(METHODS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_sets_what_its_row_states(name: str) -> None:
    row, method = named("authors", name), authors(name)
    for place, changes in row.changes().items():
        ingredient = next(c for at, c in method.ingredients() if place in (at, c.name))
        assert {field: getattr(ingredient, field) for field in changes} == changes
    assert (method.name, method.preset, method.share) == (name, "authors", row.share)
    assert row.source and row.setting and row.values
    assert all(stated.grade in GRADES for stated in row.values.values())
    assert row.share is None or 0 < row.share <= 1


@pytest.mark.parametrize("name", UNPUBLISHED)
def test_a_method_without_a_published_pace_says_so_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        authors(name)
    assert str(AUTHORS[name]) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["lgfedavg", "fedbabu", "fedbn"])
def test_authors_who_average_uniformly_do_so_in_the_preset(name: str) -> None:
    """Their public code divides the sum by the number of participants; by size without the preset."""
    fed, plain = skewed(), METHODS[name]()
    weights = [
        fs.run(fed, method.with_("pace", epochs=1), model="mlp", rounds=1, cohort=3).rounds[0]["weights"]
        for method in (authors(name), plain)
    ]
    assert weights[0] == pytest.approx([1 / 3] * 3) and len({*weights[1]}) > 1


def test_the_rates_of_the_issue_stand_in_the_table() -> None:
    """What the sources say, by hand: rate, momentum, weight decay, batch, epochs, share."""
    places = ("pace.lr", "local.momentum", "local.weight_decay", "pace.batch_size", "pace.epochs", "share")
    want = {
        "moon": (0.01, 0.9, 1e-5, 64, 10, 1.0),
        "fedrl": (0.001, 0.9, 5e-4, 64, 2, 0.2),
        "fedntd": (0.01, 0.9, 1e-5, 50, 5, 0.1),
        "balancefl": (0.005, 0.9, 1e-4, 64, 5, 1.0),
        "fedbal": (0.01, 0.9, 1e-4, 64, 10, 0.2),
    }
    for name, values in want.items():
        assert tuple(named("authors", name).values[place].value for place in places) == values, name
    assert named("authors", "fedga").values["local.clip"].value == 5.0
    assert named("authors", "climb").share == named("authors", "fedgrab").share == 1.0


WHOLE = ("pace.lr", "pace.epochs", "pace.decay", "local.momentum", "local.weight_decay", "local.clip")
FIVE = {  # preset, method -> section of the table of the papers' settings, and what of it says each value
    ("authors", "fedbal"): ("fedbal", "lr_local: X", "local_epochs: X", "", "momentum X", "weight decay X", ""),
    ("authors", "fedga"): ("fedga", "MNIST: +{10: .X", "local_epochs: X", "lr decay X", "momentum X", "weight decay X",
                           "clip X"),
    ("authors", "seolkim"): ("seol_kim", "eta_max: X", "local_epochs: X", "", "momentum/weight decay not stated; X",
                             "momentum/weight decay not stated; X", ""),
    ("authors_paper", "fedgr"): ("fedgr", "paper: .SGD lr X", "local_epochs: .not in paper; X", "", "",
                                 "weight decay X", ""),
    ("authors_code", "fedgr"): ("fedgr", "code: .SGD lr X", "local_epochs: .not in paper; X", "", "momentum X",
                                "weight decay X", "clip X"),
    ("authors", "fedla"): ("fedla", "lr: X", "local_epochs: X", "", "momentum hard-coded X", "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("preset", "name"), FIVE)
def test_the_pace_of_the_five_is_whole_and_that_of_the_table_of_settings(preset: str, name: str) -> None:
    """What the table does not say is neutral; what nobody says is graded so."""
    section, *patterns = FIVE[preset, name]
    text = (ROOT / "notes/protocols.yaml").read_text(encoding="utf-8")
    text = re.search(rf"^{section}:\n(.*?)(?=^\w|\Z)", text, re.DOTALL | re.MULTILINE)[1]  # type: ignore[index]
    if preset == "authors_code":
        text = text[text.index('code: "SGD') :] + text
    row = named(preset, name)
    for place, pattern in zip(WHOLE, patterns, strict=True):
        neutral = "1" if place == "pace.decay" else "0"
        found = re.search(pattern.replace("X", r"([\d.]+(?:e-\d+)?)"), text) if pattern else None
        assert bool(found) == bool(pattern), (place, pattern)
        assert float(row.values[place].value) == float(found[1] if found else neutral), place
    assert named("authors", "fedgr") is named("authors_paper", "fedgr")
    assert applied(preset, METHODS[name]()).weighting.name == {"fedga": "uniform"}.get(
        name, METHODS[name]().weighting.name
    )


def test_a_preset_of_one_method_is_a_reading_that_goes_before_its_defaults() -> None:
    for preset, values in {"printed": (1.0, 1.0), "feature_balanced_loss": (60.0, 1e-12)}.items():
        part = experiment_from(["fedbal", "--preset", preset]).method.parts[0]
        assert (part.strength, part.eps) == values  # type: ignore[attr-defined]
        refused(lambda preset=preset: experiment_from(["fedga", "--preset", preset]), "must go with fedbal; got fedga")


def test_an_option_that_is_given_goes_before_the_preset_wherever_it_stands() -> None:
    for words in (
        ["moon", "--preset", "authors", "--lr", "0.5", "--cohort", "3"],
        ["moon", "--lr", "0.5", "--cohort", "3", "--preset", "authors"],
    ):
        found = experiment_from(words)
        assert (found.method.pace.lr, found.method.pace.epochs, found.cohort) == (0.5, 10, 3)
    replaced = experiment_from(["fedadam", "--server", "momentum", "--preset", "authors"]).method
    assert replaced.server == fs.servers.Momentum() and replaced.pace.lr == pytest.approx(10**-1.5)


def test_the_cohort_of_a_preset_is_a_share_of_the_clients() -> None:
    assert Settings().cohort_of(20, 20, 0.4) == 8
    assert Settings().cohort_of(20, 5, 0.4) == 5
    assert Settings().cohort_of(20, 20, 0.001) == 1
    assert Settings(cohort=3).cohort_of(20, 20, 0.4) == 3
    result = fs.run(skewed(), authors("fedntd").with_("pace", epochs=1), model="logistic", rounds=1)
    assert len(result.rounds[0]["clients"]) == max(1, round(0.1 * skewed().clients))


def test_a_default_cohort_of_ten_is_cut_to_the_clients_that_there_are() -> None:
    fed = fs.federate("digits", fs.partitioners.Iid(), clients=8)
    result = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1)
    assert len(result.rounds[0]["clients"]) == 8


def test_the_record_holds_the_values_and_the_name(tmp_path: Path) -> None:
    words = ["creff", "--preset", "authors", "--epochs", "1", "--clients", "5", "--rounds", "1", "--model", "logistic"]
    small = ["--parts.federated_features.head_epochs", "2", "--parts.federated_features.match_steps", "2"]
    experiment_from([*words, *small]).run(tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["method"]["preset"], config["method"]["share"], config["cohort"]) == ("authors", 0.4, 2)
    assert (config["method"]["pace"]["batch_size"], config["method"]["pace"]["epochs"]) == (32, 1)
    again = load(tmp_path / "run")
    assert again.method.preset == "authors" and again.method.pace.batch_size == 32
    assert Experiment.from_json(again.to_json(again.fingerprint)) == again


def test_a_run_from_python_records_the_name_too(tmp_path: Path) -> None:
    fs.run(skewed(), authors("fedga"), model="logistic", rounds=1, out=tmp_path / "run")
    method = json.loads((tmp_path / "run" / "config.json").read_text())["method"]
    assert (method["preset"], method["share"], method["local"]["clip"]) == ("authors", 0.1, 5.0)
    assert "preset" not in fs.method.method_spec(fs.methods.fedga())


def test_a_preset_goes_with_variants_of_its_method() -> None:
    other = fs.methods.fedga().with_(parts=(fs.parts.Proximal(0.1),))
    assert applied("authors", other).local.clip == 5.0
    with pytest.raises(ConfigError, match="unknown field of moreau"):
        applied("authors", fs.methods.fedga().with_(local=fs.steps.Moreau()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fedavg", "--preset", "autors"], "unknown preset 'autors'; did you mean 'authors'?"),
        (["fedlc", "--preset", "authors"], "fedlc: the authors have no public code"),
        (["fedavg", "--preset"], "--preset must be followed by a value"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str) -> None:
    refused(lambda: experiment_from(words), said)


def test_the_page_shows_every_value_with_its_grade() -> None:
    page = script("scripts/reference.py").paces_page()
    for name, row in AUTHORS.items():
        assert f"`{name}`" in page
        told = (row.source, row.setting) if isinstance(row, Preset) else (row,)
        assert all(text in page for text in told)
    assert "| `moon` | 0.01 C | 0.9 C | 1e-05 C |" in page.replace("\N{NO-BREAK SPACE}", " ")
