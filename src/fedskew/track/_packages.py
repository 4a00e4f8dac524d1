"""The trackers of three packages, each imported when a run begins."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from fedskew.errors import require
from fedskew.track._base import Row, Tracker, environment, flat, name_of

__all__ = ["MLflow", "TensorBoard", "WandB"]

MODES = ("offline", "online", "disabled")  # of W&B
TAG = "fedskew.run"  # of MLflow, the run's own name: it is found again when the run is resumed
LAST = "wall_s"  # written last of a round: a round that has it is whole
ENDED = {"": "FINISHED", "interrupted": "KILLED", "time limit": "KILLED"}
MOST = 100  # parameters of a batch
LONGEST = 500  # characters of a parameter
SET = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}  # unless the user says otherwise


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

    def __init__(self, uri: str | Path | None = None, experiment: str = "fedskew") -> None:
        super().__init__()
        text = str(uri or os.environ.get("MLFLOW_TRACKING_URI") or "track/mlruns")
        self.uri = text if "://" in text or text.startswith("databricks") else Path(text).resolve().as_uri()
        self.experiment = experiment
        self._package: Any = None
        self._client: Any = None
        self._run, self._last = "", 0

    def _prepare(self) -> None:
        """The store and the experiment: two processes that make them at the same time make two, or half of one."""
        with environment(**SET):
            self._opened()

    def _opened(self) -> str:
        """Open the store; the number of the experiment, which is made where there is none."""
        self._package = import_module("mlflow")
        self._client = self._package.MlflowClient(tracking_uri=self.uri)
        found = self._client.get_experiment_by_name(self.experiment)
        return str(found.experiment_id if found else self._client.create_experiment(self.experiment))

    def _begin(self, config: Row) -> None:
        with environment(**SET):
            place = self._opened()
            before = self._client.search_runs([place], f"tags.`{TAG}` = '{config['run']}'", max_results=1)
            if before:
                self._run, known = before[0].info.run_id, before[0].data.params
                self._client.update_run(self._run, "RUNNING")
                self._last = max((m.step for m in self._client.get_metric_history(self._run, LAST)), default=0)
            else:
                made = self._client.create_run(place, tags={TAG: str(config["run"])}, run_name=name_of(config))
                self._run = made.info.run_id
                known, self._last = {}, 0
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
        ordered = sorted(values.items(), key=lambda item: item[0] == LAST)
        with environment(**SET):
            self._client.log_batch(self._run, metrics=[metric(name, value, now, number) for name, value in ordered])
        self._last = number

    def _end(self, summary: Row) -> None:
        with environment(**SET):
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

    def __init__(self, folder: str | Path = "track", project: str = "fedskew", mode: str | None = None) -> None:
        super().__init__()
        self.folder, self.project = Path(folder), project
        self.mode = mode or os.environ.get("WANDB_MODE") or "offline"
        require(self.mode in MODES, "mode", f"be one of {', '.join(MODES)}", self.mode)
        self._run: Any = None
        self._from = 0

    def _begin(self, config: Row) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with environment(WANDB_ERROR_REPORTING="false"):
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
