"""Tables of names, and experiments as values that go to JSON and back. A file holds table names, never class paths."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedskew import methods
from fedskew._run import DTYPES, MEMORIES, Result, check_device, run
from fedskew.component import SLOTS, spec
from fedskew.data import DATASETS, Federation, federate
from fedskew.data.partitioners import PARTITIONERS
from fedskew.errors import ConfigError, FedskewError, FieldError, RecordError, require, unknown
from fedskew.fields import fits, kind_of
from fedskew.method import Method, method_spec
from fedskew.models.architectures import MODELS, Architecture
from fedskew.models.precision import check_precision
from fedskew.records.diagnostics import Diagnostics
from fedskew.slots import INGREDIENTS

__all__ = ["TABLES", "Experiment", "check_device", "load", "make", "method_named", "to_json"]

OPTIONAL = ("data", "partition", "model")
FLAGS = {"eval_every": "--eval.every", "personal_every": "--eval.personal", "checkpoint_every": "--checkpoint.every"}
LEAST = {
    "clients": 1,
    "cohort": 1,
    "rounds": 1,
    "eval_every": 1,
    "checkpoint_every": 0,
    "personal_every": 0,
    "auxiliary": 0,
}
RECORDED = ("label_names", "engine_used", "engine_reason", "threads_used")  # what a run adds to its configuration
TABLES: dict[str, dict[str, Any]] = {  # slot -> name -> class; methods were imported above, so all are known
    "data": dict(DATASETS),
    "partition": dict(PARTITIONERS),
    "model": dict(MODELS),
    **INGREDIENTS,
}


def make(slot: str, spec: str | Mapping[str, Any], place: str = "") -> Any:
    """The ingredient of a slot from its name, or from {"name": ..., field: value}.

    Raises ConfigError; one about a field names its place in the file, "pace.lr" or "parts.proximal.mu".
    """
    require(isinstance(spec, str | Mapping), slot, 'be a name, or {"name": ..., field: value}', spec)
    fields = {} if isinstance(spec, str) else dict(spec)
    name = spec if isinstance(spec, str) else fields.pop("name", "")
    require(isinstance(name, str), f"the name of {slot}", "be a word", name)
    if name not in TABLES[slot]:
        raise unknown({"data": "dataset", "parts": "part"}.get(slot, slot), name, TABLES[slot])
    kind = TABLES[slot][name]
    known = [f.name for f in dataclasses.fields(kind)]
    for option in fields:
        if option not in known:
            raise unknown(f"option of {slot} {name!r}", option, known)
    place = place or (f"parts.{name}" if slot == "parts" else slot)
    if isinstance(fields.get("base"), Mapping):
        fields["base"] = make(slot, fields["base"], f"{place}.base")
    try:
        return kind(**fields)
    except FieldError as error:
        raise ConfigError(error.named(f"{place}.{error.field}")) from None


def method_named(name: str) -> Method:
    """The method of the table. Raises ConfigError for an unknown name."""
    if name not in methods.METHODS:
        raise unknown("method", name, methods.METHODS)
    return methods.METHODS[name]()


def method_from(content: Mapping[str, Any]) -> Method:
    """The inverse of `method_spec`."""
    require(isinstance(content, Mapping), "method", 'be {"name": ..., "parts": [...], slot: ...}', content)
    for key in content:
        if key not in (known := ("name", "parts", *SLOTS)):
            raise unknown("entry of method", key, known)
    name, listed = content["name"], content["parts"]
    require(isinstance(name, str), "the name of a method", "be a word", name)
    require(isinstance(listed, list), "parts", "be a list", listed)
    reference = method_named(named).reference if (named := name.partition("(")[0]) in methods.METHODS else ""
    parts = tuple(make("parts", p) for p in listed)
    return Method(name, parts, **{s: make(s, content[s]) for s in SLOTS}, reference=reference)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a run's numbers."""

    method: Method
    data: Any = field(default_factory=lambda: make("data", "digits"))
    partition: Any = field(default_factory=lambda: make("partition", "dirichlet"))
    model: Architecture = field(default_factory=lambda: make("model", "mlp"))
    path: str | None = None
    clients: int | None = None
    cohort: int | None = None
    rounds: int = 100
    longtail: float | None = None
    validation: float = 0.0
    auxiliary: int | None = None
    eval_every: int = 1
    personal_every: int = 0
    checkpoint_every: int = 10
    seed: int = 0
    engine: str = "auto"
    threads: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    precision: str = "float32"
    memory: str = "device"
    diagnose: Diagnostics = field(default_factory=Diagnostics)
    fingerprint: str = ""  # of the dataset that a configuration file was written for; "" takes any

    def __post_init__(self) -> None:
        """What can be known without data. Raises ConfigError."""
        for name, hint in typing.get_type_hints(Experiment).items():
            value, flag = getattr(self, name), FLAGS.get(name, f"--{name}")
            require(fits(value, hint), flag, f"be {kind_of(hint)}", value)
            require(
                name not in LEAST or value is None or value >= LEAST[name],
                flag,
                f"be at least {LEAST.get(name)}",
                value,
            )
        if self.dtype not in DTYPES:
            raise unknown("dtype", self.dtype, DTYPES)
        check_precision(self.precision, self.dtype, self.device)
        if self.memory not in MEMORIES:
            raise unknown("memory", self.memory, MEMORIES)

    def federation(self) -> Federation:
        """The data, divided. ``clients`` defaults to 100, or to what a natural partition holds."""
        clients = self.clients
        if clients is None and not self.partition.decides:
            clients = 100
        return federate(
            self.data.load(self.path), self.partition, clients=clients, seed=self.seed, longtail=self.longtail,
            validation=self.validation, auxiliary=self.rows_at_server,
        )  # fmt: skip

    @property
    def rows_at_server(self) -> int:
        """Auxiliary rows of a class: as asked for, or what the method's components want."""
        return max(c.auxiliary for c in self.method.components) if self.auxiliary is None else self.auxiliary

    def run(
        self, out: str | Path | None = None, *, resume: bool = False, on_round: Callable[..., None] | None = None
    ) -> Result:
        """Divide and train. ``cohort`` defaults to 10, or to all clients where there are fewer."""
        check_device(self.device)
        fed = self.federation()
        found = fed.dataset.fingerprint
        if self.fingerprint not in ("", found):
            raise RecordError(
                f"the data must be those of the configuration; fingerprint was {self.fingerprint}, is {found}"
            )
        cohort = min(10, fed.clients - len(fed.empty)) if self.cohort is None else self.cohort
        settled = replace(
            self, partition=fed.partitioner, clients=fed.clients, cohort=cohort, auxiliary=self.rows_at_server
        )
        return run(
            fed, self.method, model=self.model, rounds=self.rounds, cohort=cohort, seed=self.seed, engine=self.engine,
            threads=self.threads, device=self.device, dtype=self.dtype, precision=self.precision, memory=self.memory,
            eval_every=self.eval_every, personal_every=self.personal_every,
            checkpoint_every=self.checkpoint_every, out=out, resume=resume, on_round=on_round,
            diagnose=self.diagnose.names, diagnose_clients=self.diagnose.clients, diagnose_every=self.diagnose.every,
            config=settled.to_json(fed.dataset.fingerprint),
        )  # fmt: skip

    def to_json(self, fingerprint: str = "") -> dict[str, Any]:
        """Table names and fields; the dataset's fingerprint is there to be compared, not to be read back."""
        plain = {name: getattr(self, name) for name in _plain_names()}
        named = {slot: spec(getattr(self, slot)) for slot in OPTIONAL}
        asked = {"diagnose": self.diagnose.to_json()} if self.diagnose.names else {}  # else the file stays as it was
        return {"method": method_spec(self.method), **named, **plain, **asked, "fingerprint": fingerprint}


