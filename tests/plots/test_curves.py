"""Curves and tables of records: what is found, how runs are named and averaged, that pictures are whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.config import recorded
from fedskew.config.recorded import Run, find_runs
from fedskew.errors import ConfigError, RecordError
from fedskew.plots import canvas
from fedskew.plots import curves as plots
from fedskew.plots.canvas import look_of
from fedskew.plots.groups import recall_of, title_of
from fedskew.records.summary import summarise
from support.pictures import size_of

pytest.importorskip("matplotlib")

CONFIG: dict[str, Any] = {
    "method": {"name": "fedavg", "parts": [{"name": "cross_entropy"}], "weighting": {"name": "size"}},
    "data": {"name": "digits", "augment": None}, "partition": {"name": "dirichlet", "alpha": 0.1},
    "model": {"name": "mlp", "hidden": 32}, "clients": 20, "cohort": 5, "rounds": 3, "auxiliary": 0, "seed": 0,
}  # fmt: skip


def written(folder: Path, accuracies: list[float | None], **changed: Any) -> Path:
    """A run folder with these accuracies; None is a round without evaluation."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changed}))
    rows = []
    for number, accuracy in enumerate(accuracies, 1):
        row: dict[str, Any] = {"round": number, "upload_bytes": 2_000_000, "download_bytes": 3_000_000}
        row |= {"samples": 10, "steps": 2, "wall_s": 0.5}
        if accuracy is not None:
            recall = [accuracy, 1.0, 0.0]
            row |= {"accuracy": accuracy, "macro_f1": accuracy / 2, "per_class_recall": recall, "support": [5, 5, 0]}
        rows.append(row)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def method(name: str, **weighting: Any) -> dict[str, Any]:
    return {"name": name, "parts": [{"name": "cross_entropy"}], "weighting": {"name": "size", **weighting}}


# Finding


def test_runs_are_found_below_folders_once_and_in_order(tmp_path: Path) -> None:
    a, b = written(tmp_path / "x" / "a", [0.5]), written(tmp_path / "x" / "deep" / "b", [0.5])
    (tmp_path / "x" / "note.txt").write_text("no run")
    assert find_runs([tmp_path]) == [a, b]
    assert find_runs([b, tmp_path / "x", tmp_path / "x" / "note.txt"]) == [b, a]


def test_no_run_and_too_many_folders_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecordError, match=r"no run folder found in .*config.json and rounds.jsonl"):
        find_runs([tmp_path])
    with pytest.raises(RecordError, match="there is no run at 'nowhere'"):
        find_runs(["nowhere"])
    monkeypatch.setattr(recorded, "MOST_FOLDERS", 3)
    for name in "abc":
        (tmp_path / name).mkdir()
    with pytest.raises(RecordError, match="more than 3 folders below it; name the folder that holds the runs"):
        find_runs([tmp_path])


# Naming and grouping


def labels(*folders: Path) -> list[str]:
    return [g.label for g in plots.groups_of(folders)]


def test_seeds_are_grouped_and_a_repetition_stands_alone(tmp_path: Path) -> None:
    folders = [written(tmp_path / f"s{s}", [0.5], seed=s, engine_used=str(s)) for s in range(3)]
    assert labels(*folders) == ["fedavg, 3 seeds"]
    again = written(tmp_path / "again", [0.6], seed=1)
    assert labels(*folders, again) == ["fedavg, 3 seeds", "fedavg #2"]


def test_the_same_method_is_told_apart_by_what_differs(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [0.5], method=method("mine", beta=1.0))
    b = written(tmp_path / "b", [0.5], method=method("mine", beta=3.0))
    c = written(tmp_path / "c", [0.5], method=method("other"))
    assert labels(a, b, c) == ["mine (beta 1)", "mine (beta 3)", "other"]
    d = written(tmp_path / "d", [0.5], method={**method("mine"), "weighting": {"name": "uniform"}})
    assert labels(a, d) == ["mine (size)", "mine (uniform)"]


def test_a_scenario_that_differs_is_in_every_label_and_not_in_the_title(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [0.5], partition={"name": "iid"})
    b = written(tmp_path / "b", [0.5], method=method("mine"))
    assert labels(a, b) == ["fedavg, iid", "mine, dirichlet"]
    runs = [recorded.read_run(folder) for folder in (a, b)]
    assert title_of(runs) == "digits, 20 clients, cohort 5, mlp (hidden 32)"
    assert title_of(runs[:1]) == "digits, iid, 20 clients, cohort 5, mlp (hidden 32)"


