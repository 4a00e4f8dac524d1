"""The oracle's pieces: every gradient against central differences, every number of the golden vectors."""

import numpy as np
import pytest

from support.paths import GOLDEN as GOLD

from . import losses, selection, servers, solvers, terms
from .checks import make_problem, near, numeric
from .model import backward, forward, lin

# --- gradients against central differences ----------------------------------------------------------------------------

RNG = np.random.default_rng(0)
Y = np.array([0, 2, 2, 1, 0])
Z, TEACHER = RNG.normal(size=(5, 4)), RNG.normal(size=(5, 4))
F, G, H = (RNG.normal(size=(5, 3)) for _ in range(3))
COUNTS = np.array([7, 2, 12, 0])
Q = losses.fedga_targets(Z, Y, np.array([2, 1, 2, 0]))
CLASS_WEIGHTS = np.array([1.5, 0.3, 2.0, 0.7])
POSITIVE = np.array([True, True, True, False])

LOGIT_LOSSES = {
    "ce": lambda z: losses.affine_ce(z, Y),
    "weighted": lambda z: losses.affine_ce(z, Y, weights=CLASS_WEIGHTS),
    "owned": lambda z: losses.affine_ce(z, Y, 1.0, losses.leave_out(COUNTS)),
    "fedga softce": lambda z: losses.fedga(z, Y, q=Q),
    "fedga exact": lambda z: losses.fedga(z, Y, variant="exact", q=Q),
    "fedgr max1": lambda z: losses.unbalanced_softmax(z, Y, COUNTS),
    "fedgr raw": lambda z: losses.unbalanced_softmax(z, Y, COUNTS, "raw"),
    "fedgr one": lambda z: losses.unbalanced_softmax(z, Y, COUNTS, "one"),
    "fedgr weight": lambda z: losses.unbalanced_softmax(z, Y, COUNTS, "weight"),
    "fedgr code": lambda z: losses.unbalanced_softmax(z, Y, COUNTS, missing="code"),
    "fedrs": lambda z: losses.affine_ce(z, Y, losses.fedrs_scale(COUNTS)),
    "fedrs code": lambda z: losses.affine_ce(z, Y, losses.fedrs_scale(COUNTS, 0.3, "code")),
    "fedntd": lambda z: losses.ntd(z, TEACHER, Y, 1.3, 2.5),
    "focal": lambda z: losses.focal(z, Y, 2.0, CLASS_WEIGHTS),
    "focal gamma 0": lambda z: losses.focal(z, Y, 0.0),
    "fedlc": lambda z: losses.fedlc(z, Y, COUNTS),
    "fedlc exclude_true": lambda z: losses.fedlc(z, Y, COUNTS, 0.7, "exclude_true"),
    "logit_adjust": lambda z: losses.affine_ce(z, Y, 1.0, losses.logit_adjust_shift(COUNTS)),
    "importance": lambda z: losses.importance_ce(z, Y, CLASS_WEIGHTS),
    "class_balanced": lambda z: losses.affine_ce(z, Y, weights=losses.class_balanced_weights(COUNTS, 0.9)),
    "balancefl": lambda z: losses.balancefl(z, TEACHER, Y, POSITIVE, entropy=0.3),
    "balancefl all classes": lambda z: losses.balancefl(z, TEACHER, Y, POSITIVE | True, entropy=0.3, reduction="sum"),
    "grab, no control": lambda z: losses.grab_bce(z, Y, np.zeros(4)),
    "feduv spread": terms.spread,
    "fedvls": lambda z: terms.fedvls(z, TEACHER, Y, COUNTS, 1.3, 0.7),
    "fedvls, two vacant": lambda z: terms.fedvls(z, TEACHER, Y * 0 + 2, [0, 3, 9, 0], 1.3, 0.7),
    "lb": lambda z: losses.lb(z, F, Y, COUNTS, 4.0)[:2],
    "lb mask": lambda z: losses.lb(z, F, Y, COUNTS, 4.0, "mask")[:2],
}
FEATURE_LOSSES = {
    "lb": lambda f: losses.lb(Z, f, Y, COUNTS, 4.0)[::2],
    "lb mask": lambda f: losses.lb(Z, f, Y, COUNTS, 4.0, "mask")[::2],
    "decorrelation": terms.decorrelation,
    "decorrelation as printed": lambda f: terms.decorrelation(f, "printed"),
    "uniformity": terms.uniformity,
    "sphere": lambda f: terms.on_sphere(f, Y, terms.directions(np.arange(12.0).reshape(4, 3) ** 2 - 20), 2.0),
    "moon": lambda f: losses.moon(f, G, H, 0.5),
}