def _plain_names() -> list[str]:
    """Fields of an experiment that a file holds as they are."""
    return [f.name for f in dataclasses.fields(Experiment) if f.name not in ("method", "diagnose", *OPTIONAL)]


def load(path: str | Path) -> Experiment:
    """The experiment of a config.json, or of the run folder that holds one.

    Raises RecordError where it is none or was written by `fedskew.run`, ConfigError for unknown names and wrong types.
    """
    file = Path(path) / "config.json" if Path(path).is_dir() else Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise RecordError(f"{file} is not a configuration that the command wrote: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("method"), dict):
        raise RecordError(f"{file} is not a configuration that the command wrote: it names no method")
    if "engine_reason" in content and "engine" not in content:
        hint = "go on where it was started, by fedskew.run(fed, method, ..., out=FOLDER, resume=True)"
        raise RecordError(
            f"{file} is of a run that was started from Python, whose data and parts a file cannot name; {hint}"
        )
    try:
        return _experiment(content)
    except FieldError as error:
        raise ConfigError(f"{file}: {error}") from None
    except FedskewError as error:
        raise type(error)(f"{file}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{file} is not a configuration that the command wrote: {error!r}") from None


def _experiment(content: Mapping[str, Any]) -> Experiment:
    plain = _plain_names()
    for name in content:
        if name not in (known := ["method", "diagnose", *OPTIONAL, *plain, *RECORDED]):
            raise unknown("entry", name, known)
    named = {slot: make(slot, content[slot]) for slot in OPTIONAL}
    values = {n: content[n] for n in plain if n in content}
    if "diagnose" in content:
        values["diagnose"] = Diagnostics.from_json(content["diagnose"])
    if "engine_used" in content:
        values["engine"] = content["engine_used"]
        if content["engine_used"] == "batched":  # the only one that may round otherwise with another number
            values["threads"] = content.get("threads_used", 0)
    return Experiment(method_from(content["method"]), **named, **values)


def folder_of(experiment: Experiment, root: str | Path = "runs") -> Path:
    """runs/<method>-<hash of the configuration>, numbered where it is taken."""
    digest = hashlib.sha256(json.dumps(experiment.to_json(), sort_keys=True).encode()).hexdigest()[:6]
    base = Path(root) / f"{experiment.method.name.partition('(')[0]}-{digest}"
    taken = [base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 10_000))]
    return next(p for p in taken if not p.exists())


def to_json(content: Any) -> str:
    """Readable JSON."""
    try:
        return json.dumps(content, indent=1)
    except TypeError as error:
        raise ConfigError(f"the configuration holds a value that JSON cannot: {error}") from None
