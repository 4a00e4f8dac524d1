"""Views of records: which runs there are, one table, and the picture that compares them. They train nothing.

G groups of runs (one configuration under several seeds), R rounds, C classes. A megabyte (MB) is 10^6 bytes.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.table import Table

from fedskew.errors import RecordError
from fedskew.plots import canvas
from fedskew.plots.canvas import COLOURS, DASHES, Floats, matplotlib
from fedskew.records import folder as records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["comparison", "find_runs", "table"]

Row = dict[str, Any]

# What does not make two runs different experiments: where, how often looked at, and the seed, over which we average.
NEUTRAL = {
    "seed", "engine", "engine_used", "engine_reason", "device", "eval_every", "personal_every", "checkpoint_every",
    "path", "diagnose",
}  # fmt: skip
OPTIONAL = ("longtail", "validation", "auxiliary")  # said only where there is some
SCENARIO = ("data", "partition", "model", "clients", "cohort", *OPTIONAL)
UNSAID = ("folder", "fingerprint")
OWN = "final_personal_accuracy"
LONGEST = 44  # characters of a label, beyond which the folder's name stands in


# Runs


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Run folders, given directly or found below folders; each once, in order.

    Raises RecordError for a path that does not exist, and when no path leads to a run.
    """
    given = [Path(p) for p in paths]
    for path in given:
        if not path.exists():
            raise RecordError(f"there is no run at {str(path)!r}: no such file or folder")
    found = [folder for path in given for folder in ([path] if _is_run(path) else _below(path))]
    if not found:
        places = ", ".join(repr(str(p)) for p in given) or "no path"
        raise RecordError(f"no run folder found in {places}; a run folder holds config.json and rounds.jsonl")
    once: dict[Path, Path] = {}
    for folder in found:
        once.setdefault(folder.resolve(), folder)
    return list(once.values())


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file() and (path / "rounds.jsonl").is_file()


def _below(path: Path) -> list[Path]:
    return sorted(file.parent for file in path.rglob("rounds.jsonl") if _is_run(file.parent))


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run folder, read."""

    folder: Path
    config: Row
    rows: list[Row]
    summary: Row

    @property
    def name(self) -> str:
        """The method's name; the folder's where the configuration has none."""
        return _name(self.config.get("method")) or self.folder.name

    @property
    def last(self) -> Row:
        """The last evaluated round."""
        return next((row for row in reversed(self.rows) if "accuracy" in row), {})

    @property
    def settings(self) -> Row:
        """What makes it the experiment it is, by dotted path."""
        kept = {key: value for key, value in self.config.items() if key not in NEUTRAL}
        return _flat(kept) if "method" in kept else {"folder": str(self.folder)}

    def series(self, name: str) -> tuple[list[int], Floats, Floats]:
        """(rounds [R], values [R], MB uploaded until then [R]) of the rounds that hold the metric."""
        sent = np.cumsum([row.get("upload_bytes", 0) for row in self.rows]) / 1e6
        seen = [i for i, row in enumerate(self.rows) if row.get(name) is not None]
        values = np.array([self.rows[i][name] for i in seen], dtype=np.float64)
        return [self.rows[i]["round"] for i in seen], values, sent[seen]


@dataclasses.dataclass(frozen=True)
class _Group:
    """Runs of one configuration under different seeds."""

    label: str
    runs: list[_Run]


def _groups(folders: Iterable[str | Path]) -> list[_Group]:
    """Runs by configuration, labelled; a repetition under the same seed stands for itself."""
    seen: Counter[str] = Counter()
    groups: dict[tuple[str, int], list[_Run]] = {}
    for folder in folders:
        run = _Run(Path(folder), *records.read(folder))
        key = repr(sorted(run.settings.items(), key=lambda item: item[0]))
        place = f"{key} {run.config.get('seed')}"
        groups.setdefault((key, seen[place]), []).append(run)
        seen[place] += 1
    return [_Group(*pair) for pair in zip(_labels(list(groups.values())), groups.values(), strict=True)]


def _labels(groups: list[list[_Run]]) -> list[str]:
    """The method's name, with what differs from other groups of that method, and from all groups in the scenario."""
    firsts = [runs[0] for runs in groups]
    common = [p for p in _differing([r.settings for r in firsts]) if p.split(".")[0] in SCENARIO]
    labels = []
    for run in firsts:
        own = _differing([r.settings for r in firsts if r.name == run.name])
        told = _told(run.settings, list(dict.fromkeys(common + own)))
        labels.append(f"{run.name} ({told})" if told else run.name)
    many = Counter(labels)
    for i, run in enumerate(firsts):
        if many[labels[i]] > 1 or len(labels[i]) > LONGEST:
            labels[i] = run.name if run.name == run.folder.name else f"{run.name} ({run.folder.name})"
    many = Counter(labels)
    labels = [s if many[s] == 1 else "/".join(r.folder.parts[-2:]) for s, r in zip(labels, firsts, strict=True)]
    return [f"{s}, {len(runs)} seeds" if len(runs) > 1 else s for s, runs in zip(labels, groups, strict=True)]


