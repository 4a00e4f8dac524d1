"""Commands with the options of an experiment: its composition is read first, then its other options are looked up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from fedskew.cli.base import TYPED, WORDS, Command, Section, prepare
from fedskew.cli.values import metavar_of
from fedskew.config.words import Pair, as_word, flag_of, scan
from fedskew.errors import ConfigError
from fedskew.fields import choices_of, limits_of

if TYPE_CHECKING:
    from fedskew.config.experiment import Experiment
    from fedskew.config.flags import Option


# In the order of help; `fedskew.method` has those of a method, behind torch.
SLOTS = ("data", "partition", "model", "parts", "sampler", "selector", "pace", "weighting", "server", "local")


def help_of(option: Option) -> tuple[str, str]:
    """A line of help: (its flags and a word for the value, "what it is  [choices; limits; default]")."""
    metavar = "PATH" if option.place[-1] == "path" else metavar_of(option.type)
    listed = choices_of(option.type)
    facts = [] if "|".join(listed) in metavar else [f"one of {', '.join(listed)}"]
    facts += [limit.rule.removeprefix("be ") for limit in limits_of(option.type)]
    if option.default is not None and (default := as_word(option.default)):  # the help explains what is unset
        facts.append(f"default: {default}")
    text = " ".join(option.help.split()) + (f"  [{'; '.join(facts)}]" if facts else "")
    return f"{', '.join(option.flags)} {metavar}", text


class WithRunOptions(Command):
    """A command that takes the options of `run` beside its own."""

    def check_known(self, ctx: click.Context, flag: str) -> None:
        """Raise UnknownOption for an option that neither the command nor a METHOD among the words takes."""
        from fedskew.config.flags import NAMED, Options, outline, unknown_option
        from fedskew.methods import METHODS

        words = ctx.meta[WORDS]
        if flag in self.own_options or flag[2:] in NAMED:
            return
        lines = [[word, *words] for word in words if word in METHODS] or [words]  # without METHOD, --from may name one
        options = [Options(outline(line)) for line in lines]
        if not any(flag in each for each in options):
            unknown_option(flag, options[0], self.own_options)


class Composed(WithRunOptions):
    """A command whose options of `run` make an experiment.

    Args:
        slots: the slots whose names and options its help lists; all are taken.
        fields: the options of the run itself that its help lists: "all", those of the "federation", or its "path".
    """

    def __init__(self, *args: Any, slots: Sequence[str] = SLOTS, fields: str = "all", **options: Any) -> None:
        super().__init__(*args, **options)
        self.slots, self.fields = tuple(slots), fields

    # Words

    def take(self, ctx: click.Context, positional: list[str], flags: list[Pair]) -> None:
        """Both passes: ``ctx.params["experiment"]`` is what the words name. Raises ConfigError."""
        prepare()
        if "--from" in dict(flags) and "--from" not in self.own_options:
            super().take(ctx, positional, [pair for pair in flags if pair[0] == "--from"])
        options = [pair for pair in flags if pair[0] == "--from" or pair[0] not in self.own_options]
        ctx.params["experiment"] = self.experiment(positional, options, dict(flags))

    def experiment(self, positional: list[str], options: list[Pair], given: dict[str, Any]) -> Experiment | None:
        """The experiment that METHOD and options name; ``given`` has the command's own options, too."""
        from fedskew.config.flags import experiment_of

        return experiment_of(positional, options, self.own_options)

    def flags(self) -> set[str]:
        """Those of the composition and of the federation, too."""
        from fedskew.config.experiment import DIVISION
        from fedskew.config.flags import NAMED

        return {*super().flags(), *map(flag_of, (*NAMED, *DIVISION))}

    def invoke(self, ctx: click.Context) -> Any:
        """Run; a field that is found wrong only now is named by its flag, too."""
        from fedskew.config.flags import naming_flags

        with naming_flags(ctx.params["experiment"], dict(ctx.meta[TYPED])):
            return super().invoke(ctx)

    # Help

    def sections(self, ctx: click.Context) -> Iterator[Section]:
        """The command's own options, the names of the composition, then a section for each ingredient's fields."""
        prepare()
        from fedskew.config.flags import compose, options_of

        pairs = [(flag, value) for flag, value in scan(ctx.meta.get(WORDS, []), self.bare) if value is not None]
        words = [value for flag, value in pairs if not flag and not value.startswith("-")]
        methods = words[:1] if any(p.name == "method" for p in self.params) else []
        flags = [pair for pair in pairs if pair[0]]
        base = compose(methods or ([] if "--from" in dict(flags) else ["fedavg"]), flags)
        if self.own_options:
            params = [p for p in self.params if isinstance(p, click.Option)]
            yield "Options of the command", [record for p in params if (record := p.get_help_record(ctx))]
        method = f" of {base.method.name}" if self.fields == "all" else ""
        composed = [row for slot in self.slots for row in _names_of(slot, base)]
        yield f"Composition{method}", [*composed, *([_preset_of(base)] if "pace" in self.slots else [])]
        rows: dict[str, list[tuple[str, str]]] = {}
        for option in options_of(base):
            if self._shows(option):
                rows.setdefault(option.section, []).append(help_of(option))
        for section, listed in rows.items():
            title = "Federation" if section == "run" and self.fields != "all" else _title(section, base)
            yield title, listed

    def _shows(self, option: Option) -> bool:
        from fedskew.config.experiment import DIVISION

        if option.section in ("run", "diagnose"):
            names = {"all": (option.place[0],), "federation": (*DIVISION, "seed"), "path": ("path",)}
            return option.place[0] in names[self.fields]
        return option.section.partition(".")[0] in self.slots


