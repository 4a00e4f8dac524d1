"""Random crops: windows of the image padded by zeros, or by its mirror."""

from __future__ import annotations

import pytest
import torch

from fedskew import rng
from fedskew.data.inputs import augment


@pytest.mark.parametrize(("kind", "mode"), [("crop", "constant"), ("crop_reflect", "reflect")])
def test_a_crop_is_a_window_of_the_padded_image(kind: str, mode: str) -> None:
    image = torch.arange(1.0, 65.0).reshape(1, 1, 8, 8)
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4), mode=mode)[0, 0]
    windows = {(i, j): padded[i : i + 8, j : j + 8] for i in range(9) for j in range(9)}
    found = augment(image.expand(600, -1, -1, -1), (kind,), rng.key(0))
    drawn = [place for crop in found for place, window in windows.items() if torch.equal(crop[0], window)]
    assert len(drawn) == 600 and set(drawn) == set(windows), "one window each, and every window is drawn"


def test_a_mirrored_crop_holds_pixels_of_the_image_alone() -> None:
    ones = torch.ones(50, 3, 8, 8)
    assert torch.equal(augment(ones, ("crop_reflect",), rng.key(1)), ones)
    assert augment(ones, ("crop",), rng.key(1)).min() == 0
