"""Write the pages and pictures that are made from the code into docs/."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from click.testing import CliRunner

from fedskew.catalogue import listing
from fedskew.catalogue.listing import prose
from fedskew.cli.command import root
from fedskew.config.experiment import Experiment
from fedskew.config.flags import ALIASES
from fedskew.config.presets import GRADES, Preset, Stated, every
from fedskew.config.tables import TABLES, method_named
from fedskew.data.partitioners import PARTITIONERS, Counts, Natural
from fedskew.data.partitioners.base import Ints, Partitioner
from fedskew.fields import documented, hints_of, kind_of, limits_of
from fedskew.method import Component
from fedskew.methods import METHODS
from fedskew.plots import canvas
from fedskew.records.diagnostics import Diagnostics
from fedskew.settings import Settings

ROOT = Path(__file__).parents[1]
NAMED = ("method", "data", "partition", "model", "fingerprint")  # fields of Experiment that take a name, or no flag
WIDTH = 110  # columns of a help text
HEADS = ("| option | value | default | meaning |", "|---|---|---|---|")

OPTIONS = """# Options of a run

You write an option in three places:

| where | how |
|---|---|
| Python | `fs.run(fed, method, eval_every=5)`, or `fs.run(fed, method, fs.Settings(eval_every=5))` |
| command | `fedskew run METHOD --eval-every 5`; other flags of an option stand below its name |
| `config.json` | `"eval_every": 5` |

[Datasets](datasets.md), [networks](networks.md), [partitioners](partitions.md) and [ingredients](methods.md)
have options of their own. `fedskew run METHOD --help` lists every option that one composition takes.
"""
SETTINGS = """How a method is trained. Fields of `fs.Settings`; `fs.run` takes each of them by keyword."""
EXPERIMENT = """What is trained on. Further fields of `fedskew.config.experiment.Experiment`. In Python the same values
are arguments of `fs.federate`."""
DIAGNOSE = """What is recorded of local training beside the metrics. Fields of `fs.Diagnostics`, which `fs.run` takes as
`diagnose=`. [Diagnostics](diagnostics.md) has the names."""
DATA = """`--data NAME` chooses a dataset, `--data.OPTION VALUE` sets an option of it. In Python:
`fs.data.load("NAME", OPTION=VALUE)`."""
MODEL = """`--model NAME` chooses a network, `--model.OPTION VALUE` sets an option of it. In Python:
`model="NAME"`, a class of `fs.models` with its options, or any `nn.Module`."""
COMMAND = "# The command\n\nWhat each command prints for `--help`.\n"

COLUMNS = {  # heading -> place of the value
    "rate": "pace.lr",
    "momentum": "local.momentum",
    "weight decay": "local.weight_decay",
    "decay a round": "pace.decay",
    "clip": "local.clip",
    "batch": "pace.batch_size",
    "epochs": "pace.epochs",
    "share": "share",
    "server rate": "server.lr",
}
PACES = """# The authors' paces

A method's own defaults are for comparisons at common settings. This page lists the pace that each method's authors
state. A comparison can be run both ways:

```
fedskew run moon --lr 0.1 --rounds 50          # common settings: the options that you give to every method
fedskew run moon --preset authors --rounds 50  # the authors' pace
fedskew run moon --preset authors --cohort 5   # an option that you give goes before the preset
```

In Python, `fs.presets.authors("moon")` gives the method. The number of rounds stays yours. `config.json` holds the
values that were used, and the preset's name under `method`. What a cell leaves open keeps the method's default. A row
of two names is another preset of the method: `--preset` takes the second name. Some of them are no pace but a reading
of the paper.

Each value has a grade: """
CLIENTS, CLASSES, ROWS, SEED = 20, 10, 500, 0
NOT_DRAWN = ("file",)  # whatever the file holds
PARTITIONS = f"""# Partitions

[Splits](../guide/splits.md) says how to split data, step by step.

Symbols: n rows, N clients, C classes that occur, N_c rows of class c, n_kc rows of class c at client k. Ranks are
random, and ties are broken at random. "Dir(0.1)" stands for at least seven different partitions in the literature: name
the partitioner, not only alpha.

Every partitioner keeps these rules:

