"""The label skew of a federation, as plain numbers and as tables for a terminal.

A source is a federation, a partition file, a file of counts (csv, npy), or a matrix of counts [N, C].
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedskew.data import skew
from fedskew.data.arrays import Reading
from fedskew.data.counts import read_counts
from fedskew.data.partitioners.file import convention_of, load_partition
from fedskew.errors import claim, plural
from fedskew.fields import untyped

SHOWN, BRIEF = 20, 10  # most classes to list; of more, the largest and the smallest
WIDE = "wide"  # marks a line that one screen has no room for
FEW_CLASSES = 5  # whose shares stand beside each other
BAR = 24  # characters of the largest class

Source = Any  # Federation | str | Path | Tensor | ndarray [N, C]


class Counted(NamedTuple):
    """Label histograms and what is known about their source."""

    counts: npt.NDArray[Any]  # [N, C]
    facts: dict[str, Any]  # for the report
    title: str
    class_names: tuple[str, ...] = ()


def counted(source: Source) -> Counted:
    """The label histograms of a source.

    Args:
        source: A federation, a partition file, a file of counts, or a matrix of counts [N, C].

    Returns:
        Counts, facts, a title and class names.

    Raises:
        DataError: The file or matrix holds no counts.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        claim(path.is_file(), "the described file", "exist", f"'{path}'")
        if path.suffix == ".npz":
            return _of_partition(path)
        counts, names = read_counts(path)
        return Counted(counts, {"source": str(path), "label_names": list(names)}, path.name, names)
    if isinstance(source, torch.Tensor | np.ndarray | list):
        matrix = source.detach().cpu().numpy() if isinstance(source, torch.Tensor) else np.asarray(source)
        return Counted(matrix, {"source": "counts"}, "counts")
    facts = {**source.report(), "seed": source.seed, "partition_options": _options(convention_of(source.partitioner))}
    facts["label_names"] = list(source.dataset.label_names)
    read = source.dataset.reading
    facts |= {"reading": untyped(read)} if read != Reading() else {}
    return Counted(source.counts.numpy(), facts, _headline(facts, source.clients), tuple(source.dataset.label_names))


def _of_partition(path: Path) -> Counted:
    """The counts and facts of a partition file."""
    content = load_partition(path)
    header, data, convention = content.header, content.header["dataset"], content.header["convention"]
    facts = {
        "source": str(path), "dataset": data.get("name", "unknown"), "fingerprint": data.get("fingerprint", ""),
        "partition": convention.get("name", "unknown"), "partition_options": _options(convention),
        **{name: header[name] for name in ("seed", "longtail", "sha256")},
        "validation_rows": len(content.validation_rows), "auxiliary_rows": len(content.auxiliary_rows),
    }  # fmt: skip
    if content.local_test is not None:
        facts |= {"local_test": header["local_test"], "local_test_rows": len(content.local_test.rows)}
    return Counted(content.counts, facts, _headline(facts, len(content.counts)))


def _options(convention: dict[str, Any]) -> dict[str, Any]:
    """The options of a partitioner that are set, those of its base as well."""
    cut = {"rounding": "cut"} if convention.get("rounding", "") is None else {}  # of a file of dirichlet's version 1
    options = {
        name: {"name": value["name"], **_options(value)} if isinstance(value, dict) else value
        for name, value in convention.items()
        if name != "name" and value is not None
    }
    return options | cut


def describe(source: Source, most: int = 500) -> dict[str, Any]:
    """Describe the label skew of a federation in plain numbers.

    The result holds `fedskew.data.skew.summary` of the counts and the facts of the source. For a federation these are
    its report, ``seed``, ``partition_options`` and ``label_names``.

    Args:
        source: A federation, a partition file, a file of counts, or a matrix of counts [N, C].
        most: Most clients that are compared pairwise; of more, a fixed random sample is compared.

    Returns:
        A dict that JSON can hold. Divergences are in nats.

    Raises:
        DataError: The source holds no counts.

    Example:
        >>> from fedskew.data import federate
        >>> from fedskew.data.describe import describe
        >>> facts = describe(federate("digits", "dirichlet", clients=5))
        >>> facts["partition"], facts["clients"], round(facts["js_mean"], 2)
        ('dirichlet', 5, 0.29)
    """
    table = counted(source)
    return {**skew.summary(table.counts, most), **table.facts}


