"""The mathematics of the methods, as pure tensor functions for any PyTorch loop.

Losses take batches and return one value for each row, [B], so that you average them with your own mask. They work under
``torch.vmap`` and ``torch.func.grad``. Server-side functions take and return tensors or dicts of tensors. No function
draws random numbers or keeps state.

Shapes: B rows of a batch, C classes, F features, K participants of a round, N clients. ``()`` is a scalar tensor.

Example:
    >>> import torch
    >>> from fedskew.functional import fedlc_loss, label_aware_weights
    >>> counts = torch.tensor([16.0, 81.0, 1.0])  # training rows of each class at one client
    >>> fedlc_loss(torch.ones(2, 3), torch.tensor([0, 2]), counts)
    tensor([1.0253, 1.5253])
    >>> label_aware_weights(torch.tensor([[700, 0, 0], [200, 100, 25], [100, 0, 25]]))
    tensor([0.2333, 0.5667, 0.2000])
"""

from __future__ import annotations

from fedskew.functional.alignment import (
    fedga_binary_loss,
    fedga_binary_targets,
    fedga_loss,
    fedga_targets,
)
from fedskew.functional.branches import hybrid_divergence
from fedskew.functional.calibration import (
    fedgr_gamma,
    fedlc_loss,
    fedrs_scale,
    logit_adjusted_loss,
    unbalanced_softmax_loss,
)
from fedskew.functional.ccvr import class_statistics, gaussian_features, pooled_statistics
from fedskew.functional.classifier import (
    fedgc_gradient,
    fedgc_spread,
    fedgc_step,
    gravitation,
    gravitation_gradient,
    gravitation_step,
    mean_rows,
)
from fedskew.functional.clusters import attention, cluster_draws, similarity_draws, update_angles
from fedskew.functional.control import (
    scaffold_control,
    scaffold_correction,
    scaffold_server_control,
)
from fedskew.functional.creff import (
    creff_head,
    creff_head_gradients,
    creff_match,
    creff_synthesize,
    rows_per_class,
)
from fedskew.functional.diversity import feature_correlation, feature_uniformity, output_spread
from fedskew.functional.feddyn import (
    feddyn_correction,
    feddyn_server_state,
    feddyn_state,
    feddyn_update,
)
from fedskew.functional.fisher import fisher_diagonal
from fedskew.functional.fitting import (
    even_weights,
    fit_by_sums,
    fit_logits,
    fitted_logits,
    logit_step,
    logit_sums,
    prior_biases,
)
from fedskew.functional.frames import (
    equal_lengths,
    frame_energy,
    lent_lengths,
    sparse_frame,
)
from fedskew.functional.gradient_balancer import (
    fedgrab_map,
    fedgrab_pid,
    fedgrab_prior,
    fedgrab_release,
    fedgrab_tail,
    weighted_bce,
)
from fedskew.functional.heads import (
    generated_head,
    orthonormal,
    simplex_head,
)
from fedskew.functional.local_balancer import (
    balance_schedule,
    balanced_logits,
    imbalance_gap,
    local_balancer_loss,
)
from fedskew.functional.losses import (
    class_counts,
    cross_entropy,
    focal_loss,
)
from fedskew.functional.meta import (
    alternated,
    descended,
    hessian_free_gradient,
    lookahead,
    moreau_mix,
    moreau_step,
    per_fedavg_step,
)
from fedskew.functional.prototypes import (
    class_prototypes,
    prototype_agreement,
    prototype_logits,
    smoothed_prototypes,
    spread_prototypes,
)
from fedskew.functional.ratio import (
    ratio_loss,
    ratio_masks,
    ratio_monitor,
    ratio_of_changes,
    ratio_of_rows,
    ratio_weights,
)
from fedskew.functional.regularisers import (
    fedntd_loss,
    moon_contrastive,
    proximal,
    proximal_pull,
)
from fedskew.functional.reweighting import (
    balancefl_terms,
    class_balanced_weights,
    cosine_logits,
    covariance_root,
    importance_weights,
    ldam_logits,
    ldam_margins,
    weighted_cross_entropy,
)
from fedskew.functional.selection import (
    astraea_copies,
    astraea_schedule,
    decay_step,
    dynamic_batch,
    dynamic_rate,
    kl_to_uniform,
    oversample_target,
    power_of_choice,
    seolkim_order,
    seolkim_select,
)
from fedskew.functional.servers import (
    adagrad_update,
    adam_update,
    momentum_update,
    yogi_update,
)
from fedskew.functional.sharpness import sam_ascent, unit_columns
from fedskew.functional.targets import disco_weights, label_discrepancy, pals_weights
from fedskew.functional.vacant import fedvls_loss, logit_suppression, vacant_distillation
from fedskew.functional.weights import (
    aggregation_balancer_weights,
    classifier_similarity,
    climb_dual_step,
    climb_weights,
    fednova_weights,
    gravitation_mass,
    label_aware_weights,
    sgd_a_norm,
    size_weights,
    uniform_weights,
)

