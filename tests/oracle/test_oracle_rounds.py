"""Whole runs of the oracle: the cards' invariants, and agreement with the plain example."""

import numpy as np
import pytest

from support.scripts import script

from . import losses
from .checks import make_problem, make_rounds, near, numeric, same
from .model import backward, flat, forward, head, lin
from .recipes import RECIPES
from .rounds import Problem, RoundPlan, own_losses, run


@pytest.fixture(params=[0, 6], ids=["linear", "mlp"])
def setting(request):
    problem = make_problem(request.param)
    return problem, make_rounds(problem)


NEUTRAL = {
    "fedprox": {"mu": 0.0},
    "fedavgm": {"beta": 0.0},
    "fedbal": {"strength": 0.0, "weighting": "size"},
    "moon": {"mu_con": 0.0},
    "feddecorr": {"beta": 0.0},
    "fedmlb": {"lam1": 0.0, "lam2": 0.0},
    "feduv": {"deviation": 0.0, "uniformity": 0.0},
    "fedrs": {"alpha": 1.0},
    "fedntd": {"beta": 0.0},
    "fedcm": {"mix": 1.0, "weighting": "size"},
    "fedsam": {"rho": 0.0, "weighting": "size"},
    "mofedsam": {"rho": 0.0, "mix": 1.0, "weighting": "size"},
    "fedsol": {"rho": 0.0},
    "fedacg": {"beta": 0.0, "mu": 0.0, "weighting": "size"},
    "fedlesam": {"rho": 0.0, "weighting": "size"},
    "fedexp": {"eps": 1e9, "weighting": "size"},
    "fedfocal": {"gamma": 0.0},
    "fedlc": {"tau": 0.0},
    "logit_adjust": {"tau": 0.0},
    "fedrl": {"beta": 0.0, "weighting": "size"},
    "seolkim": {},
    "astraea": {},
    "creff": {},
    "class_balanced": {"beta": 0.0},
    "climb": {"eta": 0.0, "weighting": "size"},
    "fedvc": {"weighting": "size"},
}


@pytest.mark.parametrize("method", NEUTRAL)
def test_neutral_is_fedavg(method, setting):
    problem, rounds = setting
    rest = {"momentum": 0.5, "weight_decay": 0.01, "clip": 2.0}
    same(run(method, problem, rounds, **rest, **NEUTRAL[method])[0], run("fedavg", problem, rounds, **rest)[0])


@pytest.mark.parametrize("method", sorted(RECIPES))
def test_every_method_runs_and_moves_away_from_fedavg(method, setting):
    problem, _ = setting
    tuples = 3 if method == "perfedavg" else 0
    rounds = make_rounds(problem, tuples=tuples)
    if method == "fedrl":
        rounds[0].class_weights = [1.0, 2.0, 0.5, 3.0]
    options = {"every": 1, "eps": 0.0} if method == "climb" else {}
    history, state = run(method, problem, rounds, **options)
    assert all(np.isfinite(flat(w, w)).all() for w in history) and len(state["trace"]) == 3
    plain = run("fedavg", problem, make_rounds(problem))[0]
    moved = np.abs(flat(history[-1], history[-1]) - flat(plain[-1], plain[-1])).max()
    through_features = (
        method in ("moon", "feddecorr", "fedmlb") and len(problem.params) == 2
    )  # its features are the data, or it has one block: nothing to pull
    assert (moved > 1e-6) != (method in ("fedavg", "seolkim", "astraea", "creff") or through_features)


def test_one_full_batch_is_a_gradient_step(setting):
    problem, _ = setting
    everyone = np.concatenate(problem.rows)
    plan = RoundPlan([0, 1, 2], [[rows] for rows in problem.rows], 0.1)
    z, _, inputs = forward(problem.params, problem.x[everyone])
    g = backward(problem.params, inputs, losses.affine_ce(z, problem.y[everyone])[1])
    same(run("fedavg", problem, [plan])[0], [lin((1, problem.params), (-0.1, g))])


def test_padding_is_dropped(setting):
    problem, rounds = setting
    for plan in rounds:
        plan.batches = [[np.append(b, [-1, -1]) for b in steps] for steps in plan.batches]
    same(run("fedavg", problem, rounds)[0], run("fedavg", problem, make_rounds(problem))[0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_scaffold_invariants(setting, momentum):
    problem, rounds = setting
    history, state = run("scaffold", problem, rounds, momentum=momentum)
    same(history[:1], run("fedavg", problem, rounds[:1], weighting="uniform", momentum=momentum)[0])
    same([state["c"]], [lin(*[(1 / 3, m["c"]) for m in state["clients"]])])
    alone = Problem(problem.params, problem.x, problem.y, 4, problem.rows[:1])
    plans = make_rounds(alone, ids=((0,), (0,)))
    if not momentum:
        same(run("scaffold", alone, plans)[0], run("fedavg", alone, plans)[0])


def test_feddyn_invariant(setting):
    problem, rounds = setting
    _, state = run("feddyn", problem, rounds, alpha=0.1)
    same([state["h"]], [lin(*[(1 / 3, m["h"]) for m in state["clients"]])])


def test_feddyn_card():
    """f = (w - 1)^2 / 2 has no classes; the card's numbers follow from one step of any objective with slope -1."""
    problem = make_problem(clients=1)
    plan = RoundPlan([0], [[problem.rows[0]]], 0.1)
    history, state = run("feddyn", problem, [plan], alpha=0.5)
    y = state["trace"][0]["local"][0]
    same([state["h"]], [lin((-0.5, y), (0.5, problem.params))])
    same(history, [lin((1, y), (-1 / 0.5, state["h"]))])  # y + (y - x): 0.1 -> 0.2


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}])
def test_fednova_equal_steps_is_fedavg(options):
    problem = make_problem(6)
    plan = RoundPlan([0, 1, 2], [[rows[:4], rows[4:]] for rows in problem.rows], 0.1)
    same(run("fednova", problem, [plan, plan], **options)[0], run("fedavg", problem, [plan, plan], **options)[0])


