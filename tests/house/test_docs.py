"""The README's example runs, and the documents show the code that is there."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import fedskew as fs
from fedskew.catalogue.citations import papers
from fedskew.catalogue.listing import citations
from fedskew.config.tables import TABLES
from fedskew.method import SLOTS
from fedskew.methods import METHODS
from fedskew.records.folder import read
from support.command import SMALL, fedskew
from support.federations import skewed
from support.paths import ROOT
from support.runs import go, same


def test_the_readme_runs() -> None:
    failed, tried = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried >= 4 and failed == 0


def test_fedprox_is_as_short_as_the_guide_says() -> None:
    source = (ROOT / "src/fedskew/methods/fedprox.py").read_text(encoding="utf-8")
    page = (ROOT / "docs/guide/compose.md").read_text(encoding="utf-8")
    assert "`fedprox.py` is an example: 20 lines" in page and len(_undocumented(source).split("\n")) <= 20


def _undocumented(source: str) -> str:
    """The statements of a module, without docstrings and blank lines."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = [s for s in node.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
            node.body = [s for s in node.body if s not in text]
    return "\n".join(line for line in ast.unparse(tree).split("\n") if line.strip())


def test_a_copy_of_fedprox_under_another_name_needs_no_other_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file, renamed, outside the package: it composes, trains and prints."""
    source = (ROOT / "src/fedskew/methods/fedprox.py").read_text(encoding="utf-8")
    renamed = source.replace("fedprox", "ridge").replace("Proximal(", "Ridge(")
    (tmp_path / "ridge.py").write_text(renamed, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    ridge = importlib.import_module("ridge").ridge(0.5)
    one, two = (go(skewed(), method, engine="threaded") for method in (ridge, fs.methods.fedprox(0.5)))
    assert same(one.params, two.params) and "Ridge(mu=0.5)" in str(ridge.parts)


def test_every_paper_is_cited_and_every_citation_is_a_paper() -> None:
    cited = {METHODS[name]().reference for name in METHODS}
    cited |= {kind.reference for slot in ("parts", *SLOTS) for kind in TABLES[slot].values() if kind.reference}
    cited |= {kind.reference for kind in TABLES["data"].values() if getattr(kind, "reference", "")}
    assert cited == set(papers())
    venue = "(booktitle|journal|howpublished|institution)"
    form = rf"@\w+\{{\w+,\n  author = .*\n  title = \{{\{{.*\}}\}},\n  {venue} = .*\n  year = .*\n\}}"
    for key, entry in papers().items():
        assert re.fullmatch(form, entry), f"{key}: author, {{{{title}}}}, venue and year, a line each"
    for name in METHODS:
        assert citations([name])[0].startswith("@")
    assert len(citations(["fedadam", "fedyogi"])) == 1, "one paper for two methods is cited once"


def test_every_recorded_field_is_explained(tmp_path: Path) -> None:
    page = "".join((ROOT / f"docs/reference/{name}.md").read_text(encoding="utf-8") for name in ("records", "scores"))
    words = [*SMALL, "--validation", "0.1", "--local-test", "0.2", "--eval.personal", "1"]
    for name in ("perfedavg", "climb"):
        assert fedskew("run", name, *words, "--out", tmp_path / name) == 0
        _, rows, summary = read(tmp_path / name)
        for field in rows[-1]:
            plain = field.removeprefix("val_").removeprefix("local_")
            assert f"`{field}`" in page or f"`{plain}`" in page, field
        for field in summary:
            assert f"`{field}`" in page or f"`{field.partition('_')[0]}_...`" in page, field
        for file in (tmp_path / name).iterdir():
            assert f"`{file.name}" in page, file.name
