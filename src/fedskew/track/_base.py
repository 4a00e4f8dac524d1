"""What all trackers share: which numbers a round has, and that no tracker ends a run."""

from __future__ import annotations

import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedskew.errors import ConfigError
from fedskew.tree import copied

__all__ = ["Several", "Tracker", "environment", "flat", "name_of", "numbers"]

Row = dict[str, Any]
LARGE = ("counts", "label_names")  # of a configuration: no hyper-parameters
OWN = ("run", "folder", "name")  # what `fedskew.run` and studies add to the configuration for trackers
NAME = 120  # characters of a run's name, fewer than any tracker takes


class Tracker(ABC):
    """Writes a run elsewhere while it trains.

    Give one to `fedskew.run` as ``on_round``. Where a package fails, the run goes on without it, and one warning says
    so. A run that is resumed is told all of its rounds again, so that none is missing and none is there twice.
    """

    name = ""
    packages: tuple[str, ...] = ()  # one of them must be installed

    def __init__(self) -> None:
        """Raises ConfigError where the package is not installed."""
        if not any(_installed(package) for package in self.packages):
            raise ConfigError(f"tracking by {self.name} needs its package: pip install 'fedskew[track]'")
        self._tracks = False  # whether a run has begun, and nothing has failed since
        self._labels: list[str] = []
        self.note: Callable[[str], None] = _warn  # told once what fails

    def prepare(self) -> None:
        """Make what several processes, each with a run of its own, could not make at the same time."""
        self._tracks = True
        self._safely(self._prepare)

    def begin(self, config: Mapping[str, Any]) -> None:
        """A run begins or is resumed.

        Args:
            config: Content of config.json; beside it ``run``, the run's own name, which stays when it is resumed, and
                ``folder``, its run folder or "". A run of a study has a ``name``, too.
        """
        self._tracks = True
        names = config.get("label_names") or ()
        self._labels = _apart([str(name) for name in names])
        self._safely(self._begin, dict(config))

    def __call__(self, row: Row) -> None:
        """A round is done."""
        self._safely(self._round, int(row["round"]), dict(numbers(row, self._labels)))

    def end(self, summary: Mapping[str, Any]) -> None:
        """The run ended, or was stopped; it may be resumed."""
        self._safely(self._end, dict(summary))
        self._tracks = False

    def _safely(self, work: Callable[..., None], *given: Any) -> None:
        """Do something; a failure is told once, and nothing more is tried for this run."""
        if not self._tracks:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the package: the user cannot mend what it deprecates
                work(*given)
        except (Exception, SystemExit) as error:
            self._tracks = False
            why = " ".join(str(error).split())[:300]
            told = f"{self.name} failed; the run continues without it: {type(error).__name__}: {why}"
            self.note(told)

    def _prepare(self) -> None:  # noqa: B027  most trackers have nothing to make
        pass

    @abstractmethod
    def _begin(self, config: Row) -> None: ...

    @abstractmethod
    def _round(self, number: int, values: dict[str, float]) -> None: ...

    @abstractmethod
    def _end(self, summary: Row) -> None: ...


class Several:
    """Trackers and functions that are told of the same rounds, each by a copy of its own.

    ``name`` is that of the run, if it has one: its method, setting and seed in a study.
    """

    def __init__(self, listeners: Sequence[Callable[[Row], None]], name: str = "") -> None:
        self.listeners, self.name = tuple(listeners), name

    def begin(self, config: Mapping[str, Any]) -> None:
        """Tell those that want to know that a run begins."""
        for listener in self.listeners:
            if hasattr(listener, "begin"):
                listener.begin(copied({**config, **({"name": self.name} if self.name else {})}))

    def again(self, row: Row) -> None:
        """Tell trackers alone of a round that was done before the run was resumed."""
        for listener in self.listeners:
            if hasattr(listener, "begin"):
                listener(copied(row))

    def __call__(self, row: Row) -> None:
        """Tell all of a round."""
        for listener in self.listeners:
            listener(copied(row))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Tell those that want to know that the run ended."""
        for listener in self.listeners:
            if hasattr(listener, "end"):
                listener.end(copied(dict(summary)))


def numbers(row: Mapping[str, Any], labels: Sequence[str] = ()) -> Iterator[tuple[str, float]]:
    """(name, value) of every number of a round; ``class/NAME`` is the recall of a class that has test rows.

    Example:
        >>> row = {"round": 3, "accuracy": 0.5, "per_class_recall": [0.9, 0.1], "support": [4, 0], "clients": [1]}
        >>> dict(numbers(row, ["cat", "dog"]))
        {'accuracy': 0.5, 'class/cat': 0.9}
    """
    for name, value in row.items():
        if name != "round" and isinstance(value, int | float) and not isinstance(value, bool):
            yield name, float(value)
    recalls = row.get("per_class_recall") or []
    support = row.get("support") or [1] * len(recalls)
    for c, (recall, count) in enumerate(zip(recalls, support, strict=True)):
        if count:
            yield f"class/{labels[c] if c < len(labels) else c}", float(recall)


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as hyper-parameters: plain values by dotted path, an element of a list by its name or place.

    Example:
        >>> flat({"rounds": 3, "method": {"name": "fedavg", "parts": [{"name": "ldam", "s": 30}]}, "run": "a"})
        {'rounds': 3, 'method.name': 'fedavg', 'method.parts.ldam.name': 'ldam', 'method.parts.ldam.s': 30}
    """
    return dict(_leaves({name: v for name, v in config.items() if name not in (*LARGE, *OWN)}))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{inner.get('name', i)}")
    elif isinstance(value, list | tuple):
        yield path, str(list(value))[:500]
    else:
        yield path, value


@contextmanager
def environment(**values: str) -> Iterator[None]:
    """Variables of this process that are set for a while, where the user has not set them."""
    mine = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)


def name_of(config: Mapping[str, Any]) -> str:
    """What a tracker calls a run: its name, in characters that every folder takes, else that of its own folder.

    Example:
        >>> name_of({"name": "fedavg, path /x/y.npz, seed 0"}), name_of({"folder": "runs/a"}), name_of({"folder": ""})
        ('fedavg, path _x_y.npz, seed 0', 'a', 'run')
    """
    name = re.sub(r"[^\w .,()=+-]", "_", str(config.get("name", "")), flags=re.ASCII)[:NAME].strip(" .")
    return name or Path(config.get("folder") or "run").name


def _warn(told: str) -> None:
    warnings.warn(told, RuntimeWarning, stacklevel=5)


def _apart(names: Sequence[str]) -> list[str]:
    """Names of classes as every tracker takes them, different from each other."""
    plain = [re.sub(r"[^\w .-]", "_", name, flags=re.ASCII).strip() or str(c) for c, name in enumerate(names)]
    twice = {name for name in plain if plain.count(name) > 1} if len(set(plain)) < len(plain) else set()
    return [f"{name} {c}" if name in twice else name for c, name in enumerate(plain)]


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
