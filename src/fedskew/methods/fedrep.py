"""FedRep: the head trains first, then the shared representation (Collins et al. 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor

from fedskew.fields import Above, AtLeast, demand, omit_if_default
from fedskew.method import Component, Fixed, Gradient, Method
from fedskew.method.keeping import Private, in_group
from fedskew.methods.fedbabu import FineTune
from fedskew.types import Context, Federation, Params, Progress, Task


@dataclass(frozen=True)
class Alternating(Component):
    """Alternating local epochs: some train only the classifier, the others all but the classifier.

    With E epochs and t = min(tau, E - 1): head in epochs 1 to t, body in t + 1 to E; or body in 1 to E - t, head in the
    last t. So the body has an epoch at least, as in the authors' code, which counts its epochs from the end.
    BatchNorm's running statistics follow the forward passes of all epochs.

    With `last`, the own model is made for evaluation by so many epochs of the head alone, on mini-batches, under the
    body of the round: the authors' last round, in which all clients take part.

    Source: Collins et al. 2021, algorithm 1, https://arxiv.org/abs/2102.07078; the authors' code,
    https://github.com/lgcollins/FedRep

    Example:
        >>> Alternating(epochs=5)
        Alternating(epochs=5, first='head', last=0, last_lr=0.01)
    """

    name = "alternating"
    version = 2

    epochs: Annotated[int, AtLeast(0)] = 10
    """tau, epochs of the head, where the local run has more of them"""
    first: Literal["head", "body"] = "head"
    """which part is trained first"""
    last: Annotated[int, AtLeast(0)] = omit_if_default(default=0)
    """epochs of the head alone before own models are evaluated; the authors' code has 10 in its last round, 0: none"""
    last_lr: Annotated[float, Above(0)] = omit_if_default(default=0.01)
    """learning rate of these epochs, of mini-batches of 10 rows and momentum 0.5"""

    def check(self, method: Method, fed: Federation, task: Task) -> None:
        """One epoch for the head and one for the body."""
        rule = "be at least 2: one epoch moves the head, one the body"
        demand(method.pace, "epochs", self.epochs == 0 or method.pace.epochs > 1, rule)

    def moves(self, names: Sequence[str], task: Task, progress: Progress) -> dict[str, Tensor]:
        """The head in its epochs, everything else in the others."""
        share = (progress.epochs - 1).clamp(max=self.epochs)
        last = self.first == "body"
        head = progress.epoch > progress.epochs - share if last else progress.epoch <= share
        return {name: head if in_group(name, "head", task) else ~head for name in names}

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The model after the last epochs of its head."""
        tuned = FineTune(0, self.last_lr, "head", epochs=self.last, batch_size=10, momentum=0.5)
        return tuned.personalize(params, ctx, gradient) if self.last else params


def fedrep(head_epochs: int = 10, body_epochs: int = 1, last: int = 0) -> Method:
    """FedRep: many epochs of the client's own head on the shared representation, then few of the representation.

    The head stays on the client and the representation is averaged.

    Source: Collins et al. 2021, algorithm 1, https://arxiv.org/abs/2102.07078

    Args:
        head_epochs: tau, epochs of the head in every local run.
        body_epochs: Epochs of the representation after them.
        last: Epochs of the head alone before own models are evaluated; 10 in the authors' code.

    Returns:
        The method.

    Example:
        >>> fedrep(5).with_("alternating", first="body").pace.epochs
        6
    """
    parts, pace = (Private(), Alternating(head_epochs, last=last)), Fixed(epochs=head_epochs + body_epochs)
    return Method("fedrep", parts=parts, pace=pace, reference="collins2021")
