"""Datasets, the account of what was read of a user's own, datasets of arrays, and some of the classes of one."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew import rng
from fedskew.data import values as raw
from fedskew.data.encoding import PLAIN, Encoding, folded, value_of
from fedskew.errors import DataError, claim, closest, plural, some
from fedskew.fields import Checked, demand

TEST_SHARE = 0.2
ONE_LENGTH = "have the same number of rows"
SPLIT_SEED = 0  # one test set for all seeds, so that their results can be compared


@dataclass(frozen=True)
class ColumnRead:
    """What became of one column of a table.

    Attributes:
        name: Its name.
        role: "feature", "label", "client", "unit" (never parted by a split), or "left out".
        type: "number", "category", "ordinal", or "" of a column that was left out.
        holds: Its range or its levels, in words.
        first: Its first values as the file has them, three at most.
        missing: Cells without a value.
        change: What was done to values: filled, dropped, folded; "" for nothing.
    """

    name: str
    role: str
    type: str = ""
    holds: str = ""
    first: tuple[str, ...] = ()
    missing: int = 0
    change: str = ""

    def line(self) -> str:
        """As in "age: number, feature, 17 to 90, first 39, 50, 38; 3 missing: filled by the median"."""
        kind = ", ".join(filter(None, (self.type, self.role, self.holds)))
        shown = f", first {', '.join(self.first)}" if self.first else ""
        gone = f"{self.missing} missing" if self.missing else ""
        return "; ".join(filter(None, (f"{self.name}: {kind}{shown}", ": ".join(filter(None, (gone, self.change))))))


@dataclass(frozen=True)
class Reading:
    """What was read of files or arrays of a user's own; notes stand beside it in the dataset.

    Attributes:
        files: Rows or pictures by file or folder, at most a few; what they are of others together.
        columns: Of a table.
        pictures: What pictures were: their count by mode and by size, in words.
        left_out: Count by reason of what was not read.
    """

    files: tuple[tuple[str, int], ...] = ()
    columns: tuple[ColumnRead, ...] = ()
    pictures: tuple[str, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()

    def lines(self) -> Iterator[str]:
        """The account, a line each."""
        if self.files:
            yield f"read: {some([f'{name} ({rows:,})' for name, rows in self.files])}"
        yield from self.pictures
        yield from (column.line() for column in self.columns)
        yield from (f"left out: {plural(count, 'file')}, {reason}" for reason, count in self.left_out)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and a test set with their facts. Tensors live on the CPU.

    uint8 images are divided by 255; with ``mean`` and ``std`` they become (x - mean) / std for each channel.

    Attributes:
        name: Name of the dataset.
        x: Training samples, uint8 [n, channels, H, W] or float32 [n, F].
        y: Training labels, int64 [n].
        x_test: Test samples, [n_test, ...], shaped as ``x``.
        y_test: Test labels, int64 [n_test].
        classes: Number of classes C.
        label_names: C names, or none.
        mean: Mean of each channel on the scale [0, 1], or none.
        std: Standard deviation of each channel, or none.
        augment: Augmentations of training batches, of "crop", "crop_reflect" and "flip".
        columns: Further attributes of training rows, by name: codes, int64 [n]. `Natural` makes clients of them.
        column_names: The value behind each code of a column.
        borrowed: Addresses and sizes of samples that lie in memory of the caller; a run compares the fingerprint first.
        reading: What was read of files or arrays of a user's own.
        columns_test: As ``columns`` for the test rows, -1 for a value that no training row has; empty where unknown.
        test_is_official: Whether the test set is the published one. Otherwise it is a stratified share of the rows.
        source: Where the data come from.
        fingerprint: First 16 hex digits of the sha256 of all tensors.
        notes: Warnings about the data, from loading.
        encoding: Encoding of table rows; None if samples are not rows of a table.
        units: Codes, int64 [n], such as patients: no split parts rows of one code. None: each row stands alone.

    Raises:
        DataError: Lengths, shapes or dtypes do not agree.
    """

    name: str
    x: Tensor = field(repr=False)  # [n, channels, H, W] uint8, or [n, F] float32
    y: Tensor = field(repr=False)  # [n] int64
    x_test: Tensor = field(repr=False)  # [n_test, ...] as x
    y_test: Tensor = field(repr=False)  # [n_test] int64
    classes: int
    label_names: tuple[str, ...] = field(default=(), repr=False)
    mean: tuple[float, ...] = ()  # per channel, on the scale of [0, 1]; empty: none
    std: tuple[float, ...] = ()
    augment: tuple[str, ...] = ()  # of "crop", "crop_reflect", "flip"
    columns: dict[str, Tensor] = field(default_factory=dict, repr=False)  # natural client codes, [n] int64 each
    column_names: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)  # code -> its label
    test_is_official: bool = True  # False: a stratified share of the rows, taken under a fixed seed
    source: str = ""
    fingerprint: str = ""  # first 16 hex digits of the sha256 of every tensor
    notes: tuple[str, ...] = ()
    encoding: Encoding | None = field(default=None, repr=False)
    units: Tensor | None = field(default=None, repr=False)  # [n] int64
    columns_test: dict[str, Tensor] = field(default_factory=dict, repr=False)  # [n_test] int64 each
    borrowed: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    reading: Reading = field(default=Reading(), repr=False)

    def __post_init__(self) -> None:
        train = [(n, len(part), "y", len(self.y)) for n, part in (("x", self.x), *self.columns.items())]
        test = [("x_test", len(self.x_test), "y_test", len(self.y_test))]
        test += [(n, len(codes), "y_test", len(self.y_test)) for n, codes in self.columns_test.items()]
        kinds = [f"{x.dtype} {tuple(x.shape[1:])}" for x in (self.x, self.x_test)]
        names, means, stds = map(len, (self.label_names, self.mean, self.std))
        channels, got = [*self.x.shape, 0][1], f"{means} and {stds}"
        for holds, what, rule, value in (
            *((n == rows, f"{name} and {y}", ONE_LENGTH, f"{n} and {rows}") for name, n, y, rows in (*train, *test)),
            (kinds[0] == kinds[1], "x and x_test", "have samples of one shape and dtype", " and ".join(kinds)),
            (names in (0, self.classes), "label_names", f"name {self.classes} classes", names),
            (means == stds and means in (0, channels), "mean and std", f"have {channels} values each", got),
            (not means or self.x.dim() == 4, "mean and std", "be left out of data that are no images", kinds[0]),
            (all(s > 0 for s in self.std), "std", "be positive", self.std),
        ):
            if not holds:  # not as the rules are made: a dataset is made more than once
                claim(holds, what, rule, value)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (channels, H, W) or (F,)."""
        return tuple(self.x.shape[1:])

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the C classes; their numbers where they have none."""
        return self.label_names or tuple(map(str, range(self.classes)))

    @property
    def counts(self) -> Tensor:
        """Training rows of each class, int64 [C]."""
        return torch.bincount(self.y, minlength=self.classes)


