"""What a run folder must hold for a table, a picture or an advice to be made from it: its entries and their types.

A folder may come from anybody and may be damaged. It is checked once, here, so that what reads it can rely on it.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

from fedskew.component import SLOTS
from fedskew.errors import RecordError, json_file
from fedskew.fields import plain_types
from fedskew.records import folder as records
from fedskew.records.probabilities import EACH as EACH_SCORE
from fedskew.records.probabilities import RANKED, SCORES
from fedskew.settings import Division, Settings

__all__ = ["fault_of", "faults", "finished", "object_of", "read_run"]

Row = dict[str, Any]
Number = float | None

UNLIKE = (
    ArithmeticError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)  # what other content leads to
KINDS = ("accuracy", "macro_f1", "balanced_accuracy", "g_mean", "worst_class_recall", "loss")
EACH = ("per_class_recall", "per_class_precision", "per_class_f1", "support")  # of the C classes
SETS = (
    "", "part_", "val_", "local_", "personal_", "heldout_", "heldout_personal_", "fitted_", "fitted_personal_",
)  # fmt: skip
METRICS = tuple(f"{which}{kind}" for which in SETS for kind in KINDS)
BYTES = ("upload_bytes", "download_bytes", "samples", "steps", "wall_s")
# entry -> its type; a dict is an object with such entries, "?" behind a name says that it may be absent
NAMED: Row = {"name": str}
CONFIG: Row = {
    "method?": str, **{f"{slot}?": (str, NAMED) for slot in ("data", "partition", "model")},
    **{f"{name}?": plain for kind in (Settings, Division) for name, plain in plain_types(kind).items()},
    "label_names?": list[str], "fingerprint?": str, "counts?": list[list[int]], "started_by?": str,
    "processors?": list[str], "disclosed?": list[str], "own_data?": bool,
}  # fmt: skip
METHOD: Row = {"name": str, "parts?": [NAMED], **{f"{slot}?": NAMED for slot in SLOTS}, "preset?": str}
CONFIG["method?"] = (str, METHOD)
PER_CLASS: Row = {
    "before": list[Number], "after": list[Number], "local": list[Number], "models?": int,
    "clients": dict[str, list[Number]], "owned": dict[str, list[int]],
}  # fmt: skip
DIAGNOSTICS: Row = {
    "per_class?": PER_CLASS,
    "asymmetry?": {
        "each": list[Number], "ratio": Number, "local?": {"each?": list[Number], "ratio?": Number},
        "train_counts": list[int],
    },
    "cosine?": {"layers": list[str], "global": list[Number], "local": dict[str, list[Number]]},
    "drift?": {"norms": list[float], "update": float, "cancellation": Number},
    "coverage?": {"classes": int, "used": list[int]},
    "oversampling?": dict[str, dict[str, list[float]]],
    "features?": {"file": str},
}  # fmt: skip
ROW: Row = {
    "round": int, "rounds?": int, **{f"{name}?": Number for name in METRICS},
    **{f"{which}{name}?": list[float] for which in SETS for name in EACH}, "train_loss?": Number,
    "clients?": list[int | list[int]], "weights?": list[float], **{f"{name}?": float for name in BYTES},
    "diagnostics?": DIAGNOSTICS, **{f"{name}?": Number for name in SCORES},
    **{f"{name}?": list[Number] for name in EACH_SCORE},
}  # fmt: skip
FIT: Row = {
    "a": float, "b": list[float], "objective": str, "ridge": float, "exchanges": int, "converged?": bool,
    "upload_bytes": int, "download_bytes": int,
}  # fmt: skip
WORST: Row = {"class": int, "name": str, "recall": float, "unrecognised": int, "classes": int}
BEST: Row = {"monitor": str, "round": int, "value": float, "accuracy": float, "stopped_early": bool}
COLLAPSED: Row = {"measure": str, "limit": float, "rounds": list[list[int]], "worst": float, "round": int}
REACHED = [f"{how}_{name}?" for how in ("final", "best", "mean10", "mean50") for name in METRICS]
SUMMARY: Row = {
    "rounds": int, "stopped": str, **dict.fromkeys(REACHED, Number), "worst_class?": (NoneType, WORST),
    **{f"final_{name}?": Number for name in (*SCORES, *(f"fitted_{name}" for name in RANKED))},
    "final_fit?": {"prior": FIT, "balanced": FIT},
    **{f"final_{name}?": list[Number] for name in EACH_SCORE},
    "final_confusion?": list[list[int]], "collapsed?": [COLLAPSED], "best?": BEST,
    **{f"total_{name}?": float for name in BYTES},
}  # fmt: skip


def read_run(folder: str | Path) -> tuple[Row, list[Row], Row]:
    """Read a run folder, as `fedskew.records.folder.read`, and check the types of its entries.

    Args:
        folder: The folder.

    Returns:
        (configuration, rounds, summary).

    Raises:
        RecordError: It is no run folder, or an entry is missing or of another type; the message names file and entry.
    """
    path = Path(folder)
    try:
        config, rows, summary = records.read(path)
    except UNLIKE as error:
        raise RecordError(
            f"{str(path)!r} is not a run folder: its rounds or its summary hold {_words(error)}"
        ) from None
    for file, told in faults(config, rows, summary):
        raise RecordError(f"{path / file} is damaged: {told}")
    return config, rows, summary


def faults(config: Row, rows: list[Row], summary: Row) -> Iterator[tuple[str, str]]:
    """(its file in a run folder, what is wrong with it) of each part of a run that is not what a run writes."""
    for file, content, kind in (("config.json", config, CONFIG), ("summary.json", summary, SUMMARY)):
        if told := fault_of(content, kind) or _crooked(content):
            yield file, told
    for row in rows:
        if told := fault_of(row, ROW) or _uneven(row):
            at = f"round {row['round']}" if isinstance(row.get("round"), int) else "a round"
            yield "rounds.jsonl", f"{at}: {told}"


def finished(folder: str | Path, rounds: int, patience: int | None = None) -> bool:
    """As `fedskew.records.folder.finished`, for a folder that may come from anybody. Raises RecordError."""
    try:
        return records.finished(folder, rounds, patience)
    except UNLIKE as error:
        raise RecordError(f"{str(folder)!r} is not a run folder: its files hold {_words(error)}") from None


def object_of(file: Path, kind: Any, name: str = "") -> dict[str, Any]:
    """The content of a JSON file of a kind.

    Args:
        file: The file.
        kind: What it must be, as in `fault_of`.
        name: What it is called in a message; its path unless given.

    Raises:
        RecordError: It cannot be read, or is no such thing.
    """
    try:
        found = json_file(file)
    except (OSError, ValueError) as error:
        raise RecordError(f"{name or file} is damaged: {getattr(error, 'strerror', None) or error}") from None
    if told := fault_of(found, kind):
        raise RecordError(f"{name or file} is damaged: {told}")
    return dict(found)


def fault_of(value: object, kind: Any, place: str = "") -> str:
    """What is wrong with a value of a JSON file; "" where it is of its type.

    Args:
        value: The value.
        kind: Its type: that of a plain value, a list or dict of them; a dict by entry, a tuple of alternatives, or
            a list of one kind.
        place: Where it stands, for the message.

    Returns:
        As in "'weights' must be a list of numbers; got 3".

    Example:
        >>> from fedskew.config.recorded import fault_of
        >>> fault_of({"round": "one"}, {"round": int, "loss?": float})
        "'round' must be a whole number; got 'one'"
    """
    if isinstance(kind, dict):
        if not isinstance(value, Mapping):
            return _told(place, "an object", value)
        return _fault_of_object(value, kind, place)
    if isinstance(kind, tuple):
        faults = [fault_of(value, one, place) for one in kind]
        return "" if "" in faults else faults[-1]
    if isinstance(kind, list):
        if not isinstance(value, list):
            return _told(place, "a list", value)
        return next((found for one in value if (found := fault_of(one, kind[0], place))), "")
    return "" if _is(value, kind) else _told(place, _called(kind), value)


def _fault_of_object(value: Mapping[str, Any], kind: Row, place: str) -> str:
    """As `fault_of`. What an object holds is looked up, since a round has few of the entries that it may have."""
    for entry in kind:
        if not entry.endswith("?") and entry not in value:
            return f"{f'{place}.{entry}'.lstrip('.')!r} is missing"
    for name, one in value.items():
        inner = kind.get(name, kind.get(f"{name}?"))
        plain = not isinstance(inner, dict | tuple | list)
        if inner is None or (plain and _is(one, inner)):
            continue
        if found := fault_of(one, inner, f"{place}.{name}".lstrip(".")):
            return found
    return ""


def _is(value: Any, kind: Any) -> bool:
    """Whether a plain value, a list or a dict of them is of a type."""
    if kind is int or kind is float:
        number = isinstance(value, int) or (kind is float and isinstance(value, float))
        return number and not isinstance(value, bool) and (isinstance(value, float) or abs(value) < 2**63)
    origin, inner = _parts(kind)
    if origin in (typing.Union, UnionType):
        return any(_is(value, one) for one in inner)
    if origin is list:
        return isinstance(value, list) and all(_is(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is(one, inner[1]) for one in value.values())
    return isinstance(value, kind)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(kind), typing.get_args(kind)


def _called(kind: Any) -> str:
    """What values of a type are called."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, UnionType):
        return " or ".join(_called(one) for one in inner)
    if origin is not None:
        return f"{'a list' if origin is list else 'an object'} of which each is {_called(inner[-1])}"
    return {int: "a whole number", float: "a number", str: "a word", NoneType: "null"}.get(kind, "plain")