def test_fednova_moves_by_the_normalised_updates(setting):
    """x - tau_eff sum p_k d_k written out; with the proximal term a = (1 - (1 - e)^tau) / e."""
    problem, rounds = setting
    history, state = run("fednova", problem, rounds[:1], mu=0.3)
    local, p = state["trace"][0]["local"], np.array([14, 10, 8]) / 32
    a = np.array([(1 - 0.97 ** len(steps)) / 0.03 for steps in rounds[0].batches])
    d = [lin((1 / n, problem.params), (-1 / n, y)) for n, y in zip(a, local, strict=True)]
    same(history, [lin((1, problem.params), *[(-(p @ a) * q, v) for q, v in zip(p, d, strict=True)])])


def test_fedgr_without_force_is_an_average(setting):
    problem, rounds = setting
    free, plain = run("fedgr", problem, rounds, lam=0.0)[0], run("fedavg", problem, rounds, loss="fedgr")[0]
    same(free, plain)
    pulled = run("fedgr", problem, rounds)[0][-1]
    only = head(pulled)[0]
    first = run("fedgr", problem, rounds[:1])[0][0]
    changed = {n for n in first if np.abs(first[n] - free[0][n]).max() > 1e-9}
    assert changed == {only}  # the classifier's weights, no bias, no backbone
    alone = [RoundPlan([1], plan.batches[1:2], 0.1, plan.epochs[1:2]) for plan in rounds[:1]]
    same(run("fedgr", problem, alone)[0], run("fedgr", problem, alone, lam=0.0)[0])


def test_fedgc_heads(setting):
    problem, rounds = setting
    history, state = run("fedgc", problem, rounds, lam=0.0)
    w, b = head(problem.params)
    owned = np.stack([problem.owned(k) > 0 for k in range(3)])
    near(state["clients"][2]["head"][w][~owned[2]], problem.params[w][~owned[2]])  # rows it does not own never move
    sizes = np.array([problem.owned(k).sum() for k in rounds[-1].ids])
    ids = rounds[-1].ids
    for c in range(4):
        share = sizes * owned[ids, c]
        mean = sum(s * state["clients"][k]["head"][b][c] for s, k in zip(share, ids, strict=True)) / share.sum()
        near(history[-1][b][c], mean)
    assert np.abs(run("fedgc", problem, rounds)[0][-1][w] - history[-1][w]).max() > 1e-6


def test_pfedme_and_perfedavg_reduce_to_fedavg(setting):
    problem, rounds = setting
    lr, lam, personal = 0.1, 2.0, 0.3
    near_fedavg = run("pfedme", problem, rounds, lam=lam, personal_lr=personal, inner=1, reset=True)[0]
    for plan in rounds:
        plan.lr = lr * lam * personal
    same(near_fedavg, run("fedavg", problem, rounds)[0])
    bilevel = make_rounds(problem, tuples=3)
    second = [RoundPlan(p.ids, [[b[1] for b in s] for s in p.batches], p.lr) for p in bilevel]
    plain = run("fedavg", problem, second, weighting="uniform")[0]
    same(run("perfedavg", problem, bilevel, alpha=0.0)[0], plain)
    same(run("perfedavg", problem, bilevel, alpha=0.0, variant="fo")[0], plain)


def test_perfedavg_hf_is_the_derivative_of_the_adapted_loss(setting):
    """With D'' = D, as delta -> 0 the step is the gradient of f(w - alpha grad f(w; D); D')."""
    problem, _ = setting
    d, d2 = problem.rows[0][:6], problem.rows[0][6:12]
    plan = RoundPlan([0], [[(d, d2, d)]], 1.0)
    new = run("perfedavg", problem, [plan], alpha=0.3, delta=1e-5)[0][0]

    def grad(w, rows):
        z, _, inputs = forward(w, problem.x[rows])
        return backward(w, inputs, losses.affine_ce(z, problem.y[rows])[1])

    def adapted(w):
        v = lin((1, w), (-0.3, grad(w, d)))
        return losses.affine_ce(forward(v, problem.x[d2])[0], problem.y[d2])[0]

    for name, v in problem.params.items():
        slope = numeric(lambda u, name=name: adapted({**problem.params, name: u}), v)
        near(problem.params[name] - new[name], slope, 1e-6)