def from_arrays(
    x: Any,  # [n, ...] numpy or torch
    y: Any,  # [n]
    x_test: Any = None,
    y_test: Any = None,
    *,
    name: str = "arrays",
    classes: int | None = None,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    columns: Mapping[str, Any] | None = None,
    copy: bool = False,
    channels: raw.Channels = "auto",
) -> Dataset:
    """Make a `Dataset` from numpy or torch arrays.

    Args:
        x: Samples, [n, ...]. Arrays [n, channels, H, W] and [n, H, W, channels] and uint8 arrays [n, H, W] are images.
            All arrays but uint8 images become float32. Of an array that numpy has mapped from a file (``mmap_mode``),
            uint8 images with channels first and float32 features stay in the file, where ``x_test`` is given.
        y: Labels, [n] or [n, 1]: whole numbers 0..C-1, or strings, which are numbered in sorted order.
        x_test: Test samples. Without them a stratified 20 % of the rows becomes the test set, the same rows for every
            seed.
        y_test: Test labels; give both or none.
        name: Name of the dataset.
        classes: Number of classes C; None takes the largest label + 1 and requires every class.
        mean: Mean of each channel of uint8 images on the scale [0, 1].
        std: Standard deviation of each channel.
        columns: One number or string for each training row, by name: a hospital, a user. The partition "natural" makes
            clients of them.
        copy: Whether to copy samples that could be taken as they are: arrays or tensors on the CPU of uint8 images with
            channels first or float32 features, contiguous and writable, where ``x_test`` is given. Without a copy they
            must not change; a run that finds them changed is refused.
        channels: Which axis of images has the channels, "first" or "last"; "auto": the one of 1 to 4, and where both
            axes fit, the one that makes the images square.

    Returns:
        The dataset, with a fingerprint.

    Raises:
        DataError: Lengths differ, labels are not 0..C-1 or missing, features are not finite, or a class is absent.

    Example:
        >>> import numpy as np
        >>> from fedskew.data import from_arrays
        >>> x, y = np.arange(40.0).reshape(20, 2), np.array(["cat", "dog"] * 10)
        >>> data = from_arrays(x, y, name="pets")
        >>> len(data.x), len(data.x_test), data.classes, data.label_names
        (16, 4, 2, ('cat', 'dog'))
    """
    given, missing = ("x_test", "y_test") if y_test is None else ("y_test", "x_test")
    claim((x_test is None) == (y_test is None), missing, f"be given with {given}", None)
    named = columns is None or isinstance(columns, Mapping)
    claim(named, "columns", "be values by name, such as {'hospital': [...]}", repr(columns))
    made = build(
        name, x, y, x_test, y_test, classes=classes, columns=columns, source="arrays", reading=Reading(),
        channels=channels,
    )  # fmt: skip
    borrowed = x_test is not None and (raw.shares(x, made.x) or raw.shares(x_test, made.x_test))
    if copy and borrowed:
        made, borrowed = replace(made, x=made.x.clone(), x_test=made.x_test.clone()), False
    places = _places(made) if borrowed else ()
    return replace(made, mean=tuple(map(float, mean)), std=tuple(map(float, std)), borrowed=places)