def _told(place: str, rule: str, value: object) -> str:
    shown = repr(value)
    return f"{place or 'its content'!r} must be {rule}; got {shown if len(shown) <= 60 else f'{shown[:60]}...'}"


def _crooked(content: Row) -> str:
    """What is wrong with the final confusion matrix and the scores of the classes, which it has as many of."""
    matrix = content.get("final_confusion") if isinstance(content, Mapping) else None
    if matrix is None:
        return ""
    rule = "'final_confusion' must have as many numbers in each row as it has rows, none below 0"
    if any(len(row) != len(matrix) or min(row) < 0 for row in matrix):
        return rule
    names = [f"final_{name}" for name in EACH_SCORE]
    uneven = [name for name in names if len(content.get(name) or matrix) != len(matrix)]
    return f"{uneven[0]!r} must have {len(matrix)} numbers, one a class" if uneven else ""


def _uneven(row: Row) -> str:
    """What is wrong with the lists of a round that have one number a class."""
    for which in SETS:
        lengths = {name: len(row[f"{which}{name}"]) for name in EACH if f"{which}{name}" in row}
        if len(set(lengths.values())) > 1:
            return f"one number a class must be in each of {', '.join(f'{which}{name}' for name in lengths)}"
    scored = {len(row[name]) for name in EACH_SCORE if name in row}
    if scored and scored != {len(row.get("support", ()))}:
        return f"one number a class must be in each of {', '.join(EACH_SCORE)}"
    if any(isinstance(x, float) and not math.isfinite(x) for name in EACH for x in row.get(name, ())):
        return "the numbers of the classes must be finite"
    return ""


def _words(error: Exception) -> str:
    return f"something else than a run writes ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