@pytest.mark.parametrize("name", LOGIT_LOSSES)
def test_logit_gradient(name):
    f = LOGIT_LOSSES[name]
    near(f(Z)[1], numeric(lambda z: f(z)[0], Z), 1e-8)


@pytest.mark.parametrize("name", FEATURE_LOSSES)
def test_feature_gradient(name):
    f = FEATURE_LOSSES[name]
    near(f(F)[1], numeric(lambda v: f(v)[0], F), 1e-8)


@pytest.mark.parametrize("hidden", [0, 6])
def test_backward_through_the_model(hidden):
    """A loss of logits and features, down to every parameter."""
    problem = make_problem(hidden)
    x, y = problem.x[:5], problem.y[:5]
    aim = np.random.default_rng(1).normal(size=(2, 5, forward(problem.params, x)[1].shape[1]))

    def value(params):
        z, f, _ = forward(params, x)
        return losses.affine_ce(z, y)[0] + losses.moon(f, *aim)[0]

    z, f, inputs = forward(problem.params, x)
    g = backward(problem.params, inputs, losses.affine_ce(z, y)[1], losses.moon(f, *aim)[1])
    for name, w in problem.params.items():
        near(g[name], numeric(lambda v, name=name: value({**problem.params, name: v}), w), 1e-8)


def test_hybrid_paths_by_differences():
    """Three layers, so two paths; the other model stands still."""
    draw = np.random.default_rng(2)
    shapes = {
        "0.weight": (5, 3),
        "0.bias": (5,),
        "2.weight": (6, 5),
        "2.bias": (6,),
        "4.weight": (4, 6),
        "4.bias": (4,),
    }
    w, x0 = ({name: draw.normal(size=shape) for name, shape in shapes.items()} for _ in range(2))

    def value(params):
        return terms.hybrid_paths(params, x0, F, Y, 0.7, 0.4, 1.5)[0]

    _, dz, dw = terms.hybrid_paths(w, x0, F, Y, 0.7, 0.4, 1.5)
    g = lin((1, backward(w, forward(w, F)[2], dz)), (1, dw))
    for name, v in w.items():
        near(g[name], numeric(lambda u, name=name: value({**w, name: u}), v), 1e-8)


def test_classifier_corrections_by_differences():
    u, owned = (
        np.random.default_rng(1).normal(size=(3, 4, 2)),
        np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1]], bool),
    )
    terms, g = servers.gravitation(u, owned)
    # the anchors are constants: differentiate with the anchors' copy held back
    frozen = u.copy()

    def reg(live):
        total = 0.0
        for k, i in np.argwhere(owned):
            a, rows = frozen[k, i], servers.others(u, owned, k)
            s = {r: live[r] @ a for r in rows}
            same = [v for r, v in s.items() if r[1] == i]
            if same:
                total += servers.logsumexp(list(s.values())) - servers.logsumexp(same)
            total += servers.logsumexp([a @ a, *[v for r, v in s.items() if r[1] != i]]) - a @ a
        return total

    near(g, numeric(reg, u), 1e-8)
    near(sum(t[3] for t in terms), reg(u))

    def private(live):
        total = 0.0
        for k, i in np.argwhere(owned):
            s = [live[r] @ frozen[k, i] for r in servers.others(u, owned, k) if r[1] != i]
            total += servers.logsumexp([live[k, i] @ frozen[k, i], *s]) - live[k, i] @ frozen[k, i]
        return total

    value, g = servers.spread(u, owned)
    near(g, numeric(private, u), 1e-8)
    near(value, private(u))


