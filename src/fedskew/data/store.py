"""The dataset's rows on a device: gathered, normalised and augmented a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedskew import rng

__all__ = ["Store", "augment"]


@dataclass(frozen=True, eq=False)
class Store:
    """Rows as they are kept (uint8 images or float features) and the way to make floats of them."""

    x: Tensor  # [n, ...]
    y: Tensor  # [n] int64
    mean: tuple[float, ...]  # per channel, after division by 255
    std: tuple[float, ...]
    dtype: torch.dtype
    augmentation: tuple[str, ...] = ()  # "crop", "flip"

    def floats(self, rows: Tensor | slice) -> Tensor:
        """Rows [...] to normalised values [..., *shape]: (x / 255 - mean) / std for uint8, x as it is for floats."""
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
        """A training batch [B, ...] after this dataset's augmentation, keyed."""
        return augment(x, self.augmentation, key) if self.augmentation and x.dim() == 4 else x


def augment(x: Tensor, kinds: tuple[str, ...], key: Tensor, pad: int = 4) -> Tensor:
    """Random crop after zero padding by ``pad``, and horizontal flip with probability 1/2, row by row.

    x [B, C, H, W]; the padding is zero after normalisation, as in the protocols' transform order. Works under vmap: no
    loop over rows, no value read back.
    """
    rows, _, height, width = x.shape
    if "crop" in kinds:
        shift = (rng.uniform(rng.fold(key, 1), (rows, 2)) * (2 * pad + 1)).long()  # [B, 2]
        padded = torch.nn.functional.pad(x, (pad, pad, pad, pad))
        y = shift[:, :1] + torch.arange(height, device=x.device)  # [B, H]
        z = shift[:, 1:] + torch.arange(width, device=x.device)  # [B, W]
        b = torch.arange(rows, device=x.device)
        x = padded[b[:, None, None], :, y[:, :, None], z[:, None, :]].permute(0, 3, 1, 2)
    if "flip" in kinds:
        flip = rng.uniform(rng.fold(key, 2), (rows, 1, 1, 1)) < 0.5
        x = torch.where(flip, x.flip(-1), x)
    return x
