"""FedRep: the head trains first, then the shared representation (Collins et al. 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew.fields import AtLeast
from fedskew.method import Component, Method
from fedskew.shared import Fixed
from fedskew.shared.keeping import Private, in_group
from fedskew.types import Progress, Task

__all__ = ["Alternating", "fedrep"]


@dataclass(frozen=True)
class Alternating(Component):
    """Alternating local epochs: some train only the classifier, the others all but the classifier.

    With E epochs: head in epochs 1 to tau, body in tau + 1 to E; or body in 1 to E - tau, head in the last tau. Where E
    is at most tau, the body never moves. BatchNorm's running statistics follow the forward passes of all epochs.

    Source: Collins et al. 2021, algorithm 1, https://arxiv.org/abs/2102.07078

    Example:
        >>> Alternating(epochs=5)
        Alternating(epochs=5, first='head')
    """

    name = "alternating"

    epochs: Annotated[int, AtLeast(0)] = 10
    """tau, epochs of the head"""
    first: Literal["head", "body"] = "head"
    """which part is trained first"""

    def moves(self, names: Sequence[str], task: Task, progress: Progress) -> dict[str, Tensor]:
        """The head in its epochs, everything else in the others."""
        last = self.first == "body"
        head = progress.epoch > progress.epochs - self.epochs if last else progress.epoch <= self.epochs
        return {name: head if in_group(name, "head", task) else ~head for name in names}


def fedrep(head_epochs: int = 10, body_epochs: int = 1) -> Method:
    """FedRep: many epochs of the client's own head on the shared representation, then few of the representation.

    Source: Collins et al. 2021, algorithm 1, https://arxiv.org/abs/2102.07078

    Args:
        head_epochs: tau, epochs of the head in every local run.
        body_epochs: Epochs of the representation after them.

    Returns:
        The method.

    Example:
        >>> fedrep(5).with_("alternating", first="body").pace.epochs
        6
    """
    parts, pace = (Private(), Alternating(head_epochs)), Fixed(epochs=head_epochs + body_epochs)
    return Method("fedrep", parts=parts, pace=pace, reference="collins2021")
