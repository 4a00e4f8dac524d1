"""Networks of `transformers`, with adapters of `peft` or without: rows in, logits out.

Both packages come with the extra ``hf`` and are imported when a network is built. Nothing that a model brings is
executed: weights are read from safetensors files alone.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedskew.errors import ConfigError, install, require
from fedskew.fields import Above, AtLeast, demand
from fedskew.models.networks import Architecture, Shape, initialise
from fedskew.models.where import first_line
from fedskew.types import Params

__all__ = ["HF", "Transformer"]

WITH = {"AutoTokenizer": "tokenizer", "AutoImageProcessor": "image processor"}
PADDING = -1  # in the place of a token that is none
LORA = "lora_"  # in the names of the parameters of adapters


def _library(name: str) -> Any:
    """A package of the extra. Raises ConfigError that names the extra where it is missing."""
    try:
        return import_module(name)
    except ImportError:
        told = f"this needs the package {name}, which is not installed; {install('hf')}"
        raise ConfigError(told) from None


@contextmanager
def _drawn(seed: int) -> Iterator[None]:
    """Draws of torch's global generator, by which the libraries initialise, under a seed; its state comes back."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        yield


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

    def made(self, shape: Shape, classes: int, seed: int) -> nn.Module:
        """The network with its weights; the head's are drawn under the seed where the folder has none for the classes.

        Raises:
            ConfigError: a package or the model is missing, or it is no classifier of such rows.
        """
        demand(self, "path", bool(self.path), "name the folder of a model, or a model of the hub")
        text = len(shape) == 1
        network = self._network(text, classes, seed)
        base = getattr(network, network.base_model_prefix, network)
        held = {id(p) for p in base.parameters()} if self.train != "all" else set()
        whole = Transformer(network, _place(network, base, classes), text)
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
        library = _library("transformers")
        auto = getattr(library, f"AutoModelFor{'Sequence' if text else 'Image'}Classification")
        try:
            config = library.AutoConfig.from_pretrained(self.path)
            sentence = "be a model of classes: fedskew has no regression; cut the target into classes"
            demand(self, "path", getattr(config, "problem_type", None) != "regression", sentence)
            config.num_labels, config.use_cache = classes, False
            inner = config.get_text_config()
            if text and getattr(inner, "pad_token_id", None) is None:  # decoders read the last token that is none
                config.pad_token_id = inner.pad_token_id = getattr(inner, "eos_token_id", 0) or 0
            if self.weights == "random":  # the backbone is that of every seed where it stands still
                with _drawn(seed if self.train == "all" else 0):
                    return auto.from_config(config)
            with _drawn(seed):
                return auto.from_pretrained(
                    self.path, config=config, dtype=torch.float32, use_safetensors=True, ignore_mismatched_sizes=True
                )
        except (OSError, ValueError) as error:
            kind = "text" if text else "images"
            raise ConfigError(f"HF.path must name a model that classifies {kind}; got {first_line(error)}") from None

    def _adapted(self, network: Any, base: nn.Module, place: str) -> Any:
        """The configuration of the adapters that the backbone has then; what stands behind it is saved whole."""
        library = _library("peft")
        known = library.utils.constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
        inside = {id(m): isinstance(m, nn.Linear) for m in base.modules() if isinstance(m, nn.Linear | nn.Conv2d)}
        least = any(inside.values())  # convolutions get adapters where nothing is linear
        layers = [name for name, m in network.named_modules() if inside.get(id(m), False) >= least and id(m) in inside]
        targets = [*self.targets] or known.get(network.config.model_type) or layers
        others = {n.partition(".")[0] for n, p in network.named_parameters()} - {network.base_model_prefix}
        config = library.LoraConfig(
            r=self.rank, lora_alpha=self.alpha, target_modules=targets, modules_to_save=None, bias="none",
            base_model_name_or_path=self.path,
        )  # fmt: skip
        try:
            library.inject_adapter_in_model(config, network)
        except ValueError as error:
            raise ConfigError(f"HF.targets must name layers of the model; got {first_line(error)}") from None
        config.modules_to_save, config.inference_mode = sorted(others | {place.partition(".")[0]}), True
        return config

    def rows(self, values: Any, length: int = 128) -> np.ndarray[Any, Any]:
        """Texts or images as this model reads them, by its tokenizer or its image processor.

        Args:
            values: Texts; or images, of Pillow or arrays [height, width, channels].
            length: Tokens of a text at most.

        Returns:
            Token ids [n, longest], padded by -1; or uint8 [n, channels, height, width], for which `pixels` has the mean
            and the deviation.

        Raises:
            ConfigError: the package is missing, the folder has no tokenizer or image processor, or there are no values.

        Example:
            >>> HF(path="my-bert").rows(["a text", "another"])  # doctest: +SKIP
        """
        values = list(values)
        require(bool(values), "values", "hold a text or an image at least", "none")
        if not isinstance(values[0], str):
            made = self._brought("AutoImageProcessor")(
                images=values, do_rescale=False, do_normalize=False, return_tensors="np"
            )["pixel_values"]
            return np.asarray(made).round().astype(np.uint8)
        tokens = self._brought("AutoTokenizer")(values, truncation=True, max_length=length)
        found = np.full((len(values), max(map(len, tokens["input_ids"]))), PADDING, np.int64)
        for row, ids in zip(found, tokens["input_ids"], strict=True):
            row[: len(ids)] = ids
        return found

    def _brought(self, kind: str) -> Any:
        """The tokenizer or the image processor that comes with the model."""
        try:
            return getattr(_library("transformers"), kind).from_pretrained(self.path)
        except (OSError, ValueError, ImportError) as error:
            rule = f"HF.path must be a model that comes with its {WITH[kind]}; got {self.path!r}"
            raise ConfigError(f"{rule}: {first_line(error)}") from None

    def pixels(self) -> dict[str, Sequence[float]]:
        """Mean and deviation of each channel that the model was trained with, as `fedskew.from_arrays` takes them."""
        found = self._brought("AutoImageProcessor")
        return {"mean": found.image_mean, "std": found.image_std} if found.do_normalize else {}


def _place(network: Any, base: Any, classes: int) -> str:
    """The name of the classifier layer: the one linear layer outside of the backbone with an output for each class."""
    inside = {id(m) for m in base.modules()} if base is not network else set()
    linear = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Linear) and id(m) not in inside]
    found: list[str] = [name for name, layer in linear if layer.out_features == classes]
    rule = f"have one linear classifier of {classes} classes behind its backbone"
    require(len(found) == 1, f"the model {type(network).__name__}", rule, found or [name for name, _ in linear])
    return found[0]


class Transformer(nn.Module):
    """A network of transformers whose classifier stands outside, as ``head``: what enters it is [B, F] in all of them.

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
        own = network.state_dict().keys()
        held = {names[n]: v.detach().cpu().contiguous() for n, v in values.items() if names[n] in own}
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
    parent, _, own = place.rpartition(".")
    before: Any = network.get_submodule(place)
    setattr(network.get_submodule(parent), own, other)
    return before
