"""What a run says at its end, and pages that explain one name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fedskew
from fedskew.catalogue.listing import citations
from fedskew.config.tables import TABLES
from fedskew.methods import METHODS
from support.command import SMALL, mistake, output_of
from support.command import fedskew as command
from support.paths import ROOT

WILD = ["--lr", "1", "--clients", "10", "--cohort", "4", "--rounds", "4", "--partition.alpha", "0.1"]


def test_a_collapse_is_one_line_with_what_to_try(tmp_path: Path) -> None:
    wild = ["fedbal", *WILD, "--preset", "feature_balanced_loss"]
    said = output_of("run", *wild, "--out", tmp_path / "a").splitlines()
    why = "fedbal (strength 60, eps 1e-12, lr 1) COLLAPSED: training loss above 23, ten times that of"
    assert len(said) == 2 and said[1].startswith(why)
    assert said[1].endswith("try --clip 5 or a smaller --lr (now 1)")
    assert "COLLAPSED" not in output_of("run", *wild, "--clip", "5", "--out", tmp_path / "b")  # what it says to try


def test_the_last_line_names_the_variant_the_worst_class_and_the_g_mean(tmp_path: Path) -> None:
    (line,) = output_of("run", "fedavg", "--weighting", "uniform", *SMALL, "--out", tmp_path / "a").splitlines()
    assert line.startswith("fedavg (uniform): accuracy ") and re.search(r"worst class \d with recall .*G-mean 0", line)


def test_one_round_is_one_round(tmp_path: Path) -> None:
    words = ["--clients", "1", "--partition", "iid"]
    assert "; 1 round in " in output_of("run", "fedavg", *words, "--rounds", "1", "--out", tmp_path / "a")
    assert ", 1 client, " in output_of("describe", *words)


def test_describe_writes_pictures_only_where_they_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--out federation.png" in output_of("describe", "--clients", 4) and not list(tmp_path.iterdir())
    assert command("describe", "--clients", 4, "--out", "f.svg") == 0
    assert {path.name for path in tmp_path.iterdir()} == {"f.svg"}


# Pages


def test_help_of_run_says_whose_options_it_shows() -> None:
    told = "You gave no METHOD, so these are the options of fedavg"
    for words in (["run", "--help"], ["run", "--lr", "0.1", "--help"], ["help", "run"]):
        assert told in output_of(*words)
    assert told not in output_of("run", "fedbal", "--help")


def test_the_page_of_a_method_has_formula_options_cost_and_reference() -> None:
    said = output_of("methods", "scaffold")
    assert all(word in said for word in ("extra upload: P", "leaves the client: ", "paper: Karimireddy et al. 2020"))
    assert "--parts.control_variate.option = 2: " in said and "c_k" in said


def test_the_page_of_an_ingredient_names_the_methods_that_use_it() -> None:
    said = output_of("methods", "aggregation_balancer", "class_balanced")
    assert "aggregation_balancer, an ingredient: --weighting aggregation_balancer" in said
    assert "used by: fedbal" in said and "--weighting.beta = 3.0: " in said and "--sampler class_balanced" in said


def test_every_method_and_ingredient_has_a_page() -> None:
    ingredients = [name for slot in TABLES if slot not in ("data", "partition", "model") for name in TABLES[slot]]
    for name in dict.fromkeys([*METHODS, *ingredients]):
        said = output_of("methods", name)
        assert said.startswith(f"{name}, a") and "leaves the client: " in said and "object at 0x" not in said
    assert "unknown method or ingredient 'fedbl'; did you mean 'fedbal'?" in mistake("methods", "fedbl")


SLOT = {"datasets": "data", "partitions": "partition", "models": "model"}


@pytest.mark.parametrize("page", ["methods", *SLOT])
def test_no_table_breaks_a_name_at_80_columns(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = output_of(page)
    assert max(map(len, said.splitlines()[:-1])) <= 80 and "…" not in said
    for name in METHODS if page == "methods" else TABLES[SLOT[page]]:
        assert re.search(rf"(?m)^(?:[\w= ]+ = )?{name} ", said), name


# Citations


def test_fedskew_is_cited_as_its_citation_file_says() -> None:
    file = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (entry,) = citations(["fedskew"])
    field = lambda name: re.search(rf'^ *(?:- )?{name}: "?(.*?)"?$', file, re.M)[1]  # type: ignore[index]
    assert entry.startswith("@software{fedskew,")
    for value in (field("name"), field("title"), field("version"), field("license")):
        assert value in entry
    assert f"version = {{{fedskew.__version__}}}" in entry


def test_every_published_dataset_has_a_citation_and_files_of_one_s_own_have_none() -> None:
    own = {"csv", "npz", "parquet", "hub", "images"}
    for name in set(TABLES["data"]) - own:
        assert citations([name])[0].startswith("@"), name
    assert citations(["mnist", "emnist"])[0] != citations(["emnist"])[0]
    for name in own:
        assert "has no paper; cite where the file comes from" in mistake("cite", name)
    assert "unknown method, ingredient or dataset 'mnits'; did you mean 'mnist'?" in mistake("cite", "mnits")
    said = output_of("cite", "fedskew", "fedadam", "fedyogi", "cifar10", "cifar100")
    assert said.count("@") == 3, "fedskew, the adaptive methods' paper, CIFAR's"
