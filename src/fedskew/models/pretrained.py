"""Networks of `transformers`, with adapters of `peft` or without: rows in, logits out.

Both packages come with the extra `hf` and are imported when a network is built. Nothing that a model brings is
executed: weights are read from safetensors files alone.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedskew.errors import require
from fedskew.errors import some as listed
from fedskew.fields import Above, AtLeast, demand, omit_if_default
from fedskew.models.folders import CONFIG, Folder, bounded, floating, largest, library, located, refused, theirs
from fedskew.models.networks import Architecture, Shape, initialise
from fedskew.types import Params

__all__ = ["HF", "Transformer"]

WITH = {"AutoTokenizer": "tokenizer", "AutoImageProcessor": "image processor"}
PADDING = -1  # in the place of a token that is none
ATTENTION = ("sdpa", "eager")  # of torch, or written out; transformers takes the first that the model has
LORA = "lora_"  # in the names of the parameters of adapters


@contextmanager
def _drawn(seed: int) -> Iterator[None]:
    """Draws of torch's global generator, by which the libraries initialise, under a seed; its state comes back."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        yield


@contextmanager
def _barless(transformers: Any) -> Iterator[None]:
    """Without the library's progress bar, which would stand before an error's line."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@dataclass(frozen=True)
class HF(Architecture):
    """A text or image classifier of transformers; all of it is trained, or its head, or adapters and the head.

    Rows of text are token ids, padded by -1; `rows` makes them. Rows of images have the model's size and channels.
    Dropout draws from the run's keys. Dropout inside attention, which is no layer there, is left out.

    Example:
        >>> HF(path="my-bert", train="lora").rank
        8
    """

    name: ClassVar[str] = "hf"
    head: ClassVar[str] = "head"

    path: str = ""
    """folder of the model as save_pretrained writes it, or its name on the hub, which is then asked"""
    train: Literal["all", "head", "lora"] = "all"
    """what is trained, sent and saved: all weights; the head, which is what stands behind the backbone; or low-rank
    adapters of peft and the head"""
    rank: Annotated[int, AtLeast(1)] = 8
    """rank of the adapters"""
    alpha: Annotated[float, Above(0)] = 16.0
    """the adapters' output is scaled by alpha / rank"""
    targets: tuple[str, ...] = ()
    """layers that get an adapter; unset: those that peft names for the model, else all linear layers"""
    weights: Literal["pretrained", "random"] = "pretrained"
    """initial weights: those of the folder, or random ones, for which a folder with config.json is enough"""
    checkpointing: bool = False
    """layers compute their outputs again on the way back, which takes less memory and more time"""
    revision: str = omit_if_default(default="")
    """commit, branch or tag of a model of the hub; unset: its newest; the record holds the commit"""

    def settled(self) -> HF:
        """With the commit of a model of the hub, which is downloaded."""
        return replace(self, revision=commit) if (commit := self._folder().revision) else self

    def made(self, shape: Shape, classes: int, seed: int) -> nn.Module:
        """The network with its weights; the head's are drawn under the seed where the folder has none for the classes.

        Raises:
            ConfigError: a package or the model is missing, or it is no classifier of such rows.
        """
        text = len(shape) == 1
        network = self._network(text, classes, seed)
        base = _base(network)
        held = {id(p) for p in base.parameters()} if self.train != "all" else set()
        with theirs("name a model that classifies"):
            whole = Transformer(network, _place(network, classes), text)
        if self.train == "lora":
            with _drawn(seed):
                whole.adapters = self._adapted(network, base, whole.place)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_(LORA in name or id(parameter) not in held)
        if self.train == "head":
            for layer in base.modules():
                if isinstance(layer, nn.Dropout):
                    layer.p = 0.0
        if self.checkpointing:
            able = [layer for layer in network.modules() if hasattr(layer, "gradient_checkpointing")]
            demand(self, "checkpointing", bool(able), "be false: no layer of this model can be computed again")
            for layer in able:
                layer.gradient_checkpointing = True
        if self.weights == "random":
            initialise(whole.head, self.init, seed, self.head)
        return whole

    def _network(self, text: bool, classes: int, seed: int) -> Any:
        """The model as its library builds it."""
        transformers, folder = library("transformers"), self._folder()
        auto = getattr(transformers, f"AutoModelFor{'Sequence' if text else 'Image'}Classification")
        files = folder.files() if self.weights == "pretrained" else []
        config = folder.configuration()
        with theirs(f"name a model that classifies {'text' if text else 'images'}"):
            sentence = "be a model of classes: fedskew has no regression; cut the target into classes"
            demand(self, "path", getattr(config, "problem_type", None) != "regression", sentence)
            config.num_labels, config.use_cache = classes, False
            inner = config.get_text_config()
            if text:
                pad, most = getattr(inner, "pad_token_id", None), inner.vocab_size - 1
                if pad is None or pad < 0:  # decoders read the last token that is none
                    config.pad_token_id = inner.pad_token_id = pad = getattr(inner, "eos_token_id", 0) or 0
                if not 0 <= pad <= most:
                    raise refused(f"have a pad_token_id in its vocabulary, 0..{most}", f"{pad!r}")
            with torch.device("meta"), bounded(largest(files) if files else math.inf):
                sketch = auto.from_config(copy.deepcopy(config), trust_remote_code=False)
            odd = {m.config._attn_implementation for m in sketch.modules() if hasattr(m, "config")} - {*ATTENTION}
            demand(self, "path", not odd, f"be a model whose attention is {' or '.join(ATTENTION)}")
            if self.weights == "random":  # the backbone is that of every seed where it stands still
                with _drawn(seed if self.train == "all" else 0):
                    return auto.from_config(config, trust_remote_code=False)
            tensors = floating(stored := folder.weights(), sketch)
            with _drawn(seed), _barless(transformers):
                network, loading = type(sketch).from_pretrained(
                    None, config=sketch.config, state_dict=tensors, dtype=torch.float32, use_safetensors=True,
                    ignore_mismatched_sizes=True, output_loading_info=True, trust_remote_code=False,
                    local_files_only=True,
                )  # fmt: skip
            _check_weights(network, loading, _place(network, classes), stored.keys() - tensors.keys())
            return network

    def _folder(self) -> Folder:
        demand(self, "path", bool(self.path), "name the folder of a model, or a model of the hub")
        return located(self.path, self.revision)

    def _adapted(self, network: Any, base: nn.Module, place: str) -> Any:
        """The configuration of the adapters that the backbone has then; what stands behind it is saved whole."""
        peft = library("peft")
        known = peft.utils.constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
        inside = {id(m): isinstance(m, nn.Linear) for m in base.modules() if isinstance(m, nn.Linear | nn.Conv2d)}
        least = any(inside.values())  # convolutions get adapters where nothing is linear
        layers = [name for name, m in network.named_modules() if inside.get(id(m), False) >= least and id(m) in inside]
        targets = [*self.targets] or known.get(network.config.model_type) or layers
        others = {n.partition(".")[0] for n, p in network.named_parameters()} - {network.base_model_prefix}
        config = peft.LoraConfig(
            r=self.rank, lora_alpha=self.alpha, target_modules=targets, modules_to_save=None, bias="none",
            base_model_name_or_path=self.path,
        )  # fmt: skip
        with theirs("name layers of the model", "HF.targets"):
            peft.inject_adapter_in_model(config, network)
        config.modules_to_save, config.inference_mode = sorted(others | {place.partition(".")[0]}), True
        return config

    def rows(self, values: Any, length: int = 128) -> np.ndarray[Any, Any]:
        """Texts or images as this model reads them, by its tokenizer or its image processor.

        Args:
            values: Texts; or images, of Pillow or arrays [height, width, channels].
            length: Tokens of a row: a longer text is cut and a shorter one padded, so rows of all calls fit together.

        Returns:
            Token ids [n, length], padded by -1; or uint8 [n, channels, height, width], for which `pixels` has the mean
            and the deviation.

        Raises:
            ConfigError: the package is missing, the folder has no tokenizer or image processor, or there are no values.

        Example:
            >>> HF(path="my-bert").rows(["a text", "another"])  # doctest: +SKIP
        """
        values = list(values)
        require(bool(values), "values", "hold a text or an image at least", "none")
        require(length >= 1, "length", "be at least 1", length)
        if not isinstance(values[0], str):
            reader = self._brought("AutoImageProcessor")
            with theirs("be a model whose image processor reads such images"):
                made = reader(images=values, do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"]
            return np.asarray(made).round().astype(np.uint8)
        reader = self._brought("AutoTokenizer")
        with theirs("be a model whose tokenizer reads such texts"):
            tokens = reader(values, truncation=True, max_length=length)["input_ids"]
        padded = np.full((len(values), length), PADDING, np.int64)
        for row, ids in zip(padded, tokens, strict=True):
            row[: len(ids)] = ids
        return padded

    def _brought(self, kind: str) -> Any:
        """The tokenizer or the image processor that comes with the model."""
        source, folder = getattr(library("transformers"), kind), self._folder()
        with theirs(rule := f"be a model that comes with its {WITH[kind]}"):
            reader = source.from_pretrained(folder.checked(), trust_remote_code=False, local_files_only=True)
            files = [*getattr(reader, "vocab_files_names", {}).values()]
        if files and not any((folder.place / name).is_file() for name in files):  # one of no words is made instead
            raise refused(rule, f"none of {listed(files)} in {folder.place}")
        return reader

    def pixels(self) -> dict[str, Sequence[float]]:
        """Mean and deviation of each channel that the model was trained with, as `fedskew.from_arrays` takes them."""
        processor = self._brought("AutoImageProcessor")
        return {"mean": processor.image_mean, "std": processor.image_std} if processor.do_normalize else {}


def _base(network: Any) -> Any:
    """The backbone; the network itself where it names none."""
    return getattr(network, network.base_model_prefix, network)


def _place(network: Any, classes: int) -> str:
    """The name of the classifier layer: the one linear layer outside of the backbone with an output for each class."""
    base = _base(network)
    inside = {id(m) for m in base.modules()} if base is not network else set()
    linear = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear) and id(m) not in inside]
    names: list[str] = [name for name, layer in linear if layer.out_features == classes and layer.in_features]
    rule = f"have one linear classifier with inputs and {classes} classes behind its backbone"
    require(len(names) == 1, f"the model {type(network).__name__}", rule, names or [name for name, _ in linear])
    return names[0]