def test_a_colour_is_a_method_and_dashes_are_a_setting(tmp_path: Path) -> None:
    """Without several settings, and beyond the colours or the dashes, each name has a look of its own."""

    def looks(methods: int, settings: int) -> list[list[tuple[Any, Any]]]:
        named = [(f"m{i}", f"s{j}") for i in range(methods) for j in range(settings)]
        folders = [
            written(tmp_path / f"{methods}{settings}" / f"{m}{s}", [0.5], method=method(m), partition={"name": s})
            for m, s in named
        ]
        found = [look_of(group.place, 20) for group in plots.groups_of(folders)]
        styles = [(one["color"], one["linestyle"]) for one in found]
        assert len(set(styles)) == len(styles)
        return [styles[i * settings : (i + 1) * settings] for i in range(methods)]

    for rows in (looks(3, 2), looks(7, 5)):
        assert all(len({ink for ink, _ in row}) == 1 for row in rows)
        assert all(len({dash for _, dash in column}) == 1 for column in zip(*rows, strict=True))
    assert len({dash for row in looks(5, 1) for _, dash in row}) == 5
    looks(3, 6)


def test_a_folder_whose_configuration_is_bare_goes_by_its_name_and_a_number(tmp_path: Path) -> None:
    for place in ("x/run", "y/run", "x/other"):
        written(tmp_path / place, [0.5])
        (tmp_path / place / "config.json").write_text('{"engine_used": "sequential"}')
    folders = find_runs([tmp_path])
    assert labels(*folders) == ["other", "run", "run #2"]
    assert title_of([recorded.read_run(folder) for folder in folders]) == "3 runs"


def test_models_of_the_clients_own_have_a_panel_where_recorded(tmp_path: Path, outside: Any) -> None:
    plain = written(tmp_path / "a", [0.2, 0.4])
    assert len(drawn([plain]).axes) == 4
    own = written(tmp_path / "b", [0.3, 0.5, 0.6], method=method("b"))
    rows = [json.loads(line) for line in (own / "rounds.jsonl").read_text().splitlines()]
    for row, value in zip(rows, (None, 0.7, 0.8), strict=True):
        row |= {} if value is None else {"personal_accuracy": value}
    (own / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (own / "summary.json").write_text(json.dumps(summarise(rows)))
    personal = drawn([plain, own]).axes[3]
    assert [line.get_xydata().tolist() for line in personal.lines] == [[[2, 0.7], [3, 0.8]]]
    assert "own models" in personal.get_title() and not outside(drawn([plain, own]))


# Curves


def test_a_value_that_is_no_finite_number_is_no_point_of_a_curve(tmp_path: Path) -> None:
    """A damaged record may hold it; `np.nanmean` of nothing but NaN warns."""
    file = written(tmp_path / "a", [0.25, 0.5, 0.75]) / "rounds.jsonl"
    text = file.read_text().replace('"accuracy": 0.25', '"accuracy": NaN')
    file.write_text(text.replace('"accuracy": 0.75', '"accuracy": Infinity'))
    rounds, values, *_ = plots.groups_of([tmp_path / "a"])[0].runs[0].series("accuracy")
    assert (rounds, values.tolist()) == ([2], [0.5])


def test_bytes_that_are_no_number_leave_the_curve_over_rounds(tmp_path: Path) -> None:
    file = written(tmp_path / "a", [0.25, 0.5]) / "rounds.jsonl"
    row, *rest = file.read_text().splitlines()
    file.write_text("\n".join([json.dumps({**json.loads(row), "upload_bytes": float("nan")}), *rest]) + "\n")
    curve = plots.curve_of(plots.groups_of([tmp_path / "a"])[0].runs, "accuracy")
    assert curve is not None and curve.mean.tolist() == [0.25, 0.5] and np.isnan(curve.megabytes).all()


def test_seeds_evaluated_in_different_rounds_are_aligned(tmp_path: Path) -> None:
    written(tmp_path / "a", [0.2, None, 0.4], seed=0)
    written(tmp_path / "b", [0.4, 0.6], seed=1)
    (group,) = plots.groups_of(find_runs([tmp_path]))
    curve = plots.curve_of(group.runs, "accuracy")
    assert curve is not None and curve.rounds.tolist() == [1, 2, 3]
    assert curve.mean.tolist() == pytest.approx([0.3, 0.6, 0.4]) and curve.low is not None
    assert curve.low.tolist() == pytest.approx([0.2, 0.6, 0.4])
    assert curve.megabytes.tolist() == [2, 4, 6] and curve.seconds.tolist() == [0.5, 1, 1.5]


def test_one_seed_with_a_metric_has_no_band(tmp_path: Path) -> None:
    written(tmp_path / "a", [0.2, 0.4], seed=0)
    written(tmp_path / "b", [None, None], seed=1)
    (group,) = plots.groups_of(find_runs([tmp_path]))
    curve = plots.curve_of(group.runs, "accuracy")
    assert curve is not None and curve.mean.tolist() == [0.2, 0.4] and curve.low is curve.high is None


def drawn(folders: list[Path]) -> Any:
    figure = plots._compared(plots.groups_of(folders))
    figure.canvas.draw()
    return figure


def test_lines_hold_the_values_of_the_record(tmp_path: Path) -> None:
    folders = [written(tmp_path / "a", [0.2, 0.4, 0.9]), written(tmp_path / "b", [0.1], method=method("b"))]
    accuracy, f1, upload, recall = drawn(folders).axes
    assert accuracy.lines[0].get_xydata().tolist() == [[1, 0.2], [2, 0.4], [3, 0.9]]
    assert f1.lines[0].get_ydata().tolist() == [0.1, 0.2, 0.45]
    assert upload.lines[0].get_xdata().tolist() == [2, 4, 6]
    assert recall.images[0].get_array().tolist() == [[9, 10, -1], [1, 10, -1]]
    assert [t.get_text() for t in recall.texts] == ["90", "100", "10", "100"]
    assert [t.get_text() for t in recall.get_yticklabels()] == ["fedavg", "b"]


@pytest.mark.parametrize("runs", [1, 9])
def test_no_text_is_clipped_and_the_legend_stands_below(tmp_path: Path, runs: int, outside: Any) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    named = [method(f"method_with_a_long_name_{i}") for i in range(runs)]
    folders = [written(tmp_path / str(i), rng.random(60).tolist(), method=m) for i, m in enumerate(named)]
    figure = drawn(folders)
    assert not outside(figure)
    (legend,) = figure.legends
    lowest = min(axes.get_tightbbox().y0 for axes in figure.axes)
    assert legend.get_window_extent().y1 <= lowest + 1


# Pictures


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ""])
def test_the_picture_is_written_and_is_the_same_again(tmp_path: Path, suffix: str) -> None:
    folders = [written(tmp_path / "runs" / str(s), [0.2, 0.4], seed=s) for s in range(2)]
    one, two = (canvas.save(plots.comparison(folders), tmp_path / "new" / f"{n}{suffix}") for n in "ab")
    assert one.suffix == (suffix or ".png") and one.read_bytes() == two.read_bytes()
    if one.suffix == ".png":
        assert size_of(one)[0] == 1600


