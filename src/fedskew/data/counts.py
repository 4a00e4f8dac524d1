"""Tables of class counts, a row a client, and what a consortium knows of its sites before it starts."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedskew.data.encoding import folded, number_of, value_of
from fedskew.data.sources.files import insist_on_different, reading
from fedskew.data.sources.readers import insist_on_width, read_array, read_table
from fedskew.data.values import FARTHEST
from fedskew.errors import DataError, claim, opened, some

Ints = npt.NDArray[np.int64]
CLIENTS = ("client", "site")  # columns of names in a table of counts
OWNERS = re.compile(r"(?i)(client|site|hospital|cent(re|er)|clinic|silo)[ _-]?\w{1,3}")  # names of clients, as site_a
LABELED = {"label", "labels", "class", "classes"}  # columns that name classes
SUMS = ("total", "totals", "sum", "grand total")
OWNER = re.compile(  # a name of a column that tells whose the counts are
    r"(?i)(client|site|hospital|cent(re|er)|clinic|institution|silo|node|user|party)s?([ _-]?(id|no|nr|number|name))?"
    r"|(.*[ _-])?id"
)
THOUSAND = re.compile(r"\d{1,3}\.000")  # 1.000 may be one thousand
LEAST = 3  # cases of a site: one at least is kept for its test, see `fedskew.data.federation.hold_out`
Rule = tuple[str, Callable[[float], bool]]
FACTS: dict[str, Rule] = {  # what a table may say of a site beside its counts, in columns that are no classes
    "failure": ("be a probability in [0, 1)", lambda v: 0 <= v < 1),
    **dict.fromkeys(("up", "down", "step_s", "speed"), ("be a positive number", lambda v: 0 < v < math.inf)),
}


def counts_matrix(values: npt.NDArray[Any], what: str) -> Ints:
    """Check a matrix of counts.

    Args:
        values: Array to check.
        what: Its name in the error message.

    Returns:
        The counts, int64 [N, C].

    Raises:
        DataError: It is not a non-empty matrix of whole numbers of at least 0, or it is all 0.
    """
    fine = values.ndim == 2 and values.size and values.dtype.kind in "iuf"
    bounded = fine and bool((np.abs(values.astype(np.float64)) < FARTHEST).all())  # false for NaN and infinity
    whole = values.astype(np.int64) if bounded else np.zeros(1, np.int64)
    holds = (whole == values).all() and whole.min() >= 0 and whole.any()
    rule = "be a matrix [clients, classes] of whole numbers >= 0, not all 0"
    claim(bounded and holds, what, rule, f"{values.dtype} of shape {values.shape}")
    return whole


@dataclass(frozen=True, eq=False)
class Consortium:
    """A table of class counts, a row a client or site, as a file describes them.

    Attributes:
        sites: Names of the N sites; empty where the file does not name them.
        classes: Names of the C classes; empty where the file does not name them.
        counts: Cases of each class at each site, int64 [N, C].
        facts: Values of the columns that are no class and are there, [N] each: ``failure``, the probability that a site
            misses a round; ``up`` and ``down``, its link in Mbit/s; ``step_s``, seconds of a local step; ``speed``, its
            speed as a multiple of this machine's.
    """

    sites: tuple[str, ...]
    classes: tuple[str, ...]
    counts: npt.NDArray[np.int64]
    facts: dict[str, list[float]]

    @property
    def rare(self) -> int:
        """The class with the fewest cases, the first of several."""
        return int(self.counts.sum(0).argmin())


def read_counts(path: str | Path) -> tuple[Ints, tuple[str, ...]]:
    r"""Read a matrix of counts from a file, see `count_table`.

    Args:
        path: A csv or npy file.

    Returns:
        The counts [N, C] and the class names, if any.

    Raises:
        DataError: The file is absent or damaged, or does not hold a matrix of counts.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.counts import read_counts
        >>> _ = Path("counts.csv").write_text("cat,dog\n5,0\n1,4\n")
        >>> read_counts("counts.csv")[0].tolist()
        [[5, 0], [1, 4]]
    """
    table = count_table(path)
    got, hint = f"{', '.join(table.facts)}, which are facts of a site", "take them out, or rename the classes"
    claim(not table.facts, path, "have columns of classes", f"{got} for `fedskew rehearse`", hint)
    return table.counts, table.classes


def count_table(path: str | Path) -> Consortium:
    r"""Read a table of class counts, a row a client.

    A csv file has a head of class names or none; 0, 1, 2 and 1, 2, 3 are such names. Clients are named by a column
    ``client`` or ``site``, by a first column without a name, as pandas and R write it, or by one that the head leaves
    out, as R's ``write.table`` does. What can be read in two ways is refused: a column that numbers the rows, and one
    that is the sum of the others.

    Args:
        path: A csv file, parted by commas, semicolons or tabs, or an npy file.

    Returns:
        The table.

    Raises:
        DataError: The file is absent or damaged, or does not hold counts, or can be read in two ways.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.counts import count_table
        >>> _ = Path("sites.csv").write_text('"","cat","dog"\n"va",5,0\n"paris",1,4\n')
        >>> count_table("sites.csv").sites
        ('va', 'paris')
    """
    file = Path(path)
    kind = file.suffix.lower()
    if kind == ".csv":
        return _of_csv(file)
    claim(kind == ".npy", "a file of counts", "end in .csv or .npy", f"'{path}'")
    with reading(file, "is not a readable npy file of numbers"), opened(file) as content:
        return Consortium((), (), counts_matrix(read_array(content, file.stat().st_size, "it"), str(path)), {})


def _of_csv(file: Path) -> Consortium:
    """The table of a csv file. A first line without a comma is parted by what it has: counts have no decimal comma."""
    with reading(file, "is not a csv file"), opened(file) as content:
        line = content.readline(1 << 16)
    mark = next((mark for mark in ";\t" if mark.encode() in line and b"," not in line), ",")
    table = [(number, cells) for number, cells in read_table(file, mark) if any(cells)]
    width = Counter(len(row) for _, row in table[1:] or table).most_common(1)[0][0] if table else 0
    headed = bool(table) and (len(table[0][1]) == width - 1 or _names(file, table[0][1]))
    head = [name.lstrip("# ") for name in table[0][1]] if headed else []  # of numpy.savetxt
    head = ["", *head] if headed and len(head) == width - 1 else head  # of R's write.table
    rows = table[headed:]
    claim(rows, file, "have a line of counts for each client, after a head of class names or none")
    insist_on_width(file, [(1, head or rows[0][1]), *rows], width)
    rule = "have a row for each client and a column for each class"
    transposed = LABELED & {*map(folded, head)} or (len(head) > 2 and all(map(OWNERS.fullmatch, head[1:])))
    claim(not transposed, file, rule, ",".join(head), "a table with a row for each class must be turned")
    usual = [name.lower() if name.lower() in (*CLIENTS, *FACTS) else name for name in head]
    insist_on_different(file, [folded(value_of(name)) for name in usual])
    holds = "" not in usual[1:] and not {*CLIENTS} <= {*usual}
    claim(holds, file, "name each class, and have one column of client names", ",".join(head))
    columns = dict(zip(usual or map(str, range(width)), zip(*(row for _, row in rows), strict=True), strict=True))
    named = [columns.pop(name) for name in CLIENTS if name in columns]
    first = next(iter(columns.items()), ("", ()))
    if head and (not first[0] or not (named or any(np.isfinite(number_of(cell)) for cell in first[1]))):  # no counts
        named.append(columns.pop(first[0], ()))
    clients = tuple(name or str(i) for i, name in enumerate(named[0], 1)) if named else ()
    claim(len({*map(folded, clients)}) == len(clients), file, "name each client or site once", some(clients))
    facts = {name: [*map(number_of, columns[name])] for name in FACTS if name in columns}
    for name, values in facts.items():
        for (number, _), value, cell in zip(rows, values, columns.pop(name), strict=True):
            rule, fits = FACTS[name]
            claim(fits(value), f"{file} line {number}: the value of {name!r}", rule, repr(cell))
    for (number, _), *cells in zip(rows, *columns.values(), strict=True):
        for name, cell in zip(columns, cells, strict=True):
            if not 0 <= (value := number_of(cell)) < FARTHEST or value != int(value) or THOUSAND.fullmatch(cell):
                what = f"the cases of {name!r}" if head else "a count"
                raise DataError(f"{file} line {number}: {what} must be a whole number >= 0; got {cell!r}")
    counts = np.array([[*map(float, cells)] for cells in columns.values()]).reshape(-1, len(rows)).T.astype(np.int64)
    consortium = Consortium(clients, tuple(columns) if head else (), counts, facts)
    doubt = next(_doubts(consortium), "")
    claim(not doubt, file, f"hold counts of clients and classes alone; {doubt}, or write the matrix as npy")
    counts_matrix(counts, str(file))
    return consortium


def _names(file: Path, line: list[str]) -> bool:
    """Whether the first line has names. Raises DataError where it may as well have counts."""
    if line[0].lower() in ("", *CLIENTS):
        return True
    word = not np.isfinite(number_of(line[0]))
    numbers = np.array([number_of(cell) for cell in line[word:]])
    if not np.isfinite(numbers).all():
        return True
    counted = len(numbers) > 1 and bool((np.diff(numbers) == 1).all())
    if counted and len(numbers) > 2 and numbers[0] in (0, 1):
        return True  # 0, 1, 2 or 1, 2, 3
    mixed = len(numbers) > 2 and min(numbers) in (0, 1) and bool((np.diff(np.sort(numbers)) == 1).all())  # 2, 0, 1
    unclear = word or mixed or (counted and (len(numbers) > 2 or numbers[0] in (0, 1)))
    hint = "name the classes by words and a column of names client, or write the matrix as npy"
    claim(not unclear, file, f"begin with class names or counts; {','.join(line)} may be either", hint=hint)
    return False


def _doubts(table: Consortium) -> Iterator[str]:
    """What is probably no count: row numbers, and sums."""
    counts, names, clients = table.counts, table.classes, table.sites
    columns = [f"column {name!r}" for name in names] or [f"column {c + 1}" for c in range(counts.shape[1])]
    rows, out = [f"row {k}" for k in clients or range(1, len(counts) + 1)], "leave it out"
    sums = (2 * counts == counts.sum(1, keepdims=True)).all(0) & (len(columns) > 2) & (len(rows) > 1)
    yield from (f"{columns[c]} is the sum of the others: {out}" for c in np.flatnonzero(sums))
    sums = (2 * counts == counts.sum(0)).all(1) & (len(columns) > 1) & (len(rows) > 2)
    yield from (f"{rows[k]} is the sum of the others: {out}" for k in np.flatnonzero(sums))
    if not clients and counts.size:
        first = counts[:, 0]
        least = 3 if first[0] > 1 else 1 + bool(names)
        if len(first) >= least and (np.diff(first) == 1).all():
            yield f"{columns[0]} numbers the rows: name it client, or {out}"
        if names and OWNER.fullmatch(names[0]):
            yield f"{columns[0]} tells of clients: name it client, or {out}"
    yield from (f"{name!r} is a sum: {out}" for name in (*names, *clients) if folded(name) in SUMS)


def read_consortium(path: str | Path) -> Consortium:
    r"""Read a csv file with a line of names and then a line for each site.

    The columns ``site``, ``failure``, ``up``, ``down``, ``step_s`` and ``speed`` are optional, see `Consortium`. Every
    other column is a class, but for those that `count_table` takes for names or refuses.

    Args:
        path: The file.

    Returns:
        What it holds.

    Raises:
        DataError: A column is missing, a value breaks its rule, a class or the last site is the sum of the others, or
            there are fewer than two classes or sites.

    Example:
        >>> from pathlib import Path
        >>> from fedskew.data.counts import read_consortium
        >>> _ = Path("sites.csv").write_text("site,ill,well,failure\nva,40,60,0.1\nparis,5,80,0\n")
        >>> consortium = read_consortium("sites.csv")
        >>> consortium.sites, consortium.classes[consortium.rare], consortium.facts
        (('va', 'paris'), 'ill', {'failure': [0.1, 0.0]})
    """
    table = count_table(path)
    classes, counts, columns = table.classes, table.counts, list(table.facts)
    claim(classes, path, "begin with a line of names: the classes", ",".join(map(str, counts[0].tolist())))
    claim(len(classes) > 1, path, "have a column for each of two classes at least", ", ".join(classes) or "none")
    both, have = ("up" in columns) == ("down" in columns), ", ".join((*classes, *columns))
    claim(both, path, "have both columns up and down, or none", have)
    claim(not {"step_s", "speed"} <= {*columns}, path, "have one of the columns step_s and speed", "both")
    claim(len(counts) > 1, path, "have a line for each of two sites at least", len(counts))
    named = replace(table, sites=table.sites or tuple(map(str, range(1, len(counts) + 1))))
    for name, cases in zip(classes, counts.sum(0), strict=True):
        claim(cases > 0, f"{path}: class {name!r}", "have a case at some site", "none")
    for name, cases in zip(named.sites, counts.sum(1), strict=True):
        claim(cases >= LEAST, f"{path}: site {name!r}", f"have {LEAST} cases at least, to train and to test", cases)
    return named


def scaled(counts: npt.NDArray[np.int64], have: Sequence[int]) -> tuple[npt.NDArray[np.int64], float]:
    """Counts that a dataset can meet: those given, or all times the largest factor that its rows allow.

    Cumulative sums over the sites are rounded, f (n_1c + ... + n_kc), so that every total is within a row of its exact
    value and no class is favoured. A site that is left with fewer than `LEAST` rows gets so many of its largest class.

    Args:
        counts: Cases [N, C].
        have: Rows of each class in the dataset, [C].

    Returns:
        (counts, factor f).

    Raises:
        DataError: A class has too few rows for the sites.

    Example:
        >>> import numpy as np
        >>> from fedskew.data.counts import scaled
        >>> scaled(np.array([[40, 10], [80, 30]]), [66, 100])
        (array([[20,  5],
               [40, 15]]), 0.5)
    """
    asked, most = counts.sum(0), np.asarray(have)
    room = np.maximum(most - LEAST * len(counts), most // 2)  # the rest is for sites that are left with too few
    factor = 1.0 if (asked <= most).all() else float((room / np.maximum(asked, 1)).min())
    made = np.diff(np.rint(counts.cumsum(0) * factor), axis=0, prepend=0).astype(np.int64)
    few, largest = np.flatnonzero(made.sum(1) < LEAST), counts.argmax(1)
    made[few, largest[few]] = LEAST
    rule = f"have {LEAST} rows for each of {len(counts)} sites"
    claim((made.sum(0) <= most).all(), "a stand-in", rule, f"{min(have)} of a class")
    return made, factor
