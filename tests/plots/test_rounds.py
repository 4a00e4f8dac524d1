"""Figures of what a run recorded: each is drawn, and one of what was not recorded says how to record it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from fedskew.config.flags import experiment_from
from fedskew.errors import ConfigError, RecordError
from fedskew.plots import FIGURES, canvas
from fedskew.plots import rounds as diagplots
from fedskew.plots.groups import groups_of
from fedskew.records.diagnostics import DIAGNOSTICS
from support.command import mistake
from support.federations import skewed
from support.methods import tiny
from support.paths import ROOT
from support.runs import go

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds that recorded everything."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["seolkim", "--model", "logistic", "--rounds", "3", "--clients", "12", "--cohort", "4"]
    experiment_from([*words, "--diagnose", ",".join(DIAGNOSTICS), "--pace.epochs", "1"]).run(folder)
    return folder


def test_every_figure_is_drawn_from_a_record(recorded: Path, tmp_path: Path) -> None:
    for name in FIGURES:
        picture = canvas.save(diagplots.draw(name, [recorded]), tmp_path / f"{name}.svg")
        assert picture.read_text().count("<path") > 10, name


def test_runs_stand_side_by_side_and_equal_records_give_equal_files(recorded: Path, tmp_path: Path) -> None:
    other = tmp_path / "fedother"
    other.mkdir()
    content = json.loads((recorded / "config.json").read_text())
    content |= {"method": {**content["method"], "name": "fedother"}, "format": 1}
    (other / "config.json").write_text(json.dumps(content))
    (other / "rounds.jsonl").write_bytes((recorded / "rounds.jsonl").read_bytes())
    one, two = (canvas.save(diagplots.draw("drift", [recorded, other]), tmp_path / f"drift{i}.svg") for i in (1, 2))
    assert one.read_bytes() == two.read_bytes() and b"fedother" in one.read_bytes()
    with pytest.raises(ConfigError, match="be given one run for heatmap; got 2"):
        diagplots.draw("heatmap", [recorded, other])


def test_asymmetry_shows_the_mean_of_the_local_models(tmp_path: Path) -> None:
    """The lines of FedGA's figure 5; the evaluated model's is thin and dashed."""

    def row(n: int) -> dict[str, Any]:
        local = {"each": [2.0, 3.0, 4.0], "ratio": 10.0 + n, "models": 10}
        found = {"each": [1.0, 1.5, 2.0], "ratio": 2.0, "local": local, "clients": {}, "train_counts": [3, 3, 3]}
        return {"round": n, "diagnostics": {"asymmetry": found}}

    left, right = diagplots.asymmetry([diagplots.PlottedRun("x", tmp_path, {}, [row(1), row(2)])]).axes
    solid, dashed = left.get_lines()[:2]
    assert list(solid.get_ydata()) == [11.0, 12.0] and list(dashed.get_ydata()) == [2.0, 2.0]
    assert solid.get_label() == "x" and dashed.get_linestyle() == "--"
    assert [list(line.get_ydata()) for line in right.get_lines()[:2]] == [[2.0, 3.0, 4.0], [1.0, 1.5, 2.0]]


def test_per_class_shows_the_mean_of_the_cohort_beside_single_clients(recorded: Path) -> None:
    (group,) = groups_of([recorded])
    run = group.runs[0]
    figure = diagplots.per_class([diagplots.PlottedRun("x", run.folder, run.config, run.rows)])
    titles = [axes.get_title() for axes in figure.axes]
    assert any(t.startswith("mean of") for t in titles) and any(t.startswith("aggregated") for t in titles)


def test_a_class_has_one_colour_in_all_panels(tmp_path: Path) -> None:
    runs = []
    for name, classes in (("a", [0, 1, 2]), ("b", [0, 2])):
        labels = np.array(classes * 4)
        (tmp_path / name / "features").mkdir(parents=True)
        features = np.random.default_rng(0).normal(size=(len(labels), 3)).astype(np.float32)
        save_file({"features": features, "labels": labels}, tmp_path / name / "features" / "x.safetensors")
        row = {"round": 1, "diagnostics": {"features": {"file": "features/x.safetensors"}}}
        runs.append(diagplots.PlottedRun(name, tmp_path / name, {}, [row]))
    left, right = diagplots.tsne(runs).axes[:2]
    colours = [{c.get_label(): tuple(c.get_facecolor()[0]) for c in panel.collections} for panel in (left, right)]
    assert colours[0] == colours[1] and len(set(colours[0].values())) == 3


def test_a_figure_of_what_was_not_recorded_says_how_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go(skewed(), tiny("fedavg"), out=tmp_path / "run")
    assert "holds no 'drift'; record it" in mistake(capsys, "plot", tmp_path / "run", "--figure", "drift")
    said = mistake(capsys, "plot", tmp_path / "run", "--figure", "drfit")
    assert "unknown figure 'drfit'; did you mean 'drift'?" in said
    with pytest.raises(RecordError, match="is missing"):
        row = {"round": 1, "diagnostics": {"features": {"file": "features/none.safetensors"}}}
        diagplots.tsne([diagplots.PlottedRun("x", tmp_path, {}, [row])])


def test_the_page_of_figures_names_what_there_is() -> None:
    pages = ("docs/reference/diagnostics.md", "notes/figures.md")
    page = "".join((ROOT / name).read_text(encoding="utf-8") for name in pages)
    for name in diagplots.FIGURES:
        assert f"--figure {name}" in page
    for name in DIAGNOSTICS:
        assert f"`{name}`" in page
