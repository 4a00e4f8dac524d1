"""Runs read from their folders, and grouped by configuration with labels that tell the groups apart."""

from __future__ import annotations

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.config import variants
from fedskew.config.experiment import RECORDED, Experiment
from fedskew.config.recorded import read_run
from fedskew.data.describe import Counted, counted
from fedskew.errors import DataError, RecordError, plural
from fedskew.fields import deciding
from fedskew.method import method_spec
from fedskew.methods import METHODS
from fedskew.plots.canvas import Floats
from fedskew.records.probabilities import EACH, SCORES
from fedskew.records.summary import worst_class
from fedskew.settings import SEEDS, Division, Settings

__all__ = ["Group", "Run", "federation_of", "find_runs", "groups_of", "parted_labels", "title_of"]

Row = dict[str, Any]

# Entries that do not make two runs different experiments: options that change no training, the seeds, and what a run
# adds of where it ran, or what follows from the seed (the counts of the split).
NEUTRAL = {
    *deciding(Settings, "measures", "bits", "nothing", "seed"), *deciding(Division, "nothing", "seed"),
    *RECORDED, "counts",
} - {"own_data", "disclosed"}  # fmt: skip
OPTIONAL = deciding(Division, "split")[1:]  # named only where they are set
UNSAID = ("folder", "fingerprint", "init_digest")
TRAINING = ("method.pace.", "method.local.")  # what all runs of a picture change alike stands in its title
MOST_FOLDERS = 50_000  # below a folder that is named; a whole disk would take minutes
LONGEST = 44  # characters; a longer label is replaced by the folder's name


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """Find run folders.

    Args:
        paths: Run folders, or folders that contain run folders at any depth.

    Returns:
        Run folders, each once, in order.

    Raises:
        RecordError: A path does not exist, or no path leads to a run.
    """
    given = [Path(p) for p in paths]
    for path in given:
        if not path.exists():
            raise RecordError(f"there is no run at {str(path)!r}: no such file or folder")
    found = [folder for path in given for folder in ([path] if _is_run(path) else _below(path))]
    if not found:
        places = ", ".join(repr(str(p)) for p in given) or "no path"
        raise RecordError(f"no run folder found in {places}; a run folder holds config.json and rounds.jsonl")
    once: dict[Path, Path] = {}
    for folder in found:
        once.setdefault(folder.resolve(), folder)
    return list(once.values())


def _is_run(path: Path) -> bool:
    """Whether the folder holds a run."""
    return (path / "config.json").is_file() and (path / "rounds.jsonl").is_file()


def _below(path: Path) -> list[Path]:
    """Run folders below a folder, sorted. Raises RecordError where the folder is too large to look through."""
    found = list[Path]()
    for number, (folder, _, files) in enumerate(os.walk(path)):
        if number == MOST_FOLDERS:
            rule = f"has more than {MOST_FOLDERS:,} folders below it; name the folder that holds the runs"
            raise RecordError(f"{str(path)!r} {rule}")
        if "rounds.jsonl" in files and _is_run(Path(folder)):
            found.append(Path(folder))
    return sorted(found)


@dataclasses.dataclass(frozen=True)
class Run:
    """A run read from its folder."""

    folder: Path
    config: Row
    rows: list[Row]
    summary: Row

    @staticmethod
    def read(folder: str | Path) -> Run:
        """The run of a folder. Raises RecordError where it is none, or is damaged."""
        return Run(Path(folder), *read_run(folder))

    @property
    def name(self) -> str:
        """Name of the method; the folder's name where the configuration has none."""
        return _name(self.config.get("method")) or self.folder.name

    @property
    def last(self) -> Row:
        """The last evaluated round."""
        return next((row for row in reversed(self.rows) if "accuracy" in row), {})

    @property
    def finals(self) -> Row:
        """What was measured of the last model alone, by name: ``auroc_macro``, ``per_class_auroc``, ``confusion``, ...

        A run that was stopped has the scores of its last evaluated round, where it measured them at every evaluation.
        """
        names = (*SCORES, *EACH, "confusion")
        return {name: self.summary[f"final_{name}"] for name in names if f"final_{name}" in self.summary}

    @property
    def worst(self) -> Row | None:
        """The worst class of the last evaluation, see `fedskew.records.summary.worst_class`."""
        return worst_class(self.last, self.config.get("label_names", ()))

    @property
    def settings(self) -> Row:
        """The configuration by dotted path, without what does not change the experiment."""
        kept = {key: v for key, v in self.config.items() if key not in NEUTRAL}
        kept |= {key: self.config.get(key) or None for key in OPTIONAL}  # a run of Python may lack them
        return variants.flat(kept) if "method" in kept else {"folder": str(self.folder)}

    @property
    def seeds(self) -> tuple[tuple[int, str], ...]:
        """(seed, what is drawn from it) of every seed that the configuration sets; "seed" itself comes first."""
        return tuple((v, key.replace("_", ".")) for key in SEEDS if (v := self.config.get(key)) is not None)

    @property
    def changed(self) -> Row:
        """Options of the method that differ from those of the table's method of this name, by dotted path."""
        method: Any = self.config.get("method")
        return {f"method.{path}": v for path, v in variants.changed(method).items()} if _known(method) else {}

    def series(self, name: str) -> tuple[list[int], Floats, Floats]:
        """A metric over rounds.

        Args:
            name: Name of the metric in rounds.jsonl.

        Returns:
            (rounds [R], values [R], MB uploaded until then [R]) of the rounds that have it, as a finite number.
        """
        sent = np.cumsum([row.get("upload_bytes", 0) for row in self.rows]) / 1e6
        seen = [i for i, row in enumerate(self.rows) if row.get(name) is not None and math.isfinite(row[name])]
        values = np.array([self.rows[i][name] for i in seen], dtype=np.float64)
        return [self.rows[i]["round"] for i in seen], values, sent[seen]


