"""A study as a report compares it: its runs with the labels that the study gave them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedskew.errors import require
from fedskew.report.entries import Entry, Trial
from fedskew.studies.packing import members


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
    entries, lost = [], dict[str, list[int]]()
    for row in content["runs"]:
        setting = "" if row.get("setting") == "all" else str(row.get("setting", ""))
        held = store.entry(row["address"]) if row["address"] else None
        if held is None or held.state != "finished":
            state, reason = row.get("state", "missing"), row.get("reason", "")
            what = f"{row.get('label')}{f', {setting}' if setting else ''}: {state}{f': {reason}' if reason else ''}"
            lost.setdefault(what, []).append(row.get("seed", 0))
            continue
        entries.append(Entry(str(row.get("label")), setting, row.get("seed", 0), held))
    notes = [content["notes"]] if content.get("notes") else []
    notes += [f"{what} (seeds {', '.join(map(str, seeds))})" for what, seeds in lost.items()]
    trials = [_trial(trial) for trial in content.get("trials", ())]
    asked = {name: content[name] for name in ("title", "metric", "baseline", "command") if content.get(name)}
    return entries, {**asked, "notes": notes, "trials": trials}


def _trial(found: Mapping[str, Any]) -> Trial:
    score = found.get("score")
    return Trial(
        str(found["label"]), "" if found["setting"] == "all" else str(found["setting"]), found["options"],
        float("nan") if score is None else float(score), bool(found.get("chosen")),
    )  # fmt: skip
