"""A page for each method, from the code and the records: what it does, formula, cost, gains under each control."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import make_evidence
import numpy as np
import reference

import fedskew as fs
from fedskew.advice.adviser import verdict_on
from fedskew.advice.evidence import Gain
from fedskew.catalogue.citations import bibtex
from fedskew.catalogue.listing import FACTS, LEAVES, NOTHING, catalogue, options_of, prose
from fedskew.config.presets import Preset, every
from fedskew.config.words import as_word
from fedskew.plots import canvas
from fedskew.studies.lines import archives
from fedskew.studies.scores import FEWEST, NO_VERDICT
from fedskew.studies.store import read_archives
from fedskew.studies.verdicts import LOSS, OWN, UNSEEN

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
RECORDS = ("results/studies", "results/papers")
CONTROLS = {"": "raw", "averaged_": "averaged", "fitted_": "fitted", "averaged_fitted_": "averaged\nand fitted"}
PICTURE = """Each dot is a federation: the method's accuracy less that of FedAvg, for the model as trained and under
[each control](../docs/guide/fitted.md). Full dots have five seeds or more; pale dots have fewer and no verdict.
A triangle lies beyond 15 points. Comparisons of one seed are not shown."""
FAR = 15.0  # points: one collapsed run does not press all others into a line
VERDICTS = {  # how a verdict begins -> its colour in the bar
    OWN: "#009E73",
    "open": "#56B4E9",
    UNSEEN: "0.75",
    LOSS: "#D55E00",
    "": "#E69F00",  # undone by a control
}
SERVES = {
    "global": "one model for all clients",
    "own": "a model for each client; the global model is not meant to be used",
    "both": "one model for all clients, and one for each",
}

LETTERS = {
    "P": "parameters",
    "B": "rows of a mini-batch",
    "C": "classes",
    "F": "features",
    "K": "participants",
    "N": "clients",
}


def plain(text: str) -> str:
    """Text of a docstring as Markdown: what is no code in backquotes means itself."""
    pieces = CODE.split(text)
    pieces[::2] = [re.sub(r"([\\*_<>\[\]$|~#{}])", r"\\\1", piece) for piece in pieces[::2]]
    pieces[::2] = [re.sub(r"\bnotes/(\w+)\.md", r"[notes](../notes/\1.md)", piece) for piece in pieces[::2]]
    pieces[::2] = [re.sub(r"https?://\S+[\w/]", lambda link: f"<{link[0]}>", piece) for piece in pieces[::2]]
    return "".join(piece.replace("``", "`") for piece in pieces)


def capital(text: str) -> str:
    """Such text as a sentence."""
    return plain(f"{text[:1].upper()}{text[1:]}")


def paragraphs(text: str) -> str:
    """Prose; a paragraph that is indented stays as it is, as formulas are."""
    shown = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        lines = part.splitlines()
        formula = all(line.startswith("  ") for line in lines)
        shown.append(f"```\n{textwrap.dedent(part)}\n```" if formula else plain(" ".join(map(str.strip, lines))))
    return "\n\n".join(shown)


class Found(NamedTuple):
    """A method's gain over FedAvg on a federation of the records."""

    federation: str
    source: str  # of the archive
    label: str  # the method's name with the options that differ
    by: dict[str, Gain]  # by number, such as fitted_accuracy
    steps: float | None  # local steps, as a multiple of FedAvg's
    verdict: str  # of the one rule

    @property
    def raw(self) -> Gain:
        """Of the model as trained."""
        return self.by["accuracy"]


def records() -> list[Found]:
    """The gains of every method on every federation of the shipped records where FedAvg was trained alike."""
    told = []
    for file in [file for folder in RECORDS for file in archives(ROOT / folder)]:
        runs = [(file.stem, run) for run in read_archives(file) if run.state == "finished"]
        for federation in make_evidence.measured(runs, lambda run: {})[0]:
            for label, gains in federation.gains.items():
                if "accuracy" in gains and gains["accuracy"].seeds > 1:  # one seed: most are trials of a tuning
                    work = federation.works.get(label)
                    word = verdict_on(gains, "accuracy", work)
                    told.append(Found(federation.name, file.stem, label, gains, work[0] if work else None, word))
    return told


def of(name: str, found: Sequence[Found]) -> list[Found]:
    """Those of a method, the largest gain first."""
    mine = [row for row in found if re.match(rf"{name}(?!\w)", row.label)]
    return sorted(mine, key=lambda row: -row.raw.mean)


def points(gain: Gain | None) -> str:
    """In points of percent, with the interval."""
    if gain is None:
        return ""
    ends = "" if gain.low is None or gain.high is None else f" [{100 * gain.low:+z.1f}, {100 * gain.high:+z.1f}]"
    return f"{100 * gain.mean:+z.1f}{ends}"


