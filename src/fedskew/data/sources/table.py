"""The table of datasets: published ones, and sources for your own data."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from fedskew import plugins
from fedskew.data.arrays import Dataset, from_arrays
from fedskew.data.sources.arrow import Hub, Parquet
from fedskew.data.sources.delimited import Csv
from fedskew.data.sources.files import with_options
from fedskew.data.sources.folders import Images
from fedskew.data.sources.images import Digits
from fedskew.data.sources.npz import Npz
from fedskew.data.sources.published import Cifar10, Cifar100, Emnist, FashionMnist, Labels47, Mnist, Svhn, TinyImageNet
from fedskew.data.sources.shakespeare import Shakespeare
from fedskew.data.sources.tabular import Adult, Fars, HeartDisease, Keel
from fedskew.errors import unknown

__all__ = ["DATASETS", "Csv", "Dataset", "Hub", "Npz", "Parquet", "from_arrays", "load"]


@runtime_checkable
class Source(Protocol):
    """Where a dataset comes from: a frozen dataclass whose fields are its options."""

    name: ClassVar[str]

    def load(self, path: str | None = None) -> Dataset:
        """Load the dataset.

        Args:
            path: File or folder; None searches $FEDSKEW_DATA and the cache.

        Returns:
            The dataset.

        Raises:
            ConfigError: An option breaks a rule.
            DataError: The data are absent or damaged.
        """


_OWN: tuple[type[Source], ...] = (
    Digits, Mnist, FashionMnist, Cifar10, Cifar100, Svhn, Emnist, Labels47, TinyImageNet,
    Shakespeare, Adult, HeartDisease, Fars, Keel, Csv, Hub, Images, Npz, Parquet,
)  # fmt: skip
DATASETS = plugins.Registry("dataset", {source.name: source for source in _OWN}, Source)


def load(name: str, path: str | None = None, **options: Any) -> Dataset:
    """Load a dataset by name.

    Args:
        name: A name of the table `DATASETS`, such as "digits" or "cifar10".
        path: File or folder of the data; None searches $FEDSKEW_DATA, then the cache, then the hub.
        **options: Options of the dataset, such as `normalize="channel"`.

    Returns:
        The dataset.

    Raises:
        ConfigError: The name or an option is unknown, or an option breaks a rule.
        DataError: The data are absent, truncated or altered.

    Example:
        >>> from fedskew.data import load
        >>> digits = load("digits", normalize="half")
        >>> digits.shape, digits.classes, len(digits.x), len(digits.x_test), digits.mean
        ((1, 8, 8), 10, 1438, 359, (0.5,))
    """
    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    made: Dataset = with_options(DATASETS[name], f"dataset {name!r}", options).load(None if path is None else str(path))
    return made
