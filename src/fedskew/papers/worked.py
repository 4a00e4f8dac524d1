"""FedLA's worked example, Table I: computed, not trained."""

import torch

from fedskew.functional.weights import label_aware_weights
from fedskew.papers.printed import Printed, printed

COUNTS = ((700.0, 0.0, 0.0), (200.0, 100.0, 25.0), (100.0, 0.0, 25.0))  # rows of label a, b, c at clients c1, c2, c3


def worked() -> dict[str, float]:
    """Our value of each number of the table that is not an input, by its id.

    Example:
        >>> from fedskew.papers.worked import worked
        >>> len(worked())
        18
    """
    return {p.id: _value(p) for p in printed() if (p.paper, p.table, p.kind) == ("FedLA", "I", "result")}


def _value(number: Printed) -> float:
    counts = torch.tensor(COUNTS, dtype=torch.float64)
    shares = counts / counts.sum(0)  # [clients, labels]: n_ij / S_j
    words = number.setting.split()  # "client c1 label a" or "client c1"
    client = int(words[1][1:]) - 1
    if number.metric == "client_weight_per_label":
        return float(shares[client, "abc".index(words[3])])
    if number.metric == "client_weight_all_labels":
        return float(shares[client].sum())
    weights = label_aware_weights(counts) if number.method == "FedLA" else counts.sum(1) / counts.sum()
    return float(weights[client])
