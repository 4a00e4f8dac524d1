"""FedETF: a classifier fixed as a simplex equiangular tight frame (Li et al. 2023)."""

from __future__ import annotations

from fedskew.method import Method
from fedskew.methods.fedbabu import FineTune
from fedskew.shared.heads import CosineSoftmax, InitialHead
from fedskew.shared.keeping import Frozen

__all__ = ["fedetf"]


def fedetf(scale: float = 10.0, projection: int = 0, steps: int = 5, lr: float = 0.1) -> Method:
    """FedETF: features of all clients are trained towards the same fixed directions, as far apart as they can be.

    The loss is the balanced softmax of scaled cosines; the scale is learnt. The client's own model is made by steps on
    cross-entropy of the network's logits, of all parameters; the authors' code alternates between classifier and
    projection.

    Source: Li et al. 2023, sections 4.1 and 4.2, https://arxiv.org/abs/2303.10058

    Args:
        scale: Initial scale of the cosines.
        projection: Width of a projection head in front of the classifier, at least C - 1; 0: none.
        steps: Steps of the fine-tuning, at evaluation.
        lr: Their rate.

    Returns:
        The method.

    Example:
        >>> [part.name for part in fedetf().parts]
        ['cosine_softmax', 'initial_head', 'frozen', 'fine_tune']
    """
    loss = CosineSoftmax(scale, projection=projection)
    return Method("fedetf", parts=(loss, InitialHead(), Frozen(), FineTune(steps, lr)), reference="li2023etf")