def describe_table(source: Source, most: int = 500, wide: bool = False) -> RenderableType:
    """The skew report as tables for `rich`: data, clients, label skew and classes.

    Args:
        source: As for `describe`.
        most: As for `describe`.
        wide: Whether all measures are shown; else those that fill one screen.

    Returns:
        A renderable of at most 80 columns.

    Raises:
        DataError: The source holds no counts.
    """
    table = counted(source)
    facts = {"label_names": list(table.class_names), **skew.summary(table.counts, most), **table.facts}
    lines = [*(_data(facts) if "training_rows" in facts else []), *_clients(facts), *_skew(facts)]
    return Group(
        Text(table.title, style="bold"),
        _lines([line[:3] for line in lines if wide or WIDE not in line]),
        _classes(facts, SHOWN if wide else BRIEF),
        *_by_name(table, getattr(source, "client_names", ())),
    )


def named(partitioner: dict[str, Any]) -> str:
    """A name and its options as one phrase: ``longtail (base dirichlet (alpha 0.1), factor 10)``.

    Options that are unset are left out.
    """
    options = [f"{k} {_number(v)}" for k, v in _options(partitioner).items() if v != ""]
    return str(partitioner.get("name", "unknown")) + (f" ({', '.join(options)})" if options else "")


def _headline(d: dict[str, Any], clients: int) -> str:
    """Dataset, partition, clients and seed in one line."""
    tail = f", long tail {d['longtail']:g}" if d.get("longtail") else ""
    test = f", local test {d['local_test']:g}" if d.get("local_test") else ""
    how = named({"name": d["partition"], **d["partition_options"]})
    return f"{d['dataset']}{tail}, {how}, {plural(clients, 'client')}{test}, seed {d['seed']}"


def _lines(lines: Sequence[tuple[str, ...]]) -> Table:
    """A table of three columns: what, how much, and a remark."""
    view = Table(box=None, show_header=False, pad_edge=False)
    view.add_column(width=33, no_wrap=True)
    view.add_column(justify="right", width=9)
    view.add_column(style="dim", width=36)
    for line in lines:
        view.add_row(*map(Text, line))
    return view


def _data(d: dict[str, Any]) -> list[tuple[str, ...]]:
    """Lines of the section about the data."""
    aside = [f"{d[f'{w}_rows']:,} {w}" for w in ("unused", "validation", "auxiliary") if d[f"{w}_rows"]]
    tail = f"long tail, n_max / n_min {_number(d['longtail'])}" if d["longtail"] else ""
    share = f"{d['local_test']:g} of each client's rows" if "local_test" in d else ""
    lines = [
        ("training rows", d["training_rows"], f"besides {', '.join(aside)}" if aside else ""),
        ("rows of several clients", d.get("repeated_rows", 0), "of these"),
        ("test rows", d["test_rows"], "official test set" if d["test_is_official"] else "held out here"),
        ("rows of the clients' own tests", d.get("local_test_rows", 0), share),
        ("classes", d["classes"], tail),
    ]
    return [(what, f"{count:,}", remark) for what, count, remark in lines if count]


def _clients(d: dict[str, Any]) -> list[tuple[str, ...]]:
    """Lines of the section about the clients."""
    sizes = f"median; {_decimal(d['size_min'])} to {_decimal(d['size_max'])}"
    held = f"mean; {_decimal(d['labels_min'])} to {_decimal(d['labels_max'])}, of those with rows"
    rows = f"of the {d['empty_clients']}; they hold {d['heldout_clients_rows']:,} rows" if "heldout_count" in d else ""
    left = [("clients held out", f"{d['heldout_count']:,}", rows)] if rows else []
    labels = f"{d['effective_classes_mean']:.1f}"
    stray_rows = f"holds {d['stray_classes']} classes, {d['stray_one_row']} with one row" if "stray_client" in d else ""
    stray = [("client with stray rows", str(d["stray_client"]), stray_rows)] if stray_rows else []
    return [
        ("clients", f"{d['clients']:,}", f"{d['empty_clients']} without rows"),
        *left,
        ("rows of a client", _decimal(d["size_median"]), sizes),
        ("classes of a client", f"{d['labels_mean']:.1f}", held),
        *stray,
        ("effective clients", f"{d['effective_clients']:.1f}", f"1 / sum (n_k / n)²; at most {d['clients']}", WIDE),
        ("effective classes of a client", labels, "mean; exp of its labels' entropy", WIDE),
        ("Gini coefficient of the sizes", f"{d['quantity_gini']:.3f}", "0: equal sizes, 1: one has all", WIDE),
    ]