- No row belongs to two clients, except under `shared`, whose purpose that is.
- The same labels, options and seed give the same rows, however the labels are stored.
- A setting that cannot be met raises an error of one line, which names the nearest setting that can be met.
- No partitioner redraws until it likes a draw, unless you ask for it: `dirichlet` and `dir_extended` with `least`,
  `dir_extended` with random owners, and `quantity_dir` with `redraw` draw at most 100 times.

On another machine a row may move to another client, because the last bit of exp and log depends on the machine.
[The partition file](partition-file.md) keeps a partition as it is.

The pictures show {CLASSES} classes of {ROWS} rows at {CLIENTS} clients, seed {SEED}, all options at their defaults.
Bars: rows of each client. Map: the darker, the more rows of a class. What `natural` and `counts` read is made up.
"""


def options_page() -> str:
    """Every option of training, data, split and diagnostics, from the fields that declare it."""
    known = {field.name for field in dataclasses.fields(Settings)}
    own = [f.name for f in dataclasses.fields(Experiment) if f.name not in (*known, *NAMED)]
    lines = [OPTIONS, "## Training", "", SETTINGS, "", *_table(Settings, "--", [*known - {"diagnose"}])]
    lines += ["", "## Data and split", "", EXPERIMENT, "", *_table(Experiment, "--", own)]
    lines += ["", "## Diagnostics", "", DIAGNOSE, "", *_table(Diagnostics, "--diagnose.")]
    lines += ["", "## Other names of flags", "", "| you may write | for |", "|---|---|"]
    lines += [f"| `{short}` | `{full}` |" for short, full in ALIASES.items()]
    return "\n".join(lines) + "\n"


def kinds_page(title: str, told: str, slot: str) -> str:
    """Every dataset or network with its options."""
    return "\n".join([f"# {title} and their options", "", told, *_kinds(slot)]) + "\n"


def _kinds(slot: str) -> Iterator[str]:
    """Each of a slot with its own options; then those that several take, once for all of them."""
    kinds: dict[str, Any] = {kind.name: kind for kind in TABLES[slot].values()}  # type: ignore[attr-defined]
    rows = {name: _rows(kind, f"--{slot}.") for name, kind in kinds.items()}
    holders = {
        row: tuple(name for name in kinds if row in rows[name].values()) for of in rows.values() for row in of.values()
    }
    shared = {names: [row for row in holders if holders[row] == names] for names in holders.values() if len(names) > 1}
    for name, text, _ in listing.named(slot, [*kinds]):
        first, _, rest = text.partition("\n\n")
        own = [row for row in rows[name].values() if len(holders[row]) == 1]
        also = [f"`{option}`" for option, row in rows[name].items() if len(holders[row]) > 1]
        more = [rest, ""] if rest else []
        more += [f"[Shared](#shared-options): {', '.join(also)}", ""] if also else []
        yield from ("", f"## `{name}`", "", " ".join(first.split()).replace("*", r"\*"), "")
        yield from _folded("Details and options" if rest else "Options", [*more, *(HEADS if own else ()), *own])
    yield from ("", "## Shared options", "") if shared else ()
    for names, several in shared.items():
        who = "Every one takes" if len(names) == len(kinds) else f"{', '.join(f'`{name}`' for name in names)} take"
        yield from (f"{who}:", "", *HEADS, *several, "")


def _folded(title: str, lines: Sequence[str]) -> list[str]:
    """Lines that a page shows on a click; a link to the heading above opens them."""
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", ""] if lines else []


def _table(kind: Any, prefix: str, names: Sequence[str] | None = None) -> list[str]:
    rows = _rows(kind, prefix, names)
    return [*HEADS, *rows.values()] if rows else []


def _rows(kind: Any, prefix: str, names: Sequence[str] | None = None) -> dict[str, str]:
    """A row of a table for each option, or for some."""
    helps, hints, rows = documented(kind), hints_of(kind), dict[str, str]()
    for field in [field for field in dataclasses.fields(kind) if names is None or field.name in names]:
        told = " ".join(helps.get(field.name, "").split())
        cells = (_named(field.name, prefix), _value(hints[field.name]), _default(field), told)
        rows[field.name] = "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
    return rows


def _named(name: str, prefix: str) -> str:
    """A field, and the flags that are not its own name."""
    flag = f"{prefix}{name.replace('_', '-') if prefix == '--' else name}"
    others = [short for short, full in ALIASES.items() if full == flag]
    return "<br>".join(f"`{one}`" for one in (name if prefix in ("--", "--data.", "--model.") else flag, *others))


def _value(hint: Any) -> str:
    """As in "a whole number, at least 1"."""
    rules = [limit.rule.removeprefix("be ") for limit in limits_of(hint)]
    return ", ".join([kind_of(hint).replace("a word", "text"), *rules])


def _default(field: dataclasses.Field[Any]) -> str:
    made = field.default_factory() if field.default is dataclasses.MISSING else field.default  # type: ignore[misc]
    return "unset" if made is None or made in ("", ()) else f"`{getattr(made, 'name', made)}`"


def command_page() -> str:
    """What every command prints for --help."""
    lines = [COMMAND]
    for words, command in commands(root):
        told = CliRunner().invoke(root, [*words, "--help"], prog_name="fedskew", terminal_width=WIDTH).output
        shown = "\n".join(row.rstrip() for row in told.strip().splitlines())
        first = " ".join((command.help or "").partition("\n\n")[0].split())
        lines += [f"## {' '.join(('fedskew', *words))}", "", re.sub(r"(?<!`)--[a-z]+", r"`\g<0>`", first), ""]
        lines += _folded("Help", ["```", shown, "```"])
    return "\n".join(lines)


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command with its words, then its subcommands."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def paces_page() -> str:
    """Every method's pace with its grades, its source, or why there is none."""
    grades = "; ".join(f"**{letter}** {meaning}" for letter, meaning in GRADES.items())
    lines = [PACES + grades + ".", "", f"| method | {' | '.join(COLUMNS)} | other |", "|---" * (len(COLUMNS) + 2) + "|"]
    found = {
        (name if preset == "authors" else f"{name}`, `{preset}"): row
        for preset, rows in every().items()
        for name, row in rows.items()
        if isinstance(row, Preset)
    }
    lines += [_pace_row(name, preset) for name, preset in found.items()]
    told = [f"- `{name}`: {p.setting}. {p.source}.{f' Note: {p.note}.' if p.note else ''}" for name, p in found.items()]
    lines += ["", "## Sources", "", *_folded("Of each pace", told), "## No pace on record", ""]
    lines += [f"- `{name}`: {why}." for name, why in every()["authors"].items() if isinstance(why, str)]
    return "\n".join(lines) + "\n"


