"""The documents hold: links lead somewhere, examples run, commands compose, and no page that is made is committed."""

from __future__ import annotations

import doctest
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from fedskew import functional
from fedskew.config.flags import experiment_from
from fedskew.errors import PACKAGE, install
from support.paths import ROOT
from support.scripts import script

REFERENCE = script("scripts/reference.py")
MADE = {ROOT / "docs" / name: page for name, page in REFERENCE.PAGES.items()}  # they need not be there
# docs/site is for Sphinx alone
WRITTEN = {p for p in (ROOT / "docs").rglob("*.md") if ROOT / "docs/site" not in p.parents}
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted({*WRITTEN, *MADE, *(ROOT / "notes").glob("*.md")})]
GUIDE = sorted((ROOT / "docs" / "guide").glob("*.md"))
# wants a file, a shell or the plug-in of docs/guide/plugins.md
OUTSIDE = ("--from", "--resume", "--help", "$", "FILE", "METHOD", "counts.csv", "split.npz", "moons")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def _text(page: Path) -> str:
    """A page of the checkout, or one that is made."""
    return MADE[page]() if page in MADE else page.read_text(encoding="utf-8")


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    heads = re.findall(r"^#+ (.*)$", _text(page), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    found = re.findall(r"\]\(([^)\s]+)\)", _text(page))
    for link in [link for link in found if "://" not in link and not link.startswith("../pictures/partition-")]:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target in MADE or target.exists(), link
        assert not anchor or anchor in _anchors(target), link


@pytest.mark.parametrize("folder", ["docs", "notes"])
def test_every_page_stands_in_the_index(folder: str) -> None:
    index = ROOT / folder / "README.md"  # which has no links into what is made
    listed = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", index.read_text("utf-8"))}
    pages = {p for p in PAGES if ROOT / folder in p.parents and p != index}
    assert pages - {*MADE} <= listed and not listed & {*MADE}


def test_no_two_pages_have_one_title() -> None:
    titles = Counter(_text(page).partition("\n")[0] for page in (*PAGES, *(ROOT / "docs/site").glob("*.md")))
    assert [title for title, pages in titles.items() if pages > 1 and title != "# fedskew"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("page", GUIDE, ids=_name)
def test_the_examples_of_the_guide_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def _runs() -> Iterator[str]:
    """Every `fedskew run` of README and guide that needs neither a run, a file nor a shell's variable."""
    for page in (ROOT / "README.md", *GUIDE):
        lines = re.findall(r"^ *fedskew run (.*)$", page.read_text(encoding="utf-8"), re.M)
        yield from (line for line in lines if not any(word in line for word in OUTSIDE))


@pytest.mark.parametrize("line", sorted(set(_runs())))
def test_the_commands_compose(line: str) -> None:
    words = shlex.split(line, comments=True)
    for flag in ("--out", "--track", "--track.folder"):  # of the command, not of the experiment
        if flag in words:
            at = words.index(flag)
            words = words[:at] + words[at + 2 :]
    assert experiment_from(words).method.name.partition("(")[0] == words[0]


def test_every_function_stands_on_a_page_of_names() -> None:
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs/site/api").glob("*.md"))
    shown = {name for text in pages for name in re.findall(r"automodule:: ([\w.]+)", text)}
    functions = (getattr(functional, name) for name in functional.__all__)
    assert {function.__module__ for function in functions if callable(function)} <= shown


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_no_page_gives_zero_a_minus(page: Path) -> None:
    assert re.findall(r"(?<![\w.])[-−]0\.0+(?!\d)", _text(page)) == []


def test_made_pages_are_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {f"docs/{name}" for name in REFERENCE.PAGES} <= set(ignored)


def test_every_promise_names_tests_that_exist() -> None:
    page = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\btests/[\w/]+\.py", page))
    assert [file for file in named if "def test_" not in (ROOT / file).read_text(encoding="utf-8")] == []
    promises, trusted = page.split("## What is trusted\n")[0], page.split("## What is trusted\n")[1].split("\n## ")[0]
    rows = [line for line in promises.splitlines() if line.startswith("- ")]
    assert len(rows) > 20 and [row for row in rows if not re.search(r"`tests/[\w/]+\.py`$", row)] == []
    assert [part for part in trusted.split("\n### ")[1:] if not re.search(r"Check: `(make|pytest) ", part)] == []
    attacks = {f"tests/attack/{path.name}" for path in (ROOT / "tests/attack").glob("test_*.py")}
    assert attacks <= named, "every file of attacks stands beside a promise"


def test_extras_are_installed_from_one_place() -> None:
    """`fedskew.errors.PACKAGE` changes when the package is published, and every page with it."""
    sources = [p for folder in ("src", "examples") for p in (ROOT / folder).rglob("*.*") if p.suffix in (".py", ".md")]
    for page in {*WRITTEN, ROOT / "README.md", *sources}:
        found = re.findall(r"pip install [^\n]*?'([\w.-]+)\[\w+\]'", page.read_text(encoding="utf-8"))
        assert set(found) <= {PACKAGE}, f"{_name(page)} installs an extra of {found}"
    assert install("hf").startswith(f"pip install '{PACKAGE}[hf]'")
