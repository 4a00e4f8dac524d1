"""MLflow: metrics and parameters in a store of runs."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from fedskew.track._base import Row, Tracker, environment, flat, name_of

__all__ = ["MLflow"]

TAG = "fedskew.run"  # the run's own name: it is found again when the run is resumed
LAST = "wall_s"  # written last of a round: a round that has it is whole
ENDED = {"": "FINISHED", "interrupted": "KILLED", "time limit": "KILLED"}
MOST = 100  # parameters of a batch
LONGEST = 500  # characters of a parameter
SET = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}  # unless the user says otherwise


class MLflow(Tracker):
    """See `fedskew.track.mlflow`."""

    name, packages = "MLflow", ("mlflow",)

    def __init__(self, uri: str | Path | None, experiment: str) -> None:
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
            self._client = None

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
        if self._client is None or number <= self._last:
            return
        now = int(time.time() * 1000)
        metric = self._package.entities.Metric
        ordered = sorted(values.items(), key=lambda item: item[0] == LAST)
        with environment(**SET):
            self._client.log_batch(self._run, metrics=[metric(name, value, now, number) for name, value in ordered])
        self._last = number

    def _end(self, summary: Row) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            with environment(**SET):
                client.set_terminated(self._run, ENDED.get(str(summary.get("stopped", "")), "FAILED"))
