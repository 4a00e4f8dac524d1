"""Write what is made from committed runs: results/ledger.csv, notes/papers.md and the tables of pages.

tests/house/test_results.py holds the files against the runs.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from fedskew.config.recorded import Run
from fedskew.errors import plural
from fedskew.records.sheets import csv_text
from fedskew.report import controls
from fedskew.report.compared import Compared
from fedskew.report.draw import compared_of
from fedskew.studies.archiving import reuse_archived
from fedskew.studies.differences import differences
from fedskew.studies.lines import files_of
from fedskew.studies.scores import FEWEST, Scores
from fedskew.studies.shipped import shipped
from fedskew.studies.spec import read_spec
from fedskew.studies.study import Study
from fedskew.studies.verdicts import LOSS, OPEN, OWN, RAW, UNDONE, UNSEEN, Interval, intervals, verdict
from fedskew_papers.page import command_of, hours_of, how_of, page_of, swing_of
from fedskew_papers.rows import Row, ledger
from fedskew_papers.runs import RESULTS, Runs
from fedskew_papers.tables import protocol

ROOT = Path(__file__).parents[1]
ARCHIVES = ROOT / "results/studies"
TABLE = re.compile(
    r"(<!-- (study|less|fits|controls|verdicts|recalls) (\S+?)(?:, ([^>]+?))? -->\n).*?(<!-- end -->)", re.S
)
NOTES = ("cross", "five", "methods", "noise")
PAGES = ("docs/findings.md", *(f"notes/{name}.md" for name in NOTES))
LEDGER = (  # columns of results/ledger.csv
    "id", "paper", "table", "dataset", "setting", "model", "method", "metric", "printed", "spread", "ours", "low",
    "high", "level", "reference", "gain_printed", "gain", "apart_low", "apart_high", "gain_fitted", "swing", "seeds",
    "planned", "scale", "state", "study", "how", "core_hours", "command", "note",
)  # fmt: skip
WORDS = ("a bias", "open: not averaged", "no gain shown", "a loss")  # verdicts of runs without averaged models


@contextmanager
def study_of(name: str, scale: str = "") -> Iterator[Study]:
    """A study that ships with the package, or a paper's at a scale, with its archived runs."""
    spec = protocol(name).at(scale) if scale else read_spec(shipped(name) or name)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(spec, Path(folder) / "store")
        reuse_archived(study, ROOT / RESULTS if scale else ARCHIVES, keep=False)
        yield study


@cache
def compared(name: str, scale: str = "") -> Compared:
    """The runs of a study with their rounds, as `fedskew compare` compares them."""
    with study_of(name, scale) as study:
        return compared_of(study)


@cache
def rows_of(name: str) -> list[dict[str, Any]]:
    """The runs of a study."""
    with study_of(name) as study:
        rows, serves = study.table(), study.spec.serves
    if not any(row["state"] == "finished" for row in rows):
        sys.exit(f"no run of the study {name} can be read: {rows[0]['reason'] or 'none is archived'}; set FEDSKEW_DATA")
    return [row | {"serves": serves.get(row["label"], "")} for row in rows]


def table_of(rows: list[dict[str, Any]], words: str) -> str:
    """Methods by settings, the greatest mean first: mean and standard deviation over the seeds.

    Methods whose clients use own models alone are left out: nobody uses their global model. Equal methods share a row.

    Args:
        rows: The runs.
        words: What the settings begin with that are shown, without it in their heads; then a metric, after a semicolon.
    """
    begin, metric = [*words.split("; "), "mean10_accuracy"][:2]
    ended = [row for row in rows if row["state"] == "finished" and row["serves"] != "own"]
    settings = [name for name in dict.fromkeys(row["setting"] for row in rows) if name.startswith(begin)]
    of = {
        label: [row for row in ended if row["label"] == label and row["setting"] in settings]
        for label in sorted({row["label"] for row in ended})
    }
    alike: dict[tuple[str, ...], list[str]] = {}
    for label in sorted(of, key=lambda label: -statistics.fmean(row[metric] for row in of[label])):
        cells = [_cell([row[metric] for row in of[label] if row["setting"] == setting], 3) for setting in settings]
        alike.setdefault(tuple(cells), []).append(label)
    heads = [name.removeprefix(f"{begin}, ") for name in settings] if len(settings) > 1 else ["accuracy"]
    head = f"| method | {' | '.join(heads)} |\n|---|{'---:|' * len(settings)}\n"
    return head + "".join(f"| {', '.join(labels)} | {' | '.join(cells)} |\n" for cells, labels in alike.items())


