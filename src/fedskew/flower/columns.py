"""Scale and categories of a table's columns from the rows of all nodes, which send sums and sets before training.

A node that allows it tells, of its training rows, the sum and the sum of squares of each column of numbers, and the
categories of each other column. The server makes one encoding of them, which goes with every message from then on.
Sums are of differences from the example's mean, which everybody knows: they lose no digits where values are far from 0.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedskew.data.encoding import Column, Encoding, plain
from fedskew.data.inputs import Inputs
from fedskew.errors import ConfigError, DataError, FedskewError, one_line
from fedskew.flower.contract import disagreement, terms
from fedskew.flower.facts import echoed, quoted, real, table
from fedskew.flower.options import NodeOptions
from fedskew.flower.rows import Raw
from fedskew.flower.standin import Hello
from fedskew.flower.wire import LONGEST, Envelope, Packed, pack

MOST = 1000  # categories of a column, those of all nodes together
WIDEST = 3.5e38  # of a number: float32 holds no larger one
FLAT = 1e-13  # of the mean square: a variance below it is rounding
NEAR = 1 + 1e-9  # for sums that are rounded


def encoding_of(inputs: Inputs) -> Encoding:
    """The encoding of an app's inputs. Raises ConfigError where samples are no rows of a table."""
    if inputs.encoding is None:
        raise ConfigError("flower.encoding must be example where the app's inputs are no columns of a table; got nodes")
    return inputs.encoding


def _numbers(encoding: Encoding) -> list[Column]:
    """The columns whose scale is asked for; none where the example's numbers are not standardised."""
    numbers = [column for column in encoding.columns if column.number]
    return numbers if any((c.mean, c.std) != (0.0, 1.0) for c in numbers) else []


def told_of(encoding: Encoding, raw: Raw, held: np.ndarray) -> dict[str, dict[str, Any]]:
    """What a node tells of its columns.

    Args:
        encoding: Of the example.
        raw: The node's rows, by column.
        held: Those that it keeps for its own test, bool [n]: of these, categories alone, where nothing is filled.

    Returns:
        By column ``sum`` and ``squares``, or ``values``.

    Raises:
        DataError: A column is missing, or a value is missing or of another kind.
    """
    if not hasattr(raw.x, "keys"):
        raise DataError(f"{raw.what} must be columns by name, whose sums are asked for")
    found: dict[str, dict[str, Any]] = {}
    if numbers := _numbers(encoding):
        plainly = replace(encoding, columns=tuple(replace(c, mean=0.0, std=1.0) for c in numbers))
        values = plainly.encode(raw.x, raw.what, raw.numbers, []).astype(np.float64)[~held]
        if not np.isfinite(values).all():
            raise DataError(f"{raw.what} must hold numbers that float32 holds")
        for column, apart in zip(numbers, (values - [c.mean for c in numbers]).T, strict=True):
            found[column.name] = {"sum": math.fsum(apart).hex(), "squares": math.fsum(apart * apart).hex()}
    for column in (c for c in encoding.columns if not c.number):
        if column.name not in list(raw.x.keys()):
            raise DataError(f"{raw.what} must have the column {column.name!r}")
        filled, cells = "" in column.values, plain(raw.x[column.name]).astype(str)
        values = np.unique(cells[~held] if filled else cells).tolist()
        if "" in values and not filled:
            raise DataError(f"{raw.what}: column {column.name!r} must have a value in every row")
        found[column.name] = {"values": [value for value in values if value]}
    return found


class Telling:
    """A node that knows no encoding yet: it says hello, and what the encoding is made of."""

    def __init__(self, inputs: Inputs, raw: Raw, client: int, options: NodeOptions) -> None:
        """Raises DataError where the rows do not fit."""
        held, self.terms = raw.held(options.local_test), terms(inputs)
        self.facts = {
            "client": client, "name": options.name, "permits": sorted(options.permits), "rows": int((~held).sum()),
            "test_rows": int(held.sum()), "columns": told_of(encoding_of(inputs), raw, held),
        }  # fmt: skip

    def answer(self, message: Envelope) -> tuple[dict[str, Any], Packed]:
        """(facts, no tensors) of the reply to a hello; a mistake comes back as ``error``."""
        echo = echoed(message.facts)
        try:
            if message.facts.get("kind") != "hello":
                raise ConfigError(f"a node without an encoding answers a hello alone; got {quoted(echo['kind'])}")
            wrong, fatal = disagreement(self.terms, table(message.facts, "contract"))
        except FedskewError as error:
            return {**echo, "error": one_line(error)}, pack({})
        return {**echo, **self.facts, "differs": wrong, "fatal": fatal}, pack({})


