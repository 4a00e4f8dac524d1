"""Runs read from their folders, and grouped by configuration with labels that tell the groups apart."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedskew.config import recorded
from fedskew.config.experiment import Experiment
from fedskew.config.recorded import OPTIONAL, Run, ingredient_name, options_of, read_run
from fedskew.data.describe import Counted, counted
from fedskew.errors import DataError, RecordError, plural
from fedskew.method import method_spec
from fedskew.methods import METHODS
from fedskew.plots.canvas import COLOURS, DASHES, place_of
from fedskew.records.typed import Row

UNSAID = ("folder", "fingerprint", "init_digest")
TRAINING = ("method.pace.", "method.local.")  # what all runs of a picture change alike stands in its title
HEADED = ("clients", "cohort", "longtail")  # options of a run that its title says


def federation_of(run: Run) -> Counted:
    """The label histograms of a run's split: those on record, or of the split made again.

    Raises FedskewError where neither can be had.
    """
    config, title = run.config, title_of([run])
    names = tuple(map(str, config.get("label_names", ())))
    if config.get("counts"):
        counts = np.asarray(config["counts"])
        return Counted(counts, {}, title, names if len(names) == counts.shape[-1] else ())
    for entry, reason in (("started_by", "it was started from Python"), ("own_data", "its nodes kept their rows")):
        if config.get(entry) in ("python", True):
            raise DataError(f"{reason}, and it has no counts on record")
    try:
        # the method has no say in the split, and one of an older version may not be known any more
        experiment = Experiment.from_json({**config, "method": method_spec(METHODS["fedavg"]())})
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"its configuration is not one that the command wrote: {error!r}") from None
    fed = experiment.federation()
    if experiment.fingerprint not in ("", fed.dataset.fingerprint):
        raise DataError(f"the data {fed.dataset.name!r} are not those of the run")
    return counted(fed)


def recall_of(row: Row) -> npt.NDArray[np.float64]:
    """Recall of each class [C] in an evaluated round, NaN without test rows; empty where it is not on record."""
    recall = np.array(row.get("per_class_recall", []), dtype=np.float64)
    rows = np.array(row.get("support", []))
    return np.where(rows > 0, recall, np.nan) if len(rows) == len(recall) else recall


@dataclasses.dataclass(frozen=True)
class RunGroup:
    """Runs of one configuration under different seeds."""

    method: str  # such as "fedavg" or "fedavg (uniform)"
    setting: str  # the options of the run that differ between groups, such as "alpha 0.05"; "" where none does
    runs: list[Run]
    place: int = 0  # its look in every picture of the same runs, see `fedskew.plots.canvas.look_of`

    @property
    def name(self) -> str:
        """What tells it from the other groups."""
        return ", ".join(filter(None, (self.method, self.setting)))

    @property
    def label(self) -> str:
        """The name, and how many seeds."""
        return f"{self.name}, {len(self.runs)} seeds" if len(self.runs) > 1 else self.name


def groups_of(folders: Iterable[str | Path]) -> list[RunGroup]:
    """Read run folders and group them by configuration.

    A second run with the same seed is a group of its own, whose method is numbered: "fedavg #2".
    """
    seen: Counter[str] = Counter()
    groups: dict[tuple[str, int], list[Run]] = {}
    for folder in folders:
        run = read_run(folder)
        key = repr(sorted(run.settings.items(), key=lambda item: item[0]))
        place = f"{key} {run.seeds}"
        groups.setdefault((key, seen[place]), []).append(run)
        seen[place] += 1
    listed, named = list(groups.values()), list[RunGroup]()
    labels = Counter[tuple[str, str]]()
    for runs, (run, common, changed) in zip(listed, _paths([runs[0] for runs in listed]), strict=True):
        ingredients, setting = _phrase(run.settings, changed), _phrase(run.settings, common)
        method = f"{run.name} ({ingredients})" if ingredients else run.name
        labels[method, setting] += 1
        number = labels[method, setting]
        named.append(RunGroup(f"{method} #{number}" if number > 1 else method, setting, runs))
    return [dataclasses.replace(group, place=place) for group, place in zip(named, _places(named), strict=True)]


def _places(groups: list[RunGroup]) -> list[int]:
    """The look of each group: a colour for each method and dashes for each setting, where there are enough of both."""
    inks, kinds = sorted({group.method for group in groups}), sorted({group.setting for group in groups})
    if 1 < len(kinds) <= len(DASHES) and len(inks) <= len(COLOURS):
        return [place_of(inks.index(group.method), kinds.index(group.setting)) for group in groups]
    names = sorted(group.name for group in groups)
    return [names.index(group.name) for group in groups]


def _paths(firsts: list[Run]) -> Iterator[tuple[Run, list[str], list[str]]]:
    """(run, settings that differ between groups, what sets its method apart) of each group's first run."""
    common = [p for p in _differing([run.settings for run in firsts]) if not p.startswith("method.")]
    shared = _shared(firsts)
    for run in firsts:
        method, changed = run.config.get("method"), list(run.changed)
        if not (isinstance(method, Mapping) and recorded.plain_name(method)):  # the table has no such method
            alike = [r.settings for r in firsts if r.name == run.name]
            changed = [p for p in _differing(alike) if p.startswith("method.")]
        yield run, common, [p for p in changed if p not in shared]


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


def _phrase(settings: Row, paths: list[str]) -> str:
    """Options as a phrase, such as `label_aware, alpha 0.1`: ingredients by name, fields by name or path."""
    ends = Counter(path.split(".")[-1] for path in paths)
    words = []
    for path in (p for p in paths if p in settings and p not in UNSAID and (settings[p] or p not in OPTIONAL)):
        end, text = path.split(".")[-1], recorded.in_words(settings[path])
        words.append(text if end in ("name", "method") else f"{end if ends[end] == 1 else path} {text}")
    return ", ".join(words)


def _with_options(value: Any) -> str:
    """An ingredient with its options, such as `dirichlet (alpha 0.1)`."""
    fields = {k: v for k, v in options_of(value).items() if v not in (None, "")}
    options = _phrase(fields, list(fields))
    return f"{ingredient_name(value)} ({options})" if options else ingredient_name(value)


def title_of(runs: list[Run]) -> str:
    """Dataset, partition, clients, cohort, model and changed training, as far as all runs share them.

    Partition and model stand with their options: a paper's network often has two readings, such as `seolkim_cnn (pools
    2)`.
    """
    facts = []
    for c in (run.config for run in runs):
        clients, cohort, tail = map(c.get, HEADED)
        division = [f"long tail {tail:g}" if tail else "", _with_options(c.get("partition"))]
        who = [plural(clients, "client") if clients else "", f"cohort {cohort}" if cohort else ""]
        facts.append([ingredient_name(c.get("data")), *division, *who, _with_options(c.get("model"))])
    shared = [column[0] for column in zip(*facts, strict=True) if len(set(column)) == 1 and column[0]]
    training = _shared(runs)
    shared += [phrase] if (phrase := _phrase(training, list(training))) else []
    return ", ".join(shared) or plural(len(runs), "run")
