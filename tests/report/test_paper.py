"""Files for a paper: every table as CSV and LaTeX, every figure as PDF and SVG."""

from __future__ import annotations

import csv
import io
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from fedskew.errors import ConfigError, RecordError
from fedskew.report import LabelledRun, Trial, paper
from fedskew.report.tables import ReportTable, TableCell, to_csv
from support.reports import made_run, parsed, study, undrawn

pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install -e '.[report]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")
HOSTILE = ["$x^2$ & 5 %", "a_b#{c}~\\input{/etc/passwd}", "=1+1", '<b>|"', "line\nbreak\x1b"]


SAFE = r"\\text\w+\{\}|\\dots\{\}|\$\\\w+\$|\$-\$|\\[&%$#_{}]|\{\[\}|\{\]\}|\{\}(?=-)"


@undrawn()
def test_every_table_of_a_page_is_latex_that_balances_and_escapes(tmp_path: Path) -> None:
    """No TeX here: what a compiler would stumble over is looked for instead."""
    entries = []
    for i, e in enumerate(study(3, 2, 3, names=("5 % & #1", "a_b^c~{", "--x\\input{/etc/passwd}"))):
        e.run.summary["stopped"] = '<b>|" line\nbreak\x1b' if i == 1 else ""
        entries.append(LabelledRun(f"{e.method}_$x$ & 5 %#", f"{e.setting} {{~^", *e[2:]))
    trials = [Trial(entries[0].method, "", {"lr_{": 0.1 * i}, 0.5, i == 1) for i in (1, 2)]
    list(paper.write(entries, tmp_path / "r.html", tmp_path / "t", trials=trials, targets=(0.1, 0.9)))
    found = sorted((tmp_path / "t").glob("*.tex"))
    kinds = {re.sub(r"-\d+\.tex$", "", path.name) for path in found}
    assert {"results", "together", "scores", "mixes", "ranks", "cost", "targets", "tuning", "runs"} <= kinds
    labels = [re.search(r"\\label\{(.*)\}", path.read_text()).group(1) for path in found]  # type: ignore[union-attr]
    assert len(set(labels)) == len(labels), "a label twice leads every reference to the wrong table"
    for path in found:
        content = path.read_text()
        assert content.isascii(), path.name
        columns = len(re.search(r"\\begin\{tabular\}\{([lr]+)\}", content).group(1))  # type: ignore[union-attr]
        body = content.split("\\toprule\n")[1].split("\\bottomrule")[0].replace("\\midrule\n", "")
        for line in body.splitlines():
            assert line.endswith(r" \\"), (path.name, line)
            thin = re.sub(r"\\textbf\{(.*?)\}(?= (&|\\))", r"\1", line)
            plain = re.sub(SAFE, ".", thin.removesuffix(r" \\"))
            assert plain.count("&") == columns - 1, line
            assert not re.search(r"[\\%$#_^~<>|{}\[\]`]|--(?! *(&|$))", plain), line
        caption = re.sub(SAFE, ".", re.search(r"\\caption\{(.*)\}\n", content).group(1))  # type: ignore[union-attr]
        assert not re.search(r"[\\&%$#_^~<>|{}]", caption), caption
        bare = re.sub(r"\\[{}]", "", content)
        depth = [bare[: m.end()].count("{") - bare[: m.end()].count("}") for m in re.finditer("}", bare)]
        assert min(depth) == 0 == depth[-1], path.name


def test_csv_reads_back_and_holds_no_formula() -> None:
    table = ReportTable("t", "caption", ("class", "rows"), tuple((TableCell(name), TableCell("3")) for name in HOSTILE))
    rows = list(csv.reader(io.StringIO(to_csv(table))))
    assert [row[1] for row in rows] == ["rows", "3", "3", "3", "3", "3"]
    assert rows[3][0] == "'=1+1" and rows[5][0] == "line\nbreak\\x1b" and rows[1][0] == HOSTILE[0]


@undrawn()
def test_every_table_of_the_page_is_written(tmp_path: Path) -> None:
    said = list(paper.write(study(3, 2, 2), tmp_path / "page", tmp_path / "tables"))
    page = (tmp_path / "page.html").read_text()
    tables = sorted((tmp_path / "tables").iterdir())
    count = len(list(parsed(page).iter("table"))) + 1  # the compact one
    assert [len([t for t in tables if t.suffix == s]) for s in (".csv", ".tex")] == [count, count], "the compact one"
    assert said[0].startswith("report: ") and f"({count} tables, as CSV and LaTeX)" in said[1]


@undrawn()
def test_every_figure_of_the_page_is_written(tmp_path: Path) -> None:
    entries = study(3, 2, 2, names=("$\\frac{$", "_b", "漢字"))
    entries = [LabelledRun(f"_{e.method}$^", *e[1:]) for e in entries]
    list(paper.write(entries, tmp_path / "r.html", figures=tmp_path / "figures"))
    found = sorted(p.name for p in (tmp_path / "figures").iterdir())
    kinds = {re.sub(r"-\d+\.(pdf|svg)$", "", name) for name in found}
    wanted = {"confusion", "curves-megabytes", "curves-rounds", "curves-seconds", "federation", "gains", "recall"}
    assert wanted <= kinds and len([n for n in found if n.endswith(".pdf")]) * 2 == len(found)
    pictures = list(parsed((tmp_path / "r.html").read_text()).iter("img"))
    assert len(found) == 2 * (len(pictures) + 2), "the recalls, which the page shows as tables, are pictures here"
    for name in found:
        content = (tmp_path / "figures" / name).read_bytes()
        assert content.startswith(b"%PDF") if name.endswith("pdf") else ET.fromstring(content) is not None


def test_without_matplotlib_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"\.\[plot\]"):
        list(paper.write(study(1, 1, 1), tmp_path / "r.html", figures=tmp_path / "f"))
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot write"):
        list(paper.write(study(1, 1, 1), tmp_path / "file" / "r.html"))
    with pytest.raises(ConfigError, match=r"out must end in \.html; got 'r\.pdf'"):
        list(paper.write(study(1, 1, 1), "r.pdf"))


@undrawn()
def test_a_label_is_no_name_of_a_file(tmp_path: Path) -> None:
    run = made_run()
    list(paper.write([LabelledRun("../../x", "../y/\0", 0, run)], tmp_path / "r.html", tmp_path / "t"))
    assert {p.parent.name for p in tmp_path.rglob("*.csv")} == {"t"}
