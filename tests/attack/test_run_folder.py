"""Every byte of a run folder: what is changed is named before it can change a result, or it has no effect."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fedskew as fs
from fedskew.records.folder import read, troubles
from support.attack import Line, some
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


def damages(content: bytes, other: bytes, draw: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """(what was done, content after it): a flipped bit in every region, digits changed, cut, extended, swapped."""
    size = len(content)
    for i in range(count):
        at = min(size - 1, i * size // count + draw.randrange(max(1, size // count)))
        flipped = bytearray(content)
        flipped[at] ^= 1 << draw.randrange(8)
        yield f"bit of byte {at} flipped", bytes(flipped)
    digits = [i for i, b in enumerate(content) if 48 <= b <= 57]
    for at in draw.sample(digits, min(count // 2, len(digits))):
        changed = bytearray(content)
        changed[at] = 48 + (changed[at] - 48 + 1 + draw.randrange(9)) % 10
        yield f"digit at {at} changed", bytes(changed)
    for cut in {0, 1, size // 2, size - 1}:
        yield f"cut to {cut} bytes", content[:cut]
    yield "extended by zeros", content + bytes(64)
    yield "extended by itself", content + content
    yield "swapped with that of another run", other


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
        for i, (what, damaged) in enumerate(damages(content, other, random.Random(7), some(12, 400))):
            folder = tmp_path / str(i)
            shutil.copytree(half, folder)
            (folder / name).write_bytes(damaged)
            told = f"{name} ({home}): {what}"
            try:
                again = train(folder, home, resume=True)
            except fs.RecordError as error:
                line.check(Path(name).name in str(error) and "\n" not in str(error), f"{told}: {error}")
            else:
                line.check(same(again.params, whole.params) and rows_of(again) == rows_of(whole), f"{told}: silent")
            shutil.rmtree(folder)


@pytest.mark.parametrize("stopped", ["device"], indirect=True)
@pytest.mark.parametrize("name", ["rounds.jsonl", "config.json", *END])
def test_readers_name_a_changed_byte(name: str, stopped: tuple[str, Path, fs.Result], tmp_path: Path) -> None:
    home, _, whole = stopped
    assert whole.folder is not None
    config, rows, summary = read(whole.folder)
    train(tmp_path / "other", home, seed=1)
    content, other = (whole.folder / name).read_bytes(), (tmp_path / "other" / name).read_bytes()
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    with Line("bytes of a run folder", f"{name}, then read") as line:
        for what, damaged in damages(content, other, random.Random(9), some(30, 2000)):
            (folder / name).write_bytes(damaged)
            try:
                found = read(folder)
                model = fs.load_model(folder)
            except fs.RecordError as error:
                line.check(name in str(error) and "\n" not in str(error), f"{name}: {what}: {error}")
            else:
                equal = found == (config, rows, summary) and same(model.params, whole.params)
                line.check(equal, f"{name}: {what}: silent")


@pytest.mark.parametrize(("stopped", "name"), [("device", name) for name in ("env.json", *END)], indirect=["stopped"])
def test_verify_names_a_changed_byte(name: str, stopped: tuple[str, Path, fs.Result], tmp_path: Path) -> None:
    """What no reader reads, too."""
    whole = stopped[2]
    assert whole.folder is not None
    folder = tmp_path / "run"
    shutil.copytree(whole.folder, folder)
    assert troubles(folder) == (ROUNDS, [])
    content = (folder / name).read_bytes()
    with Line("bytes of a run folder", f"{name}, then verified") as line:
        for what, damaged in damages(content, b"other", random.Random(3), some(20, 1000)):
            (folder / name).write_bytes(damaged)
            line.check(any(name in told for told in troubles(folder)[1]), f"{name}: {what}: not named")


@pytest.mark.parametrize("name", END)
def test_what_a_run_wrote_at_its_end_is_written_again(name: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "run", "device")
    before = (tmp_path / "run" / name).read_bytes()
    (tmp_path / "run" / name).write_bytes(before[:-3])
    assert rows_of(train(tmp_path / "run", "device", resume=True)) == rows_of(whole)
    assert (tmp_path / "run" / name).read_bytes() == before


def test_a_kill_between_two_digests_leaves_a_folder_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration and the manifest are two files: killed between them, the run is still extended."""
    from fedskew.records import manifest

    train(tmp_path / "whole", "device", rounds=6)
    plain, calls = manifest.write_atomic, [0]
    for stop_at in range(1, 9):
        folder = tmp_path / str(stop_at)
        train(folder, "device")
        calls[0] = 0

        def write(path: Path, content: bytes, stop_at: int = stop_at) -> None:
            calls[0] += 1
            if calls[0] == stop_at:
                raise KeyboardInterrupt
            plain(path, content)

        monkeypatch.setattr(manifest, "write_atomic", write)
        with suppress(KeyboardInterrupt):
            train(folder, "device", rounds=6, resume=True)
        monkeypatch.setattr(manifest, "write_atomic", plain)
        again = train(folder, "device", rounds=6, resume=True)
        assert rows_of(again) == rows_of(read(tmp_path / "whole")[1]) and read(folder)[0]["rounds"] == 6
