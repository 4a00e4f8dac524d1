"""A federation over Flower whose every message, write and wait may go wrong, and what must hold all the same.

`simulate` runs a seed: the configuration, the faults and their times are drawn from it. Whatever struck, the run folder
holds the bytes of the engine sequential in which the clients that a round dropped were never chosen.
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedskew import server, tree
from fedskew.config.experiment import Experiment
from fedskew.data.federation import Federation
from fedskew.data.partitioners import Partition
from fedskew.engines.fitting import ClientLogits, fits_by
from fedskew.engines.trained import Trained
from fedskew.errors import FedskewError
from fedskew.flower import link, serve
from fedskew.flower.memory import OWN
from fedskew.flower.options import ServerOptions, experiment_of
from fedskew.flower.wire import echoed, pack, record
from fedskew.flower.wire import read as read_message
from fedskew.method import Component
from fedskew.records.clients import read_clients
from fedskew.records.files import load_tree
from fedskew.records.folder import CHECKPOINT, Record, read
from fedskew.records.typed import Row
from fedskew.types import Cohort, Params, Task, Tree, View
from support.bounds import Hung, bounded, within
from support.chance import Chance, Strike
from support.flower_standin import installed
from support.world import Died, Stuck, World

__all__ = ["Report", "built", "deployment", "shortest", "simulate", "talk"]

LIVES = 8  # of a server before nothing strikes any more
SECONDS, ROOM = 300, 2 << 30  # of one seed
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
LINE = 2000  # characters of a line of the log
RATES: dict[str, dict[str, float]] = {
    "join": {"late": 0.2},
    "push": {"refused": 0.01, "lost": 0.03, "late": 0.03, "twice": 0.03, "again": 0.03, "error": 0.02},
    "reply": {"lost": 0.03, "late": 0.03, "stale": 0.03, "error": 0.01, "lie": 0.2},
    "node": {"before": 0.01, "die": 0.03, "torn": 0.01, "full": 0.005, "after": 0.03},
    "write": {"die": 0.004, "torn": 0.002, "late": 0.002, "full": 0.001, "short": 0.001},
    "wait": {"die": 0.001, "jump": 0.001},
}


@dataclass
class Report:
    """What became of a seed."""

    seed: int
    wrong: str = ""
    struck: list[Strike] = field(default_factory=list)
    messages: int = 0
    rounds: int = 0
    lives: int = 0  # of the server
    seconds: float = 0.0  # of the processor
    virtual: float = 0.0
    config: dict[str, Any] = field(default_factory=dict)


def config_of(seed: int) -> tuple[dict[str, Any], int, str]:
    """(configuration, the client that lies or -1, the machine whose deaths are losses of power) of a seed."""
    draw = random.Random(f"{seed} configuration")
    clients = draw.choice([3, 4])
    missing, bad = draw.choice(
        [("wait", "stop"), ("wait", "drop"), ("drop", "drop"), ("drop", "drop"), ("drop", "stop"), ("stop", "stop")]
    )
    wait_s = draw.choice([5.0, 60.0, 600.0])
    liar = draw.randrange(clients) if (missing, bad) == ("drop", "drop") and draw.random() < 0.7 else -1
    config = {
        "method": draw.choice(["fedavg", "scaffold", "scaffold", "fedgc"]), "data": "digits", "clients": clients,
        "partition": "dirichlet", "partition.alpha": 0.5, "cohort": draw.choice([clients - 1, clients]),
        "rounds": draw.choice([3, 6, 9]), "epochs": 1, "batch-size": 64, "model": "logistic",
        "seed": draw.randrange(2), "checkpoint-every": draw.choice([1, 1, 2]),
        "fit-logits": draw.choice(["none", "last" if liar >= 0 else "none", "last"]), "flower.wait-s": wait_s,
        "flower.poll-s": wait_s / 40, "flower.missing": missing, "flower.bad": bad,
    }  # fmt: skip
    config |= {"local-test": 0.2} if draw.random() < (0.6 if liar >= 0 else 0.3) else {}
    power = draw.choice(["", "server", *(f"node-{k}" for k in range(clients))])
    if draw.random() < 0.3:
        config |= {"validation": 0.1, "monitor": draw.choice(["val_balanced_accuracy", "val_loss"])}
        config |= {"patience": 2} if draw.random() < 0.5 else {}
    config |= {"clients-every": draw.choice([1, 2])} if draw.random() < 0.3 else {}
    config |= {"keep-own": True} if config["method"] == "fedgc" and draw.random() < 0.5 else {}
    return config, liar, power


def simulate(seed: int, only: Iterable[Strike] | None = None) -> Report:
    """Run a seed, with the faults that belong to it, or with those of a schedule alone."""
    config, liar, power = config_of(seed)
    heavy = random.Random(f"{seed} rates").choice([0.5, 1.0, 2.0])
    rates = {place: {kind: heavy * rate for kind, rate in kinds.items()} for place, kinds in RATES.items()}
    if liar >= 0:
        rates["reply"]["lie"] = 0.3
    else:
        rates["reply"].pop("lie")
    report, began = Report(seed, config=dict(config)), time.process_time()
    chance = Chance(seed, rates, only)
    with TemporaryDirectory(dir=MEMORY) as place:
        config["flower.out"] = str(Path(place) / "server" / "run")
        with _judged(report):
            with deployment(config, Path(place), chance, liar, power) as world, pytest.MonkeyPatch.context() as patch:
                trial = _Trial(world, report)
                trial.watch(patch)
                with _heard(trial):
                    trial.run()
            trial.compare()
        report.struck, report.messages, report.virtual = chance.struck, world.messages, world.now
        report.wrong = report.wrong.replace(f"{place}/", "")
    report.seconds = time.process_time() - began
    return report


@contextmanager
def _judged(report: Report) -> Iterator[None]:
    """Note in a report what goes wrong inside."""
    try:
        yield
    except _Over:
        pass
    except _Wrong as wrong:
        report.wrong = str(wrong)
    except (Stuck, Hung, MemoryError) as error:
        report.wrong = f"{type(error).__name__}: {error}"
    except Exception as error:
        report.wrong = f"a traceback reaches the user: {type(error).__name__}: {str(error)[:300]}"


@contextmanager
def deployment(
    config: Mapping[str, Any], place: Path, chance: Chance, liar: int, power: str, answer: Any = None
) -> Iterator[World]:
    """A world with its clock and its names, in bounded time and memory."""
    names = random.Random(f"{chance.seed} names")
    with pytest.MonkeyPatch.context() as patch, installed(), bounded(ROOM), within(SECONDS):
        world = World(config, place, chance, patch, build=built, liar=liar, power=power, answer=answer)
        patch.setattr(link, "time", world)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=names.getrandbits(128), version=4))
        patch.setattr(Experiment, "federation", _read_once)
        yield world


_divided, _federations = Experiment.federation, dict[str, Federation]()


def _read_once(experiment: Experiment) -> Federation:
    """The federation of an experiment; it is read-only, and shared by all that ask for the same rows."""
    e = experiment
    key = repr([e.data, e.partition, e.clients, e.seed, e.local_test, e.validation])
    if key not in _federations:
        _federations[key] = _divided(experiment)
    return _federations[key]


@dataclass(frozen=True)
class Written(Component):
    """Keeps on a client what the server writes: after each of its rounds, a factor of its gradients in the next ones.

    Beside FedGC it is the second component of a method whose memory the server writes.
    """

    name = "written"

    def init_client(self, params: Params, buffers: Params, task: Task) -> Tree:
        return {"factor": next(iter(params.values())).new_ones(())}

    def correct(self, grads: Params, view: View) -> Params:
        return {n: g * view.memory[self.name]["factor"] for n, g in grads.items()}

    def absorb(self, state: Tree, cohort: Cohort, key: Tensor) -> tuple[Tree, Tree | None]:
        like = next(iter(cohort.before.values()))
        return state, {"factor": like.new_full((len(cohort.ids),), 1 + 0.5 / cohort.round)}


def built(config: Mapping[str, Any]) -> Experiment:
    """The experiment of a configuration; where the server writes to clients, two components do."""
    experiment = experiment_of(config)
    method = experiment.method
    written = "fedgc" in method.name
    return replace(experiment, method=method.with_(parts=(*method.parts, Written()))) if written else experiment


class _Over(Exception):
    """The run ends, as it may."""


class _Wrong(Exception):
    """What must hold does not."""


def _after(patch: pytest.MonkeyPatch, owner: Any, name: str, see: Callable[..., None]) -> None:
    """Let something see what each call of a function gives, and what it was given."""
    plain = getattr(owner, name)

    def seen(*args: Any) -> Any:
        returned = plain(*args)
        see(returned, *args)
        return returned

    patch.setattr(owner, name, staticmethod(seen) if isinstance(plain, MethodType) else seen)


@dataclass
class _Trial:
    """One seed under way."""

    world: World
    report: Report
    promised: int = 0  # the last round that a checkpoint has acknowledged
    gone: dict[int, frozenset[int]] = field(default_factory=dict)
    left_out: tuple[int, ...] = ()

    @property
    def out(self) -> Path:
        return Path(self.world.config["flower.out"])

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """See what the server promises, and whom it drops."""

        def opened(_: Any, method: Any, state: Any, cohort: int, a: int, b: int, ask: Any, gone: Any) -> None:
            self.gone[state.round + 1] = frozenset(gone)

        def acknowledged(_: Any, record: Record, content: Any, facts: Mapping[str, Any]) -> None:
            self.promised = max(self.promised, facts["round"])

        def appended(_: Any, record: Record, row: Any) -> None:
            self.report.rounds += 1
            self.world.progress()

        def left(_: Any, link: Any, clients: list[int]) -> None:
            self.left_out = tuple(clients)

        _after(patch, server, "open_round", opened)
        _after(patch, Record, "checkpoint", acknowledged)
        _after(patch, Record, "append", appended)
        _after(patch, Record, "restore", lambda restored, record: self._kept(len(restored[2]) if restored else 0))
        _after(patch, Record, "create", lambda *_: self._kept(0))
        _after(patch, link.Link, "_leave_out", left)

    def _kept(self, rounds: int) -> None:
        if rounds < self.promised:
            raise _Wrong(f"round {self.promised} was acknowledged; the server goes on from round {rounds}")

    def run(self) -> None:
        """Begin the server again until the run is over."""
        world, report = self.world, self.report
        draw = random.Random(f"{report.seed} operator")
        while True:
            report.lives += 1
            world.progress()
            try:
                if serve.serve(world, world.config, built) is None or world.chance.calm or draw.random() < 0.9:
                    return
                raise Died  # at the very end, when all is written
            except Died:
                pass
            except FedskewError as error:
                self.line(str(error))
                if world.forever and re.search(r"no (answer in|node for) [\d.]+ s", str(error)):
                    raise _Wrong(f"a server that waits for ever ends: {error}") from None
                world.mended()
                if report.lives > LIVES + 2 and world.liar >= 0 and not self.promised:
                    raise _Over from None  # of a node that never says who it is, no run begins
                if report.lives > LIVES + 2:
                    raise _Wrong(f"the run cannot go on though nothing strikes any more: {error}") from None
            world.reboot(draw)
            if report.lives == LIVES:
                world.quiet()

    def line(self, text: str) -> None:
        """A line of the log is one line."""
        if not text.isprintable() or len(text) > LINE:
            raise _Wrong(f"a line of the log is forged: {text[:200]!r}")
        if match := re.match(r"fedskew: node (\d+) is refused", text):
            self.world.refused.add(int(match[1]))

    def compare(self) -> None:
        """Hold the folder against the engine sequential."""
        if late := sorted(k for gone in self.gone.values() for k in gone if k not in self.world.touched):
            raise _Wrong(f"client {late[0]} was dropped, to which nothing happened")
        drops = self.world.config["flower.missing"] == "drop" or self.world.config["flower.bad"] == "drop"
        if any(self.gone.values()) and not drops:
            raise _Wrong(f"clients were dropped by a server that drops none: {self.gone}")
        gone = tuple(sorted((number, clients) for number, clients in self.gone.items() if clients))
        plain = {k: v for k, v in self.world.config.items() if not k.startswith("flower.")}
        plain["checkpoint-every"] = plain["rounds"]  # of no effect on what is compared
        whole = _expected(json.dumps(plain, sort_keys=True), gone, self.left_out)
        recorded = _Recorded.of(self.out)
        facts = load_tree(self.out / CHECKPOINT)[1]
        numbers = [row["round"] for row in recorded.rows]
        if facts["round"] != len(whole.rows) or numbers != list(range(1, len(whole.rows) + 1)):
            raise _Wrong(f"rounds 1 to {len(whole.rows)} must be there once; got {numbers}")
        if recorded.state != whole.state or recorded.files.get("final") != whole.files["final"]:
            raise _Wrong("the model or the server's state has other bytes")
        if recorded.files.get("best") != whole.files.get("best"):
            raise _Wrong("the best model has other bytes")
        lacking = [bool(self.left_out or row.get("dropped")) for row in recorded.rows]  # test rows may be in no metric
        for ours, theirs, some in zip(recorded.rows, whole.rows, lacking, strict=True):
            _same(f"round {ours['round']}", ours, theirs, ("dropped", *MEASURED[: 2 * some]))
        self._same_fits(recorded.summary, whole)
        lacks = bool(self.left_out or "final_dropped" in recorded.summary)
        apart = ("final_dropped", "final_fit", *MEASURED[: 3 * (lacks or any(lacking))])
        if "final_dropped" in recorded.summary or "final_fit" not in recorded.summary:
            apart = (*apart, "averaged_fitted_")  # a node may be left out of this fit, too
        held = "local-test" in self.world.config  # else nodes have shares of the server's test rows
        _same("summary.json", recorded.summary, whole.summary, (*apart, "fitted_served_" if held else "served_"))
        if held or not self.left_out:  # whose share the others would have
            self._same_clients(recorded.clients, whole.clients)
        self._same_own(whole.files.get("own", {}))

    def _same_clients(self, rows: list[Row], whole: list[Row]) -> None:
        """Each client has its row of each round that lists them, unless something happened to it."""
        wanted = {(row["round"], row["client"]): row for row in whole}
        listed = [(row["round"], row["client"]) for row in rows]
        if listed != [key for key in wanted if key in set(listed)]:
            raise _Wrong(f"clients.jsonl must have the rows {list(wanted)}; got {listed}")
        if late := [key for key in wanted if key not in set(listed) and key[1] not in self.world.touched]:
            raise _Wrong(f"clients.jsonl lacks round and client {late[0]}, to which nothing happened")
        for row in rows:
            where = f"client {row['client']} after round {row['round']}"
            apart = ("auroc", "auprc", "ece", "dealt")  # which no node tells
            _same(where, row, wanted[row["round"], row["client"]], apart)

    def _same_fits(self, summary: Row, whole: _Recorded) -> None:
        """The last model is fitted on the rows of all clients but those of which the summary says that they are not."""
        if whole.fits is None:
            return
        fit, asked = summary.get("final_fit"), whole.fits.clients
        lost = sorted(asked & {bad["client"] for bad in summary.get("final_dropped", ())})
        if fit is None and lost == sorted(asked):
            return
        count = len(asked) - fit["prior"]["clients"] if fit else 0
        possible = [whole.fits.without(some) for some in combinations(lost, count)]  # some lost another answer alone
        if fit not in possible and not any(_near(fit, candidate, "final_fit") for candidate in possible):
            raise _Wrong(f"summary.json: final_fit is {fit}; it must be one of {possible}, without {count} of {lost}")

    def _same_own(self, whole: Mapping[str, bytes]) -> None:
        """Each node keeps the own model of its client, unless something happened to it."""
        for node in self.world.nodes:
            wanted = {n.partition("/")[2]: leaf for n, leaf in whole.items() if n.startswith(f"{node.client}/")}
            path = node.machine.folder / self.out.name / f"client-{node.client}" / OWN
            if not wanted or node.client in self.left_out or (node.client in self.world.touched and not path.exists()):
                continue
            kept = dict(_bits(load_tree(path)[0]["model"])) if path.exists() else {}
            if any(kept.get(name) != leaf for name, leaf in wanted.items()):
                raise _Wrong(f"the own model of client {node.client} has other bytes")


MEASURED = ("local_", "personal_", "served_")  # what nodes measure, in the names of metrics


def _same(where: str, ours: Row, theirs: Row, apart: tuple[str, ...]) -> None:
    """Hold entries against the expected ones, but for seconds and those whose names hold one of some words."""
    for name in sorted(ours.keys() | theirs.keys()):
        if name.endswith("_s") or any(word in name for word in apart):
            continue
        a, b = ours.get(name), theirs.get(name)
        if a != b and not _near(a, b, name):
            raise _Wrong(f"{where}: {name} is {a!r}; it must be {b!r}")


def _near(a: Any, b: Any, name: str) -> bool:
    """Whether entries differ by the rounding of sums that nodes and server add in another order alone."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_near(a[n], b[n], name) for n in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_near(x, y, name) for x, y in zip(a, b, strict=True))
    summed = "_fit" in name or name.endswith("loss")
    return a == b or bool(summed and a is not None and a == pytest.approx(b, rel=1e-9, abs=1e-9))