def test_creff_gradients_by_differences():
    rng = np.random.default_rng(1)
    w, b, real = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=(4, 3))
    dw, db = servers.head_gradient(w, b, F, Y)
    near(dw, numeric(lambda v: losses.affine_ce(F @ v.T + b, Y)[0], w), 1e-8)
    near(db, numeric(lambda v: losses.affine_ce(F @ w.T + v, Y)[0], b), 1e-8)
    near(servers.creff_match(w, real, 1e-6)[1], numeric(lambda v: servers.creff_match(v, real, 1e-6)[0], w), 1e-8)
    near(servers.creff_client(w, b, [(F, Y), (G, Y)])[0], (dw + servers.head_gradient(w, b, G, Y)[0]) / 2)


# --- the cards' numbers -----------------------------------------------------------------------------------------------


def row(values):
    return np.array([values], float)


def test_golden_fedbal():
    v = GOLD["lb"]
    near(losses.lb_lambda(v["counts"]), v["lambda_"])
    near(losses.lb_lambda(v["missing"]["counts"]), v["missing"]["lambda_clamp1"])
    f = row([3.0, 4.0])
    for y, loss in enumerate(v["losses"]):
        near(losses.lb(row(v["logits"]), f, [y], v["counts"], 10.0)[0], loss)
    near((losses.lb(row(v["logits"]), f, [2], v["counts"], 10.0)[2] * f / 5).sum(), v["grad_wrt_norm_y2"])
    v = GOLD["ab"]
    x = {"weight": row(v["global_cls"])}
    cos = servers.similarities(x, [{"weight": row(w)} for w in v["client_cls"]])
    near(cos, v["cos"])
    for beta in (0, 1, 3):
        near(servers.balancer(cos, beta), v[f"beta{beta}"]["p"])
    near(servers.balancer(cos, 3, inverse=True), v["inverse_beta3"])
    v = GOLD["ab_clip_example"]
    near(servers.balancer(v["cos"], v["beta"]), v["p"])
    near(servers.balancer(v["cos"], 99), v["p_no_clip"])
    near(servers.balancer([1.0] * 19 + [0.0])[-1], GOLD["ab_clip_n20"]["p_last"])


def test_golden_fedga():
    v = GOLD["fedga"]
    y, z = np.array(v["labels"]), np.zeros((4, 3))
    q = losses.fedga_targets(z, y, v["counts"])
    near(q[[0, 3]], [v["q_label0"], v["q_label1"]])
    soft, exact = losses.fedga(z, y), losses.fedga(z, y, variant="exact")
    near(4 * soft[1][[0, 3]], [v["grad_softCE_label0"], v["grad_softCE_label1"]])
    near(4 * exact[1][[0, 3]], [v["grad_exact_label0"], v["grad_exact_label1"]])
    near(4 * soft[1].sum(0), v["grad_softCE_sum"])
    near(4 * exact[1].sum(0), v["grad_exact_sum"])
    near(4 * losses.affine_ce(z, y)[1].sum(0), v["grad_plainCE_sum"])
    near(soft[0], v["softCE_mean_loss"])
    v = GOLD["fedga_balanced_2class"]
    near(losses.fedga_targets(np.log(v["p"]), np.array([0, 1]), [1, 1, 0]), v["q"])
    v = GOLD["error_asymmetry"]
    ea, ratio = losses.error_asymmetry(v["mean_pred_by_true_class"])
    near(ea, v["EA"])
    near(ratio, v["ratio_max_min"])


