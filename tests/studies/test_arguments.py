"""Methods, seeds and options with several values, as a command line and a study file have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedskew.errors import ConfigError
from fedskew.methods import METHODS
from fedskew.studies.arguments import combinations, entry_of, seeds_of
from fedskew.studies.shipped import names, shipped
from fedskew.studies.spec import CONTROLS, Range, Spec, Tuning, read_spec, spec_from, tuning_of
from support.paths import ROOT

SMALL = [("clients", "5"), ("rounds", "2")]


def test_a_method_has_options_of_its_own_in_brackets() -> None:
    entry = entry_of("fedbal(parts=cross_entropy,proximal, weighting=uniform, lr=0.05)")
    expected = (("parts", "cross_entropy,proximal"), ("weighting", "uniform"), ("lr", "0.05"))
    assert entry.method == "fedbal" and entry.options == expected
    assert entry.name == "fedbal(parts=cross_entropy,proximal, weighting=uniform, lr=0.05)"
    assert entry_of(" fedavg() ").name == "fedavg"


@pytest.mark.parametrize("text", ["", "fed avg", "fedavg(uniform)", "fedavg(lr=0.1", "fedavg)x", "1fed"])
def test_what_is_no_method_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="method must be a name"):
        entry_of(text)


@pytest.mark.parametrize(
    ("given", "seeds"), [("0-4", (0, 1, 2, 3, 4)), ("3", (3,)), ("0, 2-3", (0, 2, 3)), ([4, 1], (4, 1)), (7, (7,))]
)
def test_seeds(given: Any, seeds: tuple[int, ...]) -> None:
    assert seeds_of(given) == seeds


@pytest.mark.parametrize("given", ["", "a", "4-0", "1,1", "0-99999999", "-1", [], [1.5], [True], {}, "0--3", "9" * 50])
def test_what_are_no_seeds_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="seeds must"):
        seeds_of(given)


def test_several_values_are_every_combination_with_the_last_option_fastest() -> None:
    found = list(combinations("fedavg", [("partition.alpha", "0.1,1"), ("rounds", "2"), ("lr", "0.1,0.2")]))
    assert [(a[1], b[1], c[1]) for a, b, c in found] == [
        ("0.1", "2", "0.1"), ("0.1", "2", "0.2"), ("1", "2", "0.1"), ("1", "2", "0.2"),
    ]  # fmt: skip


def test_values_of_an_option_that_is_a_list_stand_between_semicolons() -> None:
    given = [("data", "digits"), ("data.classes", "1,2;3,4"), ("parts", "cross_entropy,proximal;cross_entropy")]
    found = [dict(pairs) for pairs in combinations("fedavg", given)]
    assert [(f["data.classes"], f["parts"]) for f in found] == [
        ("1,2", "cross_entropy,proximal"), ("3,4", "cross_entropy,proximal"), ("1,2", "cross_entropy"),
        ("3,4", "cross_entropy"),
    ]  # fmt: skip


def test_names_decide_which_options_there_are() -> None:
    given = [("partition", "dirichlet,labels_k")]
    assert [pairs[0][1] for pairs in combinations("fedavg", given)] == ["dirichlet", "labels_k"]


@pytest.mark.parametrize("value", ["0.1,,1", "0.1,0.1", ""])
def test_an_empty_value_and_one_twice_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="--lr must name each value once"):
        list(combinations("fedavg", [("lr", value)]))


# Studies


def test_a_setting_is_named_after_what_differs() -> None:
    spec = spec_from(["fedavg"], [*SMALL, ("partition.alpha", "0.1,1"), ("lr", "0.1")])
    assert [name for name, _ in spec.axes] == ["partition.alpha 0.1", "partition.alpha 1"]
    assert [name for name, _ in spec_from(["fedavg"], SMALL).axes] == ["all"]


def test_all_methods_hold_out_the_rows_that_one_of_them_wants() -> None:
    """FedRL holds 63 rows of a class at the server: the others must divide the same rows as it does."""
    cells = list(spec_from(["fedavg", "fedrl", "fedavg(auxiliary=1)"], SMALL).cells())
    assert [c.experiment.auxiliary for c in cells if c.experiment] == [63, 63, 1]
    assert all(c.experiment.threads == 1 for c in cells if c.experiment)


def test_a_method_that_an_option_does_not_fit_is_refused_and_the_rest_go_on() -> None:
    cells = list(spec_from(["seolkim", "fedavg"], [*SMALL, ("pace.beta", "5")]).cells())
    assert cells[0].experiment is not None and not cells[0].refused
    assert cells[1].experiment is None and "--pace.beta" in cells[1].refused


def test_a_mistake_of_the_study_is_one_line() -> None:
    with pytest.raises(ConfigError, match="--lrr"):
        list(spec_from(["fedavg"], [("lrr", "0.1")]).cells())
    with pytest.raises(ConfigError, match="be different"):
        spec_from(["fedavg", "fedavg"], [])
    with pytest.raises(ConfigError, match="did you mean 'fedavg'"):
        spec_from(["fedavg"], [], baseline="fedavgg")
    with pytest.raises(ConfigError, match="at least one"):
        Spec(())


def test_controls_are_added_once() -> None:
    spec = spec_from(["fedavg", "fedavg(weighting=uniform)"], [], controls=True)
    assert [m.name for m in spec.methods][2:] == [CONTROLS["weights"][1].name]


FILE = """
title = "Two weightings"
methods = ["fedavg", "fedla"]
seeds = "0-1"
baseline = "fedavg"
controls = true
tune_trials = 3
[options]
clients = 5
rounds = 2
partition = {name = "dirichlet", alpha = [0.1, 1]}
"data.verify" = true
[method.mine]
method = "fedbal"
weighting = "uniform"
[tune]
lr = "log:0.01..0.3"
"""


def test_a_study_file(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(FILE.replace('"data.verify" = true\n', ""))
    spec = read_spec(tmp_path / "study.toml")
    assert [m.name for m in spec.methods] == ["fedavg", "fedla", "mine", *(c.name for c in CONTROLS["weights"])]
    assert spec.seeds == (0, 1) and spec.title == "Two weightings" and spec.reference == "fedavg"
    assert [name for name, _ in spec.axes] == ["partition.alpha 0.1", "partition.alpha 1"]
    assert spec.tuning == Tuning((Range("lr", 0.01, 0.3, "log"),), 3)
    assert len(list(spec.cells())) == 5 * 2 * 2


def test_explicit_settings_are_not_combined(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'methods = ["fedavg"]\n[options]\nclients = 5\n[[settings]]\npartition = "iid"\n'
        '[[settings]]\npartition = "labels_k"\n"partition.labels" = [2, 3]\n'
    )
    names = [name for name, _ in read_spec(tmp_path / "s.toml").axes]
    assert names == [
        "partition iid, partition.labels unset", "partition labels_k, partition.labels 2",
        "partition labels_k, partition.labels 3",
    ]  # fmt: skip


def test_all_takes_every_method_and_a_table_takes_the_place_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "all.toml").write_text(
        '[group.all]\nmethods = ["all"]\noptions = {lr = 0.2}\n[method.fedavg]\nlr = 0.3\n'
    )
    entries = {entry.name: dict(entry.options) for entry in read_spec(tmp_path / "all.toml").methods}
    assert {*entries} == {*METHODS} and entries["fedavg"] == {"lr": 0.3} and entries["scaffold"] == {"lr": 0.2}


def test_methods_of_a_group_share_options(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'methods = ["fedavg"]\n[group.a]\nmethods = ["fedavg", "fedprox(lr=0.3, mu=1)"]\n'
        'options = {lr = 0.1, epochs = 2}\nsuffix = " a"\n'
    )
    plain, first, second = read_spec(tmp_path / "s.toml").methods
    assert plain.options == () and first.name == "fedavg a" and second.name == "fedprox(lr=0.3, mu=1) a"
    assert first.options == (("lr", 0.1), ("epochs", 2))
    assert second.options == (("epochs", 2), ("lr", "0.3"), ("mu", "1"))


def test_shipped_studies_can_be_read_and_name_only_what_there_is() -> None:
    for name in names():
        spec = read_spec(shipped(name) or "")
        assert spec.title and spec.notes and not [c.refused for c in spec.cells() if c.experiment is None], name


def test_the_study_has_natural_and_three_made_partitions_of_each_dataset() -> None:
    spec = read_spec(shipped("natural") or "")
    names = [name for name, _ in spec.axes]
    assert len(names) == 4 * 4 and len(spec.methods) == 12 and len(spec.seeds) == 3
    assert sum(name.endswith(", natural") for name in names) == 4
    page = (ROOT / "notes/natural.md").read_text(encoding="utf-8")
    for name, options in spec.axes:
        if "skewed" in name:  # the page names these concentrations in a sentence
            assert f"{float(dict(options)['partition.alpha']):g}" in page
        else:
            assert f"| {name} " in page


def test_a_study_takes_the_settings_of_a_shipped_one_under_their_options(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('methods = ["fedprox"]\nsettings = "federations"\n[options]\nvalidation = 0.1\n')
    mine, theirs = (dict(read_spec(p).axes) for p in (tmp_path / "s.toml", shipped("federations") or ""))
    assert list(mine) == list(theirs) and len(mine) == 16
    for name, options in theirs.items():
        assert dict(mine[name]) == {**dict(options), "validation": 0.1}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('methods = ["fedavg"]\nsettings = "federation"', "be tables, or one of cross, cross-tuned, fedbal-parts"),
        ("methods = [", "is not a study"),
        ('methods = ["fedavg"]\nsedes = 3', "did you mean 'seeds'"),
        ("methods = []", "name at least one method"),
        ('methods = ["fedavg"]\nseeds = []', "seeds must"),
        ("methods = 3", "'methods' must be a list; got 3"),
        ('methods = ["fedavg"]\n[options]\nlr = []', "options.lr must be a word"),
        ('methods = ["fedavg"]\nsettings = 3', "'settings' must be a word or a list"),
        ('methods = ["fedavg"]\nsettings = []', "settings must be"),
        ('methods = ["fedavg"]\n[tune]\nlr = "0.3..0.1"', "tune must be"),
        ('methods = ["fedavg"]\ntitle = 3', "'title' must be a word"),
        ('methods = ["fedavg"]\nmethod = 3', "'method' must be a table"),
        ("group = 3", "'group' must be a table"),
        ("[group]\na = 3", "group.a: 'its content' must be a table; got 3"),
        ('[group.a]\nmethod = "fedavg"', "did you mean 'methods'"),
        ('[group.a]\nmethods = "fedavg"', "group.a: 'methods' must be a list"),
        ('[group.a]\nmethods = ["fedavg"]\nsuffix = 2', "group.a: 'suffix' must be a word"),
        ('methods = ["fedavg"]\n[group.a]\nmethods = ["fedavg"]', "be different"),
    ],
)
def test_a_study_file_with_a_mistake_is_one_line(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(content)
    with pytest.raises(ConfigError, match=told) as raised:
        read_spec(tmp_path / "study.toml")
    assert "\n" not in str(raised.value) and "study.toml" in str(raised.value)


# Tuning


def test_every_method_has_the_same_trials() -> None:
    tuning = tuning_of("lr=log:0.01..0.3, momentum=0..0.9, epochs=int:1..3", 4)
    points = tuning.points()
    assert points == tuning.points() and len(set(points)) == 4
    for point in points:
        lr, momentum, epochs = (float(value) for _, value in point)
        assert 0.01 <= lr <= 0.3 and 0 <= momentum <= 0.9 and epochs in (1, 2, 3)


@pytest.mark.parametrize(
    "space", ["lr", "lr=0.1", "lr=log:0..1", "lr=0.3..0.1", "lr=1..inf", "=0..1", "lr=a..b", 3, ""]
)
def test_what_is_no_search_space_is_refused(space: Any) -> None:
    with pytest.raises(ConfigError, match="tune must be"):
        tuning_of(space)


def test_one_trial_is_no_tuning() -> None:
    with pytest.raises(ConfigError, match="tune_trials must be at least 2"):
        tuning_of("lr=0..1", 1)
