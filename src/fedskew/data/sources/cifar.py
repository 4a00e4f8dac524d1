"""CIFAR-10 and CIFAR-100."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedskew.data.sources.files import Known, altered, md5_of, reading, together
from fedskew.data.sources.images import Constants, Decoded, Formats, Published
from fedskew.errors import DataError, content_of

CIFAR_CONSTANTS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))  # CIFAR-10's, used for both by the papers' code
DECODED_JPEGS = (
    1259, 1369, 1422, 2245, 2737, 2935, 3695, 3718, 4085, 4496,
    5791, 5896, 6286, 7580, 7707, 7724, 7832, 8117, 8551, 9254,
)  # fmt: skip
PIXELS = 3 * 32 * 32
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
CIFAR100_COARSE = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
)  # fmt: skip


@dataclass(frozen=True)
class Cifar10(Published):
    """CIFAR-10: 50 000 training and 10 000 test colour images, 32x32, 10 classes.

    Local files are parquet files as on the hub, or the official binary version.

    References:
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    name: ClassVar[str] = "cifar10"
    reference: ClassVar[str] = "krizhevsky2009"
    protocol: ClassVar[Constants] = CIFAR_CONSTANTS
    repo: ClassVar[str] = "uoft-cs/cifar10"
    folders: ClassVar[tuple[str, ...]] = ("cifar10", "cifar-10")
    x_column: ClassVar[str] = "img"
    y_columns: ClassVar[tuple[str, ...]] = ("label",)
    names: ClassVar[tuple[str, ...]] = CIFAR10
    known: ClassVar[tuple[Known, Known]] = (
        Known(50000, "608b58aed9d6cb6699103559008cda70", "69c5f3349be54915edfca558b72ad888"),
        Known(10000, "87c9a27c33052a498ff7c4ff162a9c36", "251f18ce75337ae9ca5d0dbd7ea62cf4", DECODED_JPEGS),
    )
    decoded_jpegs: ClassVar[str] = "732c957094f5781f9b27bb8dce0f0458"  # md5 of the 20 images in the copy that has them
    batches: ClassVar[tuple[str, ...]] = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
    unpacked: ClassVar[str] = "cifar-10-batches-bin"  # folder of the official binary version

    def formats(self, place: Path) -> Formats:
        """The official binary version, then parquet files."""
        batches = [(name,) for name in self.batches]
        files = together(place, batches) or together(place / self.unpacked, batches)
        return [(files, self._read), *super().formats(place)]

    def _read(self, files: tuple[Path, ...]) -> Decoded:
        """Records of the labels, the coarse one first, and an image."""
        width, parts = len(self.y_columns), list[np.ndarray]()
        for file in files:
            with reading(file, "cannot be read"):
                raw = np.frombuffer(content_of(file), np.uint8)
            if not len(raw) or len(raw) % (width + PIXELS):
                raise DataError(f"{file} must hold whole records of {width + PIXELS} bytes; got {len(raw)} bytes")
            parts.append(raw.reshape(-1, width + PIXELS))
        splits = np.concatenate(parts[:-1]), parts[-1]
        (x, y), (x_test, y_test) = (
            (rows[:, width:].reshape(-1, 3, 32, 32), [rows[:, i].astype(np.int64) for i in reversed(range(width))])
            for rows in splits
        )
        return Decoded(x, y, x_test, y_test)

    def _verify(self, d: Decoded, files: Sequence[Path]) -> list[str]:
        notes = super()._verify(d, files)
        if self.decoded_jpegs and md5_of(np.ascontiguousarray(d.x_test[list(DECODED_JPEGS)])) == self.decoded_jpegs:
            rows = " ".join(map(str, DECODED_JPEGS))
            notes.append(f"20 test images are decoded JPEGs, not exact (at most 0.2 points of accuracy): {rows}")
        return notes


@dataclass(frozen=True)
class Cifar100(Cifar10):
    """CIFAR-100: 50 000 training and 10 000 test colour images, 32x32, 100 classes in 20 superclasses.

    The column ``coarse_label`` holds the superclasses, for the partition "natural".

    References:
        Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images.
        https://www.cs.toronto.edu/~kriz/cifar.html
    """

    name: ClassVar[str] = "cifar100"
    repo: ClassVar[str] = "uoft-cs/cifar100"
    folders: ClassVar[tuple[str, ...]] = ("cifar100", "cifar-100")
    y_columns: ClassVar[tuple[str, ...]] = ("fine_label", "coarse_label")
    names: ClassVar[tuple[str, ...]] = CIFAR100
    known: ClassVar[tuple[Known, Known]] = (
        Known(50000, "f9c530e1a417feb91bd4e4edc8910a7a", "00c0899b82d482aefa46cdb301dbaf9c"),
        Known(10000, "887656c7c745158fb8b3f227c1d6536d", "1ddeb59844e0066662ddddaec17677b9", proven=False),
    )
    decoded_jpegs: ClassVar[str] = ""
    batches: ClassVar[tuple[str, ...]] = ("train.bin", "test.bin")
    unpacked: ClassVar[str] = "cifar-100-binary"

    coarse: bool = False
    """predict the 20 superclasses in place of the 100 classes"""

    def target(self) -> tuple[int, tuple[str, ...]]:
        """Fine labels, or coarse ones."""
        return (1, CIFAR100_COARSE) if self.coarse else (0, self.names)

    def _verify(self, d: Decoded, files: Sequence[Path]) -> list[str]:
        """The digest covers images and fine labels; a fine class lies in one superclass, which covers the others."""
        notes = super()._verify(d, files)
        fine, coarse = (np.concatenate([d.y[i], d.y_test[i]]).astype(np.int64) for i in (0, 1))
        if len(np.unique(np.stack([fine, coarse]), axis=1).T) != len(np.unique(fine)):
            raise altered(files, "the coarse labels were altered: a class has two superclasses")
        return notes

    def columns(self, y: list[np.ndarray]) -> dict[str, np.ndarray]:
        """The superclass of each row, by name. Raises DataError for labels beyond 0..19."""
        if len(y[1]) and not 0 <= int(y[1].min()) <= int(y[1].max()) < len(CIFAR100_COARSE):
            raise DataError(f"coarse labels must be 0..19; got {y[1].min()}..{y[1].max()}")
        return {"coarse_label": np.array(CIFAR100_COARSE)[y[1]]}
