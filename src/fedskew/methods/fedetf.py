"""FedETF: a classifier fixed as a simplex equiangular tight frame (Li et al. 2023)."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedskew import functional as F
from fedskew.errors import FieldError, require, unknown
from fedskew.fields import Above, AtLeast, Within
from fedskew.method import Gradient, Method
from fedskew.method.keeping import Frozen, in_group, in_projection
from fedskew.method.parts import CosineSoftmax, InitialHead
from fedskew.methods.fedbabu import FineTune
from fedskew.types import COSINE_SCALE, Batch, Context, Federation, Output, Params, Task, Tree, Width


@dataclass(frozen=True)
class TunedCosineSoftmax(CosineSoftmax):
    """`CosineSoftmax`, with the client's own model by turns of the classifier and the projection head below it.

    From the global model: `steps` steps of all but the classifier W on the loss of the training; then `cycles`
    times `turn` steps of W, and as many of the projection head, on CE(s h' W / ||h||, y). The rows of W keep the
    lengths that they get; s stands still. Each step takes all of the client's rows, in evaluation mode; momentum begins
    at 0 in each turn. The code takes epochs of mini-batches. The model is evaluated by s h' W / ||h||.

    Source: Li et al. 2023, section 4.2, https://arxiv.org/abs/2303.10058

    Example:
        >>> TunedCosineSoftmax().cycles
        20
    """

    name = "tuned_cosine_softmax"
    compute = "steps + 2 cycles turn passes over the client's rows, at the evaluation of personal models"

    projection: (
        Annotated[int, AtLeast(1, hint="the turns are those of the classifier and of a projection head")]
        | Literal["linear"]
    ) = "linear"
    """projection head in front of the classifier, unless the model sets it: linear, or a width of two layers"""
    steps: Annotated[int, AtLeast(0)] = 5
    """first steps, which train all but the classifier, as the code's local round"""
    lr: Annotated[float, Above(0)] = 0.1
    """learning rate of these steps"""
    cycles: Annotated[int, AtLeast(0)] = 20
    """cycles of one turn of the classifier and one of the projection head"""
    turn: Annotated[int, AtLeast(1)] = 3
    """steps of a turn"""
    head_lr: Annotated[float, Above(0)] = 0.1
    """rate of the classifier's turns"""
    projection_lr: Annotated[float, Above(0)] = 0.05
    """rate of the projection head's turns"""
    momentum: Annotated[float, Within(0, 1, "[)")] = 0.9
    """momentum of the projection head's turns"""
    weight_decay: Annotated[float, AtLeast(0)] = 5e-4
    """weight decay of the projection head's turns"""

    def init_server(self, params: Params, fed: Federation, task: Task) -> Tree:
        """Nothing; a network without a projection head is an error here, before the first round."""
        if not any(in_projection(n, task) for n in params):
            rule = "go with a network that has a projection head, to take turns with its classifier"
            raise FieldError(type(self).__name__, "projection", rule, 0, "leave the model's projection unset")
        return {}

    def personalize(self, params: Params, ctx: Context, gradient: Gradient) -> Params:
        """The parameters after the first steps and the turns."""

        def trained(p: Params, out: Output, rows: Batch) -> Tensor:
            return self._rows(p, out, rows, ctx.task, ctx.owned)

        def tuned(p: Params, out: Output, rows: Batch) -> Tensor:
            return F.cross_entropy(F.prototype_logits(out.features, p[ctx.task.weight], self._scale(p)), rows.y)

        body = [n for n in params if in_group(n, "body", ctx.task)]
        below = [n for n in params if in_projection(n, ctx.task)]
        params = F.descended(params, lambda p: gradient(p, trained), self.lr, self.steps, body)
        turns = [
            ([ctx.task.weight], self.head_lr, 0.0, 0.0),
            (below, self.projection_lr, self.momentum, self.weight_decay),
        ]
        params = F.alternated(params, lambda p: gradient(p, tuned), turns, self.turn, self.cycles)
        served = {COSINE_SCALE: torch.as_tensor(self._scale(params)).to(params[ctx.task.weight])}
        return {**params, **{n: s for n, s in served.items() if n in params}}


def fedetf(
    scale: float = 10.0,
    projection: Width = "linear",
    steps: int = 5,
    lr: float = 0.1,
    personal: Literal["together", "alternating"] = "together",
    cycles: int = 20,
    epochs: int = 5,
) -> Method:
    """FedETF: features of all clients are trained towards the same fixed directions, as far apart as they can be.

    The features are those of a linear projection, which becomes part of the network; the loss is the balanced softmax
    of scaled cosines, whose scale is learnt. The client's own model is made by epochs on
    the cross-entropy of the scaled cosines, of all parameters; or as in the authors' code, by turns of the classifier
    and the projection head.

    Source: Li et al. 2023, sections 4.1 and 4.2, https://arxiv.org/abs/2303.10058

    Args:
        scale: Initial scale of the cosines.
        projection: Head in front of the classifier: linear, one layer of C features; a number, at least C - 1: two
            layers of that width; 0: none. `projection` of the model goes before it.
        steps: Steps before the turns, with alternating.
        lr: Their rate.
        personal: together, or alternating, which needs a projection head.
        cycles: Cycles of alternating: three steps of the classifier and three of the projection head each.
        epochs: Epochs of the fine-tuning, with together.

    Returns:
        The method.

    Raises:
        ConfigError: alternating without a projection, or an argument that goes with the other value of personal.

    Example:
        >>> [part.name for part in fedetf().parts]
        ['cosine_softmax', 'initial_head', 'frozen', 'fine_tune']
        >>> [part.name for part in fedetf(personal="alternating").parts]
        ['tuned_cosine_softmax', 'initial_head', 'frozen']
    """
    if personal not in (known := ("together", "alternating")):
        raise unknown("personal", personal, known)
    turns, tuning = {"steps": steps, "lr": lr, "cycles": cycles}, {"epochs": epochs}
    unread, owner, other = (
        (turns, TunedCosineSoftmax, known[1]) if personal == known[0] else (tuning, FineTune, known[0])
    )
    given = {name: value for name, value in unread.items() if value != getattr(owner, name)}
    require(not given, f"fedetf: {', '.join(given)}", f"go with personal={other!r}", [*given.values()])
    if personal == "alternating":
        parts = (TunedCosineSoftmax(scale, projection=projection, steps=steps, lr=lr, cycles=cycles),)
        return Method("fedetf", parts=(*parts, InitialHead(), Frozen()), reference="li2023etf")
    loss = CosineSoftmax(scale, projection=projection)
    return Method("fedetf", parts=(loss, InitialHead(), Frozen(), FineTune(epochs=epochs)), reference="li2023etf")
