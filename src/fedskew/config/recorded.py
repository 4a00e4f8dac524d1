"""Recorded runs: found, read from their folders, checked, and compared with the method of the table of their name.

A folder may come from anybody and may be damaged. It is checked once, here, so that what reads it can rely on it.
"""

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedskew.config.experiment import RECORDED
from fedskew.config.schema import CLASSES, Config, Round, Summary
from fedskew.config.tables import TABLES, method_from, method_named
from fedskew.errors import FedskewError, RecordError
from fedskew.fields import deciding
from fedskew.method import method_spec
from fedskew.method.component import SLOTS, spec
from fedskew.methods import METHODS
from fedskew.records import folder as records
from fedskew.records.files import INNER
from fedskew.records.metrics import EACH
from fedskew.records.summary import PREFIXES
from fedskew.records.typed import Row, fault_of
from fedskew.settings import SEEDS, Division, Settings

Floats = npt.NDArray[np.float64]
UNLIKE = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)  # of other content
# Entries that do not make two runs different experiments: options that change no training, the seeds, and what a run
# adds of where it ran, or what follows from the seed (the counts of the split).
NEUTRAL = {
    *deciding(Settings, "measures", "bits", "nothing", "seed"), *deciding(Division, "nothing", "seed"),
    *RECORDED, "counts",
} - {"own_data", "disclosed"}  # fmt: skip
OPTIONAL = deciding(Division, "split")[1:]  # named only where they are set
LARGE = ("counts", "label_names")  # entries that no list shows
MOST_FOLDERS = 50_000  # below a folder that is named; a whole disk would take minutes


@dataclass(frozen=True)
class Run:
    """A recorded run.

    Attributes:
        folder: Its folder; of a run of an archive, or of one that cannot be, its address.
        config: Content of config.json; empty where it is damaged.
        rows: Content of rounds.jsonl; empty in a list, for which rounds are not read.
        summary: Content of summary.json; in a list, of a run without one, what its last rounds say.
        env: Content of env.json, where it was asked for.
        state: "finished", "stopped", "running", "failed", "refused" or "damaged".
        reason: Why it stopped, failed, was refused or cannot be read.
        written: When it was last written, seconds since 1970; 0 where this was not asked for.
    """

    folder: Path
    config: Row = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    summary: Row = field(default_factory=dict)
    env: Row = field(default_factory=dict)
    state: str = "finished"
    reason: str = ""
    written: float = 0.0

    @property
    def address(self) -> str:
        """The address, of a run of a store."""
        return self.folder.name

    @property
    def name(self) -> str:
        """Name of the method; the folder's name where the configuration has none."""
        return ingredient_name(self.config.get("method")) or self.folder.name

    @cached_property
    def label(self) -> str:
        """The method and what differs from that of the table, such as "fedavg (lr 0.05)"; "" where none is named."""
        method = self.config.get("method")
        return _label(json.dumps(method)) if isinstance(method, Mapping) else str(method or "")

    @cached_property
    def serves(self) -> str:
        """What clients use, `Method.serves`, as far as the method can be made again; else by what was measured."""
        method = self.config.get("method")
        try:
            return (method_from(method) if isinstance(method, Mapping) else method_named(str(method))).serves
        except (FedskewError, *UNLIKE):
            return "both" if any(name.startswith("final_personal") for name in self.summary) else "global"

    def value(self, key: str) -> float:
        """A number of the summary, NaN where it has none; of a run of before ``served_*`` that of own models."""
        number = self.summary.get(key, self.summary.get(key.replace("served_", "personal_")))
        return float(number) if isinstance(number, int | float) and math.isfinite(number) else math.nan

    @property
    def last(self) -> Row:
        """The last evaluated round."""
        return next((row for row in reversed(self.rows) if "accuracy" in row), {})

    @property
    def settings(self) -> Row:
        """The configuration by dotted path, without what does not change the experiment."""
        kept = {key: v for key, v in self.config.items() if key not in NEUTRAL}
        kept |= {key: self.config.get(key) or None for key in OPTIONAL}  # a run of Python may lack them
        return flat(kept) if "method" in kept else {"folder": str(self.folder)}

    @property
    def seeds(self) -> tuple[tuple[int, str], ...]:
        """(seed, what is drawn from it) of every seed that the configuration sets; "seed" itself comes first."""
        return tuple((v, key.replace("_", ".")) for key in SEEDS if (v := self.config.get(key)) is not None)

    @property
    def changed(self) -> Row:
        """Options of the method that differ from those of the table's method of this name, by dotted path."""
        method = self.config.get("method")
        options = changed(method) if isinstance(method, Mapping) else {}
        return {f"method.{path}": value for path, value in options.items()}

    @property
    def shown(self) -> Row:
        """What the columns of a list are made of."""
        return {
            "folder": str(self.folder),
            "method": self.label,
            "data": ingredient_name(self.config.get("data")),
            "partition": _with_numbers(self.config.get("partition")),
            "seed": self.config.get("seed"),
            "rounds": self.summary.get("rounds"),
            "asked": self.config.get("rounds"),
            "accuracy": self.summary.get("final_accuracy"),
            "state": self.state,
            "reason": self.reason,
            "age": (time.time() - self.written) / 86400,
        }

    @cached_property
    def fields(self) -> Row:
        """Every entry of the configuration and of the summary by dotted path; those of `shown` go before them."""
        config = flat({k: v for k, v in self.config.items() if k not in LARGE})
        return {**config, **flat(self.summary), **self.shown}

    def series(self, name: str) -> tuple[list[int], Floats, Floats, Floats, Floats]:
        """A metric over rounds.

        Args:
            name: Name of the metric in rounds.jsonl.

        Returns:
            (rounds [R], values [R], MB uploaded until then [R], seconds [R], local steps [R]) of the rounds that have
            it, as a finite number.
        """
        spent = (np.cumsum([row.get(n, 0) for row in self.rows]) for n in ("upload_bytes", "wall_s", "steps"))
        sent, seconds, steps = spent
        seen = [i for i, row in enumerate(self.rows) if row.get(name) is not None and math.isfinite(row[name])]
        values = np.array([self.rows[i][name] for i in seen], dtype=np.float64)
        return [self.rows[i]["round"] for i in seen], values, sent[seen] / 1e6, seconds[seen], steps[seen]