def _places(data: Dataset) -> tuple[tuple[int, int], ...]:
    """Addresses and sizes of the samples."""
    return tuple((samples.data_ptr(), samples.numel()) for samples in (data.x, data.x_test))


def check_unchanged(data: Dataset) -> None:
    """Raise DataError where samples that `from_arrays` took without a copy have changed since."""
    same = data.borrowed != _places(data) or fingerprint(data) == data.fingerprint
    hint = "they did: give from_arrays copy=True"
    claim(same, f"the arrays of {data.name!r}", "not change after from_arrays, nor in a run", hint=hint)


def build(
    name: str,
    x: Any,
    y: Any,
    x_test: Any = None,
    y_test: Any = None,
    *,
    classes: int | None = None,
    label_names: Sequence[str] = (),
    columns: Mapping[str, Any] | None = None,
    columns_test: Mapping[str, Any] | None = None,
    units: Any = None,
    notes: Sequence[str] = (),
    reading: Reading | None = None,
    channels: raw.Channels = "auto",
    **facts: Any,
) -> Dataset:
    """Make the checked `Dataset` of raw arrays, with its fingerprint; without a test set, split one off.

    Of data of a user's own, which have a ``reading``, rows that repeat and classes without a test row are noted. The
    ``facts`` are further fields of the dataset.
    """
    parts, label_names = raw.numbered([y] if x_test is None else [y, y_test], label_names)
    images = [raw.samples_of(v, what, channels) for v, what in ((x, "x"), (x_test, "x_test")) if v is not None]
    labels = [raw.labels_of(part, what) for part, what in zip(parts, ("y", "y_test"), strict=False)]
    claim(len(images[0]) == len(labels[0]), "x and y", ONE_LENGTH, f"{len(images[0])} and {len(labels[0])}")
    notes = [*notes, *(() if reading is None else raw.rounded(x, images[0]))]
    total = raw.count_classes(labels, classes or len(label_names) or None)
    label_names = tuple(label_names) or tuple(map(str, range(total)))
    codes, names = raw.encode_columns(columns or {}, len(labels[0]))
    codes_test = {name: raw.codes_among(values, names[name]) for name, values in (columns_test or {}).items()}
    units = None if units is None else raw.encode_columns({"split_by": units}, len(labels[0]))[0]["split_by"]
    if x_test is None:
        stays = _stays(labels[0].numpy(), total, units)
        units = None if units is None else units[stays]
        images, labels = ([part[0][stays], part[0][~stays]] for part in (images, labels))
        codes, codes_test = ({name: code[rows] for name, code in codes.items()} for rows in (stays, ~stays))
    data = Dataset(
        name=name, x=images[0], y=labels[0], x_test=images[1], y_test=labels[1], classes=total,
        label_names=label_names, columns=codes, column_names=names, notes=tuple(notes), units=units,
        columns_test=codes_test, reading=reading or Reading(), **{"test_is_official": x_test is not None, **facts},
    )  # fmt: skip
    notes = (*notes, *raw.unseen(data.y, data.y_test, label_names), *(() if reading is None else _repeats(data)))
    return replace(data, notes=notes, fingerprint=fingerprint(data))


