"""Trackers on their real packages: every number by round, no step twice after a kill, and no run that ends for them."""

from __future__ import annotations

import json
import re
import shutil
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedskew as fs
from fedskew import track as _base
from fedskew.errors import ConfigError
from support.command import SMALL, fedskew, mistake
from support.paths import ROOT
from support.tracking import MISTAKES

Steps = dict[str, list[tuple[int, float]]]  # name -> (step, value)
NAMES = ("cat", "dog/wolf", "fox:2", "fox;2", "été", *(f"c{i}" for i in range(5)))


def made(place: Path) -> Any:
    return fs.track.tensorboard(place / "tensorboard")


def found(place: Path) -> tuple[Steps, dict[str, Any]]:
    """What TensorBoard reads: every number, and the hyper-parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = import_module("tensorboard.backend.event_processing.event_accumulator")
        plugin = import_module("tensorboard.plugins.hparams.plugin_data_pb2")
        (folder,) = (place / "tensorboard").iterdir()
        events = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        steps = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        told = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    kinds = ("number_value", "string_value", "bool_value")
    return steps, {name: getattr(v, next(k for k in kinds if v.HasField(k))) for name, v in told.items()}


@pytest.fixture(scope="module")
def board() -> None:
    """TensorBoard, where it is installed."""
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the package warns of while it is imported for the first time
        import_module("torch.utils.tensorboard")


@pytest.fixture(scope="module")
def fed() -> Any:
    from dataclasses import replace

    made = fs.federate("digits", "dirichlet", clients=5, seed=0)
    return replace(made, dataset=replace(made.dataset, label_names=NAMES))


OPTIONS: dict[str, Any] = {"model": "logistic", "cohort": 3, "checkpoint_every": 2}


def test_a_tracker_has_every_number_of_every_round_and_the_configuration(board: None, fed: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = fs.run(fed, fs.methods.fedla(), rounds=3, out=tmp_path / "run", on_round=made(tmp_path), **OPTIONS)
    steps, config = found(tmp_path)
    for row in result.rounds:
        for name, value in row.items():
            if name != "round" and isinstance(value, int | float):
                assert dict(steps[name])[row["round"]] == pytest.approx(value, rel=1e-6), name
        recalls = {n: v for n, v in steps.items() if n.startswith("class/")}
        assert len(recalls) == 10, "one for each class, whatever its name"
        told = dict(recalls["class/cat"])[row["round"]]
        assert told == pytest.approx(row["per_class_recall"][0], rel=1e-6)
    assert all([step for step, _ in each] == [1, 2, 3] for each in steps.values())
    values = {name.replace("/", "."): str(value) for name, value in config.items()}
    assert (
        values["method.name"] == "fedla" and float(values["method.pace.lr"]) == 0.1 and values["rounds"] in ("3", "3.0")
    )
    assert not any("label_names" in name or "counts" in name for name in values)


def test_a_run_that_was_killed_and_resumed_has_no_step_twice_and_none_missing(
    board: None, fed: Any, tmp_path: Path
) -> None:
    """The disk as it is when round 5 is tracked and the last checkpoint is that of round 4; then two rounds more."""
    one, two = tmp_path / "one", tmp_path / "two"
    running = made(one / "track")

    def killed(row: dict[str, Any]) -> None:
        if row["round"] == 5:
            running._writer.flush()
            shutil.copytree(one, two, symlinks=True)

    first = fs.track.several(running, killed)
    whole = fs.run(fed, fs.methods.fedavg(), rounds=6, out=one / "run", on_round=first, **OPTIONS)
    (two / "run/.owner.json").unlink(missing_ok=True)
    again = made(two / "track")
    fs.run(fed, fs.methods.fedavg(), rounds=6, out=two / "run", resume=True, on_round=again, **OPTIONS)
    steps, _ = found(two / "track")
    for name in ("accuracy", "train_loss", "wall_s", "class/c0"):
        assert [step for step, _ in steps[name]] == [1, 2, 3, 4, 5, 6], name
    assert [v for _, v in steps["loss"]] == pytest.approx([row["loss"] for row in whole.rounds], rel=1e-6)


@pytest.mark.parametrize("when", ["_begin", "_round", "_end"])
def test_a_tracker_that_raises_never_ends_a_run_and_is_noted_once(
    when: str, board: None, fed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = made(tmp_path)

    def failing(*_: Any) -> None:
        raise OSError("the disk\nis full")

    monkeypatch.setattr(broken, when, failing)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        result = fs.run(fed, fs.methods.fedavg(), rounds=3, out=tmp_path / "run", on_round=broken, **OPTIONS)
    assert len(result.rounds) == 3 and result.stopped == ""
    (told,) = [str(w.message) for w in noted if w.category is RuntimeWarning]
    assert "the run continues without it: OSError: the disk is full" in told
    assert json.loads((tmp_path / "run/summary.json").read_text())["rounds"] == 3


def test_the_command_tracks_by_name(board: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--track", "tensorboard", "--track.folder", tmp_path / "track"]
    assert fedskew("run", "fedavg", *SMALL, "--out", tmp_path / "run", *words) == 0
    assert fedskew("run", "--resume", tmp_path / "run", "--rounds", 3, *words) == 0
    assert "note" not in capsys.readouterr().err
    steps, _ = found(tmp_path / "track")
    assert [step for step, _ in steps["accuracy"]] == [1, 2, 3] and "class/0" in steps


# Without any package


def test_a_package_that_is_missing_is_one_line_that_names_the_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "_installed", lambda package: False)
    with pytest.raises(ConfigError, match=r"pip install '.\[track\]'"):
        fs.track.tensorboard(tmp_path)
    said = mistake(capsys, "run", "fedavg", *SMALL, "--track", "tensorboard", "--out", tmp_path / "run")
    assert "pip install '.[track]'" in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, expected = MISTAKES[case]
    monkeypatch.setattr(_base, "_installed", lambda package: True)
    assert expected in mistake(capsys, "run", "fedavg", *SMALL, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Seen:
    """A tracker of the user's own."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []
        self.rows: list[int] = []
        self.ends: list[dict[str, Any]] = []

    def begin(self, config: dict[str, Any]) -> None:
        self.begun.append(config)

    def __call__(self, row: dict[str, Any]) -> None:
        self.rows.append(row["round"])

    def end(self, summary: dict[str, Any]) -> None:
        self.ends.append(summary)


