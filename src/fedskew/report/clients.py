"""Every client of a comparison: a table with two kinds of intervals."""

from collections.abc import Iterator, Sequence

from fedskew.records.clients import read_clients
from fedskew.report.compared import Compared
from fedskew.report.tables import Section, Table, row, titled
from fedskew.studies.clients import DEALT, SAMPLING, ByClient, by_client, few_rows, in_cells

NOTED = 12  # clients whose few rows are named: the worst


def clients(found: Compared, settings: Sequence[str], left_out: tuple[str, ...]) -> Section:
    """The section of what each client would use; empty where no run has it on record.

    Args:
        found: What was compared.
        settings: Those that are shown.
        left_out: What to say of settings and methods that are not shown.
    """
    shown = [entry for entry in found.entries if entry.setting in settings]
    every = by_client((entry.method, entry.setting, read_clients(entry.run.folder)) for entry in shown)
    if not every:
        return Section("clients", "Clients")
    labels = shown[0].run.config.get("label_names", ())
    text = f"What each client would use on its own test rows, the worst first. {SAMPLING[0].upper()}{SAMPLING[1:]}."
    return Section("clients", "Clients", (text, *left_out), tuple(clients_tables(every, labels)))


def clients_tables(every: Sequence[ByClient], labels: Sequence[str], most: int = 0) -> Iterator[Table]:
    """A table of the clients under each setting, the worst first; at most so many clients, 0: all."""
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
        notes = [*few_rows(kept, labels)[:NOTED], *([f"{DEALT}."] if any(client.dealt for client in kept) else [])]
        head = ("client", "method", *cells[0])
        yield Table("clients", caption, head, rows, 2, records, tuple(notes))