@contextmanager
def _heard(trial: _Trial) -> Iterator[None]:
    """Each line of the log is checked."""

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            trial.line(record.getMessage())

        def handleError(self, record: logging.LogRecord) -> None:
            raise

    handler, log, before = Heard(), link.LOG, (link.LOG.level, link.LOG.propagate)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


def _bits(content: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    return [
        (".".join(path), leaf.contiguous().view(-1).numpy().tobytes())
        for path, leaf in tree.flatten(content)
        if leaf is not None
    ]


class _Recorded(NamedTuple):
    """What a run folder holds, as far as it is compared."""

    state: list[tuple[str, bytes]]  # of the server, in the checkpoint
    rows: list[Row]
    summary: Row
    clients: list[Row]
    files: dict[str, dict[str, bytes]]  # tensors of models that it has, by name
    fits: _Fits | None = None  # of the last model; None of a run without any

    @classmethod
    def of(cls, folder: Path) -> _Recorded:
        """Those of a folder."""
        _, rows, summary = read(folder)
        content, _ = load_tree(folder / CHECKPOINT)
        state = _bits({name: content.get(name, {}) for name in ("params", "buffers", "parts")})
        models = [path for name in ("final", "best", "own") if (path := folder / f"{name}.safetensors").exists()]
        files = {path.stem: dict(_bits(load_file(path))) for path in models}
        return cls(state, rows, summary, read_clients(folder), files)


@lru_cache(maxsize=256)
def _expected(config: str, gone: tuple[tuple[int, frozenset[int]], ...], left_out: tuple[int, ...]) -> _Recorded:
    """What the engine sequential records, in which clients were never chosen, or have no rows."""
    experiment = built({**json.loads(config), "engine": "sequential"})
    fed, dropped, plain = _read_once(experiment), dict(gone), server.open_round
    if left_out:
        fed = _without(fed, left_out)
        experiment = replace(experiment, cohort=min(experiment.cohort or fed.clients, fed.clients - len(fed.empty)))

    def opening(method: Any, state: Any, cohort: int, a: int, b: int, ask: Any, more: Any) -> Any:
        return plain(method, state, cohort, a, b, ask, sorted(dropped.get(state.round + 1, ())))

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory(dir=MEMORY) as folder:
        patch.setattr(server, "open_round", opening)
        result = experiment.run(folder, federation=fed)
        recorded = _Recorded.of(Path(folder))
    if experiment.settings.fit_logits == "none":
        return recorded
    return recorded._replace(fits=_Fits.of(result.trained, fed))


class _Fits(NamedTuple):
    """The fits of a model on rows of clients."""

    logits: Tensor
    labels: Tensor
    owners: np.ndarray[Any, Any]  # clients, of each row
    counts: Tensor  # rows of each client and class

    @classmethod
    def of(cls, trained: Trained, fed: Federation) -> _Fits:
        """Those of a federation's training rows."""
        x, labels, owners = trained.rows_on(fed, "train")
        return cls(trained.logits(x, labels), labels, owners, fed.counts)

    @property
    def clients(self) -> set[int]:
        """Those that have rows."""
        return set(self.owners.tolist())

    def without(self, clients: Sequence[int]) -> Row:
        """What is fitted on the rows of the others."""
        rows, counts = torch.from_numpy(~np.isin(self.owners, clients)), self.counts.clone()
        counts[list(clients)] = 0
        fits = fits_by(ClientLogits(self.logits[rows], self.labels[rows]), counts)
        return {name: fit.to_json() for name, fit in fits.items()}


def _without(fed: Federation, clients: Iterable[int]) -> Federation:
    """The federation in which some clients have no rows."""
    lacking = set(clients)

    def emptied(part: Partition) -> Partition:
        rows = [part.of(k)[:0] if k in lacking else part.of(k) for k in range(fed.clients)]
        return Partition(np.concatenate(rows), np.cumsum([0, *map(len, rows)]))

    counts = fed.counts.clone()
    counts[torch.tensor(sorted(lacking))] = 0
    held = None if fed.held is None else emptied(fed.held)
    return replace(fed, partition=emptied(fed.partition), counts=counts, held=held)


def talk(seed: int, only: Iterable[Strike] | None = None, questions: int = 60) -> Report:
    """The server's end of the messages alone, with nodes that answer without training: many messages in little time."""
    draw = random.Random(f"{seed} talk")
    clients, wait_s, missing = draw.choice([2, 5, 9]), draw.choice([5.0, 600.0]), draw.choice(["wait", "drop"])
    config = {"clients": clients, "flower.wait-s": wait_s, "flower.missing": missing}
    rates = {place: {kind: 2 * rate for kind, rate in RATES[place].items() if kind != "lie"} for place in RATES}
    report, began = Report(seed, config=config), time.process_time()
    chance = Chance(seed, rates, only)
    with TemporaryDirectory() as place:
        with (
            _judged(report),
            deployment(config, Path(place), chance, -1, "", _echo) as world,
            _heard(trial := _Trial(world, report)),
        ):
            left = list(range(questions))
            while left:
                report.lives += 1
                world.progress()
                try:
                    _asked(world, trial, left)
                except (Died, FedskewError):
                    world.pass_by(30.0)
        report.struck, report.messages, report.virtual = chance.struck, world.messages, world.now
    report.seconds = time.process_time() - began
    return report


def _echo(message: Any, context: Any, build: Any) -> Any:
    """A node that says who it is, and gives back what it is asked."""
    facts, k = read_message(message.content).facts, context.node_config["client"]
    known = echoed(facts)
    if facts["kind"] == "hello":
        known |= {"client": k, "rows": 5, "test_rows": 0, "permits": []}
    return record({**known, "value": [facts.get("question"), k]}, sent=pack({}))


def _asked(world: World, trial: _Trial, left: list[int]) -> None:
    """Ask all nodes the questions that are left, one after another."""
    count, forever = world.config["clients"], world.config["flower.missing"] == "wait"
    options = ServerOptions(wait_s=world.wait_s, poll_s=world.wait_s / 40, missing="wait" if forever else "stop")
    asking = link.Link(world, {}, options, lambda hello: None)
    asking.meet(count)
    while left:
        number = left[0]
        requests = [link.Request(k, {"kind": "train", "question": number}, {}) for k in range(count)]
        for k, answer in zip(range(count), asking.ask(requests), strict=True):
            if isinstance(answer, link.AnswerFault):
                if answer.client != k or k not in world.touched:
                    raise _Wrong(f"client {k} is missing, to which nothing happened: {answer}")
                if answer.missing and forever:
                    raise _Wrong(f"client {k} is missing, which is waited for: {answer}")
                trial.line(answer.tensor)
            elif answer.facts["value"] != [number, k]:
                raise _Wrong(f"client {k}: question {number} got {answer.facts['value']}")
        world.progress()
        left.pop(0)


def kind_of(wrong: str) -> str:
    """What went wrong, without its details; "" where nothing did."""
    return re.sub(r"\d+", "", re.split(r"[:;](?= )", wrong)[0])


def shortest(seed: int, struck: list[Strike], seconds: float = 600.0) -> list[Strike]:
    """A schedule of which no fault can be left out, if the run is still to fail in the same way (delta debugging).

    After so many seconds of the processor it is the shortest so far.
    """
    parts, end, kind = 2, time.process_time() + seconds, kind_of(simulate(seed, struck).wrong)
    while struck and time.process_time() < end:
        size = max(len(struck) // parts, 1)
        for begin in range(0, len(struck), size):
            fewer = struck[:begin] + struck[begin + size :]
            if kind_of(simulate(seed, fewer).wrong) == kind:
                struck, parts = fewer, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(struck))
    return struck