def test_any_object_with_the_three_methods_is_a_tracker(fed: Any, tmp_path: Path) -> None:
    first, second, plain = Seen(), Seen(), []
    fs.run(fed, fs.methods.fedavg(), rounds=2, out=tmp_path / "run", on_round=first, **OPTIONS)
    both = fs.track.several(second, lambda row: plain.append(row["round"]))
    fs.run(fed, fs.methods.fedavg(), rounds=3, out=tmp_path / "run", resume=True, on_round=both, **OPTIONS)
    assert first.rows == [1, 2] and second.rows == [1, 2, 3], "a resumed run tells a tracker all of its rounds"
    assert plain == [3], "and a plain function those that are new"
    assert (
        first.begun[0]["run"]
        == second.begun[0]["run"]
        == json.loads((tmp_path / "run/manifest.json").read_text())["run"]
    )
    assert second.begun[0]["rounds"] == 3 and second.begun[0]["method"]["name"] == "fedavg"
    assert [s["rounds"] for s in first.ends + second.ends] == [2, 3]


@pytest.mark.parametrize(("package", "name"), [("mlflow", "MLflow"), ("wandb", "WandB")])
def test_the_trackers_of_the_guide_are_told_everything(
    package: str, name: str, fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their lines run; the package is a stand-in that notes its calls."""
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    class Stub(ModuleType):
        def __getattr__(self, called: str) -> Any:
            return lambda *given, **named: calls.append((called, given, named))

    monkeypatch.setitem(sys.modules, package, Stub(package))
    guide = (ROOT / "docs/guide/tracking.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"```python\n(import {package}\n.*?class {name}:.*?)```", guide, re.S)
    scope: dict[str, Any] = {}
    exec(text, scope)
    result = fs.run(fed, fs.methods.fedavg(), rounds=2, on_round=scope[name](), **OPTIONS)
    logged = [(given[0], named["step"]) for called, given, named in calls if called in ("log", "log_metrics")]
    assert [step for _, step in logged] == [1, 2] and logged[1][0]["accuracy"] == result.rounds[1]["accuracy"]
    assert calls[-1][0] in ("end_run", "finish") and "'method.name': 'fedavg'" in str(calls[:2])


def test_a_tracker_inside_of_a_function_is_one_clear_error(fed: Any) -> None:
    """It is told of no beginning, and wrote nothing without a word."""

    class Kept(fs.track.Tracker):
        name, packages = "kept", ("json",)

        def _begin(self, config: Any) -> None: ...

        def _round(self, number: int, values: Any) -> None: ...

        def _end(self, summary: Any) -> None: ...

    kept = Kept()
    with pytest.raises(fs.ConfigError, match="kept must be told that a run begins before its rounds; give it to"):
        fs.run(fed, fs.methods.fedavg(), rounds=2, on_round=lambda row: kept(row), **OPTIONS)
    beside = fs.track.several(kept, lambda row: None)
    assert len(fs.run(fed, fs.methods.fedavg(), rounds=2, on_round=beside, **OPTIONS).rounds) == 2


def test_a_run_that_fails_tells_its_tracker_why(fed: Any) -> None:
    seen = Seen()

    def failing(row: dict[str, Any]) -> None:
        raise ValueError("of the user's own")

    with pytest.raises(ValueError, match="of the user's own"):
        fs.run(fed, fs.methods.fedavg(), rounds=2, on_round=fs.track.several(seen, failing), **OPTIONS)
    assert seen.ends[0]["stopped"] == "ValueError: of the user's own"
