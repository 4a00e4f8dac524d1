"""FedLA: label-aware aggregation (Khalil et al., FMEC 2023)."""

from __future__ import annotations

from dataclasses import dataclass

from fedskew import functional as F
from fedskew.method import Method, Weighting
from fedskew.shared.weightings import convex
from fedskew.tree import Tree
from fedskew.types import Cohort, Weights

__all__ = ["LabelAware", "fedla"]


@dataclass(frozen=True)
class LabelAware(Weighting):
    """p_i ~ sum_j n_ij / S_j over the labels j that the cohort holds, S_j = sum_i n_ij; counts of rows trained on."""

    name = "label_aware"
    compute = "server: O(K C)"
    discloses = "class histogram"
    uploads = "C"

    def weigh(self, state: Tree, cohort: Cohort) -> Weights:
        """See the class."""
        return convex(F.label_aware_weights(cohort.used.double()))


def fedla() -> Method:
    """FedAvg under label-aware weights; with one participant a round it is FedAvg."""
    return Method("fedla", weighting=LabelAware(), reference="khalil2023")
