"""Scale and categories of a table's columns, of the rows of all nodes.

A node that allows it tells, of its training rows, the sum and the sum of squares of each column of numbers, and the
categories of each other column. The server makes one encoding of them, which goes with every message from then on.
Sums are of differences from the example's mean, which everybody knows: they lose no digits where values are far from 0.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedskew import deployment as lib
from fedskew.errors import ConfigError, DataError, FedskewError, claim, one_line, require
from fedskew.fields import typed, untyped
from fedskew.flower.contract import column_contract, disagreement
from fedskew.flower.declared import Hello
from fedskew.flower.node import Reply
from fedskew.flower.options import NodeOptions
from fedskew.flower.rows import RawRows
from fedskew.flower.wire import LONGEST, Envelope, expect, quoted, real, table

MOST = 1000  # categories of a column, those of all nodes together
WIDEST = 3.5e38  # of a number: float32 holds no larger one
FLAT = 1e-13  # of the mean square: a variance below it is rounding
NEAR = 1 + 1e-9  # for sums that are rounded


def encoding_of(inputs: lib.Inputs) -> lib.Encoding:
    """The encoding of an app's inputs. Raises ConfigError where samples are no rows of a table."""
    if inputs.encoding is None:
        raise ConfigError("flower.encoding must be example where the app's inputs are no columns of a table; got nodes")
    return inputs.encoding


def _numbers(encoding: lib.Encoding) -> list[lib.Column]:
    """The columns whose scale is asked for; none where the example's numbers are not standardised."""
    numbers = [column for column in encoding.columns if column.number]
    return numbers if any((c.mean, c.std) != (0.0, 1.0) for c in numbers) else []


def column_facts(encoding: lib.Encoding, raw: RawRows, test: np.ndarray) -> dict[str, dict[str, Any]]:
    """What a node tells of its columns.

    Args:
        encoding: Of the example.
        raw: The node's rows, by column.
        test: Those that it keeps for its own test, bool [n]: of these, categories alone, where nothing is filled.

    Returns:
        By column ``sum`` and ``squares``, or ``values``.

    Raises:
        DataError: A column is missing, or a value is missing or of another kind.
    """
    claim(hasattr(raw.x, "keys"), raw.what, "be columns by name, whose sums are asked for")
    facts: dict[str, dict[str, Any]] = {}
    if numbers := _numbers(encoding):
        replace(encoding, columns=tuple(numbers)).encode(raw.x, raw.what, raw.numbers, [])  # which checks them
        rows = range(len(test)) if raw.numbers is None else raw.numbers
        for column in numbers:
            apart = encoding.values(column, raw.x[column.name], raw.what, rows)[~test] - column.mean
            facts[column.name] = {"sum": math.fsum(apart).hex(), "squares": math.fsum(apart * apart).hex()}
    for column in (c for c in encoding.columns if not c.number):
        where = f"{raw.what}: column {column.name!r}"
        claim(column.name in list(raw.x.keys()), raw.what, f"have the column {column.name!r}")
        cells = encoding.notation.meant(lib.plain_values(raw.x[column.name]), column.values)
        filled = "" in column.values
        values = np.unique(cells[~test] if filled else cells).tolist()
        doubtful = [value for value in values if encoding.notation.doubtful(value) and value not in column.values]
        if doubtful:
            hint = "leave it blank if the value is missing, or set missing_words where the example is read"
            raise DataError(f"{where} has {doubtful[0]!r}, which may mean no value; {hint}")
        claim(filled or "" not in values, where, "have a value in every row")
        facts[column.name] = {"values": [value for value in values if value]}
    return facts


class ColumnNode:
    """A node that knows no encoding yet: it says hello, and what the encoding is made of."""

    def __init__(self, inputs: lib.Inputs, raw: RawRows, client: int, options: NodeOptions) -> None:
        """Raises DataError where the rows do not fit."""
        test, self.contract = raw.for_test(options.local_test), column_contract(inputs)
        self.facts = options.hello(client, int((~test).sum()), int(test.sum()))
        self.facts["columns"] = column_facts(encoding_of(inputs), raw, test)

    def answer(self, message: Envelope) -> Reply:
        """What is new in the reply to a hello. Raises ConfigError for anything else."""
        kind = message.facts.get("kind")
        expect(kind == "hello", "a node without an encoding", "be told hello", kind)
        wrong, fatal = disagreement(self.contract, table(message.facts, "contract"))
        return {**self.facts, "differs": wrong, "fatal": fatal}, {}