__all__ = [
    "adagrad_update",
    "adam_update",
    "aggregation_balancer_weights",
    "alternated",
    "astraea_copies",
    "astraea_schedule",
    "attention",
    "balance_schedule",
    "balanced_logits",
    "balancefl_terms",
    "class_balanced_weights",
    "class_counts",
    "class_prototypes",
    "class_statistics",
    "classifier_similarity",
    "climb_dual_step",
    "climb_weights",
    "cluster_draws",
    "cosine_logits",
    "covariance_root",
    "creff_head",
    "creff_head_gradients",
    "creff_match",
    "creff_synthesize",
    "cross_entropy",
    "decay_step",
    "descended",
    "disco_weights",
    "dynamic_batch",
    "dynamic_rate",
    "equal_lengths",
    "even_weights",
    "feature_correlation",
    "feature_uniformity",
    "feddyn_correction",
    "feddyn_server_state",
    "feddyn_state",
    "feddyn_update",
    "fedga_binary_loss",
    "fedga_binary_targets",
    "fedga_loss",
    "fedga_targets",
    "fedgc_gradient",
    "fedgc_spread",
    "fedgc_step",
    "fedgr_gamma",
    "fedgrab_map",
    "fedgrab_pid",
    "fedgrab_prior",
    "fedgrab_release",
    "fedgrab_tail",
    "fedlc_loss",
    "fednova_weights",
    "fedntd_loss",
    "fedrs_scale",
    "fedvls_loss",
    "fisher_diagonal",
    "fit_by_sums",
    "fit_logits",
    "fitted_logits",
    "focal_loss",
    "frame_energy",
    "gaussian_features",
    "generated_head",
    "gravitation",
    "gravitation_gradient",
    "gravitation_mass",
    "gravitation_step",
    "hessian_free_gradient",
    "hybrid_divergence",
    "imbalance_gap",
    "importance_weights",
    "kl_to_uniform",
    "label_aware_weights",
    "label_discrepancy",
    "ldam_logits",
    "ldam_margins",
    "lent_lengths",
    "local_balancer_loss",
    "logit_adjusted_loss",
    "logit_step",
    "logit_sums",
    "logit_suppression",
    "lookahead",
    "mean_rows",
    "momentum_update",
    "moon_contrastive",
    "moreau_mix",
    "moreau_step",
    "orthonormal",
    "output_spread",
    "oversample_target",
    "pals_weights",
    "per_fedavg_step",
    "pooled_statistics",
    "power_of_choice",
    "prior_biases",
    "prototype_agreement",
    "prototype_logits",
    "proximal",
    "proximal_pull",
    "ratio_loss",
    "ratio_masks",
    "ratio_monitor",
    "ratio_of_changes",
    "ratio_of_rows",
    "ratio_weights",
    "rows_per_class",
    "sam_ascent",
    "scaffold_control",
    "scaffold_correction",
    "scaffold_server_control",
    "seolkim_order",
    "seolkim_select",
    "sgd_a_norm",
    "similarity_draws",
    "simplex_head",
    "size_weights",
    "smoothed_prototypes",
    "sparse_frame",
    "spread_prototypes",
    "unbalanced_softmax_loss",
    "uniform_weights",
    "unit_columns",
    "update_angles",
    "vacant_distillation",
    "weighted_bce",
    "weighted_cross_entropy",
    "yogi_update",
]
