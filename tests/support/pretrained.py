"""Small models of transformers in folders, and rows for them: a text's class is one of its words, images are digits."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

import fedskew as fs

LENGTH, VOCABULARY = 12, 50
WORDS = tuple(f"word{i}" for i in range(VOCABULARY - 2))
_SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
_TEXT: dict[str, Any] = {"vocab_size": VOCABULARY, "pad_token_id": 0}
_PLACES: dict[str, Any] = _SMALL | _TEXT | {"max_position_embeddings": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"of": "BertConfig", **_PLACES},
    "distilbert": {
        "of": "DistilBertConfig", **_TEXT, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32,
        "max_position_embeddings": 32,
    },
    "roberta": {"of": "RobertaConfig", **_PLACES},
    "gpt2": {"of": "GPT2Config", "vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32,
             "eos_token_id": 0, "bos_token_id": 0},
    "llama": {"of": "LlamaConfig", **_PLACES, "eos_token_id": 1, "bos_token_id": 1},
    "vit": {"of": "ViTConfig", **_SMALL, "image_size": 8, "patch_size": 4, "num_channels": 1},
    "convnext": {"of": "ConvNextConfig", "num_channels": 1, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2,
                 "patch_size": 2},
    "resnet": {"of": "ResNetConfig", "num_channels": 1, "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
               "layer_type": "basic"},
}  # fmt: skip


@cache
def _place() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fedskew-hf-")


@cache
def folder_of(family: str) -> Path:
    """The folder of a model without weights: its configuration, a tokenizer of words, or what images become."""
    import transformers

    options = dict(FAMILIES[family])
    config = getattr(transformers, options.pop("of"))(**options)
    folder = Path(_place().name) / family
    config.save_pretrained(folder)
    if family == "bert":
        from tokenizers import Tokenizer, models, pre_tokenizers

        words = {word: i for i, word in enumerate(("[PAD]", "[UNK]", *WORDS))}
        made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]"
        ).save_pretrained(folder)
    if family == "vit":
        transformers.ViTImageProcessor(size={"height": 8, "width": 8}, image_std=(0.25, 0.25, 0.25)).save_pretrained(
            folder
        )
    return folder


@cache
def texts(count: int = 240) -> tuple[list[str], list[int]]:
    """Texts of 4 to 12 words with their classes: one word of three gives the class away."""
    draw = np.random.default_rng(0)
    sentences, labels = [], draw.integers(0, 3, count).tolist()
    for label in labels:
        words = draw.choice(WORDS[3:], draw.integers(4, LENGTH + 1)).tolist()
        words[draw.integers(0, len(words))] = WORDS[label]
        sentences.append(" ".join(words))
    return sentences, labels


@cache
def images() -> tuple[Any, Any]:
    """Digits [300, 1, 8, 8], uint8."""
    digits = load_digits()
    return (digits.images[:300, None] * 15).astype(np.uint8), digits.target[:300]


@cache
def skewed(text: bool) -> fs.data.Federation:
    """Four clients under label skew."""
    if text:
        sentences, labels = texts()
        ids = np.full((len(sentences), LENGTH), -1)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence.split())] = [2 + int(word.removeprefix("word")) for word in sentence.split()]
        data = fs.from_arrays(ids, labels, name="texts")
    else:
        data = fs.from_arrays(*images(), name="images")
    return fs.federate(data, fs.partitioners.Dirichlet(alpha=0.5), clients=4, seed=0)


def rows_of(family: str) -> Tensor:
    """Five rows."""
    if FAMILIES[family].get("vocab_size"):
        return skewed(True).dataset.x[:5].clone()
    return skewed(False).dataset.x[:5] / torch.tensor(255.0)
