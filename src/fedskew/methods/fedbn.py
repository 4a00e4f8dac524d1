"""FedBN: normalisation layers stay on the client (Li et al. 2021)."""

from fedskew.method import Method, Private


def fedbn() -> Method:
    """FedBN: scales, shifts and running statistics of normalisation layers stay on the client.

    On a network without normalisation layers it is FedAvg. Clients count by their rows here and alike in the authors'
    code: `weighting=Uniform()`, or the preset `authors`.

    Source: Li et al. 2021, algorithm 1, https://arxiv.org/abs/2102.07623

    Returns:
        The method.

    Example:
        >>> fedbn().parts[1]
        Private(names=('norm',))
    """
    return Method("fedbn", parts=(Private(("norm",)),), reference="li2021fedbn")