def measured(name: str, found: Sequence[Found]) -> Iterator[str]:
    """Where the method helped, by the records, and where not."""
    rows = of(name, found)
    yield "## Its gains, by our records"
    if name == "fedavg":
        yield "FedAvg is what the others are compared with: see their pages and [findings](../docs/findings.md)."
        return
    if not rows:
        yield (
            "The shipped records have no two seeds of it beside a FedAvg that was trained alike, so we have no number "
            "to report. [The cards](../notes/cards.md) say what is proved of its formula."
        )
        return
    words = Counter(row.verdict for row in rows)
    fewer = words.pop(NO_VERDICT, 0)
    yield f"![{told(name, rows)}](pictures/{name}.png)"
    yield PICTURE
    if words:
        yield (
            f"Verdicts by accuracy (mean of the last ten rounds) and [the rule of gains](../docs/guide/fitted.md): "
            f"{', '.join(f'{word} on {n}' for word, n in words.most_common())}."
        )
    if fewer:
        which, ends = (f"{fewer} more", "") if words else (f"All {fewer}", ", so none has a verdict")
        yield f"{which} comparisons have fewer than {FEWEST} seeds{ends}."
    lines = ["| federation | record | as | seeds | local steps | raw | fitted | verdict |"]
    lines.append("|---|---|---|---:|---:|---:|---:|---|")
    lines += [
        f"| {plain(r.federation)} | {r.source} | {plain(r.label)} | {r.raw.seeds} "
        f"| {'' if r.steps is None else f'{r.steps:.2g}'} | {points(r.raw)} | {points(r.by.get('fitted_accuracy'))} "
        f"| {r.verdict} |"
        for r in rows
    ]
    yield (
        f":::{{dropdown}} All {len(rows)}, in points over the better of FedAvg's two weightings, sorted\n"
        "Local steps are given as a multiple of FedAvg's.\n\n" + "\n".join(lines) + "\n:::"
    )


def draw(found: Sequence[Found], out: Path) -> None:
    """The gains under each control, a dot for a federation; above them how many have which verdict."""
    words = Counter(row.verdict for row in found if row.verdict != NO_VERDICT)
    with canvas.matplotlib().rc_context({**canvas.STYLE, "font.size": 9}):
        figure = canvas.figure(3.6 if words else 2.6, 4.8, dpi=150)
        rows = [1, 5] if words else [1]
        *above, axis = figure.subplots(len(rows), 1, height_ratios=rows, squeeze=False)[:, 0]
        for bar in above:
            start = 0
            for begins, colour in VERDICTS.items():
                for at, word in enumerate(word for word in words if _kind(word) == begins):
                    look = {"color": colour, "alpha": 1 - 0.3 * at, "edgecolor": "white"}
                    bar.barh(0, words[word], left=start, label=f"{word}: {words[word]}", **look)
                    start += words[word]
            bar.set(xlim=(0, start), title=f"verdicts on {start} federations and settings")
            bar.set_axis_off()
            bar.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, fontsize=8, frameon=False)
        shown = [prefix for prefix in CONTROLS if any(f"{prefix}accuracy" in row.by for row in found)]
        for at, prefix in enumerate(shown):
            for enough, look in ((False, {"color": "0.75"}), (True, {"color": canvas.COLOURS[0]})):
                gains = [row.by[name] for row in found if (name := f"{prefix}accuracy") in row.by]
                means = np.sort([100 * gain.mean for gain in gains if (gain.seeds >= FEWEST) == enough])
                heights = at + 0.3 * ((np.arange(len(means)) * 0.618) % 1 - 0.5)
                for mark, some in (("<", means < -FAR), ("o", abs(means) <= FAR), (">", means > FAR)):
                    places = means[some].clip(-FAR, FAR), heights[some]
                    axis.scatter(*places, s=12, marker=mark, linewidths=0, zorder=2 + enough, **look)
        axis.axvline(0, color="0.4", linewidth=1, zorder=1)
        axis.set_yticks(range(len(shown)), [CONTROLS[prefix] for prefix in shown])
        low, high = axis.get_xlim()
        axis.set(xlim=(min(low, -1), max(high, 1)), ylim=(len(shown) - 0.5, -0.5), xlabel="gain over FedAvg, points")
        canvas.save(figure, out)


def _kind(verdict: str) -> str:
    """The beginning of a verdict that has a colour."""
    return next(begins for begins in VERDICTS if verdict.startswith(begins))


def told(name: str, found: Sequence[Found]) -> str:
    """The picture in words."""
    parts = []
    for prefix, words in CONTROLS.items():
        gains = [100 * row.by[key].mean for row in found if (key := f"{prefix}accuracy") in row.by]
        parts += [f"{words.replace(chr(10), ' ')} {np.median(gains):+z.1f} on {len(gains)}"] if gains else []
    return f"Gains of {name} over FedAvg on federations of the records, in points; medians: {'; '.join(parts)}"


