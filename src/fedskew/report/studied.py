"""A study as a report compares it: its runs with the labels that the study gave them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedskew.errors import require
from fedskew.report.entries import Entry, Trial
from fedskew.studies.packing import members
from fedskew.studies.store import Store


def of_study(place: str | Path) -> tuple[list[Entry], dict[str, Any]]:
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


def of_rows(rows: Iterable[Mapping[str, Any]], store: Store) -> tuple[list[Entry], list[str]]:
    """(the finished runs, a sentence on each kind of the others) of the rows of a study's table."""
    entries, lost = [], dict[str, list[int]]()
    for row in rows:
        setting = "" if row.get("setting") == "all" else str(row.get("setting", ""))
        run = store.entry(row["address"]) if row["address"] else None
        if run is not None and run.state == "finished":
            entries.append(Entry(str(row.get("label")), setting, row.get("seed", 0), run))
        else:
            state, reason = row.get("state", "missing"), row.get("reason", "")
            what = f"{row.get('label')}{f', {setting}' if setting else ''}: {state}{f': {reason}' if reason else ''}"
            lost.setdefault(what, []).append(row.get("seed", 0))
    return entries, [f"{what} (seeds {', '.join(map(str, seeds))})" for what, seeds in lost.items()]


def _trial(trial: Mapping[str, Any]) -> Trial:
    score = trial.get("score")
    return Trial(
        str(trial["label"]), "" if trial["setting"] == "all" else str(trial["setting"]), trial["options"],
        float("nan") if score is None else float(score), bool(trial.get("chosen")),
    )  # fmt: skip
