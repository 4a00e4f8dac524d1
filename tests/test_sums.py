"""Rounds of which the server sees sums alone: equal to plain rounds, or refused before anything runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew as fs
from fedskew import simulated, sums
from fedskew.method import Method, Read, suffices
from fedskew.method.steps import SGD
from fedskew.methods import METHODS
from fedskew.tree import leaves
from fedskew.types import Answers, Cohort, LocalRun, Results, Weights
from support.command import refused
from support.federations import RAGGED, blobs, skewed
from support.methods import NAMES, each, tiny
from support.nets import norm_net
from support.runs import gap, go

NAMED = [  # by the literature of label skew, and every way in which a sum is used
    "fedavg", "fednova", "scaffold", "fedexp", "fedir", "fedlc", "fedla", "feddisco", "ccvr", "creff", "fednh", "fedcm",
    "feddyn", "fedspeed", "fedsmoo", "fedadam", "fedper",
]  # fmt: skip


def of(name: str) -> str:
    return suffices([read for part in METHODS[name]().components for read in part.reads])


SUMS = [name for name in NAMES if of(name) in ("sum", "nothing")]
METHOD = [name if name in NAMED else pytest.param(name, marks=pytest.mark.thorough) for name in SUMS]


def near(method: Method, within: float = 1e-6, **options: Any) -> None:
    """A run of sums is a plain one."""
    asked: dict[str, Any] = {"cohort": 4, "rounds": 3, **options}
    plain, secure = (go(skewed(), method, secure=secure, **asked) for secure in ("none", "sums"))
    assert gap(secure.params, plain.params) < within and gap(secure.state.params, plain.state.params) < within
    statistics = [{n: b for n, b in one.buffers.items() if b.is_floating_point()} for one in (secure, plain)]
    assert gap(*statistics) < within  # a counter of batches is the mean, where a plain run takes the largest client's
    for one, two in zip(plain.rounds, secure.rounds, strict=True):
        assert one["clients"] == two["clients"] and one["samples"] == two["samples"] and one["steps"] == two["steps"]
        assert two["train_loss"] == pytest.approx(one["train_loss"], rel=1e-6)


@pytest.mark.parametrize("name", METHOD)
def test_a_round_of_sums_is_a_plain_round(name: str) -> None:
    """To the rounding of 28 bits after the point, over three rounds of clients that differ in rows and classes."""
    near(tiny(name))


@pytest.mark.parametrize(
    "method",
    [
        tiny("fednova").with_("pace", lr=0.05).with_("global_momentum", gmf=0.5),
        tiny("fednova").with_(weighting=fs.weightings.FedNova(fs.weightings.LabelAware())),
        tiny("feddisco").with_(weighting=fs.weightings.DiscrepancyAware(fs.weightings.LabelAware(), metric="l2")),
        tiny("feddisco").with_("discrepancy_aware", a=50.0),  # nobody has anything left
        tiny("scaffold").with_("control_variate", spread="size"),
        tiny("scaffold").with_("control_variate", spread="cohort", option=1),
        tiny("fednh").with_("non_parametric_head", weighs="confidence"),
        tiny("fedlc").with_(parts=(fs.parts.PooledLogitCalibration(),)),
        tiny("feddyn").with_(parts=(fs.parts.WeightedRegulariser(0.01),)),
        tiny("fedavg").with_(weighting=fs.weightings.UnionShare(), server=fs.servers.WeightedSum()),
        tiny("fedavg").with_(weighting=fs.weightings.UnionShare("all")),
        tiny("fedavg").with_(sampler=fs.samplers.DecayingOversampling()),
        tiny("fedcm").with_(pace=fs.paces.Dynamic(beta=3), weighting=fs.weightings.Size()),
        tiny("fedrl").with_("ratio_loss", monitor=True),
    ],
    ids=lambda m: "-".join([m.name, m.weighting.name, *(p.name for p in m.parts[:2])]),
)
def test_options_and_compositions_too(method: Method) -> None:
    near(method)


@pytest.mark.parametrize("name", ["fedla", "scaffold", "fedexp"])
def test_on_stacks_of_clients_and_in_float32(name: str) -> None:
    near(tiny(name), engine="batched")
    near(tiny(name), within=1e-5, dtype="float32")


def test_with_momentum_and_batch_statistics() -> None:
    method = replace(tiny("fedla"), local=SGD(momentum=0.9))
    near(method, model=norm_net())


def test_a_counter_is_not_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would leave the range of a sum: rows times batches."""
    add, seen = sums.Adder.add, list[float]()

    def spy(self: sums.Adder, half: Any, clients: Any, *place: Any, **more: Any) -> Any:
        if place == (1, "update"):
            sent = map(half, clients)
            seen.extend(float(own["buffers"]["2.num_batches_tracked"] / own["reports"]["steps"]) for own in sent)
        return add(self, half, clients, *place, **more)

    monkeypatch.setattr(sums.Adder, "add", spy)
    near(tiny("fedla"), model=norm_net())
    assert seen == [1.0] * 4


