"""The dataset's rows on a device: selected, normalised and augmented batch by batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew import rng

__all__ = ["Store", "augment"]


@dataclass(frozen=True, eq=False)
class Store:
    """Rows as stored (uint8 images or float features), and how to make floats of them."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n] int64
    mean: tuple[float, ...]  # per channel, after division by 255
    std: tuple[float, ...]
    dtype: torch.dtype
    augmentation: tuple[str, ...] = ()  # of "crop" or "crop_reflect", and "flip"

    def floats(self, rows: Tensor | slice) -> Tensor:
        """Select rows and normalise them.

        Args:
            rows: Row numbers of any shape [...], or a slice.

        Returns:
            Samples [..., *shape]: (x / 255 - mean) / std for uint8 images, the features themselves otherwise.
        """
        x = self.x[rows]
        if x.dtype != torch.uint8:
            return x.to(self.dtype)
        x = x.to(self.dtype) / 255
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
        >>> from fedskew.data.store import augment
        >>> augment(torch.arange(4.0).reshape(1, 1, 1, 4), ("flip",), rng.key(1)).flatten()
        tensor([3., 2., 1., 0.])
    """
    rows, _, height, width = x.shape
    if "crop" in kinds or "crop_reflect" in kinds:
        shift = (rng.uniform(rng.fold(key, 1), (rows, 2)) * (2 * pad + 1)).long()  # [B, 2]
        mode = "constant" if "crop" in kinds else "reflect"
        padded = torch.nn.functional.pad(x, (pad, pad, pad, pad), mode=mode)
        y = shift[:, :1] + torch.arange(height, device=x.device)  # [B, H]
        z = shift[:, 1:] + torch.arange(width, device=x.device)  # [B, W]
        b = torch.arange(rows, device=x.device)
        x = padded[b[:, None, None], :, y[:, :, None], z[:, None, :]].permute(0, 3, 1, 2)
    if "flip" in kinds:
        flip = rng.uniform(rng.fold(key, 2), (rows, 1, 1, 1)) < 0.5
        x = torch.where(flip, x.flip(-1), x)
    return x
