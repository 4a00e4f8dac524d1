"""Local training alone: nothing is shared, the floor that every federation should pass."""

from fedskew.method import Method, Private


def localonly() -> Method:
    """Each client trains a model of its own in the rounds in which it is chosen; nothing is sent or averaged.

    The global model stays the initial one: read `personal_accuracy`. With a cohort of all clients, every client trains
    in every round.

    Source: the baseline "local" of Li et al. 2021, https://arxiv.org/abs/2012.04221

    Returns:
        The method.

    Example:
        >>> localonly().parts[1]
        Private(names=('*',))
    """
    return Method("localonly", parts=(Private(("*",)),), reference="li2021ditto")
