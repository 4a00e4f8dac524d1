"""The page: what it says, what it costs, and that nothing in it is anything but text."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from fedskew import report
from fedskew.errors import ConfigError, RecordError
from fedskew.plots.drawing import Chart, Heat, Line, inline
from fedskew.report import LabelledRun, Trial
from fedskew.report.compared import compare
from fedskew.report.figures import curves
from fedskew.report.page import _asset
from fedskew.report.sentences import collapses_of
from support.reports import ENVIRONMENT, made_run, page_of, parsed, sections, sections_of, study, words_of

pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install -e '.[report]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")

TEN = tuple(f"class {i}" for i in range(10))
HOSTILE = '<script>alert(1)</script> & "quoted" \' \x1b[2J </title></svg>]]>'


@pytest.fixture(scope="module")
def small() -> str:
    return report.build(study(3, 2, 3), title="Three methods")


def test_a_page_has_every_section_of_a_comparison(small: str) -> None:
    found = sections(small)
    wanted = "verdict cautions results curves recalls scores ranks cost targets federation confusion how runs again"
    assert list(found) == wanted.split()
    assert "over method0; three seeds are too few for a verdict, run five." in found["verdict"]
    assert "“No gain shown” does not mean that there is none." in found["cautions"]
    assert "partition.alpha" in found["how"] and "fedskew run --from" in found["again"]


def test_the_table_says_the_numbers_that_are_computed_by_hand() -> None:
    entries = study(2, 1, 3)
    values = np.array(
        [[e.run.summary["mean10_accuracy"] for e in entries if e.method == m] for m in ("method0", "method1")]
    )
    gap = (values[1] - values[0]).mean()
    told = sections_of(entries)["results"]
    numbers = f"{100 * values[1].mean():.1f} {100 * values[1].std(ddof=1):.1f}"
    assert numbers in told and f" +{100 * gap:.1f} " in told


def test_the_command_the_notes_and_the_trials_stand_in_the_page() -> None:
    trials = [Trial("method0", "", {"lr": lr}, 0.5 + lr, lr == 0.3) for lr in (0.01, 0.1, 0.3)]
    notes = ["One run was refused: <no>."]
    found = sections_of(study(2, 1, 2), command="fedskew compare a b", notes=notes, trials=trials)
    assert "fedskew compare a b" in found["again"] and "One run was refused: <no>." in found["cautions"]
    assert "lr 0.3" in found["tuning"]


def test_what_differs_because_of_a_methods_default_is_in_sight() -> None:
    entries = study(2, 1, 2)
    for entry in entries:
        if entry.method == "method1":
            entry.run.config["method"]["pace"]["lr"] = 0.05
            entry.run.config["method"]["weighting"] = {"name": "uniform", "beta": 3}
    section = next(s for s in page_of(entries).iter("section") if s.attrib["id"] == "how")
    first = next(section.iter("table"))
    assert first.findtext("caption") == "Options that differ"
    rows = [[cell.text for cell in row] for row in first.iter("tr")]
    assert rows == [["option", "value", "methods", "settings"], ["pace.lr", "0.1", "method0", "all"],
                    ["pace.lr", "0.05", "method1", "all"], ["weighting", "size", "method0", "all"],
                    ["weighting", "uniform", "method1", "all"], ["weighting.beta", "3", "method1", "all"]]  # fmt: skip


def test_the_page_opens_with_a_picture_of_the_gains_and_its_curves_have_a_switch(small: str) -> None:
    root = parsed(small)
    pictures = [image.attrib["alt"] for image in root.iter("img")]
    assert pictures[0].startswith("Gain over method0 of each method by model.")
    units = [e.attrib["id"] for e in root.iter("input")]
    assert units == [f"over-{unit}" for unit in ("rounds", "megabytes", "seconds", "steps")]
    assert sum("checked" in e.attrib for e in root.iter("input")) == 1
    assert all(f"curves-{unit.removeprefix('over-')}" in _asset("style.css") for unit in units)


def test_equal_entries_give_equal_pages(small: str) -> None:
    assert report.build(study(3, 2, 3), title="Three methods") == small


def test_a_run_that_ended_early_or_collapsed_is_named() -> None:
    entries = study(2, 1, 2)
    entries[0].run.summary["stopped"] = "time limit"
    entries[1].run.rows[4]["train_loss"] = 1e9
    told = sections_of(entries)["cautions"]
    assert "method0, seed 0: time limit after round 20 of 20" in told and "method0, seed 1: training loss above" in told


def test_a_collapse_of_an_archived_run_is_that_of_its_summary() -> None:
    sign = {"measure": "balanced_accuracy", "limit": 0.11, "rounds": [[3, 20]], "worst": 0.1, "round": 9}
    run = made_run("r", "fedgr", 0, 0.4)
    rows = [{k: v for k, v in row.items() if k not in ("per_class_recall", "support")} for row in run.rows]
    (found,) = collapses_of(replace(run, rows=rows, summary={**run.summary, "collapsed": [sign]}))
    assert found.words == "balanced accuracy below 0.11, 1.1 times that of a guess, in rounds 3 to 20"


def test_a_missing_run_is_said_and_its_seed_is_not_paired() -> None:
    entries = study(2, 1, 3)[:-1]
    found = sections_of(entries)
    assert "1 combination of method, setting and seed has no value" in found["cautions"]
    assert re.search(r"method1 2 \d\d\.\d", found["results"])


def test_what_is_claimed_grows_with_the_seeds() -> None:
    """The rank test stands from eight seeds on: of fewer it cannot reach the 5 % level among several methods."""
    one, seven, eight = (sections_of(study(2, 1, seeds)) for seeds in (1, 7, 8))
    assert "ahead of method0; one seed is too few for a verdict, run five." in one["verdict"]
    assert "have only one seed, so they have no interval and no test." in one["cautions"]
    gains = r"method1 gains [\d.]+ points \([\d.]+ to [\d.]+\) over method0; open: not averaged or fitted\."
    assert re.search(gains, seven["verdict"]) and "p (Holm)" not in seven["results"]
    assert "p (Holm)" in eight["results"] and "yes, better" in eight["results"]
    runs = [made_run(f"r{k}", "fedavg", k) for k in range(5)]
    alike = sections_of([LabelledRun(m, "", k, runs[k]) for m in ("a", "b") for k in range(5)])
    assert "b is 0.0 points (0.0 to 0.0) ahead of a; no gain shown." in alike["verdict"]
    loss = sections_of(study(2, 1, 6), metric="loss")["verdict"]
    assert "method1 gains 0." in loss and " points" not in loss, "of a loss less is better"


def test_a_class_without_test_rows_has_no_recall() -> None:
    entries = study(1, 1, 2)
    for entry in entries:
        entry.run.rows[-1]["support"] = [50, 0, 50]
        entry.run.rows[-1]["per_class_recall"][1] = 0.0
    (section,) = (s for s in page_of(entries).iter("section") if s.attrib["id"] == "recalls")
    assert [cell.text for cell in section.iter("td")].count("–") == 1


def test_rounds_out_of_order_and_values_that_are_no_numbers_are_survived() -> None:
    entries = study(2, 1, 2)
    rows = entries[0].run.rows
    rows[3]["round"], rows[7]["round"], rows[5]["accuracy"] = 8, 4, None
    rows[6] |= {"balanced_accuracy": None, "wall_s": float("inf")}
    rows[6] |= dict.fromkeys(("upload_bytes", "accuracy"), float("nan"))
    page = parsed(report.build(entries))
    assert not any(re.search("[ML] (nan|inf)", image.attrib["src"]) for image in page.iter("img"))


# Text of others


def test_names_with_markup_are_text_everywhere() -> None:
    entries = []
    for k in range(3):
        for m in (HOSTILE, f"{HOSTILE}2"):
            run = made_run(f"{HOSTILE}/{k}", "fedavg", k, names=(HOSTILE, "$100 & 5 %", "]]><b>"))
            run.config["partition"] = {"name": HOSTILE, "alpha": HOSTILE}
            run.summary["stopped"] = HOSTILE
            entries += [LabelledRun(m, setting, k, run) for setting in (HOSTILE, "other")]
    trials = [Trial(HOSTILE, HOSTILE, {HOSTILE: 0.1 * i}, 0.5, i == 1) for i in (1, 2)]
    page = report.build(entries, title=HOSTILE, command=HOSTILE, notes=[HOSTILE], trials=trials)
    root = parsed(page)
    assert len(list(root.iter("script"))) == 1 and not list(root.iter("b")) and "\x1b" not in page
    told = words_of(root)
    assert "<script>alert(1)</script>" in told and "\\x1b[2J" in told
    handlers = [name for element in root.iter() for name in element.attrib if name.startswith("on") or name == "style"]
    assert not handlers


class Targets(HTMLParser):
    """Every attribute that a browser may follow by itself or on a click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("iframe", "object", "embed", "form", "base", "image", "use", "audio", "video"), tag
        self.found += [
            v or "" for name, v in attrs if name in ("href", "src", "srcset", "action", "xlink:href", "ping")
        ]


