"""An experiment as a value that goes to JSON and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from torch import nn

from fedskew._run import Result, launch
from fedskew.config.own import is_named, name_of, sources
from fedskew.config.tables import insist_on, make, method_from
from fedskew.data import Federation, federate
from fedskew.data.arrays import ClassOptions
from fedskew.errors import ConfigError, FedskewError, FieldError, RecordError, json_file, unknown
from fedskew.fields import recorded, unchecked
from fedskew.method import Method, former, method_spec
from fedskew.method.component import spec
from fedskew.models import architecture
from fedskew.records.diagnostics import Diagnostics
from fedskew.records.files import member
from fedskew.records.folder import check_config, check_format, current
from fedskew.settings import Division, Settings

NAMED = ("data", "partition", "model")  # what a name stands for beside the method
DIVISION = tuple([f.name for f in dataclasses.fields(Division)])
OF_CLASSES = tuple([f.name for f in dataclasses.fields(ClassOptions)])
CLIENTS = 100  # where neither the user nor the partition says how many
RECORDED = (  # what a run adds
    "format", "label_names", "engine_used", "engine_reason", "threads_used", "processors", "started_by", "sources",
    "disclosed", "own_data", "on_clients", "encoding", "frozen", "non_persistent", "histogram_noise",
)  # fmt: skip
RETIRED = ("eval_rows", "ray_sum")  # options of older records: what they changed was measures, and rounding


@dataclass(frozen=True)
class Experiment(Division, Settings):
    """Everything that decides a run's numbers, by names: what a configuration file holds and the command makes.

    Raises:
        FieldError: a value of another type, or beyond its limit.

    Example:
        >>> from fedskew.config.experiment import Experiment
        >>> from fedskew.methods import METHODS
        >>> experiment = Experiment(METHODS["fedavg"](), clients=10, rounds=2)
        >>> Experiment.from_json(experiment.to_json()) == experiment
        True
    """

    method: Method
    data: Any = field(default_factory=partial(make, "data", "digits"))
    partition: Any = field(default_factory=partial(make, "partition", "dirichlet"))
    model: Any = field(default_factory=partial(make, "model", "mlp"))
    fingerprint: str = ""  # of the dataset that a configuration file was written for; "" takes any

    def federation(self) -> Federation:
        """Load the data and divide them."""
        clients = self.clients
        if clients is None and not self.partition.decides:
            clients = CLIENTS
        seed = self.seed if self.seed_partition is None else self.seed_partition
        return federate(
            self.data.load(self.path), self.partition, clients=clients, seed=seed, longtail=self.longtail,
            validation=self.validation, auxiliary=self.rows_at_server, local_test=self.local_test,
            heldout_clients=self.heldout_clients,
        )  # fmt: skip

    @property
    def network(self) -> Any:
        """The architecture with the projection head that the method wants; a network of the user's own as it is."""
        return self.model if isinstance(self.model, nn.Module) else architecture(self.model, self.method.projection)

    @property
    def rows_at_server(self) -> int:
        """Auxiliary rows of a class: as asked for, or what the method's components want."""
        return max([c.auxiliary for c in self.method.components]) if self.auxiliary is None else self.auxiliary

    def run(
        self,
        out: str | Path | None = None,
        *,
        resume: bool = False,
        on_round: Callable[..., None] | None = None,
        on_note: Callable[[str], None] | None = None,
        federation: Federation | None = None,
        head: str | None = None,
    ) -> Result:
        """Divide the data and train. Arguments, result and errors are those of `fedskew.run`.

        ``on_note`` is called with what loading found out about data of the user's own, before anything trains.
        ``federation`` is what `federation` gives, where it is at hand.
        """

        def loaded() -> Federation:
            fed = federation or self.federation()
            for note in self.notes(fed) if on_note else ():
                on_note(note)  # type: ignore[misc]
            now = fed.dataset.fingerprint
            if (was := self.fingerprint) not in ("", now):
                raise RecordError(f"the data must be those of the configuration; fingerprint was {was}, is {now}")
            return fed

        return launch(
            loaded, self.method, self, model=self.model, head=head, out=out, resume=resume, on_round=on_round,
            config=self.resolved,
        )  # fmt: skip

    def resolved(self, fed: Federation, cohort: int) -> dict[str, Any]:
        """What a run on this federation records: `to_json`, with what was left open as it was decided."""
        decided = {
            "partition": fed.partitioner, "clients": fed.clients, "cohort": cohort, "auxiliary": self.rows_at_server,
            "model": self.network, "local_test": fed.local_test or 0.0,
            "heldout_clients": fed.heldout_clients or 0.0,
        }  # fmt: skip
        whole: Experiment = unchecked(Experiment, vars(self) | decided)
        return whole.to_json(fed.dataset.fingerprint)

    def notes(self, fed: Federation) -> tuple[str, ...]:
        """What loading found out about data of the user's own; a published set says its own by `describe`."""
        return () if hasattr(self.data, "verify") else fed.dataset.notes

    @property
    def settings(self) -> Settings:
        """The fields that `fedskew.run` takes."""
        made: Settings = unchecked(Settings, {f.name: getattr(self, f.name) for f in dataclasses.fields(Settings)})
        return made

    def to_json(self, fingerprint: str = "") -> dict[str, Any]:
        """Table names and fields; the dataset's fingerprint is there to be compared, not to be read back."""
        plain = {name: value for name, value in recorded(self).items() if name in DIVISION}
        named = {n: spec(value) for n in NAMED if not isinstance(value := getattr(self, n), nn.Module)}
        if isinstance(self.model, nn.Module):
            width = self.method.projection
            named["model"] = {"name": name_of(self.model), **({"projection": width} if width else {})}
        if not named["data"].get("classes"):  # all classes are kept, as in records that know no such option
            named["data"] = {name: value for name, value in named["data"].items() if name not in OF_CLASSES}
        more: dict[str, Any] = {"sources": digests} if (digests := sources(self)) else {}
        if more and not is_named(self):
            more = {"started_by": "python", **more}
        facts = {"method": method_spec(self.method), **named, **plain, **super().to_json(), "fingerprint": fingerprint}
        return {**facts, **more}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Experiment:
        """The inverse of `to_json`; what a run adds to its configuration decides the engine.

        Raises:
            ConfigError: an unknown entry or name, a missing entry, or a value that breaks a rule.
        """
        added = ("fingerprint", *RECORDED, *RETIRED)
        of_run = [f.name for f in dataclasses.fields(Settings)]
        known = ["method", *NAMED, *DIVISION, *of_run, *added]
        for name in content:
            if name not in known:
                raise unknown("entry", name, known)
        insist_on(content, "a configuration", "method", *NAMED)
        values = {n: content[n] for n in (*DIVISION, *of_run, "fingerprint") if n in content}
        if "diagnose" in values:
            values["diagnose"] = Diagnostics.from_json(values["diagnose"])
        if "engine_used" in content:
            used = content["engine_used"]
            values["engine"] = "sequential" if used == "flower" else used  # whose bits it has, without nodes
            if used in ("batched", "chained"):  # which may round otherwise with another number
                values["threads"] = content.get("threads_used", 0)
        named = {slot: make(slot, current(content)[slot]) for slot in NAMED}
        return Experiment(method_from(content["method"]), **named, **values)


