"""Trackers on their real packages: every number by round, no step twice after a kill, and no run that ends for them."""

from __future__ import annotations

import json
import shutil
import struct
import sys
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew import track as _base
from fedskew.errors import ConfigError
from support.command import SMALL, fedskew, mistake
from support.tracking import MISTAKES

Steps = dict[str, list[tuple[int, float]]]  # name -> (step, value)
NAMES = ("cat", "dog/wolf", "fox:2", "fox;2", "été", *(f"c{i}" for i in range(5)))


def read_tensorboard(place: Path) -> tuple[Steps, dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader = import_module("tensorboard.backend.event_processing.event_accumulator")
        plugin = import_module("tensorboard.plugins.hparams.plugin_data_pb2")
        (folder,) = place.iterdir()
        found = reader.EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
        steps = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
        content = found.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        told = plugin.HParamsPluginData.FromString(content).session_start_info.hparams
    kinds = ("number_value", "string_value", "bool_value")
    return steps, {name: getattr(v, next(k for k in kinds if v.HasField(k))) for name, v in told.items()}


def read_mlflow(place: Path) -> tuple[Steps, dict[str, Any]]:
    with _base.environment(MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_DISABLE_TELEMETRY="true"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = import_module("mlflow").MlflowClient(tracking_uri=place.resolve().as_uri())
        (run,) = client.search_runs([client.get_experiment_by_name("fedskew").experiment_id])
        names = run.data.metrics
        steps = {n: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, n)] for n in names}
    return steps, dict(run.data.params)


def read_wandb(place: Path) -> tuple[Steps, dict[str, Any]]:
    """The newest offline file, once W&B's own process has written its end."""
    (file,) = sorted((place / "wandb").glob("offline-run-*"))[-1].glob("*.wandb")
    for _ in range(200):
        steps, config, ended = _read_offline(file.read_bytes())
        if ended:
            break
        time.sleep(0.1)
    assert ended
    return steps, config


