"""Every client of a comparison: a table with two kinds of intervals, and a picture of them."""

from collections.abc import Iterator, Sequence

import numpy as np

from fedskew.plots.drawing import Chart, Line
from fedskew.records.clients import read_clients
from fedskew.report.compared import Compared
from fedskew.report.parts import Figure, Section
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
    parts: list[Table | Figure] = []
    for table, here in clients_tables(every, labels):
        drawn = [client for client in here if client.method in methods]
        parts += [Figure((_dots(found, drawn[0].setting, drawn),))] if drawn else []
        parts.append(table)
    text = f"What each client would use on its own test rows, the worst first. {SAMPLING[0].upper()}{SAMPLING[1:]}."
    return Section("clients", "Clients", (text, *left_out), tuple(parts))


def clients_tables(
    every: Sequence[ByClient], labels: Sequence[str], most: int = 0
) -> Iterator[tuple[Table, list[ByClient]]]:
    """(table of the clients, the clients) under each setting, the worst first; at most so many clients, 0: all."""
    for setting in dict.fromkeys(client.setting for client in every):
        here = [client for client in every if client.setting == setting]
        names = list(dict.fromkeys(client.client for client in here))
        kept = [client for client in here if client.client in names[: most or None]]
        cells = [in_cells(client, labels) for client in kept]
        rows = tuple(row(c.client, c.method, *each.values()) for c, each in zip(kept, cells, strict=True))
        records = tuple(client.to_json(labels) for client in kept)
        worst = f", the worst {most} of {len(names)} clients" if 0 < most < len(names) else ""
        caption = titled(
            "" if setting == "all" else setting, f"what each client would use at its last evaluation{worst}"
        )
        notes = [*few_rows(kept, labels)[:DRAWN], *([f"{DEALT}."] if any(client.dealt for client in kept) else [])]
        head = ("client", "method", *cells[0])
        yield Table("clients", caption, head, rows, 2, records, tuple(notes)), here


def _dots(found: Compared, setting: str, here: Sequence[ByClient]) -> Chart:
    """The accuracy of each client, with its sampling interval: a dot for each method."""
    names = list(dict.fromkeys(client.client for client in here))[:DRAWN]
    methods = list(dict.fromkeys(client.method for client in here))
    lines = []
    for m, method in enumerate(methods):
        mine = [client for client in here if client.method == method and client.client in names]
        aside = 0.6 * (m - (len(methods) - 1) / 2) / len(methods)
        x = np.array([names.index(client.client) + aside for client in mine])
        y, low, high = np.array([(client.accuracy, client.low, client.high) for client in mine]).reshape(-1, 3).T
        lines += [Line(method, found.place(method), x, y, low, high)] if mine else []
    worst = here[0]
    span = f"{worst.low:.3f} to {worst.high:.3f}"
    told = f"Lowest: {worst.client} with {worst.accuracy:.3f} ({span}) under {worst.method}."
    title = f"Accuracy of each client, with 95 % sampling intervals{under(setting)}"
    return Chart("clients", title, "", "accuracy", tuple(lines), told, joined=False, ticks=tuple(names))
