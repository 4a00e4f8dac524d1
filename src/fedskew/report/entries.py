"""What a report compares: runs with the labels of their method, setting and seed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedskew.config.recorded import Run, find_runs
from fedskew.errors import plural, require
from fedskew.plots.groups import groups_of
from fedskew.studies.archiving import members
from fedskew.studies.store import Store

SHOWN = 6  # places that a line on lost runs names
CALLED = {"missing": "not finished"}  # it may have begun: the same command goes on


class LabelledRun(NamedTuple):
    """A run of a comparison. Runs of one setting and seed are paired: they share their split and initial weights."""

    method: str  # such as "fedavg" or "fedavg (uniform)"
    setting: str  # such as "alpha 0.05"; "" where all runs have one
    seed: int | str
    run: Run


class Trial(NamedTuple):
    """A trial of a method's tuning."""

    method: str
    setting: str
    options: Mapping[str, Any]  # option -> value tried
    score: float  # on the validation rows; NaN where the trial failed
    chosen: bool = False


def from_folders(folders: Iterable[str | Path]) -> list[LabelledRun]:
    """Read runs and label them.

    Args:
        folders: Run folders, or folders that contain run folders at any depth.

    Returns:
        An entry for each run. Runs that differ only in their seeds have one method and setting.

    Raises:
        RecordError: A path does not exist, leads to no run, or a run is damaged.

    Example:
        >>> import fedskew as fs
        >>> from fedskew import report
        >>> fed = fs.federate("digits", "iid", clients=4)
        >>> for seed in (0, 1):
        ...     _ = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, seed=seed, out=f"runs/{seed}")
        >>> [entry[:3] for entry in report.from_folders(["runs"])]
        [('fedavg', '', 0), ('fedavg', '', 1)]
    """
    entries = []
    for group in groups_of(find_runs(folders)):
        seeds = [_seed(run) for run in group.runs]
        plain = Counter(first for first, _ in seeds)
        for run, (first, all_of_them) in zip(group.runs, seeds, strict=True):
            entries.append(LabelledRun(group.method, group.setting, first if plain[first] == 1 else all_of_them, run))
    return entries


def _seed(run: Run) -> tuple[int | str, str]:
    """(the first seed of a run, all its seeds in words)."""
    if not run.seeds:
        return "unknown", "unknown"
    return run.seeds[0][0], ", ".join(f"{what} {seed}" for seed, what in run.seeds)


def ended_early(run: Run) -> str:
    """Why a run has fewer rounds than it was asked for; "" where it came to its end."""
    best = run.summary.get("best") or {}
    done, asked = run.summary.get("rounds", 0), run.config.get("rounds")
    if best.get("stopped_early"):
        return ""
    if run.summary.get("stopped"):
        return f"{run.summary['stopped']} after round {done}" + (f" of {asked}" if asked else "")
    return f"round {done} of {asked}" if asked and done < asked else ""


# Studies: their runs have the labels that the study gave them


def of_study(place: str | Path) -> tuple[list[LabelledRun], dict[str, Any]]:
    """Read a study.

    Args:
        place: A folder with ``study.json``, or that file.

    Returns:
        (an entry for each finished run, further arguments of `fedskew.report.build`: title, metric, baseline, command,
        what did not come to an end, and the trials of the tuning).

    Raises:
        RecordError: It is no study, its store is not at hand, or a run is damaged.
    """
    store, _, content = members(place)
    require(content is not None, "runs", "be a study", str(place))
    assert content is not None
    entries, lost = of_rows(content["runs"], store)
    trials = [_trial(trial) for trial in content.get("trials", ())]
    asked = {name: content[name] for name in ("title", "metric", "baseline", "command") if content.get(name)}
    return entries, {
        **asked,
        "notes": [*filter(None, [content.get("notes")]), *content.get("untuned", ()), *lost],
        "trials": trials,
    }


def of_rows(rows: Iterable[Mapping[str, Any]], store: Store) -> tuple[list[LabelledRun], list[str]]:
    """(the finished runs, a sentence on each kind of the others) of the rows of a study's table."""
    entries, lost = [], dict[str, dict[str, list[int]]]()  # seeds of each place, by what became of them
    for row in rows:
        setting = "" if row.get("setting") == "all" else str(row.get("setting", ""))
        run = store.entry(row["address"]) if row["address"] else None
        if run is not None and run.state == "finished":
            entries.append(LabelledRun(str(row.get("label")), setting, row.get("seed", 0), run))
        else:
            state, reason = row.get("state", "missing"), row.get("reason", "")
            ending = f"{CALLED.get(state, state)}{f': {reason}' if reason else ''}"
            where = f"{row.get('label')}{f', {setting}' if setting else ''}"
            lost.setdefault(ending, {}).setdefault(where, []).append(row.get("seed", 0))
    return entries, [alike(ending, places) for ending, places in lost.items()]


def alike(ending: str, places: Mapping[str, Sequence[int]]) -> str:
    """One line for all runs that ended alike: where, with the seeds, or of many places their count.

    Example:
        >>> from fedskew.report.entries import alike
        >>> alike("refused: no data", {"fedavg": [0, 1]})
        'fedavg: refused: no data (seeds 0, 1)'
        >>> alike("refused: no data", {"fedavg": [0, 1], "fedla": [0, 1]})
        '4 runs refused: no data (fedavg; fedla)'
    """
    if len(places) == 1:
        ((where, seeds),) = places.items()
        return f"{where}: {ending} (seeds {', '.join(map(str, seeds))})"
    named = "; ".join(list(places)[:SHOWN]) + f" and {len(places) - SHOWN} more" * (len(places) > SHOWN)
    return f"{plural(sum(map(len, places.values())), 'run')} {ending} ({named})"


def _trial(trial: Mapping[str, Any]) -> Trial:
    score = trial.get("score")
    return Trial(
        str(trial["label"]), "" if trial["setting"] == "all" else str(trial["setting"]), trial["options"],
        float("nan") if score is None else float(score), bool(trial.get("chosen")),
    )  # fmt: skip
