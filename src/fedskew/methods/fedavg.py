"""FedAvg: the average of the clients' models (McMahan et al. 2017)."""

from fedskew.method import Method


def fedavg() -> Method:
    """FedAvg: local SGD, then the average of the models, weighted by rows.

    It is the baseline of every comparison here.

    x <- sum_k (n_k / sum_j n_j) y_k with y_k the model of participant k after training on n_k rows.

    Source: McMahan et al. 2017, algorithm 1, https://arxiv.org/abs/1602.05629

    Returns:
        The method.

    Example:
        >>> from fedskew.method.weightings import Uniform
        >>> fedavg().with_(weighting=Uniform()).weighting
        Uniform()
    """
    return Method("fedavg", reference="mcmahan2017")
