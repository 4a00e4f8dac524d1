"""Fuzzed command lines and configurations: each ends with 0, 2 or 130 in finite time, a mistake is told in one line."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedskew as fs
from fedskew.cli import command
from fedskew.data.sources import parquet
from fedskew.errors import DataError
from fedskew.session import Session
from support.attack import FULL, Line, some
from support.bounds import Hung, bounded, within
from support.grammar import Grammar, experiment_json, mutated
from support.old_format import as_format_1

SECONDS = 60  # that a command may take; alone it takes a tenth of a second, on a busy machine it may stall
PATIENCE = 4  # seconds until Ctrl-C ends a line that asks for endless work
CHUNK = 250


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small data, a run, a partition, and files that are none of these."""
    folder = tmp_path_factory.mktemp("fuzz")
    gen = np.random.Generator(np.random.PCG64(0))
    y = np.arange(60) % 3
    np.savez(folder / "table.npz", x=gen.normal(size=(60, 4)).astype(np.float32), y=y, client=np.arange(60) % 4)
    np.savez(
        folder / "images.npz",
        x=gen.integers(0, 256, (60, 1, 8, 8)).astype(np.uint8),
        y=np.array(["$a", "[/b]", "\x1bc"])[y],
    )
    lines = [f"{gen.normal():.3f},{i},{'ab'[i % 2]},s{i % 3}" for i in range(40)]
    (folder / "table.csv").write_text("\n".join(["x\x1b[1m,$id,label,client", *lines]))
    (folder / "counts.csv").write_text("cat,[/dog]\n5,0\n1,4\n")
    np.save(folder / "counts.npy", np.array([[1, 2], [3, 0]]))
    fed = fs.federate("digits", "dirichlet", clients=4)
    fs.data.save_partition(folder / "split.npz", fed)
    (folder / "text").write_bytes(b"\xff\xfe no file of ours \x1b[0m")
    (folder / "empty").write_text("")
    (folder / "folder").mkdir()
    (folder / "deep.json").write_text("[" * 50_000)
    with contextlib.chdir(folder):
        words = [
            "--data",
            "npz",
            "--path",
            "table.npz",
            "--clients",
            "3",
            "--cohort",
            "2",
            "--rounds",
            "2",
            "--model",
            "logistic",
        ]
        assert ended(["run", "fedavg", *words, "--diagnose", "drift", "--out", "run"])[0] == 0
    return folder


def ended(words: list[str], encoding: str = "utf-8") -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command on a strict terminal."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = streams
    try:
        command.main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.stdout, sys.stderr = before
    for stream in streams:
        stream.flush()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in streams)  # type: ignore[attr-defined]
    return code, out, err


def endless(words: list[str]) -> bool:
    """Whether a line asks for more work than a life holds; Ctrl-C must end it."""
    numbers = (word.rpartition("=")[2] for word in words)
    return any(number.isdecimal() and int(number) > 10**6 for number in numbers if len(number) < 25)


def in_one_thread(words: list[str]) -> list[str]:
    """Endless work in the thread that Ctrl-C reaches: a run waits for clients that other threads train."""
    flags = [i for i, word in enumerate(words) if word == "--threads" or word.startswith("--threads=")]
    for i in flags[::-1]:
        del words[i : i + 1 + (words[i] == "--threads")]
    return [*words, "--threads", "1"] if words[:1] == ["run"] and endless(words) else words


