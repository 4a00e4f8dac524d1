"""Fuzzed studies: command lines of ``compare`` and study files. Each ends with 0, 2 or 130, a mistake in one line."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedskew.studies import study as module
from fedskew.studies.work import RunJob, work
from support.attack import Line, some
from support.bounds import bounded
from support.fuzz import DATA, FILES, fault, fuzz_place, tried
from support.grammar import mutated
from support.grammar_compare import STUDY, CompareGrammar, toml_of

CHUNK = 250
STUDIES = ["skew", *(f"{n}.toml" for n in ("good", "tuned", "bad", "text", "folder", "absent", "deep", "empty"))]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the other attack, and studies."""
    folder = fuzz_place(tmp_path_factory.mktemp("fuzz"))
    small = {"clients": 3, "cohort": 2, "rounds": 1, "model": "logistic", "data": "npz", "path": "table.npz"}
    (folder / "good.toml").write_text(toml_of({"methods": ["fedavg", "fedla"], "options": small}))
    (folder / "tuned.toml").write_text(toml_of({**STUDY, "options": {**STUDY["options"], **small}}))
    (folder / "bad.toml").write_text(toml_of({"methods": ["fedavg"], "seed": 1}))
    (folder / "deep.toml").write_text("methods = " + "[" * 50_000)
    (folder / "empty.toml").write_text("")
    shutil.copy(folder / "text", folder / "text.toml")
    (folder / "folder.toml").mkdir()
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are done in this process, one after another; none is longer than two rounds."""

    def schedule(jobs: list[RunJob], processes: int, ended: Any) -> None:
        for job in jobs[:4]:
            outcome = work(job)
            if outcome.state == "interrupted":
                raise KeyboardInterrupt
            ended(outcome)

    monkeypatch.setattr(module, "schedule", schedule)


@pytest.mark.parametrize("part", range(some(1, 20)))
def test_fuzzed_lines_of_compare(part: int, place: Path, tiny: None) -> None:
    grammar = CompareGrammar(3000 + part, DATA, FILES, STUDIES)
    with Line("commands", "fuzzed command lines of compare") as line, bounded(), contextlib.chdir(place):
        for number in range(some(100, CHUNK)):
            words = grammar.line(part * CHUNK + number)
            tried(line, words, grammar.pick(("utf-8", "ascii", "latin-1")))


@pytest.mark.parametrize("part", range(some(1, 20)))
def test_fuzzed_study_files(part: int, place: Path, tmp_path: Path, tiny: None) -> None:
    gen = np.random.Generator(np.random.PCG64(4000 + part))
    with Line("commands", "fuzzed study files") as line, bounded(), contextlib.chdir(place):
        for number in range(some(60, CHUNK)):
            content = mutated(STUDY, gen, int(gen.integers(1, 4)))
            file = tmp_path / f"{number}.toml"
            with contextlib.suppress(AttributeError):  # the whole of it was replaced
                file.write_text(toml_of(content), encoding="utf-8", errors="surrogatepass")
            words = ["compare", str(file), "--store", "store", *(["--dry-run"] if gen.random() < 0.9 else [])]
            failure = fault(words, "utf-8")
            line.check(not failure, f"part {part} number {number}: {toml_of(content)[:400]!r}: {failure}")
