"""``fedskew methods``, ``datasets``, ``partitions``, ``models`` and ``cite``: what there is."""

import json
from collections.abc import Sequence
from typing import Any

import click

from fedskew.cli.base import Command
from fedskew.cli.output import grid, say, show
from fedskew.cli.values import Names
from fedskew.errors import ConfigError

WIDE = 200  # columns of a wide table


@click.command(
    cls=Command, lines=("fedskew methods", "fedskew methods fedbal aggregation_balancer", "fedskew methods --json")
)
@click.argument("wanted", nargs=-1, metavar="[NAME ...]", type=Names("method"))
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
    plain = next(r for r in rows if r["name"] == "fedavg")["slots"]
    for row in rows:
        own = [p["name"] for p in row["slots"]["parts"] if p["name"] != "cross_entropy"]
        own += [v["name"] for slot, v in row["slots"].items() if slot != "parts" and v["name"] != plain[slot]["name"]]
        up, down = ("; ".join(row[f]) or "–" for f in ("extra_upload", "extra_download"))
        line = [row["name"], ", ".join(own) or "–", row["serves"], row["suffices"], "; ".join(row["reads"]) or "–"]
        lines.append([*line, *["–" if (up, down) == ("–", "–") else f"{up} / {down}"] * wide])
    heads = ("method", "beyond FedAvg", "serves", "suffices", "leaves the client", "extra up / down")
    show(grid(heads[: 5 + wide], lines, width=WIDE * wide), WIDE * wide)
    say("serves: what clients use, the global model, their own models, or both")
    say("suffices: what must leave the client beside its model, a sum or its own number")
    if wide:
        say("P parameters, C classes, F features: numbers a client and round")
    say("`fedskew methods NAME` explains one" + ", --wide adds what it sends" * (not wide))


@click.command(cls=Command, lines=("fedskew datasets", "fedskew datasets digits csv"))
@click.argument("wanted", nargs=-1, metavar="[NAME ...]", type=Names("data"))
def datasets(wanted: tuple[str, ...]) -> None:
    """List the datasets, or explain those named and their options."""
    _print_names("datasets", "data", wanted)


@click.command(cls=Command, lines=("fedskew partitions", "fedskew partitions dirichlet"))
@click.argument("wanted", nargs=-1, metavar="[NAME ...]", type=Names("partition"))
def partitions(wanted: tuple[str, ...]) -> None:
    """List the ways to divide data over clients, or explain those named and their options."""
    _print_names("partitions", "partition", wanted)


@click.command(cls=Command, lines=("fedskew models", "fedskew models mlp resnet18"))
@click.argument("wanted", nargs=-1, metavar="[NAME ...]", type=Names("model"))
def models(wanted: tuple[str, ...]) -> None:
    """List the networks, or explain those named and their options."""
    _print_names("models", "model", wanted)


def _print_names(command: str, slot: str, wanted: Sequence[str]) -> None:
    """Every name that --data, --partition or --model takes, or those asked for."""
    from fedskew.catalogue.listing import named

    lines = []
    for name, text, options in named(slot, wanted):
        if wanted:
            say("\n".join([name, "", text, "", *options, ""]))
        lines.append((name, text, "\n".join(options) or "–"))
    if not wanted:
        show(grid((f"--{slot}", "what it is", f"--{slot}.OPTION"), lines))
        say(f"`fedskew {command} NAME` says what the options of NAME mean")


CITED = "at least one method, ingredient or dataset, or fedskew"


@click.command(cls=Command, lines=("fedskew cite fedbal scaffold", "fedskew cite fedskew cifar10"), missing=CITED)
@click.argument("wanted", nargs=-1, metavar="NAME [NAME ...]", type=Names("method"))
def cite(wanted: tuple[str, ...]) -> None:
    """Print BibTeX of methods, ingredients and datasets, and of fedskew itself."""
    from fedskew.catalogue.listing import citations

    say("\n\n".join(citations(list(wanted))))
