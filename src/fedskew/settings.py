"""The options of a run, each declared once: type, limit, default, help and what it decides stand on its field.

`fedskew.run`, `Experiment`, the command's flags and help, the record of a run, its address, what resumes it and what
parts groups of runs all read these classes. To add an option, add a field here and read it where it acts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from fedskew.errors import ConfigError, FieldError, closest
from fedskew.fields import Above, AtLeast, AtMost, Within, check, deciding, option, recorded
from fedskew.records.diagnostics import Diagnostics
from fedskew.records.metrics import named
from fedskew.records.summary import TAIL

if TYPE_CHECKING:
    Monitor = str  # config/keywords.pyi names them where a user types
else:
    Monitor = Literal[tuple([f"val_{name}" for name in named(where="monitor")])]
Engine = Literal["auto", "sequential", "threaded", "batched", "chained", "debug", "ray", "flower"]
Precision = Literal["float32", "tf32", "bfloat16"]
DEVICE = re.compile(r"cpu|cuda(?::\d+)?")
COHORT = 10  # clients of a round where none are asked for
MOST_CLIENTS = 1000  # of a federation whose clients are measured although nobody asks for it
LARGE = 100_000_000  # bytes of a model whose mean over rounds is not measured unasked


class Evaluation(NamedTuple):
    """What is measured in which rounds of a run.

    An option is a number of rounds, which includes the last round, or a word for the rounds whose rows have the
    metrics: none, last (after the last round alone), tail (the last ten), every. A round is asked about with ``over``
    for what is measured after it once the run is over.
    """

    rounds: int
    when: Mapping[str, Any]  # by the name of the option

    def due(self, what: str, number: int, over: bool = False) -> bool:
        """Whether the round ``number`` measures what an option decides; where the run is ``over``, all but none."""
        when = self.when[what]
        if isinstance(when, int):
            return over or number == self.rounds or (when > 0 and number % when == 0)
        return when != "none" if over else when == "every" or (when == "tail" and number > self.rounds - TAIL)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a method is trained: everything that is neither data, model nor method.

    Raises:
        FieldError: a value of another type, beyond its limit, or at odds with another field.

    Example:
        >>> Settings(rounds=20, engine="threaded").rounds
        20
        >>> Settings(rounds=0)
        Traceback (most recent call last):
        fedskew.errors.FieldError: Settings.rounds must be at least 1; got 0
    """

    rounds: Annotated[int, AtLeast(1)] = option(100, decides="numbers", resume="new")
    """number of rounds"""
    cohort: Annotated[int, AtLeast(1)] | None = option(decides="numbers", resolved=True)
    """clients of a round, at most those that have rows; unset: the preset's share of the clients, else 10"""
    seed: int = option(0, decides="seed")
    """seed of the partition, the initial weights and all random draws"""
    seed_model: int | None = option(decides="seed", omit_if_default=True)
    """seed of the initial weights; unset: same as seed"""
    seed_clients: int | None = option(decides="seed", omit_if_default=True)
    """seed of the sequence of selected clients; unset: same as seed"""
    init_from: str | None = option(decides="numbers", resolved=True, omit_if_default=True)
    """run folder or .safetensors file with the initial weights; unset: the seed draws them"""
    init_digest: str = option("", decides="numbers", resolved=True, omit_if_default=True)
    """digest of the file of init_from, which a run records; another file raises an error; empty: not checked"""
    engine: Engine = option("auto", decides="bits", resume="free")
    """how clients are trained: one by one, on threads, in stacks, as chains of launches, with checks after every
    hook, on Ray, or by Flower"""
    threads: Annotated[int, AtLeast(0), AtMost(1024)] = option(0, decides="bits", resume="free")
    """threads for training and evaluation; 0: one per core"""
    device: str = option("cpu", decides="bits")
    """cpu, cuda or cuda:NUMBER"""
    dtype: Literal["float32", "float64", "bfloat16"] = option("float32", decides="numbers")
    """type of parameters and computations"""
    precision: Precision = option("float32", decides="numbers")
    """precision of matrix products in the network: float32, tf32 (on a GPU) or bfloat16 (autocast)"""
    deterministic: bool = option(True, decides="bits", omit_if_default=True)
    """whether convolutions on a GPU sum in a fixed order, so that a run repeats its bits; false is faster"""
    memory: Literal["device", "ram"] = option("device", decides="nothing")
    """where the clients' state is kept between rounds: on the device, or in ram"""
    eval_every: Annotated[int, AtLeast(1)] = option(1, decides="measures")
    """rounds between evaluations; the last round is always evaluated"""
    personal_every: Annotated[int, AtLeast(0)] = option(0, decides="measures")
    """rounds between evaluations of the clients' own models; 0: after the last round only"""
    served: Literal["none", "last", "tail", "every"] = option("last", decides="measures", omit_if_default=True)
    """when to test, on each client's own test rows, the model that it would use (its own if the method makes one, else
    the global model): none, last, tail (the last ten rounds), every"""
    clients_every: Annotated[int, AtLeast(1)] | None = option(decides="measures", omit_if_default=True)
    """rounds between evaluations of each client's model, written to clients.jsonl; unset: after the last round only, if
    there are at most 1,000 clients"""
    keep_own: bool = option(False, decides="nothing", resume="new", omit_if_default=True)
    """keep the clients' own models of the last round in the run folder, beside the global model"""
    scores: Literal["last", "every"] = option("last", decides="measures", omit_if_default=True)
    """when AUROC, AUPRC and calibration are computed: after the last round, or at every evaluation"""
    recall_at: Annotated[float, Within(0, 1, "(]")] = option(0.9, decides="measures", omit_if_default=True)
    """precision at which the recall of each class is measured"""
    fit_logits: Literal["none", "last", "tail", "every"] = option("last", decides="measures", omit_if_default=True)
    """which evaluations also have metrics with fitted biases and a temperature: none, last, tail (the last ten rounds),
    every; for the fit, clients send sums of loss, gradient and Hessian, and a class histogram; with dp client, the
    shares of their classes under the same noise, which cost what ten rounds cost"""
    average: Annotated[int, AtLeast(0)] = option(0, decides="numbers", omit_if_default=True)
    """number of last rounds whose models are averaged into the model that is evaluated and kept; training goes on from
    the last model; 0: no average"""
    average_decay: Annotated[float, Within(0, 1, "(]")] = option(1.0, decides="numbers", omit_if_default=True)
    """weight of a round's model relative to the next one in this average; 1: all count alike"""
    average_models: Literal["auto", "last", "every", "none"] = option("auto", decides="measures", omit_if_default=True)
    """when to test the mean of the models of the last ten rounds as well (averaged_*): last, every or none; it keeps
    ten models in memory, so auto is last for models of at most 100 MB, else none"""
    checkpoint_every: Annotated[int, AtLeast(0)] = option(10, decides="nothing")
    """rounds between checkpoints; 0: only after the last round"""
    monitor: Monitor | None = option(decides="numbers", omit_if_default=True)
    """validation metric; the model of its best round is kept beside the last one; unset: none"""
    patience: Annotated[int, AtLeast(1)] | None = option(decides="numbers", resume="new", omit_if_default=True)
    """evaluations without improvement of the monitored metric before the run ends; unset: no early stop"""
    max_minutes: Annotated[float, Above(0)] | None = option(decides="nothing", resume="new", omit_if_default=True)
    """minutes after which the run stops and can be resumed; no round starts that may exceed them; unset: no limit"""
    nonfinite: Literal["stop", "drop"] = option("stop", decides="numbers", omit_if_default=True)
    """what to do if a client's training is not finite: stop the run, or drop the client from the round"""
    secure: Literal["none", "sums"] = option("none", decides="numbers", omit_if_default=True)
    """what the server sees of clients: none, what each of them sends; sums, sums over the clients of a round alone, by
    a protocol of masks, which refuses methods that read more"""
    secure_threshold: Annotated[float, Within(0.5, 1, "(]")] = option(2 / 3, decides="nothing", omit_if_default=True)
    """share of the clients of a round that must stay until its last secure sum; with fewer the run stops"""
    histogram_epsilon: Annotated[float, Within(0.001, 1000, "[]")] | None = option(
        decides="numbers", omit_if_default=True
    )
    """epsilon of differential privacy with which each client tells its label histogram, once for the run; the server
    then knows no other row counts; unset: it knows the true ones"""
    dp: Literal["none", "client", "example"] = option("none", decides="numbers", omit_if_default=True)
    """differential privacy of the models, by clipping and noise: none, of each client's update, or of each row's
    gradient (example)"""
    dp_clip: Annotated[float, Above(0)] | None = option(decides="numbers", omit_if_default=True)
    """largest norm of a client's update, or of a row's gradient, over all parameters that train"""
    dp_noise: Annotated[float, AtLeast(0.1)] | None = option(decides="numbers", omit_if_default=True)
    """standard deviation of the noise on a sum, in units of dp_clip; unset: the least for dp_epsilon"""
    dp_epsilon: Annotated[float, Above(0)] | None = option(decides="numbers", omit_if_default=True)
    """largest epsilon of all rounds together; unset: what follows from dp_noise"""
    dp_delta: Annotated[float, Within(0, 1, "()")] = option(1e-5, decides="measures", omit_if_default=True)
    """delta of the guarantee, far below 1 / the number of clients or of rows"""
    ray_address: str | None = option(decides="nothing", resume="new", omit_if_default=True)
    """HOST:PORT of a Ray cluster, auto for one on this machine, local for a new one; unset: RAY_ADDRESS, else local"""
    ray_workers: Annotated[int, AtLeast(0)] = option(0, decides="nothing", resume="new", omit_if_default=True)
    """worker processes of engine ray; 0: as many as fit on the cluster"""
    ray_gpus: Annotated[float, Above(0)] = option(1.0, decides="nothing", resume="new", omit_if_default=True)
    """GPUs of each worker of engine ray, for example 0.25; only on a GPU"""
    diagnose: Diagnostics = option(Diagnostics(), decides="measures", resume="free")
    """diagnostics to record; they do not change the run"""

    def __post_init__(self) -> None:
        """Check every field, then the rules between fields."""
        if isinstance(self.init_from, Path):
            object.__setattr__(self, "init_from", str(self.init_from))
        check(self)
        self.demand("init_from", self.init_from != "", "name a run folder or a .safetensors file")
        self.demand("init_digest", not self.init_digest or bool(self.init_from), "be used with init_from")
        gpu = self.device.startswith("cuda")
        self.demand("precision", self.precision != "tf32" or gpu, "be float32 or bfloat16 without a GPU")
        alone, hint = self.monitor is None, "val_balanced_accuracy counts every class equally"
        self.demand("patience", not (alone and self.patience), "be used with a monitor", hint)
        self.demand("average_decay", self.average_decay == 1 or self.average > 1, "be 1 unless average is above 1")
        for name in ("dp_clip", "dp_noise", "dp_epsilon"):
            self.demand(name, self.dp != "none" or getattr(self, name) is None, "be used with dp")
        some = self.dp_noise is not None or self.dp_epsilon is not None
        hint = "for example 1" if some else "Settings.dp_noise or Settings.dp_epsilon must be given, too"
        self.demand("dp_clip", self.dp == "none" or self.dp_clip is not None, "be given with dp", hint)
        self.demand("dp_noise", self.dp == "none" or some, "be given with dp, or dp_epsilon in its place")
        plain = self.precision == "float32" or self.dtype == "float32"
        self.demand("precision", plain, f"be float32 with dtype {self.dtype}")

    def demand(self, field: str, holds: bool, rule: str, hint: str = "") -> None:
        """Raise FieldError unless a rule holds that no annotation can express: between fields, or with what is run."""
        if not holds:
            raise FieldError("Settings", field, rule, getattr(self, field), hint)

    def with_options(self, options: Mapping[str, Any]) -> Settings:
        """The same settings with other values, as `fedskew.run` takes them by keyword.

        Args:
            options: values by field name; ``diagnose`` may also be a name or a sequence of names.

        Raises:
            ConfigError: a name that is no field, with a suggestion; FieldError for a value that breaks a rule.
        """
        known = [f.name for f in dataclasses.fields(self)]
        for name in options:
            if name not in known:
                raise ConfigError(f"run() has no option {name!r}{closest(name, known)}")
        values = dict(options)
        if "diagnose" in values and not isinstance(values["diagnose"], Diagnostics):
            names = values["diagnose"]
            values["diagnose"] = Diagnostics((names,) if isinstance(names, str) else tuple(names))
        return replace(self, **values)

    def evaluation(self, clients: int = 0, model_bytes: int = 0) -> Evaluation:
        """What is measured when.

        Args:
            clients: clients of the federation, which decide where ``clients_every`` is unset.
            model_bytes: bytes of the model, which decide where ``average_models`` is auto.
        """
        when = {**vars(self), "diagnose": self.diagnose.every if self.diagnose.names else "none"}
        if self.clients_every is None:
            when["clients_every"] = "last" if self.served != "none" and clients <= MOST_CLIENTS else "none"
        if self.secure != "none":  # nobody but a client knows its own
            when["clients_every"] = "none"
        if self.average_models == "auto":
            when["average_models"] = "last" if model_bytes <= LARGE else "none"
        return Evaluation(self.rounds, when)

    def cohort_of(self, clients: int, with_rows: int, share: float | None = None, held_out: int = 0) -> int:
        """The clients of a round on a federation.

        Args:
            clients: clients of the federation, N.
            with_rows: those of them that have training rows.
            share: what the method takes where ``cohort`` is unset: a part of the clients that may train.
            held_out: clients that never train.

        Returns:
            ``cohort``, or where it is unset ``share`` of the clients that may train, or else 10; cut to ``with_rows``.

        Raises:
            FieldError: more were asked for than there are.
        """
        if self.cohort is None:
            return min(COHORT if share is None else max(1, round(share * (clients - held_out))), with_rows)
        self.demand("cohort", self.cohort <= clients, f"be at most the number of clients, {clients}")
        rule = f"be at most the number of clients that have rows, {with_rows} of {clients}"
        hint = "a larger alpha, fewer clients or another seed leaves fewer of them empty; held-out clients have none"
        self.demand("cohort", self.cohort <= with_rows, rule, hint)
        return self.cohort

    def seed_of(self, draw: Literal["model", "clients"]) -> int:
        """The seed of one kind of draw.

        Args:
            draw: "model" for the initial weights, "clients" for the sequence of selected clients.

        Returns:
            ``seed_model`` or ``seed_clients`` where it is set, else ``seed``.

        Example:
            >>> Settings(seed=3, seed_model=0).seed_of("model"), Settings(seed=3).seed_of("clients")
            (0, 3)
        """
        seed = self.seed_model if draw == "model" else self.seed_clients
        return self.seed if seed is None else seed

    def to_json(self) -> dict[str, Any]:
        """Values by field name, as the run folder keeps them; ``diagnose`` and own seeds only where they are set."""
        names = {f.name for f in dataclasses.fields(Settings)} - {"diagnose"}
        values = {name: value for name, value in recorded(self).items() if name in names}
        return {**values, **({"diagnose": self.diagnose.to_json()} if self.diagnose.names else {})}


