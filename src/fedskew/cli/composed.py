"""Commands with the options of an experiment: its composition is read first, then options are made of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fedskew.cli.base import Command, Section, prepare
from fedskew.cli.names import SLOTS, names
from fedskew.cli.values import TYPED, Names, Value, metavar_of, typed_flag
from fedskew.config.words import choices_of, scan
from fedskew.errors import ConfigError
from fedskew.fields import limits_of

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment
    from fedskew.config.flags import Option

__all__ = ["FEDERATION", "WORDS", "Composed", "FileOrOptions"]

BASE, WORDS, FIELDS, ALL = (f"fedskew.{name}" for name in ("base", "words", "fields", "all"))  # in Context.meta
FEDERATION = (
    "--path", "--clients", "--seed", "--seed-partition", "--longtail", "--validation", "--auxiliary", "--local-test",
)  # fmt: skip
CHOSEN = tuple(SLOTS)


def _naming(flag: str, table: str) -> click.Option:
    """The option that chooses an ingredient by its name; `compose` reads it, Click only completes it."""
    several = flag == "parts"
    kind = Names(table, several)
    metavar = "NAME,..." if several else "NAME"
    return click.Option([f"--{flag}", f"name_{flag.replace('.', '_')}"], type=kind, metavar=metavar, expose_value=False)


NAMING = [_naming(slot, slot) for slot in CHOSEN]
NAMING += [_naming("weighting.base", "weighting"), _naming("partition.base", "partition"), _naming("preset", "preset")]


class Field(click.Option):
    """The option of a field."""

    def __init__(self, option: Option) -> None:
        offered: Callable[[], Sequence[str]] | None = None
        if option.flag == "--diagnose.names":
            offered = lambda: names("diagnostic")
        name = f"field_{option.flag[2:].replace('.', '_').replace('-', '_')}"
        super().__init__([*option.flags, name], type=Value(option.type, offered), metavar=_metavar(option))
        self.option = option
        self.help = " ".join(option.help.split())

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """(flags and metavar, what it is [choices; limits; default])."""
        limits = [limit.rule.removeprefix("be ") for limit in limits_of(self.option.type)]
        default = _shown(self.option.default)
        facts = [*_choices(self.option.type, str(self.metavar)), *limits, *([f"default: {default}"] if default else [])]
        return f"{', '.join(self.opts)} {self.metavar}", f"{self.help}  [{'; '.join(facts)}]" if facts else str(
            self.help
        )


class Composed(Command):
    """A command that takes the options of `run`.

    Args:
        slots: the slots whose names and options its help lists; all are taken.
        fields: the flags of the run itself that its help lists; None: all.
    """

    def __init__(
        self, *args: Any, slots: Sequence[str] = CHOSEN, fields: Sequence[str] | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.slots, self.fields = tuple(slots), fields

    def compose(self, positional: list[str], flags: list[tuple[str, str]]) -> Experiment | None:
        """Pass one: the composition of these words; None where they name none."""
        from fedskew.config.flags import compose

        return compose(positional, flags)

    def outline(self, args: Sequence[str]) -> Experiment:
        """The composition of half a command line."""
        from fedskew.config.flags import outline

        return outline(args, self.bare)

    # Words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Both passes: ``ctx.params["experiment"]`` is what the words name."""
        ctx.meta[WORDS] = list(args)
        if not ctx.resilient_parsing:
            prepare()
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            ctx.params["experiment"] = self._assigned(ctx)
        return rest

    def check(self, ctx: click.Context, positional: list[str], flags: list[tuple[str, str]]) -> None:
        """Pass one, then as for every command. Raises ConfigError."""
        ctx.meta[BASE] = self.compose(positional, flags)
        super().check(ctx, positional, flags)

    def check_flags(self, ctx: click.Context, flags: Sequence[str]) -> None:
        """Raise ConfigError for an option that neither the command nor the composition has."""
        from fedskew.config.flags import unknown_option

        known = {flag for param in self.get_params(ctx) for flag in param.opts}
        table = {field.option.flag: field.option for field in self._fields(ctx)}
        for flag in flags:
            if flag not in known:
                unknown_option(flag, table, self.own())

    def wanted(self, ctx: click.Context, flag: str, args: Sequence[str]) -> str:
        """What a flag without its value wants."""
        from fedskew.config.flags import wanted

        return super().wanted(ctx, flag, args) or wanted(flag, args)

    def _assigned(self, ctx: click.Context) -> Experiment | None:
        """Pass two: the composition with the values that were given."""
        from fedskew.config.flags import assign

        values = {}
        for field in self._fields(ctx):
            value = ctx.params.pop(str(field.name), None)
            if ctx.get_parameter_source(str(field.name)) is ParameterSource.COMMANDLINE:
                values[typed_flag(field, ctx)] = value
        base: Experiment | None = ctx.meta[BASE]
        with self.naming_flags():
            return base if base is None else assign(base, values)

    def flags(self) -> set[str]:
        """Those of the composition and of the run, too."""
        named = {flag for param in NAMING for flag in param.opts}
        return {*super().flags(), *named, *FEDERATION}

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own, the names, and the fields. Completion makes fields only where they are asked for."""
        light = [*super().get_params(ctx), *NAMING]
        if ctx.resilient_parsing and not ctx.meta.get(ALL):
            words = ctx.meta.get(WORDS, [])
            known = {flag for param in light for flag in param.opts}
            if not words or not words[-1].startswith("--") or words[-1] in known:
                return light
        return [*light, *self._fields(ctx)]

    def _fields(self, ctx: click.Context) -> list[Field]:
        if FIELDS not in ctx.meta:
            prepare()
            from fedskew.config.flags import options_of

            base = ctx.meta[BASE] if BASE in ctx.meta else self.outline(ctx.meta.get(WORDS, []))
            ctx.meta[FIELDS] = [] if base is None else [Field(option) for option in options_of(base)]
        found: list[Field] = ctx.meta[FIELDS]
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Options: those of the composition that was typed so far."""
        ctx.meta[ALL] = True
        return super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a field that is found wrong only now is named by its flag, too."""
        from fedskew.config.flags import spoken

        with spoken(ctx.params["experiment"], ctx.meta[TYPED]):
            return super().invoke(ctx)

    # Help

    def sections(self, ctx: click.Context) -> Iterator[Section]:
        """The command's own options, the names of the composition, then a section for each ingredient's fields."""
        base = ctx.meta[BASE] = self._for_help(ctx)
        own = [p for p in self.params if isinstance(p, click.Option)]
        if own:
            yield "Options of the command", [record for p in own if (record := p.get_help_record(ctx))]
        method = f" of {base.method.name}" if self.fields is None else ""
        composed = [row for slot in self.slots for row in _names_of(slot, base)]
        yield f"Composition{method}", [*composed, *([_preset_of(base)] if "pace" in self.slots else [])]
        rows: dict[str, list[tuple[str, str]]] = {}
        for field in self._fields(ctx):
            if self._shows(field.option):
                rows.setdefault(field.option.section, []).append(field.get_help_record(ctx))
        for section, listed in rows.items():
            yield "Federation" if section == "run" and self.fields else _title(section, base), listed

    def _shows(self, option: Option) -> bool:
        if option.section in ("run", "diagnose"):
            return self.fields is None or option.flag in self.fields
        return option.section.partition(".")[0] in self.slots

    def _for_help(self, ctx: click.Context) -> Experiment:
        """The composition that help is about. Raises ConfigError for an unknown name in it."""
        from fedskew.config.flags import compose

        pairs = [(flag, value) for flag, value in scan(ctx.meta[WORDS], self.bare) if value is not None]
        words = [value for flag, value in pairs if not flag and not value.startswith("-")]
        methods = words[:1] if any(p.name == "method" for p in self.params) else []
        return compose(methods or ([] if "--from" in dict(pairs) else ["fedavg"]), [pair for pair in pairs if pair[0]])


class FileOrOptions(Composed):
    """A command that describes either a FILE or the federation that the options name."""

    def compose(self, positional: list[str], flags: list[tuple[str, str]]) -> Experiment | None:
        """None for a FILE. Raises ConfigError for a FILE and options."""
        flags = [(flag, value) for flag, value in flags if flag not in self.beside]
        if len(positional) > 1 or (positional and flags):
            more = positional[1] if len(positional) > 1 else flags[0][0]
            raise ConfigError(f"fedskew {self.name} takes one FILE, or options; got {positional[0]!r} and {more!r}")
        return None if positional else super().compose(["fedavg"], flags)

    @property
    def beside(self) -> set[str]:
        """The command's own options that go with a FILE, too."""
        return {*self.own()} - {"--from"}


