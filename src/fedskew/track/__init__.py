"""Trackers: the rounds of a run in TensorBoard, MLflow or W&B while it trains.

A tracker goes where `fedskew.run` takes ``on_round``. Any object with the same three methods is one: ``begin(config)``,
the call with each round's row, and ``end(summary)``.
"""

import os
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

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
    # of the process while the package works, unless the user says otherwise
    variables: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self) -> None:
        """Raises ConfigError where the package is not installed."""
        if not any(_installed(package) for package in self.packages):
            raise ConfigError(f"tracking by {self.name} needs its package: {install('track')}")
        self._tracks: bool | None = None  # whether nothing has failed since a run began; None before the first one
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
            with warnings.catch_warnings(), environment(**self.variables):
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


# The packages


MODES = ("offline", "online", "disabled")  # of W&B
TAG = "fedskew.run"  # of MLflow, the run's own name: it is found again when the run is resumed
LAST = "wall_s"  # written last of a round: a round that has it is whole
ENDED = {"": "FINISHED", "interrupted": "KILLED", "time limit": "KILLED"}
MOST = 100  # parameters of a batch
LONGEST = 500  # characters of a parameter


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
        place = self.folder / f"{name_of(config)}-{str(config['run'])[:8]}"
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


class MLflow(Tracker):
    """A tracker that writes to an MLflow store.

    Args:
        uri: a folder, or the address of a server or database; unset: MLFLOW_TRACKING_URI, else track/mlruns.
        experiment: name of the experiment, made where there is none.

    Raises:
        ConfigError: neither mlflow-skinny nor mlflow is installed.

    Example:
        >>> import fedskew as fs
        >>> tracker = fs.track.mlflow("mlruns")  # doctest: +SKIP
        >>> fs.run(fed, fs.methods.fedavg(), rounds=3, on_round=tracker)  # doctest: +SKIP
    """

    name, packages = "MLflow", ("mlflow",)
    variables = MappingProxyType({"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"})

    def __init__(self, uri: str | Path | None = None, experiment: str = "fedskew") -> None:
        super().__init__()
        text = str(uri or os.environ.get("MLFLOW_TRACKING_URI") or "track/mlruns")
        self.uri = text if "://" in text or text.startswith("databricks") else Path(text).resolve().as_uri()
        self.experiment = experiment
        self._package: Any = None
        self._client: Any = None
        self._run, self._last = "", 0
        self._half: set[str] = set()  # metrics of a round that a kill left half written

    def _prepare(self) -> None:
        """The store and the experiment: two processes that make them at the same time make two, or half of one."""
        self._opened()

    def _opened(self) -> str:
        """Open the store; the number of the experiment, which is made where there is none."""
        self._package = import_module("mlflow")
        self._client = self._package.MlflowClient(tracking_uri=self.uri)
        found = self._client.get_experiment_by_name(self.experiment)
        return str(found.experiment_id if found else self._client.create_experiment(self.experiment))

    def _begin(self, config: Row) -> None:
        place = self._opened()
        before = self._client.search_runs([place], f"tags.`{TAG}` = '{config['run']}'", max_results=1)
        if before:
            self._run, known = before[0].info.run_id, before[0].data.params
            self._client.update_run(self._run, "RUNNING")
            steps = {key: self._steps(key) for key in {*before[0].data.metrics, LAST}}
            self._last = max(steps[LAST], default=0)
            self._half = {key for key, written in steps.items() if self._last + 1 in written}
        else:
            made = self._client.create_run(place, tags={TAG: str(config["run"])}, run_name=name_of(config))
            self._run = made.info.run_id
            known, self._last, self._half = {}, 0, set()
        told = {name: str(value)[:LONGEST] for name, value in flat(config).items()}
        params = [self._package.entities.Param(name, value) for name, value in told.items() if name not in known]
        for i in range(0, len(params), MOST):
            self._client.log_batch(self._run, params=params[i : i + MOST])
        for name, value in told.items():  # a parameter never changes, but a resumed run may have more rounds
            if name in known and known[name] != value:
                self._client.set_tag(self._run, name, value)

    def _round(self, number: int, values: dict[str, float]) -> None:
        if number <= self._last:
            return
        now = int(time.time() * 1000)
        metric = self._package.entities.Metric
        ordered = sorted(((k, v) for k, v in values.items() if k not in self._half), key=lambda item: item[0] == LAST)
        self._client.log_batch(self._run, metrics=[metric(name, value, now, number) for name, value in ordered])
        self._last, self._half = number, set()

    def _steps(self, key: str) -> set[int]:
        """The rounds in which a metric was written."""
        return {metric.step for metric in self._client.get_metric_history(self._run, key)}

    def _end(self, summary: Row) -> None:
        self._client.set_terminated(self._run, ENDED.get(str(summary.get("stopped", "")), "FAILED"))