def test_another_suffix_an_unwritable_place_and_runs_without_a_round_are_one_line(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [0.5])
    with pytest.raises(ConfigError, match=r"out must end in .png, .svg or .pdf; got 'x.gif'"):
        canvas.save(plots.comparison([run]), Path("x.gif"))
    with pytest.raises(RecordError, match="cannot write"):
        canvas.save(plots.comparison([run]), run / "config.json" / "x.png")
    with pytest.raises(RecordError, match="no evaluated round yet"):
        plots.comparison([written(tmp_path / "young", [None])])


@pytest.mark.thorough
def test_pyplot_is_never_imported_and_no_setting_is_left_behind(tmp_path: Path) -> None:
    run = written(tmp_path / "run", [0.5])
    program = f"""
import sys
from fedskew.plots import canvas, curves as plots
assert "matplotlib" not in sys.modules
import matplotlib
settings = lambda: {{k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != "backend"}}  # which loads pyplot
before = settings()
canvas.save(plots.comparison([{str(run)!r}]), {str(tmp_path / "x.png")!r})
assert settings() == before and "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_a_title_leaves_out_what_is_unset() -> None:
    config = {"data": {"name": "patients"}, "partition": {"name": "natural", "column": ""}, "model": {"name": "mlp"}}
    assert title_of([Run(Path("a"), config, [], {})]) == "patients, natural, mlp"


def test_recalls_of_a_round_that_lacks_something() -> None:
    row = {"per_class_recall": [0.5, 0.0]}
    np.testing.assert_equal(recall_of({**row, "support": [4, 0]}), [0.5, np.nan])
    assert recall_of(row).tolist() == [0.5, 0.0] and not len(recall_of({"support": [4, 0]}))
