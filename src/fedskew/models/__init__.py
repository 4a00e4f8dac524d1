"""Networks as pure functions; names, options and the initial weights of a seed stay, all else may change.

Example:
    >>> from fedskew.models import MLP, build
    >>> network = build(MLP(hidden=16), shape=(1, 8, 8), classes=10, seed=0)
    >>> sum(p.numel() for p in network.parameters())
    1210
"""

from fedskew.models.architectures import *
from fedskew.models.pretrained import *
from fedskew.models.projection import *