def test_a_number_outside_the_range_is_named() -> None:
    """No option sets the range: the error says what the number is."""
    rest = {"factors": {"one": torch.ones(())}}
    sent = {k: {**rest, "delta": {"fc.weight": torch.tensor([1.0, 10.0**k])}} for k in (0, 1, 12)}
    said = "the weighted update of parameter 'fc.weight' of client 12 must be in [-4.29497e+09, 4.29497e+09], the range"
    with pytest.raises(fs.TrainingError) as error:
        simulated.Simulated(2 / 3, seed=0).add(sent.get, list(sent), 4, "update")
    assert str(error.value) == f"{said} of a secure sum; got 1e+12, in round 4"
    diverged = {k: {"mass": torch.tensor(mass)} for k, mass in enumerate((1.0, 1.0, torch.nan))}
    with pytest.raises(fs.TrainingError, match=r"^'weights 0 mass' of client 2 must be in .* got nan, in round 4$"):
        simulated.Simulated(2 / 3, seed=0).add(diverged.get, list(diverged), 4, "weights", 0)


# Drop-outs


@dataclass(frozen=True)
class Poisoned(fs.Component):
    """What this client trains in one round is not finite."""

    name = "poisoned"
    client: int = 1
    round: int = 2

    def init_client(self, params: Any, buffers: Any, task: Any) -> Any:
        return {"round": torch.zeros(())}

    def init_server(self, params: Any, fed: Any, task: Any) -> Any:
        return {"round": torch.ones(())}

    reads = ()

    def broadcast(self, state: Any, ids: Tensor | None) -> tuple[Any, Any]:
        if ids is None:
            return {}, None
        return {}, {"bad": (ids == self.client).to(torch.float64) * (state["round"] == self.round)}

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        return {"round": state["round"] + 1}, None

    def finish(self, local: LocalRun) -> tuple[Any, Any]:
        bad = local.ctx.shared[self.name]["bad"]
        return {"mark": torch.where(bad > 0, torch.nan, 0.0)}, local.memory[self.name]


@pytest.mark.parametrize("name", ["fedavg", "fedla", "fednova", "feddisco"])
def test_whoever_drops_out_after_the_first_sum_stays_in_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain run drops a client whose training is not finite: the weights of the others rest on the same sums."""
    fed = blobs([[9, 3, 1], [2, 5, 0], [1, 1, 6], [8, 8, 8], [3, 0, 9]])
    base = replace(tiny(name), selector=each(*range(5)))
    poisoned = base.with_(parts=(*base.parts, Poisoned()))
    options = {"rounds": 3, "cohort": 5}
    plain = go(fed, poisoned, nonfinite="drop", **options)
    assert plain.rounds[1]["clients"] == [0, 2, 3, 4] and plain.rounds[2]["clients"] == [0, 1, 2, 3, 4]
    own = go(fed, poisoned, nonfinite="drop", secure="sums", **options)
    assert gap(own.params, plain.params) < 1e-6
    assert own.rounds[1]["dropped"] == [{"client": 1, "tensor": "upload poisoned.mark"}]
    gone = {(2, "update"): {1: "masked"}}
    monkeypatch.setattr(simulated, "absent", lambda place, clients: gone.get(place, {}))
    lost = go(fed, base, secure="sums", **options)
    assert lost.rounds[1]["clients"] == [0, 2, 3, 4] and gap(lost.params, plain.params) < 1e-6
    gone = {(2, "update"): {1: "unmask"}}  # its input has arrived
    late = go(fed, base, secure="sums", **options)
    assert gap(late.params, go(fed, base, **options).params) < 1e-6


STAGES = [
    (tiny("fedla"), 0, False),
    (tiny("fednova"), 0, False),
    (tiny("fednova"), 1, False),  # of a mean over who is left, too
    (tiny("fednova").with_(weighting=fs.weightings.FedNova(fs.weightings.LabelAware())), 0, False),
    (tiny("feddisco").with_("discrepancy_aware", metric="l2"), 0, False),
    (tiny("feddisco").with_("discrepancy_aware", metric="l2"), 1, True),
    (tiny("feddisco"), 2, True),
]


@pytest.mark.parametrize(("base", "stage", "stays"), STAGES, ids=lambda v: getattr(v, "name", str(v)))
def test_whoever_drops_out_between_the_sums_that_weights_rest_on(
    base: Method, stage: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round is one without this client, or one in which it stays in the weights of the others."""
    fed = blobs([[9, 3, 1], [2, 5, 0], [1, 1, 6], [8, 8, 8], [3, 0, 9]])
    method = replace(base, selector=each(*range(5)))
    monkeypatch.setattr(
        simulated, "absent", lambda place, clients: {1: "masked"} if place[1:] == ("weights", stage) else {}
    )
    lost = go(fed, method, secure="sums", cohort=5, rounds=1)
    if stays:
        poisoned = method.with_(parts=(*method.parts, Poisoned(round=1)))
        plain = go(fed, poisoned, nonfinite="drop", cohort=5, rounds=1)
    else:
        plain = go(fed, replace(method, selector=each(0, 2, 3, 4)), cohort=4, rounds=1)
    assert lost.rounds[0]["clients"] == [0, 2, 3, 4] and gap(lost.params, plain.params) < 1e-6


