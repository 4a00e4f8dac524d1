"""The tables of a comparison: results, recalls, ranks, cost, options and runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedskew.component import SLOTS
from fedskew.errors import json_file
from fedskew.plots.groups import Run
from fedskew.report.compared import Compared
from fedskew.report.entries import Trial, ended_early, value_of
from fedskew.report.figures import words
from fedskew.report.numbers import Difference, Estimate, estimate
from fedskew.report.pictures import Heat
from fedskew.report.sentences import measured, p_value, p_words
from fedskew.report.svg import levels
from fedskew.report.tables import Cell, Table, fixed, spread

__all__ = ["costs", "environments", "mistakes", "options", "ranks", "recalls", "results", "runs", "tuned"]

LONGEST = 120  # characters of an option's value
BESIDE = 6  # columns of options
LEAVES = 12  # values of a list that are written out
TRAINED = "Training and aggregation that differ between methods"
UNSAID = ("folder", "method.name")  # they stand in other columns
FURTHER = ("final", "macro_f1", "g_mean", "worst_class_recall")
SPENT = (
    ("rounds", "rounds", 1.0), ("total_upload_bytes", "MB up", 1e6), ("total_download_bytes", "MB down", 1e6),
    ("total_samples", "samples", 1.0), ("total_steps", "steps", 1.0), ("total_wall_s", "seconds", 1.0),
)  # fmt: skip
HARDWARE = ("python", "platform", "processor", "cores", "threads", "cuda")
Row = dict[str, Any]


def _row(*cells: Cell | str) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells)


def results(found: Compared, setting: str) -> Table:
    """The metric of each method: mean, deviation, interval and the paired difference from the baseline."""
    several = len(found.methods) > 1
    further = [(name, key) for name in FURTHER if (key := _further(found, name)) and _any(found, setting, key)]
    head = ["method", "seeds", "mean", "sd", "95 % interval"]
    head += [f"from {found.baseline}", "its 95 % interval", "p (Holm)", "significant"] if several else []
    head += [_called(key) for _, key in further]
    rows, records = [], []
    other = {key: found.values(setting, key) for _, key in further}
    for method in found.present(setting):
        value, gap = found.estimate(method, setting), found.difference(method, setting)
        cells: list[Cell | str] = [method, str(value.n), fixed(value.mean), fixed(value.sd, 3),
                                   spread(value.low, value.high)]  # fmt: skip
        if several:
            cells += _gap_cells(found, gap)
        record: Row = {"setting": setting, "method": method, "metric": found.key, **_record(value)}
        if several:
            record |= {"baseline": found.baseline, **_gap_record(gap)}
        for _, key in further:
            seen = estimate(other[key][found.methods.index(method)])
            cells.append(fixed(seen.mean, 3))
            record |= {f"{key}_mean": seen.mean, f"{key}_sd": seen.sd}
        rows.append(_row(*cells))
        records.append(record)
    where = f"{setting}: " if setting else ""
    return Table("results", f"{where}{measured(found)}", tuple(head), tuple(rows), 1, tuple(records))


def _further(found: Compared, name: str) -> str:
    """The number of a summary that stands beside the metric; "" where it is the metric itself."""
    key = f"final_{found.metric}" if name == "final" else f"mean10_{name}"
    return "" if key == found.key or name == found.metric else key


def _any(found: Compared, setting: str, key: str) -> bool:
    return bool(np.isfinite(found.values(setting, key)).any())


def _called(key: str) -> str:
    how, _, metric = key.partition("_")
    return "final" if how == "final" else words(metric).replace("worst class recall", "worst recall")


def _gap_cells(found: Compared, gap: Difference | None) -> list[Cell | str]:
    if gap is None:
        return ["baseline", "–", "–", "–"]
    if not gap.n:
        return ["–", "–", "–", "–"]
    sign = "+" if gap.mean > 0 else ""
    side = ("above" if found.better(gap.mean) else "below") if gap.significant else ""
    told = {"above": "yes, better", "below": "yes, worse"}.get(side, "no" if gap.n > 1 else "–")
    return [Cell(f"{sign}{fixed(gap.mean)}", mark=side), spread(gap.low, gap.high), p_value(gap.holm), Cell(told)]


def _record(value: Estimate) -> Row:
    return {"seeds": value.n, "mean": value.mean, "sd": value.sd, "low": value.low, "high": value.high}


def _gap_record(gap: Difference | None) -> Row:
    seen = gap or Difference(0, math.nan, math.nan, math.nan, math.nan, math.nan)
    return {"pairs": seen.n, "difference": seen.mean, "difference_low": seen.low, "difference_high": seen.high,
            "p": seen.p, "p_holm": seen.holm}  # fmt: skip


def recalls(heat: Heat, setting: str) -> Table:
    """The heat map of recalls as a table: a line for each class, a column for each method."""
    shades = levels(heat.cells)
    rows = []
    for c, name in enumerate(heat.columns):
        cells = [Cell(fixed(v, 2), int(shade)) for v, shade in zip(heat.cells[:, c], shades[:, c], strict=True)]
        rows.append(_row(name, *cells))
    records = tuple(
        {"setting": setting, "class": c, "name": name, "method": method, "recall": float(heat.cells[m, c])}
        for m, method in enumerate(heat.rows)
        for c, name in enumerate(heat.columns)
    )
    where = f"{setting}: " if setting else ""
    return Table("recall", f"{where}final recall", ("class", *heat.rows), tuple(rows), 1, records, heat=True)


def mistakes(told: Sequence[tuple[str, str]]) -> Table:
    """The most frequent mistakes of each confusion matrix in words, from its title and its description."""
    rows = tuple(_row(title, words_) for title, words_ in told)
    return Table("mistakes", "Most frequent mistakes", ("method", "mistakes"), rows, 2)


def ranks(found: Compared) -> Table:
    """Average ranks, and the settings in which a method is best."""
    order = sorted(zip(found.ranks.average, found.methods, strict=True))
    whole = [s for s in found.settings if len(found.present(s)) == len(found.methods)]
    best = {m: sum(found.present(s)[0] == m for s in whole) for m in found.methods}
    rows = tuple(_row(m, fixed(rank, 2), str(best[m])) for rank, m in order)
    records = tuple(
        {"method": m, "average_rank": rank, "best_in": best[m], "settings": len(whole)} for rank, m in order
    )
    notes = [f"Critical difference at the 5 % level (Nemenyi): {found.ranks.critical:.2f}."]
    if math.isfinite(found.ranks.p):
        notes.append(f"Friedman's test that all methods rank alike: {p_words(found.ranks.p)}.")
    head = ("method", "average rank", "best in")
    return Table("ranks", "Average ranks; 1 is the best", head, rows, 1, records, tuple(notes))


def costs(found: Compared, setting: str) -> Table:
    """What a run costs: means over the seeds."""
    rows, records = [], []
    for method in found.present(setting):
        runs_ = found.runs(method, setting)
        means = [float(np.mean([value_of(run, key) for run in runs_])) / unit for key, _, unit in SPENT]
        value = found.estimate(method, setting).mean
        told = [_amount(v, unit != 1 or name == "seconds") for v, (_, name, unit) in zip(means, SPENT, strict=True)]
        rows.append(_row(method, fixed(value), *told))
        spent = {name: mean for (_, name, _), mean in zip(SPENT, means, strict=True)}
        records.append({"setting": setting, "method": method, found.key: value, **spent})
    head = ("method", words(found.metric), *(name for _, name, _ in SPENT))
    where = f", {setting}" if setting else ""
    return Table("cost", f"Cost of a run, mean over the seeds{where}", head, tuple(rows), 1, tuple(records))


def _amount(value: float, measured_: bool) -> str:
    """A cost: one digit behind the point where it is measured and small, or a mean that is not whole."""
    return fixed(value, int(abs(value) < 100 and (measured_ or value != int(value))) if math.isfinite(value) else 0)


# Options and runs


def options(found: Compared) -> list[Table]:
    """The whole configuration: what all runs share; what differs between methods, settings, and single runs."""
    flat = [_leaves(entry.run) for entry in found.entries]
    paths = list(dict.fromkeys(path for leaves in flat for path in leaves))
    by: dict[str, dict[str, list[tuple[str, str]]]] = {"": {}, "method": {}, "setting": {}, "run": {}}
    keys: dict[str, Callable[[int], str]] = {
        "": lambda i: "", "method": lambda i: found.entries[i].method, "setting": lambda i: found.entries[i].setting,
        "run": lambda i: str(i + 1),
    }  # fmt: skip
    for path in paths:
        values = [leaves.get(path) for leaves in flat]
        level = next(name for name in by if _decides([keys[name](i) for i in range(len(flat))], values))
        for i, value in enumerate(values):
            if value is not None:
                place = by[level].setdefault(keys[level](i), [])
                if (path, value) not in place:
                    place.append((path, value))
    shared = tuple(_row(path, value) for path, value in by[""].get("", ()))
    tables = [Table("shared", "Options that all runs share", ("option", "value"), shared, 2)]
    told = {"method": "Further options that differ between methods", "setting": "Options that differ between settings",
            "run": "Options that differ between single runs"}  # fmt: skip
    for level, caption in told.items():
        if level == "method":
            first, rest = ({m: [o for o in listed if _is_training(o[0]) == wanted] for m, listed in by[level].items()}
                           for wanted in (True, False))  # fmt: skip
            tables += [_differing(level, TRAINED, first)] if any(first.values()) else []
            tables += [_differing(level, caption, rest)] if any(rest.values()) else []
        elif by[level]:
            tables.append(_differing(level, caption, by[level]))
    return tables


def _is_training(path: str) -> bool:
    """Whether an option is of the training that a comparison should hold equal, or names what fills a slot."""
    return path in SLOTS or path.startswith(("pace.", "server.", "local."))


def _differing(level: str, caption: str, by: dict[str, list[tuple[str, str]]]) -> Table:
    """Options of each owner: a column for each, or a line for each option where there are many owners."""
    if len(by) > BESIDE:
        rows = tuple(_row(owner or "–", path, value) for owner, listed in by.items() for path, value in listed)
        return Table(f"options-{level}", caption, (level, "option", "value"), rows, 3)
    paths = dict.fromkeys(path for listed in by.values() for path, _ in listed)
    values = {owner: dict(listed) for owner, listed in by.items()}
    rows = tuple(_row(path, *(values[owner].get(path, "–") for owner in by)) for path in paths)
    head = ("option", *(owner or "–" for owner in by))
    return Table(f"options-{level}", caption, head, rows, len(head))


def _decides(keys: Sequence[str], values: Sequence[str | None]) -> bool:
    """Whether equal keys have equal values."""
    seen: dict[str, str | None] = {}
    return all(seen.setdefault(key, value) == value for key, value in zip(keys, values, strict=True))


def _leaves(run: Run) -> dict[str, str]:
    """The configuration by dotted path, in words; a long list is one entry."""
    found: dict[str, list[Any]] = {}
    for path, value in run.settings.items():
        words_ = path.split(".")
        cut = next((i for i, word in enumerate(words_) if word.isdecimal()), len(words_))
        found.setdefault(".".join(words_[:cut]), []).append(value)
    return {_short(path): _value(values) for path, values in found.items() if path not in UNSAID}


def _short(path: str) -> str:
    """An option as the command has it: "weighting" and "weighting.beta"."""
    return path.removeprefix("method.").removesuffix(".name")


def _value(values: list[Any]) -> str:
    if len(values) > LEAVES:
        return f"{len(values)} values, {', '.join(map(_plain, values[:3]))} and so on"
    told = ", ".join(map(_plain, values))
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"


def _plain(value: Any) -> str:
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def environments(found: Compared) -> tuple[Table, list[int]]:
    """(environments, each once; the number of the one that each entry ran in, from 1)."""
    seen: dict[str, Row] = {}
    started: dict[str, list[str]] = {}
    numbers = []
    for entry in found.entries:
        env = _environment(entry.run)
        start = str(env.pop("started", ""))
        key = json.dumps(env, sort_keys=True)
        seen.setdefault(key, env)
        started.setdefault(key, []).append(start)
        numbers.append(list(seen).index(key) + 1)
    rows = []
    for number, (key, env) in enumerate(seen.items(), 1):
        given = env.get("versions")
        versions = ", ".join(f"{name} {v}" for name, v in given.items()) if isinstance(given, dict) else ""
        when = sorted(filter(None, started[key]))
        span = "–" if not when else when[0] if len(when) == 1 else f"{when[0]} to {when[-1]}"
        told = [_value([env[name]])[:LONGEST] if name in env else "–" for name in HARDWARE]
        rows.append(_row(str(number), str(len(started[key])), versions[: 2 * LONGEST] or "not on record", *told, span))
    head = ("environment", "runs", "versions", *HARDWARE, "started")
    return Table("environments", "Environments of the runs", head, tuple(rows), len(head)), numbers


def _environment(run: Run) -> Row:
    """What env.json holds; empty where it is missing or damaged: nothing is computed from it."""
    try:
        found = json_file(run.folder / "env.json")
    except (OSError, ValueError):
        return {}
    return dict(found) if isinstance(found, dict) else {}


def runs(found: Compared, places: Sequence[int]) -> Table:
    """Every run: its value, rounds, engine, environment and folder."""
    rows, records = [], []
    for i, (entry, place) in enumerate(zip(found.entries, places, strict=True), 1):
        method, setting, seed, run = entry
        value, rounds = value_of(run, found.key), run.summary.get("rounds", 0)
        engine = str(run.config.get("engine_used") or run.config.get("engine") or "–")
        device = str(run.config.get("device") or "–")
        told = (str(i), method, setting or "–", str(seed), fixed(value), str(rounds), ended_early(run) or "finished")
        rows.append(_row(*told, engine, device, str(place), str(run.folder)))
        records.append({"run": i, "method": method, "setting": setting, "seed": seed, found.key: value,
                        "rounds": rounds, "ended": ended_early(run), "engine": engine, "device": device,
                        "environment": place, "folder": str(run.folder)})  # fmt: skip
    head = ("run", "method", "setting", "seed", words(found.metric), "rounds", "end", "engine", "device", "environment",
            "folder")  # fmt: skip
    return Table("runs", "Every run", head, tuple(rows), len(head), tuple(records))


def tuned(trials: Sequence[Trial]) -> Table:
    """The trials of each method: how many, the chosen options and their score, and the spread of all scores."""
    rows = []
    for method, setting in dict.fromkeys((t.method, t.setting) for t in trials):
        own = [t for t in trials if (t.method, t.setting) == (method, setting)]
        scores = [t.score for t in own if math.isfinite(t.score)]
        chosen = next((t for t in own if t.chosen), None)
        options_ = ", ".join(f"{k} {_plain(v)}" for k, v in chosen.options.items()) if chosen else "–"
        ends = (min(scores), float(np.median(scores)), max(scores)) if scores else (math.nan,) * 3
        rows.append(_row(method, setting or "–", options_, str(len(own)), fixed(chosen.score if chosen else math.nan),
                         *(fixed(e) for e in ends)))  # fmt: skip
    records = tuple(
        {"method": t.method, "setting": t.setting, **{f"option.{k}": v for k, v in t.options.items()},
         "score": t.score, "chosen": t.chosen} for t in trials
    )  # fmt: skip
    head = ("method", "setting", "chosen", "trials", "its score", "least", "median", "greatest")
    return Table("tuning", "Tuning on the validation rows", head, tuple(rows), 3, records)
