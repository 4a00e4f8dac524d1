"""``fedskew methods``, ``datasets``, ``partitions``, ``models`` and ``cite``: what there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from fedskew.cli.base import Command
from fedskew.cli.values import Names
from fedskew.errors import ConfigError

__all__ = ["cite", "datasets", "methods", "models", "partitions"]


def _folded(head: str) -> Any:
    """A column whose cells wrap: a name that must be typed is never cut."""
    from rich.table import Column

    return Column(head, overflow="fold")


@click.command(cls=Command, lines=("fedskew methods", "fedskew methods --json"))
@click.option("--json", "as_json", is_flag=True, help="print everything, fields and references too, as JSON")
@click.option("--markdown", is_flag=True, help="print the page docs/reference/methods.md")
def methods(as_json: bool, markdown: bool) -> None:
    """List every method: composition, what leaves the client, extra traffic, reference."""
    from fedskew.catalogue import listing

    if as_json and markdown:
        raise ConfigError("fedskew methods takes --json or --markdown; got both")
    if markdown:
        print(listing.page(), end="")
    elif as_json:
        print(json.dumps(listing.catalogue(), indent=1))
    else:
        _print_methods(listing.catalogue())


def _print_methods(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    heads = ("method", "beyond FedAvg", "leaves the client, beside the model", "extra up / down")
    table = Table(*map(_folded, heads), show_lines=False)
    plain = next(r for r in rows if r["name"] == "fedavg")["slots"]
    for row in rows:
        own = [p["name"] for p in row["slots"]["parts"] if p["name"] != "cross_entropy"]
        own += [v["name"] for slot, v in row["slots"].items() if slot != "parts" and v["name"] != plain[slot]["name"]]
        up, down = ("; ".join(row[f]) or "–" for f in ("extra_upload", "extra_download"))
        told = "; ".join(row["discloses"]) or "nothing"
        table.add_row(row["name"], "\n".join(own) or "–", told, "–" if (up, down) == ("–", "–") else f"{up} / {down}")
    Console().print(table)
    print("P parameters, C classes, F features: numbers a client and round; `--json` adds fields and references")


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
    from rich.console import Console
    from rich.table import Table

    from fedskew.catalogue.listing import named

    console = Console()
    view = Table(_folded(f"--{slot}"), _folded("what it is"), _folded(f"--{slot}.OPTION"), show_lines=True)
    for name, text, options in named(slot, wanted):
        if wanted:
            console.print("\n".join([name, "", text, "", *options, ""]), markup=False, highlight=False, soft_wrap=True)
        view.add_row(name, text, "\n".join(options) or "–")
    if not wanted:
        console.print(view)
        print(f"`fedskew {command} NAME` says what the options of NAME mean")


@click.command(cls=Command, lines=("fedskew cite fedbal scaffold",), missing="at least one method or ingredient")
@click.argument("wanted", nargs=-1, metavar="NAME [NAME ...]", type=Names("method"))
def cite(wanted: tuple[str, ...]) -> None:
    """Print BibTeX of the papers of methods and ingredients."""
    from fedskew.catalogue.listing import citations

    print("\n\n".join(citations(list(wanted))))
