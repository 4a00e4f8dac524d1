"""One battery over the table of methods: it proves the plumbing, row by row; the oracle proves the mathematics."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import fedskew as fs
from fedskew import tree
from fedskew.engines import batched, stacks
from fedskew.errors import ConfigError
from fedskew.method import Component, Method
from fedskew.method.paces import Fixed
from fedskew.method.parts import DatasetMean, ProximalVariant
from fedskew.method.servers import Adam, WeightedSum, Yogi
from fedskew.method.steps import SGD
from fedskew.method.weightings import Uniform, UnionShare
from fedskew.methods import METHODS
from fedskew.methods.centralised import LDAM, ClassBalancedLoss
from fedskew.methods.fedgr import Gravitation, WeightedGravitation
from fedskew.methods.fedla import LabelAware
from fedskew.methods.fedlc import LogitAdjustment, PooledLogitCalibration
from fedskew.methods.fedrod import GeneratedHead
from fedskew.methods.seolkim import DecayingOversampling, Dynamic
from support.federations import RAGGED, blobs, skewed
from support.methods import BY_HOOK, BY_SIGNATURE, NAMES, WHOLE, changed, tiny
from support.nets import dropout_net, norm_net
from support.runs import gap, go, measured, rows_of, same

every_method = pytest.mark.parametrize("name", BY_HOOK)

MODELS: dict[str, Any] = {
    "mlp": lambda: fs.models.MLP(hidden=16),
    "batchnorm": norm_net,
    "dropout": dropout_net,
}


def state_of(result: fs.Result) -> dict[str, Any]:
    """All that a run leaves behind."""
    state = result.state
    return {"served": result.params, "params": state.params, "buffers": state.buffers, "parts": state.parts}


def close(a: fs.Result, b: fs.Result, tolerance: float) -> None:
    """Both runs left the same, and wrote the same rows."""
    assert gap(state_of(a), state_of(b)) <= tolerance
    for one, two in zip(rows_of(a), rows_of(b), strict=True):
        assert one.keys() == two.keys()
        for name, value in one.items():
            if isinstance(value, float):
                assert two[name] == pytest.approx(value, rel=1e-7, abs=1e-7), name
            elif name == "weights":
                assert two[name] == pytest.approx(value, rel=1e-7)
            elif name == "components":
                assert two[name].keys() == value.keys()
                for part in value:
                    for what, told in value[part].items():
                        assert two[name][part][what] == pytest.approx(told, rel=1e-7, abs=1e-7), (part, what)
            else:
                assert two[name] == value, name


# ---------------------------------------------------------------------------------------------------------------------
# Engines


@pytest.mark.parametrize("name", BY_SIGNATURE)
def test_engines_agree(name: str) -> None:
    engines_agree(name, "mlp")


@every_method
@pytest.mark.parametrize("model", [model for model in MODELS if model != "mlp"])
def test_engines_agree_on_other_networks(name: str, model: str) -> None:
    engines_agree(name, model)


def engines_agree(name: str, model: str) -> None:
    """Clients are ragged: their sizes, steps and classes differ."""
    fed, method = skewed(), tiny(name)
    runs = [measured(fed, method, model=MODELS[model](), engine=e) for e in ("sequential", "batched")]
    close(*runs, 1e-8)


@every_method
def test_debug_is_sequential(name: str) -> None:
    fed, method = skewed(), tiny(name)
    close(go(fed, method, rounds=1), go(fed, method, rounds=1, engine="debug"), 0.0)


@every_method
def test_padding_is_invisible(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fed, method = skewed(), tiny(name)

    def run() -> fs.Result:
        return go(fed, method, model=norm_net(), engine="batched")

    before = run()
    padded, more = stacks.positions, ((0, 0), (0, 2), (0, 0), (0, 3))
    # two more steps, three more rows in every mini-batch, and other clients to be stacked with
    monkeypatch.setattr(stacks, "positions", lambda p: np.pad(padded(p), more, constant_values=-1))
    monkeypatch.setattr(batched.Batched, "_settle_chunk", lambda engine, *_: setattr(engine, "chunk", 2))
    close(before, run(), 1e-12)


@pytest.mark.parametrize("crop", ["crop", "crop_reflect"])
def test_engines_agree_on_augmented_images(crop: str) -> None:
    data = fs.data.from_arrays(*images())
    fed = fs.federate(replace(data, augment=(crop, "flip")), "iid", clients=3)
    plain = fs.federate(data, "iid", clients=3)
    method = replace(fs.methods.fedavg(), pace=Fixed(batch_size=16))
    a, b = (go(fed, method, model="lenet", engine=e) for e in ("sequential", "batched"))
    close(a, b, 1e-8)
    assert not same(a.params, go(plain, method, model="lenet").params)


def images(rows: int = 60, channels: int = 3, size: int = 32, classes: int = 4) -> tuple[Any, ...]:
    draw = np.random.Generator(np.random.PCG64(0))
    x = draw.integers(0, 256, (rows, channels, size, size), dtype=np.uint8)
    return x, np.arange(rows) % classes, x[:8], np.arange(8) % classes


# ---------------------------------------------------------------------------------------------------------------------
# Determinism


@every_method
def test_the_same_configuration_gives_the_same_bytes(name: str) -> None:
    fed = skewed()

    def written(seed: int) -> str:
        return json.dumps(rows_of(go(fed, tiny(name), model=MODELS["dropout"](), dtype="float32", seed=seed)))

    assert written(0) == written(0)
    assert written(0) != written(1)


# ---------------------------------------------------------------------------------------------------------------------
# A method is a value


def all_components() -> dict[str, type[Component]]:
    """Every component class of the package by its class name."""
    found: dict[str, type[Component]] = {}

    def below(kind: type[Component]) -> None:
        for sub in kind.__subclasses__():
            written = getattr(sys.modules[sub.__module__], sub.__name__, None) is sub  # a run watches subclasses
            if sub.__module__.startswith("fedskew.") and written:
                found[sub.__name__] = sub
            below(sub)

    below(Component)
    return found


@every_method
def test_a_method_is_a_value(name: str) -> None:
    method = METHODS[name]()
    assert method == METHODS[name]() and hash(method) == hash(METHODS[name]())
    go(skewed(), tiny(name), rounds=1)  # nothing that a run does may stick to the value
    for twin in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert twin == method and hash(twin) == hash(method) and repr(twin) == repr(method)
    assert eval(repr(method), {**all_components(), "Method": Method}) == method
    assert str(method.name) == name
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.name = "mine"  # type: ignore[misc]
    for component in method.components:
        assert pickle.loads(pickle.dumps(component)) == component
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
            component.lr = 1.0  # type: ignore[attr-defined]


@every_method
def test_a_run_does_not_change_the_method(name: str) -> None:
    method = tiny(name)
    for component in method.components:
        getattr(component, "inner", None)  # what a wrapper works out once
    before = pickle.dumps(replace(method))
    go(skewed(), method, rounds=1)
    assert pickle.dumps(replace(method)) == before


@pytest.mark.thorough
def test_methods_differ() -> None:
    """Each pair of methods, the same seed: some parameter of the evaluated model differs, or a client's own model."""
    fed = skewed()
    found = {name: go(fed, tiny(name), rounds=3, model=norm_net()) for name in NAMES}
    rows = {name: rows_of(result)[-1] for name, result in found.items()}
    pairs = itertools.combinations(NAMES, 2)
    equal = {(a, b) for a, b in pairs if same(found[a].params, found[b].params) and rows[a] == rows[b]}
    assert equal == set()