def _flat(value: Any, path: str = "") -> Row:
    """Leaves of a configuration by dotted path; an element of a list goes by its name."""
    if isinstance(value, Mapping):
        items = [(str(key), v) for key, v in value.items()]
    elif isinstance(value, list):
        items = [(_name(v) or str(i), v) for i, v in enumerate(value)]
    else:
        return {path: value}
    return {p: leaf for key, v in items for p, leaf in _flat(v, f"{path}.{key}" if path else key).items()}


def _differing(settings: list[Row]) -> list[str]:
    """Paths whose values differ; a path that some lack differs only where it names an ingredient."""
    paths = dict.fromkeys(path for s in settings for path in s)
    values = {path: [s[path] for s in settings if path in s] for path in paths}
    lacking = {path for path, v in values.items() if path.endswith(".name") and len(v) < len(settings)}
    return [p for p, v in values.items() if p in lacking or any(w != v[0] for w in v)]


def _told(settings: Row, paths: list[str]) -> str:
    """As in `label_aware, alpha 0.1`: an ingredient by its name, a field by its own, or by its path."""
    ends = Counter(path.split(".")[-1] for path in paths)
    words = []
    for path in (p for p in paths if p in settings and p not in UNSAID and (settings[p] or p not in OPTIONAL)):
        end, value = path.split(".")[-1], settings[path]
        text = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(text if end in ("name", "method") else f"{end if ends[end] == 1 else path} {text}")
    return ", ".join(words)


def _name(value: Any) -> str:
    """The name of an ingredient in a configuration: a string, or {"name": ...}; "" for anything else."""
    found = value.get("name") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else ""


def _with_fields(value: Any) -> str:
    """As in `dirichlet (alpha 0.1)`, of {"name": "dirichlet", "alpha": 0.1}."""
    fields = {k: v for k, v in value.items() if k != "name" and v is not None} if isinstance(value, Mapping) else {}
    told = _told(fields, list(fields))
    return f"{_name(value)} ({told})" if told else _name(value)


def _title(runs: list[_Run]) -> str:
    """Dataset, partition, clients, cohort, model: what all the runs share. What they do not is in their labels."""
    facts = []
    for c in (run.config for run in runs):
        clients, cohort, tail = (c.get(key) for key in ("clients", "cohort", "longtail"))
        facts.append(
            [
                _name(c.get("data")),
                f"long tail {tail:g}" if tail else "",
                _with_fields(c.get("partition")),
                f"{clients} clients" if clients else "",
                f"cohort {cohort}" if cohort else "",
                _name(c.get("model")),
            ]
        )
    shared = [column[0] for column in zip(*facts, strict=True) if len(set(column)) == 1 and column[0]]
    return ", ".join(shared) or f"{len(runs)} run{'s' * (len(runs) > 1)}"


def table(folders: Iterable[str | Path]) -> Table:
    """One line a configuration, the best mean accuracy of the last 10 rounds first.

    Runs that differ by their seed only share a line: the mean, and below it the sample's standard deviation.
    Worst recall is that of the last evaluation, over classes with test rows; "own models" the final accuracy of the
    clients' own, where a run has them. A run that stopped early shows "rounds run/rounds asked for". Raises RecordError
    for a folder that holds no run.
    """
    groups = sorted(_groups(folders), key=_rank)
    personal = any(OWN in run.summary for g in groups for run in g.runs)
    view = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True, title_justify="left")
    view.add_column("method", min_width=15, overflow="fold")
    view.title = _title([run for g in groups for run in g.runs]) if groups else None
    heads = ["rounds", "final\nacc.", "mean\nof 10", "macro\nF1", "worst\nrecall", *["own\nmodels"] * personal]
    for head in (*heads, "MB\nup", "MB\ndown", "s"):
        view.add_column(head, justify="right", no_wrap=True)
    for group in groups:
        view.add_row(group.label, *_cells(group, personal))
    return view


def _rank(group: _Group) -> float:
    """What sorts the best mean accuracy of the last 10 rounds first, and runs without any last."""
    found = [run.summary["mean10_accuracy"] for run in group.runs if run.summary.get("mean10_accuracy") is not None]
    return -float(np.mean(found)) if found else 1.0


