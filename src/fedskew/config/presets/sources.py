"""What several rows of the authors' paces name: their sources."""

from __future__ import annotations

__all__ = ["FEDOPT", "FEDOPT_NOTE", "FEDOPT_SETTING", "SIMULATOR", "SIMULATOR_SETTING", "UNCHECKED", "UNREAD"]

UNCHECKED = "the authors have no public code, and their paper's settings were not checked"
UNREAD = "the settings of the authors' paper and code were not checked"
FEDOPT = "Code google-research/federated@a5af8c4, optimization/docs/hyperparameters.md (tuned for Reddi et al. 2021)"
FEDOPT_SETTING = "CIFAR-100, 500 clients, 4000 rounds"
FEDOPT_NOTE = "rates tuned on the average training accuracy of the last 100 rounds"

SIMULATOR = "Code woodenchild95/FL-Simulator@502bec6, train.py and README.md"
SIMULATOR_SETTING = "CIFAR-10, Dirichlet 0.6, 100 clients, 1000 rounds"
