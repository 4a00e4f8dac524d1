"""Formulas of docstrings as HTML: Greek letters, indices and powers. A terminal shows the docstrings as they are."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

LETTERS = "alpha beta gamma delta eta theta lambda mu xi pi rho sigma tau Delta"  # as HTML names them
GREEK = {name: html.unescape(f"&{name};") for name in LETTERS.split()} | {"eps": "ε", "lam": "λ"}
SIGNS = {"<-": "←", "->": "→", "<=": "≤", ">=": "≥", "!=": "≠", "||": "‖", " * ": " · ", " - ": " − "}
NAMES = {"sum": "∑", "sqrt": "√"}
WORDS = ("a", "A", "I")  # of English, where they have no index
GROUP = r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|\((?:[^()]|\([^()]*\))*\))"
TAIL = rf"(?:[_^]{GROUP}|_\w+(?:,\w+)?|\^-?[a-zA-Z\d.]*[a-zA-Z\d])"
TOKEN = re.compile(
    r"(?P<code>`+[^`]+`+)|(?P<word>\"\w+\")|(?P<link>https?://\S+[\w/])"
    rf"|(?<![\w'’])(?P<base>[A-Za-z][a-zA-Z]*?)(?P<number>\d?)(?P<mark>~?)(?P<tail>{TAIL}*)(?![\w~])"
    rf"|(?P<closed>\|\||[)\]'|\d])(?P<after>{TAIL}+)"
    rf"|(?P<sign>{'|'.join(map(re.escape, SIGNS))})|(?<=[\s(])(?P<minus>-)(?=[a-zA-Z(])"
)
INDEX = re.compile(TAIL)
SHORT = re.compile(r"_[a-z]$|_\{|\^")  # an index that a longer name may have, too
LONG = 3  # letters of a name that may have an index: weight_decay is a word, lr_k is not
INDEXED = ("mean", "max", "min", "sum", "argmin", "softmax", "std", "tau", *GREEK)


def typeset(text: str) -> str:
    """A line or a paragraph with its formulas."""
    done, at = [], 0
    for found in TOKEN.finditer(text):
        done += [html.escape(text[at : found.start()], quote=False), _shown(found)]
        at = found.end()
    return "".join([*done, html.escape(text[at:], quote=False)])


def pieces(text: str) -> Iterator[tuple[bool, str]]:
    """The pieces of a sentence; True: it is a formula, which typeset changes."""
    at = 0
    for found in TOKEN.finditer(text):
        if not (found["code"] or found["link"]) and _shown(found) != found[0]:
            yield False, text[at : found.start()]
            yield True, found[0]
            at = found.end()
    yield False, text[at:]


def _shown(found: re.Match[str]) -> str:
    if found["code"]:
        return f"<code>{html.escape(found['code'].strip('`'), quote=False)}</code>"
    if found["word"]:
        return found["word"]
    if found["link"]:
        return f'<a href="{html.escape(found["link"])}">{html.escape(found["link"], quote=False)}</a>'
    if found["minus"]:
        return "−"
    if found["sign"]:
        return SIGNS[found["sign"]]
    if found["closed"]:
        return SIGNS.get(found["closed"], found["closed"]) + _indices(found["after"])
    base, tail = found["base"], found["tail"]
    indexed = base in INDEXED or len(base) <= LONG or base.startswith("Delta") or SHORT.match(tail)
    if ("_" in tail and not indexed) or (base in WORDS and not (tail or found["number"])):
        return found[0]
    number = f"<sub>{found['number']}</sub>" if found["number"] else ""
    return _named(base, bool(tail)) + ("\u0303" if found["mark"] else "") + number + _indices(tail)


def _named(base: str, indexed: bool) -> str:
    """The letter or the word that has an index or none."""
    if base in GREEK:
        return f"<i>{GREEK[base]}</i>"
    if base in NAMES and (indexed or base == "sqrt"):
        return NAMES[base]
    if base.startswith("Delta"):
        return f"Δ<i>{base.removeprefix('Delta')}</i>"
    return f"<i>{base}</i>" if len(base) == 1 else base


def _indices(tail: str) -> str:
    """Indices below and powers above."""
    parts = []
    for piece in INDEX.findall(tail):
        kind = "sub" if piece[0] == "_" else "sup"
        parts.append(f"<{kind}>{typeset(piece[2:-1] if piece[1] in '({' else piece[1:])}</{kind}>")
    return "".join(parts)


def shown(text: str) -> str:
    """Paragraphs; one that is indented keeps its lines."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.splitlines()
        apart = all(line.startswith("  ") for line in lines)
        body = ("<br>" if apart else " ").join(typeset(line.strip()) for line in lines)
        parts.append(f'<p class="formula{" apart" if apart else ""}">{re.sub(" {2,}", "&emsp;", body)}</p>')
    return "\n\n".join(parts)