def fault(words: list[str], encoding: str) -> str:
    """What is wrong with how a command ends; "" where nothing is."""
    try:
        with within(*(PATIENCE, KeyboardInterrupt) if endless(words) else (SECONDS, Hung)):
            code, out, err = ended(words, encoding)
    except Hung:
        return f"no end in {SECONDS} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    told = [
        line for line in err.splitlines() if line.startswith("fedskew: ") and not line.startswith("fedskew: note: ")
    ]
    if code not in (0, 2, 130):
        return f"exit code {code}: {err[-400:]}"
    if "Traceback" in err or "\x1b" in out or "\x1b" in err:
        return f"a traceback or an escape code: {(out + err)[-400:]!r}"
    return f"{len(told)} lines of a mistake: {err[-400:]}" if code == 2 and len(told) != 1 else ""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training ends after two rounds, as Ctrl-C would end it, and nothing is downloaded."""
    run_round = Session.round

    def short(self: Session) -> Any:
        if len(self.rows) >= 2:
            raise KeyboardInterrupt
        return run_round(self)

    def offline(*_: Any, **__: Any) -> Any:
        raise DataError("no network in tests")

    monkeypatch.setattr(Session, "round", short)
    monkeypatch.setattr(parquet, "hub_tables", offline)
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")


DATA = (
    ["--data", "npz", "--path", "table.npz"], ["--data", "npz", "--path", "images.npz"],
    ["--data", "npz", "--data.path", "table.npz"], ["--data", "csv", "--path", "table.csv"], [],
)  # fmt: skip
FILES = (
    "run", "run/config.json", "run/rounds.jsonl", "split.npz", "table.npz", "images.npz", "table.csv", "counts.csv",
    "counts.npy", "text", "empty", "deep.json", "folder", "absent", "a" * 300, "/dev/null", "table.npz/x",
    "run/checkpoint/state.safetensors",
)  # fmt: skip


@pytest.mark.parametrize("part", range(some(1, 40)))
def test_fuzzed_command_lines(
    part: int, place: Path, tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    grammar = Grammar(part, DATA, FILES)
    with Line("commands", "fuzzed command lines") as line, bounded(), contextlib.chdir(place):
        for number in range(some(150, CHUNK)):
            words = in_one_thread(grammar.line(part * CHUNK + number))
            told = fault(words, grammar.one(("utf-8", "ascii", "latin-1")))
            line.check(not told, f"fedskew {' '.join(w if len(w) < 80 else w[:80] + '...' for w in words)!r}: {told}")


METHODS = ("fedavg", "fedbal", "scaffold", "seolkim", "fedadam", "moon", "fedgrab", "creff", "pfedme", "fedvc")


@pytest.mark.parametrize("part", range(some(1, 20)))
def test_fuzzed_configurations(
    part: int, place: Path, tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDSKEW_CACHE", str(tmp_path / "cache"))
    gen = np.random.Generator(np.random.PCG64(1000 + part))
    recorded = [json.loads((place / "run" / "config.json").read_text())]
    with Line("commands", "fuzzed configurations, --from") as line, bounded(), contextlib.chdir(place):
        for number in range(some(130, CHUNK)):
            base = recorded[0] if gen.random() < 0.5 else {**experiment_json(METHODS[number % len(METHODS)]), **SMALL}
            content = mutated(base, gen, int(gen.integers(1, 4)))
            file = tmp_path / f"{number}.json"
            file.write_text(json.dumps(content))
            told = fault(["run", "--from", str(file), "--out", str(tmp_path / f"run{number}")], "utf-8")
            line.check(not told, f"part {part} number {number}: {told}")


SMALL = {"path": "table.npz", "data": {"name": "npz"}, "model": {"name": "logistic"}}
FIGURES = (
    "curves", "weights", "selection", "drift", "asymmetry", "coverage", "per_class", "cosine", "oversampling", "tsne",
    "heatmap",
)  # fmt: skip


@pytest.mark.parametrize("part", range(some(1, 4)))
def test_fuzzed_records(part: int, place: Path, tmp_path: Path, tiny: None) -> None:
    """Rounds, summary, model and configuration with entries of other types, read by every command that reads runs."""
    gen = np.random.Generator(np.random.PCG64(2000 + part))
    plain = as_format_1(Path(shutil.copytree(place / "run", tmp_path / "plain")))  # a digest would refuse every change
    files = {name: (plain / name).read_text() for name in ("config.json", "summary.json", "model.json", "rounds.jsonl")}
    with (
        Line("commands", "fuzzed records, read by plot, evaluate, advise and report") as line,
        bounded(),
        contextlib.chdir(place),
    ):
        for number in range(some(20, CHUNK)):
            folder = tmp_path / str(number)
            folder.mkdir()
            struck = list(files)[int(gen.integers(len(files)))]
            for name, text in files.items():
                (folder / name).write_text(_struck(text, name, gen) if name == struck else text)
            (folder / "final.safetensors").symlink_to(place / "run" / "final.safetensors")
            figure = FIGURES[int(gen.integers(len(FIGURES)))]
            readers = (
                ["plot", str(folder), "--figure", figure, "--out", "p.svg"],
                ["plot", str(folder), "--out", "p.svg"],
                ["evaluate", str(folder)],
                ["advise", "counts.csv", "--evidence", str(folder)],
                ["report", str(folder), "--out", "p.html", "--tables", "tables"],
            )
            for words in readers if FULL else [readers[int(gen.integers(len(readers)))]]:
                told = fault(words, "utf-8")
                line.check(not told, f"part {part} number {number}, {struck}: fedskew {words}: {told}")


def _struck(text: str, name: str, gen: np.random.Generator) -> str:
    if name != "rounds.jsonl":
        return json.dumps(mutated(json.loads(text), gen, int(gen.integers(1, 3))))
    rows = [json.loads(line) for line in text.splitlines()]
    at = int(gen.integers(len(rows)))
    rows[at] = mutated(rows[at], gen, int(gen.integers(1, 3)))
    return "".join(json.dumps(row) + "\n" for row in rows)
