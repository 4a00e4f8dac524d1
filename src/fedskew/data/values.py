"""Raw values of a user's own as tensors: samples, labels and columns, each checked. A value that lacks is an error.

What data may make of the memory is known before anything is allocated. A file becomes at most `RATIO` times its bytes,
which is the most that deflate can do, or `ROOM` bytes where that is more. What is computed from data, such as a one-hot
block, takes at most half of the machine's memory.
"""

import difflib
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedskew.errors import DataError, claim, one_line, plural, some

Channels = Literal["auto", "first", "last"]
CHANNELS = range(1, 5)  # of an image
FARTHEST = 2.0**53  # whole numbers up to here are exact in float64
MOST_CLASSES = 1 << 20
LONGEST = 1000  # characters of a name in a large table
PART = 1 << 24  # numbers that are checked at a time
FILL = "fill them, or leave those rows out"
NAMES_ROOM = 1 << 28  # bytes that an array of names may take whatever its longest name
PICTURES = 256  # that tell of all whether they are of bytes
GREYS = 15  # numbers up to here are counts rather than shades
RATIO = 1032  # bytes that one byte of deflate can become, at most
ROOM = 1 << 30  # bytes that any file may become


def codes_of(values: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number the values of a column.

    Args:
        values: Numbers or strings, [n].

    Returns:
        (codes 0..U-1, int64 [n]; the U values in sorted order, as `spelt` writes them).
    """
    names, codes = np.unique(plain(values), return_inverse=True)
    if names.dtype.kind == "U":
        names, places = np.unique(named(names), return_inverse=True)
        codes = places[codes]
    return codes.reshape(-1).astype(np.int64), tuple(spelt(names).tolist())


def codes_among(values: Any, names: Sequence[str]) -> Tensor:
    """Codes of the values of a column that has been numbered before, int64 [n]; -1 for a value that is none of them."""
    number = {name: code for code, name in enumerate(names)}
    return torch.tensor([number.get(value, -1) for value in spelt(plain(values)).tolist()], dtype=torch.int64)


def lacking(values: Any) -> np.ndarray:
    """Numbers of the rows of a column without a value: NaN, None, or a string of nothing but blanks.

    Args:
        values: A column, [n].

    Returns:
        Row numbers in ascending order, int64.

    Example:
        >>> from fedskew.data.values import lacking
        >>> lacking(["a", "", " ", "b"]).tolist()
        [1, 2]
    """
    array = np.atleast_1d(array_of(values))
    if array.dtype.kind in "fmM":
        blank = np.isnan(array)
    elif array.dtype.kind in "US":
        blank = np.char.str_len(np.char.strip(array)) == 0
    else:
        blank = np.array([_absent(v) for v in array.flat] if array.dtype.kind == "O" else np.zeros(array.size), bool)
    return np.flatnonzero(blank.reshape(len(array), -1).any(1)) if array.size else np.empty(0, np.int64)


def lacks(
    what: str, blank: np.ndarray, count: int, kind: str = "a value", hint: str = FILL, rows: Sequence[Any] | None = None
) -> DataError:
    """The error for the blank rows of a column; ``rows`` are the numbers of all its rows, None counts from 0."""
    first = blank[0] if rows is None else rows[int(blank[0])]
    got = f"row {first} has none, {len(blank)} of {count} rows lack one"
    return DataError(f"{what} must have {kind} in every row; {got}; {hint}")


def lacks_column(what: str, name: str, names: Sequence[str], rule: str = "") -> DataError:
    """The error for a table without a column, which names the one that may be misspelt, else all that it has."""
    names = list(map(str, names))
    near = [n for n in names if n.casefold().strip() == name.casefold()] or difflib.get_close_matches(name, names, n=1)
    columns = f"; is its {near[0]!r} meant? then rename it" if near else f"; it has {some(names)}" if names else ""
    return DataError(f"{what} must have the column {name!r}{rule}{columns}")


def _absent(value: Any) -> bool:
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    other = value != value
    return bool(other) if isinstance(other, bool | np.bool_) else str(value) == "<NA>"  # pandas.NA is neither


def array_of(values: Any) -> np.ndarray:
    """Values as numpy has them; floats that it lacks, such as bfloat16, as float32. Raises DataError."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.where(np.ma.getmaskarray(values), np.array(None, object), values.data)
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            narrow = values.is_floating_point() and values.dtype not in (torch.float32, torch.float64)
            values = (values.float() if narrow else values).numpy()
        return np.asarray(values)
    except (RuntimeError, TypeError, ValueError) as error:  # ragged lists; sparse and quantised tensors
        raise DataError(f"values must be arrays, tensors or lists of one length: {one_line(error)}") from None


def plain(values: Any, what: str = "a column") -> np.ndarray:
    """A column as numbers where all its values are, NaN for a missing one; else as words, "" for a missing one.

    Bytes are words in UTF-8. Whole numbers that float64 does not hold are words as well, where one is missing.

    Raises:
        DataError: Bytes are not UTF-8, or numbers are complex.
    """
    array = array_of(values)
    if array.dtype.kind == "U" and isinstance(values, list | tuple) and not all(isinstance(v, str) for v in values):
        array = np.array(values, dtype=object)  # numpy would write NaN beside words as the word "nan"
    if array.dtype.kind == "O" and array.ndim > 1:  # of a frame with nullable types
        return plain(array.reshape(-1), what).reshape(array.shape)
    if array.dtype.kind in "fiubU" or array.ndim != 1:
        return array
    claim(array.dtype.kind != "c", what, "hold numbers or words", array.dtype)
    blank = np.isin(np.arange(len(array)), lacking(array))
    cells = [str(v) for v in array] if array.dtype.kind in "mM" else array.tolist()
    there = [value for value, gone in zip(cells, blank.tolist(), strict=True) if not gone]
    odd = [value for value in there if isinstance(value, list | tuple | dict | set | np.ndarray | Tensor)]
    claim(not odd, what, "hold one value a row", one_line(odd[:1], 60))
    numbers = bool(there) and all(isinstance(value, Real | Decimal) and not isinstance(value, bool) for value in there)
    if numbers and (not blank.any() or all(not abs(value) > FARTHEST for value in there)):
        exact = [value if isinstance(value, int | np.number) else float(value) for value in there]
        whole = np.full(len(cells), np.nan) if blank.any() else np.empty(len(cells), np.array(exact).dtype)
        whole[~blank] = exact
        return whole
    try:
        words = [v.decode() if isinstance(v, bytes) else v for v in cells]
    except UnicodeDecodeError as error:
        raise DataError(f"{what} must hold bytes in UTF-8; got {error.object[:20]!r}; decode them first") from None
    return words_of(["" if gone else str(v) for v, gone in zip(words, blank, strict=True)], what)


def words_of(cells: Sequence[str], what: str) -> np.ndarray:
    """Words as a numpy array of strings, [n].

    Every element of such an array takes as much room as the longest one, so one huge cell would fill the memory.

    Args:
        cells: The words.
        what: Name of the column or file in error messages.

    Raises:
        DataError: A word of more than 1000 characters would make the array larger than 256 MiB.
    """
    longest = max(map(len, cells), default=0)
    fits = longest <= LONGEST or 4 * longest * len(cells) <= NAMES_ROOM
    claim(fits, what, f"hold words of at most {LONGEST} characters", f"one of {longest:,}")
    return np.array(cells, dtype=str)


def named(words: np.ndarray) -> np.ndarray:
    """Words as names of things: Unicode-normalised (NFC), without blanks around them."""
    different, places = np.unique(words, return_inverse=True)
    cleaned = [unicodedata.normalize("NFC", word).strip() for word in different.tolist()]
    return np.array(cleaned, dtype=str)[places.reshape(words.shape)] if cleaned else words


def spelt(values: np.ndarray) -> np.ndarray:
    """A column as words in NFC without blanks around them; whole numbers without a decimal point, "" for NaN."""
    if values.dtype.kind != "f":
        return named(values.astype(str))
    return np.array(["" if v != v else repr(v).removesuffix(".0") for v in values.tolist()], dtype=str)


def samples_of(values: Any, what: str, channels: Channels = "auto") -> Tensor:
    """Samples as images [n, channels, H, W], or finite float32 features [n, ...].

    What is contiguous, writable and of the right type shares its memory with ``values``.

    Raises:
        DataError: The values are no numbers, not finite, or no samples, or their shape does not say which axis has the
            channels.
    """
    array = _numeric(_mapped(values) if isinstance(values, np.memmap) else values, what)
    fine = 1 < array.ndim < (5 if array.dtype == np.uint8 else 65)
    claim(fine, what, "have a row for each sample, [n, features] or [n, channels, H, W]", array.shape)
    first = array.ndim != 4 or _first(array, what, channels)
    array = array if first else array.transpose(0, 3, 1, 2)
    if array.dtype == np.uint8 and array.ndim > 2:
        return torch.from_numpy(np.require(array[:, None] if array.ndim == 3 else array, requirements=("C", "W")))
    with np.errstate(over="ignore"):  # what float32 does not hold becomes infinite, and is refused below
        array = np.require(array, np.float32, ("C", "W"))
    _finite(array, what)
    return torch.from_numpy(array)


def _finite(array: np.ndarray, what: str) -> None:
    """Raise DataError unless all numbers [n, ...] are finite; a part at a time, as they may lie in a file."""
    step, bad = max(1, PART // max(1, array[:1].size)), []
    for at in range(0, len(array), step):
        part = array[at : at + step]
        bad.append(at + np.flatnonzero(~np.isfinite(part.reshape(len(part), -1)).all(1)))
    rows = np.concatenate(bad)
    if rows.size:
        column = int(np.flatnonzero(~np.isfinite(array[rows[0]].reshape(-1)))[0])
        got = f"got {rows.size} rows with NaN or infinity, the first is row {rows[0]}, column {column}"
        raise DataError(f"{what} must be finite; {got}; fill missing values, or leave those rows out")


def _mapped(values: np.memmap) -> np.memmap:
    """A whole file that is mapped for reading, mapped anew, private to the process: torch wants memory to write to."""
    if type(values.base) is np.memmap or not values.flags.c_contiguous or values.mode != "r" or values.filename is None:
        return values
    return np.memmap(values.filename, values.dtype, "c", values.offset, values.shape)


def labels_of(values: Any, what: str) -> Tensor:
    """Whole labels as int64 [n].

    Raises:
        DataError: A label is missing or not a whole number.
    """
    array = _numeric(values, what)
    claim(array.ndim == 1, what, "hold one label a row, [n]", f"shape {array.shape}")
    parted = ~np.isfinite(array) | (array != np.floor(array)) if array.dtype.kind == "f" else np.zeros(1, bool)
    if len(far := np.flatnonzero(np.abs(array.astype(np.float64)) > FARTHEST)):
        raise DataError(f"{what} must hold labels 0..C-1; got {array[far[0]]} in row {far[0]}")
    if len(bad := np.flatnonzero(parted)):
        hint = "there is no regression: cut a measured value into classes, or name the classes by words"
        raise DataError(f"{what} must hold whole labels 0..C-1; got {array[bad[0]]} in row {bad[0]}; {hint}")
    return torch.from_numpy(array.astype(np.int64))


def numbered(labels: Sequence[Any], names: Sequence[str]) -> tuple[list[np.ndarray], Sequence[str]]:
    """Labels of each split as [n]; strings as places among the sorted names of all splits, and those names.

    Raises:
        DataError: A label is missing, or one split holds strings and the other numbers.
    """
    parts = [plain(flat(y), "y") for y in labels]
    for part, what in zip(parts, ("y", "y_test"), strict=False):
        if len(blank := lacking(part)):
            raise lacks(what, blank, len(part), "a label")
    words = {part.dtype.kind == "U" for part in parts}
    if words == {False}:
        return parts, names
    claim(words == {True}, "y and y_test", "both hold numbers, or both strings")
    texts = [*map(named, parts)]
    classes = np.unique(np.concatenate(texts))
    claim(len(classes) > 1, "a dataset", "have two classes at least", f"{str(classes[0])!r} in every row")
    return [np.searchsorted(classes, text) for text in texts], tuple(map(str, classes))


def flat(y: Any) -> Any:
    """Labels [n, 1] as [n]; any others as they are, or as numpy has them."""
    array = array_of(y)
    return array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array if isinstance(y, Tensor) else y


def count_classes(labels: Sequence[Tensor], classes: int | None) -> int:
    """C, after the labels were found to be 0..C-1; all of them must occur when C is not given.

    Raises:
        DataError: They are not, or there is one class only.
    """
    low, high = min(int(y.min()) for y in labels), max(int(y.max()) for y in labels)
    hint = "map them with numpy.unique(y, return_inverse=True)[1]"
    hint = "-1 often marks rows without a label: leave those rows out" if low == -1 else hint
    total, top = (high + 1, "C-1") if classes is None else (classes, classes - 1)
    claim(0 <= low <= high < total, "labels", f"be 0..{top}", f"{low}..{high}", hint)
    if classes is None and low < high:
        there = np.unique(torch.cat(list(labels)).numpy())  # never more than there are rows, whatever the labels say
        if len(there) <= high:
            absent = int((np.append(there, -1) != np.arange(len(there) + 1)).argmax())
            raise DataError(f"labels must be 0..C-1; got {low}..{high} without {absent}; give classes= or {hint}")
    fine = total > 1 and (low < high if classes is None else classes <= MOST_CLASSES)
    got = f"{high} in every row" if low == high else classes
    claim(fine, "a dataset", f"have two classes at least, and at most {MOST_CLASSES}", got)
    return total


def encode_columns(columns: Mapping[str, Any], rows: int) -> tuple[dict[str, Tensor], dict[str, tuple[str, ...]]]:
    """Codes and values of every column that says whose a row is.

    Raises:
        DataError: A column has another length, or no value in a row.
    """
    codes, names = {}, {}
    for name, values in columns.items():
        if len(blank := lacking(values)):
            raise lacks(f"column {name!r}", blank, len(values), hint="name the owner of each row")
        code, names[name] = codes_of(values)
        claim(len(code) == rows, f"column {name!r}", f"have one value a training row, {rows}", len(code))
        codes[name] = torch.from_numpy(code)
    return codes, names


def one_order(orders: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """All categories in the order that each of the orders has; none where two contradict."""
    whole = tuple(dict.fromkeys(value for order in orders for value in order))
    return whole if all([value for value in whole if value in order] == [*order] for order in orders) else ()


def units_of(what: str, splits: Sequence[np.ndarray]) -> np.ndarray:
    """What no split may part, [n], of the training rows. Raises DataError where test rows have one of its values."""
    for test in splits[1:]:
        shared = sorted({*spelt(plain(test)).tolist()} & {*spelt(plain(splits[0])).tolist()})
        got = f"{plural(len(shared), 'value')} that training rows have, too: {some(shared)}"
        claim(not shared, what, "part test rows from training rows", got)
    return splits[0]


def unseen(y: Tensor, y_test: Tensor, names: Sequence[str]) -> list[str]:
    """A note for each class that test rows have and training rows lack: no model can learn it.

    Example:
        >>> import torch
        >>> from fedskew.data.values import unseen
        >>> unseen(torch.tensor([0, 1, 0]), torch.tensor([0, 2, 2]), ("a", "b", "c"))
        ["class 'c' has 2 test rows and no training row: it counts against every model"]
    """
    classes = len(names)
    train, test = (torch.bincount(labels, minlength=classes) for labels in (y, y_test))
    note = "test rows and no training row: it counts against every model"
    return [f"class {names[c]!r} has {int(test[c])} {note}" for c in torch.nonzero((train == 0) & (test > 0)).flatten()]


def rounded(values: Any, samples: Tensor) -> list[str]:
    """A note where columns of features differ by too little for float32, as Unix seconds do; or of whole floats."""
    array, start = array_of(values), samples[:PICTURES]
    pictures = samples.dim() == 4 or (samples.dim() == 3 and samples.shape[1] == samples.shape[2])
    if pictures and samples.dtype != torch.uint8 and (start == start.floor()).all():
        note = "whole numbers up to 255 in square arrays are not divided by 255, as bytes are: store pictures as uint8"
        return [note] if start.min() >= 0 and GREYS < start.max() <= 255 else []
    if samples.dim() != 2 or array.dtype == np.float32 or array.dtype.kind not in "fiu":
        return []
    low, high = array.min(0).astype(np.float64), array.max(0).astype(np.float64)
    close = np.flatnonzero((high > low) & (high - low < 2.0**-16 * np.maximum(np.abs(low), np.abs(high))))
    note = "differ by too little for float32: subtract their mean, or standardise them, beforehand"
    return [f"values of feature {some([str(c) for c in close.tolist()])} {note}"] if len(close) else []


def shares(values: Any, samples: Tensor) -> bool:
    """Whether samples lie in the memory of what they were made of."""
    return np.may_share_memory(_numeric(values, "x"), samples.numpy())


def _numeric(values: Any, what: str) -> np.ndarray:
    """The values as a non-empty numpy array of numbers; DataError for anything else."""
    array = plain(values, what)
    rule = "hold numbers" if array.size else "not be empty"
    claim(array.dtype.kind in "fiub" and array.size, what, rule, f"dtype {array.dtype}, shape {array.shape}")
    return np.asarray(array)


def _first(array: np.ndarray, what: str, channels: Channels) -> bool:
    """Whether images [n, a, b, c] have their channels on axis 1: 1 to 4; where a and c fit, square images tell."""
    a, b, c = array.shape[1:]
    first, last = a in CHANNELS, c in CHANNELS
    if first == last and (first or array.dtype == np.uint8):
        first, last = b == c != a, a == b != c
    unclear = channels == "auto" and first == last and (a in CHANNELS or array.dtype == np.uint8 or a == b != c)
    got = f"{array.shape}, which may be [n, channels, H, W] or [n, H, W, channels]"
    claim(not unclear, what, "say which axis has the channels", got, "give channels as first or last")
    return channels == "first" or (channels == "auto" and not last)


def allowed(size: int) -> int:
    """Bytes that a file of so many bytes may become.

    Example:
        >>> from fedskew.data.values import allowed
        >>> allowed(118_000) == 1 << 30, allowed(10**9)
        (True, 1032000000000)
    """
    return max(RATIO * size, ROOM)
