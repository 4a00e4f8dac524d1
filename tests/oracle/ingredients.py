"""What each ingredient is to the oracle: a few options on top of COMMON.

`word=value` is a fact of the ingredient, `field` an option that has the value of this field, `field:word` one that has
it under another word. An ingredient around another one adds to what that one says.
"""

from types import SimpleNamespace
from typing import Any

COMMON = {
    "loss": "ce",
    "local": "sgd",
    "weighting": "size",
    "server": "sgd",
    "server_lr": 1.0,
    "momentum": 0.0,
    "beta2": 0.0,  # FedAdagrad has none
    "mu": 0.0,
    "pull": 0.0,
    "rho": 0.0,
    "start": 0.0,
    "own": None,  # a model of the client's own: pulled by "messages", that of its "clusters", its "curvature"
    "per": None,  # "owned" or "used": a mini-batch's sum over so many rows of the client
    "control": False,
    "mix": None,  # share of the client's own gradient, the rest is the last round's mean step
    "perturb": None,  # where the gradient comes from: "own", a point along the client's gradient
    "mass": None,  # of FedGR's anchors: "sample" or "client"
    "scaled": False,
    "pooled": False,
    "models": None,
    "start_w": None,
}
SGD = "momentum weight_decay clip"
SAM = f"{SGD} rho alpha:share adaptive:asam normalised"
ADAPTIVE = "server=adaptive lr:server_lr beta1 tau initial bias_correction"
MEANS = {
    # losses
    "cross_entropy": "",
    "calibrated_targets": "loss=fedga form:variant count_scope probability",
    "class_balanced_loss": "loss=class_balanced beta",
    "focal": "loss=focal gamma alpha",
    "gradient_balancer": "loss=grab kp ki kd",
    "importance_reweighting": "loss=importance",
    "knowledge_inheritance": "loss=balancefl temperature lam smoothing:entropy scope entropy_reduction:reduction",
    "local_balancer": "loss=lb strength schedule_unit:unit one_based missing early eps:lb_eps",
    "logit_adjustment": "loss=adjusted tau",
    "logit_calibration": "loss=fedlc tau missing",
    "non_parametric_head": "loss=sphere smoothing scale weighs",
    "pooled_logit_calibration": "loss=fedlc tau missing=mask pooled=yes",
    "private_head": "loss=owned server=private strength:lam anchors",
    "ratio_loss": "loss=weighted alpha beta ratio divide by:picks",
    "restricted_softmax": "loss=fedrs alpha scaling few",
    "unbalanced_softmax": "loss=fedgr gamma missing",
    "vacant_classes": "loss=vacant lam suppression",
    # terms beside a loss
    "decorrelation": "loss=decorrelated beta form",
    "hybrid_paths": "loss=hybrid lam1 lam2 tau",
    "model_contrastive": "loss=moon mu:mu_con temperature newcomer",
    "not_true_distillation": "loss=fedntd beta tau scaled",
    "uniformity_variance": "loss=uniform spread:deviation uniformity",
    # other parts
    "attentive_messages": "own=messages alpha:message sigma pull:pull_u most",
    "client_momentum": "alpha:mix",
    "cluster_identity": "own=clusters",
    "control_variate": "control=yes option division spread",
    "curvature": "own=curvature lam fisher",
    "dataset_mean": "of:per",
    "dynamic_regulariser": "alpha",
    "gravitation": "server=gravity strength:lam row_average",
    "proximal": "mu",
    "proximal_variant": "mu:pull form",
    "uploaded_dynamic_regulariser": "alpha",
    "weighted_dynamic_regulariser": "alpha scaled=yes",
    "weighted_gravitation": "server=gravity strength:lam row_average by:mass",
    # weightings
    "aggregation_balancer": "weighting=balancer beta:ab_beta temperature:ab_temperature inverse:ab_inverse "
    "include_bias:ab_bias scope:ab_scope similarity:ab_similarity",
    "discrepancy_aware": "weighting=disco a b metric target base",
    "dual": "server=dual weighting=uniform dual_lr:eta eps primal_rounds:every lambda_max:top clamp_weights:clamp "
    "apply report initial:start whole",
    "fednova": "server=nova tau_eff",
    "label_aware": "weighting=label_aware",
    "label_matching": "weighting=pals lam target",
    "size": "weighting=size",
    "uniform": "weighting=uniform",
    "union_share": "weighting=union",
    # servers
    "accelerated": "server=accelerated lr:server_lr beta",
    "adagrad": f"{ADAPTIVE} kind=adagrad",
    "adam": f"{ADAPTIVE} kind=adam beta2",
    "corrected_mean": "server=speed alpha",
    "dynamic_correction": "server=dynamic alpha",
    "extrapolated": "server=extrapolated eps decay:eps_decay scaled:by_cohort",
    "global_momentum": "lr:server_lr gmf",
    "momentum": "server=momentum lr:server_lr beta",
    "plain": "lr:server_lr",
    "weighted_sum": "server=sum",
    "yogi": f"{ADAPTIVE} kind=yogi beta2",
    # local steps
    "dynamic_sam": f"{SAM} perturb=agreed",
    "lesam": f"{SGD} perturb=global rho since norm",
    "meta": "local=bilevel alpha delta hessian weight_decay clip",
    "moreau": "local=moreau inner_steps:inner penalty:lam personal_lr weight_decay reset clip",
    "precision_weighted": f"{SGD} server=precision beta2 eps",
    "sam": f"{SAM} perturb=own",
    "sgd": SGD,
    "stabilised_orthogonal": f"{SGD} perturb=distilled rho scale tau perturbs",
}
# The plan says what these decide, or the broadcast model does not depend on them.
PLANNED = {
    "augmentation", "by_size", "class_balanced", "clustered", "clustered_by_update", "decaying_oversampling", "dynamic",
    "federated_features", "fixed", "kld", "mediators", "power_of_choice", "private", "random", "shuffle",
    "virtual_client", "virtual_representations",
}  # fmt: skip


def meaning(ingredient: Any) -> dict[str, Any]:
    """The options that an ingredient and the one inside it decide."""
    base = getattr(ingredient, "base", None)
    options = {} if base is None else meaning(base)
    for token in "" if ingredient.name in PLANNED else MEANS[ingredient.name].split():
        word, fact, value = token.partition("=")
        field, _, other = token.partition(":")
        options |= {word: value} if fact else {other or field: getattr(ingredient, field)}
    return options


def settings(ingredients: Any, **options: Any) -> SimpleNamespace:
    """COMMON, what the ingredients mean, and options that are given beside them; no two mean different things."""
    decided: dict[str, Any] = {}
    for ingredient in ingredients:
        for word, value in meaning(ingredient).items():
            assert decided.setdefault(word, value) == value, f"{ingredient.name} has another {word}"
    assert options.keys() <= COMMON.keys() | decided.keys(), options
    return SimpleNamespace(**{**COMMON, **decided, **options})