def _cells(group: _Group, personal: bool) -> list[str]:
    summaries = [run.summary for run in group.runs]
    names = ["final_accuracy", "mean10_accuracy", "final_macro_f1"]
    scores = [[s.get(name) for s in summaries] for name in names] + [[_worst(run.last) for run in group.runs]]
    scores += [[s.get(OWN) for s in summaries]] * personal
    sums = [[s.get(f"total_{name}_bytes", 0) / 1e6 for s in summaries] for name in ("upload", "download")]
    sums.append([s.get("total_wall_s", 0) for s in summaries])
    means = [float(np.mean(values)) for values in sums]
    return [" ".join(_rounds(group)), *map(_spread_of, scores), *(f"{v:,.{int(v < 100)}f}" for v in means)]


def _rounds(group: _Group) -> list[str]:
    """Rounds that were run, "of those asked for" where fewer; one for all seeds where they agree."""
    told = []
    for run in group.runs:
        done, asked = run.summary["rounds"], run.config.get("rounds")
        told.append(f"{done}/{asked}" if asked and done < asked else str(done))
    return list(dict.fromkeys(told))


def _spread_of(values: Sequence[float | None]) -> str:
    """The mean, and the standard deviation of several seeds; a dash where nothing was measured."""
    seen = [v for v in values if v is not None]
    if not seen:
        return "–"
    return f"{np.mean(seen):.4f}" + (f"\n±{np.std(seen, ddof=1):.3f}" if len(seen) > 1 else "")


def _worst(row: Row) -> float | None:
    recall = _recall(row)
    return None if np.isnan(recall).all() else float(np.nanmin(recall))


def _recall(row: Row) -> Floats:
    """Recall of each class [C], NaN without test rows."""
    recall = np.array(row.get("per_class_recall", []), dtype=np.float64)
    return np.where(np.array(row.get("support", np.ones(len(recall)))) > 0, recall, np.nan)


# The picture that compares runs


def comparison(folders: Iterable[str | Path], out: str | Path) -> Path:
    """One picture of runs: accuracy and macro-F1 over rounds, accuracy over MB uploaded, final recall of each class.

    Where a run evaluated the clients' own models, their accuracy over rounds is a fourth panel.
    Seeds of one configuration are drawn as their mean with a band from the least to the greatest. From 20 evaluations
    on, lines are trailing means (of 5 or more), and a single run's own evaluations are a thin line behind. The best
    mean accuracy of the last 10 rounds comes first. Returns the
    file; ``out`` ends in .png (also without a suffix), .svg or .pdf. Raises RecordError where no run was evaluated yet
    or the file cannot be written, ConfigError for another suffix or without matplotlib.
    """
    target, mpl = canvas.target(out), matplotlib()
    places = list(folders)
    groups = sorted((g for g in _groups(places) if any(run.last for run in g.runs)), key=_rank)
    if not groups:
        raise RecordError(f"no evaluated round yet in {', '.join(repr(str(f)) for f in places) or 'no folder'}")
    with mpl.rc_context(canvas.STYLE):
        return canvas.save(_compared(groups), target)


