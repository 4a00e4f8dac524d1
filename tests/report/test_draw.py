"""Pictures and tables from Python: of a study, of a result, of a federation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.errors import ConfigError, RecordError
from fedskew.report.draw import KINDS
from fedskew.report.tables import shade
from fedskew.studies.study import Study

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")
SMALL: dict[str, Any] = {"rounds": 2, "clients": 5, "cohort": 3, "model": "logistic"}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    made = fs.study(["fedavg", "fedla"], seeds="0-1", store=tmp_path_factory.mktemp("store"), **SMALL)
    assert str(made) == repr(made) == "Study(fedavg, fedla; 2 seeds; 0 of 4 runs done)"
    with pytest.raises(RecordError, match="there is none"):
        made.plot()
    made.run(1)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_plots_itself(study: Study, kind: str) -> None:
    figure = study.plot(kind)
    assert figure.axes and figure._repr_png_().startswith(b"\x89PNG"), "a notebook shows it"
    if kind == "gains":
        assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["fedla"]
    if kind == "curves":
        assert {text.get_text() for text in figure.axes[0].texts} == {"fedavg", "fedla"}, "names at the lines' ends"


def test_a_study_prints_its_table(study: Study) -> None:
    table = str(study).splitlines()
    assert table[0] == "Accuracy, the mean over the last 2 rounds, %" and table[1].split()[:2] == ["method", "seeds"]
    assert "two seeds are too few for a verdict" in table[-1] and repr(study).endswith("4 of 4 runs done)")


def test_a_result_and_a_federation_plot_themselves() -> None:
    fed = fs.federate("digits", "dirichlet", clients=5)
    result = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, cohort=3)
    assert all(result.plot(kind).axes for kind in KINDS[1:])
    assert "5 clients" in fed.plot().get_suptitle() and fed.plot("Mine").get_suptitle() == "Mine"


def test_what_there_is_not_is_one_line(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unknown kind 'gain'; did you mean 'gains'"):
        study.plot("gain")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[plot\]'"):
        study.plot()


def test_a_shade_is_the_difference_from_the_baseline() -> None:
    assert [shade(v, 0.5) for v in (0.51, 0.55, 0.49, 0.3, 0.95, 1.2)] == [0, 1, 0, -2, 5, 5]
    assert shade(float("nan"), 0.5) == shade(0.5, float("nan")) == 0


def test_a_run_is_told_in_a_file_by_a_line_and_in_a_terminal_by_one_that_moves(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedskew.studies.progress import StudyProgress
    from fedskew.studies.work import RunOutcome

    (planned, _), *_ = study.entries()
    for terminal in (False, True):
        monkeypatch.setattr("rich.console.Console.is_terminal", property(lambda _, now=terminal: now))
        said = list[str]()
        with StudyProgress(study, 2, said.append) as progress:
            progress.ended(RunOutcome(planned.address, "finished", score=0.5, seconds=1.0), planned)
        told = "fedavg, all, seed 0: mean10_accuracy 0.5000 (1.0 s"
        assert len(said) == (not terminal) and (terminal or told in said[0])
        assert (told in capsys.readouterr().err) is terminal
