"""The network of a run: as a pure function, on the device, with its initial weights.

These are drawn, or come out of a file: the final model of another run, or any safetensors file.
"""

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fedskew import models, rng
from fedskew.data.federation import Federation
from fedskew.data.inputs import Inputs, RowStore
from fedskew.engines.evaluation import Evaluator
from fedskew.engines.runtime import Runtime, one_thread
from fedskew.errors import RecordError, regular
from fedskew.method import Method
from fedskew.models import Architecture
from fedskew.models.layers import drops
from fedskew.models.precision import DTYPES, FLOATS, NARROW, arithmetic
from fedskew.models.prepare import Model, prepare
from fedskew.models.probe import probe_rows, require_runs, require_takes
from fedskew.models.sequences import require_tokens
from fedskew.records import digests
from fedskew.records.files import member
from fedskew.records.manifest import check_file
from fedskew.settings import Settings
from fedskew.types import Params, Task, Width

FINAL = "final.safetensors"
CHUNK = 64  # rows of a try


def digest_of(settings: Settings) -> str:
    """Digest of the file that a run begins from, 32 hex digits; "" where it begins from none.

    Args:
        settings: of the run. A digest that they hold already is not looked up.

    Raises:
        ConfigError: there is no such file.
        RecordError: it cannot be read, or was altered since its run wrote it.
    """
    if not settings.init_from or settings.init_digest:
        return settings.init_digest
    return _digest(_file(settings))


def _digest(file: Path) -> str:
    try:
        return digests.of_file(file)
    except OSError as error:
        raise RecordError(f"cannot read {file}: {error.strerror}") from None


def begin_from(model: Model, settings: Settings) -> None:
    """Put the values of ``settings.init_from`` into a network that is the run's own; without one, do nothing.

    All parameters and buffers of the network must be in the file, in its shapes. Its constants are read where the file
    has them. Other tensors are not read, such as those that a method added. Values are rounded to the run's dtype.

    Raises:
        ConfigError: there is no such file.
        RecordError: it is damaged or another one than ``settings.init_digest`` says, lacks a tensor, or has a value
            that is not finite.
    """
    if not settings.init_from:
        return
    file, recorded = _file(settings), settings.init_digest
    digest = _digest(file)
    if recorded and digest != recorded:
        raise RecordError(f"{file} must be the file that the run begins from, digest {recorded}; got {digest}")
    tensors = tensors_of(file)
    for name, value in put(model, file, tensors, "the run's").items():
        if not value.isfinite().all():
            raise RecordError(f"{file} must have values that are finite in {settings.dtype}; {name!r} has others")


def tensors_of(file: Path, under: str = "") -> dict[str, Tensor]:
    """The tensors of a safetensors file whose names begin so, by the rest. Raises RecordError where it is damaged."""
    try:
        with safe_open(regular(file), framework="pt") as content:
            return {n.removeprefix(under): content.get_tensor(n) for n in content.keys() if n.startswith(under)}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise RecordError(f"{file} is damaged: {error}") from None


def check_kind(file: Path, name: str, tensor: Tensor, wanted: torch.dtype = torch.float32) -> None:
    """Raise RecordError for a tensor of another kind: floats become floats, counts stay what they are."""
    if tensor.dtype != wanted and not (tensor.dtype in FLOATS and wanted in FLOATS):
        rule = "floats of 16 to 64 bits" if wanted in FLOATS else str(wanted).removeprefix("torch.")
        got = str(tensor.dtype).removeprefix("torch.")
        raise RecordError(f"{file} must hold {name!r} as {rule}; got {got}")


def frozen(model: Model) -> dict[str, str]:
    """The facts that records hold of what is not saved of a network: digests of its constants, where it has some.

    "frozen" is that of constants that a state dict has, "non_persistent" that of buffers that it lacks.
    """
    kinds = {"frozen": model.constants, "non_persistent": model.non_persistent}
    held = {kind: {name: value.cpu() for name, value in tensors.items()} for kind, tensors in kinds.items() if tensors}
    return {kind: digests.of_tensors(tensors) for kind, tensors in held.items()}


def put(model: Model, file: Path, tensors: Mapping[str, Tensor], whose: str = "its") -> Params:
    """Put the tensors of a file into a network that nobody else has; what was put, by name.

    Raises:
        RecordError: a parameter or a buffer of the network is not among them in its shape and of its kind, floats for
            floats, or a constant has another.
    """
    wanted = {**model.params, **model.buffers, **{n: v for n, v in model.constants.items() if n in tensors}}
    for name, value in wanted.items():
        if name not in tensors or tensors[name].shape != value.shape:
            got = "nothing" if name not in tensors else str(tuple(tensors[name].shape))
            rule = f"have {name!r} of shape {tuple(value.shape)}"
            raise RecordError(f"{file} must {rule}, as {whose} network; got {got}")
        check_kind(file, name, tensors[name], value.dtype)
        with torch.no_grad():
            value.copy_(tensors[name])
    return wanted


def _file(settings: Settings) -> Path:
    """The file of a run folder or a path. Raises ConfigError where there is none, RecordError for an altered one."""
    path = Path(settings.init_from or "")
    if not path.is_dir():
        holds = path.is_file() and path.suffix == ".safetensors"
        settings.demand("init_from", holds, "be a run folder or a .safetensors file")
        return path
    hint = "a run that has not ended has none: resume it"
    settings.demand("init_from", member(path, FINAL).is_file(), f"be a run folder with {FINAL}", hint)
    check_file(path, FINAL)
    return path / FINAL


