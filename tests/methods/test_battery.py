"""One battery over the table of methods: it proves the plumbing, row by row; the oracle proves the mathematics."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle
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
from fedskew.method.steps import SGD
from fedskew.methods import METHODS
from fedskew.slots import INGREDIENTS
from support.federations import skewed
from support.methods import BY_HOOK, BY_SIGNATURE, NAMES, changed, tiny
from support.nets import dropout_net, norm_net
from support.runs import gap, go, measured, rows_of, same

every_method = pytest.mark.parametrize("name", BY_HOOK)

MODELS: dict[str, Any] = {"mlp": fs.models.MLP(hidden=16), "batchnorm": norm_net(), "dropout": dropout_net()}


def state_of(result: fs.Result) -> dict[str, Any]:
    """All that a run leaves behind."""
    state = result.state
    return {"served": result.params, "params": state.params, "buffers": state.buffers, "parts": state.parts}


def near(one: Any, two: Any, what: str) -> None:
    """Trees of numbers, floats up to rounding."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), what
        for name in one:
            near(one[name], two[name], name)
    elif isinstance(one, list):
        for a, b in zip(one, two, strict=True):
            near(a, b, what)
    else:
        assert (pytest.approx(one, rel=1e-7, abs=1e-7) if isinstance(one, float) else one) == two, what


def close(a: fs.Result, b: fs.Result, tolerance: float) -> None:
    """Both runs left the same, and wrote the same rows."""
    assert gap(state_of(a), state_of(b)) <= tolerance
    near(rows_of(a), rows_of(b), "rounds")


# ---------------------------------------------------------------------------------------------------------------------
# Engines


@pytest.mark.parametrize("name", BY_SIGNATURE)
def test_engines_agree(name: str, model: str = "mlp") -> None:
    """Clients are ragged: their sizes, steps and classes differ."""
    fed, method = skewed(), tiny(name)
    close(*(measured(fed, method, model=MODELS[model], engine=e) for e in ("sequential", "batched")), 1e-8)


@every_method
@pytest.mark.parametrize("model", ["batchnorm", "dropout"])
def test_engines_agree_on_other_networks(name: str, model: str) -> None:
    test_engines_agree(name, model)


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


@pytest.mark.parametrize("crop", ["crop", pytest.param("crop_reflect", marks=pytest.mark.thorough)])
def test_engines_agree_on_augmented_images(crop: str) -> None:
    x = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (60, 3, 32, 32), dtype=np.uint8)
    data = fs.data.from_arrays(x, np.arange(60) % 4, x[:8], np.arange(8) % 4)
    fed = fs.federate(replace(data, augment=(crop, "flip")), "iid", clients=3)
    plain = fs.federate(data, "iid", clients=3)
    method = replace(fs.methods.fedavg(), pace=Fixed(batch_size=16))
    a, b = (go(fed, method, model="lenet", engine=e) for e in ("sequential", "batched"))
    close(a, b, 1e-8)
    assert not same(a.params, go(plain, method, model="lenet").params)


# ---------------------------------------------------------------------------------------------------------------------
# Determinism


@every_method
def test_the_same_configuration_gives_the_same_bytes(name: str) -> None:
    fed = skewed()

    def written(seed: int) -> str:
        return json.dumps(rows_of(go(fed, tiny(name), model=MODELS["dropout"], dtype="float32", seed=seed)))

    assert written(0) == written(0)
    assert written(0) != written(1)


# ---------------------------------------------------------------------------------------------------------------------
# A method is a value


@every_method
def test_a_method_is_a_value(name: str) -> None:
    method, kinds = METHODS[name](), [kind for table in INGREDIENTS.values() for kind in table.values()]
    for twin in (METHODS[name](), pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert twin == method and hash(twin) == hash(method) and repr(twin) == repr(method)
    assert eval(repr(method), {"Method": Method, **{kind.__name__: kind for kind in kinds}}) == method
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
        yield from (other for other in (fs.weightings.Uniform(), fs.weightings.LabelAware()) if other != value)
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
SMALL = Fixed(batch_size=16)
ALONE = ("ClassBalancedLoss", "GeneratedHead", "LDAM", "LogitAdjustment", "PooledLogitCalibration", "ProximalVariant")
LOOSE: dict[str, Method] = {
    part.name: Method(part.name, (part,), pace=SMALL)
    for part in (*(getattr(fs.parts, name)() for name in ALONE), fs.parts.WeightedGravitation())
} | {
    "dataset_mean": Method(
        "dataset_mean", (fs.parts.DatasetMean(),), sampler=fs.samplers.DecayingOversampling(), pace=SMALL
    ),
    "prior_analyser": replace(fs.methods.fedgrab(analyser=True), pace=Fixed(lr=0.03, batch_size=16)),
    "tuned_cosine_softmax": replace(fs.methods.fedetf(4.0, 12, personal="alternating", cycles=2), pace=SMALL),
    "union_share": Method("union_share", weighting=fs.weightings.UnionShare(), pace=SMALL),
    "weighted_sum": Method("weighted_sum", server=fs.servers.WeightedSum(), pace=SMALL),
}
EVERY_FIELD = [(name, c, f) for name in NAMES for c, f in fields_of(METHODS[name]())]
EVERY_FIELD.remove(("localonly", "plain", "lr"))  # nothing reaches the server
EVERY_FIELD += [(name, c, f) for name, m in LOOSE.items() for c, f in fields_of(m) if c == name]
FIRST = {(c, f): (name, c, f) for name, c, f in reversed(EVERY_FIELD)}  # the first method that has the field


def footprint(method: Method) -> bytes:
    """What can be observed of a run: parameters, state, rows with their bytes and personal metrics."""
    result = go(skewed(), method, cohort=4, model=MODELS["mlp"], dtype="float32")
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