def test_golden_fedgr_and_fedgc():
    v = GOLD["fedgr_softmax"]
    z, n = row(v["logits"]), v["counts"]
    near(losses.fedgr_gamma(n, "raw")[:2], v["gamma_raw"][:2])
    near(losses.fedgr_gamma(n)[:2], v["gamma_max1"][:2])
    near(losses.fedgr_gamma(n, missing="code"), v["gamma_official_code"])
    near([losses.unbalanced_softmax(z, [y], n, "raw")[0] for y in (0, 1)], v["loss_raw_masked"])
    near([losses.unbalanced_softmax(z, [y], n)[0] for y in (0, 1)], v["loss_max1_masked"])
    code = [losses.unbalanced_softmax(z, [y], n, missing="code")[0] for y in (0, 1)]
    near(code, v["loss_official_code_all_classes"])

    def stacked(rows, classes):
        u, owned = np.zeros((2, classes, 2)), np.zeros((2, classes), bool)
        for name, value in rows.items():
            u[int(name[6]), int(name[-1])], owned[int(name[6]), int(name[-1])] = value, True
        return u, owned

    v = GOLD["fedgr_gravitation"]
    u, owned = stacked(v["U"], 3)
    terms, g = servers.gravitation(u, owned)
    assert sorted(t[:3] for t in terms) == sorted(tuple(t[:3]) for t in v["terms"] if t[3])
    near([t[3] for t in sorted(terms)], [t[3] for t in sorted(map(tuple, v["terms"]))])
    near(sum(t[3] for t in terms), v["reg"])
    near(g, stacked(v["grad"], 3)[0])
    near(np.where(owned[..., None], u - v["lam"] * v["eta"] * g, 0), stacked(v["updated"], 3)[0])
    v = GOLD["fedgc_private"]
    value, g = servers.spread(*stacked(v["U"], 2))
    near(value, v["reg"])
    near(g, stacked(v["grad"], 2)[0])


def test_golden_logit_losses():
    v = GOLD["fedrs"]
    z, y = row(v["logits"]), [v["label"]]
    near(losses.affine_ce(z, y)[0], v["loss_ce"])
    for scaling, key in (("paper", "paper"), ("code", "official_code")):
        scale = losses.fedrs_scale(v["counts"], v["alpha"], scaling)
        near(scale, v[f"scale_{key}"])
        near(losses.affine_ce(z, y, scale)[0], v[f"loss_{key}"])
    v = GOLD["fedntd"]
    z, t = row(v["logits_local"]), row(v["logits_global"])
    near(losses.ntd(z, t, [0])[0], v["ntd_tau1"])
    near(losses.ntd(z, t, [0], tau=3.0)[0], v["ntd_tau3_times_tau2"])
    v = GOLD["focal"]
    near(losses.focal(row(v["logits"]), [0])[0], v["focal_gamma2"])
    near(losses.focal(row(v["logits"]), [0], alpha=0.25)[0], v["focal_gamma2_alpha025"])
    v = GOLD["fedlc"]
    z = row(v["logits"])
    for key, kind in (("full_denominator", "full"), ("excluding_true", "exclude_true")):
        near([losses.fedlc(z, [y], v["counts"], 1.0, kind)[0] for y in range(3)], v[f"loss_{key}"])
    v = GOLD["logit_adjust"]
    shift = losses.logit_adjust_shift(v["counts"])
    near(1 + shift, v["adjusted"])
    near([losses.affine_ce(row(v["logits"]), [y], 1.0, shift)[0] for y in range(3)], v["losses"])
    v = GOLD["balancefl"]
    z, t, pos = row(v["logits"]), row(v["teacher"]), [True, True, False, False]
    near(losses.balancefl(z, t, [0], pos)[0], v["total_lambda1_code"])
    near(losses.balancefl(z, t, [0], pos, lam=0, entropy=0)[0], v["loss_cls"])
    near(losses.class_balanced_weights([1, 2], 0.9), [1.3103448276, 0.6896551724])
    v = GOLD["fedir"]
    z = np.log([[np.exp(-1), 1 - np.exp(-1), 1e-300], [1 - np.exp(-2), np.exp(-2), 1e-300]])  # losses 1 and 2
    near(losses.importance_ce(z, v["batch_labels"], [*v["weights_present"], 0])[0], v["self_normalised"])