def prepared_model(
    fed: Federation, model: Architecture | nn.Module, head: str | None, settings: Settings, projection: Width
) -> Model:
    """The network as a pure function, with its initial weights, on the device; with the method's projection head."""
    shape, classes = tuple(fed.dataset.x.shape[1:]), fed.dataset.classes
    named = head or getattr(model, "head_name", None)
    if not isinstance(model, nn.Module):
        network = models.build(model, shape, classes, settings.seed_of("model"))
        if model.projection and named == model.head:
            named = f"{named}.{models.CLASSIFIER}"
    elif projection:
        network, named = models.projected(model, named, projection, settings.seed_of("model"))
    else:
        network = model
    require_tokens(network, fed.dataset.x, fed.dataset.x_test)
    prepared = prepare(network, named, shape, classes, narrow=NARROW[settings.precision])
    ready = prepared.to(DTYPES[settings.dtype], settings.device)
    begin_from(ready, settings)
    with arithmetic(settings.precision):
        require_runs(ready)
        require_embeds(ready, Inputs.of(fed.dataset), fed.dataset.x, fed.dataset.x_test)
    return ready


@torch.no_grad()
def require_embeds(model: Model, inputs: Inputs, *parts: Tensor) -> None:
    """Raise ConfigError, which names the layer, where an nn.Embedding cannot look up numbers of the samples.

    The rows with the smallest and the largest number of each column are tried.
    """
    if not any(isinstance(layer, nn.Embedding | nn.EmbeddingBag) for layer in model.module.modules()):
        return
    first = next(iter(model.params.values()))
    for x in [part for part in parts if len(part)]:
        flat = x.flatten(1)
        rows = torch.unique(torch.cat([flat.argmin(0), flat.argmax(0)]))
        store = inputs.store(x[rows], torch.zeros(len(rows), dtype=torch.int64), first.dtype)
        for at in range(0, len(rows), CHUNK):
            require_takes(model, store.floats(slice(at, at + CHUNK)).to(first.device))


def initial_params(method: Method, params: Params, task: Task, seed: int) -> Params:
    """The model's parameters, some with values of the method's own, and those that components add to it."""
    for part in method.having("init_model"):
        params = {**params, **part.init_model(params, task, rng.key(seed, "init_model", part.name))}
    for part in method.having("init_params"):
        params = {**params, **part.init_params(params, task, rng.key(seed, "init", part.name))}
    return params


# Networks of which only the classifier is trained: what enters it is computed once for each row, and kept


def head_alone(model: Model, augmented: bool = False) -> Model | None:
    """The classifier as a network of features, with the same names.

    Args:
        model: a network on its device.
        augmented: whether training rows are augmented: their features are then new in each step.

    Returns:
        The classifier; None where anything else is trained, training rows have other features than test rows, or
        something follows the classifier.
    """
    layer = model.module.get_submodule(model.head)
    names = {f"{model.head}.{name}" for name, _ in layer.named_parameters()}
    noisy = any(drops(m) and m.p for m in model.module.modules())
    if augmented or noisy or type(layer) is not nn.Linear or not model.constants or model.buffers:
        return None
    if set(model.params) != names:
        return None
    head: nn.Module = copy.deepcopy(layer)
    head._forward_pre_hooks.clear()
    head._forward_pre_hooks_with_kwargs.clear()
    vars(head).pop("fedskew_call")
    for part in reversed(model.head.split(".")):
        head = nn.Sequential(OrderedDict({part: head}))
    alone = prepare(head, model.head, (model.features,), model.classes, narrow=model.narrow)
    return alone if _does_all(model, alone) else None


@torch.no_grad()
def _does_all(model: Model, alone: Model) -> bool:
    """Whether the classifier gives the network's outputs from the features, which are the same in both modes."""
    for x in probe_rows(model, 4):
        mask, key = next(iter(model.params.values())).new_ones(len(x)), rng.key(0, "probe").to(x.device)
        try:
            out, again = (model.forward(model.params, {}, x, mask, train=t, key=key)[0] for t in (True, False))
        except Exception:  # rows of another kind
            continue
        head_out, _ = alone.forward(alone.params, {}, again.features, mask, train=False, key=key)
        pairs = (out.features, again.features), (head_out.logits, again.logits)
        return all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in pairs)
    return False


@torch.no_grad()
def features_of(
    runtime: Runtime, stores: tuple[RowStore, RowStore], classes: int, precision: str
) -> tuple[RowStore, RowStore]:
    """The stores with features, float [n, F], in the place of rows; by the runtime's network."""
    net = runtime.workers.original

    def with_features(store: RowStore) -> RowStore:
        rows = torch.arange(len(store.y)).numpy()
        if not len(rows):
            return replace(store, x=net.params[f"{net.head}.weight"].new_empty(0, net.features), mean=(), std=())
        features = Evaluator(runtime, store, classes, keep=False).outputs(net.params, {}, rows)[1]
        return replace(store, x=features.to(store.y.device), mean=(), std=())

    with one_thread(), arithmetic(precision):
        return with_features(stores[0]), with_features(stores[1])
