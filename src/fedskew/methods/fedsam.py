"""FedSAM and MoFedSAM: sharpness-aware local steps, without and with client-level momentum (Qu et al. 2022)."""

from fedskew.method import Method, SharpnessAware, Uniform
from fedskew.methods.fedcm import ClientMomentum

REFERENCE = "qu2022"


def fedsam(rho: float = 0.1) -> Method:
    """FedSAM: each client minimises the loss of its worst neighbour within rho, under the uniform mean.

    Each step takes the gradient at a point a distance rho up the slope, which costs a second gradient.

    w <- w - lr g(w + rho g(w) / ||g(w)||_2).

    Source: Qu et al. 2022, algorithm 1, https://arxiv.org/abs/2206.02618

    Args:
        rho: Length of the perturbation; 0 is FedAvg.

    Returns:
        The method.

    Example:
        >>> fedsam(rho=0.05).local.rho
        0.05
    """
    return Method("fedsam", weighting=Uniform(), local=SharpnessAware(rho=rho), reference=REFERENCE)


def mofedsam(rho: float = 0.1, alpha: float = 0.1) -> Method:
    """MoFedSAM: FedSAM whose steps follow the last round's mean step too, as in FedCM.

    Steps look for flat minima and agree with the direction of all clients; clients count equally.

    w <- w - lr (alpha g(w + rho g(w) / ||g(w)||_2) + (1 - alpha) D), with D as in `client_momentum`.

    Source: Qu et al. 2022, algorithm 2, https://arxiv.org/abs/2206.02618

    Args:
        rho: Length of the perturbation; 0 is FedCM.
        alpha: Share of the client's own gradient, above 0 and at most 1; 1 is FedSAM. The paper calls it beta.

    Returns:
        The method.

    Example:
        >>> mofedsam(alpha=0.05).parts
        (CrossEntropy(), ClientMomentum(alpha=0.05))
    """
    parts, local = (ClientMomentum(alpha),), SharpnessAware(rho=rho)
    return Method("mofedsam", parts, weighting=Uniform(), local=local, reference=REFERENCE)