def check_columns(hello: Hello, encoding: lib.Encoding) -> None:
    """Raise ConfigError unless a hello tells of the columns what may be true of its rows."""
    facts: Any = hello.facts.get("columns")
    numbers, n = _numbers(encoding), hello.facts["rows"]
    asked = [c for c in encoding.columns if c in numbers or not c.number]
    try:
        names = [column.name for column in asked]
        expect(isinstance(facts, dict) and set(facts) == set(names), "they", f"be {quoted(names)}", facts)
        for column in asked:
            part = table(facts, column.name)
            if column.number:
                _check_sums(n, real(part, "sum"), real(part, "squares"), abs(column.mean))
            else:
                _check_values(part.get("values"))
    except ConfigError as error:
        raise ConfigError(f"{hello.name} must tell of its columns what was asked for: {error}") from None


def _check_sums(n: int, total: float, squares: float, shift: float) -> None:
    most = WIDEST + shift
    holds = abs(total) <= n * most and total * total <= n * squares * NEAR and 0 <= squares <= n * most * most
    expect(holds, "sums", f"be of {n} numbers", (total, squares))


def _check_values(values: Any) -> None:
    """Different words, not too many and not too long, that a file can hold."""
    words = isinstance(values, list) and all(isinstance(v, str) and 0 < len(v) <= LONGEST for v in values)
    holds = words and len(set(values)) == len(values) <= MOST
    expect(holds, "categories", f"be at most {MOST} different words of 1 to {LONGEST} characters", values)
    half = any(0xD800 <= ord(letter) < 0xE000 for value in values for letter in value)
    expect(not half, "categories", "be text", "half of a surrogate pair")


def pooled_inputs(inputs: lib.Inputs, hellos: Sequence[Hello]) -> lib.Inputs:
    """The inputs with scale and categories of all nodes' rows. Raises ConfigError for too many or no categories.

    A number's mean and standard deviation are those of all training rows. Categories are sorted, those of the rows
    that any node has. What fills a missing value, and the order of ordered categories, are the example's.
    """
    ours, made = encoding_of(inputs), []
    n, numbers = max(sum(hello.facts["rows"] for hello in hellos), 1), _numbers(ours)
    for column in ours.columns:
        parts = [hello.facts["columns"].get(column.name, {}) for hello in hellos]
        if column in numbers:
            first, second = (math.fsum(real(part, what) for part in parts) / n for what in ("sum", "squares"))
            variance = second - first * first
            std = math.sqrt(variance) if variance > FLAT * second else 1.0
            made.append(replace(column, mean=column.mean + first, std=std))
        elif column.number:
            made.append(column)
        else:
            sent = {value for part in parts for value in part["values"]}
            known, where = [value for value in column.values if value], f"column {column.name!r}"
            try:
                named = lib.spellings({*sent, *known}, where, ours.notation)
            except DataError as error:
                raise ConfigError(f"{error}, in the data of the example") from None
            words = sorted({named[value] for value in sent})
            rule, hint = f"have 1 to {MOST} categories at all nodes together", "leave it out by --data.exclude"
            require(0 < len(words) <= MOST, where, rule, len(words), hint)
            made.append(replace(column, values=(*words, *([""] if "" in column.values else ()))))
    encoding = replace(ours, columns=tuple(made))
    return replace(inputs, shape=(encoding.width,), encoding=encoding)


def inputs_with(inputs: lib.Inputs, content: Any) -> lib.Inputs:
    """The inputs with an encoding that a message brought. Raises ConfigError unless it is one of the app's columns.

    It differs from that of the example in scales and in categories alone.
    """
    ours, columns = encoding_of(inputs), []
    try:
        for column, sent in zip(ours.columns, typed(content, lib.Encoding).columns, strict=True):
            if column.number:
                holds = math.isfinite(sent.mean) and 0 < sent.std < math.inf
                columns.append(replace(column, mean=sent.mean, std=sent.std))
            else:
                _check_values([value for value in sent.values if value])
                holds = len(set(sent.values)) == len(sent.values) > 0 and ("" in sent.values) == ("" in column.values)
                columns.append(replace(column, values=sent.values))
            expect(holds, f"column {column.name!r}", "have a finite scale, or categories", sent)
        encoding = replace(ours, columns=tuple(columns))
        expect(json.loads(json.dumps(untyped(encoding))) == content, "it", "be of the columns of the app", content)
    except (FedskewError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"the server's encoding must be one of the app's columns: {one_line(error)}") from None
    return replace(inputs, shape=(encoding.width,), encoding=encoding)