def test_the_page_names_no_address_and_forbids_every_request(small: str) -> None:
    reader = Targets()
    reader.feed(small)
    assert reader.found and all(
        target.startswith(("#", "data:image/svg+xml,")) or target == "data:," for target in reader.found
    )
    text = re.sub('src="data:[^"]*"', "", small).replace("// Without this script", "")
    assert not re.search(r"https?:|url\(|@import|//[a-z]", text)
    policy = next(m.attrib["content"] for m in parsed(small).iter("meta") if m.attrib.get("http-equiv"))
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy


def test_a_picture_is_an_image_in_which_names_are_text() -> None:
    x = np.arange(1.0, 6.0)
    lines = tuple(Line(f"{HOSTILE}{i}", i, x, x / 9, x / 9 - 0.1, x / 9 + 0.1) for i in range(7))
    cells = np.array([[0.1, np.nan], [0.9, 0.0]])
    heat = Heat("h", HOSTILE, cells, ("a", HOSTILE), (HOSTILE, "b"), HOSTILE, "y", HOSTILE, numbers=True)
    for picture in (Chart("c", HOSTILE, HOSTILE, "y", lines, HOSTILE), heat):
        drawn = inline(picture)
        assert drawn == inline(picture) and not {'"', "<", ">", "\x1b"} & {*drawn}
        kind, _, content = drawn.partition(",")
        root = ET.fromstring(unquote(content))
        assert kind == "data:image/svg+xml" and not any(e.tag.endswith("script") for e in root.iter())