def test_golden_moon_and_grab():
    v = GOLD["moon"]
    near(losses.moon(row(v["z"]), row(v["z_glob"]), row(v["z_prev"]), v["T"])[0], v["l_con"])
    same, slope = losses.moon(row(v["z"]), row(v["z_glob"]), row(v["z_glob"]))
    near(same, v["l_con_when_prev_equals_glob"])
    near(slope, 0)
    v = GOLD["fedgrab_map"]
    near([losses.grab_map(float(u)) for u in v["f"]], list(v["f"].values()))
    near(losses.pid(v["pid_first_step"]["error"], 0, 0), v["pid_first_step"]["out"])
    slopes = losses.grab_bce(np.zeros((2, 3)), [0, 1], np.zeros(3))[1]
    near(slopes, [[-0.25, 0.25, 0.25], [0.25, -0.25, 0.25]])
    state = losses.grab_learn(losses.grab_start(3), slopes, np.array([0, 1]))
    near(state["e1"], [0, 0, 0.5])
    near(state["u"], [0, 0, 10.11 * 0.5])


def test_golden_servers():
    v = GOLD["fedavg"]
    p = np.array(v["params"])
    near(np.array(v["sizes"]) / 4 @ p, v["size_weighted"])
    v = GOLD["fedla"]
    near(servers.label_aware(v["counts"]), v["weights"])
    near(servers.label_aware(v["counts"])[1], 17 / 30)
    for key in ("fedla_absent_label", "fedla_proportional"):
        near(servers.label_aware(GOLD[key]["counts"]), GOLD[key]["weights"])
    v = GOLD["fednova"]
    deltas = np.array(v["x_local"]) - v["x0"]
    for rho, tau_eff, new in ((0.0, "tau_eff", "x_new_vanilla"), (0.9, "tau_eff_momentum", "x_new_momentum")):
        factors, tau = servers.nova_factors(np.array(v["p"]), v["tau"], rho)
        near(tau, v[tau_eff])
        near(v["x0"] + factors @ deltas, v[new])
    near([solvers.a_norm(s, r) for s, r in ((1, 0.9), (2, 0.9), (3, 0.9), (5, 0.5))], list(v["a_norm_table"].values()))
    near(solvers.a_norm(3, e=0.1), v["a_norm_prox"]["tau=3,eta*mu=0.1"])
    v = GOLD["fedopt"]
    for kind in ("adagrad", "adam", "yogi"):
        for key, v0 in ((kind, 0.0), (f"{kind}_v_init_tau2", None)):
            x, state = {"w": np.array(v["x0"])}, {}
            for d, expected in zip(v["delta"], v[key], strict=True):
                x, state = servers.adaptive_step(x, {"w": np.array(d)}, state, kind, v0=v0)
                near(x["w"], expected)
    x, state = servers.momentum_step({"w": np.zeros(1)}, {"w": np.array([0.2])}, {})
    x, state = servers.momentum_step(x, {"w": np.array([0.1])}, state)
    near([state["m"]["w"], x["w"]], [[0.28], [0.48]])
    v = GOLD["climb"]
    lam = servers.climb_dual(np.array(v["lambda0"]), v["losses"], v["eta_dual"], v["eps"])
    near(lam, v["lambda1"])
    near(servers.climb_weights(lam), v["weights1"])
    v = GOLD["creff_match"]
    near(servers.creff_match(v["g_syn"], v["g_real"], 1e-6)[0], v["distance"])
    near(servers.creff_match(v["g_syn"], v["g_real"])[0], 1 - 2**-0.5)


def test_golden_ratio_loss():
    v = GOLD["ratio_loss"]
    sets = servers.ratio_sets(v["delta_W"])
    assert [np.argwhere(s).tolist() for s in sets] == [v["mask"]["M_0"], v["mask"]["M_1"]]
    near(servers.ratios(v["delta_W"]), v["Ra_row_sum"])
    weights = v["alpha"] + v["beta"] * servers.ratios(v["delta_W"])
    near(weights, v["class_weights"])
    e = v["weighted_ce_example"]
    near(losses.affine_ce(row(e["logits"]), [e["label"]], weights=weights)[0], e["loss"])
    m = GOLD["ratio_monitor"]
    near(servers.ratio_monitor(v["delta_W"], m["scaled_global_update"], 100), m["true_counts"])


