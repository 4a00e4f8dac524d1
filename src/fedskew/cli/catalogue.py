"""``fedskew methods``, ``datasets``, ``partitions``, ``models`` and ``cite``: what there is."""

import json
from typing import Any

import click

from fedskew.cli.base import Command
from fedskew.cli.output import grid, say, show
from fedskew.errors import ConfigError

WIDE = 200  # columns of a wide table


@click.command(
    cls=Command, lines=("fedskew methods", "fedskew methods fedbal aggregation_balancer", "fedskew methods --json")
)
@click.argument("wanted", nargs=-1, metavar="[NAME ...]")
@click.option("--wide", is_flag=True, help=f"also list extra traffic, in a table of {WIDE} columns")
@click.option("--json", "as_json", is_flag=True, help="print everything as JSON, with fields and references")
def methods(wanted: tuple[str, ...], wide: bool, as_json: bool) -> None:
    """List the methods, or explain the named methods and ingredients.

    The list has each method's composition and what must leave the client; the page of a NAME has formula, options,
    cost, what leaves the client and reference.
    """
    from fedskew.catalogue import listing

    if wanted and as_json:
        raise ConfigError("fedskew methods takes NAME or --json; got both")
    if wanted:
        say("\n\n\n".join([listing.explained(name) for name in wanted]))
    elif as_json:
        say(json.dumps(listing.catalogue(), indent=1))
    else:
        _print_methods(listing.catalogue(), wide)


def _print_methods(rows: list[dict[str, Any]], wide: bool) -> None:
    lines = []
    fedavg = next(r for r in rows if r["name"] == "fedavg")["slots"]
    for row in rows:
        slots = row["slots"]
        beyond = [part["name"] for part in slots["parts"] if part["name"] != "cross_entropy"]
        beyond += [v["name"] for slot, v in slots.items() if slot != "parts" and v["name"] != fedavg[slot]["name"]]
        up, down = ("; ".join(row[f]) or "–" for f in ("extra_upload", "extra_download"))
        line = [row["name"], ", ".join(beyond) or "–", row["serves"], row["suffices"], "; ".join(row["reads"]) or "–"]
        lines.append([*line, *["–" if (up, down) == ("–", "–") else f"{up} / {down}"] * wide])
    heads = ("method", "beyond FedAvg", "serves", "suffices", "leaves the client", "extra up / down")
    show(grid(heads[: 5 + wide], lines, width=WIDE * wide), WIDE * wide)
    say("serves: what clients use, the global model, their own models, or both")
    say("suffices: what must leave the client beside its model, a sum or its own number")
    if wide:
        say("P parameters, C classes, F features: numbers a client and round")
    say("`fedskew methods NAME` explains one" + ", --wide adds what it sends" * (not wide))


def _lister(command: str, slot: str, what: str, named: str) -> click.Command:
    """A command that lists every name that --data, --partition or --model takes, or explains those asked for."""

    def listed(wanted: tuple[str, ...]) -> None:
        from fedskew.catalogue.listing import named

        lines = []
        for name, text, options in named(slot, wanted):
            if wanted:
                say("\n".join([name, "", text, "", *options, ""]))
            lines.append((name, text, "\n".join(options) or "–"))
        if not wanted:
            show(grid((f"--{slot}", "what it is", f"--{slot}.OPTION"), lines))
            say(f"`fedskew {command} NAME` says what the options of NAME mean")

    names = click.Argument(["wanted"], nargs=-1, metavar="[NAME ...]")
    about = f"List {what}, or explain those named and their options."
    lines = f"fedskew {command}", f"fedskew {command} {named}"
    return Command(command, params=[names], callback=listed, help=about, lines=lines)


datasets = _lister("datasets", "data", "the datasets", "digits csv")
partitions = _lister("partitions", "partition", "the ways to divide data over clients", "dirichlet")
models = _lister("models", "model", "the networks", "mlp resnet18")


CITED = "at least one method, ingredient or dataset, or fedskew"


@click.command(cls=Command, lines=("fedskew cite fedbal scaffold", "fedskew cite fedskew cifar10"), missing=CITED)
@click.argument("wanted", nargs=-1, metavar="NAME [NAME ...]")
def cite(wanted: tuple[str, ...]) -> None:
    """Print BibTeX of methods, ingredients and datasets, and of fedskew itself."""
    from fedskew.catalogue.listing import citations

    say("\n\n".join(citations(list(wanted))))
