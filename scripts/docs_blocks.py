"""Run the code of a page: Python blocks in one namespace, command blocks in bash, all in one folder of the page's own.

python scripts/docs_blocks.py docs/guide/runs.md ...     runs the blocks of these pages and says what fails

A fenced block is code if its language is python or bash, or if it has none and its first line is a command. Two
comments, which GitHub does not show, stand before a block:

    <!-- not run: REASON -->            the block needs what a build has not
    <!-- before: LANGUAGE
    CODE -->                            code that the reader has run already, such as writing a file of data
"""

from __future__ import annotations

import contextlib
import doctest
import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^<!-- before: (?P<setup>\w+)\n(?P<hidden>.*?)-->$"
    r"|(?:^<!-- not run: (?P<reason>[^>]+?) -->\n+)?^```(?P<language>\S*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
COMMAND = re.compile(r"\s*(fedskew|ls|head|pip|python|python3\.11|sh|for|make|export|fedskew-env/bin/pip)\s")
LIMIT = 600  # seconds of one command block


class Block(NamedTuple):
    """A piece of code of a page."""

    language: str  # "python" or "bash"; "": text that is shown
    code: str
    line: int
    reason: str = ""  # why it is not run


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page and its hidden ones, in order."""
    for found in BLOCK.finditer(text):
        line = text[: found.start()].count("\n") + 1
        if found["setup"]:
            yield Block(found["setup"], found["hidden"], line)
        else:
            yield Block(language(found["language"], found["code"]), found["code"], line, found["reason"] or "")


def language(named: str, code: str) -> str:
    """python, bash, or nothing for a block that is only shown."""
    return named if named in ("python", "bash") else "bash" if not named and COMMAND.match(code) else ""


def failures(page: Path) -> list[str]:
    """Run a page's blocks in an empty folder; what failed, each with its line."""
    told, names = [], dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ.pop("FEDSKEW_DATA", None)
        os.environ.update(
            HF_HUB_OFFLINE="1", MPLBACKEND="Agg", FEDSKEW_CACHE=f"{folder}/.cache", COLUMNS="120",
            PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        )  # fmt: skip
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language and not block.reason and (error := _failure(block, names)):
                told.append(f"{page.relative_to(ROOT)}:{block.line}: {error}")
                break  # what follows builds on it
    return told


def _failure(block: Block, names: dict[str, Any]) -> str:
    if block.language == "bash":
        command = ["bash", "-eu", "-c", block.code]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return f"not done after {LIMIT} s"
        return f"exit code {done.returncode}: {done.stderr.strip()[-600:]}" if done.returncode else ""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        if ">>>" in block.code:
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            test = doctest.DocTestParser().get_doctest(block.code, names, "block", None, 0)
            test.globs = names  # the parser copies them
            runner.run(test, clear_globs=False)
            return out.getvalue() if runner.failures else ""
        try:
            exec(compile(block.code, "block", "exec"), names)
        except Exception:
            return traceback.format_exc(limit=-1)
    return ""


@cache
def package_digest() -> str:
    """Digest of the library: what its code gave holds as long as it stays."""
    found = hashlib.sha256(sys.version.encode())
    for file in sorted((ROOT / "src").rglob("*.py")):
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def digest(page: Path) -> str:
    """Of a page's code and of the library."""
    code = [package_digest(), *(block[:2] + block[3:] for block in blocks(page.read_text(encoding="utf-8")))]
    return hashlib.sha256(repr(code).encode()).hexdigest()[:24]


def run(pages: Sequence[Path], folder: Path, workers: int = 2) -> list[str]:
    """What fails in the pages; a page whose code and library are as when it last passed is not run again."""
    folder.mkdir(parents=True, exist_ok=True)
    stamps = {page: folder / digest(page) for page in pages}
    for old in set(folder.iterdir()) - set(stamps.values()):
        old.unlink()
    todo = [page for page in pages if not stamps[page].exists()]
    told = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for page, wrong in zip(todo, pool.map(failures, todo), strict=True):
            told += wrong
            stamps[page].touch() if not wrong else None
    return told


if __name__ == "__main__":
    wrong = [line for name in sys.argv[1:] for line in failures(Path(name).resolve())]
    print("\n".join(wrong) or "every block runs")
    sys.exit(bool(wrong))