def _check_weights(network: Any, loading: Mapping[str, Any], place: str, odd: Collection[str]) -> None:
    """Weights out of the files are whole: only what stands behind the backbone may be drawn instead.

    Args:
        network: The model with its weights.
        loading: What the library says of the names that it looked for.
        place: The name of the classifier, whose shape may be another.
        odd: Names of tensors that are no floats.

    Raises:
        ConfigError: a weight of the backbone is missing, one has another shape, or a value is not finite.
    """
    base = _base(network)
    inside = {id(t) for t in (*base.parameters(), *base.buffers())} if base is not network else set()
    tensors = dict(network.named_parameters(remove_duplicate=False))
    tensors |= dict(network.named_buffers(remove_duplicate=False))
    behind = {n for n, t in tensors.items() if id(t) not in inside and (inside or n.startswith(f"{place}."))}
    missing = sorted({*loading["missing_keys"]} - behind)
    hint = f"; no floats: {listed(sorted(odd))}" if odd else ""
    if missing:
        raise refused("have all weights but those of a head", f"{len(missing)} missing: {listed(missing)}{hint}")
    shapes = sorted((n, got, wanted) for n, got, wanted in loading["mismatched_keys"] if not n.startswith(f"{place}."))
    if shapes:
        name, got, wanted = shapes[0]
        mismatch = f"{len(shapes)} others: {name!r} of {tuple(got)} for {tuple(wanted)}"
        raise refused(f"have weights in the shapes of {CONFIG}", mismatch)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise refused("have weights that are finite in float32", f"others in {name!r}")


