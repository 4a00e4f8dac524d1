"""Every byte of a run folder: what is changed is named before it can change a result, or it has no effect."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.records.folder import read, troubles
from support.attack import Line, some, struck
from support.federations import skewed
from support.runs import rows_of, same

ROUNDS, DONE = 4, 3
HOMES = ("ram", "device")
FILES = {
    "config.json": "configuration", "manifest.json": "manifest", "rounds.jsonl": "rounds",
    "checkpoint/state.safetensors": "checkpoint", "env.json": "environment",
}  # fmt: skip
END = ("final.safetensors", "model.json", "summary.json")


def train(out: Path, home: str, **options: object) -> fs.Result:
    settings = {"model": "logistic", "rounds": ROUNDS, "cohort": 3, "engine": "sequential", "checkpoint_every": 2}
    return fs.run(skewed(), fs.methods.scaffold(), **{**settings, "memory": home, "out": out, **options})  # type: ignore[arg-type]


def stop(row: dict[str, object]) -> None:
    if row["round"] == DONE:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """(home, a folder stopped after three rounds, the result of the run that was not stopped)."""
    base = tmp_path_factory.mktemp(request.param)
    yield request.param, base / "half", halves(base, request.param)


def halves(base: Path, home: str) -> fs.Result:
    """Write a run that is stopped after three rounds, and one that is not."""
    assert train(base / "half", home, on_round=stop).stopped == "interrupted"
    return train(base / "whole", home)


@pytest.mark.parametrize(
    ("stopped", "name"),
    [(home, name) for home in HOMES for name in FILES],
    indirect=["stopped"],
)
def test_a_changed_byte_is_named_or_without_effect(
    name: str, stopped: tuple[str, Path, fs.Result], tmp_path: Path
) -> None:
    home, half, whole = stopped
    train(tmp_path / "other", home, seed=1, on_round=stop)
    content, other = (half / name).read_bytes(), (tmp_path / "other" / name).read_bytes()
    with Line("bytes of a run folder", f"{FILES[name]}, then resumed") as line:
        for i, (what, damaged) in enumerate(struck(content, other, some(24, 800), 7)):
            folder = tmp_path / str(i)
            shutil.copytree(half, folder)
            (folder / name).write_bytes(damaged)
            case = f"{name} ({home}), {what}"
            try:
                again = train(folder, home, resume=True)
            except fs.RecordError as error:
                line.check(Path(name).name in str(error) and "\n" not in str(error), f"{case}: {error}")
            else:
                line.check(same(again.params, whole.params) and rows_of(again) == rows_of(whole), f"{case}: silent")
            shutil.rmtree(folder)


@pytest.mark.parametrize("stopped", ["device"], indirect=True)
@pytest.mark.parametrize("name", ["rounds.jsonl", "config.json", *END])
def test_readers_name_a_changed_byte(name: str, stopped: tuple[str, Path, fs.Result], tmp_path: Path) -> None:
    home, _, whole = stopped
    assert whole.folder is not None
    content = read(whole.folder)
    train(tmp_path / "other", home, seed=1)
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)

    def fine(given: Any) -> bool:
        if isinstance(given, fs.RecordError):
            return name in str(given) and "\n" not in str(given)
        return isinstance(given, tuple) and given[0] == content and same(given[1].params, whole.params)

    with Line("bytes of a run folder", f"{name}, then read") as line:
        other = (tmp_path / "other" / name).read_bytes()
        line.strike(folder / name, other, some(60, 3000), lambda: (read(folder), fs.load_model(folder)), fine, 9)


@pytest.mark.parametrize(("stopped", "name"), [("device", name) for name in ("env.json", *END)], indirect=["stopped"])
def test_verify_names_a_changed_byte(name: str, stopped: tuple[str, Path, fs.Result], tmp_path: Path) -> None:
    """What no reader reads, too."""
    whole = stopped[2]
    assert whole.folder is not None
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    assert troubles(folder) == (ROUNDS, [])
    named = lambda verified: any(name in trouble for trouble in verified[1])
    with Line("bytes of a run folder", f"{name}, then verified") as line:
        line.strike(folder / name, b"other", some(40, 1500), lambda: troubles(folder), named, 3)


@pytest.mark.parametrize("name", END)
def test_what_a_run_wrote_at_its_end_is_written_again(name: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "run", "device")
    before = (tmp_path / "run" / name).read_bytes()
    (tmp_path / "run" / name).write_bytes(before[:-3])
    assert rows_of(train(tmp_path / "run", "device", resume=True)) == rows_of(whole)
    assert (tmp_path / "run" / name).read_bytes() == before
