"""What one run is, in words: how it ended, what differs from the defaults, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from fedskew.config.experiment import RECORDED, Experiment, repeatable
from fedskew.config.flags import experiment_from, experiment_of, options_of
from fedskew.config.words import flags_of
from fedskew.errors import FedskewError
from fedskew.method import SLOTS
from fedskew.methods import METHODS
from fedskew.studies.arguments import as_word, words_of

SLOTTED = ("data", "partition", "model", *SLOTS)


def changed_options(experiment: Experiment) -> list[tuple[str, str]]:
    """(option, value) of everything in which an experiment differs from its method's defaults, as typed without dashes.

    Names of ingredients come first: the options after them are those of these ingredients.

    Example:
        >>> from fedskew.config.flags import experiment_from
        >>> changed_options(experiment_from(["fedavg", "--weighting", "uniform", "--lr", "0.05", "--seed", "3"]))
        [('weighting', 'uniform'), ('seed', '3'), ('lr', '0.05')]
    """
    bare = experiment.method.name.partition("(")[0]
    if bare not in METHODS:
        return []
    plain, names = Experiment(METHODS[bare]()), list[tuple[str, str]]()
    if experiment.method.preset:
        names.append(("preset", experiment.method.preset))
    for slot in SLOTTED:
        now, before = _in(slot, experiment), _in(slot, plain)
        if now.name != before.name:
            names.append((slot, now.name))
        if hasattr(now, "base") and (now.name != before.name or now.base.name != before.base.name):
            names.append((f"{slot}.base", now.base.name))
    parts = [part.name for part in experiment.method.parts]
    if parts != [part.name for part in plain.method.parts]:
        names.append(("parts", ",".join(parts) or "none"))
    composed = experiment_of([bare], flags_of(names))
    usual = {option.flag: option.default for option in options_of(composed)}
    changed = [o for o in options_of(experiment) if o.flag not in usual or usual[o.flag] != o.default]
    return [*names, *((option.flags[0][2:], as_word(option.default)) for option in changed)]


def recorded_experiment(config: Mapping[str, Any]) -> Experiment:
    """The experiment of a recorded configuration as it was asked for, without what the run added to it.

    Raises:
        ConfigError: an entry is unknown or wrong. KeyError for one that is missing.
        RecordError: an ingredient had another formula then.
    """
    return repeatable({k: v for k, v in config.items() if k not in (*RECORDED, "fingerprint")})


def command_of(experiment: Experiment, folder: str) -> str:
    """The command that repeats a run: its own options, or ``--from`` where the options cannot say all of it."""
    words = [experiment.method.name.partition("(")[0], *words_of(changed_options(experiment))]
    try:
        if experiment_from(words).to_json() == experiment.to_json():
            return shlex.join(["fedskew", "run", *words])
    except FedskewError:
        pass
    return shlex.join(["fedskew", "run", *words_of([("from", folder)])])


def _in(slot: str, experiment: Experiment) -> Any:
    return getattr(experiment if slot in ("data", "partition", "model") else experiment.method, slot)