def ingredient_name(value: Any) -> str:
    """Name of an ingredient in a configuration: a string, or {"name": ...}; "" for anything else."""
    named = value.get("name") if isinstance(value, Mapping) else value
    return named if isinstance(named, str) else ""


def options_of(value: Any) -> dict[str, Any]:
    """Fields of an ingredient in a configuration, without its name and the version of its class."""
    return {k: v for k, v in value.items() if k not in ("name", "version")} if isinstance(value, Mapping) else {}


@cache
def _label(method: str) -> str:
    """The label of a method's specification in JSON."""
    spec = json.loads(method)
    try:
        return label_of(spec)
    except UNLIKE:
        return str(spec.get("name", ""))


def _with_numbers(value: Any) -> str:
    """An ingredient with its options that are numbers, such as "dirichlet (alpha 0.1)"."""
    words = [words_of(name, number) for name, number in options_of(value).items() if isinstance(number, int | float)]
    return f"{ingredient_name(value)} ({', '.join(words)})" if words else ingredient_name(value)


# Finding


def run_folders(places: Iterable[str | Path], halfway: bool = False) -> list[Path]:
    """Run folders at or below these places, each once; links to folders are not followed.

    Args:
        places: Where to look.
        halfway: Whether runs count whose beginning or deletion was killed, which have no rounds.

    Raises:
        RecordError: A place is not there, or has too many folders below it.
    """
    folders: dict[Path, Path] = {}
    for place in map(Path, places):
        if not place.exists():
            raise RecordError(f"there is no run at {str(place)!r}: no such file or folder")
        for folder in _walk(place, halfway):
            folders.setdefault(folder.resolve(), folder)
    return list(folders.values())


