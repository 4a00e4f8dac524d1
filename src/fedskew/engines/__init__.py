"""Engines: they map the local run of `fedskew.client` over the clients of a round."""

from fedskew.engines.base import LocalEngine
from fedskew.engines.batched import Batched
from fedskew.engines.ray import Ray, require_ray
from fedskew.engines.sequential import Debug, Sequential, Threaded
from fedskew.engines.stepper import Way, is_fused
from fedskew.errors import FieldError, unknown
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.models.stacking import why_not_stacked

__all__ = ["ENGINES", "Batched", "Debug", "LocalEngine", "Ray", "Sequential", "Threaded", "choose"]

ENGINES: dict[str, type[LocalEngine]] = {
    "sequential": Sequential, "threaded": Threaded, "batched": Batched, "debug": Debug, "ray": Ray,
}  # fmt: skip
DENSE = {"Flatten", "Linear", "ReLU", "Tanh", "Sigmoid", "GELU", "Dropout", "Identity", "LayerNorm"}
SMALL = 20_000  # parameters: a stack of such clients fits the cache, and operators cost more than their arithmetic
LARGE = 10_000_000  # parameters: above, nobody has measured whether a written-out stack gains


def choose(
    name: str, device: str, model: Model | None = None, method: Method | None = None, augmented: bool = False
) -> tuple[type[LocalEngine], str]:
    """The engine of a name, why it was chosen, and what runs its local steps.

    Args:
        name: of `ENGINES`, or "auto", which decides from device, model and method, never from a clock.
        device: "cpu", "cuda" or "cuda:NUMBER".
        model: small dense models are stacked.
        method: only components of fedskew are stacked: a user's own may read values, which a stack does not allow.
        augmented: whether training batches are augmented.

    A model whose clients cannot be stacked (`fedskew.models.stacking`) is trained without padding.

    Raises:
        ConfigError: there is no such engine, its package is missing, or "batched" for a model whose clients cannot be
            stacked.
    """
    if name != "auto":
        if name == "flower":
            hint = "`fedskew flower init` makes an app, which `flwr run` starts"
            raise FieldError("Settings", "engine", "be one that runs in this process", name, hint)
        if name not in ENGINES:
            raise unknown("engine", name, [*ENGINES, "auto"])
        wrong = why_not_stacked(model) if ENGINES[name] is Batched and model is not None else ""
        if ENGINES[name] is Ray:
            require_ray()
        if wrong:
            hint = f"{wrong}; take auto, threaded or sequential"
            raise FieldError("Settings", "engine", "not be batched for this model", name, hint)
        kind, reason = ENGINES[name], "asked for"
    else:
        kind, reason = _chosen(device, model, method, augmented)
    if model is None or method is None:
        return kind, reason
    return kind, f"{reason}; {kind.way(device, model, method, augmented).value}"


def _chosen(device: str, model: Model | None, method: Method | None, augmented: bool) -> tuple[type[LocalEngine], str]:
    """What "auto" takes, and why."""
    wrong = why_not_stacked(model) if model is not None else ""
    if device.startswith("cuda"):
        return (Sequential, wrong) if wrong else (Batched, "a GPU is kept busy by stacked clients")
    if model is None or method is None or not _stacks(model, method):
        return Threaded, "on a CPU, a client a thread"
    if wrong:
        return Threaded, f"clients are not stacked: {wrong}"
    stacked = "clients are stacked, at least a stack a thread"
    if model.parameter_count <= SMALL:
        return Batched, f"a dense model of at most {SMALL} parameters: {stacked}"
    if Batched.way(device, model, method, augmented) is not Way.VMAP and is_fused(method):
        return Batched, f"a dense model whose updates are written out: {stacked}"
    return Threaded, "on a CPU, a client a thread"


def _stacks(model: Model, method: Method) -> bool:
    """Whether a stack may pay: dense layers, and no component of a user's own, which may read values."""
    ours = all(type(c).__module__.startswith("fedskew.") for c in method.components)
    return ours and model.layer_kinds <= DENSE and model.parameter_count <= LARGE
