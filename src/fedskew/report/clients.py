"""Every client of a comparison: its accuracy under each method, and all its numbers with two kinds of intervals."""

import statistics
from collections.abc import Iterator, Sequence

from fedskew.records.clients import read_clients
from fedskew.report.compared import Compared
from fedskew.report.tables import TEXTS, ReportTable, Section, TableCell, fixed, row, shade, titled
from fedskew.studies.clients import DEALT, SAMPLING, UNRANKED, ByClient, by_client, in_cells


def measured(compared: Compared, settings: Sequence[str]) -> list[ByClient]:
    """Each client under each method and setting, the worst first; none where no run has them on record."""
    shown = [entry for entry in compared.entries if entry.setting in settings]
    return by_client((entry.method, entry.setting, read_clients(entry.run.folder)) for entry in shown)


def clients(compared: Compared, settings: Sequence[str], text: tuple[str, ...]) -> Section:
    """The section of what each client would use; empty where no run has it on record.

    Args:
        compared: What was compared.
        settings: Those that are shown.
        text: Its sentences.
    """
    every = measured(compared, settings)
    labels = compared.entries[0].run.config.get("label_names", ())
    tables = tuple(_accuracies(compared, setting, [c for c in every if c.setting == setting]) for setting in settings)
    return Section("clients", "Clients", text, tables if every else (), folded=tuple(clients_tables(every, labels)))


def _accuracies(compared: Compared, setting: str, every: Sequence[ByClient]) -> ReportTable:
    """A line a client, a column a method, coloured by the difference from the baseline."""
    of = {(c.client, c.method): c for c in every}
    order = sorted({c.method for c in every}, key=lambda m: (m != compared.baseline, compared.order.index(m)))
    rows = []
    for client in dict.fromkeys(c.client for c in every):
        by_method = {method: of[client, method] for method in order if (client, method) in of}
        base = by_method[compared.baseline].accuracy if compared.baseline in by_method else float("nan")
        cells = [TableCell(fixed(100 * by_method[m].accuracy, 0), shade(by_method[m].accuracy, base)) if m in by_method
                 else TableCell("–") for m in order]  # fmt: skip
        rows.append(row(client, f"{statistics.median_low(c.rows for c in by_method.values()):,}", *cells))
    caption = titled(setting, f"accuracy at each of {len(rows)} clients, %")
    head = ("client", "test rows", *order)
    return ReportTable("accuracies", caption, head, tuple(rows), 1, notes=(TEXTS["clients"],))


def clients_tables(every: Sequence[ByClient], labels: Sequence[str], most: int = 0) -> Iterator[ReportTable]:
    """A table of the clients under each setting, the worst first; at most so many clients, 0: all."""
    for setting in dict.fromkeys(client.setting for client in every):
        of_setting = [client for client in every if client.setting == setting]
        names = list(dict.fromkeys(client.client for client in of_setting))
        shown = [client for client in of_setting if client.client in names[: most or None]]
        texts = [in_cells(client, labels) for client in shown]
        head = [name for name in texts[0] if any(cells[name] != "–" for cells in texts)]
        rows = tuple(row(c.client, c.method, *(cells[n] for n in head)) for c, cells in zip(shown, texts, strict=True))
        records = tuple(client.to_json(labels) for client in shown)
        worst = f", the worst {most} of {len(names)} clients" if 0 < most < len(names) else ""
        caption = titled(
            "" if setting == "all" else setting, f"what each client would use at its last evaluation{worst}"
        )
        notes = [SAMPLING, *[UNRANKED] * any(client.means["auroc"] is None for client in shown)]
        notes += [DEALT] * any(client.dealt for client in shown)
        yield ReportTable("clients", caption, ("client", "method", *head), rows, 2, records, tuple(notes))