def _skew(d: dict[str, Any]) -> list[tuple[str, ...]]:
    """Lines of the section about label skew."""
    compared, whole = d["pair_clients"], d["clients"] - d["empty_clients"]
    pairs = "mean over pairs" if compared == whole else f"pairs of {compared} drawn clients"
    return [
        ("imbalance, all rows", f"{d['imbalance_global']:,.1f}", "largest / smallest class"),
        ("imbalance at a client", f"{d['imbalance_local_median']:,.1f}", "median; over the classes it holds"),
        ("missing-class rate", f"{d['missing_rate']:.3f}", "(client, class) pairs without rows"),
        ("entropy of a client's labels", f"{d['entropy_mean']:.3f}", "nats; 0: one class", WIDE),
        ("Jensen-Shannon to all rows", f"{d['js_mean']:.3f}", "0: same labels; at most 0.693"),
        ("Kullback-Leibler to all rows", f"{d['kl_mean']:.3f}", "nats; 0: same labels", WIDE),
        ("total variation to all rows", f"{d['tv_mean']:.3f}", "0: same labels; at most 1", WIDE),
        ("Hellinger to all rows", f"{d['hellinger_to_global_mean']:.3f}", "0: same labels; at most 1", WIDE),
        ("Jensen-Shannon of two clients", f"{d['js_pairs_mean']:.3f}", pairs, WIDE),
        ("Hellinger of two clients' shapes", f"{d['hellinger_mean']:.3f}", "FedLA; 0: same shape; at most 1", WIDE),
        ("earth mover's of two shapes", f"{d['emd_mean']:.3f}", "FedLA; 0: same shape", WIDE),
        ("rows two clients share by label", f"{d['overlap_mean']:,.1f}", "FedLA; mean over pairs", WIDE),
        ("rows whose label others hold too", f"{d['shared_rate']:.1%}", "FedLA; of all rows", WIDE),
    ]


def _classes(d: dict[str, Any], most: int) -> Table:
    """Rows and owners of each class, with a bar; the largest and the smallest where there are many."""
    rows, names = d["class_rows"], d["label_names"]
    order = list(range(len(rows)))
    if len(order) > most:
        ranked = sorted(order, key=lambda c: (-rows[c], c))
        order = [*ranked[: most // 2], -1, *ranked[-(most // 2) :]]
    view = Table(box=None, pad_edge=False, header_style="dim")
    view.add_column("class", no_wrap=True, overflow="ellipsis", width=24)
    view.add_column("held by", justify="right", width=8)
    view.add_column("rows", justify="right", width=9)
    view.add_column("", width=BAR, no_wrap=True)
    for c in order:
        if c < 0:
            view.add_row(f"… {len(rows) - most} more")
            continue
        name = str(names[c]) if names and str(names[c]) != str(c) else ""
        bar = "█" * max(round(BAR * rows[c] / max(rows)), 1 if rows[c] else 0)
        cells = (f"{c} {name}".rstrip(), f"{d['class_owners'][c]:,.0f}", f"{rows[c]:,.0f}", bar)
        view.add_row(*map(Text, cells))
    return view


def _by_name(counts: Counted, names: Sequence[str]) -> Iterator[Table]:
    """Rows of clients that have names, and the share of each class, where a terminal has room for them."""
    if not 0 < len(names) <= SHOWN or counts.counts.shape[1] > FEW_CLASSES:
        return
    view = Table(box=None, pad_edge=False, header_style="dim")
    view.add_column("client", no_wrap=True, overflow="ellipsis", max_width=24)
    for head in ("rows", *counts.class_names):
        view.add_column(head, justify="right")
    for name, rows in zip(names, counts.counts.tolist(), strict=True):
        view.add_row(*map(Text, (name, _decimal(sum(rows)), *(f"{n / max(sum(rows), 1):.1%}" for n in rows))))
    yield view


def _decimal(value: float) -> str:
    """A number with one decimal, without ".0"."""
    return f"{value:,.1f}".removesuffix(".0")


def _number(value: Any) -> str:
    """A value of an option as text."""
    if isinstance(value, dict):
        return named(value)
    return f"{value:g}" if isinstance(value, float) else str(value)
