"""Engines map local runs over the clients of a round; their names and the bits of a run stay, all else may change."""

from fedskew.engines.base import LocalEngine
from fedskew.engines.batched import Batched
from fedskew.engines.chained import Chained
from fedskew.engines.ray import Ray, require_ray
from fedskew.engines.sequential import Debug, Sequential, Threaded
from fedskew.engines.stepper import StepMode, is_fused
from fedskew.errors import FieldError
from fedskew.method import Method
from fedskew.models.prepare import Model
from fedskew.models.stacking import why_not_stacked

__all__ = [
    "ENGINES", "Batched", "Chained", "Debug", "LocalEngine", "Ray", "Sequential", "Threaded", "check_engine", "choose",
]  # fmt: skip

ENGINES: dict[str, type[LocalEngine]] = {
    "sequential": Sequential, "threaded": Threaded, "batched": Batched, "chained": Chained, "debug": Debug, "ray": Ray,
}  # fmt: skip
DENSE = {"Flatten", "Linear", "ReLU", "Tanh", "Sigmoid", "GELU", "Dropout", "Identity", "LayerNorm"}
SMALL = 20_000  # parameters: a stack of such clients fits the cache, and operators cost more than their arithmetic
LARGE = 10_000_000  # parameters: above, nobody has measured whether a written-out stack gains


def check_engine(name: str) -> None:
    """Raise ConfigError for an engine that cannot run here: that of Flower, or that of Ray where it is missing."""
    if name == "flower":
        hint = "`fedskew flower init` makes an app, which `flwr run` starts"
        raise FieldError("Settings", "engine", "be one that runs in this process", name, hint)
    if name == "ray":
        require_ray()


def choose(
    name: str, device: str, model: Model, method: Method, augmented: bool = False, trains: Method | None = None
) -> tuple[type[LocalEngine], str]:
    """The engine of a name, why it was chosen, and what runs its local steps.

    Args:
        name: of `ENGINES`, or "auto", which decides from device, model and method, never from a clock.
        device: "cpu", "cuda" or "cuda:NUMBER".
        model: small dense models are stacked.
        method: only components of fedskew are stacked: a user's own may read values, which a stack does not allow.
        augmented: whether training batches are augmented.
        trains: the method with what privacy adds to it; None: ``method``.

    A model whose clients cannot be stacked (`fedskew.models.stacking`) is trained without padding.

    Raises:
        ConfigError: "batched" or "chained" for a model whose clients cannot be stacked.
    """
    if name == "auto":
        kind, reason = _chosen(device, model, method, augmented)
    else:
        kind, reason = ENGINES[name], "asked for"
        if issubclass(kind, Batched) and (wrong := why_not_stacked(model)):
            hint = f"{wrong}; take auto, threaded or sequential"
            raise FieldError("Settings", "engine", f"not be {name} for this model", name, hint)
    return kind, f"{reason}; {kind.step_mode(device, model, trains or method, augmented).value}"


def _chosen(device: str, model: Model, method: Method, augmented: bool) -> tuple[type[LocalEngine], str]:
    """What "auto" takes, and why."""
    wrong = why_not_stacked(model)
    if device.startswith("cuda"):
        return (Sequential, wrong) if wrong else (Batched, "a GPU is kept busy by stacked clients")
    if not _stacks(model, method):
        return Threaded, "on a CPU, a client a thread"
    if wrong:
        return Threaded, f"clients are not stacked: {wrong}"
    stacked = "clients are stacked, at least a stack a thread"
    if model.parameter_count <= SMALL:
        return Batched, f"a dense model of at most {SMALL} parameters: {stacked}"
    if Batched.step_mode(device, model, method, augmented) is not StepMode.VMAP and is_fused(method):
        return Batched, f"a dense model whose updates are written out: {stacked}"
    return Threaded, "on a CPU, a client a thread"


def _stacks(model: Model, method: Method) -> bool:
    """Whether a stack may pay: dense layers, and no component of a user's own, which may read values."""
    ours = all(type(c).__module__.startswith("fedskew.") for c in method.components)
    return ours and model.layer_kinds <= DENSE and model.parameter_count <= LARGE