@dataclass(frozen=True, kw_only=True)
class Division:
    """How a dataset is divided over clients, beside the partition. A part of `fedskew.config.experiment.Experiment`."""

    path: str | None = option(decides="nothing")
    """file or folder of the dataset; unset: FEDSKEW_DATA, else the cache"""
    clients: Annotated[int, AtLeast(1)] | None = option(decides="split")
    """number of clients; unset: 100, or those of a natural partition or a file"""
    longtail: float | None = option(decides="split")
    """imbalance factor n_max / n_min >= 1 to which the training set is thinned before the partition"""
    validation: float = option(0.0, decides="split")
    """fraction of the training rows held out before the partition for val_* metrics"""
    auxiliary: Annotated[int, AtLeast(0)] | None = option(decides="split")
    """rows of each class for the server, taken before the partition; unset: as many as the method needs"""
    local_test: Annotated[float, Within(0, 1, "[)")] = option(0.0, decides="split", omit_if_default=True)
    """fraction of each client's rows kept for its own test (local_* metrics)"""
    heldout_clients: Annotated[float, Within(0, 1, "[)")] = option(0.0, decides="split", omit_if_default=True)
    """fraction of the clients that never train and are used for heldout_* metrics"""
    seed_partition: int | None = option(decides="seed", omit_if_default=True)
    """seed of the partition; unset: same as seed"""


# What tells repetitions of one experiment apart; "seed" comes first
SEEDS = ("seed", *deciding(Division, "seed"), *deciding(Settings, "seed")[1:])


def check_device(name: str) -> None:
    """Check that a device is there, before data are read.

    Raises:
        FieldError: a name that is no device, or a GPU that this machine does not have.
    """

    def claim(holds: bool, rule: str) -> None:
        if not holds:
            raise FieldError("Settings", "device", rule, name)

    claim(bool(DEVICE.fullmatch(name)), "be cpu, cuda or cuda:NUMBER")
    if name != "cpu":
        import torch

        claim(torch.cuda.is_available(), "be 'cpu' where no GPU is at hand")
        last = torch.cuda.device_count() - 1
        claim(int(name.partition(":")[2] or 0) <= last, f"be one of the GPUs, at most cuda:{last}")