def _cell(values: list[float], digits: int) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 and digits else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"


def fits_of(rows: list[dict[str, Any]], base: str) -> str:
    """What the fit leaves of each method less a base: means over settings in points, and in how many settings which.

    The verdicts are those of `fedskew compare`. These runs have no averaged models: what the fit does not undo is open.
    """
    ended = [row for row in rows if row["state"] == "finished"]
    both = {}
    for model, metric in ((RAW, "mean10_accuracy"), ("fitted", "mean10_fitted_accuracy")):
        held = [(row["label"], row["setting"], row["seed"], row.get(metric)) for row in ended]
        found = differences(Scores.of(held, metric), base)
        both[model] = {(d.method, d.setting): d.gain for d in found if d.setting is not None and d.pairs > 2}
    raw, fitted = both.values()
    seeds = max(gap.pairs for gap in (*raw.values(), *fitted.values()))
    labels = [label for label in dict.fromkeys(row["label"] for row in rows) if label != base]
    pairs = {
        m: [{RAW: raw[key], "fitted": fitted[key]} for key in raw if key[0] == m and key in fitted] for m in labels
    }
    spans = [_spans({m: [100 * of[model].mean for of in each] for m, each in pairs.items()}) for model in both]
    heads = ["raw", "fitted", *((*WORDS[:2], "of these, a gain fitted, too", *WORDS[2:]) if seeds >= FEWEST else ())]
    lines = [f"| method | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for label, each in pairs.items():
        told = [verdict(of) for of in each]
        assert seeds < FEWEST or {*told} <= {*WORDS}, told
        counts = [told.count(word) for word in WORDS]
        counts[2:2] = [sum(of["fitted"].gains for of, word in zip(each, told, strict=True) if word == WORDS[1])]
        cells = [*(span[label] for span in spans), *(map(str, counts) if seeds >= FEWEST else ())]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n" + _few(seeds)


def _spans(values: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """The mean of each method with its interval at Holm's level over the methods; of fewer than five, its deviation."""
    found, told = intervals(values), {}
    for name, each in values.items():
        few = f" ± {statistics.stdev(each):.1f}" if 1 < len(each) < FEWEST else ""
        ends = f" [{found[name].low:+z.1f}, {found[name].high:+z.1f}]" if len(each) >= FEWEST else few
        told[name] = f"{statistics.fmean(each):+z.1f}{ends}" if each else ""
    return told


def _few(seeds: int) -> str:
    """A line below a table of runs that are too few for a verdict."""
    return f"\n{plural(seeds, 'seed').capitalize()}: no verdict.\n" if seeds < FEWEST else ""


def less_of(rows: list[dict[str, Any]], words: str) -> str:
    """Settings by methods: each method less a base, paired by seed, in points, as `_spans` has it.

    Args:
        rows: The runs.
        words: The base, then a metric, after a comma; then the methods that are shown, after semicolons, or "own".
    """
    words, *shown = words.split("; ")
    base, _, metric = words.rpartition(", ") if "_" in words else (words, "", "mean10_accuracy")
    ended = [row for row in rows if row["state"] == "finished"]
    gaps = differences(Scores.of((row["label"], row["setting"], row["seed"], row.get(metric)) for row in ended), base)
    others = [label for label in dict.fromkeys(row["label"] for row in rows) if label != base]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    at = {s: _spans({g.method: [100 * v for v in g.values] for g in gaps if g.setting == s}) for s in settings}

    if shown == ["own"]:  # the methods of which clients use models of their own
        shown = [row["label"] for row in rows if row["serves"] == "own"]
    others = [*dict.fromkeys(shown)] or others
    lines = [f"| | {base} | {' | '.join(others)} |", f"|---|{'---:|' * (len(others) + 1)}"]
    own = [row for row in ended if row["label"] == base and metric in row]
    for setting in settings:
        if levels := [100 * row[metric] for row in own if row["setting"] == setting]:  # else it is not run yet
            gains = [at[setting].get(label, "") for label in others]
            lines.append(f"| {setting} | {_cell(levels, 1)} | {' | '.join(gains)} |")
    return "\n".join(lines) + "\n" + _few(max(gap.pairs for gap in gaps))


def controls_of(found: Compared, setting: str) -> str:
    """Each gain over the baseline raw and under the controls, what a run takes of clients, and one verdict.

    Steps, contacts and bytes are multiples of the baseline's. *Worth* is after how many rounds the baseline, averaged
    and fitted, has what the method has, averaged and fitted. Methods without a gain or a loss are left out, as are
    those whose global model nobody uses.
    """
    keys, own = controls.models_of(found), {entry.method for entry in found.entries if entry.run.serves == "own"}
    models = [*keys, "work"]
    lines = [f"| method | {' | '.join(models)} | steps, contacts, bytes | worth | verdict |"]
    lines.append(f"|---|{'---:|' * (len(models) + 2)}---|")
    levels = [_cell([100 * run.value(key) for run in found.runs(found.baseline, setting)], 1) for key in keys.values()]
    lines.append(f"| {found.baseline} | {' | '.join(levels)} | | | | baseline |")
    for one in controls.controlled(found, setting):
        if one.method in own or one.verdict == UNSEEN:
            continue
        gains = [_gain(one.of[model]) if model in one.of else "" for model in models]
        work = " ".join(controls.times(ratio) for ratio in one.work) if one.work else ""
        worth = one.worth.words if one.worth else ""
        lines.append(f"| {one.method} | {' | '.join(gains)} | {work} | {worth} | {one.verdict} |")
    return "\n".join(lines) + "\n"


def _gain(gap: Interval) -> str:
    return f"{100 * gap.mean:+z.1f} [{100 * gap.low:+z.1f}, {100 * gap.high:+z.1f}]"


def controls_by_method(found: Compared) -> dict[str, list[controls.Controlled]]:
    """Each method's gains of all settings, but those of the baseline trained longer."""
    by: dict[str, list[controls.Controlled]] = {}
    for one in chain.from_iterable(controls.controlled(found, setting) for setting in found.settings):
        if not re.fullmatch(rf"{re.escape(found.baseline)}, \d+ rounds", one.method):
            by.setdefault(one.method, []).append(one)
    return by


def verdicts_of(found: Compared, _: str) -> str:
    """In how many settings each method gains, in how many the gain is its own, and what undoes it elsewhere.

    *Worth* is after how many rounds the baseline, averaged and fitted, has what the method has, the least and the most.
    """
    heads, by = {OWN: OWN, **UNDONE, OPEN: OPEN, UNSEEN: UNSEEN, LOSS: LOSS}, controls_by_method(found)
    told = {m: [OPEN if one.verdict.startswith(OPEN) else one.verdict for one in each] for m, each in by.items()}
    shown = [words for words in heads.values() if any(words in each for each in told.values())]
    lines = [f"| method | gain, raw | gain, averaged and fitted | worth | settings with a gain | {' | '.join(shown)} |"]
    lines.append(f"|---|{'---:|' * (len(shown) + 4)}")
    gains = {m: [[100 * one.of[kind].mean for one in by[m]] for kind in (RAW, "both")] for m in by}
    levels = {m: [f"{statistics.fmean(each):+z.1f}" for each in gains[m]] for m in by}
    for method in sorted(by, key=lambda m: -float(levels[m][1])):
        worths = sorted(one.worth for one in by[method] if one.worth)
        worth = " to ".join(dict.fromkeys((worths[0].words, worths[-1].words))) if worths else ""
        counts = [sum(one.of[RAW].gains for one in by[method]), *map(told[method].count, shown)]
        lines.append(f"| {method} | {' | '.join(levels[method])} | {worth} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def ends_of(run: Run) -> tuple[float, float]:
    """Mean recall of the three rarest classes and of the three most frequent ones, in percent; fitted where a run is.

    They are the last and the first: a long tail thins classes by their numbers.
    """
    raw = [row[c] / sum(row) for c, row in enumerate(run.summary["final_confusion"])]
    each = run.summary.get("final_fitted_per_class_recall", raw)
    return 100 * statistics.fmean(each[-3:]), 100 * statistics.fmean(each[:3])


def recalls_of(found: Compared, begin: str) -> str:
    """Recall of rare and of frequent classes under the settings that begin with a text, paired differences below.

    Those over the baseline are of methods, fitted ones over the fitted baseline too; those to the last setting, without
    noise, of the baseline. Averaged models are left out.
    """
    settings, base = [name for name in found.settings if name.startswith(begin)], found.baseline
    methods = [method for method in found.methods if not method.endswith(", averaged")]
    heads = [name.removeprefix(f"{begin}, ") for name in settings]
    lines = [f"| method | classes | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    ends: dict[str, list[list[list[float]]]] = {}  # by method: of each setting and end, a number a seed
    for method in methods:
        ends[method] = [[*map(list, zip(*map(ends_of, found.runs(method, at)), strict=True))] for at in settings]
        for end, which in enumerate(("three rarest", "three most frequent")):
            means = [f"{statistics.fmean(of[end]):.1f}" for of in ends[method]]
            lines.append(f"| {method} | {which} | {' | '.join(means)} |")

    def row(method: str, which: str, end: int, less: Sequence[list[list[float]]]) -> str:
        pairs = zip(ends[method], less, strict=True)
        gaps = [[a - b for a, b in zip(of[end], by[end], strict=True)] for of, by in pairs]
        told = [_spans({method: gap})[method] if any(gap) else "" for gap in gaps]
        return f"| {method} | {which} | {' | '.join(told)} |"

    still = [ends[base][-1]] * len(settings)
    for end, which in enumerate(("rarest", "most frequent")):
        lines.append(row(base, f"{which}, less {heads[-1]}", end, still))
    lines += [row(method, f"rarest, less {base}", 0, ends[base]) for method in methods if method != base]
    control = f"{base}, fitted"
    fitted = [method for method in methods if method.endswith(", fitted") and method != control]
    lines += [row(method, f"rarest, less {control}", 0, ends[control]) for method in fitted]
    return "\n".join(lines) + "\n"


KINDS: dict[str, tuple[Callable[[str], Any], Callable[[Any, str], str]]] = {  # what is read, and the table of it
    "study": (rows_of, table_of), "less": (rows_of, less_of), "fits": (rows_of, fits_of),
    "controls": (compared, controls_of), "verdicts": (compared, verdicts_of), "recalls": (compared, recalls_of),
}  # fmt: skip


def tables(text: str) -> str:
    """A page with every table between its marks made again; of a study without an archive the place is left."""

    def made(found: re.Match[str]) -> str:
        begin, kind, study, words, end = found.groups()
        if not files_of(ARCHIVES / f"{study}.jsonl")[0].exists():
            return found[0]
        read, table = KINDS[kind]
        return f"{begin}{table(read(study), words or '')}{end}"

    return TABLE.sub(made, text)


def text_of(rows: Iterable[Row]) -> str:
    """The ledger as CSV. Gains are in points; of rounds and rows they are ratios, and so is what is between them."""
    return csv_text([LEDGER, *(_line(row) for row in rows)])


def _line(row: Row) -> list[object]:
    n, gain = row.number, row.gain
    told = [""] * 6
    if gain is not None:
        told = [gain.reference, *map(_shown, (gain.printed, gain.ours, gain.low, gain.high, gain.fitted))]
    hours = "" if (took := hours_of(row)) is None else f"{took:.3g}"
    return [
        *(getattr(n, name) for name in LEDGER[:8]), *map(_shown, (n.mean, n.spread, row.ours, row.low, row.high)),
        row.level, *told, _shown(swing_of(row)), row.seeds or "", row.planned or "", row.scale, row.state, row.study,
        how_of(row), hours, command_of(row), n.note,
    ]  # fmt: skip


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def papers() -> dict[Path, str]:
    """The ledger and its page; a tuned study is planned, for which the data must be at hand."""
    if not os.environ.get("FEDSKEW_DATA"):
        sys.exit("without data a tuned study gives no verdict; set FEDSKEW_DATA")
    runs = Runs.of(ROOT / RESULTS)
    rows = ledger(runs)
    return {ROOT / "results/ledger.csv": text_of(rows), ROOT / "notes/papers.md": page_of(rows, runs)}


def pages() -> dict[Path, str]:
    """The pages with tables of studies; these are planned, for which the data must be at hand."""
    return {ROOT / page: tables((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


if __name__ == "__main__":
    for path, text in (papers() | pages()).items():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