def ingredients(name: str) -> Iterator[str]:
    """Formula and options of what the method has beyond FedAvg."""
    usual = {c.name for c in fs.methods.fedavg().components}
    method = fs.methods.METHODS[name]()
    own = [(place, i) for place, i in method.ingredients() if i.name not in usual] or list(method.ingredients())
    yield "## Formula"
    for place, made in own:
        slot = "parts" if place.startswith("parts") else place
        yield f"**{made.name}**, `--{slot} {made.name}`"
        yield f"```formula\n{prose(type(made))}\n```"
        rows = [
            f"| `--{place}.{n}` | `{as_word(v)}` | {plain(about)}{words} |" for n, v, about, words in options_of(made)
        ]
        if rows:
            yield "| option | default | meaning |\n|---|---|---|\n" + "\n".join(rows)


def pace(name: str) -> Iterator[str]:
    """What the authors state."""
    yield "## The authors' pace"
    found = every()["authors"].get(name)
    if isinstance(found, Preset):
        rows = [f"| `{place}` | {reference.stated(value)} |" for place, value in found.values.items()]
        yield f"`fedskew run {name} --preset authors` takes (the letters are [grades](../docs/reference/paces.md)):"
        yield "| option | value |\n|---|---|\n" + "\n".join(rows)
        note = f" {capital(found.note)}." if found.note else ""
        yield f"{capital(found.setting)}. Source: {plain(found.source)}.{note}"
    else:
        yield f"None is on record: {plain(str(found))}."


def page(row: dict[str, Any], found: Sequence[Found]) -> str:
    """The page of a method."""
    name = row["name"]
    text = re.split(r"\n\n(?=Source:)", prose(fs.methods.METHODS[name]))
    facts = [("serves", SERVES[row["serves"]]), (LEAVES, "; ".join(row["reads"]) or NOTHING)]
    facts += [("[suffices](index.md)", row["suffices"])]
    keys = ("extra_upload", "extra_download", "state", "extra_compute")
    facts += [(label, "; ".join(row[key]) or "none") for key, label in zip(keys, FACTS.values(), strict=True)]
    lines = [f"| {label} | {plain(value)} |" for label, value in facts]
    letters = [f"{letter} {word}" for letter, word in LETTERS.items() if re.search(rf"\b{letter}\b", "".join(lines))]
    method = fs.methods.METHODS[name]()
    papers = dict.fromkeys(filter(None, (method.reference, *(c.reference for c in method.components))))
    parts = [
        f"# {name}",
        paragraphs(text[0]),
        f"`fedskew run {name}`, `fs.methods.{name}()`",
        "| | |\n|---|---|\n" + "\n".join(lines),
        f"{', '.join(letters)}; numbers for each client and round." if letters else "",
        *ingredients(name),
        *measured(name, found),
        *pace(name),
        "## Reference",
        paragraphs(text[1]) if len(text) > 1 else "",
        *(f"```bibtex\n{bibtex(key)}\n```" for key in papers),
    ]
    return "\n\n".join(parts) + "\n"


def write(folder: Path) -> None:
    """A page for each method with its picture, and the page that lists them."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    found, rows = records(), catalogue()
    for row in rows:
        name = row["name"]
        if mine := of(name, found):
            draw(mine, folder / f"pictures/{name}.png")
        (folder / f"{name}.md").write_text(page(row, found), encoding="utf-8")
    (folder / "index.md").write_text(listed(rows, found), encoding="utf-8")


def listed(rows: Sequence[dict[str, Any]], found: Sequence[Found]) -> str:
    """The page of all methods."""
    lines = ["| method | what it does | serves | suffices | measured on |", "|---|---|---|---|---:|"]
    for row in rows:
        many = len(of(row["name"], found))
        leaves = row["suffices"]
        cells = [f"[{row['name']}]({row['name']}.md)", plain(row["summary"]), row["serves"], leaves, many or ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return INDEX.format(count=len(rows), table="\n".join(lines), pages="\n".join(row["name"] for row in rows))


INDEX = """# Methods

The {count} methods of fedskew, each with a page that is made from the code and the shipped records: formula, options,
cost, what leaves the client, and gains over FedAvg under each control. "Measured on" is the number of stored
comparisons with FedAvg over two seeds or more. "Serves" says whose model is the result: `global` one for all, `own`
one for each client, `both`. "Suffices" says what must leave a client beside its model: `nothing`, a `sum` over the
round's clients, or what the server reads of each client.

{table}

```{{toctree}}
:hidden:

{pages}
```
"""
