"""One rule for help texts: an option's help is a phrase, a command's is a sentence.

An option's help begins with a small letter, or with a symbol or name that is written with a capital (L, IF, Hessian),
and has no full stop at its end; a semicolon separates what follows. A command's help begins with a capital and ends in
a full stop.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import click
import pytest

from fedskew.cli.command import root
from fedskew.config.experiment import Experiment
from fedskew.config.tables import TABLES
from fedskew.fields import documented
from fedskew.records.diagnostics import Diagnostics
from fedskew.settings import Settings
from support.scripts import script

SYMBOL = re.compile(r"[A-Z](\W|$)|[A-Z]\w*[A-Z_]\w*\W")  # L, A, T; IF, N_VC
KINDS: list[Any] = [Settings, Experiment, Diagnostics, *(kind for table in TABLES.values() for kind in table.values())]


COMMANDS = {" ".join(("fedskew", *words)): command for words, command in script("scripts/reference.py").commands(root)}


def phrases() -> Iterator[tuple[str, str]]:
    """(where it stands, help) of every option."""
    for kind in dict.fromkeys(KINDS):
        told = documented(kind)
        yield from ((f"{kind.__name__}.{f.name}", " ".join(told.get(f.name, "").split())) for f in _own(kind))
    for name, command in COMMANDS.items():
        with click.Context(command, info_name=name) as ctx:
            shown = [p for p in (*command.params, command.get_help_option(ctx)) if isinstance(p, click.Option)]
            yield from ((f"{name} {p.opts[0]}", p.help or "") for p in shown)


def _own(kind: Any) -> Iterator[Any]:
    """The fields that are options; a method, a dataset and the like are chosen by name."""
    return (f for f in dataclasses.fields(kind) if f.name not in ("method", "data", "partition", "model"))


def broken(text: str) -> bool:
    """Whether a phrase breaks the rule."""
    capital = text[:1].isupper() and not SYMBOL.match(text)
    return capital or text.endswith(".") or ". " in text.replace("e.g. ", "")


def test_an_option_s_help_is_a_phrase() -> None:
    found = [f"{place}: {text}" for place, text in phrases() if broken(text)]
    assert not found, "begin small, end without a full stop:\n" + "\n".join(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_help_is_a_sentence(name: str) -> None:
    text = COMMANDS[name].get_short_help_str(1000)
    assert text[0].isupper() and text.endswith("."), text


@pytest.mark.parametrize("text", ["Width of the layer", "width of the layer.", "one thing. Another", "Hessian-free"])
def test_the_rule_sees_what_breaks_it(text: str) -> None:
    assert broken(text)


@pytest.mark.parametrize("text", ["width", "L, labels of a client", "T", "IF = n_max / n_min", "N_VC, rows", "0: none"])
def test_the_rule_lets_pass_what_keeps_it(text: str) -> None:
    assert not broken(text)