class Transformer(nn.Module):
    """A network of transformers whose classifier stands outside, as `head`: what enters it is [B, F] in all of them.

    Attributes:
        network: The network, with an identity in the place of the classifier.
        head: The classifier.
        place: The classifier's name in the network.
        adapters: The configuration of its adapters, of peft; None without.
    """

    adapters: Any = None

    def __init__(self, network: Any, place: str, text: bool) -> None:
        super().__init__()
        self.network, self.place = network, place
        self.head = _exchanged(network, place, nn.Identity())
        if text:
            inner = network.config.get_text_config()
            self.vocabulary, self.least, self.pad = inner.vocab_size, PADDING, inner.pad_token_id
        self.train()

    def train(self, mode: bool = True) -> Transformer:
        """Dropout and BatchNorm follow the call. What else follows it there draws from a generator: it never trains."""
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Rows [B, T] of token ids, or images [B, channels, height, width] -> logits [B, C]."""
        if hasattr(self, "pad"):
            real = x >= 0
            given = {"input_ids": torch.where(real, x.long(), self.pad), "attention_mask": real.long()}
        else:
            given = {"pixel_values": x}
        logits: Tensor = self.head(self.network(**given).logits)
        return logits

    def save(self, values: Params, label_names: Sequence[str], folder: Path) -> None:
        """Write a folder that transformers loads, or that peft loads where there are adapters; with them its weights.

        Args:
            values: Parameters, buffers and constants by their names here; others are left out.
            label_names: Names of the classes.
            folder: Where; it is made.
        """
        network = copy.deepcopy(self.network)
        _exchanged(network, self.place, copy.deepcopy(self.head))
        names = {n: re.sub(r"^head\b", self.place, n.removeprefix("network.")) for n in values}
        state_names = network.state_dict().keys()
        held = {names[n]: v.detach().cpu().contiguous() for n, v in values.items() if names[n] in state_names}
        folder.mkdir(parents=True, exist_ok=True)
        if self.adapters is None:
            config = network.config
            config.id2label, config.label2id = dict(enumerate(label_names)), {n: i for i, n in enumerate(label_names)}
            config.architectures = [type(network).__name__]
            config.save_pretrained(folder)
            save_file(held, folder / "model.safetensors", {"format": "pt"})
            return
        saved = (LORA, *(f"{name}." for name in self.adapters.modules_to_save))
        held = {n.replace(".default.", "."): v for n, v in held.items() if any(some in n for some in saved)}
        self.adapters.save_pretrained(folder)
        named = {f"base_model.model.{name}": value for name, value in held.items()}
        save_file(named, folder / "adapter_model.safetensors", {"format": "pt"})


def _exchanged(network: nn.Module, place: str, other: nn.Module) -> Any:
    """Put a layer into a place; the layer that was there."""
    parent, _, attribute = place.rpartition(".")
    before: Any = network.get_submodule(place)
    setattr(network.get_submodule(parent), attribute, other)
    return before
