"""LG-FedAvg: local representations under one global classifier (Liang et al. 2020)."""

from fedskew.method import Method, Private


def lgfedavg(names: tuple[str, ...] = ("body",)) -> Method:
    """LG-FedAvg: the layers below stay on the client, the classifier is averaged; all train together.

    The global model has the initial body under the averaged classifier, so its own accuracy says little: read
    `personal_accuracy`. The authors' code begins from a model of FedAvg, this from the initial one. Clients count by
    their rows here and alike in that code: `weighting=Uniform()`, or the preset `authors`.

    Source: Liang et al. 2020, algorithm 1, https://arxiv.org/abs/2001.01523

    Args:
        names: Local layers, as `fedskew.parts.Private` takes them.

    Returns:
        The method.

    Example:
        >>> lgfedavg().parts[1]
        Private(names=('body',))
    """
    return Method("lgfedavg", parts=(Private(names),), reference="liang2020")
