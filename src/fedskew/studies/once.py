"""One run from Python: a federation or the name of a dataset, a method or its name, and options by name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from torch import nn

from fedskew._run import Result, launch
from fedskew.config.experiment import DIVISION, Experiment
from fedskew.config.own import LoadedDataset
from fedskew.data import DATASETS, Federation
from fedskew.data.arrays import Dataset
from fedskew.errors import ConfigError, FieldError, UnknownOption, require
from fedskew.method import Method
from fedskew.methods import METHODS
from fedskew.models import Architecture
from fedskew.records.typed import Row
from fedskew.settings import Settings
from fedskew.studies.arguments import Entry, entry_of, full, keywords, options_of_table
from fedskew.studies.spec import made_of

if TYPE_CHECKING:
    from fedskew.config.keywords import RunOptions

OF_SPLIT = {*DIVISION, "data", "partition"}  # options that divide the data
OF_RUN = tuple(f.name for f in fields(Settings))


def run(
    fed: Federation | Dataset | str,
    method: Method | str = "fedavg",
    settings: Settings | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    model: str | Architecture | nn.Module = "mlp",
    head: str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    on_round: Callable[[Row], None] | None = None,
    config: Mapping[str, Any] | None = None,
    **more: Unpack[RunOptions],
) -> Result:
    """Train a method on a federation.

    Args:
        fed: the federation, from `fedskew.federate`; or a dataset or its name, which is divided as ``partition``,
            ``clients`` and the other options of ``fedskew run`` say.
        method: a name of the table, with options of its own in brackets, as "fedbal(weighting=uniform)"; a method of
            `fedskew.methods`, or a composition of your own.
        settings: how to train; `Settings()` by default.
        options: options by the names of the command, such as ``{"partition.alpha": 0.1}``.
        model: a name of `fedskew.models.MODELS`, one of its classes with options, or any ``nn.Module``.
        head: name of the classifier layer of your own module, for example ``"fc"``.
        out: run folder to write; None records nothing.
        resume: continue from the last checkpoint in ``out``; with more ``rounds`` than before, the run is extended.
        on_round: called with a copy of each round's row, as in ``rounds.jsonl``, after it is recorded. If it has
            methods ``begin(config)`` and ``end(summary)``, as the trackers of `fedskew.track`, these are called, too,
            and a resumed run passes all of its rounds again.
        config: data, model and method for ``config.json``; made from the arguments by default.
        **more: single fields of `Settings`, for example ``rounds=50, cohort=5, seed=1``, and the options of the command
            without dots, such as ``lr=0.05, epochs=2``; as `fedskew.study` takes them.

    Returns:
        The rounds, a summary, the trained parameters and the server's state.

    Raises:
        ConfigError: an option, the method or the model is wrong, before anything trains; ``rounds`` of a resumed run
            are fewer than its completed rounds, or differ although a component reads them; an option divides a
            federation, which is divided already.
        RecordError: the run folder cannot be written, or holds another run.
        TrainingError: a loss or the model is not finite. The record up to the round before is kept.

    Example:
        >>> import fedskew as fs
        >>> fs.run("digits", "fedavg", clients=10, model="logistic", rounds=3, cohort=5, lr=0.05)
        Result(rounds=3, accuracy=0.2618)
        >>> fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.3), clients=10, seed=0)
        >>> fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=3, cohort=5)
        Result(rounds=3, accuracy=0.3621)
    """
    of_run = {name: value for name, value in more.items() if name in OF_RUN}
    given = keywords(options or {}, {name: value for name, value in more.items() if name not in OF_RUN})
    beside: dict[str, Any] = {"head": head, "out": out, "resume": resume, "on_round": on_round}
    if isinstance(fed, Federation) and isinstance(method, Method) and not given:
        return launch(fed, method, (settings or Settings()).with_options(of_run), model=model, config=config, **beside)
    entry = Entry(method) if isinstance(method, Method) else entry_of(method)
    pairs = list(options_of_table(given, "options"))
    _check(fed, [option for option, _ in (*pairs, *entry.options)], config)
    if not isinstance(fed, Federation):
        pairs.append(("data", LoadedDataset(fed) if isinstance(fed, Dataset) else fed))
    if not isinstance(model, nn.Module):
        pairs.append(("model", model))
    with _by_keyword():
        experiment = made_of(entry, pairs)
    chosen = _chosen(experiment, settings).with_options(of_run)
    network = model if isinstance(model, nn.Module) else experiment.model
    if isinstance(fed, Federation):
        return launch(fed, experiment.method, chosen, model=network, config=config, **beside)
    return replace(experiment, model=network, **{name: getattr(chosen, name) for name in OF_RUN}).run(**beside)


def _check(fed: Any, options: Sequence[str], config: object) -> None:
    """Raise ConfigError for a first argument that is none, and for what does not go with it."""
    if isinstance(fed, Federation):
        hint = "fs.federate takes it; or pass a dataset or its name in the place of the federation"
        for option in options:
            divides = full(option).partition(".")[0].replace("-", "_") in OF_SPLIT
            require(not divides, option, "not go with a federation, which is divided already", option, hint)
        return
    swapped = isinstance(fed, str) and fed not in DATASETS and fed in METHODS
    hint = f'the dataset comes first: fs.run("digits", "{fed}")' if swapped else ""
    require(isinstance(fed, str | Dataset) and not hint, "fed", "be a federation, a dataset or its name", fed, hint)
    require("data" not in options, "data", "be given once, as the first argument", "data")
    require(config is None, "config", "go with a federation", config)


def _chosen(experiment: Experiment, settings: Settings | None) -> Settings:
    """The settings of the options, with those of an object that differ from its defaults."""
    if settings is None:
        return experiment.settings
    plain = Settings()
    given = {n: v for n in OF_RUN if (v := getattr(settings, n)) != getattr(plain, n)}
    return replace(experiment.settings, **given)


@contextmanager
def _by_keyword() -> Iterator[None]:
    """Name options in a message as Python passes them: ``did you mean 'lr'?``, not ``--lr``."""
    try:
        yield
    except FieldError:
        raise
    except ConfigError as error:
        head, see, rest = str(error).partition("; see `fedskew")  # the command's help is read in a terminal
        message = re.sub(r"--([a-z][\w.-]*)", lambda match: match[1].replace("-", "_"), head) + see + rest
        if isinstance(error, UnknownOption):
            message = message.replace("unknown option", "run() has no option", 1)
        raise ConfigError(message) from None


def _signature() -> inspect.Signature:
    """`run`'s signature with the fields of `Settings` before ``**more``, for help and completion."""
    *written, more = PLAIN.parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    given = [inspect.Parameter(f.name, kind, default=f.default, annotation=f.type) for f in fields(Settings)]
    return inspect.Signature([*written, *given, more], return_annotation=Result)


PLAIN = inspect.signature(run)
run.__signature__ = _signature()  # type: ignore[attr-defined]