def _read_offline(data: bytes) -> tuple[Steps, dict[str, Any], bool]:
    """Records of the LevelDB log format, each a message."""
    message = import_module("wandb.proto.wandb_internal_pb2").Record
    at, whole, ended = 7, b"", False
    steps: Steps = {}
    config: dict[str, Any] = {}
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole = data[at + 7 : at + 7 + length] if kind in (1, 2) else whole + data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind not in (1, 4):
            continue
        record = message.FromString(whole)
        if record.HasField("history"):
            row = {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            for name, value in row.items():
                if not name.startswith("_"):
                    steps.setdefault(name, []).append((record.history.step.num, value))
        for update in [*record.run.config.update, *record.config.update]:
            config[update.key or ".".join(update.nested_key)] = json.loads(update.value_json)
        ended |= record.HasField("exit")
    return steps, config, ended


READERS: dict[str, tuple[str, str, Callable[[Path], tuple[Steps, dict[str, Any]]]]] = {
    "tensorboard": ("tensorboard", "tensorboard", read_tensorboard),
    "mlflow": ("mlflow", "mlruns", read_mlflow),
    "wandb": ("wandb", "", read_wandb),
}


@pytest.fixture(params=READERS)
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each tracker whose package is installed; nothing leaves this machine."""
    pytest.importorskip(READERS[request.param][0])
    for name in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a package warns of while it is imported for the first time
        import_module({"tensorboard": "torch.utils.tensorboard"}.get(request.param, request.param))
        if request.param == "mlflow":
            with _base.environment(MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_DISABLE_TELEMETRY="true"):
                assert import_module("mlflow").MlflowClient
    return str(request.param)


def made(tracker: str, place: Path) -> Any:
    below = READERS[tracker][1]
    return getattr(fs.track, tracker)(place / below if below else place)


def found(tracker: str, place: Path) -> tuple[Steps, dict[str, Any]]:
    _, below, read = READERS[tracker]
    return read(place / below if below else place)


@pytest.fixture(scope="module")
def fed() -> Any:
    from dataclasses import replace

    made = fs.federate("digits", "dirichlet", clients=5, seed=0)
    return replace(made, dataset=replace(made.dataset, label_names=NAMES))


OPTIONS: dict[str, Any] = {"model": "logistic", "cohort": 3, "checkpoint_every": 2}


def test_a_tracker_has_every_number_of_every_round_and_the_configuration(
    tracker: str, fed: Any, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = fs.run(
            fed, fs.methods.fedla(), rounds=3, out=tmp_path / "run", on_round=made(tracker, tmp_path), **OPTIONS
        )
    steps, config = found(tracker, tmp_path)
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
    tracker: str, fed: Any, tmp_path: Path
) -> None:
    """The disk as it is when round 5 is tracked and the last checkpoint is that of round 4; then two rounds more."""
    one, two = tmp_path / "one", tmp_path / "two"
    running = made(tracker, one / "track")

    def killed(row: dict[str, Any]) -> None:
        if row["round"] == 5:
            if tracker == "tensorboard":
                running._writer.flush()
            shutil.copytree(one, two, symlinks=True)

    first = fs.track.several(running, killed)
    whole = fs.run(fed, fs.methods.fedavg(), rounds=6, out=one / "run", on_round=first, **OPTIONS)
    (two / "run/.owner.json").unlink(missing_ok=True)
    again = made(tracker, two / "track")
    fs.run(fed, fs.methods.fedavg(), rounds=6, out=two / "run", resume=True, on_round=again, **OPTIONS)
    steps, _ = found(tracker, two / "track")
    for name in ("accuracy", "train_loss", "wall_s", "class/c0"):
        assert [step for step, _ in steps[name]] == [1, 2, 3, 4, 5, 6], name
    assert [v for _, v in steps["loss"]] == pytest.approx([row["loss"] for row in whole.rounds], rel=1e-6)


def test_a_run_with_more_rounds_goes_on_in_the_same_place(tracker: str, fed: Any, tmp_path: Path) -> None:
    for rounds in (2, 4):
        fs.run(fed, fs.methods.fedavg(), rounds=rounds, out=tmp_path / "run", resume=rounds == 4,
               on_round=made(tracker, tmp_path), **OPTIONS)  # fmt: skip
    steps, _ = found(tracker, tmp_path)
    assert [step for step, _ in steps["accuracy"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("when", ["_begin", "_round", "_end"])
def test_a_tracker_that_raises_never_ends_a_run_and_is_noted_once(
    when: str, tracker: str, fed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = made(tracker, tmp_path)

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


def test_a_folder_that_cannot_be_written_never_ends_a_run(tracker: str, fed: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "below"
    with pytest.warns(RuntimeWarning, match="the run continues"):
        assert len(fs.run(fed, fs.methods.fedavg(), rounds=2, on_round=made(tracker, place), **OPTIONS).rounds) == 2


def test_a_tracker_changes_no_number(tracker: str, fed: Any, tmp_path: Path) -> None:
    options = {**OPTIONS, "rounds": 2}
    plain = fs.run(fed, fs.methods.fedavg(), **options)
    tracked = fs.run(fed, fs.methods.fedavg(), on_round=made(tracker, tmp_path), **options)
    assert [r["loss"] for r in plain.rounds] == [r["loss"] for r in tracked.rounds]


def test_the_command_tracks_by_name(tracker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--track", tracker, "--track.folder", tmp_path / "track"]
    assert fedskew("run", "fedavg", *SMALL, "--out", tmp_path / "run", *words) == 0
    assert fedskew("run", "--resume", tmp_path / "run", "--rounds", 3, *words) == 0
    assert "note" not in capsys.readouterr().err
    steps, _ = found(tracker, tmp_path / "track")
    assert [step for step, _ in steps["accuracy"]] == [1, 2, 3] and "class/0" in steps


# Without any package


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_package_that_is_missing_is_one_line_that_names_the_extra(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "_installed", lambda package: False)
    with pytest.raises(ConfigError, match=r"pip install '.\[track\]'"):
        getattr(fs.track, name)(tmp_path)
    said = mistake(capsys, "run", "fedavg", *SMALL, "--track", name, "--out", tmp_path / "run")
    assert "pip install '.[track]'" in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, expected = MISTAKES[case]
    monkeypatch.setattr(_base, "_installed", lambda package: True)
    assert expected in mistake(capsys, "run", "fedavg", *SMALL, *words, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_mode_of_wandb_is_offline_unless_the_user_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_base, "_installed", lambda package: True)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert fs.track.wandb(tmp_path).mode == "offline"  # type: ignore[attr-defined]
    monkeypatch.setenv("WANDB_MODE", "online")
    assert fs.track.wandb(tmp_path).mode == "online"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="mode must be one of offline, online, disabled; got 'onlin'"):
        fs.track.wandb(tmp_path, mode="onlin")


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


def test_no_package_is_imported_before_it_is_used() -> None:
    import subprocess

    names = "('tensorboard', 'mlflow', 'wandb')"
    code = f"import sys, fedskew as fs; fs.track.TRACKERS; sys.exit(any(n in sys.modules for n in {names}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