def _walk(place: Path, halfway: bool) -> Iterator[Path]:
    """The run folders below a place; one that is a run stands for itself."""
    for number, (folder, inner, files) in enumerate(os.walk(place)):
        if number == MOST_FOLDERS:
            rule = f"has more than {MOST_FOLDERS:,} folders below it; name the folder that holds the runs"
            raise RecordError(f"{str(place)!r} {rule}")
        is_run = "config.json" in files and ("rounds.jsonl" in files or (halfway and "manifest.json" in files))
        inner[:] = sorted(name for name in inner if not (name.startswith(".") or (is_run and name in INNER)))
        if is_run:
            yield Path(folder)
            if not number:
                return


def find_runs(places: Iterable[str | Path]) -> list[Path]:
    """`run_folders`, at least one.

    Args:
        places: Run folders, or folders that contain run folders at any depth.

    Returns:
        Run folders, each once, in order.

    Raises:
        RecordError: A place does not exist, or no place leads to a run.
    """
    given = list(places)
    if folders := run_folders(given):
        return folders
    named = ", ".join(repr(str(place)) for place in given) or "no path"
    raise RecordError(f"no run folder found in {named}; a run folder holds config.json and rounds.jsonl")


# Reading


def read_run(folder: str | Path) -> Run:
    """Read a run folder, as `fedskew.records.folder.read`, and check the types of its entries.

    Args:
        folder: The folder.

    Returns:
        The run; its state is "finished", whatever its summary says.

    Raises:
        RecordError: It is no run folder, or an entry is missing or of another type; the message names file and entry.
    """
    path = Path(folder)
    try:
        run = Run(path, *records.read(path))
    except UNLIKE as error:
        raise RecordError(f"{str(path)!r} is not a run folder: its files hold {_unlike_words(error)}") from None
    for file, fault in faults(run):
        raise RecordError(f"{path / file} is damaged: {fault}")
    return run


def faults(run: Run) -> Iterator[tuple[str, str]]:
    """(its file in a run folder, what is wrong with it) of each part of a run that is not what a run writes."""
    if fault := fault_of(run.config, Config):
        yield "config.json", fault
    if fault := fault_of(run.summary, Summary) or _crooked(run.summary):
        yield "summary.json", fault
    for row in run.rows:
        if fault := fault_of(row, Round) or _uneven(row):
            at = f"round {row['round']}" if isinstance(row.get("round"), int) else "a round"
            yield "rounds.jsonl", f"{at}: {fault}"


def finished(folder: str | Path, rounds: int, patience: int | None = None) -> bool:
    """As `fedskew.records.folder.finished`, for a folder that may come from anybody. Raises RecordError."""
    try:
        return records.finished(folder, rounds, patience)
    except UNLIKE as error:
        raise RecordError(f"{str(folder)!r} is not a run folder: its files hold {_unlike_words(error)}") from None


def _crooked(summary: Row) -> str:
    """What is wrong with the final confusion matrix and the scores of the classes, which it has as many of."""
    matrix = summary.get("final_confusion")
    if matrix is None:
        return ""
    rule = "'final_confusion' must have as many numbers in each row as it has rows, none below 0"
    if any(len(row) != len(matrix) or min(row) < 0 for row in matrix):
        return rule
    names = [f"final_{name}" for name in EACH]
    uneven = [name for name in names if len(summary.get(name) or matrix) != len(matrix)]
    return f"{uneven[0]!r} must have {len(matrix)} numbers, one a class" if uneven else ""


def _uneven(row: Row) -> str:
    """What is wrong with the lists of a round that have one number a class."""
    for prefix in PREFIXES:
        lengths = {name: len(row[name]) for each in CLASSES if (name := f"{prefix}{each}") in row}
        if len(set(lengths.values())) > 1:
            return f"one number a class must be in each of {', '.join(lengths)}"
    scored = {len(row[name]) for name in EACH if name in row}
    if scored and scored != {len(row.get("support", ()))}:
        return f"one number a class must be in each of {', '.join(EACH)}"
    if any(isinstance(x, float) and not math.isfinite(x) for name in CLASSES for x in row.get(name, ())):
        return "the numbers of the classes must be finite"
    return ""


def _unlike_words(error: Exception) -> str:
    return f"something else than a run writes ({type(error).__name__}: {' '.join(str(error).split())[:120]})"