def check_told(hello: Hello, encoding: Encoding) -> None:
    """Raise ConfigError unless a hello tells of the columns what may be true of its rows."""
    told, numbers, n = hello.facts.get("columns"), _numbers(encoding), hello.facts["rows"]
    asked = [c.name for c in encoding.columns if c in numbers or not c.number]
    try:
        if not isinstance(told, dict) or sorted(told) != sorted(asked):
            raise ConfigError(f"they must be {quoted(asked)}; got {quoted(told)}")
        for column in encoding.columns:
            part = table(told, column.name) if column.name in asked else {}
            if column in numbers:
                _check_sums(n, real(part, "sum"), real(part, "squares"), abs(column.mean))
            elif not column.number:
                _check_values(part.get("values"))
    except ConfigError as error:
        raise ConfigError(f"{hello.name} must tell of its columns what was asked for: {error}") from None


def _check_sums(n: int, total: float, squares: float, shift: float) -> None:
    most = WIDEST + shift
    if squares < 0 or abs(total) > n * most or total * total > n * squares * NEAR or squares > n * most * most:
        raise ConfigError(f"sums must be of {n} numbers; got {total:g} and, of squares, {squares:g}")


def _check_values(values: Any) -> None:
    """Different words, not too many and not too long, that a file can hold."""
    words = isinstance(values, list) and all(isinstance(v, str) and 0 < len(v) <= LONGEST for v in values)
    if not words or len(values) > MOST or len(set(values)) < len(values):
        told = f"at most {MOST} different words of 1 to {LONGEST} characters"
        raise ConfigError(f"categories must be {told}; got {quoted(values)}")
    if any(0xD800 <= ord(letter) < 0xE000 for value in values for letter in value):
        raise ConfigError("categories must be text; got half of a surrogate pair")


def made_of(inputs: Inputs, hellos: Sequence[Hello]) -> Inputs:
    """The inputs with scale and categories of all nodes' rows. Raises ConfigError for too many or no categories.

    A number's mean and standard deviation are those of all training rows. Categories are sorted, those of the rows
    that any node has. What fills a missing value, and the order of ordered categories, are the example's.
    """
    ours, made = encoding_of(inputs), []
    n, numbers = max(sum(hello.facts["rows"] for hello in hellos), 1), _numbers(ours)
    for column in ours.columns:
        told = [hello.facts["columns"].get(column.name, {}) for hello in hellos]
        if column in numbers:
            first, second = (math.fsum(real(part, what) for part in told) / n for what in ("sum", "squares"))
            variance = second - first * first
            std = math.sqrt(variance) if variance > FLAT * second else 1.0
            made.append(replace(column, mean=column.mean + first, std=std))
        elif column.number:
            made.append(column)
        else:
            words = sorted({value for part in told for value in part["values"]})
            if not 0 < len(words) <= MOST:
                rule = f"have 1 to {MOST} categories at all nodes together; got {len(words)}"
                raise ConfigError(f"column {column.name!r} must {rule}; name another kind by --data.types")
            made.append(replace(column, values=(*words, *([""] if "" in column.values else ()))))
    return _with(inputs, replace(ours, columns=tuple(made)))


def inputs_with(inputs: Inputs, content: Any) -> Inputs:
    """The inputs with an encoding that a message brought. Raises ConfigError unless it is one of the app's columns."""
    ours = encoding_of(inputs)
    try:
        found = Encoding.from_json(content)
        for column in found.columns:
            if column.values:
                _check_values([value for value in column.values if value])
        facts = [(one.single, one.label, len(one.columns)) for one in (found, ours)]
        right = facts[0] == facts[1] and all(map(_alike, found.columns, ours.columns))
    except (FedskewError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the server's encoding must be one: {one_line(error)}") from None
    if not right:
        raise ConfigError("the server's encoding must be of the columns of the app's inputs")
    return _with(inputs, found)


def _alike(found: Column, ours: Column) -> bool:
    """Whether a column differs from that of the example in its scale or its categories alone."""
    scaled = math.isfinite(found.mean) and 0 < found.std < math.inf
    values = ours.values if ours.number else found.values
    filled = ("" in values) == ("" in ours.values) and len(set(values)) == len(values) and bool(values or ours.number)
    known = found.unseen == ours.unseen  # which equality leaves out
    return scaled and filled and known and found == replace(ours, mean=found.mean, std=found.std, values=values)


def _with(inputs: Inputs, encoding: Encoding) -> Inputs:
    return replace(inputs, shape=(encoding.width,), encoding=encoding)
