"""Fuzzed command lines and configurations: each ends with 0, 2 or 130 in finite time, a mistake is told in one line."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from support.attack import FULL, Line, some
from support.bounds import bounded
from support.fuzz import DATA, FILES, endless, fault, fuzz_place, tried
from support.grammar import Grammar, experiment_json, mutated
from support.old_format import as_format_1

CHUNK = 250


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that lines may name."""
    return fuzz_place(tmp_path_factory.mktemp("fuzz"))


def in_one_thread(words: list[str]) -> list[str]:
    """Endless work in the thread that Ctrl-C reaches: a run waits for clients that other threads train."""
    flags = [i for i, word in enumerate(words) if word == "--threads" or word.startswith("--threads=")]
    for i in flags[::-1]:
        del words[i : i + 1 + (words[i] == "--threads")]
    return [*words, "--threads", "1"] if words[:1] == ["run"] and endless(words) else words


@pytest.mark.parametrize("part", range(some(1, 40)))
def test_fuzzed_command_lines(part: int, place: Path, tiny: None) -> None:
    grammar = Grammar(part, DATA, FILES)
    with Line("commands", "fuzzed command lines") as line, bounded(), contextlib.chdir(place):
        for number in range(some(150, CHUNK)):
            words = in_one_thread(grammar.line(part * CHUNK + number))
            tried(line, words, grammar.pick(("utf-8", "ascii", "latin-1")))


METHODS = ("fedavg", "fedbal", "scaffold", "seolkim", "fedadam", "moon", "fedgrab", "creff", "pfedme", "fedvc")


@pytest.mark.parametrize("part", range(some(1, 20)))
def test_fuzzed_configurations(part: int, place: Path, tmp_path: Path, tiny: None) -> None:
    gen = np.random.Generator(np.random.PCG64(1000 + part))
    recorded = [json.loads((place / "run" / "config.json").read_text())]
    with Line("commands", "fuzzed configurations, --from") as line, bounded(), contextlib.chdir(place):
        for number in range(some(130, CHUNK)):
            base = recorded[0] if gen.random() < 0.5 else {**experiment_json(METHODS[number % len(METHODS)]), **SMALL}
            content = mutated(base, gen, int(gen.integers(1, 4)))
            file = tmp_path / f"{number}.json"
            file.write_text(json.dumps(content))
            failure = fault(["run", "--from", str(file), "--out", str(tmp_path / f"run{number}")], "utf-8")
            line.check(not failure, f"part {part} number {number}: {failure}")


SMALL = {"path": "table.npz", "data": {"name": "npz"}, "model": {"name": "logistic"}}
FIGURES = (
    "curves", "weights", "selection", "drift", "asymmetry", "per_class", "cosine", "oversampling", "tsne",
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
            os.link(place / "run" / "final.safetensors", folder / "final.safetensors")
            figure = FIGURES[int(gen.integers(len(FIGURES)))]
            readers = (
                ["plot", str(folder), "--figure", figure, "--out", "p.svg"],
                ["plot", str(folder), "--out", "p.svg"],
                ["evaluate", str(folder)],
                ["report", str(folder), "--out", "p.html", "--tables", "tables"],
            )
            for words in readers if FULL else [readers[int(gen.integers(len(readers)))]]:
                failure = fault(words, "utf-8")
                line.check(not failure, f"part {part} number {number}, {struck}: fedskew {words}: {failure}")


def _struck(text: str, name: str, gen: np.random.Generator) -> str:
    if name != "rounds.jsonl":
        return json.dumps(mutated(json.loads(text), gen, int(gen.integers(1, 3))))
    rows = [json.loads(line) for line in text.splitlines()]
    at = int(gen.integers(len(rows)))
    rows[at] = mutated(rows[at], gen, int(gen.integers(1, 3)))
    return "".join(json.dumps(row) + "\n" for row in rows)