class WandB(Tracker):
    """A tracker that writes a run of Weights & Biases, offline unless you say otherwise.

    Args:
        folder: where its files go; ``wandb sync FOLDER/wandb/offline-run-...`` sends them when you want that.
        project: name of the project.
        mode: "offline", "online" or "disabled"; unset: WANDB_MODE, else offline.

    Raises:
        ConfigError: the package wandb is not installed, or ``mode`` is something else.

    Example:
        >>> import fedskew as fs
        >>> tracker = fs.track.wandb("track")  # doctest: +SKIP
        >>> fs.run(fed, fs.methods.fedavg(), rounds=3, on_round=tracker)  # doctest: +SKIP
    """

    name, packages = "W&B", ("wandb",)
    variables = MappingProxyType({"WANDB_ERROR_REPORTING": "false"})

    def __init__(self, folder: str | Path = "track", project: str = "fedskew", mode: str | None = None) -> None:
        super().__init__()
        self.folder, self.project = Path(folder), project
        self.mode = mode or os.environ.get("WANDB_MODE") or "offline"
        require(self.mode in MODES, "mode", f"be one of {', '.join(MODES)}", self.mode)
        self._run: Any = None
        self._from = 0

    def _begin(self, config: Row) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        package: Any = import_module("wandb")
        # what is said of the machine is in env.json; nothing that the user prints is recorded
        quiet = package.Settings(
            console="off", silent=True, disable_git=True, save_code=False, x_disable_stats=True,
            x_disable_meta=True,
        )  # fmt: skip
        self._run = package.init(
            project=self.project, id=str(config["run"]), name=name_of(config),
            dir=str(self.folder), mode=self.mode, resume="allow", config=flat(config), settings=quiet,
            reinit="create_new", allow_val_change=True,
        )  # fmt: skip
        self._from = self._run.step if self.mode == "online" else 0  # offline files are whole, each by itself

    def _round(self, number: int, values: dict[str, float]) -> None:
        if number >= self._from:
            self._run.log(values, step=number)

    def _end(self, summary: Row) -> None:
        self._run.summary.update({n: v for n, v in summary.items() if isinstance(v, int | float | str)})
        self._run.finish(exit_code=0 if str(summary.get("stopped", "")) in ("", "time limit", "interrupted") else 1)


__all__ = ["TRACKERS", "Named", "Several", "Tracker", "mlflow", "named", "several", "tensorboard", "wandb"]


tensorboard, mlflow, wandb = TensorBoard, MLflow, WandB
TRACKERS: dict[str, Callable[..., Tracker]] = {"mlflow": mlflow, "tensorboard": tensorboard, "wandb": wandb}


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
    """where their files go; unset: the folder track, and for MLflow what MLFLOW_TRACKING_URI says"""

    def __post_init__(self) -> None:
        """Check all of it now, where a mistake costs nothing."""
        for name in self.names:
            if name not in TRACKERS:
                raise unknown("tracker", name, TRACKERS)
        once = 0 < len(set(self.names)) == len(self.names)
        require(once, "track", "name each tracker once", ",".join(self.names))
        self.made()

    def made(self, note: Callable[[str], None] | None = None) -> list[Tracker]:
        """The trackers, new ones; ``note`` is told what fails later, which is warned of by default."""
        place = Path(self.folder or "track")
        store = None if self.folder is None and os.environ.get("MLFLOW_TRACKING_URI") else place / "mlruns"
        given = {"tensorboard": place / "tensorboard", "mlflow": store, "wandb": place}
        made = [TRACKERS[name](given[name]) for name in self.names]
        for tracker in made:
            tracker.note = note or tracker.note
        return made

    def prepare(self) -> None:
        """Make what several processes could not make at the same time. A failure is warned of, no more."""
        for tracker in self.made():
            tracker.prepare()


def named(names: str | Sequence[str], folder: str | Path | None = None) -> Named:
    """Trackers by name: what a study takes, whose runs train in other processes.

    Args:
        names: names of ``TRACKERS``, between commas or as a list.
        folder: where their files go; unset: the folder track, and for MLflow what MLFLOW_TRACKING_URI says.

    Raises:
        ConfigError: a name that there is not or that is given twice, or a package that is not installed.

    Example:
        >>> import fedskew as fs
        >>> study = fs.study(["fedavg", "fedla"], rounds=2, clients=5, store="store")
        >>> study.run(track=fs.track.named("tensorboard,mlflow", "track"))  # doctest: +SKIP
    """
    listed = names.split(",") if isinstance(names, str) else names
    return Named(tuple(name.strip() for name in listed), None if folder is None else str(folder))