# ---------------------------------------------------------------------------------------------------------------------
# Every field changes something


def candidates(kind: Any, value: Any) -> Iterator[Any]:
    """Other legal values of a field, the likeliest first."""
    if get_origin(kind) is Literal:
        yield from (v for v in get_args(kind) if v != value)
    elif kind is bool:
        yield not value
    elif kind is int:
        yield from (v for v in (value + 1, 2 * value + 3, max(value // 2, 1), 1, 0) if v != value)
    elif kind is float:
        yield from (v for v in (value / 2, value * 2 + 0.125, 0.5, 0.0, 50.0) if v != value)
    elif kind == int | Literal["linear"]:  # a projection head
        yield from (v for v in (12, "linear", 0) if v != value)
    elif get_origin(kind) is tuple and get_args(kind)[0] is str:  # names of layers
        yield from (v for v in (("head",), ("body",), ("fc1",), ("head", "fc1")) if v != value)
    elif get_origin(kind) is tuple:  # numbers, one for each class
        yield tuple(float(c + 1) for c in range(10))
    elif isinstance(value, Component):
        yield from (other for other in (Uniform(), LabelAware()) if other != value)
    else:
        raise AssertionError(f"no rule for another value of a field of type {kind!r}")


# (component, field): other fields that the field needs in order to matter, by the component's class name
NEEDS: dict[tuple[str, str], dict[str, Any]] = {
    ("Alternating", "last_lr"): {"last": 2},
    ("Dual", "whole"): {"eps": 0.0, "dual_lr": 1e3, "primal_rounds": 1},
    ("Dual", "lambda_max"): {"eps": -1.0, "dual_lr": 1e3, "primal_rounds": 1},
    ("Dual", "clamp_weights"): {"eps": 0.0, "dual_lr": 1e3, "primal_rounds": 1},
    ("Dual", "eps"): {"primal_rounds": 1, "dual_lr": 10.0},
    ("Dual", "dual_lr"): {"eps": 0.0, "primal_rounds": 1},
    ("Dual", "primal_rounds"): {"eps": 0.0},
    ("AggregationBalancer", "beta"): {"beta": 0.0},
    ("DecayingOversampling", "increment"): {"threshold": 0.0},
    ("Dual", "initial"): {"eps": 1.0, "dual_lr": 10.0, "primal_rounds": 1},
    ("LogitCalibration", "missing"): {"tau": 0.02},  # the margin of 100 tau would hide the class as well
    ("NotTrueDistillation", "scaled"): {"tau": 2.0},
    ("Adagrad", "bias_correction"): {"beta1": 0.9},  # of the first moment, which Adagrad has only then
    ("FederatedFeatures", "head_batch"): {"head_batch": 7},
    ("PriorAnalyser", "most"): {"most": 0.5},
    ("InitialHead", "steps"): {"sparsity": 0.5},  # they move what is not 0
}


def fields_of(method: Method) -> Iterator[tuple[str, str]]:
    for component in method.components:
        for field in dataclasses.fields(component):
            yield component.name, field.name


# the same, where another slot has to be changed
ALONG: dict[tuple[str, str], dict[str, Component]] = {
    ("FedNova", "tau_eff"): {"local": SGD(momentum=0.9)},
    ("ControlVariate", "division"): {"local": SGD(momentum=0.9)},
    ("RatioLoss", "zeros"): {"pace": Fixed(lr=0.1, epochs=1, batch_size=16), "local": SGD()},
    ("LocalBalancer", "early"): {"pace": Fixed(epochs=3, batch_size=16)},
}

# ingredients that belong to no method of the table: each makes one
LOOSE: dict[str, Method] = {
    part.name: Method(part.name, (part,), pace=Fixed(batch_size=16))
    for part in (
        ClassBalancedLoss(),
        GeneratedHead(),
        LDAM(),
        LogitAdjustment(),
        PooledLogitCalibration(),
        ProximalVariant(),
    )
}
LOOSE["prior_analyser"] = replace(fs.methods.fedgrab(analyser=True), pace=Fixed(lr=0.03, batch_size=16))
LOOSE |= {
    "dataset_mean": Method("dataset_mean", (DatasetMean(),), sampler=DecayingOversampling(), pace=Fixed(batch_size=16)),
    "tuned_cosine_softmax": replace(
        fs.methods.fedetf(4.0, 12, personal="alternating", cycles=2), pace=Fixed(batch_size=16)
    ),
    "union_share": Method("union_share", weighting=UnionShare(), pace=Fixed(batch_size=16)),
    "weighted_gravitation": Method("weighted_gravitation", (WeightedGravitation(),), pace=Fixed(batch_size=16)),
    "weighted_sum": Method("weighted_sum", server=WeightedSum(), pace=Fixed(batch_size=16)),
}
EVERY_FIELD = [(name, c, f) for name in NAMES for c, f in fields_of(METHODS[name]())]
EVERY_FIELD.remove(("localonly", "plain", "lr"))  # nothing reaches the server
EVERY_FIELD += [(name, c, f) for name, m in LOOSE.items() for c, f in fields_of(m) if c == name]
FIRST = {(c, f): (name, c, f) for name, c, f in reversed(EVERY_FIELD)}  # the first method that has the field


def footprint(method: Method) -> bytes:
    """What can be observed of a run: parameters, state, rows with their bytes and personal metrics."""
    result = go(skewed(), method, cohort=4, model=MODELS["mlp"](), dtype="float32")
    tensors = [leaf.numpy().tobytes() for leaf in tree.leaves({"served": result.params, "sent": result.state.params})]
    return b"".join(tensors) + json.dumps(rows_of(result)).encode()


FOOTPRINTS: dict[Method, bytes] = {}


@pytest.mark.parametrize(
    ("name", "component", "field"),
    [case if case in FIRST.values() else pytest.param(*case, marks=pytest.mark.thorough) for case in EVERY_FIELD],
)
def test_every_field_changes_something(name: str, component: str, field: str) -> None:
    base = LOOSE[name] if name in LOOSE else tiny(name)
    base = replace(base, pace=replace(base.pace, epochs=2 if name == "fedrep" else 1))  # one for each of its phases
    owner = next(c for c in base.components if c.name == component)
    needs = NEEDS.get((type(owner).__name__, field), {})
    base = changed(base, component, **needs) if needs else base
    base = replace(base, **ALONG.get((type(owner).__name__, field), {}))
    owner = next(c for c in base.components if c.name == component)
    if base not in FOOTPRINTS:
        FOOTPRINTS[base] = footprint(base)
    kind = get_type_hints(type(owner))[field]
    silent = []
    for value in candidates(kind, getattr(owner, field)):
        try:
            seen = footprint(changed(base, component, **{field: value}))
        except (ConfigError, fs.TrainingError):
            continue  # not legal here
        if seen == FOOTPRINTS[base]:
            silent.append(value)
        elif get_origin(kind) is not Literal:
            return  # one value that shows is enough, but every option must
    assert not silent, (
        f"{type(owner).__name__}.{field} = {getattr(owner, field)!r} changes nothing when set to {silent}"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Neutral settings at the edges of formulas: FedAvg under the same weighting, as the cards say

UNIFORM = replace(fs.methods.fedavg(), weighting=Uniform())
ALL_ROWS = Fixed(batch_size=0)
FIVE = Fixed(epochs=5)  # Seol-Kim's baselines
BALANCED = [[4, 4, 4]] * 4  # counts of four clients that own every class equally
PROPORTIONAL = [[2, 4, 6], [1, 2, 3], [4, 8, 12], [3, 6, 9]]


def fedavg(**slots: Any) -> Method:
    return replace(fs.methods.fedavg(), **slots)


HEADED = fs.models.MLP(hidden=8, projection=6)  # FedAvg's network, with the head that MOON wants
# what it is: (method, what it must equal, tolerance, counts of the clients, options of the run)
Neutral = tuple[Method, Method, float, Any, dict[str, Any]]
NEUTRAL: dict[str, Neutral] = {
    "local balancer, equal counts": (fs.methods.fedbal(aggregation=False), fedavg(), 1e-12, BALANCED, {}),
    "aggregation balancer, one client": (fs.methods.fedbal(local=False), fedavg(), 0.0, RAGGED, {"cohort": 1}),
    "fedgr, one client": (Method("g", parts=(Gravitation(),)), fedavg(), 1e-12, RAGGED, {"cohort": 1}),
    "fedgc, strength 0, first round": (fs.methods.fedgc(0.0), fedavg(), 1e-12, BALANCED, {"rounds": 1}),
    "fedgc, one client, first round": (fs.methods.fedgc(), fedavg(), 1e-12, BALANCED, {"rounds": 1, "cohort": 1}),
    "feddecorr, one row a mini-batch": (
        replace(fs.methods.feddecorr(5.0), pace=Fixed(batch_size=1)), fedavg(pace=Fixed(batch_size=1)), 1e-12, RAGGED,
        {"model": fs.models.MLP(hidden=8)},
    ),
    "feduv, one row a mini-batch": (
        replace(fs.methods.feduv(), pace=Fixed(batch_size=1)), fedavg(pace=Fixed(batch_size=1)), 1e-12, RAGGED,
        {"model": fs.models.MLP(hidden=8)},
    ),
    "fedmlb, one block": (fs.methods.fedmlb(), fedavg(), 0.0, RAGGED, {"model": "logistic"}),
    "fedvls, all classes alike, no suppression": (fs.methods.fedvls(9.0, 0.0), fedavg(), 1e-12, BALANCED, {}),
    "feddisco, nothing left": (fs.methods.feddisco(1e9, -1.0, "l2"), fedavg(), 0.0, RAGGED, {}),
    "feddisco, labels of the target": (fs.methods.feddisco(9.0, 0.0, "kl_plain"), fedavg(), 1e-12, BALANCED, {}),
    "fedpals, alike": (fs.methods.fedpals(1.0), fedavg(), 1e-12, PROPORTIONAL, {}),
    "fedpals, one client": (fs.methods.fedpals(), fedavg(), 0.0, RAGGED, {"cohort": 1}),
    "fedsol, one step a round": (replace(fs.methods.fedsol(5.0), pace=WHOLE), fedavg(pace=WHOLE), 0.0, RAGGED, {}),
    "clustered sampling, equal clients, everybody": (
        fs.methods.clusteredsampling(), UNIFORM, 0.0, BALANCED, {"cohort": 4},
    ),
    "ccvr broadcasts": (tiny("ccvr"), tiny("fedavg"), 0.0, RAGGED, {}),
    "fedamp, no pull, first round": (fs.methods.fedamp(pull=0.0), fedavg(), 0.0, RAGGED, {"rounds": 1}),
    "ifca, one model": (fs.methods.ifca(1), UNIFORM, 1e-12, RAGGED, {}),
    "precision weighted, one client": (fs.methods.precisionweighted(), UNIFORM, 1e-12, RAGGED, {"cohort": 1}),
    "fedcurv, first round": (fs.methods.fedcurv(9.0), fedavg(), 0.0, RAGGED, {"rounds": 1}),
    "fedcurv, one client": (fs.methods.fedcurv(9.0), fedavg(), 1e-12, [[5, 2, 4]], {"cohort": 1}),
    "fedexp, one client": (fs.methods.fedexp(), UNIFORM, 1e-12, RAGGED, {"cohort": 1}),
    "fedlesam, first round": (fs.methods.fedlesam(0.5), UNIFORM, 0.0, RAGGED, {"rounds": 1}),
    "scaffold, first round": (fs.methods.scaffold(), UNIFORM, 0.0, RAGGED, {"rounds": 1}),
    "fednova, equal steps": (fs.methods.fednova(), fedavg(), 1e-12, BALANCED, {}),
    "fednova, equal steps, momentum": (
        replace(fs.methods.fednova(), local=SGD(momentum=0.9)), fedavg(local=SGD(momentum=0.9)), 1e-12, BALANCED, {},
    ),
    "fednova, one client": (fs.methods.fednova(), fedavg(), 1e-12, RAGGED, {"cohort": 1}),
    "adam and yogi, v = 0, first round": (
        fedavg(server=Adam(initial=0.0)), fedavg(server=Yogi(initial=0.0)), 1e-12, RAGGED, {"rounds": 1},
    ),
    "fedrl, first round": (fs.methods.fedrl(), replace(fs.methods.fedrl(), parts=()), 1e-12, None, {"rounds": 1}),
    "moon, mu = 0": (fs.methods.moon(mu=0.0), fedavg(), 0.0, RAGGED, {"rounds": 3, "model": HEADED}),
    "moon, mu = 0, no head": (fs.methods.moon(mu=0.0, projection=0), fedavg(), 0.0, RAGGED, {"rounds": 3}),
    "moon, first round": (fs.methods.moon(), fedavg(), 0.0, RAGGED, {"rounds": 1, "model": HEADED}),
    "power of choice, everybody": (fs.methods.powerofchoice(4), fedavg(), 0.0, RAGGED, {"cohort": 4}),
    "astraea, alpha = 0, gamma = 1": (fs.methods.astraea(0.0, 1), fedavg(), 1e-12, RAGGED, {}),
    "seolkim, three parts off": (fs.methods.seolkim(False, False, False), fedavg(pace=FIVE), 0.0, RAGGED, {}),
    "seolkim, one class a client": (
        fs.methods.seolkim(True, False, False), fedavg(pace=FIVE), 0.0, [[5, 0, 0], [0, 7, 0], [0, 0, 3]], {},
    ),
    "seolkim, balanced clients": (fs.methods.seolkim(True, False, False), fedavg(pace=FIVE), 0.0, BALANCED, {}),
    "seolkim, no scale of the batch": (
        Method("b", pace=Dynamic(epochs=2, beta=1, b0=1e-18)), fedavg(pace=ALL_ROWS), 1e-12, RAGGED, {},
    ),
    "fedla, proportional histograms": (fs.methods.fedla(), fedavg(), 1e-12, PROPORTIONAL, {}),
    "fedla, one client": (fs.methods.fedla(), fedavg(), 0.0, RAGGED, {"cohort": 1}),
    "fedntd, two classes": (fs.methods.fedntd(beta=3.0), fedavg(), 1e-12, [[5, 2], [1, 7], [4, 4]], {}),
    "fedntd, first step": (
        replace(fs.methods.fedntd(beta=3.0), pace=WHOLE), fedavg(pace=WHOLE), 1e-12, RAGGED, {},
    ),
    "fedlc, tau = 0": (fs.methods.fedlc(tau=0.0), fedavg(), 1e-12, RAGGED, {}),
    "fedlc, equal counts": (fs.methods.fedlc(tau=2.0), fedavg(), 1e-12, BALANCED, {}),
    "fedir, everybody like the whole": (fs.methods.fedir(), fedavg(), 1e-12, PROPORTIONAL, {}),
    "fedvc, clients of that size": (
        replace(fs.methods.fedvc(12), pace=ALL_ROWS), replace(UNIFORM, pace=ALL_ROWS), 1e-12, BALANCED, {"cohort": 4},
    ),
    "creff broadcasts": (tiny("creff"), tiny("fedavg"), 0.0, RAGGED, {}),
}  # fmt: skip


@pytest.mark.parametrize("what", NEUTRAL)
def test_a_neutral_setting_is_fedavg(what: str) -> None:
    """Compared is the model that is broadcast, over three rounds where the case does not say otherwise."""
    method, reference, tolerance, counts, options = NEUTRAL[what]
    options = dict(options)
    if "pace" in options:
        method = replace(method, pace=options.pop("pace"))
    fed = skewed() if counts is None else blobs(counts)
    options = {"rounds": 3, "cohort": 2 if counts is not None else 3} | options
    a, b = (go(fed, m, **options) for m in (method, reference))
    chosen = [[np.sort(np.ravel(row["clients"])).tolist() for row in result.rounds] for result in (a, b)]
    assert chosen[0] == chosen[1]
    assert gap(a.state.params, b.state.params) <= tolerance
    assert gap(a.state.params, go(fed, reference, **(options | {"seed": 1})).state.params) > 1e-6  # the test can fail


@pytest.mark.parametrize(
    "method",
    [fs.methods.fedbal(local=False), fs.methods.scaffold(), fs.methods.fednova(), fs.methods.fedla(), UNIFORM],
    ids=lambda m: str(m.name),
)
def test_identical_clients_are_fedavg(method: Method) -> None:
    """Same rows, all at once, everybody takes part: every convex average, and SCAFFOLD in every round, is FedAvg."""
    fed = blobs([[3, 2, 4]] * 4, copies=True)
    a, b = (go(fed, replace(m, pace=WHOLE), rounds=4, cohort=4) for m in (method, fs.methods.fedavg()))
    assert gap(a.state.params, b.state.params) <= 1e-12
    assert all(w == pytest.approx([0.25] * 4, abs=1e-12) for w in (row["weights"] for row in a.rounds))
