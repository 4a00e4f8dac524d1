"""Trackers: a run in TensorBoard, or in one of your own, while it trains; names of `__all__` stay, all else may change.

A tracker goes where `fedskew.run` takes ``on_round``. Any object with the same three methods is one: ``begin(config)``,
the call with each round's row, and ``end(summary)``. `numbers` and `flat` give what most packages take.
"""

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedskew.errors import ConfigError, install, require, unknown

# What all share


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
            raise ConfigError(f"tracking by {self.name} needs its package: {install('track')}")
        self._tracks: bool | None = None  # whether nothing has failed since a run began; None before the first one
        self._labels: list[str] = []
        self.note: Callable[[str], None] = _warn  # told once what fails

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
        """A round is done. Raises ConfigError where no run has begun: a tracker inside of a function is not told."""
        if self._tracks is None:
            hint = "give it to fedskew.run as on_round itself, beside functions by fedskew.track.several"
            raise ConfigError(f"{self.name} must be told that a run begins before its rounds; {hint}")
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
            message = f"{self.name} failed; the run continues without it: {type(error).__name__}: {why}"
            self.note(message)

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
                listener.begin(deepcopy({**config, **({"name": self.name} if self.name else {})}))

    def again(self, row: Row) -> None:
        """Tell trackers alone of a round that was done before the run was resumed."""
        for listener in self.listeners:
            if hasattr(listener, "begin"):
                listener(deepcopy(row))

    def __call__(self, row: Row) -> None:
        """Tell all of a round."""
        for listener in self.listeners:
            listener(deepcopy(row))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Tell those that want to know that the run ended."""
        for listener in self.listeners:
            if hasattr(listener, "end"):
                listener.end(deepcopy(dict(summary)))


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
    elif isinstance(value, list | tuple) and all(isinstance(element, Mapping) for element in value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{inner.get('name', i)}")
    elif isinstance(value, list | tuple):
        yield path, str(list(value))[:500]
    else:
        yield path, value


def run_name(config: Mapping[str, Any]) -> str:
    """What a tracker calls a run: its name, in characters that every folder takes, else that of its own folder.

    Example:
        >>> run_name({"name": "fedavg, path /x/y.npz"}), run_name({"folder": "runs/a"}), run_name({"folder": ""})
        ('fedavg, path _x_y.npz', 'a', 'run')
    """
    name = re.sub(r"[^\w .,()=+-]", "_", str(config.get("name", "")), flags=re.ASCII)[:NAME].strip(" .")
    return name or Path(config.get("folder") or "run").name


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=5)


def _apart(names: Sequence[str]) -> list[str]:
    """Names of classes as every tracker takes them, different from each other."""
    plain = [re.sub(r"[^\w .-]", "_", name, flags=re.ASCII).strip() or str(c) for c, name in enumerate(names)]
    repeated = {name for name in plain if plain.count(name) > 1} if len(set(plain)) < len(plain) else set()
    return [f"{name} {c}" if name in repeated else name for c, name in enumerate(plain)]


def _installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


# The packages


class TensorBoard(Tracker):
    """A tracker that writes event files for TensorBoard.

    Args:
        folder: where they go, in a folder for each run; ``tensorboard --logdir FOLDER`` shows all of them.

    Raises:
        ConfigError: the package tensorboard is not installed.

    Example:
        >>> import fedskew as fs
        >>> tracker = fs.track.tensorboard("events")  # doctest: +SKIP
        >>> fs.run(fed, fs.methods.fedavg(), rounds=3, on_round=tracker)  # doctest: +SKIP
    """

    name, packages = "TensorBoard", ("tensorboard",)

    def __init__(self, folder: str | Path = "track/tensorboard") -> None:
        super().__init__()
        self.folder = Path(folder)
        self._writer: Any = None

    def _begin(self, config: Row) -> None:
        board: Any = import_module("torch.utils.tensorboard")
        place = self.folder / f"{run_name(config)}-{str(config['run'])[:8]}"
        # TensorBoard hides what an earlier file of the folder says of these steps: they are told again
        self._writer = board.SummaryWriter(str(place), purge_step=0, flush_secs=10)
        plain = {name: v if isinstance(v, bool | int | float | str) else str(v) for name, v in flat(config).items()}
        for part in board.summary.hparams(plain, {"accuracy": 0.0}):
            self._writer.file_writer.add_summary(part)

    def _round(self, number: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def _end(self, summary: Row) -> None:
        self._writer.close()


__all__ = ["TRACKERS", "Named", "Several", "Tracker", "flat", "named", "numbers", "several", "tensorboard"]


tensorboard = TensorBoard
TRACKERS: dict[str, Callable[..., Tracker]] = {"tensorboard": tensorboard}
OTHERS = ("mlflow", "wandb")  # the guide has their three lines


def several(*listeners: Callable[[dict[str, Any]], None]) -> Several:
    """Trackers and plain functions as one ``on_round``, called in their order.

    Example:
        >>> seen = []
        >>> both = several(seen.append, lambda row: None)
        >>> both({"round": 1}), seen
        (None, [{'round': 1}])
    """
    return Several(listeners)


@dataclass(frozen=True)
class Named:
    """Trackers by their names, as the command and studies have them: plain values, that a worker process can be told.

    Raises:
        ConfigError: a name that there is not or that is given twice, or a package that is not installed.
    """

    names: tuple[str, ...]
    folder: str | None = None
    """where their files go; unset: the folder track"""

    def __post_init__(self) -> None:
        """Check all of it now, where a mistake costs nothing."""
        for name in self.names:
            rule = f"be {', '.join(TRACKERS)}"
            require(name not in OTHERS, "track", rule, name, "docs/guide/tracking.md tracks by it in three lines")
            if name not in TRACKERS:
                raise unknown("tracker", name, TRACKERS)
        once = 0 < len(set(self.names)) == len(self.names)
        require(once, "track", "name each tracker once", ",".join(self.names))
        self.made()

    def made(self, note: Callable[[str], None] | None = None) -> list[Tracker]:
        """The trackers, new ones; ``note`` is told what fails later, which is warned of by default."""
        made = [TRACKERS[name](Path(self.folder or "track") / name) for name in self.names]
        for tracker in made:
            tracker.note = note or tracker.note
        return made


def named(names: str | Sequence[str], folder: str | Path | None = None) -> Named:
    """Trackers by name: what a study takes, whose runs train in other processes.

    Args:
        names: names of ``TRACKERS``, between commas or as a list.
        folder: where their files go; unset: the folder track.

    Raises:
        ConfigError: a name that there is not or that is given twice, or a package that is not installed.

    Example:
        >>> import fedskew as fs
        >>> study = fs.study(["fedavg", "fedla"], rounds=2, clients=5, store="store")
        >>> study.run(track=fs.track.named("tensorboard", "track"))  # doctest: +SKIP
    """
    listed = names.split(",") if isinstance(names, str) else names
    return Named(tuple(name.strip() for name in listed), None if folder is None else str(folder))