def _repeats(data: Dataset) -> list[str]:
    """Notes of classes without a test row, and of rows that stand in training and test, or twice in one of them."""
    counts, counts_test = data.counts, torch.bincount(data.y_test, minlength=data.classes)
    blind = [data.class_names[c] for c in ((counts > 0) & (counts_test == 0)).nonzero().flatten().tolist()]
    notes = [f"class without a test row, never measured: {some(list(map(repr, blind)))}"] if blind else []
    pairs = [torch.unique(codes * data.classes + data.y) for codes in [*data.columns.values()][:1]]
    clients = len(torch.unique(next(iter(data.columns.values())))) if pairs else 0
    if clients > 1 and len(pairs[0]) == len(torch.unique(data.y)):
        notes.append(f"no two of {clients:,} clients share a class")
    names: dict[str, str] = {}
    for name in () if data.encoding else data.class_names:  # tables have options that settle this
        if PLAIN.doubtful(name):
            notes.append(f"class {name!r}: that is often a word for a missing label")
        if (other := names.setdefault(folded(value_of(name)), name)) != name:
            notes.append(f"class {name!r} and class {other!r} may be one")
    rows_of = (x.flatten(1).numpy() for x in (data.x, data.x_test))
    marks = [np.fromiter((hash(row.tobytes()) for row in rows), np.int64) for rows in rows_of]
    repeats = [(int(np.isin(marks[1], marks[0]).sum()), plural(len(marks[1]), "test row"), "equal a training row")]
    for rows, what in zip(marks, ("training row", "test row"), strict=True):
        repeats.append((len(rows) - len(np.unique(rows)), plural(len(rows), what), "repeat another"))
    if sentences := [f"{count:,} of {of} {how}" for count, of, how in repeats if count]:
        hint = "; take copies out, or keep them on one side by split_by, unless they are different records"
        notes.append(f"rows: {', '.join(sentences)}{hint * bool(repeats[0][0])}")
    return notes


def held_out(labels: Any, label_names: Sequence[str] = (), units: Any = None) -> np.ndarray:
    """Which rows stay in the training set when `build` splits a test set off, bool [n].

    For fitted on training rows alone, before the samples are made.

    Raises:
        DataError: As `build` for these labels.
    """
    (y,), label_names = raw.numbered([labels], label_names)
    codes = raw.labels_of(y, "y")
    units = None if units is None else torch.from_numpy(raw.codes_of(units)[0])
    return np.asarray(_stays(codes.numpy(), raw.count_classes([codes], len(label_names) or None), units))


def share(labels: np.ndarray, classes: int, fraction: float) -> np.ndarray:
    """Rows of each class that a stratified fraction takes.

    Args:
        labels: Labels in [0, C), [n].
        classes: Number of classes C.
        fraction: In [0, 1).

    Returns:
        Rows to take, int64 [C]: rounded half up, but at least one row of a class stays.
    """
    counts = np.bincount(labels, minlength=classes)
    return np.asarray(np.minimum(np.floor(fraction * counts + 0.5), np.maximum(counts - 1, 0)), np.int64)


def draw(labels: np.ndarray, take: np.ndarray, key: Tensor) -> np.ndarray:
    """Draw rows of each class without replacement.

    Args:
        labels: Labels in [0, C), [n].
        take: Rows to draw of each class, [C].
        key: Random key; class c is drawn under (key, c).

    Returns:
        Row numbers in ascending order, int64.
    """
    places = (np.flatnonzero(labels == c) for c in range(len(take)))
    picks = [rng.generator(key, c).permutation(rows)[: int(take[c])] for c, rows in enumerate(places)]
    return np.sort(np.concatenate(picks)).astype(np.int64)


def draw_whole(labels: np.ndarray, units: np.ndarray, take: np.ndarray, key: Tensor) -> np.ndarray:
    """As `draw`, but units such as patients are taken whole: ``take`` is come near to, and a row of each class stays.

    Units are visited in a drawn order. One is taken if the rows taken of the classes are then nearer to ``take``.
    """
    codes, at = np.unique(units, return_inverse=True)
    counts = np.zeros((len(codes), len(take)), np.int64)
    np.add.at(counts, (at, labels), 1)
    total, taken, picked = counts.sum(0), np.zeros(len(take), np.int64), np.zeros(len(codes), bool)
    for unit in rng.generator(key).permutation(len(codes)):
        after = taken + counts[unit]
        nearer = np.abs(take - after).sum() < np.abs(take - taken).sum()
        picked[unit] = nearer and bool(((after < total) | (total == 0)).all())
        taken = after if picked[unit] else taken
    return np.flatnonzero(picked[at])


