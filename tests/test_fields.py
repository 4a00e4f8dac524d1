"""Types and limits of option fields: every limit, every annotation, and the error that names class and field."""

from __future__ import annotations

import dataclasses
import math
import pickle
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import fedskew as fs
from fedskew.config.tables import TABLES, make
from fedskew.errors import ConfigError, FieldError
from fedskew.fields import Above, AtLeast, Checked, Limit, Within, check, demand, hints_of, limits_of
from fedskew.records.diagnostics import Diagnostics
from fedskew.slots import INGREDIENTS


@dataclass(frozen=True)
class Inner(Checked):
    rate: Annotated[float, Above(0)] = 1.0


@dataclass(frozen=True)
class Options(Checked):
    least: Annotated[int, AtLeast(1)] = 1
    level: Annotated[float, AtLeast(0, infinite=True)] = 0.0
    above: Annotated[float, Above(0.5)] = 1.0
    positive: Annotated[float, Above(0)] = 1.0
    closed: Annotated[float, Within(0, 1)] = 0.5
    half: Annotated[float, Within(0, 1, "[)")] = 0.5
    other: Annotated[float, Within(0, 1, "(]")] = 0.5
    open: Annotated[float, Within(0, 1, "()")] = 0.5
    free: float = 0.0
    maybe: Annotated[float, AtLeast(1, hint="use 1")] | None = None
    ids: tuple[Annotated[int, AtLeast(0)], ...] = ()
    table: tuple[tuple[int, ...], ...] | None = None
    word: Literal["mask", "clamp"] | None = None
    flag: bool = False
    name: str = ""
    inner: Inner = Inner()
    anything: Any = None


TINY, BELOW, BEYOND = math.ulp(0.0), math.nextafter(1, 0), math.nextafter(1, 2)
LEGAL: list[tuple[str, Any]] = [
    ("least", 1), ("least", np.int64(3)), ("least", 10**6),
    ("level", 0), ("level", math.inf), ("level", np.float32(0.5)), ("level", 3.4e38),
    ("above", math.nextafter(0.5, 1)), ("positive", TINY), ("positive", 1e38),
    ("closed", 0), ("closed", 1), ("half", 0.0), ("half", BELOW), ("other", TINY), ("other", 1), ("open", BELOW),
    ("free", -math.inf), ("free", math.inf), ("free", -3),
    ("maybe", None), ("maybe", 1), ("ids", ()), ("ids", (0, 7)), ("table", None), ("table", ((1, 2), ())),
    ("word", None), ("word", "mask"), ("flag", True), ("name", "x"), ("inner", Inner(2.0)), ("anything", object()),
]  # fmt: skip
ILLEGAL: list[tuple[str, Any, str]] = [
    ("least", 0, "must be at least 1; got 0"),
    ("least", 1.0, "must be a whole number; got 1.0"),
    ("least", True, "must be a whole number; got True"),
    ("least", 2**63, "must be a whole number that int64 holds; got 9223372036854775808"),
    ("least", 10**6 + 1, "must be at most 1000000; got 1000001"),
    ("least", None, "must be a whole number; got None"),
    ("level", -TINY, "must be at least 0; got -5e-324"),
    ("level", math.nan, "must be a number; got nan"),
    ("level", "1", "must be a number; got '1'"),
    ("level", 1e39, "must be a number that float32 holds; got 1e+39"),
    ("above", 0.5, "must be above 0.5; got 0.5"),
    ("positive", 0, "must be positive; got 0"),
    ("positive", math.inf, "must be finite; got inf"),
    ("positive", -math.inf, "must be positive; got -inf"),
    ("closed", -TINY, "must be in [0, 1]; got -5e-324"),
    ("closed", BEYOND, "must be in [0, 1]; got 1.0000000000000002"),
    ("closed", math.inf, "must be in [0, 1]; got inf"),
    ("half", 1, "must be in [0, 1); got 1"),
    ("other", 0, "must be in (0, 1]; got 0"),
    ("open", 0, "must be in (0, 1); got 0"),
    ("open", 1, "must be in (0, 1); got 1"),
    ("free", False, "must be a number; got False"),
    ("maybe", 0.5, "must be at least 1; got 0.5; use 1"),
    ("maybe", "x", "must be a number; got 'x'"),
    ("ids", (1, -1), "must be at least 0; got (1, -1)"),
    ("ids", (1, 0.5), "must be a tuple, each a whole number; got (1, 0.5)"),
    ("ids", [1], "must be a tuple, each a whole number; got [1]"),
    ("table", ((1, "a"),), "must be a tuple, each a tuple, each a whole number; got ((1, 'a'),)"),
    ("word", "maks", "must be one of mask, clamp; got 'maks'; did you mean 'mask'?"),
    ("word", 1, "must be one of mask, clamp; got 1"),
    ("flag", 1, "must be true or false; got 1"),
    ("name", 1, "must be a word; got 1"),
    ("inner", 1.0, "must be Inner; got 1.0"),
]


