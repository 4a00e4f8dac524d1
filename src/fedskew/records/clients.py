"""clients.jsonl: what each client would use, measured on its own test rows; a row for each client and evaluation.

The file is optional: a run has it where `Settings.clients_every` or the number of its clients allows it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from torch import Tensor

from fedskew.errors import RecordError, content_of, from_json
from fedskew.records.decisions import FEW
from fedskew.records.files import DAMAGED, member
from fedskew.records.manifest import check_file
from fedskew.records.metrics import METRICS, from_confusion, from_probabilities
from fedskew.records.sheets import csv_text
from fedskew.records.typed import Natural, Number, Real, Row, entries, fault_of

FILE = "clients.jsonl"
Share = Annotated[float, Meta(ge=0, le=1)]
# in the order in which rows have them
COUNTED = sorted(m.client for m in METRICS if m.client and m.needs == "matrix")
JUDGED = [m for m in METRICS if m.client and m.needs == "probabilities"]
Each = entries(
    "Each",
    {
        "round": Natural, "client": Natural, "name": str, "rows": Annotated[int, Meta(ge=1, le=1 << 62)],
        "accuracy": Share, "per_class_recall": list[Share | None], "support": list[Natural], "loss": Real,
    },
    {
        **dict.fromkeys({*COUNTED} - {"accuracy"}, Real), **dict.fromkeys([m.client for m in JUDGED], Number),
        "dealt": bool, "heldout": bool,
    },
)  # fmt: skip


def client_row(
    number: int, client: int, name: str, confusion: Tensor, loss: float, labels: Tensor, probabilities: Tensor | None,
    *, dealt: bool = False, heldout: bool = False,
) -> Row:  # fmt: skip
    """What is recorded of one client after a round.

    Classes without test rows have no recall, and count in no mean.
    AUROC and AUPRC are means over the classes of which there are at least `FEW` rows, and as many others.

    Args:
        number: The round.
        client: Number of the client.
        name: Its name.
        confusion: Of the model that it would use, on its test rows, [C, C].
        loss: Mean cross-entropy.
        labels: Classes of the rows, [R].
        probabilities: Predicted ones, float64 [R, C]; None where only the matrix is known.
        dealt: Whether the rows are its share of a test set that does not say whose its rows are.
        heldout: Whether the client never trains.
    """
    whole: Row = {**from_confusion(confusion)}
    rows, support = int(confusion.sum()), whole["support"]
    recalls = [r if n else None for r, n in zip(whole["per_class_recall"], support, strict=True)]
    row = {
        "round": number, "client": client, "name": name, "rows": rows,
        **{metric: whole[metric] for metric in COUNTED},
        "per_class_recall": recalls, "support": support, "loss": loss, **({"dealt": True} if dealt else {}),
        **({"heldout": True} if heldout else {}),
    }  # fmt: skip
    if probabilities is None or not bool(probabilities.isfinite().all()):
        return row
    ranked = [c for c, n in enumerate(support) if FEW <= n <= rows - FEW]
    scores: dict[str, Any] = from_probabilities(labels, probabilities)
    for metric in JUDGED:
        each = scores.get(f"per_class_{metric.client}")
        mean = sum(each[c] for c in ranked) / len(ranked) if each and ranked else None
        row[metric.client] = mean if each else scores[metric.name]
    return row


def read_clients(run: str | Path) -> list[Row]:
    """The rows of clients.jsonl: what each client would use, after each round in which this was measured.

    Args:
        run: A run folder.

    Returns:
        A row for each evaluation and client, with ``round``, ``client``, ``name``, ``rows``, ``accuracy``,
        ``balanced_accuracy``, ``macro_f1``, ``per_class_recall``, ``support``, ``loss``, ``auroc``, ``auprc`` and
        ``ece``; None where a value is not defined. Rows of clients that never train have ``heldout``. Empty where the
        run did not measure it.

    Raises:
        RecordError: The file is not as the run wrote it, or is a link.

    Example:
        >>> import fedskew as fs
        >>> fed = fs.federate("digits", "iid", clients=5)
        >>> done = fs.run(fed, fs.methods.ditto(), model="logistic", rounds=2, cohort=5, out="clients-run")
        >>> [(row["name"], row["rows"]) for row in fs.read_clients("clients-run")][:2]
        [('0', 72), ('1', 71)]
    """
    file = member(Path(run), FILE)
    if not file.is_file():
        return []
    check_file(file.parent, FILE, remedy=DAMAGED)
    try:
        rows = [from_json(line) for line in content_of(file).splitlines()]
    except (OSError, ValueError) as error:
        raise RecordError(f"{file} is damaged: {error}") from None
    for row in rows:
        uneven = len(row["support"]) != len(row["per_class_recall"]) if not (fault := fault_of(row, Each)) else False
        if fault or uneven:
            raise RecordError(f"{file} is damaged: {fault or 'one number a class must be in each list'}")
    return rows


def clients_csv(rows: Iterable[Row], label_names: Sequence[str] = ()) -> str:
    """Rows of clients.jsonl as csv: a line for each evaluation and client, a column for each entry.

    Args:
        rows: As `read_clients` gives them.
        label_names: Names of the classes, for the columns "recall NAME" and "rows NAME"; numbers without.

    Returns:
        The text. A value that is not defined is empty.

    Example:
        >>> row = {"round": 1, "client": 0, "name": "va", "rows": 3, "loss": 0.5, "per_class_recall": [1.0, None]}
        >>> print(clients_csv([{**row, "support": [3, 0]}], ("ill", "well")), end="")
        client,round,rows,name,loss,recall ill,recall well,rows ill,rows well
        0,1,3,va,0.5,1.0,,3,0
    """
    lines: list[dict[str, object]] = []
    for row in rows:
        plain = {name: value for name, value in row.items() if name not in ("per_class_recall", "support")}
        line: dict[str, object] = {**dict.fromkeys(("client", "round", "rows")), **plain}
        for head, each in (("recall", row["per_class_recall"]), ("rows", row["support"])):
            names = [label_names[c] if c < len(label_names) else str(c) for c in range(len(each))]
            line |= {f"{head} {name}": value for name, value in zip(names, each, strict=True)}
        lines.append(line)
    heads = list(dict.fromkeys(head for line in lines for head in line))
    return csv_text([heads, *([line.get(head) for head in heads] for line in lines)])


def last_clients(rows: Iterable[Row]) -> list[Row]:
    """Of each client its last row, in the order of the clients."""
    return sorted({row["client"]: row for row in rows}.values(), key=lambda row: row["client"])
