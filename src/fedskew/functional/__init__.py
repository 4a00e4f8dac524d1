"""The methods' mathematics, for any PyTorch loop; names of `__all__` and their numbers stay, all else may change.

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

from types import FunctionType
from typing import TYPE_CHECKING

from fedskew.functional.balancing import *
from fedskew.functional.classifier import *
from fedskew.functional.fisher import *
from fedskew.functional.fitting import *
from fedskew.functional.heads import *
from fedskew.functional.losses import *
from fedskew.functional.ratio import *
from fedskew.functional.regularisers import *
from fedskew.functional.retraining import *
from fedskew.functional.selection import *
from fedskew.functional.servers import *
from fedskew.functional.steps import *
from fedskew.functional.weights import *

if not TYPE_CHECKING:  # checkers follow the stars
    __all__ = sorted([name for name, value in globals().items() if isinstance(value, FunctionType)])