def repeatable(config: Mapping[str, Any], what: str = "the run") -> Experiment:
    """The experiment of a record, which gives its numbers again.

    Raises RecordError where an ingredient had another formula or code then, and as `Experiment.from_json`.
    """
    experiment = Experiment.from_json(config)
    if change := renewed(config, experiment):
        raise RecordError(f"{what} has {change}; begin it again in another folder, with its options")
    return experiment


def renewed(config: Mapping[str, Any], experiment: Experiment) -> str:
    """What to say of a record with ingredients that compute something else in an experiment; "" where none does."""
    now, was = experiment.to_json(), config.get("sources", {})
    other = [name for name, source in now.get("sources", {}).items() if was.get(name, source) != source]
    if other:
        earlier = sources(experiment, earlier=True)
        other = [name for name in other if was[name] != earlier[name]]
    return former(current(config), now) or (f"other code of {other[0]!r} than is installed here" if other else "")


def load(path: str | Path) -> Experiment:
    """The experiment of a config.json, or of the run folder that holds one.

    Raises RecordError where it is none or was written by `fedskew.run`, ConfigError for unknown names and wrong types.
    """
    file = member(Path(path), "config.json") if Path(path).is_dir() else Path(path)
    try:
        content = json_file(file)
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise RecordError(f"{file} is not a configuration that the command wrote: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("method"), dict):
        raise RecordError(f"{file} is not a configuration that the command wrote: it has no method")
    if content.get("started_by") == "python":
        hint = "go on where it was started, by its study or by fedskew.run(fed, method, ..., out=FOLDER, resume=True)"
        raise RecordError(f"{file} is of a run that was started from Python, whose parts no file names; {hint}")
    if content.get("own_data"):
        hint = "`sh run.sh` in the folder of its app continues it"
        raise RecordError(f"{file} is of a run over Flower, whose nodes kept their rows; {hint}")
    check_format(content, file)
    if file.name == "config.json":
        check_config(file.parent)
    try:
        return Experiment.from_json(content)
    except FieldError as error:
        raise ConfigError(f"{file}: {error.named(error.field)}") from None
    except FedskewError as error:
        raise type(error)(f"{file}: {error}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{file} is not a configuration that the command wrote: {error!r}") from None


def new_folder(experiment: Experiment) -> Path:
    """runs/METHOD-HASH, by the hash of the configuration; numbered where that is taken."""
    digest = hashlib.sha256(json.dumps(experiment.to_json(), sort_keys=True).encode()).hexdigest()[:6]
    base = Path("runs", f"{experiment.method.name.partition('(')[0]}-{digest}")
    numbered = (base.with_name(f"{base.name}-{number}") for number in count(2))
    return next(folder for folder in chain([base], numbered) if not folder.exists())
