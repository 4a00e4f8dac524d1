"""Figures of what a run recorded: each is drawn, and one of what was not recorded says how to record it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedskew.cli.command import main
from fedskew.config.flags import experiment_from
from fedskew.errors import ConfigError, RecordError
from fedskew.records.diagnostics import DIAGNOSTICS
from support.federations import skewed
from support.methods import tiny
from support.paths import ROOT
from support.runs import go


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three rounds that recorded everything."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["seolkim", "--model", "logistic", "--rounds", "3", "--clients", "12", "--cohort", "4"]
    experiment_from([*words, "--diagnose", ",".join(DIAGNOSTICS), "--pace.epochs", "1"]).run(folder)
    return folder


def test_every_figure_is_drawn_from_a_record(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from fedskew.plots import rounds as diagplots

    for name in diagplots.FIGURES:
        picture = diagplots.draw(name, [recorded], tmp_path / f"{name}.svg")
        assert picture.read_text().count("<path") > 10, name


def test_runs_stand_side_by_side_and_equal_records_give_equal_files(recorded: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from fedskew.plots import rounds as diagplots

    other = tmp_path / "fedother"
    other.mkdir()
    content = json.loads((recorded / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**content, "method": {**content["method"], "name": "fedother"}}))
    (other / "rounds.jsonl").write_bytes((recorded / "rounds.jsonl").read_bytes())
    one, two = (diagplots.draw("drift", [recorded, other], tmp_path / f"drift{i}.svg") for i in (1, 2))
    assert one.read_bytes() == two.read_bytes() and b"fedother" in one.read_bytes()
    with pytest.raises(ConfigError, match="be given one run for heatmap; got 2"):
        diagplots.draw("heatmap", [recorded, other], tmp_path / "h.png")


def test_a_figure_of_what_was_not_recorded_says_how_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    go(skewed(), tiny("fedavg"), out=tmp_path / "run")
    with pytest.raises(SystemExit) as left:
        main(["plot", str(tmp_path / "run"), "--figure", "drift"])
    told = capsys.readouterr().err
    assert left.value.code == 2 and told.count("\n") == 1 and "holds no 'drift'; record it" in told
    with pytest.raises(SystemExit):
        main(["plot", str(tmp_path / "run"), "--figure", "drfit"])
    assert "unknown figure 'drfit'; did you mean 'drift'?" in capsys.readouterr().err
    with pytest.raises(RecordError, match="cannot be read"):
        from fedskew.plots import rounds as diagplots

        row = {"round": 1, "diagnostics": {"features": {"file": "features/none.safetensors"}}}
        diagplots.tsne([diagplots.Shown("x", tmp_path, {}, [row])])


def test_the_page_of_figures_names_what_there_is() -> None:
    from fedskew.plots.rounds import FIGURES

    page = (ROOT / "docs/guide/figures.md").read_text(encoding="utf-8")
    for name in FIGURES:
        assert f"--figure {name}" in page
    for name in DIAGNOSTICS:
        assert f"`{name}`" in page
