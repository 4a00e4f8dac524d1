"""The tables of a rehearsal."""

from collections.abc import Iterator
from typing import Any

from fedskew.report.tables import ReportTable, amount, fixed, row
from fedskew.studies.rehearsal import Expected

WIDE = 0.8  # an interval as long as this says nothing
CANNOT = "cannot tell"


def rehearsed(done: dict[str, Any]) -> Iterator[ReportTable]:
    """What `fedskew.studies.rehearsal.Rehearsal.done` gives: what to expect of each site, its costs, its part in it."""
    sites, rare, seconds = done["sites"], done["rare"], done["wall_s"]
    few = " (cases x{factor:.3g}, as it has no more rows)"
    used = ", ".join(data["name"] + few.format(**data) * (data["factor"] < 1) for data in done["standins"])
    seeds = f"seeds {', '.join(map(str, done['seeds']))}"
    shown = [*sites, {"site": "all", "cases": sum(site["cases"] for site in sites), **done}]
    cells = [[_words(site[name]) for name in ("accuracy", "rare_recall", "gain")] for site in shown]
    notes = [f"stand-ins: {used}; {seeds}"]
    if several := len(done["standins"]) > 1:
        notes.append("interval: what one run of a new federation measures, its data one more draw of such datasets")
    if any(CANNOT in cell for each in cells for cell in each):
        notes.append(f"{CANNOT}: the interval is {WIDE:g} long or longer; more stand-ins shorten it, more seeds little")
    intervals = ", 95 % prediction intervals" * several
    yield ReportTable(
        "expected", f"{done['method']}, {done['rounds']} rounds: what to expect{intervals}",
        ("site", "cases", "accuracy", f"recall of {rare}, the rarest", "gain over local training"),
        tuple(row(site["site"], f"{site['cases']:,}", *each) for site, each in zip(shown, cells, strict=True)),
        notes=tuple(notes),
    )  # fmt: skip
    yield ReportTable(
        "costs", f"costs: {amount(min(seconds))} to {amount(max(seconds))} s in all",
        ("site", "misses a round", "rounds", "s a round", "MB up", "MB down"),
        tuple(row(site["site"], fixed(site["failure"], 2), amount(site["rounds"]), amount(site["round_s"]),
                  *(amount(site["rounds"] * site[way] / 1e6) for way in ("upload_bytes", "download_bytes")))
              for site in sites),
        notes=("a round waits for its slowest site, or for the deadline where a site misses it",),
    )  # fmt: skip
    leaving = [site for site in sites if "lost" in site]
    if leaving:
        yield ReportTable(
            "leaving", f"if a site leaves: differences to expect{intervals}",
            ("site", "accuracy that the others lose", f"recall of {rare} that they lose"),
            tuple(row(site["site"], _words(site["lost"]), _words(site["rare_lost"])) for site in leaving),
        )  # fmt: skip
    enough = "enough: the fewest cases tried with an interval above 0; where none is marked, none of those"
    varied = [site for site in sites if "curve" in site]
    if varied:
        yield ReportTable(
            "curve", f"with fewer cases at a site: its gain over local training to expect{intervals}",
            ("site", "cases", "gain"),
            tuple(row(site["site"], f"{point['cases']:,}{' (enough)' * (point['cases'] == site['needs'])}",
                      _words(point["gain"])) for site in varied for point in site["curve"]),
            notes=(enough,) * several,
        )  # fmt: skip


def _words(value: Expected | None) -> str:
    """As in "0.810 (0.74 to 0.88)", or "0.810 (cannot tell)"."""
    if value is None:
        return "–"
    if value.low is None or value.high is None:
        return fixed(value.mean, 3)
    ends = CANNOT if value.high - value.low >= WIDE else f"{fixed(value.low, 2)} to {fixed(value.high, 2)}"
    return f"{fixed(value.mean, 3)} ({ends})"