def federation_of(run: Run) -> Counted:
    """The label histograms of a run's split: those on record, or of the split made again.

    Raises FedskewError where neither can be had.
    """
    config, title = run.config, title_of([run])
    names = tuple(map(str, config.get("label_names", ())))
    if config.get("counts"):
        counts = np.asarray(config["counts"])
        return Counted(counts, {}, title, names if len(names) == counts.shape[-1] else ())
    for entry, told in (("started_by", "it was started from Python"), ("own_data", "its nodes kept their rows")):
        if config.get(entry) in ("python", True):
            raise DataError(f"{told}, and it has no counts on record")
    try:
        # the method has no say in the split, and one of an older version may not be known any more
        made = Experiment.from_json({**config, "method": method_spec(METHODS["fedavg"]())})
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"its configuration is not one that the command wrote: {error!r}") from None
    fed = made.federation()
    if made.fingerprint not in ("", fed.dataset.fingerprint):
        raise DataError(f"the data {fed.dataset.name!r} are not those of the run")
    return counted(fed)


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one configuration under different seeds."""

    name: str  # what tells it from the other groups
    runs: list[Run]
    place: int = 0  # of its name among the sorted names: its colour in every picture of the same runs
    details: str = ""  # everything in which it differs, where that is too long for a name

    @property
    def label(self) -> str:
        """The name, and how many seeds."""
        return f"{self.name}, {len(self.runs)} seeds" if len(self.runs) > 1 else self.name


def groups_of(folders: Iterable[str | Path]) -> list[Group]:
    """Read run folders and group them by configuration. A second run with the same seed is a group of its own."""
    seen: Counter[str] = Counter()
    groups: dict[tuple[str, int], list[Run]] = {}
    for folder in folders:
        run = Run.read(folder)
        key = repr(sorted(run.settings.items(), key=lambda item: item[0]))
        place = f"{key} {run.seeds}"
        groups.setdefault((key, seen[place]), []).append(run)
        seen[place] += 1
    listed = list(groups.values())
    names, details = _names([runs[0] for runs in listed])
    places = {name: i for i, name in enumerate(sorted(names))}
    return [Group(n, runs, places[n], told) for n, runs, told in zip(names, listed, details, strict=True)]


def _names(firsts: list[Run]) -> tuple[list[str], list[str]]:
    """(name of each group, what a name was too short for).

    A name says every setting of the run that differs between groups; every option that differs from the method of the
    table; and, where the table has no such method, what differs between groups of that method.
    """
    settings = [run.settings for run in firsts]
    common = [p for p in _differing(settings) if not p.startswith("method.")]
    shared = _shared(firsts)
    names, details = [], [""] * len(firsts)
    for run in firsts:
        own = list(run.changed) if _known(run.config.get("method")) else _own(run, firsts)
        told = _told(run.settings, [p for p in dict.fromkeys([*common, *own]) if p not in shared])
        names.append(f"{run.name} ({told})" if told else run.name)
    many = Counter(names)
    for i, run in enumerate(firsts):
        if many[names[i]] > 1 or len(names[i]) > LONGEST:
            details[i] = names[i] if many[names[i]] == 1 else ""
            names[i] = run.name if run.name == run.folder.name else f"{run.name} ({run.folder.name})"
    many = Counter(names)
    return [s if many[s] == 1 else "/".join(r.folder.parts[-2:]) for s, r in zip(names, firsts, strict=True)], details


def parted_labels(groups: list[Group]) -> list[tuple[str, str]]:
    """(method, setting) of each group: the two halves of its name, in full.

    The setting says the options of the run that differ between groups, such as "alpha 0.05"; it is "" where none does.
    A second group of one method and setting is numbered: "fedavg #2".
    """
    firsts = [group.runs[0] for group in groups]
    settings = [run.settings for run in firsts]
    common = [p for p in _differing(settings) if not p.startswith("method.")]
    shared, seen, labels = _shared(firsts), Counter[tuple[str, str]](), []
    for run in firsts:
        own = list(run.changed) if _known(run.config.get("method")) else _own(run, firsts)
        told = _told(run.settings, [p for p in own if p not in shared])
        label = (f"{run.name} ({told})" if told else run.name, _told(run.settings, common))
        seen[label] += 1
        labels.append((f"{label[0]} #{seen[label]}" if seen[label] > 1 else label[0], label[1]))
    return labels


def _known(method: Any) -> bool:
    """Whether the table has the method of a configuration."""
    return isinstance(method, Mapping) and bool(variants.plain_name(method))


def _own(run: Run, firsts: list[Run]) -> list[str]:
    """Options of the method that differ between the groups of one name."""
    return [p for p in _differing([r.settings for r in firsts if r.name == run.name]) if p.startswith("method.")]


def _shared(runs: list[Run]) -> Row:
    """Options of pace and local step that all runs have in common, and that are not those of the table's methods."""
    paths = dict.fromkeys(p for run in runs for p in run.changed if p.startswith(TRAINING))
    same = {p: runs[0].settings.get(p) for p in paths if len({repr(run.settings.get(p)) for run in runs}) == 1}
    return same if len({repr(run.config.get("method")) for run in runs}) > 1 else {}


