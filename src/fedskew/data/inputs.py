"""What a model takes: samples of a shape, how raw values become them, names of classes, new rows, rows on a device.

A run folder keeps it beside the model, so that rows that the run never saw are treated as its training rows were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data.arrays import Dataset
from fedskew.data.encoding import PLAIN, Encoding
from fedskew.data.values import flat, lacks, plain, samples_of
from fedskew.errors import DataError, claim, some
from fedskew.fields import Checked, demand

LARGEST = 2**28  # numbers of a sample


@dataclass(frozen=True)
class Inputs(Checked):
    """The inputs and classes of a trained model.

    Attributes:
        shape: Shape of one sample: (channels, H, W) or (F,).
        images: Whether samples are uint8 images.
        mean: Mean of each channel of images, on the scale [0, 1]; empty where nothing is subtracted.
        std: Standard deviation of each channel.
        encoding: How a row of a table becomes a sample; None where samples are no rows of a table.
        label_names: Names of the C classes.
    """

    shape: tuple[int, ...]
    images: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    encoding: Encoding | None
    label_names: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = bool(self.shape) and 0 < math.prod(self.shape) <= LARGEST
        demand(self, "shape", fits, f"have 1 to {LARGEST} numbers")
        scaled = len(self.std) == len(self.mean) and all(s > 0 for s in self.std)
        demand(self, "std", scaled, "be positive, one for each mean")
        demand(self, "label_names", len(self.label_names) > 1, "name two classes at least")

    @staticmethod
    def of(data: Dataset) -> Inputs:
        """Those of a dataset, whose training rows say which categories of its columns a model can know."""
        images, encoding = data.x.dtype == torch.uint8, data.encoding and data.encoding.seen(data.x.numpy())
        return Inputs(data.shape, images, data.mean, data.std, encoding, data.class_names)

    def store(self, x: Tensor, y: Tensor, dtype: torch.dtype) -> RowStore:
        """Samples and labels as what an evaluation reads, images normalised as in training."""
        return RowStore(x, y, self.mean, self.std, dtype)

    def samples(
        self, x: Any, *, encoded: bool = False, what: str = "x", rows: Sequence[int] | None = None,
        notes: list[str] | None = None, new: bool = True,
    ) -> Tensor:  # fmt: skip
        """Raw values as samples.

        Args:
            x: Columns by name, each [n], with the raw values of a table; or an array [n, ...] of images or features as
                `Dataset.x` has them.
            encoded: The array's features are encoded and standardised already, as those of ``dataset.x_test``.
            what: Name of the values in error messages.
            rows: Number of each row in error messages; None counts from 0.
            notes: As for `Encoding.encode`.
            new: As for `Encoding.encode`; False for a node's training rows.

        Returns:
            Samples, uint8 [n, channels, H, W] or float32 [n, F].

        Raises:
            DataError: A column or a value is missing, a category is unknown, or the samples have another shape.

        Example:
            >>> from fedskew.data.encoding import Column, Encoding
            >>> from fedskew.data.inputs import Inputs
            >>> inputs = Inputs((1,), False, (), (), Encoding((Column("age", mean=50.0, std=10.0),)), ("a", "b"))
            >>> inputs.samples({"age": [60, 45]}).flatten().tolist()
            [1.0, -0.5]
        """
        if hasattr(x, "keys"):
            if self.encoding is None:
                sizes = ", ".join(map(str, self.shape))
                raise DataError(f"{what} must be an array [n, {sizes}]: the model has no columns by name")
            return torch.from_numpy(self.encoding.encode(x, what, rows, notes, new))
        if self.encoding is not None and not encoded:
            names = ", ".join(repr(column.name) for column in self.encoding.columns[:3])
            hint = "for features that are encoded already, as dataset.x_test is, pass encoded=True"
            raise DataError(f"{what} must be columns by name, {{{names}, ...: values}}, as in the table; {hint}")
        shape = tuple(x.shape[1:]) if hasattr(x, "shape") else ()
        last = len(shape) == 3 and shape != self.shape == (shape[2], *shape[:2])
        converted = samples_of(x, what, "last" if last else "first")
        if tuple(converted.shape[1:]) != self.shape or (converted.dtype == torch.uint8) != self.images:
            kind = "uint8 images" if self.images else "features"
            got = f"{converted.dtype} {tuple(converted.shape[1:])}".removeprefix("torch.")
            raise DataError(f"{what} must be {kind} of shape {self.shape}, as the model was trained on; got {got}")
        return converted

    def labels(self, y: Any, what: str = "y", rows: Sequence[int] | None = None) -> Tensor:
        """Labels as the model's class numbers.

        Args:
            y: Labels, [n]: names of the model's classes, or whole numbers that are such names.
            what: Name of the labels in error messages.
            rows: Number of each row in error messages; None counts from 0.

        Returns:
            Class numbers, int64 [n].

        Raises:
            DataError: A label is missing, or is no class of the model.
        """
        array = plain(flat(y), what)
        codes = {name: code for code, name in enumerate(self.label_names)}
        notation = PLAIN if self.encoding is None else self.encoding.notation
        numbers = range(len(array)) if rows is None else rows
        texts = notation.meant(array, self.label_names).tolist()
        if blank := [i for i, text in enumerate(texts) if not text]:
            raise lacks(what, np.array(blank), len(array), "a label", rows=rows)
        odd = [f"{text!r} in row {number}" for text, number in zip(texts, numbers, strict=True) if text not in codes]
        claim(not odd, what, f"hold classes of the model, {some(self.label_names)}", some(odd[:1]))
        return torch.tensor([codes[text] for text in texts], dtype=torch.int64)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that a model is asked about.

    Attributes:
        what: Where they come from, for messages.
        x: Raw columns by name, or an array of samples.
        y: Labels as the file has them; None without labels.
        label: Name of the column of labels.
        numbers: Number of each row in the file.
        beside: Columns that say whose a row is, to be written beside the scores.
        notes: What was changed or left out.
    """

    what: str
    x: Any
    y: Any | None
    label: str = "y"
    numbers: Sequence[Any] = ()
    beside: dict[str, np.ndarray] = field(default_factory=dict)
    notes: Sequence[str] = ()