def test_moon_and_ntd_start_like_fedavg(setting):
    problem, rounds = setting
    same(run("moon", problem, rounds[:1], mu_con=5.0)[0], run("fedavg", problem, rounds[:1])[0])
    one_step = [RoundPlan([0], [[problem.rows[0]]], 0.1)]
    same(run("fedntd", problem, one_step)[0], run("fedavg", problem, one_step)[0])


def test_fedga_invariants():
    z = np.random.default_rng(1).normal(size=(4, 4))
    y = np.arange(4)  # every class once: both variants are cross-entropy
    for variant in ("softce", "exact"):
        value, g = losses.fedga(z, y, variant=variant)
        near(value, losses.affine_ce(z, y)[0])
        near(g, losses.affine_ce(z, y)[1])
    one = np.zeros(4, int)  # one class only: the others get nothing
    near(losses.fedga(z, one, variant="exact")[1][:, 1:], 0)


def test_climb_weights_in_a_run(setting):
    problem, rounds = setting
    history, state = run("climb", problem, rounds, every=1, eps=0.0, eta=3.0)
    lam = np.zeros(3)
    for x in (problem.params, *history[:-1]):  # measured before the round, used in the next one
        f = own_losses(problem, x)
        lam = np.clip(lam + (f - f.mean()), 0, 100)
    near(state["lambda"], lam)
    same(run("climb", problem, rounds, eps=1e9)[0], run("fedavg", problem, rounds, weighting="uniform")[0])


def test_chains(setting):
    """A mediator of one is FedAvg; of all, sequential training."""
    problem, rounds = setting
    plan = rounds[0]
    w = problem.params
    for i in (2, 0, 1):
        alone = Problem(w, problem.x, problem.y, 4, problem.rows)
        w = run("fedavg", alone, [RoundPlan([i], [plan.batches[i]], 0.1)])[0][0]
    same(run("astraea", problem, [RoundPlan(plan.ids, plan.batches, 0.1, chains=[[2, 0, 1]])])[0], [w])
    two = run("astraea", problem, [RoundPlan(plan.ids, plan.batches, 0.1, chains=[[2, 0], [1]])])
    near(two[1]["trace"][0]["weights"], [22 / 32, 10 / 32])


def test_seolkim_weights_follow_the_quotas(setting):
    problem, rounds = setting
    used = [[3, 1, 0, 2], [2, 2, 0, 0], [0, 0, 1, 1]]
    plan = RoundPlan(rounds[0].ids, rounds[0].batches, [0.1, 0.05, 0.2], used=used)
    near(run("seolkim", problem, [plan])[1]["trace"][0]["weights"], [0.5, 1 / 3, 1 / 6])


def test_fedrl_estimates_its_weights(setting):
    problem, rounds = setting
    problem.aux_x, problem.aux_y = problem.x, problem.y
    for plan in rounds:
        plan.auxiliary = [[np.flatnonzero(problem.y == c)[:3]] for c in range(4)]
    history, state = run("fedrl", problem, rounds)
    plain = {"weighting": "uniform", "momentum": 0.9, "weight_decay": 5e-4}
    same(history[:1], run("fedavg", problem, rounds[:1], **plain)[0])  # all weights are 1 in the first round
    assert (state["class_weights"] > 1).any() and len(history) == 3


def test_combinations(setting):
    problem, rounds = setting
    history, state = run("scaffold", problem, rounds, weighting="balancer", loss="lb", strength=5.0)
    assert np.isfinite(flat(history[-1], history[-1])).all()
    near(state["trace"][0]["weights"].sum(), 1.0)
    assert run("fednova", problem, rounds, weighting="balancer")[1]["tau_eff"] > 0
    with pytest.raises(AssertionError):
        run("fedavg", problem, rounds, strength=1.0)


# --- the plain example in the package's examples folder ---------------------------------------------------------------


@pytest.mark.parametrize("hidden", [0, 6])
def test_minifed_agrees(hidden):
    import torch

    mini, problem = script("examples/minifed.py"), make_problem(hidden)
    rounds = make_rounds(problem)
    x, y, sizes = torch.tensor(problem.x), torch.tensor(problem.y), [len(r) for r in problem.rows]
    avg = prox = scaf = {n: torch.tensor(v) for n, v in problem.params.items()}
    c = {n: torch.zeros_like(v) for n, v in scaf.items()}
    memory = [c] * 3
    for plan in rounds:
        cohort = dict(zip(plan.ids, plan.batches, strict=True))
        avg = mini.fedavg_round(avg, cohort, sizes, 0.1, x, y)
        prox = mini.fedprox_round(prox, cohort, sizes, 0.1, x, y, mu=0.5)
        scaf, c, memory = mini.scaffold_round(scaf, c, memory, cohort, 0.1, x, y)
    for result, method, options in ((avg, "fedavg", {}), (prox, "fedprox", {"mu": 0.5}), (scaf, "scaffold", {})):
        same([{n: v.numpy() for n, v in result.items()}], [run(method, problem, rounds, **options)[0][-1]], 1e-11)
