"""FedAvgM, FedAdagrad, FedAdam, FedYogi: an optimizer at the server (Reddi et al. 2021)."""

from __future__ import annotations

from fedskew.method import Method
from fedskew.shared.servers import Adagrad, Adam, Momentum, Yogi

__all__ = ["fedadagrad", "fedadam", "fedavgm", "fedyogi"]

REFERENCE = "reddi2021"


def fedavgm(beta: float = 0.9, lr: float = 1.0) -> Method:
    """Server momentum without dampening."""
    return Method("fedavgm", server=Momentum(lr, beta), reference=Momentum.reference)


def fedadagrad(lr: float = 0.1) -> Method:
    """Server Adagrad, v_0 = tau^2."""
    return Method("fedadagrad", server=Adagrad(lr), reference=REFERENCE)


def fedadam(lr: float = 0.01) -> Method:
    """Server Adam without bias correction, v_0 = tau^2."""
    return Method("fedadam", server=Adam(lr), reference=REFERENCE)


def fedyogi(lr: float = 0.01) -> Method:
    """Server Yogi, v_0 = tau^2."""
    return Method("fedyogi", server=Yogi(lr), reference=REFERENCE)
