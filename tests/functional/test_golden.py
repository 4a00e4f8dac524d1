"""Every golden vector of the functional room: values and gradients in float64, alone and under vmap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fedskew.functional as fn
from fedskew.functional.classifier import _terms
from support.paths import GOLDEN
from support.tensors import f64

torch.set_num_threads(1)

# Vectors of ingredients that live in other rooms (metrics, method files).
ELSEWHERE = {"error_asymmetry", "fedir", "balancefl"}


Vector = dict[str, Any]


@pytest.fixture
def v(request: pytest.FixtureRequest) -> Vector:
    """The vector that the test is named after."""
    return GOLDEN[request.node.originalname.removeprefix("test_")]


def i64(x: object) -> Tensor:
    return torch.tensor(x, dtype=torch.int64)


def close(got: Tensor | float, want: object, atol: float = 2e-10) -> None:
    """Golden numbers hold ten decimals."""
    got, want = (x.to(torch.float64) if isinstance(x, Tensor) else f64(x) for x in (got, want))
    torch.testing.assert_close(got, want, rtol=1e-10, atol=atol)


def mapped(f: Callable[..., Any], *args: Tensor) -> Any:
    """f(*args), after checking that vmap over a stack of perturbed arguments agrees with a plain loop."""

    def perturbed(step: int) -> list[Tensor]:
        return [a + 0.1 * step if a.is_floating_point() else a for a in args]

    rows = [perturbed(s) for s in range(3)]
    together = torch.vmap(f)(*(torch.stack(column) for column in zip(*rows, strict=True)))
    alone = [f(*row) for row in rows]
    for s, one in enumerate(alone):
        torch.testing.assert_close(together[s], one, rtol=1e-12, atol=1e-12)
    return alone[0]


def gradient(f: Callable[..., Tensor], *args: Tensor) -> Tensor:
    """Gradient of the summed result by the first argument, by torch.func under vmap and by plain autograd."""
    functional = mapped(torch.func.grad(lambda *a: f(*a).sum()), *args)
    x = args[0].clone().requires_grad_()
    (plain,) = torch.autograd.grad(f(x, *args[1:]).sum(), x)
    torch.testing.assert_close(functional, plain, rtol=1e-12, atol=1e-13)
    return plain


# Losses


def test_lb(v: Vector) -> None:
    counts, z = f64(v["counts"]), f64([v["logits"]] * 3)
    features = f64([[3.0, 4.0]] * 3)  # norm 5
    close(mapped(fn.imbalance_gap, counts), v["lambda_"])
    close(fn.imbalance_gap(i64(v["missing"]["counts"])).double(), v["missing"]["lambda_clamp1"], atol=1e-7)
    close(fn.imbalance_gap(f64(v["missing"]["counts"])), v["missing"]["lambda_clamp1"])
    strength = v["scale"] * v["alpha_k"]
    close(fn.balanced_logits(z, features, f64(v["lambda_"]), strength)[0], v["balanced_logits"])
    labels = i64([0, 1, 2])

    def loss(f: Tensor, z: Tensor, c: Tensor) -> Tensor:
        return fn.local_balancer_loss(z, f, labels, c, strength)

    close(mapped(loss, features, z, counts), v["losses"])
    by_features = gradient(loss, features, z, counts)
    close((by_features[2] * features[2] / 5).sum(), v["grad_wrt_norm_y2"])  # along f / ||f||
    index = torch.arange(1, 5, dtype=torch.float64)
    close(mapped(lambda k: fn.balance_schedule(k, 4), index), v["alpha_schedule_K4_one_based"])
    close(fn.balance_schedule(index - 1, 4), v["alpha_schedule_K4_zero_based"])


def test_fedga(v: Vector) -> None:
    labels, z = i64(v["labels"]), torch.zeros(4, 3, dtype=torch.float64)
    close(fn.class_counts(labels, 3), v["counts"])
    q = mapped(lambda z: fn.fedga_targets(z, labels), z)
    close(q[0], v["q_label0"])
    close(q[3], v["q_label1"])
    close(fn.fedga_targets(z, labels, f64(v["counts"])), q)
    close(q.sum(-1)[[0, 3]], v["S"])
    exact = gradient(lambda z: fn.fedga_loss(z, labels, form="exact"), z)
    close(exact[0], v["grad_exact_label0"])
    close(exact[3], v["grad_exact_label1"])
    close(exact.sum(0), v["grad_exact_sum"])
    soft = gradient(lambda z: fn.fedga_loss(z, labels), z)
    close(soft[0], v["grad_softCE_label0"])
    close(soft[3], v["grad_softCE_label1"])
    close(soft.sum(0), v["grad_softCE_sum"])
    close(mapped(lambda z: fn.fedga_loss(z, labels), z).mean(), v["softCE_mean_loss"])
    close(gradient(lambda z: fn.cross_entropy(z, labels), z).sum(0), v["grad_plainCE_sum"])


def test_fedga_padding_is_invisible() -> None:
    v = GOLDEN["fedga"]
    labels, z = i64([*v["labels"], 0, 0]), torch.zeros(6, 3, dtype=torch.float64)
    mask = f64([1, 1, 1, 1, 0, 0])
    close(fn.class_counts(labels, 3, mask), v["counts"])
    close((fn.fedga_loss(z, labels, mask=mask) * mask).sum() / 4, v["softCE_mean_loss"])


def test_fedga_balanced_2class(v: Vector) -> None:
    z, labels = f64(v["p"]).log(), i64([0, 1])
    close(mapped(lambda z: fn.fedga_targets(z, labels), z), v["q"])


def test_fedgr_softmax(v: Vector) -> None:
    counts, z, labels = f64(v["counts"]), f64([v["logits"]] * 2), i64([0, 1])
    close(mapped(lambda c: fn.fedgr_gamma(c, "raw"), counts)[:2], v["gamma_raw"][:2])
    close(mapped(fn.fedgr_gamma, counts)[:2], v["gamma_max1"][:2])
    close(fn.fedgr_gamma(counts, missing="code"), v["gamma_official_code"])
    close(fn.fedgr_gamma(counts, "raw", "code"), [1.1, 11.0, 110 / 400])

    def loss(z: Tensor, **options: Any) -> Tensor:
        return fn.unbalanced_softmax_loss(z, labels, counts, **options)

    close(mapped(lambda z: loss(z, gamma="raw"), z), v["loss_raw_masked"])
    close(mapped(loss, z), v["loss_max1_masked"])
    close(mapped(lambda z: loss(z, missing="code"), z), v["loss_official_code_all_classes"])
    slope = gradient(loss, z)
    assert torch.equal(slope[:, 2], torch.zeros(2, dtype=torch.float64))  # the masked class gets no gradient
    p = torch.softmax(f64([0.1, 2.0]), 0)
    close(slope[0, :2], f64([0.1, 1.0]) * (p - f64([1.0, 0.0])))


def test_fedprox(v: Vector) -> None:
    w, x = f64(v["w_global"]), {"w": f64(v["w_global"])}

    def objective(w: Tensor) -> Tensor:
        return 0.5 * (w - 1) ** 2 + fn.proximal({"w": w}, x, v["mu"])

    for want in v["trajectory"]:
        w = w - v["lr"] * gradient(objective, w)
        close(w, want)
    close(fn.proximal({"w": w}, x, v["mu"]), v["prox_loss_at_last"])
    close(gradient(objective, f64(2 / 3)), 0.0)
    close(v["fixed_point"], 2 / 3)


def test_moon(v: Vector) -> None:
    z, zg, zp = (f64([v[k]]) for k in ("z", "z_glob", "z_prev"))
    close(mapped(lambda a, b, c: fn.moon_contrastive(a, b, c, v["T"]), z, zg, zp)[0], v["l_con"])
    close(fn.moon_contrastive(z, zg, zg)[0], v["l_con_when_prev_equals_glob"])
    assert torch.equal(gradient(fn.moon_contrastive, z, zg, zg), torch.zeros_like(z))


def test_fedrs(v: Vector) -> None:
    z, y, counts = f64([v["logits"]]), i64([v["label"]]), f64(v["counts"])
    for scaling, scale, loss in (
        ("paper", "scale_paper", "loss_paper"),
        ("code", "scale_official_code", "loss_official_code"),
    ):
        s = mapped(lambda c, scaling=scaling: fn.fedrs_scale(c, v["alpha"], scaling), counts)
        close(s, v[scale])
        close(mapped(lambda z, s=s: fn.cross_entropy(z * s, y), z)[0], v[loss])
    close(fn.cross_entropy(z, y)[0], v["loss_ce"])


def test_fedntd(v: Vector) -> None:
    z, teacher, y = f64([v["logits_local"]]), f64([v["logits_global"]]), i64([v["label"]])
    term = mapped(lambda z, t: fn.fedntd_loss(z, t, y), z, teacher)[0]
    close(term, v["ntd_tau1"])
    close(fn.cross_entropy(z, y)[0], v["ce"])
    close(fn.cross_entropy(z, y)[0] + term, v["total_beta1_tau1"])
    tau3 = fn.fedntd_loss(z, teacher, y, 3.0)[0]
    close(tau3, v["ntd_tau3_times_tau2"])
    close(tau3 / 9, v["ntd_tau3"])
    slope = gradient(lambda z: fn.fedntd_loss(z, teacher, y), z)[0]
    close(slope, [0.0, *(torch.softmax(f64([1.0, 0.0]), 0) - torch.softmax(f64([1.0, 2.0]), 0)).tolist()])


def test_focal(v: Vector) -> None:
    z, y = f64([v["logits"]]), i64([v["label"]])
    close(z.softmax(-1)[0, 0], v["p_t"])
    close(mapped(lambda z: fn.focal_loss(z, y, gamma=0.0), z)[0], v["ce"])
    close(mapped(lambda z: fn.focal_loss(z, y), z)[0], v["focal_gamma2"])
    close(fn.focal_loss(z, y, alpha=0.25)[0], v["focal_gamma2_alpha025"])
    close(mapped(lambda z, a: fn.focal_loss(z, y, alpha=a), z, f64([0.25, 9.0, 9.0]))[0], v["focal_gamma2_alpha025"])


def test_fedlc(v: Vector) -> None:
    z, y, counts = f64([v["logits"]] * 3), i64([0, 1, 2]), f64(v["counts"])
    close(v["logits"][0] - v["tau"] * counts**-0.25, v["calibrated"])
    close(mapped(lambda z, c: fn.fedlc_loss(z, y, c, v["tau"]), z, counts), v["loss_full_denominator"])
    exclude = mapped(lambda z, c: fn.fedlc_loss(z, y, c, v["tau"], "exclude_true"), z, counts)
    close(exclude, v["loss_excluding_true"])
    close(fn.fedlc_loss(z, y, counts, 0.0), [v["ce"]] * 3)
    p = torch.softmax(f64(v["calibrated"]), 0)
    close(gradient(lambda z: fn.fedlc_loss(z, y, counts), z)[1], p - f64([0.0, 1.0, 0.0]))


def test_logit_adjust(v: Vector) -> None:
    z, y, counts = f64([v["logits"]] * 3), i64([0, 1, 2]), f64(v["counts"])
    close(mapped(lambda z, c: fn.logit_adjusted_loss(z, y, c), z, counts), v["losses"])
    p = torch.softmax(f64(v["adjusted"]), 0)
    close(gradient(lambda z: fn.logit_adjusted_loss(z, y, counts), z), p - torch.eye(3, dtype=torch.float64))


def test_fedgrab_map(v: Vector) -> None:
    u = f64([float(k) for k in v["f"]])
    close(mapped(fn.fedgrab_map, u), list(v["f"].values()))
    assert fn.fedgrab_map(torch.zeros(())) == 1
    zero = f64(0.0)
    close(mapped(lambda e: torch.stack(fn.fedgrab_pid(e, zero, zero)), f64(-1.0))[0], -10.11)
    assert v["pid_first_step"] == {"error": -1.0, "out": -10.11}


# Weights


def test_fedavg(v: Vector) -> None:
    params = f64(v["params"])
    close(mapped(fn.size_weights, f64(v["sizes"])) @ params, v["size_weighted"])
    close(fn.size_weights(i64(v["sizes"])).double() @ params, v["size_weighted"])
    close(fn.uniform_weights(2).double() @ params, v["uniform"])
    close(fn.uniform_weights(params) @ params, v["uniform"])


def test_ab(v: Vector) -> None:
    similarity = mapped(fn.classifier_similarity, f64(v["global_cls"]), f64(v["client_cls"]))
    close(similarity, v["cos"])
    for name, beta in (("beta3", 3.0), ("beta1", 1.0), ("beta0", 0.0)):
        close(mapped(lambda s, b=beta: fn.aggregation_balancer_weights(s, b), similarity), v[name]["p"])
        floor = similarity.mean() - beta * similarity.std(correction=0)
        close(floor, v[name]["T"])
        close(torch.softmax(f64(v[name]["v_clip"]), 0), fn.aggregation_balancer_weights(similarity, beta))
    close(fn.aggregation_balancer_weights(similarity, inverse=True), v["inverse_beta3"])
    for key, bound in v["max_abs_z_population"].items():
        close(math.sqrt(int(key[2:]) - 1), bound)
    distance = fn.classifier_similarity(f64(v["global_cls"]), f64(v["client_cls"]), "l2")
    close(distance, [0.0, -1.0, -math.sqrt(2), -2.0])


def test_ab_clip_example(v: Vector) -> None:
    s = f64(v["cos"])
    close(fn.aggregation_balancer_weights(s, v["beta"]), v["p"])
    close(fn.aggregation_balancer_weights(s, math.inf), v["p_no_clip"])
    close(torch.softmax(f64(v["v_clip"]), 0), v["p"])


def test_ab_clip_n20(v: Vector) -> None:
    s = f64([1.0] * 19 + [v["cos_last"]])
    close(fn.aggregation_balancer_weights(s)[-1], v["p_last"])
    close(fn.aggregation_balancer_weights(s, 5.0)[-1], v["p_last_noclip"])
    close(s.mean() - 3 * s.std(correction=0), v["T"])


LABEL_AWARE = ("absent_label", "proportional")


@pytest.mark.parametrize("name", ["fedla", *(f"fedla_{name}" for name in LABEL_AWARE)])
def test_fedla(name: str) -> None:
    v = GOLDEN[name]
    counts = f64(v["counts"])
    weights = mapped(fn.label_aware_weights, counts)
    close(weights, v["weights"])
    if "W" in v:
        close(weights * sum(v["W"]), v["W"])
    if "fedavg" in v:
        close(fn.size_weights(counts.sum(-1)), v["fedavg"])
    if name == "fedla":
        close(weights[1], 17 / 30, atol=1e-15)


def test_fedla_paper_design(v: Vector) -> None:
    n = torch.zeros(5, 43, dtype=torch.float64)  # three clients own one label each, two share the other 40
    n[torch.arange(3), torch.arange(3)] = 400
    n[3:, 3:] = 10
    want = v["emnist_unique1_noniid0.7_3nonIID_2IID"]
    close(fn.label_aware_weights(n), [want["w_nonIID"]] * 3 + [want["w_IID"]] * 2)
    n = torch.zeros(5, 23, dtype=torch.float64)  # six exclusive labels each, five left
    for k in range(3):
        n[k, 6 * k : 6 * k + 6] = 66
    n[3:, 18:] = 80
    want = v["emnist_unique6"]
    close(fn.label_aware_weights(n), [want["w_nonIID"]] * 3 + [want["w_IID"]] * 2)


def test_fednova(v: Vector) -> None:
    p, x, tau = f64(v["p"]), v["x0"], i64(v["tau"])
    deltas = f64(v["x_local"]) - x
    a = fn.sgd_a_norm(tau.double())
    close((p * a).sum(), v["tau_eff"])
    close(x + fn.fednova_weights(p, a) @ deltas, v["x_new_vanilla"])
    close(x + p @ deltas, v["fedavg_x"])
    a = mapped(lambda t: fn.sgd_a_norm(t, v["momentum"]), tau.double())
    close(a, v["a_norms"])
    close((p * a).sum(), v["tau_eff_momentum"])
    close(x + mapped(fn.fednova_weights, p, a) @ deltas, v["x_new_momentum"])
    for key, want in v["a_norm_table"].items():
        steps, rho = (float(part.split("=")[1]) for part in key.split(","))
        close(fn.sgd_a_norm(f64(steps), rho), want)
        close(fn.sgd_a_norm(int(steps), rho), want, atol=1e-6)
    want = v["a_norm_prox"]["tau=3,eta*mu=0.1"]
    close(mapped(lambda t, e: fn.sgd_a_norm(t, decay=e), f64(3.0), f64(0.1)), want)
    close(fn.sgd_a_norm(f64(3.0), decay=0.1), want)
    close(x + fn.fednova_weights(p, f64(v["tau"]), 5.0) @ deltas, v["x_new_vanilla"])


def test_climb(v: Vector) -> None:
    duals, losses = f64(v["lambda0"]), f64(v["losses"])
    close(mapped(fn.climb_weights, duals), v["weights0"])
    duals = mapped(lambda d, f: fn.climb_dual_step(d, f, v["eta_dual"], v["eps"]), duals, losses)
    close(duals, v["lambda1"])
    close(fn.climb_weights(duals), v["weights1"])
    close(fn.climb_weights(duals).sum(), v["weights1_sum"])


# Server, control variates, meta


@pytest.mark.parametrize("rule", ["adagrad", "adam", "yogi"])
@pytest.mark.parametrize("initial", ["zero", "tau2"])
def test_fedopt(v: Vector, rule: str, initial: str) -> None:
    update = {"adagrad": fn.adagrad_update, "adam": fn.adam_update, "yogi": fn.yogi_update}[rule]
    params, first = {"x": f64(v["x0"])}, {"x": torch.zeros(2, dtype=torch.float64)}
    second = {"x": torch.full((2,), v["v_init"] if initial == "zero" else v["tau"] ** 2, dtype=torch.float64)}
    wanted = v[rule if initial == "zero" else f"{rule}_v_init_tau2"]
    for delta, want in zip(v["delta"], wanted, strict=True):
        params, first, second = update(
            params, {"x": f64(delta)}, first, second, v["eta"], v["beta1"], v["beta2"], v["tau"]
        )
        close(params["x"], want)


def test_fedavgm_card_values() -> None:
    x, m = {"x": f64(0.0)}, {"x": f64(0.0)}
    for delta, want_m, want_x in ((0.2, 0.2, 0.2), (0.1, 0.28, 0.48)):
        x, m = fn.momentum_update(x, {"x": f64(delta)}, m, 1.0, 0.9)
        close(m["x"], want_m)
        close(x["x"], want_x)


def _scaffold_round(v: Vector, state: dict[str, Any], cohort: tuple[int, ...]) -> dict[str, Any]:
    slopes = (lambda w: w - 2, lambda w: 2 * (w + 1))  # of f1, f2
    deltas, changes, own = [], [], list(state["own"])
    for k in cohort:
        w, server = {"w": state["x"]}, {"w": state["c"]}
        for _ in range(v["K"]):
            step = fn.scaffold_correction({"w": slopes[k](w["w"])}, {"w": own[k]}, server)
            w = fn.lookahead(w, step, v["lr"])
        delta = {"w": w["w"] - state["x"]}
        new = fn.scaffold_control({"w": own[k]}, server, delta, v["K"] * v["lr"])
        changes.append(new["w"] - own[k])
        deltas.append(delta["w"])
        own[k] = new["w"]
    c = fn.scaffold_server_control({"w": state["c"]}, {"w": torch.stack(changes)}, clients=2)
    return {"x": state["x"] + v["eta_g"] * torch.stack(deltas).mean(), "c": c["w"], "own": own}


def test_scaffold_option2(v: Vector) -> None:
    start = {"x": f64(v["x0"]), "c": f64(0.0), "own": [f64(0.0), f64(0.0)]}
    state = start
    for want in v["full_participation"]:
        state = _scaffold_round(v, state, (0, 1))
        close(torch.stack([state["x"], state["c"], *state["own"]]), [want[k] for k in ("x", "c", "c1", "c2")])
    one, want = _scaffold_round(v, start, (0,)), v["round1_only_client1"]
    close(torch.stack([one["x"], one["c"], *one["own"]]), [want[k] for k in ("x", "c", "c1", "c2")])
    close(_scaffold_round(v, start, (0, 1))["x"], v["fedavg_round1_x"])


def test_perfedavg(v: Vector) -> None:
    slope = lambda p: {"w": 2 * (p["w"] - 1)}
    w = {"w": f64(v["w"])}
    adapted = fn.lookahead(w, slope(w), v["alpha"])
    close(adapted["w"], v["w_tilde"])
    outer = slope(adapted)
    close(fn.lookahead(w, outer, v["beta"])["w"], v["fo_next"])
    for delta in (1e-3, 0.7):  # exact on quadratics for any delta
        plus, minus = (slope(fn.lookahead(w, outer, step)) for step in (-delta, delta))
        hf = fn.lookahead(w, fn.hessian_free_gradient(outer, plus, minus, v["alpha"], delta), v["beta"])["w"]
        close(hf, v["hf_next"])
        close(hf, v["exact_maml_next"])


def test_pfedme(v: Vector) -> None:
    w = {"w": f64(v["w"])}
    theta = w
    for _ in range(v["K"]):
        theta = fn.moreau_step(theta, {"w": 2 * (theta["w"] - 1)}, w, v["personal_lr"], v["lam"])
    close(theta["w"], v["theta"])
    close(fn.moreau_mix(w, theta, v["eta"], v["lam"])["w"], v["w_next"])
    server = v["server_beta2"]
    x, delta = {"w": f64(server["x_prev"])}, {"w": f64(server["avg"] - server["x_prev"])}
    close(fn.momentum_update(x, delta, x, lr=2.0, beta=0.0)[0]["w"], server["x_next"])
    for _ in range(200):
        theta = fn.moreau_step(theta, {"w": 2 * (theta["w"] - 1)}, w, v["personal_lr"], v["lam"])
    close(theta["w"], v["exact_theta"])


# Selection


def test_seolkim_sampling(v: Vector) -> None:
    counts = i64(v["counts"])
    assert fn.oversample_target(counts, v["delta"], v["r"]).tolist() == v["new_counts"]
    assert fn.oversample_target(counts[None], v["delta"], 0).tolist() == [v["r0"]["new_counts"]]
    assert int((fn.oversample_target(counts, v["delta"], v["r"]) - counts).sum()) == v["oversampled"]
    close(counts.double().mean() * math.exp(-v["delta"] * v["r"]), v["t_k"])


def test_seolkim_selection(v: Vector) -> None:
    offered = i64(v["counts"])
    order = fn.seolkim_order(offered, torch.rand(6, generator=torch.Generator().manual_seed(0)))
    picked, quota = fn.seolkim_select(offered, v["h"], v["theta_KLD"], order)
    assert picked.tolist() == [step["client"] for step in v["log"]]
    assert quota.tolist() == [step["s"] for step in v["log"]]
    pooled = quota.cumsum(0)
    assert pooled.tolist() == [step["v"] for step in v["log"]]
    close(fn.kl_to_uniform(pooled), [step["kld"] for step in v["log"]])
    close(fn.size_weights(quota.sum(-1).double()), [v["weights"][str(int(k))] for k in picked])


def test_seolkim_batch(v: Vector) -> None:
    batch = fn.dynamic_batch(i64(v["total"]), i64(v["beta"]))
    assert batch.tolist() == v["b"]
    assert fn.dynamic_batch(i64(v["total"]), 3)[0] == 83
    close(fn.dynamic_rate(batch, 0.1), v["lr_bounded"])
    close(fn.dynamic_rate(batch, 0.1, literal=True), v["lr_literal"])


def test_seolkim_delta(v: Vector) -> None:
    owned, offered = i64(v["sizes_original"])[:, None], i64(v["sizes_after"])[:, None]
    close(fn.decay_step(0.01, owned, offered, v["theta_over"], 0.1), v["delta_next"])
    close(fn.decay_step(f64(0.01), owned, offered, v["rate"] + 1e-9, 0.1), 0.01)
    close(fn.decay_step(0.01, owned, offered, v["rate"] - 1e-9, 0.1), 0.11)


def test_astraea_aug(v: Vector) -> None:
    close(fn.astraea_copies(i64(v["global_counts"]), v["alpha"]), v["copies_per_sample"])


def test_astraea_schedule(v: Vector) -> None:
    counts = i64(v["counts"])
    mediators = fn.astraea_schedule(counts, v["gamma"])
    assert mediators == [members for members, _ in v["mediators"]]
    for members, (_, want) in zip(mediators, v["mediators"], strict=True):
        close(fn.kl_to_uniform(counts[members].sum(0)), want)


# Classifier rows


def _rows(names: dict[str, list[float]], classes: int) -> tuple[Tensor, Tensor]:
    rows = torch.full((2, classes, 2), 7.0, dtype=torch.float64)  # rows that are not owned hold rubbish
    owned = torch.zeros(2, classes, dtype=torch.bool)
    for name, row in names.items():
        k, i = int(name[6]), int(name[-1])
        rows[k, i], owned[k, i] = f64(row), True
    return rows, owned


def test_fedgr_gravitation(v: Vector) -> None:
    rows, owned = _rows(v["U"], 3)
    attraction, repulsion = (torch.stack(t) for t in zip(*(_terms(rows, owned, k) for k in range(2)), strict=True))
    named = {"attraction": attraction, "repulsion": repulsion}
    for kind, k, i, want in v["terms"]:
        close(named[kind][k, i], want)
    close(attraction[0, 0] + attraction[1, 2], 0.0)  # sole owners
    reg = mapped(lambda r: fn.gravitation(r, owned), rows)
    close(reg, v["reg"])
    slope = gradient(lambda r: fn.gravitation(r, owned), rows)
    wanted, _ = _rows(v["grad"], 3)
    close(slope[owned], wanted[owned])
    assert torch.equal(slope[~owned], torch.zeros(2, 2, dtype=torch.float64))
    torch.testing.assert_close(mapped(lambda r: fn.gravitation_gradient(r, owned), rows), slope, rtol=0, atol=1e-13)
    with torch.no_grad():
        stepped = fn.gravitation_step(rows, owned, v["lam"] * v["eta"])
    updated, _ = _rows(v["updated"], 3)
    close(stepped, updated)  # rows that are not owned stay as they are


def test_fedgc_private(v: Vector) -> None:
    rows, owned = _rows(v["U"], 2)
    close(mapped(lambda r: fn.fedgc_spread(r, owned), rows), v["reg"])
    slope = gradient(lambda r: fn.fedgc_spread(r, owned), rows)
    wanted, _ = _rows(v["grad"], 2)
    close(slope[owned], wanted[owned])
    torch.testing.assert_close(mapped(lambda r: fn.fedgc_gradient(r, owned), rows), slope, rtol=0, atol=1e-13)
    with torch.no_grad():
        close(fn.fedgc_step(rows, owned, 0.5)[owned], rows[owned] - 0.5 * wanted[owned])


def test_creff_match(v: Vector) -> None:
    real, synthetic, present = f64(v["g_real"]), f64(v["g_syn"]), torch.ones(2)
    match = mapped(lambda s, r: fn.creff_match(s, r, present, eps=1e-6), synthetic, real)
    close(match, v["distance"])
    close(fn.creff_match(synthetic, real, present), 1 - math.sqrt(0.5), atol=1e-15)
    close(fn.creff_match(synthetic, real, f64([0, 1])), 0.0)


# Ratio loss


def test_ratio_loss(v: Vector) -> None:
    delta = f64(v["delta_W"])
    masks = mapped(fn.ratio_masks, delta)
    assert masks[0].nonzero().tolist() == v["mask"]["M_0"]
    assert masks[1].nonzero().tolist() == v["mask"]["M_1"]
    assert fn.ratio_masks(delta, by="magnitude")[0].nonzero().tolist() == [[0, 0], [0, 1]]
    close(mapped(fn.ratio_of_changes, delta), v["Ra_row_sum"])
    close(fn.ratio_of_changes(delta, by="magnitude"), v["Ra_row_sum"])  # both readings agree here
    weights = fn.ratio_weights(fn.ratio_of_changes(delta), v["alpha"], v["beta"])
    close(weights, v["class_weights"])
    example = v["weighted_ce_example"]
    z, y = f64([example["logits"]]), i64([example["label"]])
    close(mapped(lambda z, w: fn.ratio_loss(z, y, w), z, weights)[0], example["loss"])


def test_ratio_loss_broadcast_defect() -> None:
    v = GOLDEN["ratio_loss"]["official_broadcast_defect"]
    # Cross-entropies of exactly 1 and 3: logits (0, log(e^l - 1)) for label 0; class 1 is reached by a swap.
    gap = (f64(v["losses"]).exp() - 1).log()
    z = torch.stack([torch.stack([f64(0.0), gap[0]]), torch.stack([gap[1], f64(0.0)])])
    y, weights = i64([0, 1]), f64(v["weights"])
    close(fn.cross_entropy(z, y), v["losses"])
    close(fn.ratio_loss(z, y, weights).mean(), v["correct_mean"])
    close(mapped(lambda z: fn.ratio_loss(z, y, weights, broken_broadcast=True), z).mean(), v["broadcast_mean"])
    padded, labels = torch.cat([z, z[:1]]), i64([0, 1, 0])
    mask = f64([1, 1, 0])
    loss = fn.ratio_loss(padded, labels, weights, broken_broadcast=True, mask=mask)
    close((loss * mask).sum() / 2, v["broadcast_mean"])


def test_ratio_monitor(v: Vector) -> None:
    delta = f64(GOLDEN["ratio_loss"]["delta_W"])
    update, total = f64(v["scaled_global_update"]), float(sum(v["true_counts"]))
    close(mapped(lambda d, u: fn.ratio_monitor(d, u, total), delta, update), v["true_counts"])
    close(fn.ratio_monitor(delta, update / 24, total, scale=24.0)[0], v["recovered_count_class0_from_weight_00"])


def test_every_vector_is_used_or_lives_elsewhere() -> None:
    tested = {name.removeprefix("test_") for name in globals()} | {f"fedla_{name}" for name in LABEL_AWARE}
    assert set(GOLDEN) <= tested | ELSEWHERE