def rows_of(source: Any, path: str | None, inputs: Inputs) -> Rows | Dataset:
    """The rows that a source names.

    Args:
        source: Of `Csv`, `Images`, `Npz` and `Parquet`, which have a method ``rows``, all rows are taken (where there
            are test rows, those), with labels where they are there. Of any other source the dataset is loaded; its test
            rows count.
        path: File or folder.
        inputs: Of the model, whose columns are read, or to whose size images are scaled.

    Returns:
        The rows, or the dataset.

    Raises:
        ConfigError: An option breaks a rule, or names a column that is not there.
        DataError: The file is absent or damaged, or lacks a column.
    """
    rows: Rows | Dataset = source.rows(path, inputs) if hasattr(source, "rows") else source.load(path)
    return rows


def same_file(path: str | None, other: str | None) -> bool:
    """Whether two paths name one file that exists."""
    if not path or not other:
        return False
    first, second = Path(path).expanduser(), Path(other).expanduser()
    return first.exists() and second.exists() and first.samefile(second)


@dataclass(frozen=True, eq=False)
class RowStore:
    """Rows as stored (uint8 images or float features), and how to make floats of them."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n] int64
    mean: tuple[float, ...]  # per channel, of uint8 images after division by 255
    std: tuple[float, ...]
    dtype: torch.dtype
    augmentation: tuple[str, ...] = ()  # of "crop" or "crop_reflect", and "flip"

    def floats(self, rows: Tensor | slice) -> Tensor:
        """Select rows and normalise them.

        Args:
            rows: Row numbers of any shape [...], or a slice.

        Returns:
            Samples [..., *shape]: (x / 255 - mean) / std for uint8 images, (x - mean) / std for those of more bits; the
            features themselves where there is no mean.
        """
        x = self.x[rows]
        x = x.to(self.dtype) / 255 if x.dtype == torch.uint8 else x.to(self.dtype)
        if self.mean:
            shape = (len(self.mean), *(1,) * (self.x.dim() - 2))
            mean = torch.tensor(self.mean, dtype=self.dtype, device=x.device).reshape(shape)
            std = torch.tensor(self.std, dtype=self.dtype, device=x.device).reshape(shape)
            x = (x - mean) / std
        return x

    def augmented(self, x: Tensor, key: Tensor) -> Tensor:
        """Augment a training batch [B, ...] of images as the dataset says, under a key."""
        return augment(x, self.augmentation, key) if self.augmentation and x.dim() == 4 else x


def augment(x: Tensor, kinds: tuple[str, ...], key: Tensor, pad: int = 4) -> Tensor:
    """Crop and flip images at random, row by row.

    A crop pads the image and cuts a window of the old size. Normalise before: a padding of zeros is zero afterwards.
    Works under vmap.

    Args:
        x: Images, [B, C, H, W].
        kinds: "crop" for random crops of the image padded by zeros, "crop_reflect" of the image padded by its mirror
            image about the outermost pixels, "flip" for horizontal flips with probability 1/2.
        key: Random key, ().
        pad: Pixels of padding on each side for crops.

    Returns:
        Images of the same shape.

    Example:
        >>> import torch
        >>> from fedskew import rng
        >>> from fedskew.data.inputs import augment
        >>> augment(torch.arange(4.0).reshape(1, 1, 1, 4), ("flip",), rng.key(1)).flatten()
        tensor([3., 2., 1., 0.])
    """
    rows, channels, height, width = x.shape
    y, z = torch.arange(height, device=x.device), torch.arange(width, device=x.device).expand(rows, width)
    if "flip" in kinds:
        flip = rng.uniform(rng.fold(key, 2), (rows, 1)) < 0.5
        z = torch.where(flip, width - 1 - z, z)  # [B, W]
    if "crop" in kinds or "crop_reflect" in kinds:
        shift = (rng.uniform(rng.fold(key, 1), (rows, 2)) * (2 * pad + 1)).long()  # [B, 2]
        y, z = shift[:, :1] + y, shift[:, 1:] + z
        x = torch.nn.functional.pad(x, (pad, pad, pad, pad), mode="constant" if "crop" in kinds else "reflect")
    # One gather of pixels does both, and leaves them in the order that convolutions read.
    at = (y.expand(rows, height)[:, :, None] * x.shape[-1] + z[:, None, :]).reshape(rows, 1, height * width)
    return x.flatten(2).gather(2, at.expand(rows, channels, -1)).reshape(rows, channels, height, width)
