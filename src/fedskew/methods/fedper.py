"""FedPer: the classifier stays on the client (Arivazhagan et al. 2019)."""

from fedskew.method import Method, Private


def fedper(names: tuple[str, ...] = ("head",)) -> Method:
    """FedPer: base layers are averaged, personalisation layers stay on the client; all train together.

    By default the classifier is what stays.

    Source: Arivazhagan et al. 2019, algorithms 1 and 2, https://arxiv.org/abs/1912.00818

    Args:
        names: Personalisation layers, as `fedskew.parts.Private` takes them. The paper keeps the classifier, or also
            the last blocks of the network.

    Returns:
        The method.

    Example:
        >>> fedper(("head", "fc2")).parts[1]
        Private(names=('head', 'fc2'))
    """
    return Method("fedper", parts=(Private(names),), reference="arivazhagan2019")
