"""Every client of a comparison: a table with two kinds of intervals, and a picture of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedskew.records.clients import read_clients
from fedskew.report.compared import Compared
from fedskew.report.parts import Figure, Section
from fedskew.report.pictures import Chart, Line
from fedskew.report.tables import Table, row, titled, under
from fedskew.studies.clients import DEALT, SAMPLING, ByClient, by_client, few_rows, in_cells

DRAWN = 12  # clients of a picture: the worst


def clients(found: Compared, settings: Sequence[str], methods: Sequence[str], left_out: tuple[str, ...]) -> Section:
    """The section of what each client would use; empty where no run has it on record.

    Args:
        found: What was compared.
        settings: Those that are shown.
        methods: Those that are drawn.
        left_out: What to say of settings and methods that are not shown.
    """
    shown = [entry for entry in found.entries if entry.setting in settings]
    every = by_client((entry.method, entry.setting, read_clients(entry.run.folder)) for entry in shown)
    if not every:
        return Section("clients", "Clients")
    labels = shown[0].run.config.get("label_names", ())
    dealt = (f"{DEALT[0].upper()}{DEALT[1:]}.",) if any(one.dealt for one in every) else ()
    parts: list[Table | Figure] = []
    for setting in settings:
        here = [one for one in every if one.setting == setting]
        if here:
            drawn = [one for one in here if one.method in methods]
            legend = tuple((m, found.place(m)) for m in dict.fromkeys(one.method for one in drawn))
            parts += [Figure((_dots(found, setting, drawn),), legend)] if drawn else []
            parts.append(_table(setting, here, labels))
    text = (
        f"What each client would use on its own test rows, the worst first. {SAMPLING[0].upper()}{SAMPLING[1:]}.",
        *dealt,
    )
    return Section("clients", "Clients", (*text, *left_out), tuple(parts), tuple(few_rows(every, labels)[:DRAWN]))


def _table(setting: str, here: Sequence[ByClient], labels: Sequence[str]) -> Table:
    told = [in_cells(one, labels) for one in here]
    rows = tuple(row(one.client, one.method, *cells.values()) for one, cells in zip(here, told, strict=True))
    records = tuple(one.to_json(labels) for one in here)
    caption = titled(setting, "what each client would use")
    return Table("clients", caption, ("client", "method", *told[0]), rows, 2, records)


def _dots(found: Compared, setting: str, here: Sequence[ByClient]) -> Chart:
    """The accuracy of each client, with its sampling interval: a dot for each method."""
    names = list(dict.fromkeys(one.client for one in here))[:DRAWN]
    methods = list(dict.fromkeys(one.method for one in here))
    lines = []
    for m, method in enumerate(methods):
        mine = [one for one in here if one.method == method and one.client in names]
        aside = 0.6 * (m - (len(methods) - 1) / 2) / len(methods)
        x = np.array([names.index(one.client) + aside for one in mine])
        y, low, high = np.array([(one.accuracy, one.low, one.high) for one in mine]).reshape(-1, 3).T
        lines += [Line(method, found.place(method), x, y, low, high)] if mine else []
    worst = here[0]
    span = f"{worst.low:.3f} to {worst.high:.3f}"
    told = f"Lowest: {worst.client} with {worst.accuracy:.3f} ({span}) under {worst.method}."
    title = f"Accuracy of each client, with 95 % sampling intervals{under(setting)}"
    return Chart("clients", title, "", "accuracy", tuple(lines), told, joined=False, ticks=tuple(names))