def _differing(settings: list[Row]) -> list[str]:
    """Paths whose values differ. A path that some groups lack counts only where it names an ingredient."""
    paths = dict.fromkeys(path for s in settings for path in s)
    values = {path: [s[path] for s in settings if path in s] for path in paths}
    lacking = {path for path, v in values.items() if path.endswith(".name") and len(v) < len(settings)}
    return [p for p, v in values.items() if p in lacking or any(w != v[0] for w in v)]


def _told(settings: Row, paths: list[str]) -> str:
    """Options as a phrase, such as `label_aware, alpha 0.1`: ingredients by name, fields by name or path."""
    ends = Counter(path.split(".")[-1] for path in paths)
    words = []
    for path in (p for p in paths if p in settings and p not in UNSAID and (settings[p] or p not in OPTIONAL)):
        end, value = path.split(".")[-1], settings[path]
        text = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(text if end in ("name", "method") else f"{end if ends[end] == 1 else path} {text}")
    return ", ".join(words)


def _name(value: Any) -> str:
    """Name of an ingredient in a configuration: a string, or {"name": ...}; "" for anything else."""
    found = value.get("name") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) else ""


def _with_fields(value: Any) -> str:
    """An ingredient with its options, such as `dirichlet (alpha 0.1)`."""
    fields = (
        {k: v for k, v in value.items() if k != "name" and v not in (None, "")} if isinstance(value, Mapping) else {}
    )
    told = _told(fields, list(fields))
    return f"{_name(value)} ({told})" if told else _name(value)


def title_of(runs: list[Run]) -> str:
    """Dataset, partition, clients, cohort, model and changed training, as far as all runs share them.

    Partition and model stand with their options: a paper's network often has two readings, such as `seolkim_cnn (pools
    2)`.
    """
    facts = []
    for c in (run.config for run in runs):
        clients, cohort, tail = (c.get(key) for key in ("clients", "cohort", "longtail"))
        facts.append(
            [
                _name(c.get("data")),
                f"long tail {tail:g}" if tail else "",
                _with_fields(c.get("partition")),
                plural(clients, "client") if clients else "",
                f"cohort {cohort}" if cohort else "",
                _with_fields(c.get("model")),
            ]
        )
    shared = [column[0] for column in zip(*facts, strict=True) if len(set(column)) == 1 and column[0]]
    training = _shared(runs)
    shared += [told] if (told := _told(training, list(training))) else []
    return ", ".join(shared) or plural(len(runs), "run")
