"""The tables of a comparison: results, recalls, ranks, cost, options and runs."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedskew.config.recorded import Run, in_words
from fedskew.plots.drawing import Heat
from fedskew.records.metrics import METRICS
from fedskew.records.typed import Row
from fedskew.report.compared import Compared
from fedskew.report.controls import controlled, model_words, models_of, record_of
from fedskew.report.entries import LabelledRun, Trial, ended_early
from fedskew.report.figures import further_key, words
from fedskew.report.sentences import measured, p_value
from fedskew.report.tables import (
    TEXTS,
    ReportTable,
    TableCell,
    amount,
    fixed,
    gain,
    level,
    levels,
    row,
    shade,
    titled,
    under,
    unit,
)  # fmt: skip
from fedskew.studies.differences import Difference
from fedskew.studies.scores import ALPHA, FOR_RANKS, in_points
from fedskew.studies.store import env_of
from fedskew.studies.verdicts import GAIN, LOSS, Interval

LONGEST = 120  # characters of a cell
LEAVES = 12  # values of a list that are written out
UNSAID = ("folder", "method.name")  # they stand in other columns
FURTHER = {m.name: m.head or m.title for m in METRICS if "report" in m.where}
SPENT = (
    ("rounds", "rounds", 1.0), ("total_upload_bytes", "MB up", 1e6), ("total_download_bytes", "MB down", 1e6),
    ("total_samples", "samples", 1.0), ("total_steps", "steps", 1.0), ("total_wall_s", "seconds", 1.0),
)  # fmt: skip
HARDWARE = ("python", "platform", "processor", "cores", "cuda")


def results(
    compared: Compared, setting: str | None, models: Sequence[str] | None = None, brief: bool = False
) -> ReportTable:
    """The metric of each method, and its paired gain over the baseline, of each model.

    Further numbers are of the same models and rounds as the metric, which the caption names.

    Args:
        compared: What was compared.
        setting: One of its settings; None: all of them together, a seed with its mean over them.
        models: The models whose gains are shown; None: all that runs have, and the control of more work.
        brief: Whether intervals of the means, p and further numbers are left out.
    """
    key, several, judged = compared.key, len(compared.methods) > 1, controlled(compared, setting)
    every = [*models_of(compared), *["work"] * any("work" in control.of for control in judged)]
    shown, by = (every if models is None else [*models]) * several, {control.method: control for control in judged}
    further = {} if brief or setting is None else {
        name: at for name in FURTHER if (at := further_key(compared, name)) and compared.has(setting, at)
    }  # fmt: skip
    ranked = several and not brief and any(gap.pairs >= FOR_RANKS for gap in compared.differences)
    head = ["method"] if setting is None else ["method", "seeds", "mean", "sd", *["95 % interval"] * (not brief)]
    head += [f"over {compared.baseline}" if len(shown) == 1 else model for model in shown]
    head += ["p (Holm)", "significant"] * ranked + ["settings"] * (setting is None)
    head += [FURTHER[name] for name in further]
    rows, records = [], []
    for method in [m for m in compared.order if m in by] if setting is None else compared.present(setting):
        gap, control = compared.difference(method, setting), by.get(method)
        cells: list[TableCell | str] = [method]
        record: Row = {"setting": setting, "method": method, "metric": key}
        if setting is not None:
            summary = compared.summary(method, setting)
            cells += [str(summary.runs), level(summary.mean, key), level(summary.sd, key)]
            cells += [levels(summary.low, summary.high, key)] * (not brief)
            record |= {"seeds": summary.runs, "mean": summary.mean, "sd": summary.sd}
            record |= {"low": summary.low, "high": summary.high}
        cells += [_gain_cell(control.of.get(model) if control else None, key) for model in shown]
        if several:
            record |= {"baseline": compared.baseline, **gap_record(gap)}
            record |= record_of(control) if control else {"verdict": ""}
        cells += rank_cells(gap) if ranked else []
        if setting is None:
            settings = gap.settings if gap else 0
            cells, record = [*cells, f"{settings} of {len(compared.settings)}"], {**record, "settings": settings}
        for at in further.values():
            assert setting is not None
            further_summary = compared.summary(method, setting, at)
            cells.append(level(further_summary.mean, at))
            record |= {f"{at}_mean": further_summary.mean, f"{at}_sd": further_summary.sd}
        rows.append(row(*cells))
        records.append(record)
    name = "together" if setting is None else "results"
    caption = titled("All settings together" if setting is None else setting, f"{measured(compared)}{unit(key)}")
    notes = [TEXTS["means"]] * (setting is not None and not brief)
    if several and (not brief or len(shown) > 1):
        points = ", in points," * in_points(key)
        definitions = "; ".join(f"{model}: {model_words(compared, model)}" for model in shown)
        notes.append(TEXTS["gains"].format(baseline=compared.baseline, points=points, models=definitions))
        notes += [TEXTS["ranks"]] * ranked + [TEXTS["over"]] * (setting is None)
    return ReportTable(name, caption, tuple(head), tuple(rows), 1, tuple(records), tuple(notes))


def _gain_cell(interval: Interval | None, metric: str) -> TableCell:
    """As in "+4.2" over "3.4 to 5.0", marked where a gain or a loss is shown; a dash of the baseline."""
    if interval is None:
        return TableCell("–")
    low_high = (interval.low, interval.high) if interval.pairs > 1 else ()
    ends = [gain(end, metric).removeprefix("+") for end in low_high]
    text = "\n".join([gain(interval.mean, metric), *[" to ".join(ends)] * bool(ends)])
    return TableCell(text, mark={GAIN: "above", LOSS: "below"}.get(interval.shows, ""))


def rank_cells(gap: Difference | None) -> list[TableCell | str]:
    """What the rank test says of a difference: corrected p, and whether it is significant; dashes of the baseline."""
    if gap is None or gap.pairs < FOR_RANKS:
        return ["–", "–"]
    verdict = f"yes, {gap.ranked}" if gap.significant else "no" if (gap.least_p or 0.0) <= ALPHA else "–"
    return [p_value(gap.p_holm), verdict]


def gap_record(gap: Difference | None) -> Row:
    """A paired difference in full precision; empty for the baseline."""
    if gap is None:
        return {"pairs": 0} | dict.fromkeys(("difference", "difference_low", "difference_high", "p", "p_holm"))
    p, p_holm = (gap.p, gap.p_holm) if gap.pairs >= FOR_RANKS else (None, None)
    return {"pairs": gap.pairs, "difference": gap.mean, "difference_low": gap.low, "difference_high": gap.high,
            "p": p, "p_holm": p_holm}  # fmt: skip


def recalls(compared: Compared, heat: Heat, setting: str) -> ReportTable:
    """The final recall of each class: the baseline, then the others, coloured by their difference from it."""
    order = sorted(range(len(heat.rows)), key=lambda m: heat.rows[m] != compared.baseline)
    first = heat.cells[order[0]] if heat.rows[order[0]] == compared.baseline else heat.cells[order[0]] * math.nan
    rows, records = [], []
    for c, name in enumerate(heat.columns):
        values = [(heat.rows[m], float(heat.cells[m, c])) for m in order]
        rows.append(row(name, *(TableCell(fixed(100 * v, 0), shade(v, float(first[c]))) for _, v in values)))
        records += [
            {"setting": setting, "class": c, "name": name, "method": method, "recall": v} for method, v in values
        ]
    head = ("class", *(heat.rows[m] for m in order))
    return ReportTable("recall", f"{heat.title}, %", head, tuple(rows), 1, tuple(records), (TEXTS["recalls"],))


def ranks(compared: Compared) -> ReportTable:
    """Average ranks, and the settings in which a method is best."""
    ranking = compared.ranks
    assert ranking is not None
    orders = [compared.present(setting) for setting in compared.settings]
    best = Counter(order[0] for order in orders if len(order) == len(compared.methods))
    tests = {"critical_difference": ranking.critical_difference, "friedman_p": ranking.p}
    order = zip(ranking.methods, ranking.ranks, strict=bool(ranking.settings))  # without settings there are no ranks
    records: tuple[Row, ...] = tuple(
        {"method": m, "average_rank": rank, "best_in": best[m], "settings": len(ranking.settings), **tests}
        for m, rank in order
    )
    rows = tuple(row(record["method"], fixed(record["average_rank"], 2), str(record["best_in"])) for record in records)
    caption = f"Average ranks by {measured(compared)}; 1 is the best"
    return ReportTable("ranks", caption, ("method", "average rank", "best in"), rows, 1, records, (ranking.conclusion,))


def compact(compared: Compared) -> ReportTable:
    """Methods by settings in one table for a paper: mean ± half of the 95 % interval over the seeds, the best bold."""
    rows = []
    for method in compared.order:
        cells: list[TableCell | str] = [method]
        for setting in compared.settings:
            summary, best = compared.summary(method, setting), compared.present(setting)[:1] == [method]
            mean, ends = summary.mean, (summary.low, summary.high)
            widths = [abs(end - mean) for end in ends if end is not None and mean is not None]
            half = f" ± {level(max(widths), compared.key)}" if widths else ""  # an end may be cut at 0 or 1
            cells.append(TableCell(f"{level(mean, compared.key)}{half}", best=best))
        rows.append(row(*cells))
    caption = titled("", f"{measured(compared)}{unit(compared.key)}: mean and half of the 95 % interval over the seeds")
    head = ("method", *(setting or "mean" for setting in compared.settings))
    return ReportTable("compact", caption, head, tuple(rows))


def costs(compared: Compared, setting: str) -> ReportTable:
    """What a run costs: means over the seeds."""
    records: tuple[Row, ...] = tuple(
        {"setting": setting, "method": m, compared.key: compared.mean(m, setting)}
        | {
            name: float(np.mean([run.value(key) for run in compared.runs(m, setting)])) / unit
            for key, name, unit in SPENT
        }
        for m in compared.present(setting)
    )
    rows = tuple(
        row(record["method"], level(record[compared.key], compared.key),
            *(amount(record[name], unit != 1 or name == "seconds") for _, name, unit in SPENT)) for record in records
    )  # fmt: skip
    head = ("method", f"{words(compared.metric)}{unit(compared.key)}", *(name for _, name, _ in SPENT))
    caption = f"Cost of a run, mean over the seeds{under(setting)}; {measured(compared)}"
    return ReportTable("cost", caption, head, rows, 1, records, (TEXTS["costs"],))


# Options and runs


def options(compared: Compared) -> list[ReportTable]:
    """The whole configuration: what all runs share, and which methods and settings have what differs."""
    having: dict[str, dict[str, list[LabelledRun]]] = {}
    for entry in compared.entries:
        for path, value in _leaves(entry.run).items():
            having.setdefault(path, {}).setdefault(value, []).append(entry)
    listed = [(path, value, entries) for path, each in having.items() for value, entries in each.items()]
    whole = len(compared.entries)
    shared = tuple(row(path, value) for path, value, entries in listed if len(entries) == whole)
    every = compared.methods, compared.settings
    apart = tuple(
        row(path, value, *map(_named, every, zip(*(entry[:2] for entry in entries), strict=True)))
        for path, value, entries in listed if len(entries) < whole
    )  # fmt: skip
    differing = ReportTable("options", "Options that differ", ("option", "value", "methods", "settings"), apart, 4)
    sharing = ReportTable("shared", "Options that all runs share", ("option", "value"), shared, 2)
    return [sharing, *[differing] * bool(apart)]


def _named(every: Sequence[str], having: Sequence[str]) -> str:
    """Those that have something: "all", or their names."""
    names = [name or "–" for name in every if name in having]
    return "all" if len(names) == len(every) else _cut(", ".join(names))


def _leaves(run: Run) -> dict[str, str]:
    """The configuration by dotted path, in words; a long list is one entry."""
    leaves: dict[str, list[Any]] = {}
    for path, value in run.settings.items():
        words_ = path.split(".")
        cut = next((i for i, word in enumerate(words_) if word.isdecimal()), len(words_))
        leaves.setdefault(".".join(words_[:cut]), []).append(value)
    return {_short(path): _value(values) for path, values in leaves.items() if path not in UNSAID}


def _short(path: str) -> str:
    """An option as the command has it: "weighting" and "weighting.beta"."""
    return path.removeprefix("method.").removesuffix(".name")


def _value(values: list[Any]) -> str:
    if len(values) > LEAVES:
        return f"{len(values)} values, {', '.join(map(in_words, values[:3]))} and so on"
    return _cut(", ".join(map(in_words, values)))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def runs(compared: Compared) -> ReportTable:
    """Every run: its value, rounds, engine, environment and folder."""
    rows, records = [], []
    for i, (method, setting, seed, run) in enumerate(compared.entries, 1):
        value, rounds = run.value(compared.key), run.summary.get("rounds", 0)
        engine = str(run.config.get("engine_used") or run.config.get("engine") or "–")
        device = str(run.config.get("device") or "–")
        end, place = ended_early(run), _environment(run)
        rows.append(row(str(i), method, setting or "–", str(seed), level(value, compared.key), str(rounds),
                        end or "finished", engine, device, place, str(run.folder)))  # fmt: skip
        records.append({"run": i, "method": method, "setting": setting, "seed": seed, compared.key: value,
                        "rounds": rounds, "ended": end, "engine": engine, "device": device,
                        "environment": place, "folder": str(run.folder)})  # fmt: skip
    metric = f"{words(compared.metric)}{unit(compared.key)}"
    head = ("run", "method", "setting", "seed", metric, "rounds", "end", "engine", "device", "environment",
            "folder")  # fmt: skip
    return ReportTable("runs", f"Every run; {measured(compared)}", head, tuple(rows), len(head), tuple(records))


def _environment(run: Run) -> str:
    """What a run ran on, as far as it is on record: versions, processor, cores."""
    env = run.env or env_of(run.folder)  # a run of an archive has no folder
    versions = env.get("versions")
    named = [f"{name} {v}" for name, v in versions.items()] if isinstance(versions, dict) else []
    return ", ".join([*named, *(f"{name} {env[name]}" for name in HARDWARE if env.get(name))])[: 2 * LONGEST] or "–"


def tuned(trials: Sequence[Trial]) -> ReportTable:
    """The trials of each method: how many, the chosen options and their score, and the spread of all scores."""
    rows = []
    for method, setting in dict.fromkeys((t.method, t.setting) for t in trials):
        tried = [t for t in trials if (t.method, t.setting) == (method, setting)]
        scores = [t.score for t in tried if math.isfinite(t.score)]
        chosen = next((t for t in tried if t.chosen), None)
        options_ = ", ".join(f"{k} {in_words(v)}" for k, v in chosen.options.items()) if chosen else "–"
        ends = (min(scores), float(np.median(scores)), max(scores)) if scores else (math.nan,) * 3
        rows.append(row(method, setting or "–", options_, str(len(tried)), fixed(chosen.score if chosen else math.nan),
                         *(fixed(e) for e in ends)))  # fmt: skip
    records = tuple(
        {"method": t.method, "setting": t.setting, **{f"option.{k}": v for k, v in t.options.items()},
         "score": t.score, "chosen": t.chosen} for t in trials
    )  # fmt: skip
    head = ("method", "setting", "chosen", "trials", "its score", "least", "median", "greatest")
    return ReportTable("tuning", "Tuning on the validation rows", head, tuple(rows), 3, records)
