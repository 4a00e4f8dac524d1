"""The authors' paces: one row a method, explicit values win, the cohort is a share, the record says what was used."""

from __future__ import annotations

import json
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


STATED: dict[tuple[str, str], tuple[float | None, ...]] = {  # by hand, those of five papers as notes/protocols.yaml
    ("authors", "moon"): (0.01, 0.9, 1e-5, 64, 10, 1.0),
    ("authors", "fedrl"): (0.001, 0.9, 5e-4, 64, 2, 0.2),
    ("authors", "fedntd"): (0.01, 0.9, 1e-5, 50, 5, 0.1),
    ("authors", "balancefl"): (0.005, 0.9, 1e-4, 64, 5, 1.0),
    ("authors", "fedbal"): (0.01, 0.9, 1e-4, 64, 10, 0.2, 1.0, 0.0),
    ("authors", "fedga"): (0.1, 0.0, 0.0, 64, 2, 0.1, 1.0, 5.0),
    ("authors", "seolkim"): (0.1, 0.0, 0.0, None, 5, 0.1, 1.0, 0.0),
    ("authors_paper", "fedgr"): (0.1, 0.0, 5e-4, 64, 5, 0.1, 1.0, 0.0),
    ("authors_code", "fedgr"): (0.03, 0.9, 1e-5, 64, 5, 0.1, 1.0, 100.0),
    ("authors", "fedla"): (0.01, 0.5, 0.0, 256, 10, 0.3, 1.0, 0.0),
}


def test_what_the_sources_state_stands_in_the_table() -> None:
    """What a source does not say is neutral, or has no entry."""
    places = ("pace.lr", "local.momentum", "local.weight_decay", "pace.batch_size", "pace.epochs", "share")
    for (preset, name), values in STATED.items():
        rows = named(preset, name).values
        found = [rows[place].value if place in rows else None for place in (*places, "pace.decay", "local.clip")]
        assert found[: len(values)] == list(values), (preset, name)
    assert named("authors", "climb").share == named("authors", "fedgrab").share == 1.0
    assert named("authors", "fedgr") is named("authors_paper", "fedgr")
    weightings = {n: applied(p, METHODS[n]()).weighting.name for p, n in STATED if STATED[p, n][6:]}
    assert weightings == {n: METHODS[n]().weighting.name for n in weightings} | {"fedga": "uniform"}


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
