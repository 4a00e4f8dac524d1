"""Names, colours and seeds in pictures: what looks alike is alike, and nothing is hidden behind a name or a mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.config.flags import experiment_from
from fedskew.plots import rounds
from fedskew.plots.canvas import PlottedRun
from fedskew.plots.groups import groups_of, title_of

pytest.importorskip("matplotlib")
SCENE = ["--clients", "6", "--cohort", "3", "--rounds", "2", "--model", "logistic", "--diagnose", "drift"]


def ran(folder: Path, words: str, *seeds: int) -> list[Path]:
    """Runs of a command line, one for each seed."""
    places = []
    for seed in seeds or (0,):
        places.append(folder / f"{words.replace(' ', '_')}-{seed}")
        experiment_from([*words.split(), *SCENE, "--seed", str(seed)]).run(places[-1])
    return places


def begun(folder: Path, words: str, seed: int = 0, **changed: Any) -> Path:
    """The configuration of such a run, and no round."""
    place = folder / f"{words.replace(' ', '_')}-{seed}"
    place.mkdir()
    config = experiment_from([*words.split(), *SCENE, "--seed", str(seed)]).to_json()
    (place / "config.json").write_text(json.dumps({**config, **changed}))
    return place


def named(*folders: Path) -> list[str]:
    return [group.label for group in groups_of(folders)]


def test_variants_and_plain_methods_have_names_of_their_own_alone_and_together(tmp_path: Path) -> None:
    words = ("fedavg", "fedavg --weighting uniform", "fedbal --weighting label_aware")
    plain, control, other = (begun(tmp_path, each) for each in words)
    assert named(plain, control, other) == ["fedavg", "fedavg (uniform)", "fedbal (label_aware)"]
    assert named(control) == ["fedavg (uniform)"] and named(control, other)[0] == "fedavg (uniform)"


def test_settings_of_the_run_that_differ_are_in_every_name(tmp_path: Path) -> None:
    a, b = begun(tmp_path, "fedavg"), begun(tmp_path, "fedbal", rounds=9, validation=0.1, threads=7)
    assert sorted(named(a, b)) == ["fedavg, rounds 2", "fedbal, validation 0.1, rounds 9"]


def test_seeds_that_differ_in_what_decides_no_number_are_one_group(tmp_path: Path) -> None:
    folders = [begun(tmp_path, f"fedavg --max-minutes {minutes}", minutes) for minutes in (60, 90)]
    assert named(*folders) == ["fedavg, 2 seeds"]


def test_training_that_all_share_is_told_once_in_the_title(tmp_path: Path) -> None:
    folders = [begun(tmp_path, f"{name} --lr 0.05") for name in ("fedavg", "fedbal")]
    groups = groups_of(folders)
    assert [g.name for g in groups] == ["fedavg", "fedbal"]
    assert title_of([g.runs[0] for g in groups]).endswith(", logistic, lr 0.05")
    assert named(folders[0]) == ["fedavg (lr 0.05)"]


def test_runs_of_python_are_grouped_by_seed_though_their_counts_differ(tmp_path: Path) -> None:
    for seed in range(3):
        fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.5), clients=6, seed=seed)
        fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=1, cohort=3, seed=seed, out=tmp_path / str(seed))
    counts = [json.loads((tmp_path / str(s) / "config.json").read_text())["counts"] for s in range(3)]
    assert counts[0] != counts[1]
    assert named(*(tmp_path / str(s) for s in range(3))) == ["fedavg, 3 seeds"]


# Colours


def colours(figure: Any) -> dict[str, str]:
    """Colour of each label of the legend, without what follows the name."""
    found = {}
    for axes in figure.axes:
        for line in axes.lines:
            if not str(line.get_label()).startswith("_"):
                found[str(line.get_label()).partition(",")[0].partition(" (")[0]] = str(line.get_color())
    return found


def test_a_configuration_has_one_colour_in_every_figure_whatever_the_order(tmp_path: Path) -> None:
    folders = [*ran(tmp_path, "scaffold"), *ran(tmp_path, "fedavg"), *ran(tmp_path, "fedbal", 0, 1)]
    told = [
        colours(rounds.draw(name, some))
        for name in ("curves", "drift", "selection")
        for some in (folders, folders[::-1])
    ]
    assert len(set(told[0].values())) == 3 and all(found == told[0] for found in told), told


# Seeds


def test_figures_of_one_seed_show_the_same_seed_of_every_method_and_name_it(tmp_path: Path) -> None:
    a, b = ran(tmp_path, "fedavg", 2, 1, 0), ran(tmp_path, "fedbal", 1, 2)
    figure = rounds.draw("drift", [*a, *b])
    assert figure.get_suptitle().endswith(", seed 1") and set(colours(figure)) == {"fedavg", "fedbal"}
    expected = json.loads((a[1] / "rounds.jsonl").read_text().splitlines()[0])["diagnostics"]["drift"]["update"]
    assert expected in [line.get_ydata()[0] for line in figure.axes[1].lines]
    figure = rounds.draw("drift", [a[0], b[0]])
    assert [str(t.get_text()) for t in figure.legends[0].texts] == ["fedavg, seed 2", "fedbal, seed 1"]


def test_selection_shows_rows_clients_and_accuracy() -> None:
    rows = [{"round": r, "samples": 10, "clients": [1, [2, 3]], "accuracy": r / 10} for r in (1, 2, 3)]
    used, clients, accuracy = rounds.selection([PlottedRun("mine", Path("x"), {}, rows)]).axes
    assert used.lines[0].get_ydata().tolist() == [10, 20, 30] and list(clients.lines[0].get_ydata()) == [3, 3, 3]
    assert accuracy.lines[0].get_ydata().tolist() == [0.1, 0.2, 0.3]


def test_error_asymmetry_is_explained_where_it_is_shown() -> None:
    row = {"each": [0.5, 2.0, 1.0], "ratio": 4.0, "train_counts": [1, 2, 3]}
    rows = [{"round": r, "diagnostics": {"asymmetry": row}} for r in (1, 2)]
    figure = rounds.asymmetry([PlottedRun("mine", Path("x"), {}, rows)])
    assert "mean probability that its test rows give to other classes" in figure.legends[0].get_title().get_text()
