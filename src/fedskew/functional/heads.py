"""Classifiers that are made rather than trained: frames, generated heads, and the prototypes of FedNH.

B rows, C classes, F features, K clients.
"""

import math

import torch
from torch import Tensor

from fedskew.functional._numeric import is_label, nonzero, unit

__all__ = [
    "class_prototypes", "equal_lengths", "frame_energy", "generated_head", "lent_lengths", "orthonormal",
    "prototype_agreement", "prototype_logits", "simplex_head", "smoothed_prototypes", "sparse_frame",
    "spread_prototypes",
]  # fmt: skip


def generated_head(
    shares: Tensor, layers: tuple[Tensor, Tensor, Tensor, Tensor], features: int
) -> tuple[Tensor, Tensor]:
    """The classifier that a network of two layers makes of a client's class shares.

        (V, c) = B relu(A a + s) + t,  one row (V_y, c_y) for each class y

    Args:
        shares: Share of each class among the client's rows, a, [C].
        layers: A [H, C], s [H], B [C R, H] and t [C R]; R is F + 1, or F for a classifier without a bias.
        features: F.

    Returns:
        (V [C, F], c [C]); c is 0 where R is F.

    Example:
        >>> from fedskew.functional import generated_head
        >>> layers = torch.eye(2), torch.zeros(2), torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 4.0]])
        >>> generated_head(torch.tensor([0.5, 0.5]), (*layers, torch.zeros(4)), features=1)
        (tensor([[0.5000],
                [1.5000]]), tensor([1., 2.]))

    References:
        Chen and Chao 2022, On Bridging Generic and Personalized Federated Learning, section 4.3.
        https://arxiv.org/abs/2107.00778
    """
    first, shift, second, start = layers
    rows = (second @ torch.relu(first @ shares + shift) + start).reshape(len(shares), -1)
    weight, bias = rows[:, :features], rows[:, features:]
    return weight, bias.sum(1)


def orthonormal(draws: Tensor) -> Tensor:
    """Orthonormal columns that span those of a matrix: its QR factor with a positive diagonal of R.

        U R = draws,  U' U = I

    Args:
        draws: Matrix of full column rank, [F, K] with K at most F; normal draws make U uniform.

    Returns:
        U, [F, K].

    Example:
        >>> from fedskew.functional import orthonormal
        >>> orthonormal(torch.tensor([[3.0], [-4.0]]))
        tensor([[ 0.6000],
                [-0.8000]])
    """
    q, r = torch.linalg.qr(draws)
    signs = torch.where(torch.diagonal(r) < 0, -1.0, 1.0).to(q)
    basis: Tensor = q * signs
    return basis


def simplex_head(basis: Tensor) -> Tensor:
    """The weight of a simplex equiangular tight frame: C unit vectors, each pair at the same, largest possible angle.

        W = sqrt(C / (C - 1)) H U',  with H H' = I - 1 1' / C, so that w_c' w_d = -1 / (C - 1) for c != d

    Args:
        basis: U, orthonormal columns, [F, C - 1].

    Returns:
        W, [C, F].

    Example:
        >>> from fedskew.functional import simplex_head
        >>> simplex_head(torch.eye(2)).mul(100).round()  # three directions in a plane
        tensor([[  87.,   50.],
                [ -87.,   50.],
                [   0., -100.]])

    References:
        Papyan et al. 2020, Prevalence of neural collapse. https://arxiv.org/abs/2008.08186
    """
    corners = basis.shape[1]  # C - 1
    contrasts = basis.new_zeros(corners + 1, corners)
    for j in range(1, corners + 1):  # Helmert's: the first j classes against the next one
        contrasts[:j, j - 1] = 1 / math.sqrt(j * (j + 1))
        contrasts[j, j - 1] = -j / math.sqrt(j * (j + 1))
    weight: Tensor = math.sqrt((corners + 1) / corners) * contrasts @ basis.T
    return weight


# Sparse equiangular frames, and classifiers that take the lengths of others' rows


_NEAR = 0.99999  # cosines beyond it count as this one, where the arc cosine has no slope