def fingerprint(data: Dataset) -> str:
    """First 16 hex digits of the sha256 over dtype, shape and bytes of every tensor, including columns."""
    digest = hashlib.sha256()
    tensors = {"x": data.x, "y": data.y, "x_test": data.x_test, "y_test": data.y_test}
    tensors |= {} if data.units is None else {"units": data.units}
    for name, tensor in (*tensors.items(), *sorted(data.columns.items())):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def channel_statistics(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of images.

    Args:
        x: Images [n, channels, H, W], uint8 or floats.

    Returns:
        (means, deviations). Of uint8 images they are on the scale [0, 1] and rounded to 4 digits, and deviations are at
        least 1e-4. Those of floats are not rounded, and a channel without any deviation has 1.
    """
    if x.dtype != torch.uint8:
        parts = [x[:, c].numpy().astype(np.float64) for c in range(x.shape[1])]
        return tuple(float(part.mean()) for part in parts), tuple(float(part.std()) or 1.0 for part in parts)
    counts = np.zeros((x.shape[1], 256))
    for at in range(0, len(x), 4096):  # bincount widens to int64
        for c in range(x.shape[1]):
            counts[c] += np.bincount(x[at : at + 4096, c].flatten().numpy(), minlength=256)
    value = np.arange(256) / 255.0
    share_of = counts / counts.sum(1, keepdims=True)
    mean = share_of @ value
    std = np.sqrt((share_of @ value**2 - mean**2).clip(min=0.0))
    return tuple(round(float(m), 4) for m in mean), tuple(max(round(float(s), 4), 1e-4) for s in std)


def _stays(labels: np.ndarray, classes: int, units: Tensor | None = None) -> Tensor:
    """Mask [n] of the rows that stay in the training set when a test set is taken from it."""
    take, key = share(labels, classes, TEST_SHARE), rng.key(SPLIT_SEED, "data", "test")
    test = draw(labels, take, key) if units is None else draw_whole(labels, units.numpy(), take, key)
    if units is not None:
        rule, got = f"have values that a test set of {TEST_SHARE:.0%} can take", "too many rows, or all of a class"
        claim(test.size, "the column of split_by", rule, f"values with {got}")
    claim(test.size, f"a test set of {TEST_SHARE:.0%}", "have 3 rows of some class", f"{len(labels)} rows in all")
    stays = torch.ones(len(labels), dtype=torch.bool)
    stays[torch.from_numpy(test)] = False
    return stays


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
    codes = [code_of(data.class_names, str(name), data.name) for name in classes]
    claim(1 < len(codes) == len(set(codes)), "classes", "be two at least, each once", ", ".join(map(str, classes)))
    place = torch.full((data.classes,), -1)
    place[codes] = torch.arange(len(codes)) if relabel else torch.tensor(codes)
    train, test = place[data.y] >= 0, place[data.y_test] >= 0
    named = tuple(data.class_names[code] for code in codes)
    scarce = [name for code, name in zip(codes, named, strict=True) if not (data.y == code).any()]
    claim(not scarce, f"class {some([*map(repr, scarce)])} of {data.name!r}", "have training rows", "none")
    kept = replace(
        data, name=f"{data.name} (classes {','.join(named)})", x=data.x[train], y=place[data.y[train]],
        x_test=data.x_test[test], y_test=place[data.y_test[test]],
        classes=len(codes) if relabel else data.classes, label_names=named if relabel else data.class_names,
        columns={name: values[train] for name, values in data.columns.items()},
        columns_test={name: values[test] for name, values in data.columns_test.items()},
        units=None if data.units is None else data.units[train],
        notes=tuple(note for note in data.notes if not note.startswith(("class ", "rows: "))),
    )  # fmt: skip
    return replace(kept, fingerprint=fingerprint(kept))


def code_of(names: Sequence[str], name: str, what: str) -> int:
    """The number of a class: by name, else by number. Raises DataError for one that is not among the names."""
    if name in names:
        return names.index(name)
    if name.isdecimal() and int(name) < len(names):
        return int(name)
    raise DataError(f"classes must be classes of {what!r}; got {name!r}{closest(name, names)}")