def _in(slot: str, base: Experiment) -> Any:
    """The ingredient that stands in a slot."""
    holder: Any = base if slot in ("data", "partition", "model") else base.method
    return getattr(holder, slot)


def _names_of(slot: str, base: Experiment) -> Iterator[tuple[str, str]]:
    """What a slot takes, and what stands in it; the same for what an ingredient wraps."""
    found = _in(slot, base)
    if slot == "parts":
        yield "--parts NAME,...", f"{', '.join(names(slot))}, none  [now: {','.join(part.name for part in found)}]"
        return
    yield f"--{slot} NAME", f"{', '.join(names(slot))}  [now: {found.name}]"
    if hasattr(found, "base"):
        yield f"--{slot}.base NAME", f"what {found.name} wraps, any of --{slot}  [now: {found.base.name}]"


def _preset_of(base: Experiment) -> tuple[str, str]:
    """What --preset takes."""
    told = (
        f"{', '.join(names('preset'))}: the pace of the method's authors, cohort included, or a reading of a paper; "
        "other options go before it"
    )
    return "--preset NAME", f"{told}  [now: {base.method.preset or 'none'}]"


def _title(section: str, base: Experiment) -> str:
    """ "--server momentum", the words that choose what these options belong to."""
    slot, _, part = section.partition(".")
    if slot not in CHOSEN:
        return {"run": "Run", "diagnose": "Diagnostics"}.get(section, section)
    return f"--{slot} {part or _in(slot, base).name}"


def _metavar(option: Option) -> str:
    return "PATH" if option.place[-1] == "path" else metavar_of(option.type)


def _choices(kind: Any, metavar: str) -> list[str]:
    listed = choices_of(kind)
    return [] if "|".join(listed) in metavar else [f"one of {', '.join(listed)}"]


def _shown(value: Any) -> str:
    """A default as it is typed; "" where it is unset, which the help explains."""
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