class FileOrOptions(Composed):
    """A command that describes either a FILE or the federation that the options name."""

    def experiment(self, positional: list[str], options: list[Pair], given: dict[str, Any]) -> Experiment | None:
        """None for a FILE. Raises ConfigError for a FILE and options."""
        if positional and (options or len(positional) > 1) and any(isinstance(p, click.Argument) for p in self.params):
            more = positional[1] if len(positional) > 1 else options[0][0]
            raise ConfigError(f"fedskew {self.name} takes one FILE, or options; got {positional[0]!r} and {more!r}")
        return None if positional else super().experiment(["fedavg"], options, given)


class Beside(Composed):
    """A command that takes a FILE or a RUN, and options that name data beside it."""

    def experiment(self, positional: list[str], options: list[Pair], given: dict[str, Any]) -> Experiment | None:
        """None where no data are named."""
        return super().experiment(["fedavg"], options, given) if options else None


def _in(slot: str, base: Experiment) -> Any:
    """The ingredient that stands in a slot."""
    holder: Any = base if slot in ("data", "partition", "model") else base.method
    return getattr(holder, slot)


def _names_of(slot: str, base: Experiment) -> Iterator[tuple[str, str]]:
    """What a slot takes, and what stands in it; the same for what an ingredient wraps."""
    from fedskew.config.tables import TABLES

    ingredient, listed = _in(slot, base), ", ".join(sorted(TABLES[slot]))
    if slot == "parts":
        now = ",".join(part.name for part in ingredient)
        yield "--parts NAME,...", f"{listed}, none  [now: {now}]"
        return
    yield f"--{slot} NAME", f"{listed}  [now: {ingredient.name}]"
    if hasattr(ingredient, "base"):
        yield f"--{slot}.base NAME", f"what {ingredient.name} wraps, any of --{slot}  [now: {ingredient.base.name}]"


def _preset_of(base: Experiment) -> tuple[str, str]:
    """What --preset takes."""
    from fedskew.config.presets import every

    what = "the pace of the method's authors, cohort included, or a reading of a paper; other options go before it"
    return "--preset NAME", f"{', '.join(sorted(every()))}: {what}  [now: {base.method.preset or 'none'}]"


def _title(section: str, base: Experiment) -> str:
    """ "--server momentum", the words that choose what these options belong to."""
    slot, _, part = section.partition(".")
    if slot not in SLOTS:
        return {"run": "Run", "diagnose": "Diagnostics"}.get(section, section)
    return f"--{slot} {part or _in(slot, base).name}"
