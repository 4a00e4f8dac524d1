"""What each client would use, over the runs of a method: means with two kinds of intervals.

"sampling": Wilson's interval of the accuracy over the test rows of one run; other patients of the same hospital.
"seeds": the standard deviation over the runs; other draws of the training on the same rows.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fedskew.records.clients import last_clients
from fedskew.records.decisions import FEW, wilson
from fedskew.records.metrics import METRICS
from fedskew.records.typed import Row

SHOWN = 3  # classes whose recalls stand in a table
SAMPLING = "Sampling: Wilson's interval over a client's test rows; seeds: standard deviation over the runs."
UNRANKED = f"A dash: fewer than {FEW} test rows of some class, or no probabilities on record."
DEALT = "Test rows are dealt to clients by class; --local-test 0.2 tests each client on rows of its own."

MEANS = tuple(m.client for m in METRICS if m.client and m.name != "accuracy")
COLUMNS = {m.client: m.head for m in METRICS if "client table" in m.where}
Runs = Iterable[tuple[str, str, Sequence[Row]]]  # method, setting, rows of clients.jsonl


@dataclass(frozen=True)
class ByClient:
    """A client under one method and setting: means over the runs.

    Attributes:
        method: Label of the method.
        setting: Label of the setting.
        client: Name of the client, with "(held out)" where it did not train.
        runs: Number of runs.
        rows: Test rows of a run, the median.
        accuracy: Mean over the runs.
        low: Lower end of Wilson's 95 % interval of this accuracy over ``rows`` rows ("sampling").
        high: Upper end.
        sd: Standard deviation over the runs ("seeds"); None of one run.
        recalls: Recall of each class; None where no run has rows of it.
        support: Rows of each class, the least of all runs.
        means: The other metrics of clients.jsonl by name, means over the runs; None where a run does not have one.
        dealt: Whether the rows are a share of a test set that does not say whose its rows are.
    """

    method: str
    setting: str
    client: str
    runs: int
    rows: int
    accuracy: float
    low: float
    high: float
    sd: float | None
    recalls: tuple[float | None, ...]
    support: tuple[int, ...]
    means: Mapping[str, float | None]
    dealt: bool = False

    def to_json(self, label_names: Sequence[str]) -> Row:
        """One number or word an entry."""
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("recalls", "support", "means")}
        names = [label_names[c] if c < len(label_names) else str(c) for c in range(len(self.recalls))]
        row |= {**self.means, **{f"recall {n}": r for n, r in zip(names, self.recalls, strict=True)}}
        return row | {f"rows {n}": r for n, r in zip(names, self.support, strict=True)}


def by_client(runs: Runs) -> list[ByClient]:
    """Each client under each method and setting: the client with the worst mean accuracy first, then by its methods.

    Args:
        runs: (method, setting, rows of clients.jsonl) of each run. The last row of each client counts.

    Example:
        >>> from fedskew.studies.clients import by_client
        >>> row = {"round": 1, "name": "va", "rows": 40, "per_class_recall": [0.5, 0.9], "support": [10, 30]}
        >>> rows = [[{**row, "client": 0, "accuracy": accuracy}] for accuracy in (0.75, 0.85)]
        >>> (one,) = by_client([("fedavg", "all", rows[0]), ("fedavg", "all", rows[1])])
        >>> round(one.accuracy, 3), round(one.low, 3), round(one.high, 3), round(one.sd, 3)
        (0.8, 0.652, 0.895, 0.071)
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for method, setting, rows in runs:
        for row in last_clients(rows):
            name = f"{row['name']} (held out)" if row.get("heldout") else row["name"]  # some seeds let it train
            groups.setdefault((method, setting, name), []).append(row)
    clients = [_of_runs(*key, rows) for key, rows in groups.items()]
    level: dict[tuple[str, str], list[float]] = {}
    for client in clients:
        level.setdefault((client.setting, client.client), []).append(client.accuracy)
    return sorted(clients, key=lambda client: statistics.fmean(level[client.setting, client.client]))


def _of_runs(method: str, setting: str, client: str, rows: Sequence[Row]) -> ByClient:
    accuracies, n = [row["accuracy"] for row in rows], round(statistics.median(row["rows"] for row in rows))
    accuracy, columns = statistics.fmean(accuracies), {name: list[Any](row.get(name) for row in rows) for name in MEANS}
    means: dict[str, Any] = {name: None if None in each else statistics.fmean(each) for name, each in columns.items()}
    recalls, support = (zip(*(row[name] for row in rows), strict=False) for name in ("per_class_recall", "support"))
    seen = [[r for r in each if r is not None] for each in recalls]
    return ByClient(
        method, setting, client, len(rows), n, accuracy, *wilson(accuracy * n, n),
        statistics.stdev(accuracies) if len(rows) > 1 else None,
        tuple(statistics.fmean(each) if each else None for each in seen), tuple(map(min, support)),
        means, any(row.get("dealt") for row in rows),
    )  # fmt: skip


def in_cells(client: ByClient, label_names: Sequence[str]) -> dict[str, str]:
    """A client's numbers by the heads of a table's columns, with a dash where there is none."""
    names = label_names if len(label_names) <= SHOWN else ()
    recalls = {f"recall of {name}": value for name, value in zip(names, client.recalls, strict=False)}
    beside = {"seeds, sd": client.sd, **recalls, **{head: client.means[name] for name, head in COLUMNS.items()}}
    cells = {head: "–" if value is None else f"{value:.3f}" for head, value in beside.items()}
    sampling = f"{client.low:.3f} to {client.high:.3f}"
    return {"test rows": f"{client.rows:,}", "accuracy": f"{client.accuracy:.3f}", "sampling, 95 %": sampling, **cells}


def is_natural(rows: Iterable[Row]) -> bool:
    """Whether clients have names: they are natural."""
    return any(row["name"] != str(row["client"]) for row in rows)
