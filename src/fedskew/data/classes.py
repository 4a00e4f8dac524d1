"""Some of a dataset's classes: the rows of the others are left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedskew.data.arrays import Dataset, fingerprint
from fedskew.errors import DataError, closest
from fedskew.fields import Checked, demand


@dataclass(frozen=True, kw_only=True)
class ClassOptions(Checked):
    """Options of every dataset: which of its classes are kept, and how they are numbered."""

    classes: tuple[str, ...] = ()
    """classes to keep, by name or number, comma-separated, at least two, for example 6,0; unset: all"""
    relabel: bool = True
    """renumber the kept classes from 0 in the given order; false: they keep their numbers, and C is unchanged"""

    def __post_init__(self) -> None:
        if isinstance(self.classes, list | tuple):  # numbers too: classes=(6, 0)
            object.__setattr__(self, "classes", tuple(map(str, self.classes)))
        super().__post_init__()
        many = len(self.classes) != 1 and len(set(self.classes)) == len(self.classes)
        demand(self, "classes", many, "name two classes at least, each once", "for example 6,0")
        demand(self, "relabel", self.relabel or bool(self.classes), "be true if all classes are kept")

    def of_classes(self, data: Dataset) -> Dataset:
        """The dataset with the classes that the options keep.

        Raises:
            DataError: A class is unknown.
        """
        return keep_classes(data, self.classes, relabel=self.relabel) if self.classes else data


def keep_classes(data: Dataset, classes: Sequence[str | int], *, relabel: bool = True) -> Dataset:
    """Some classes of a dataset: the training and test rows of all others are left out.

    Args:
        data: The dataset.
        classes: At least two classes, each a name of ``data.label_names`` or, where no class has that name, a number.
        relabel: Number the classes 0, 1, ... in the order given. False keeps their numbers and ``data.classes``: the
            others are then classes without rows, which count as 0 in the macro-F1.

    Returns:
        The dataset, with a fingerprint of its own.

    Raises:
        DataError: A class is unknown or named twice, there is one only, or one has no training row.

    Example:
        >>> from fedskew.data import keep_classes, load
        >>> two = keep_classes(load("digits"), (6, 0))
        >>> two.classes, two.label_names, two.counts.tolist()
        (2, ('6', '0'), [145, 142])
        >>> keep_classes(load("digits"), (6, 0), relabel=False).counts.tolist()
        [142, 0, 0, 0, 0, 0, 145, 0, 0, 0]
    """
    codes = [_code(data, str(name)) for name in classes]
    if len(codes) < 2 or len(set(codes)) < len(codes):
        raise DataError(f"classes must be two at least, each once; got {', '.join(map(str, classes))}")
    place = torch.full((data.classes,), -1)
    place[codes] = torch.arange(len(codes)) if relabel else torch.tensor(codes)
    train, test = place[data.y] >= 0, place[data.y_test] >= 0
    if scarce := [code for code in codes if not int((data.y == code).sum())]:
        raise DataError(f"class {data.class_names[scarce[0]]!r} of {data.name!r} must have training rows; got none")
    named = tuple(data.class_names[code] for code in codes)
    kept = replace(
        data, name=f"{data.name} (classes {','.join(named)})", x=data.x[train], y=place[data.y[train]],
        x_test=data.x_test[test], y_test=place[data.y_test[test]],
        classes=len(codes) if relabel else data.classes, label_names=named if relabel else data.class_names,
        columns={name: values[train] for name, values in data.columns.items()},
        columns_test={name: values[test] for name, values in data.columns_test.items()},
        units=None if data.units is None else data.units[train],
        notes=tuple(note for note in data.notes if not note.startswith("class ")),
    )  # fmt: skip
    return replace(kept, fingerprint=fingerprint(kept))


def _code(data: Dataset, name: str) -> int:
    """The number of a class: by name, else by number."""
    names = data.class_names
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < data.classes:
        return int(name)
    raise DataError(f"classes must be classes of {data.name!r}; got {name!r}{closest(name, names)}")
