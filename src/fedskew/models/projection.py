"""A projection head in front of a network's classifier, for MOON and FedETF, and for FedAvg on the same network."""

import copy
from collections import OrderedDict

import torch
from torch import Tensor, nn

from fedskew.errors import require
from fedskew.models.networks import allocate, initialise
from fedskew.models.where import classifier
from fedskew.types import Width

__all__ = ["CLASSIFIER", "Projected", "insert", "projected"]

CLASSIFIER = "classifier"  # name of the classifier inside a `Projected`


class Projected(nn.Module):
    """A projection head of two layers and the classifier behind it, in the place of one of F features and C classes.

    z = W2 relu(W1 f + b1) + b2 with W1 [F, F] and W2 [width, F]; logits = W3 z + b3. The features of the network, in
    the sense of `fedskew.types.Output`, are then z.

    Source: Li et al. 2021, section 3.3, https://arxiv.org/abs/2103.16257

    Example:
        >>> sum(p.numel() for p in Projected(features=8, width=4, classes=3).parameters())
        123
    """

    def __init__(self, features: int, width: int, classes: int, bias: bool = True) -> None:
        """`bias` is that of the classifier; the two layers of the head have one."""
        super().__init__()
        self.hidden = nn.Linear(features, features)
        self.out = nn.Linear(features, width)
        self.classifier = nn.Linear(width, classes, bias=bias)

    def forward(self, features: Tensor) -> Tensor:
        """Features [B, F] -> logits [B, C]."""
        logits: Tensor = self.classifier(self.out(torch.relu(self.hidden(features))))
        return logits


def insert(module: nn.Module, head: str, width: Width) -> nn.Module:
    """The module with a projection head before its classifier, changed in place; new layers have no values yet.

    The head is a `Projected`; a linear one is z = W1 f + b1 with W1 [C, F].

    Args:
        module: the network.
        head: name of its classifier layer; "" when the module is the layer.
        width: of the projection, or linear.

    Raises:
        ConfigError: there is no such layer, or it is no `nn.Linear`.
    """
    _, layer, _ = classifier(module, head)
    kind = type(layer).__name__
    require(isinstance(layer, nn.Linear), f"head {head!r}", "be an nn.Linear behind a projection head", kind)
    with torch.device("meta"):  # torch's own initialisation would draw from the global generator
        made: nn.Module
        if width == "linear":
            classes, biased = layer.out_features, layer.bias is not None
            out = nn.Linear(layer.in_features, classes)
            made = nn.Sequential(OrderedDict(out=out, classifier=nn.Linear(classes, classes, biased)))
        else:
            made = Projected(layer.in_features, width, layer.out_features, layer.bias is not None)
    allocate(made, layer.weight.device, layer.weight.dtype)
    if not head:
        return made
    parent, _, attribute = head.rpartition(".")
    setattr(module.get_submodule(parent), attribute, made)
    return module


def projected(module: nn.Module, head: str | None, width: Width, seed: int) -> tuple[nn.Module, str]:
    """A copy of a network with a projection head in front of its classifier, and the classifier's name in the copy.

    The layers below keep their weights. The new ones are uniform in +-1/sqrt(fan_in), keyed by seed and name.

    Args:
        module: any network with a linear classifier.
        head: name of the classifier layer; None takes the last `nn.Linear`.
        width: of the projection, or linear.
        seed: of the new weights.

    Raises:
        ConfigError: the network has no such layer, or it is no `nn.Linear`.

    Example:
        >>> network, head = projected(nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)), None, 4, seed=0)
        >>> head, network(torch.zeros(2, 8)).shape
        ('2.classifier', torch.Size([2, 3]))
    """
    head, _, _ = classifier(module, head)
    whole = insert(copy.deepcopy(module), head, width)
    initialise(whole.get_submodule(head), "uniform", seed, prefix=head)
    return whole, f"{head}.{CLASSIFIER}" if head else CLASSIFIER