def _pace_row(name: str, preset: Preset) -> str:
    cells = [stated(preset.values.get(place)) for place in COLUMNS.values()]
    rest = [f"`{place}` {stated(value)}" for place, value in preset.values.items() if place not in COLUMNS.values()]
    return f"| `{name}` | {' | '.join(cells)} | {', '.join(rest)} |"


def stated(found: Stated | None) -> str:
    """ "0.01 P", in one line; empty where nothing is stated."""
    if found is None:
        return ""
    return f"{found.value if isinstance(found.value, str) else format(found.value, '.3g')}\u00a0{found.grade}"


Example = tuple[Ints, int]  # label counts of the clients, [N, C], and the number of rows that nobody has


def examples() -> dict[str, Example]:
    """Every partitioner of the table applied to the example data, by name; one that reads a file is left out."""
    labels = np.repeat(np.arange(CLASSES), ROWS)
    places = np.arange(len(labels))
    column = (places * 7 // ROWS + places % 3) % CLIENTS  # related to the label, but not equal to it
    found = {}
    for name, kind in _partitioners().items():
        if name not in NOT_DRAWN:
            partitioner = _example(kind)
            clients = len(np.unique(column)) if isinstance(partitioner, Natural) else CLIENTS
            parts = partitioner.split(labels, clients, SEED, {"site": column})
            found[name] = parts.counts(labels, CLASSES), len(labels) - len(np.unique(parts.rows))
    return found


def _partitioners() -> dict[str, type[Partitioner]]:
    return {kind.name: kind for kind in PARTITIONERS.values()}


def _example(kind: type[Partitioner]) -> Partitioner:
    if kind is Counts:
        steps = np.add.outer(np.arange(CLIENTS), np.arange(CLASSES)) % 5
        return Counts(matrix=tuple(map(tuple, (steps * 10).tolist())))
    return kind()


def partitions_page() -> str:
    """Definition, formula, users and options of every partitioner, with a picture of each."""
    shown, kinds = examples(), _partitioners()
    aliases = {name: [n for n, k in PARTITIONERS.items() if k is kind and n != name] for name, kind in kinds.items()}
    lines = [PARTITIONS, "| name | formula | used by |", "|---|---|---|"]
    for name, kind in kinds.items():
        told = facts(kind)
        lines.append(f"| [`{name}`](#{name}) | {told['Formula'].replace('|', chr(92) + '|')} | {told['Used by']} |")
    for name, kind in kinds.items():
        lines += ["", *_section(name, kind, aliases[name], shown.get(name))]
    return "\n".join(lines) + "\n"


def facts(kind: type[Partitioner]) -> dict[str, str]:
    """Formula, users and limits of a partitioner, each a line of its docstring."""
    lines = (line.partition(": ") for line in prose(kind).splitlines())
    return {name: text for name, _, text in lines if name in ("Formula", "Used by", "Limits")}


def _section(name: str, kind: type[Partitioner], aliases: list[str], shown: Example | None) -> list[str]:
    first, _, rest = prose(kind).partition("\n")
    also = f" (also {', '.join(f'`{a}`' for a in aliases)})" if aliases else ""
    lines = [f"## {name}", "", f"**{first}** `fs.partitioners.{kind.__name__}`{also}", ""]
    parts = [part for part in rest.strip().split("\n\n") if part and not part.startswith("Formula: ")]
    more = [line for part in parts for line in (" ".join(part.split()), "")]
    more += [f"- {name}: {text}" for name, text in facts(kind).items() if name != "Formula"]
    more += ["", *_table(kind, "--partition.")]
    lines += [f"- Formula: {facts(kind)['Formula']}", ""]
    if shown is not None:
        lines += [f"![{name}: clients by classes](../pictures/partition-{name}.png)", "", _pictured(shown), ""]
    return lines + _folded("Details and options", more)


def _pictured(shown: Example) -> str:
    n, unused = shown
    sizes, held = n.sum(axis=1), (n > 0).sum(axis=1)
    return (
        f"In the picture: {len(n)} clients of {sizes.min()} to {sizes.max()} rows with {held.min()} to {held.max()} "
        f"classes; {unused:,} rows unused."
    )


SLOTS = ("parts", "sampler", "selector", "pace", "weighting", "server", "local")
COMPOSED = "[Compose](../guide/compose.md) shows how to combine them."
FITS = (  # of every method; the formula is that of fedskew.engines.fitting.fit
    "| any, with [fitted logits](../guide/fitted.md) | – | sum | "
    "sums of the loss, its gradient and Hessian over its rows; histogram | "
    "E ((C + 1)(C + 4) / 2 + 1) + C (every client, once after training, in E exchanges) | "
    "E (C + 1) + C + P (the same) | – | 1 forward pass over every client's rows | – |"
)


def methods_page() -> str:
    """The catalogue as Markdown: what each method adds to FedAvg, and where its ingredients stand."""
    lines = [
        "# Methods and ingredients",
        "",
        "The table lists what each method adds to FedAvg. Sizes are numbers for each client and round: P parameters,",
        "C classes, F features, K participants, N clients. The ingredients, with formula, cost and options:",
        "",
        *(f"- {slot}: {_linked(slot)}" for slot in SLOTS),
        "",
        "| method | beyond FedAvg | suffices | leaves the client | more up | more down | state kept | work | paper |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    plain = {c.name for c in METHODS["fedavg"]().components}
    for row in listing.catalogue():
        method = method_named(row["name"])
        own = ", ".join(f"`{c.name}`" for _, c in method.ingredients() if c.name not in plain) or "–"
        cells = [row[f] for f in ("reads", "extra_upload", "extra_download", "state", "extra_compute")]
        told = " | ".join("; ".join(cell) or "–" for cell in cells)
        lines.append(f"| `{row['name']}` | {own} | {row['suffices']} | {told} | {row['reference']} |")
    lines.append(FITS)
    return "\n".join(lines) + "\n"


def _linked(slot: str) -> str:
    page = "parts" if slot == "parts" else "slots"
    return ", ".join(f"[`{name}`]({page}.md#{name}-{kind.__name__.lower()})" for name, kind in TABLES[slot].items())


def parts_page() -> str:
    """Every part with its formula and options."""
    told = "Loss terms, corrections of gradients and memories. In Python each is a class of `fs.parts`."
    lines = [line for name, kind in TABLES["parts"].items() for line in _ingredient_of(name, kind, "parts")]
    return "\n".join(["# Parts of a method", "", f"{told} {COMPOSED}", "", *lines]) + "\n"


def slots_page() -> str:
    """What can stand in each slot, with its formula and options."""
    told = "In Python each is a class of `fs.samplers`, `fs.selectors`, `fs.paces`, `fs.weightings`, `fs.servers` or "
    lines = ["# Slots of a method", "", f"{told}`fs.steps` (the slot `local`). {COMPOSED}"]
    for slot in SLOTS[1:]:
        lines += ["", f"## {slot}", ""]
        lines += [line for name, kind in TABLES[slot].items() for line in _ingredient_of(name, kind, slot)]
    return "\n".join(lines) + "\n"


def _ingredient_of(name: str, kind: type[Component], slot: str) -> list[str]:
    level, prefix = ("##", f"--parts.{name}.") if slot == "parts" else ("###", f"--{slot}.")
    facts = [f"{listing.LEAVES}: {', '.join(map(str, reads))}"] if (reads := kind().reads) else []
    facts += [f"{label}: {getattr(kind, f)}" for f, label in listing.FACTS.items() if getattr(kind, f)]
    first, _, rest = "\n".join(listing._described(kind)).partition("\n\n")
    more = ["```formula", rest, "```", ""] if rest else []
    more += [f"{'; '.join(facts)}.", ""] if facts else []
    head = [f"{level} `{name}` ({kind.__name__})", "", "```formula", first, "```", ""]
    return [*head, *_folded("Details and options", [*more, *_table(kind, prefix)])]


PAGES: dict[str, Callable[[], str]] = {  # below docs/
    "reference/methods.md": methods_page,
    "reference/parts.md": parts_page,
    "reference/slots.md": slots_page,
    "reference/paces.md": paces_page,
    "reference/partitions.md": partitions_page,
    "reference/options.md": options_page,
    "reference/datasets.md": lambda: kinds_page("Datasets", DATA, "data"),
    "reference/networks.md": lambda: kinds_page("Networks", MODEL, "model"),
    "reference/command.md": command_page,
}


def example(counts: npt.NDArray[Any], out: Path) -> Path:
    """Draw a small heat map of about 10 kB for a page: classes down, clients across, sizes above.

    Args:
        counts: Label histograms, [N, C].
        out: File ending in .png, .svg or .pdf.

    Returns:
        The file.
    """
    n = canvas.counted(counts)
    with canvas.matplotlib().rc_context({**canvas.STYLE, "font.size": 7, "axes.grid": False}):
        figure = canvas.figure(2.6, 4.4, dpi=100)
        above, main = figure.subplots(2, 1, sharex=True, height_ratios=[1, 3])
        above.bar(range(len(n)), n.sum(axis=1), color=canvas.COLOURS[0], width=0.8)
        above.set_ylabel("rows")
        main.imshow(np.sqrt(n.T), cmap="Blues", aspect="auto", vmin=0, interpolation="nearest")
        main.set(xlabel="client", ylabel="class", yticks=range(0, n.shape[1], 3))
        main.locator_params(axis="x", integer=True)
        return canvas.save(figure, out)


def write(folder: Path) -> Iterator[Path]:
    """Write every page, and the picture of every partitioner, into a folder. Yields the files."""
    for place in ("reference", "pictures"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
        yield folder / name
    for name, (counts, _) in examples().items():
        yield example(counts, folder / f"pictures/partition-{name}.png")


if __name__ == "__main__":
    for file in write(ROOT / "docs"):
        print(file.relative_to(ROOT))