def test_golden_selection():
    v = GOLD["seolkim_sampling"]
    near(selection.seolkim_target(v["counts"], v["delta"], v["r"]), v["t_k"])
    assert selection.seolkim_oversampled(v["counts"], v["delta"], v["r"]).tolist() == v["new_counts"]
    assert selection.seolkim_oversampled(v["counts"], v["delta"], 0).tolist() == v["r0"]["new_counts"]
    v = GOLD["seolkim_selection"]
    log = selection.seolkim_select(v["counts"], v["h"], v["theta_KLD"])
    assert [entry[0] for entry in log] == [e["client"] for e in v["log"]]
    for entry, e in zip(log, v["log"], strict=True):
        assert entry[1].tolist() == e["s"] and entry[2].tolist() == e["v"]
        near(entry[3], e["kld"])
    v = GOLD["seolkim_batch"]
    sizes = [selection.seolkim_batch(t, b) for t, b in zip(v["total"], v["beta"], strict=True)]
    assert sizes == v["b"]
    near([selection.seolkim_rate(b) for b in sizes], v["lr_bounded"])
    near([selection.seolkim_rate(b, literal=True) for b in sizes], v["lr_literal"])
    v = GOLD["seolkim_delta"]
    near(selection.seolkim_delta(0.01, v["sizes_original"], v["sizes_after"]), v["delta_next"])
    decided = selection.seolkim_round(GOLD["seolkim_selection"]["counts"], 1e9, 1, 10, 25)  # nothing is oversampled
    near(decided["weights"], [80 / 185, 55 / 185, 50 / 185])
    assert decided["ids"] == [0, 5, 1] and decided["batch_sizes"] == [3, 2, 2] and decided["delta"] == 1e9
    assert selection.power_of_choice([4, 9, 2, 7], [0.1, 0.8, 0.8, 0.3], 3) == [9, 2, 7]
    v = GOLD["astraea_aug"]
    near(selection.astraea_copies(v["global_counts"], v["alpha"]), v["copies_per_sample"])
    v = GOLD["astraea_schedule"]
    for (chain, kl), (ids, expected) in zip(
        selection.astraea_schedule(v["counts"], v["gamma"]), v["mediators"], strict=True
    ):
        assert chain == ids
        near(kl, expected)


def test_golden_local_steps():
    """The one-dimensional trajectories: parameters {"w": number}, a batch is the objective's gradient."""
    start = {"w": np.zeros(())}

    def grad(w, slope):
        return {"w": slope(w["w"])}

    def value(tree):
        return float(tree["w"])

    v = GOLD["fedprox"]
    for steps, expected in enumerate(v["trajectory"], 1):
        near(value(solvers.sgd(start, [lambda w: w - 1 + 0.5 * w] * steps, grad, 0.1)), expected)
    v = GOLD["pfedme"]
    w, theta = solvers.moreau(start, [lambda w: 2 * (w - 1)], grad, 0.05, 0.1, 2.0, 2)
    near([value(theta), value(w)], [v["theta"], v["w_next"]])
    v, slope = GOLD["perfedavg"], lambda w: 2 * (w - 1)
    near(value(solvers.bilevel(start, [(slope, slope)], grad, 0.2, 0.1, "fo")), v["fo_next"])
    near(value(solvers.bilevel(start, [(slope,) * 3], grad, 0.2, 0.1, "hf")), v["hf_next"])

    v, slopes = GOLD["scaffold_option2"], [lambda w: w - 2, lambda w: 2 * (w + 1)]
    x, c, own = {"w": np.ones(())}, start, [start, start]
    for expected in v["full_participation"]:
        shift = [lin((1, c), (-1, k)) for k in own]
        ends = [
            solvers.sgd(x, [s] * 2, lambda w, s, d=d: lin((1, grad(w, s)), (1, d)), 0.1)
            for s, d in zip(slopes, shift, strict=True)
        ]
        own = [solvers.control(k, c, x, y, 2, 0.1) for k, y in zip(own, ends, strict=True)]
        x, c = lin((0.5, ends[0]), (0.5, ends[1])), lin((0.5, own[0]), (0.5, own[1]))  # everybody takes part
        near([value(t) for t in (x, c, *own)], [expected[k] for k in ("x", "c", "c1", "c2")])