Spec = Mapping[str, Any]


def plain_name(method: Spec) -> str:
    """The name in the table: "fedbal" of ``fedbal(parts=proximal)``; "" where the table has no such method."""
    bare = str(method.get("name", "")).partition("(")[0]
    return bare if bare in METHODS else ""


def changed(method: Spec) -> dict[str, Any]:
    """The options that differ from those of the method of this name, by dotted path.

    An ingredient that the method of the table has is compared with it; another one is named, and compared with its own
    defaults. Other parts are not named here, as the recorded name says them.

    Args:
        method: A method as `method_spec` gives it, or as a configuration file holds it.

    Returns:
        Values by path, such as ``{"weighting.name": "uniform", "pace.lr": 0.05}``; empty for a name that is not known.

    Example:
        >>> from fedskew import methods, weightings
        >>> changed(method_spec(methods.fedavg().with_(weighting=weightings.Uniform()).with_("pace", lr=0.05)))
        {'pace.lr': 0.05, 'weighting.name': 'uniform'}
    """
    name = plain_name(method)
    if not name:
        return {}
    plain = method_spec(METHODS[name]())
    parts = {p["name"]: p for p in plain["parts"]}
    options: dict[str, Any] = {}
    for part in _named(method.get("parts", ())):
        options |= _differing(f"parts.{part['name']}", "parts", part, parts.get(part["name"]))
    for slot in SLOTS:
        for now in _named([method.get(slot)]):
            options |= _differing(slot, slot, now, plain[slot])
    return options


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Leaves of a configuration by dotted path. An element of a list is addressed by its name.

    Example:
        >>> flat({"method": {"name": "fedavg", "parts": [{"name": "ldam", "s": 30}]}})
        {'method.name': 'fedavg', 'method.parts.ldam.name': 'ldam', 'method.parts.ldam.s': 30}
    """
    if isinstance(value, Mapping):
        items = [(str(key), v) for key, v in value.items()]
    elif isinstance(value, list):
        names = [v.get("name") if isinstance(v, Mapping) else v for v in value]
        keys = [name if isinstance(name, str) and name else str(i) for i, name in enumerate(names)]
        items = list(zip(keys, value, strict=True))
    else:
        return {path: value}
    return {p: leaf for key, v in items for p, leaf in flat(v, f"{path}.{key}" if path else key).items()}


def label_of(method: Spec) -> str:
    """The recorded name with what differs from the method of the table: "fedavg (uniform, lr 0.05)".

    Example:
        >>> from fedskew import methods, weightings
        >>> label_of(method_spec(methods.fedavg().with_(weighting=weightings.Uniform())))
        'fedavg (uniform)'
    """
    options = [words_of(path, value) for path, value in changed(method).items()]
    return f"{method['name']} ({', '.join(options)})" if options else str(method["name"])


def words_of(path: str, value: Any) -> str:
    """An option as a phrase: an ingredient by its name, a field by its last word."""
    end = path.rpartition(".")[2]
    return in_words(value) if end == "name" else f"{end} {in_words(value)}"


def in_words(value: Any) -> str:
    """A value of a configuration as a list or a report shows it: "unset", "0.05", "adam"."""
    return "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _named(specs: Any) -> Iterator[Spec]:
    return (s for s in specs if isinstance(s, Mapping) and "name" in s)


def _differing(path: str, slot: str, now: Spec, plain: Spec | None) -> dict[str, Any]:
    """What differs in one ingredient, and in those among its fields."""
    options: dict[str, Any] = {}
    if plain is None or plain["name"] != now["name"]:
        if plain is not None:
            options[f"{path}.name"] = now["name"]
        kind = TABLES[slot].get(now["name"])
        plain = spec(kind()) if kind else {}
    for option, value in now.items():
        if option == "name" or option not in plain:
            continue
        if isinstance(value, Mapping) and isinstance(plain[option], Mapping):
            options |= _differing(f"{path}.{option}", slot, value, plain[option])
        elif json.dumps(plain[option]) != json.dumps(value):
            options[f"{path}.{option}"] = value
    return options