@pytest.mark.parametrize("phase", ["advertise", "share", "masked", "unmask"])
def test_below_the_threshold_the_round_fails_in_one_line(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fed, method = skewed(), replace(tiny("fedavg"), selector=each(0, 1, 2, 3, 4))
    gone = dict.fromkeys((0, 1), phase)
    monkeypatch.setattr(simulated, "absent", lambda place, clients: gone if place[0] == 2 else {})
    options = {"secure": "sums", "cohort": 5}
    with pytest.raises(fs.TrainingError, match=r"phase '\w+' .* at least 4 clients, its threshold; got 3, in round 2"):
        go(fed, method, **options)
    assert len(go(fed, method, secure_threshold=0.6, **options).rounds) == 2


def test_the_threshold_is_of_those_who_entered_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those whose training is not finite, and those who leave between sums, are missing as well."""
    fed, base = skewed(), replace(tiny("fedla"), selector=each(*range(5)))
    parts = tuple(type(f"Poisoned{k}", (Poisoned,), {"name": f"poisoned{k}"})(k) for k in (0, 1))
    options = {"secure": "sums", "cohort": 5, "nonfinite": "drop"}
    said = r"a secure sum must be over at least 4 clients of 5; got 3, in round 2"
    with pytest.raises(fs.TrainingError, match=said):
        go(fed, base.with_(parts=(*base.parts, *parts)), **options)
    kept = go(fed, base.with_(parts=(*base.parts, *parts)), secure_threshold=0.6, **options)
    assert kept.rounds[1]["clients"] == [2, 3, 4]
    gone = {("weights", 0): {0: "masked"}, ("update",): {1: "masked"}}
    monkeypatch.setattr(simulated, "absent", lambda place, clients: gone.get(place[1:], {}) if place[0] == 2 else {})
    with pytest.raises(fs.TrainingError, match=r"phase 'masked' .* at least 4 clients, its threshold; got 3"):
        go(fed, base, **options)


# What is refused


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SUMS])
def test_a_method_that_reads_more_is_refused_by_name(name: str) -> None:
    parts = [p for p in METHODS[name]().components if any(r.form == "each" for r in p.reads)]
    who = [f"secure must be none for {name}, whose '{part.name}' reads the " for part in parts]
    with pytest.raises(fs.ConfigError) as error:
        go(skewed(), tiny(name), secure="sums")
    said = str(error.value)
    assert any(one in said for one in who) and " of each client" in said and "got 'sums'; " in said and "\n" not in said


@dataclass(frozen=True)
class Undeclared(fs.Component):
    name = "undeclared"

    def absorb(self, state: Any, cohort: Cohort, key: Tensor) -> tuple[Any, None]:
        return state, None


@dataclass(frozen=True)
class Weighed(fs.weightings.Size):
    """Declares what it reads, and weighs all clients at once."""

    name = "weighed"
    reads = (Read("rows", "sum"),)

    def weigh(self, state: Any, cohort: Cohort) -> Weights:
        return super().weigh(state, cohort)


@dataclass(frozen=True)
class Halves(fs.weightings.Wrapping):
    """A weighting of a user, in halves."""

    name = "halves"
    reads = (Read("rows", "sum"),)

    def mass(self, state: Any, own: Cohort, sums: Any) -> Weights:
        update, average = self.inner.mass(state, own, sums)
        return Weights(update.sqrt(), average.sqrt())


def test_ingredients_of_a_user_declare_and_come_in_halves() -> None:
    def run(method: Method, **options: Any) -> fs.Result:
        return go(skewed(), method, secure="sums", **options)

    method = fs.methods.fedavg()
    undeclared = method.with_(parts=(Undeclared(),))
    refused(lambda: run(undeclared), "whose 'undeclared' does not declare what its 'absorb' reads", "set `reads`")
    refused(lambda: run(method.with_(weighting=Weighed())), "'weighed' weighs all clients at once", "define `mass`")
    declared = dataclass(frozen=True)(type("Declared", (Undeclared,), {"reads": (), "__module__": __name__}))
    near(method.with_(parts=(declared(),)))
    near(method.with_(weighting=Halves()))
    by_root = go(skewed(), method.with_(weighting=Halves())).rounds[0]
    assert by_root["weights"] != go(skewed(), method).rounds[0]["weights"]


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "cohort": ({"cohort": 2}, "cohort must be at least 3 with secure sums: of two clients each knows"),
    "diagnose": ({"diagnose": ("drift",)}, "secure must be none with diagnostics"),
    "clients_every": ({"clients_every": 1}, "clients_every must be unset with secure sums"),
    "keep_own": ({"keep_own": True}, "keep_own must be false with secure sums: it keeps each client's own model"),
}


@pytest.mark.parametrize("case", CASES)
def test_settings_that_do_not_go_with_sums_are_refused(case: str) -> None:
    options, said = CASES[case]
    refused(lambda: go(skewed(), fs.methods.fedavg(), **({"secure": "sums"} | options)), said)


@pytest.mark.parametrize("name", ["creff", "ccvr"])
def test_no_answer_is_added_up_twice(name: str) -> None:
    """A round that drops a client is run again without it: the difference of both sums is what it answered."""
    said = f"nonfinite must be stop with secure sums for {name}, whose ", "adds up answers before training; got 'drop'"
    refused(lambda: go(skewed(), tiny(name), secure="sums", nonfinite="drop"), *said)


# What the server sees, and what the record holds


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Results]:
    """What hooks of the server half are given of each round."""
    found: list[Results] = []
    of_sum: Callable[..., Results] = sums._of_sum
    monkeypatch.setattr(sums, "_of_sum", lambda *args: found.append(of_sum(*args)) or found[-1])
    return found


def test_hooks_see_one_client_that_stands_for_all(seen: list[Results]) -> None:
    go(skewed(), tiny("scaffold"), secure="sums")
    for results in seen:
        cohort = results.cohort
        assert cohort.deltas is None and len(cohort.ids) == 3
        change = cohort.uploads["control_variate"]["change"]
        numbers = [cohort.used, cohort.owned, *cohort.reports, *cohort.weights, *change.values()]
        assert all(len(value) == 1 for value in numbers) and cohort.used.shape == (1, 1)


def test_statistics_that_stay_on_clients_are_not_sent(seen: list[Results]) -> None:
    """Hooks see those of the broadcast, which are still the first ones."""
    found = go(skewed(), tiny("fedbn"), secure="sums", model=norm_net())
    assert len(seen) == 2 and found.state.stays >= found.state.buffers.keys() != set()
    for results in seen:
        assert gap({n: b[0] for n, b in results.buffers.items()}, found.state.buffers) == 0


def test_a_summed_answer_is_one_row_of_who_stayed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Answers] = []
    answered: Callable[..., Answers] = sums.Adder.answered
    monkeypatch.setattr(sums.Adder, "answered", lambda *args: seen.append(answered(*args)) or seen[-1])
    monkeypatch.setattr(simulated, "absent", lambda place, clients: {1: "masked"} if place[-1] == "answer" else {})
    found = go(blobs(RAGGED), replace(tiny("creff"), selector=each(0, 1, 2, 3)), cohort=4, secure="sums")
    assert [answers.ids.tolist() for answers in seen] == [[0, 2, 3]] * 2
    assert all(len(leaf) == 1 for answers in seen for leaf in leaves(answers.values))
    assert [row["contacts"] for row in found.rounds] == [8, 8]  # who left was asked, too


def test_the_record_holds_no_number_of_a_single_client(tmp_path: Path) -> None:
    fed, folder = skewed(), tmp_path / "run"
    result = go(fed, tiny("fedla"), secure="sums", out=folder, served="last", cohort=4)
    assert not (folder / "clients.jsonl").exists() and not result.client_rows
    config = json.loads((folder / "config.json").read_text())
    assert config["secure"] == "sums" and "counts" not in config
    row = result.rounds[-1]
    assert row["weights"] == [pytest.approx(1.0)] and row["upload_bytes"] > 4 * 650 * 8
    go(fed, tiny("fedla"), out=tmp_path / "plain")
    assert "secure" not in json.loads((tmp_path / "plain/config.json").read_text())


def test_nothing_of_it_is_imported_where_it_is_off() -> None:
    code = """import sys, fedskew as fs
PRIVATE = "fedskew.sums", "fedskew.noise", "fedskew.privacy", "cryptography", "dp_accounting"
fs.run(fs.federate("digits", "iid", clients=3), fs.methods.fedla(), model="logistic", rounds=1, cohort=3)
print([m for m in sys.modules if m.startswith(PRIVATE)])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