def _compared(groups: list[_Group]) -> Figure:
    columns = max(1, min(len(groups), 150 // (max(len(g.label) for g in groups) + 8)))
    low = 0.9 + 0.3 * len(groups)
    figure = canvas.figure(5.0 + low + 0.22 * -(-len(groups) // columns))
    shown = [("accuracy", False), ("macro_f1", False), ("accuracy", True)]
    shown += [("personal_accuracy", False)] * any(len(r.series("personal_accuracy")[0]) for g in groups for r in g.runs)
    grid = figure.add_gridspec(2, len(shown), height_ratios=[4.2, low])
    window = _window(groups)
    panels = [figure.add_subplot(grid[0, i]) for i in range(len(shown))]
    for axes, (metric, sent) in zip(panels, shown, strict=True):
        # the clients' own models are evaluated seldom: their lines are not averaged over rounds
        _curves(axes, groups, metric, 1 if metric == "personal_accuracy" else window, sent)
    _recalls(figure, figure.add_subplot(grid[1, :]), groups)
    mean = f"; lines: mean of the last {window} evaluations" if window > 1 else ""
    figure.suptitle(_title([run for g in groups for run in g.runs]) + mean, fontsize=12)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    return figure


def _window(groups: list[_Group]) -> int:
    """Evaluations that a line averages: 1 below 20 of them, 5 below 50, then 10, and a twentieth from 200 on."""
    most = max(len(run.series("accuracy")[0]) for g in groups for run in g.runs)
    return 1 if most < 20 else 5 if most < 50 else max(10, most // 20)


def _smooth(values: Floats, window: int) -> Floats:
    """Trailing mean of the last ``window`` values, of all so far at the beginning, [R]."""
    if window == 1:
        return values
    sums = np.concatenate([[0.0], np.cumsum(values)])
    end = np.arange(1, len(values) + 1)
    start = np.maximum(end - window, 0)
    return np.asarray((sums[end] - sums[start]) / (end - start))


def _stacked(group: _Group, metric: str, window: int) -> tuple[Floats, Floats, Floats]:
    """(rounds [R], smoothed values [seeds, R], MB [seeds, R]); NaN where a seed was not evaluated in that round."""
    found = [run.series(metric) for run in group.runs]
    rounds = sorted({r for seen, _, _ in found for r in seen})
    out = np.full((2, len(found), len(rounds)), np.nan)
    for i, (seen, values, sent) in enumerate(found):
        out[:, i, np.searchsorted(rounds, seen)] = _smooth(values, window), sent
    return np.array(rounds, dtype=np.float64), out[0], out[1]


def _curves(axes: Axes, groups: list[_Group], metric: str, window: int, sent: bool) -> None:
    """One line a group over rounds, or over the MB that the cohort uploaded until then."""
    for i, group in enumerate(groups):
        rounds, values, megabytes = _stacked(group, metric, window)
        if not len(rounds):
            continue
        x = np.nanmean(megabytes, axis=0) if sent else rounds
        look: Row = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
        }
        if len(group.runs) > 1:
            axes.fill_between(x, np.nanmin(values, 0), np.nanmax(values, 0), color=look["color"], alpha=0.15, lw=0)
        elif window > 1 and not sent:
            axes.plot(x, group.runs[0].series(metric)[1], **look, lw=0.6, alpha=0.35)
        dots: Row = {"marker": "o", "markersize": 4} if len(rounds) <= 12 else {}
        axes.plot(x, np.nanmean(values, axis=0), **look, **dots, lw=1.8, label=group.label)
    name = "macro-F1" if metric == "macro_f1" else "accuracy"
    if metric == "personal_accuracy":
        axes.set(title="clients' own models", ylabel="accuracy on each client's test rows")
    else:
        axes.set(title=f"{name} over {'upload' if sent else 'rounds'}", ylabel=f"{name} on test rows")
    axes.set_xlabel("MB uploaded by all clients so far" if sent else "round")
    axes.margins(x=0.02)
    axes.set_ylim(max(0.0, axes.get_ylim()[0]), min(1.0, axes.get_ylim()[1]))
    if not sent:
        axes.locator_params(axis="x", integer=True, nbins=7)
    elif _spread([run.series(metric)[2] for g in groups for run in g.runs]) > 20:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)


def _spread(sent: list[Floats]) -> float:
    """Ratio of the largest to the smallest total upload; 1 where there is none."""
    totals = [s[-1] for s in sent if len(s) and s[-1] > 0]
    return float(max(totals) / min(totals)) if totals else 1.0


def _recalls(figure: Figure, axes: Axes, groups: list[_Group]) -> None:
    """Final recall of each class, [G, C]: the mean over seeds; grey where a class has no test rows."""
    found = [[_recall(run.last) for run in g.runs if run.last] for g in groups]
    matrix = np.full((len(groups), max(len(r) for rows in found for r in rows)), np.nan)
    for i, rows in enumerate(found):
        matrix[i, : len(rows[0])] = np.mean(rows, axis=0)  # the seeds share their test set
    shown = axes.imshow(
        matrix, vmin=0, vmax=1, cmap=matplotlib().colormaps["viridis"].with_extremes(bad="0.85"), aspect="auto"
    )
    figure.colorbar(shown, ax=axes, pad=0.01, fraction=0.02)
    axes.grid(False)
    axes.set(title="final recall of each class", xlabel="class")
    axes.set_yticks(range(len(groups)), [g.label for g in groups])
    names = [run.config.get("label_names", ()) for g in groups for run in g.runs]
    canvas.name_classes(axes.xaxis, matrix.shape[1], names[0] if all(n == names[0] for n in names) else ())
    if matrix.shape[1] <= 26 and len(groups) <= 40:
        for (i, c), v in np.ndenumerate(matrix):
            text, colour = "–" if np.isnan(v) else f"{v:.2f}", "black" if v >= 0.6 or np.isnan(v) else "white"
            axes.text(c, i, text, ha="center", va="center", fontsize=9, color=colour)
