"""From the words of a command line to an experiment: names come from our tables, fields are parsed by their type."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedskew.config.experiment import TABLES, Experiment, load, make, method_named
from fedskew.errors import ConfigError
from fedskew.fields import documented, kind_of
from fedskew.method import SLOTS, Method, renamed
from fedskew.methods import METHODS

__all__ = ["Option", "experiment_from", "options_of", "split"]

ALIASES = {
    "--epochs": "--pace.epochs",
    "--batch-size": "--pace.batch_size",
    "--lr": "--pace.lr",
    "--lr.decay": "--pace.decay",
    "--momentum": "--local.momentum",
    "--weight-decay": "--local.weight_decay",
    "--clip": "--local.clip",
    "--server-lr": "--server.lr",
    "--eval.every": "--eval-every",
    "--eval.personal": "--personal-every",
    "--checkpoint.every": "--checkpoint-every",
    "--data.path": "--path",
    "--diagnose": "--diagnose.names",
}
RUN = {
    "clients": "number of clients (default 100, or what a natural partition holds)",
    "cohort": "clients of a round (default 10)",
    "rounds": "rounds (default 100)",
    "longtail": "imbalance factor n_max / n_min >= 1 of the global training set",
    "validation": "fraction of the training set held out before the partition, for val_* metrics",
    "auxiliary": "rows of each class that the server holds, taken before the partition",
    "seed": "seed of data, weights and every draw",
    "engine": "sequential, threaded, batched, debug or auto",
    "threads": "threads that train and evaluate; 0: one a core",
    "device": "cpu, cuda or cuda:NUMBER",
    "dtype": "float32, float64 or bfloat16, of parameters and everything else",
    "precision": "of products inside the network: float32, tf32 (on a GPU) or bfloat16 (autocast)",
    "memory": "what clients keep between rounds: on the device, in ram, or on disk (a file of the run folder)",
    "eval_every": "rounds between evaluations",
    "personal_every": "rounds between evaluations of the clients' own models; 0: after the last round",
    "checkpoint_every": "rounds between checkpoints; 0: none but the last",
    "path": "file or folder of the dataset (else FEDSKEW_DATA, else the cache)",
}
SLOTTED = ("data", "partition", "model", *SLOTS)
ELSEWHERE = {
    "--from": "a run folder or its config.json",
    "--resume": "a run folder",
    "--out": "a folder, or a picture's file",
    "--figure": "a figure of docs/figures.md",
}


@dataclass(frozen=True)
class Option:
    """One flag: where its value goes and how it is read."""

    flag: str
    place: tuple[str, ...]  # ("weighting", "beta") or ("rounds",)
    type: Any
    default: Any
    help: str


def split(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """(positional words, [(flag, value)]) of ``--flag value`` and ``--flag=value``; no flag twice.

    Raises ConfigError for a flag without its value or given again, and for one with a single dash.
    """
    positional: list[str] = []
    flags: dict[str, tuple[str, str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            positional.append(word)
            continue
        flag, equals, value = word.partition("=")
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise ConfigError(f"{flag} must be followed by a value{_wanted(flag, positional)}")
        full = ALIASES.get(flag, flag)
        if full in flags:
            before = " ".join(flags[full])
            raise ConfigError(f"{flag} must be given once; got {before!r} and {f'{flag} {value}'!r}")
        flags[full] = flag, value
    for word in positional:
        if word.startswith("-"):
            raise ConfigError(f"unknown option {word!r}; did you mean {'-' + word!r}?")
    return positional, list(flags.values())


def _wanted(flag: str, positional: list[str]) -> str:
    """What a flag wants, as far as it is known before the composition is."""
    if _is_name(flag):
        slot = flag[2:].removesuffix(".base")
        return f", one of {', '.join(table_names(slot))}"
    if flag in ELSEWHERE:
        return f", {ELSEWHERE[flag]}"
    method = positional[0] if positional and positional[0] in METHODS else "fedavg"
    found = {o.flag: o for o in options_of(experiment_from([method]))}.get(ALIASES.get(flag, flag))
    if found is None:
        return ""
    kind = "commas between" if typing.get_origin(found.type) is tuple else kind_of(found.type)
    return f", {kind}: {' '.join(found.help.split())}"


def experiment_from(words: list[str]) -> Experiment:
    """The experiment that a command line names. Raises ConfigError with one line for every mistake."""
    positional, flags = split(words)
    if len(positional) > 1:
        raise ConfigError(f"one METHOD is run at a time; got {', '.join(positional)}")
    names = [(f, v) for f, v in flags if _is_name(f)]
    experiment = _begin(positional, [v for f, v in flags if f == "--from"])
    for flag, value in names:
        experiment = _choose(experiment, flag, value)
    table = {o.flag: o for o in options_of(experiment)}
    for flag, value in flags:
        if not _is_name(flag) and flag != "--from":
            experiment = _assign(experiment, _option(flag, table), flag, value)
    return experiment


def _is_name(flag: str) -> bool:
    return flag[2:] in (*SLOTTED, "parts", "weighting.base", "partition.base")


def _begin(positional: list[str], sources: list[str]) -> Experiment:
    if sources:
        experiment = load(sources[-1])
        return replace(experiment, method=method_named(positional[0])) if positional else experiment
    if not positional:
        raise ConfigError("name a METHOD (see `fedskew methods`), or give --from config.json or --resume RUN")
    return Experiment(method_named(positional[0]))


def _choose(experiment: Experiment, flag: str, value: str) -> Experiment:
    """Put the ingredient of this name into its slot; fields come later."""
    slot = flag[2:]
    if slot in ("data", "partition", "model"):
        return replace(experiment, **{slot: make(slot, value)})
    if slot == "partition.base":
        if not hasattr(experiment.partition, "base"):
            raise ConfigError(f"--partition.base must go with longtail; got {experiment.partition.name!r}")
        return replace(experiment, partition=replace(experiment.partition, base=make("partition", value)))
    method = experiment.method
    if slot == "parts":
        parts = tuple(make("parts", name) for name in value.split(",") if name and name != "none")
        return replace(experiment, method=_with_parts(method, parts))
    if slot == "weighting.base":
        outer: Any = method.weighting
        if not hasattr(outer, "base"):
            raise ConfigError(
                f"--weighting.base must go with a weighting that wraps another; got {method.weighting.name!r}"
            )
        return replace(experiment, method=method.with_("weighting", base=make("weighting", value)))
    return replace(experiment, method=method.with_(**{slot: make(slot, value)}))


def _with_parts(before: Method, parts: tuple[Any, ...]) -> Method:
    """The method with other parts, named after the method of the table: what records it must say so."""
    bare = before.name.partition("(")[0]
    after = before.with_(parts=parts)
    return after.with_(name=renamed(method_named(bare) if bare in METHODS else before, after.parts))


def options_of(experiment: Experiment) -> Iterator[Option]:
    """Every flag that this composition understands."""
    hints = typing.get_type_hints(Experiment)
    for name, text in RUN.items():
        yield Option(f"--{name.replace('_', '-')}", (name,), hints[name], getattr(experiment, name), text)
    for slot in ("data", "partition", "model"):
        yield from _fields(getattr(experiment, slot), (slot,))
    yield from _fields(experiment.diagnose, ("diagnose",))
    for slot, ingredient in experiment.method.slots.items():
        yield from _fields(ingredient, (slot,))
    for part in experiment.method.parts:
        yield from _fields(part, ("parts", part.name))


def _fields(ingredient: Any, place: tuple[str, ...]) -> Iterator[Option]:
    hints, texts = typing.get_type_hints(type(ingredient)), documented(type(ingredient))
    for f in dataclasses.fields(ingredient):
        value = getattr(ingredient, f.name)
        if dataclasses.is_dataclass(value):
            yield from _fields(value, (*place, f.name))
        else:
            yield Option(
                f"--{'.'.join((*place, f.name))}", (*place, f.name), hints[f.name], value, texts.get(f.name, "")
            )


def _option(flag: str, table: Mapping[str, Option]) -> Option:
    """The option of a flag, or the error that says what was meant."""
    full = ALIASES.get(flag, flag)
    if full in table:
        return table[full]
    slot, _, name = full[2:].partition(".")
    if flag in ALIASES and slot in SLOTS:
        raise ConfigError(f"{flag} has no meaning here: {slot} is set by an ingredient without {name!r}; see --help")
    own = [f for f in table if f.startswith(f"--{slot}.")]
    known = [*table, *ALIASES, *ELSEWHERE, *(f"--{s}" for s in (*SLOTTED, "parts") if not name or s != slot)]
    otherwise = "; see `fedskew run METHOD --help`"
    if name and slot in SLOTTED:
        otherwise = f": the {slot} of this run takes {', '.join(own) or 'no options'}"
    raise ConfigError(f"unknown option {flag!r}" + (_meant(full, known, table) or otherwise))


def _meant(flag: str, known: list[str], table: Mapping[str, Option]) -> str:
    """ "; did you mean ...?": the same ending here, or in an ingredient that is not chosen; else a near flag."""
    slot, _, end = flag[2:].rpartition(".")
    same = [f for f in table if f.rpartition(".")[2] == end]
    if same:
        return f"; did you mean {' or '.join(map(repr, same))}?"
    near = difflib.get_close_matches(flag, known, n=1, cutoff=0.6)
    elsewhere = [(s, n) for s in (*SLOTTED, "parts") for n, k in TABLES[s].items() if end in _names(k)]
    if elsewhere and not (near and difflib.SequenceMatcher(None, flag, near[0]).ratio() > 0.8):
        elsewhere.sort(key=lambda place: place[0] != slot)
        told = [
            f"--{s}.{n}.{end} with --{s} {n}" if s == "parts" else f"--{s}.{end} with --{s} {n}" for s, n in elsewhere
        ]
        return f"; did you mean {', or '.join(told[:3])}?"
    return f"; did you mean {near[0]!r}?" if near else ""


def _names(kind: type) -> set[str]:
    return {f.name for f in dataclasses.fields(kind)}


def _assign(experiment: Experiment, option: Option, flag: str, text: str) -> Experiment:
    value = parse(flag, option.type, text)
    head, *rest = option.place
    if not rest:
        return replace(experiment, **{head: value})
    if head in (*SLOTS, "parts"):
        place = ".".join(option.place[:-1])
        return replace(experiment, method=experiment.method.with_(place, **{option.place[-1]: value}))
    return replace(experiment, **{head: _with(getattr(experiment, head), rest, value)})


def _with(ingredient: Any, place: list[str], value: Any) -> Any:
    name, *rest = place
    return replace(ingredient, **{name: _with(getattr(ingredient, name), rest, value) if rest else value})


def parse(flag: str, kind: Any, text: str) -> Any:
    """A word as a value of a field's type, by jsonargparse. Raises ConfigError: flag, rule, value got, suggestion."""
    from jsonargparse import ArgumentParser

    if kind in (str, str | None):
        return text
    if typing.get_origin(kind) is tuple:
        return tuple(parse(flag, typing.get_args(kind)[0], word.strip()) for word in text.split(",") if word.strip())
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=kind)
    try:
        return parser.parse_args([f"--value={text}"]).value
    except Exception:
        choices = [str(a) for a in typing.get_args(kind)] if typing.get_origin(kind) is typing.Literal else []
        near = difflib.get_close_matches(text, choices, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"{flag} must be {kind_of(kind)}; got {text!r}{hint}") from None


def table_names(slot: str) -> list[str]:
    """The names that a slot takes."""
    return sorted(TABLES[slot])
