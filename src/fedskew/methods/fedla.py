"""FedLA: label-aware aggregation (Khalil et al. 2023)."""

from dataclasses import dataclass

from fedskew import functional as F
from fedskew.method import Method, Read, Sums, Weighting, convex
from fedskew.types import Cohort, Tree, Weights


@dataclass(frozen=True)
class LabelAware(Weighting):
    """Weights by each participant's share of the rows of every label.

    p_i = W_i / sum_j W_j with W_i = sum_c n_ic / S_c over the labels c that the cohort holds, S_c = sum_i n_ic. The
    counts are those of the rows trained on, as in the text; the code counts all rows of a client.

    Source: Khalil et al. 2023, algorithm 1, code at
    https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning

    Example:
        >>> import torch
        >>> F.label_aware_weights(torch.tensor([[700.0, 0.0, 0.0], [200.0, 100.0, 25.0], [100.0, 0.0, 25.0]]))
        tensor([0.2333, 0.5667, 0.2000])
    """

    name = "label_aware"
    compute = "server: O(K C)"
    reads = (Read("histogram", "sum"),)
    uploads = "C"

    stages = 1

    def adds(self, state: Tree, own: Cohort, sums: Sums) -> Tree:
        """{"rows": n_i}, of each class, that the client trains on."""
        return {"rows": own.used.double()}

    def mass(self, state: Tree, own: Cohort, sums: Sums) -> Weights:
        """W_i from the client's rows and S."""
        return convex(F.label_aware_mass(own.used.double(), sums[0]["rows"]))


def fedla() -> Method:
    """FedLA: FedAvg with label-aware weights; with one participant a round it is FedAvg.

    A client counts by its share of the rows of every label in the cohort, so one that alone holds a label counts
    much. On MNIST with one exclusive label of ten at each client that is too much: 3 points below FedAvg
    (notes/five.md).

    Source: Khalil et al. 2023, code at https://github.com/AhmadMkhalil/Label-Aware-Aggregation-in-Federated-Learning

    Returns:
        The method.

    Example:
        >>> fedla().weighting
        LabelAware()
    """
    return Method("fedla", weighting=LabelAware(), reference="khalil2023")