def frame_energy(weight: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """How far rows are from one length and from wide angles, and the gradient of that.

        E = sum_c (||w_c|| - length)^2 - 1/C sum_c arccos( max_{d != c} cos(w_c, w_d) )

    Args:
        weight: W, [C, F], C at least 2.
        length: What each row should have.

    Returns:
        (E (), dE / dW [C, F]). Cosines are cut at +-0.99999, with no slope beyond.

    Example:
        >>> from fedskew.functional import frame_energy
        >>> frame_energy(torch.eye(2), 1.0)[0]  # a right angle
        tensor(-1.5708)

    References:
        Xiao et al. 2024, FedLoGe (ICLR), the two conditions on SSE-C, as its code adds them up.
        https://arxiv.org/abs/2401.08977
    """
    classes = len(weight)
    size = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    rows = unit(weight)
    nearest, which = (rows @ rows.T).fill_diagonal_(-1.0).max(1)
    cut = nearest.clamp(-_NEAR, _NEAR)
    energy = (size - length).square().sum() - cut.arccos().mean()
    slope = torch.where(nearest == cut, 1 / (classes * (1 - cut.square()).sqrt()), 0.0)
    pulls = torch.zeros(classes, classes).to(weight).scatter(1, which.unsqueeze(1), slope.unsqueeze(1))
    turn = (pulls + pulls.T) @ rows
    across = (turn - rows * (rows * turn).sum(1, keepdim=True)) / nonzero(size)
    return energy, 2 * (size - length) * rows + across


def sparse_frame(weight: Tensor, kept: Tensor, length: float, rate: float, steps: int) -> Tensor:
    """A classifier whose angles are as wide as they get while some entries stay 0.

        W <- W o kept, then ``steps`` of Adam (0.9, 0.999, 1e-8) on `frame_energy`, of the kept entries

    Args:
        weight: Start, such as `simplex_head`'s, [C, F].
        kept: 1 where an entry may be other than 0, [C, F].
        length: What each row should have.
        rate: Adam's rate.
        steps: Number of steps.

    Returns:
        W, [C, F].

    Example:
        >>> from fedskew.functional import sparse_frame
        >>> start = torch.tensor([[2.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        >>> frame = sparse_frame(start, start > 0, length=1.0, rate=0.01, steps=400)
        >>> bool(frame[0] @ frame[1] < -0.9), frame[0, 2].item()
        (True, 0.0)

    References:
        Xiao et al. 2024, FedLoGe (ICLR). https://arxiv.org/abs/2401.08977
    """
    frame = weight * kept
    mean, square = torch.zeros_like(frame), torch.zeros_like(frame)
    for t in range(1, steps + 1):
        slope = frame_energy(frame, length)[1] * kept
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope.square()
        frame = frame - rate / (1 - 0.9**t) * mean / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
    return frame


def equal_lengths(weight: Tensor, length: float = 1.7) -> Tensor:
    """Rows of one length, so that no class wins by the length that its frequency gave it.

        W_c = length w_c / ||w_c||

    Args:
        weight: w, a trained classifier, [C, F].
        length: That length.

    Returns:
        W, [C, F]; a row of zeros stays.

    Example:
        >>> from fedskew.functional import equal_lengths
        >>> equal_lengths(torch.tensor([[3.0, 4.0], [0.0, 0.5]]), 5.0)
        tensor([[3., 4.],
                [0., 5.]])

    References:
        Xiao et al. 2024, FedLoGe (ICLR), realignment of the global model. https://arxiv.org/abs/2401.08977
    """
    return length * unit(weight)


def lent_lengths(weight: Tensor, lender: Tensor) -> Tensor:
    """Rows scaled by the lengths of another classifier's, which a client's own class frequencies gave them.

        W_c = ||v_c|| w_c

    Args:
        weight: w, [C, F].
        lender: v, [C, F].

    Returns:
        W, [C, F].

    Example:
        >>> from fedskew.functional import lent_lengths
        >>> lent_lengths(torch.eye(2), torch.tensor([[3.0, 4.0], [0.0, 0.5]]))
        tensor([[5.0000, 0.0000],
                [0.0000, 0.5000]])

    References:
        Xiao et al. 2024, FedLoGe (ICLR), realignment of the clients' models. https://arxiv.org/abs/2401.08977
    """
    lent: Tensor = weight * torch.linalg.vector_norm(lender, dim=-1, keepdim=True)
    return lent


# Prototypes of classes on the unit sphere, as FedNH has them


def spread_prototypes(noise: Tensor) -> Tensor:
    """Unit vectors that are far apart: orthonormal where there are at least as many features as classes.

    Q of a QR decomposition of the noise, with a positive diagonal of R; its rows are scaled to length 1.

    Args:
        noise: Random entries of mean 0, [C, F], such as a classifier's initial weight.

    Returns:
        W, [C, F], rows of length 1.

    Example:
        >>> import torch
        >>> from fedskew.functional import spread_prototypes
        >>> spread_prototypes(torch.tensor([[2.0, 0.0], [0.0, 3.0]])).abs()
        tensor([[1., 0.],
                [0., 1.]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    wide = noise.double()
    rows = orthonormal(wide) if len(wide) >= wide.shape[1] else orthonormal(wide.T).T
    return unit(rows).to(noise)


def prototype_logits(features: Tensor, prototypes: Tensor, scale: Tensor | float = 30.0) -> Tensor:
    """Logits of features by their cosines with the prototypes.

        z_bc = s f_b' W_c / ||f_b||,  which is s cos(f_b, W_c) for prototypes of length 1

    Args:
        features: f, [B, F].
        prototypes: W, [C, F].
        scale: s, a number or ().

    Returns:
        Logits, [B, C]; 0 for a row without features.

    Example:
        >>> import torch
        >>> from fedskew.functional import prototype_logits
        >>> prototype_logits(torch.tensor([[3.0, 4.0]]), torch.eye(2), scale=10.0)
        tensor([[6., 8.]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    return scale * unit(features) @ prototypes.T


def class_prototypes(
    features: Tensor, labels: Tensor, mask: Tensor, classes: int, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The direction of each class at one client.

        mu_c = unit( mean of f_b / ||f_b|| over the rows of c ),  or  unit( sum_b p_b f_b / ||f_b|| )

    Args:
        features: f, [B, F].
        labels: Class numbers in [0, C), int64 [B].
        mask: 1 for real rows, 0 for padding, [B].
        classes: Number of classes C.
        weights: p, [B]; None: every row alike.

    Returns:
        (mu [C, F], rows of each class n [C]); mu is 0 for a class without rows.

    Example:
        >>> import torch
        >>> from fedskew.functional import class_prototypes
        >>> class_prototypes(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.tensor([1, 1]), torch.ones(2), 2)[0]
        tensor([[0.0000, 0.0000],
                [0.7071, 0.7071]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    owner = is_label(labels, classes).to(features) * mask.unsqueeze(1).to(features)
    counted = owner if weights is None else owner * weights.unsqueeze(1)
    return unit(counted.T @ unit(features)), owner.sum(0)


def prototype_agreement(prototypes: Tensor, means: Tensor) -> Tensor:
    """Weights of the clients' directions by their cosines with the prototypes.

        a_kc = exp( W_c' mu_kc )

    Args:
        prototypes: W, [C, F], rows of length 1.
        means: mu, [K, C, F].

    Returns:
        a, [K, C]; 1 where a client has no row of the class, whose direction is 0.

    Example:
        >>> import torch
        >>> from fedskew.functional import prototype_agreement
        >>> prototype_agreement(torch.eye(2), torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]))
        tensor([[1.0000, 2.7183]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    return (prototypes * means).sum(-1).exp()


def smoothed_prototypes(prototypes: Tensor, means: Tensor, counts: Tensor, smoothing: float) -> Tensor:
    """The server's prototypes after those of the clients.

        W_c <- unit( rho W_c + (1 - rho) unit( sum_k n_kc mu_kc ) )

    Args:
        prototypes: W, [C, F], rows of length 1.
        means: mu, [K, C, F].
        counts: n, [K, C].
        smoothing: rho.

    Returns:
        W, [C, F]; a class that nobody has stays.

    Example:
        >>> import torch
        >>> from fedskew.functional import smoothed_prototypes
        >>> smoothed_prototypes(torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0]]]), torch.ones(1, 1), 0.5)
        tensor([[0.7071, 0.7071]])

    References:
        Dai et al. 2023, Tackling Data Heterogeneity in Federated Learning with Class Prototypes (AAAI).
        https://arxiv.org/abs/2212.02758
    """
    mean = unit((counts.unsqueeze(-1) * means).sum(0))
    return unit(smoothing * prototypes + (1 - smoothing) * mean)