# Budgets


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("methods", "settings", "seeds", "more"),
    [
        (10, 10, 5, {"rounds": 200, "clients": 100}),
        (2, 250, 1, {"rounds": 30}),
        (500, 1, 1, {"rounds": 30}),
        (5, 20, 5, {"rounds": 30, "clients": 300, "names": tuple(f"a class with a long name {i}" for i in range(100))}),
    ],
)
def test_a_page_of_500_runs_has_at_most_2_mb(
    methods: int, settings: int, seeds: int, more: dict[str, Any], tmp_path: Path
) -> None:
    entries = study(methods, settings, seeds, tmp_path, **{"names": TEN, **more})
    assert len(entries) == 500
    page = report.build(entries)
    assert len(page.encode()) <= 2_000_000
    root = parsed(page)
    results = next(s for s in root.iter("section") if s.attrib["id"] == "results")
    together = (methods - 1) * (settings > 1)  # the gains over all settings
    assert sum(len(table.findall("tbody/tr")) for table in results.iter("table")) == methods * settings + together
    assert sum("abcdef0123456789" in (td.text or "") for td in root.iter("td")) == 500, "every run has a line"


def test_a_line_has_at_most_60_points_and_ends_where_the_run_ends() -> None:
    chart, *_ = curves(compare(study(1, 1, 2, rounds=1000)), "", ["method0"], 60)
    assert len(chart.lines[0].x) == 60 and chart.lines[0].x[-1] == 1000
    assert "Of 1000 evaluations 60 are drawn." in chart.alt


def test_what_a_run_ran_on_stands_in_its_line(tmp_path: Path) -> None:
    entries = study(1, 1, 2, tmp_path)
    (entries[1].run.folder / "env.json").write_text("{")
    told = sections_of(entries)["runs"]
    assert told.count("fedskew 0.1.0, torch 2.6.0, python 3.11.2, platform Linux, cores 2") == 1
    archived = [entry._replace(run=replace(entry.run, folder=Path("archived"), env=ENVIRONMENT)) for entry in entries]
    assert sections_of(archived)["runs"].count("torch 2.6.0, python 3.11.2") == 2, "it has no folder"


# Readers who do not see it, and readers in the dark


def test_every_picture_and_table_has_a_name_and_a_description(small: str) -> None:
    root = parsed(small)
    names = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    pictures = list(root.iter("img"))
    assert len(names) == len(set(names)) and len(pictures) > 10 and all(len(p.attrib["alt"]) > 30 for p in pictures)
    for table in root.iter("table"):
        assert table.findtext("caption") and all(th.attrib["scope"] in ("col", "row") for th in table.iter("th"))
    assert {"header", "nav", "main", "footer"} <= {e.tag for e in root.iter()} and root.attrib["lang"] == "en"
    regions = [e for e in root.iter() if e.attrib.get("role") == "region"]
    assert regions and all(e.attrib["tabindex"] == "0" and e.attrib["aria-label"] for e in regions)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    low, high = sorted(map(_luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_that_people_need(scheme: int) -> None:
    """WCAG 2: 4.5 for text."""
    blocks = re.findall(r":root \{(.*?)\n *\}", _asset("style.css"), re.S)
    colour = dict(re.findall(r"--(\w+): (#\w{6})", blocks[scheme]))
    for text in ("ink", "soft", "link", "above", "below"):
        assert contrast(colour[text], colour["paper"]) >= 4.5 and contrast(colour[text], colour["panel"]) >= 4.5, text
    for shade in ("up", "down"):  # half of it at most is mixed into the paper below a number
        mixed = (
            f"{(int(colour[shade][i : i + 2], 16) + int(colour['paper'][i : i + 2], 16)) // 2:02x}" for i in (1, 3, 5)
        )
        assert contrast(colour["ink"], "#" + "".join(mixed)) >= 4.5, shade


# Mistakes


def test_runs_that_cannot_be_compared_are_refused() -> None:
    entry = study(1, 1, 1)[0]
    with pytest.raises(ConfigError, match="got two of method 'method0', setting '', seed 0"):
        report.build([entry, entry])
    with pytest.raises(RecordError, match="needs an evaluated round"):
        report.build([entry._replace(run=replace(entry.run, rows=[], summary={"rounds": 0}))])
    with pytest.raises(RecordError, match=r"needs an evaluated round; there is none$"):
        report.build([])


@pytest.mark.parametrize(("package", "extra"), [("jinja2", "report"), ("matplotlib", "plot")])
def test_without_a_package_its_extra_is_named(package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=re.escape(f"pip install '.[{extra}]'")):
        report.build(study(1, 1, 1))