@pytest.mark.parametrize(("field", "value"), LEGAL)
def test_a_legal_value_is_taken_as_it_is(field: str, value: Any) -> None:
    assert getattr(Options(**{field: value}), field) is value


@pytest.mark.parametrize(("field", "value", "message"), ILLEGAL)
def test_an_illegal_value_is_named_with_class_and_field(field: str, value: Any, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        Options(**{field: value})
    assert str(caught.value) == f"Options.{field} {message}"
    assert (caught.value.owner, caught.value.field) == ("Options", field)
    assert caught.value.got is value and caught.value.named("--slot") == f"--slot {message}"


def test_a_field_error_survives_pickling() -> None:
    """As it must to leave a worker process."""
    error = FieldError("Fixed", "lr", "be positive", -1.0, "for example 0.1")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is FieldError
    assert (str(again), again.named("--lr")) == (str(error), error.named("--lr"))
    assert (again.owner, again.field, again.rule, again.got, again.hint) == error.args


def test_a_subclass_keeps_the_limits_of_its_base_and_may_give_its_own() -> None:
    @dataclass(frozen=True)
    class Narrow(Options):
        least: Annotated[int, AtLeast(5)] = 5

    assert Narrow().least == 5
    with pytest.raises(FieldError, match=r"Narrow\.least must be at least 5; got 4"):
        Narrow(4)
    with pytest.raises(FieldError, match=r"Narrow\.positive must be positive; got 0"):
        Narrow(positive=0)


def test_a_rule_between_fields_is_asked_after_their_types() -> None:
    @dataclass(frozen=True)
    class Range(Checked):
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            super().__post_init__()
            demand(self, "high", self.high > self.low, f"be above low, {self.low}", "for example 9")

    assert Range(3, 4).high == 4
    with pytest.raises(FieldError, match=r"^Range\.high must be above low, 3; got 3; for example 9$"):
        Range(3, 3)
    with pytest.raises(FieldError, match=r"^Range\.high must be a whole number; got 'a'$"):
        Range(3, "a")  # type: ignore[arg-type]


def test_limits_are_found_inside_tuples_and_unions() -> None:
    limit = AtLeast(0)
    assert limits_of(Annotated[int, limit]) == (limit,)
    assert limits_of(tuple[Annotated[int, limit], ...] | None) == (limit,)
    assert limits_of(int | None) == limits_of(Literal["a"]) == ()


def test_annotations_that_cannot_be_resolved_check_nothing() -> None:
    @dataclass(frozen=True)
    class Odd:
        value: Nowhere = 1  # type: ignore[name-defined]  # noqa: F821

    check(Odd("anything"))


# Our own options

NUMBERS = [
    (slot, name, f.name)
    for slot, table in {**INGREDIENTS, **{s: TABLES[s] for s in ("data", "partition", "model")}}.items()
    for name, kind in table.items()
    for f in dataclasses.fields(kind)
    if "float" in str(f.type) or "int" in str(f.type)
    if "tuple" not in str(f.type)
]


def _beyond(limit: Limit) -> list[float]:
    """Numbers just outside a limit."""
    low = limit.low - 1 if limit.ends[0] == "[" else limit.low
    high = limit.high + 1 if limit.ends[1] == "]" else limit.high
    return [end for end in (low, high) if math.isfinite(end)]


LIMITED = [(slot, name, field) for slot, name, field in NUMBERS if limits_of(hints_of(TABLES[slot][name])[field])]


@pytest.mark.parametrize(("slot", "name", "field"), NUMBERS)
def test_no_field_of_ours_takes_a_word_or_nan_or_a_number_beyond_its_limit(slot: str, name: str, field: str) -> None:
    """By introspection: it finds a class whose __post_init__ skips its base's, as GlobalMomentum's once did."""
    kind = TABLES[slot][name]
    ends = [end for limit in limits_of(hints_of(kind)[field]) for end in _beyond(limit)]
    for value in ("x", math.nan, *(int(end) if end == int(end) else end for end in ends)):  # a float field takes both
        with pytest.raises(FieldError, match=rf"{kind.__name__}\.{field} must"):
            kind(**{field: value})


def test_the_introspection_finds_every_server_s_rate_and_most_ingredients() -> None:
    assert {("server", name, "lr") for name in TABLES["server"]} <= set(LIMITED)
    assert len(LIMITED) > 80


def test_diagnostics_are_checked_too() -> None:
    with pytest.raises(FieldError, match=r"Diagnostics\.every must be at least 1; got 0"):
        Diagnostics(every=0)
    with pytest.raises(FieldError, match=r"Diagnostics\.clients must be at least 0; got \(-1,\); clients are numbered"):
        Diagnostics(clients=(-1,))


@pytest.mark.parametrize(
    ("slot", "spec", "message"),
    [
        ("parts", {"name": "proximal", "mu": -1}, "parts.proximal.mu must be at least 0; got -1"),
        ("weighting", {"name": "fednova", "base": {"name": "dual", "eps": "x"}}, "weighting.base.eps must be a number"),
        ("partition", {"name": "dirichlet", "alpha": 0}, "partition.alpha must be positive; got 0; use 0.001"),
        ("partition", {"name": "shared", "base": {"name": "shards", "shards": 0}}, "partition.base.shards must be"),
        ("model", {"name": "mlp", "hidden": 0}, "model.hidden must be at least 1; got 0"),
        ("data", {"name": "digits", "pad": -1}, "data.pad must be at least 0; got -1"),
    ],
)
def test_a_mistake_in_a_file_is_named_by_its_place_there(slot: str, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(slot, spec)
    assert str(caught.value).startswith(message)


def test_a_rule_with_the_rest_of_the_method_names_a_field() -> None:
    from support.federations import skewed

    method = fs.methods.fednova().with_(parts=(fs.parts.Proximal(0.1),), local=fs.steps.SGD(momentum=0.5))
    with pytest.raises(
        FieldError, match=r"^SGD\.momentum must be 0 if fednova is used with a proximal part; got 0\.5$"
    ):
        fs.run(skewed(), method, model="logistic", cohort=3, rounds=1)


def test_a_huge_whole_number_is_no_number_of_a_float_field() -> None:
    """Times a count of rows it would overflow: numpy and torch take it for an integer."""
    for value in (10**30, 2**63 - 1, -(2**40)):
        with pytest.raises(FieldError, match="must be a number that float32 holds"):
            fs.partitioners.Dirichlet(alpha=value)
    assert fs.partitioners.Dirichlet(alpha=1e30).alpha == 1e30 and fs.partitioners.Dirichlet(alpha=3).alpha == 3
