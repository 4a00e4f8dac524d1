"""A stack of three random batches without any symmetry, for functions of logits, labels and counts."""

from __future__ import annotations

import torch

from support.tensors import draws, f64

# G = 3, B = 5 rows, C = 4 classes, F = 6 features

COUNTS = f64([[7, 2, 40, 3], [90, 11, 0, 12], [1, 1, 1, 250]])  # [G, C], no two rows alike
LABELS = torch.tensor([[0, 2, 1, 3, 2], [1, 0, 3, 0, 1], [3, 3, 2, 0, 1]])  # [G, B], never an absent class
LOGITS, FEATURES, WEIGHT = draws(3, 5, 4), draws(3, 5, 6, seed=1), draws(3, 4, 6, seed=2)
MASK = f64([[1, 1, 1, 0, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 0]])
PRIOR = f64([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.15, 0.5, 0.1]])
DUALS = draws(3, 4, seed=3).abs()
