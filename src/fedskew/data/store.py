"""The dataset's rows on a device: selected, normalised and augmented batch by batch."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew import rng


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
