"""FedAvgM, FedAdagrad, FedAdam and FedYogi: an optimizer at the server (Hsu et al. 2019, Reddi et al. 2021)."""

from fedskew.method import Method
from fedskew.method.servers import Adagrad, Adam, Momentum, Yogi

REFERENCE = "reddi2021"


def fedavgm(beta: float = 0.9, lr: float = 1.0, nesterov: bool = False) -> Method:
    """FedAvgM: the server moves its model by a momentum of the mean updates.

    The momentum is not dampened, so steps grow to 1 / (1 - beta) times those of FedAvg.

    m <- beta m + delta;  x <- x + lr m.

    The sources have a server rate of 1 beside small client rates, 10^-1.5 on CIFAR-100 in Reddi et al. 2021, who take
    10^-0.5 at the server on EMNIST and Shakespeare. At a client rate of 0.1 the model can collapse: set `lr=0.1`, or
    `nesterov`, which Flower's baseline of this paper has.

    Source: Hsu et al. 2019, https://arxiv.org/abs/1909.06335

    Args:
        beta: Momentum in [0, 1).
        lr: Server learning rate.
        nesterov: Nesterov's form: x <- x + lr (beta m + delta).

    Returns:
        The method.

    Example:
        >>> fedavgm(beta=0.5).server
        Momentum(lr=1.0, beta=0.5, nesterov=False)
    """
    return Method("fedavgm", server=Momentum(lr, beta, nesterov), reference=Momentum.reference)


def fedadagrad(lr: float = 0.1) -> Method:
    """FedAdagrad: the server takes Adagrad's step along the mean update of the clients.

    The second moment starts at tau^2, and beta1 is 0 as in the paper's experiments.

    Source: Reddi et al. 2021, algorithm 2, https://arxiv.org/abs/2003.00295

    Args:
        lr: Server learning rate.

    Returns:
        The method.

    Example:
        >>> fedadagrad(0.5).server.lr
        0.5
    """
    return Method("fedadagrad", server=Adagrad(lr), reference=REFERENCE)


def fedadam(lr: float = 0.01) -> Method:
    """FedAdam: the server takes Adam's step along the mean update of the clients.

    There is no bias correction, and the second moment starts at tau^2.

    Source: Reddi et al. 2021, algorithm 2, https://arxiv.org/abs/2003.00295

    Args:
        lr: Server learning rate.

    Returns:
        The method.

    Example:
        >>> fedadam().server.beta2
        0.99
    """
    return Method("fedadam", server=Adam(lr), reference=REFERENCE)


def fedyogi(lr: float = 0.01) -> Method:
    """FedYogi: the server takes Yogi's step along the mean update of the clients.

    The second moment starts at tau^2 and changes by a bounded amount a round.

    Source: Reddi et al. 2021, algorithm 2, https://arxiv.org/abs/2003.00295

    Args:
        lr: Server learning rate.

    Returns:
        The method.

    Example:
        >>> fedyogi().server.lr
        0.01
    """
    return Method("fedyogi", server=Yogi(lr), reference=REFERENCE)
