"""The tables of a comparison: results, recalls, ranks, cost, options and runs."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedskew.config.recorded import Run
from fedskew.plots.drawing import Heat, levels
from fedskew.records.metrics import METRICS
from fedskew.records.summary import MEANS
from fedskew.records.typed import Row
from fedskew.report.compared import Compared
from fedskew.report.controls import controlled, verdicts_over
from fedskew.report.entries import Trial, ended_early
from fedskew.report.figures import words
from fedskew.report.sentences import measured, p_value
from fedskew.report.tables import Cell, Table, amount, fixed, row, spread, titled, under
from fedskew.studies.differences import Difference
from fedskew.studies.scores import ALPHA, FOR_RANKS
from fedskew.studies.store import env_of
from fedskew.studies.verdicts import GAIN, LOSS

LONGEST = 120  # characters of an option's value
BESIDE = 6  # columns of options
LEAVES = 12  # values of a list that are written out
UNSAID = ("folder", "method.name")  # they stand in other columns
FURTHER = {m.name: m.head or m.title for m in METRICS if "report" in m.where}
SPENT = (
    ("rounds", "rounds", 1.0), ("total_upload_bytes", "MB up", 1e6), ("total_download_bytes", "MB down", 1e6),
    ("total_samples", "samples", 1.0), ("total_steps", "steps", 1.0), ("total_wall_s", "seconds", 1.0),
)  # fmt: skip
HARDWARE = ("python", "platform", "processor", "cores", "cuda")


def results(found: Compared, setting: str, brief: bool = False) -> Table:
    """The metric of each method: mean, deviation, interval and the paired difference from the baseline.

    Further numbers are of the same models and rounds as the metric, which the caption names.

    Args:
        found: What was compared.
        setting: One of its settings.
        brief: Whether further numbers of the summaries are left out.
    """
    several = len(found.methods) > 1
    further = {} if brief else {n: key for n in FURTHER if (key := _further(found, n)) and found.has(setting, key)}
    ranked, told = found.most_pairs >= FOR_RANKS, {one.method: one.verdict for one in controlled(found, setting)}
    head = ["method", *["verdict"] * several, "seeds", "mean", "sd", "95 % interval"]
    head += [f"from {found.baseline}", "its 95 % interval"] if several else []
    head += ["p (Holm)", "significant"] if several and ranked else []
    head += [FURTHER[name] for name in further]
    rows, records = [], []
    for method in found.present(setting):
        value, gap = found.summary(method, setting), found.difference(method, setting)
        cells: list[Cell | str] = [method, *[told.get(method, "baseline")] * several, str(value.runs)]
        cells += [fixed(value.mean), fixed(value.sd, 3), spread(value.low, value.high)]
        if several:
            cells += [*gap_cells(gap), *(rank_cells(gap) if ranked else ())]
        numbers = {"seeds": value.runs, "mean": value.mean, "sd": value.sd, "low": value.low, "high": value.high}
        record: Row = {"setting": setting, "method": method, "metric": found.key, **numbers}
        if several:
            record |= {"baseline": found.baseline, **gap_record(gap), "verdict": told.get(method, "")}
        for key in further.values():
            seen = found.summary(method, setting, key)
            cells.append(fixed(seen.mean, 3))
            record |= {f"{key}_mean": seen.mean, f"{key}_sd": seen.sd}
        rows.append(row(*cells))
        records.append(record)
    return Table("results", titled(setting, measured(found)), tuple(head), tuple(rows), 1 + several, tuple(records))


def _further(found: Compared, name: str) -> str:
    """The number of a summary that stands beside the metric; "" for the metric itself, and without one like it."""
    span = found.key.partition("_")[0]
    key = f"{span}_{found.whose}{name}"
    return "" if key == found.key or span not in ("final", *MEANS) else key


def gap_cells(gap: Difference | None) -> list[Cell | str]:
    """A paired difference: mean, marked where a gain or a loss is shown, and interval. None is the baseline."""
    if gap is None or gap.mean is None:
        return ["–", "–"]
    side = {GAIN: "above", LOSS: "below"}.get(gap.verdict, "")
    return [Cell(f"{'+' if gap.mean > 0 else ''}{fixed(gap.mean)}", mark=side), spread(gap.low, gap.high)]


def rank_cells(gap: Difference | None) -> list[Cell | str]:
    """What the rank test says of a difference: corrected p, and whether it is significant. None is the baseline."""
    if gap is None or gap.pairs < FOR_RANKS:
        return ["–", "–"]
    told = f"yes, {gap.ranked}" if gap.significant else "no" if (gap.least_p or 0.0) <= ALPHA else "–"
    return [p_value(gap.p_holm), told]


def gap_record(gap: Difference | None) -> Row:
    """A paired difference in full precision; empty for the baseline."""
    if gap is None:
        return {"pairs": 0} | dict.fromkeys(("difference", "difference_low", "difference_high", "p", "p_holm"))
    p, p_holm = (gap.p, gap.p_holm) if gap.pairs >= FOR_RANKS else (None, None)
    return {"pairs": gap.pairs, "difference": gap.mean, "difference_low": gap.low, "difference_high": gap.high,
            "p": p, "p_holm": p_holm}  # fmt: skip


def recalls(heat: Heat, setting: str) -> Table:
    """The heat map of recalls as a table: a line for each class, a column for each method."""
    shades = levels(heat.cells)
    rows = []
    for c, name in enumerate(heat.columns):
        cells = [Cell(fixed(v, 2), int(shade)) for v, shade in zip(heat.cells[:, c], shades[:, c], strict=True)]
        rows.append(row(name, *cells))
    records = tuple(
        {"setting": setting, "class": c, "name": name, "method": method, "recall": float(heat.cells[m, c])}
        for m, method in enumerate(heat.rows)
        for c, name in enumerate(heat.columns)
    )
    return Table("recall", heat.title, ("class", *heat.rows), tuple(rows), 1, records, heat=True)


def ranks(found: Compared) -> Table:
    """Average ranks, and the settings in which a method is best."""
    seen = found.ranks
    assert seen is not None
    whole = [s for s in found.settings if len(found.present(s)) == len(found.methods)]
    best = Counter(found.present(s)[0] for s in whole)
    order = list(zip(seen.methods, seen.ranks, strict=bool(seen.settings)))  # without settings there are no ranks
    rows = tuple(row(m, fixed(rank, 2), str(best[m])) for m, rank in order)
    tests = {"critical_difference": seen.critical_difference, "friedman_p": seen.p}
    records = tuple(
        {"method": m, "average_rank": rank, "best_in": best[m], "settings": len(seen.settings), **tests}
        for m, rank in order
    )
    head = ("method", "average rank", "best in")
    return Table(
        "ranks", f"Average ranks by {measured(found)}; 1 is the best", head, rows, 1, records, (seen.conclusion,)
    )


def compact(found: Compared) -> Table:
    """Methods by settings in one table for a paper: mean ± half of the 95 % interval over the seeds, the best bold."""
    rows = []
    for method in found.order:
        cells: list[Cell | str] = [method]
        for setting in found.settings:
            one, best = found.summary(method, setting), found.present(setting)[:1] == [method]
            ends = [abs(end - one.mean) for end in (one.low, one.high) if end is not None and one.mean is not None]
            half = f" ± {fixed(max(ends))}" if ends else ""  # an end may be cut at 0 or 1
            cells.append(Cell(f"{fixed(one.mean)}{half}", best=best))
        rows.append(row(*cells))
    caption = titled("", f"{measured(found)}: mean and half of the 95 % interval over the seeds")
    return Table("compact", caption, ("method", *(setting or "mean" for setting in found.settings)), tuple(rows))


def together(found: Compared) -> Table:
    """Paired differences from the baseline over all settings."""
    gaps = {m: found.difference(m, None) for m in found.order if m != found.baseline}
    ranked = found.most_pairs >= FOR_RANKS
    head = ["method", "verdict", f"from {found.baseline}", "its 95 % interval"]
    head += ["p (Holm)", "significant"] if ranked else []
    rows, records = [], []
    for method, gap in gaps.items():
        settings = gap.settings if gap else 0
        told = verdicts_over(found)[method]
        cells = [told, *gap_cells(gap), *(rank_cells(gap) if ranked else ())]
        rows.append(row(method, *cells, f"{settings} of {len(found.settings)}"))
        record = {"metric": found.key, "method": method, "baseline": found.baseline, **gap_record(gap)}
        records.append({**record, "settings": settings, "verdict": told})
    caption = f"Each method against {found.baseline} over all settings: {measured(found)}"
    return Table("together", caption, (*head, "settings"), tuple(rows), 2, tuple(records))


def costs(found: Compared, setting: str) -> Table:
    """What a run costs: means over the seeds."""
    rows, records, told = [], [], measured(found)
    for method in found.present(setting):
        runs_ = found.runs(method, setting)
        means = [float(np.mean([run.value(key) for run in runs_])) / unit for key, _, unit in SPENT]
        value = found.mean(method, setting)
        amounts = [amount(v, unit != 1 or name == "seconds") for v, (_, name, unit) in zip(means, SPENT, strict=True)]
        rows.append(row(method, fixed(value), *amounts))
        spent = {name: mean for (_, name, _), mean in zip(SPENT, means, strict=True)}
        records.append({"setting": setting, "method": method, found.key: value, **spent})
    head = ("method", words(found.metric), *(name for _, name, _ in SPENT))
    return Table(
        "cost", f"Cost of a run, mean over the seeds{under(setting)}; {told}", head, tuple(rows), 1, tuple(records)
    )


# Options and runs


def options(found: Compared) -> list[Table]:
    """The whole configuration: what all runs share; what differs between methods, settings, and single runs."""
    flat, entries = [_leaves(entry.run) for entry in found.entries], found.entries
    owners = {
        "": [""] * len(flat), "method": [e.method for e in entries], "setting": [e.setting for e in entries],
        "run": [str(i + 1) for i in range(len(flat))],
    }  # fmt: skip
    by: dict[str, dict[str, dict[str, str]]] = {level: {} for level in owners}
    for path in dict.fromkeys(path for leaves in flat for path in leaves):
        values = [leaves.get(path) for leaves in flat]
        level = next(n for n, keys in owners.items() if len({*zip(keys, values, strict=True)}) == len({*keys}))
        for owner, value in zip(owners[level], values, strict=True):
            if value is not None:
                by[level].setdefault(owner, {})[path] = value
    shared = tuple(row(path, value) for path, value in by.pop("").get("", {}).items())
    return [
        Table("shared", "Options that all runs share", ("option", "value"), shared, 2),
        *(_differing(level, told) for level, told in by.items() if any(told.values())),
    ]


def _differing(level: str, by: dict[str, dict[str, str]]) -> Table:
    """Options of each owner: a column for each, or a line for each option where there are many owners."""
    caption = f"Options that differ between {level}s"
    if len(by) > BESIDE:
        rows = tuple(row(owner or "–", path, value) for owner, told in by.items() for path, value in told.items())
        return Table(f"options-{level}", caption, (level, "option", "value"), rows, 3)
    paths = dict.fromkeys(path for told in by.values() for path in told)
    rows = tuple(row(path, *(told.get(path, "–") for told in by.values())) for path in paths)
    head = ("option", *(owner or "–" for owner in by))
    return Table(f"options-{level}", caption, head, rows, len(head))


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


def runs(found: Compared) -> Table:
    """Every run: its value, rounds, engine, environment and folder."""
    rows, records = [], []
    for i, (method, setting, seed, run) in enumerate(found.entries, 1):
        value, rounds = run.value(found.key), run.summary.get("rounds", 0)
        engine = str(run.config.get("engine_used") or run.config.get("engine") or "–")
        device = str(run.config.get("device") or "–")
        end, place = ended_early(run), _environment(run)
        rows.append(row(str(i), method, setting or "–", str(seed), fixed(value), str(rounds), end or "finished", engine,
                        device, place, str(run.folder)))  # fmt: skip
        records.append({"run": i, "method": method, "setting": setting, "seed": seed, found.key: value,
                        "rounds": rounds, "ended": end, "engine": engine, "device": device,
                        "environment": place, "folder": str(run.folder)})  # fmt: skip
    head = ("run", "method", "setting", "seed", words(found.metric), "rounds", "end", "engine", "device", "environment",
            "folder")  # fmt: skip
    return Table("runs", f"Every run; {measured(found)}", head, tuple(rows), len(head), tuple(records))


def _environment(run: Run) -> str:
    """What a run ran on, as far as it is on record: versions, processor, cores."""
    env = env_of(run.folder)
    versions = env.get("versions")
    named = [f"{name} {v}" for name, v in versions.items()] if isinstance(versions, dict) else []
    return ", ".join([*named, *(f"{name} {env[name]}" for name in HARDWARE if env.get(name))])[: 2 * LONGEST] or "–"


def tuned(trials: Sequence[Trial]) -> Table:
    """The trials of each method: how many, the chosen options and their score, and the spread of all scores."""
    rows = []
    for method, setting in dict.fromkeys((t.method, t.setting) for t in trials):
        own = [t for t in trials if (t.method, t.setting) == (method, setting)]
        scores = [t.score for t in own if math.isfinite(t.score)]
        chosen = next((t for t in own if t.chosen), None)
        options_ = ", ".join(f"{k} {_plain(v)}" for k, v in chosen.options.items()) if chosen else "–"
        ends = (min(scores), float(np.median(scores)), max(scores)) if scores else (math.nan,) * 3
        rows.append(row(method, setting or "–", options_, str(len(own)), fixed(chosen.score if chosen else math.nan),
                         *(fixed(e) for e in ends)))  # fmt: skip
    records = tuple(
        {"method": t.method, "setting": t.setting, **{f"option.{k}": v for k, v in t.options.items()},
         "score": t.score, "chosen": t.chosen} for t in trials
    )  # fmt: skip
    head = ("method", "setting", "chosen", "trials", "its score", "least", "median", "greatest")
    return Table("tuning", "Tuning on the validation rows", head, tuple(rows), 3, records)
