"""A page for each method, from the code and the records: what it does, formula, effect, cost, where it helped."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import make_evidence
import numpy as np

import fedskew as fs
from fedskew.advice.adviser import verdict_on
from fedskew.advice.evidence import Gain
from fedskew.catalogue.citations import bibtex
from fedskew.catalogue.listing import FACTS, catalogue, prose
from fedskew.config.presets import GRADES, Preset, every
from fedskew.errors import RecordError
from fedskew.plots import canvas
from fedskew.studies.lines import archives
from fedskew.studies.scores import FEWEST
from fedskew.studies.store import read_archives
from fedskew.studies.verdicts import GAIN, LOSS

ROOT = Path(__file__).parents[1]
CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
RECORDS = ("results/studies", "results/papers")
ROUNDS, SEEDS = 20, (0, 1, 2)
COMMAND = "fedskew run {} --partition.alpha 0.1 --clients 20 --cohort 5 --rounds 20 --served every"
EXAMPLE = """Three seeds at the method's defaults on the digits of scikit-learn; FedAvg is grey, the band spans the
seeds. This small run only illustrates the method. Repeat it with `{command}`. [Controls](../docs/guide/fitted.md)
explains *fitted*."""
MODELS = {  # what is evaluated -> (the summary's number, its name in a picture)
    "global": ("final_accuracy", "the global model"),
    "fitted": ("final_fitted_accuracy", "the global model, fitted"),
    "served": ("final_served_accuracy", "the model that\neach client uses"),
}
SERVES = {
    "global": "one model for all clients",
    "own": "a model for each client; the global model is not meant to be used",
    "both": "one model for all clients, and one for each",
}


def plain(text: str) -> str:
    """Text of a docstring as Markdown: what is no code in backquotes means itself."""
    pieces = CODE.split(text)
    pieces[::2] = [re.sub(r"([\\*_<>\[\]$|~#{}])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(piece.replace("``", "`") for piece in pieces)


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
    seeds: int
    raw: Gain
    fitted: Gain | None
    verdict: str  # of the one rule


def records() -> list[Found]:
    """The gains of every method on every federation of the shipped records where FedAvg was trained alike."""
    told = []
    for file in [file for folder in RECORDS for file in archives(ROOT / folder)]:
        try:
            runs = [(file.stem, run) for run in read_archives(file) if run.state == "finished"]
        except RecordError:
            continue  # a table of another kind
        for federation in make_evidence.measured(runs, lambda run: {})[0]:
            for label, gains in federation.gains.items():
                if (raw := gains.get("accuracy")) is not None:
                    word = verdict_on(gains, "accuracy", federation.works.get(label))
                    fitted = gains.get("fitted_accuracy")
                    told.append(Found(federation.name, file.stem, label, raw.seeds, raw, fitted, word))
    return told


def of(name: str, found: Sequence[Found]) -> list[Found]:
    """Those of a method, the largest gain first."""
    mine = [row for row in found if re.match(rf"{name}(?!\w)", row.label)]
    return sorted(mine, key=lambda row: -row.raw.mean)


def points(gain: Gain | None) -> str:
    """In points of percent, with the interval."""
    if gain is None:
        return ""
    ends = "" if gain.low is None or gain.high is None else f" [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]"
    return f"{100 * gain.mean:+.1f}{ends}"


def measured(name: str, found: Sequence[Found]) -> Iterator[str]:
    """Where the method helped, by the records, and where not."""
    rows = of(name, found)
    yield "## Where it helped, by our records"
    if name == "fedavg":
        yield "FedAvg is what the others are compared with: see their pages and [findings](../docs/findings.md)."
        return
    if not rows:
        yield (
            "The shipped records have no run of it beside a FedAvg that was trained alike, so we have no number "
            "to report. [The cards](../notes/cards.md) say what is proved of its formula."
        )
        return
    words = Counter(row.verdict for row in rows)
    yield (
        f"Compared with FedAvg on {len(rows)} {'federation' if len(rows) == 1 else 'federations and settings'} of the "
        f"shipped records, by accuracy (mean of the last ten rounds) and [the rule of gains](../docs/guide/fitted.md): "
        f"{', '.join(f'{word} on {n}' for word, n in words.most_common())}. A verdict takes {FEWEST} seeds."
    )
    helped = [row for row in rows if row.raw.interval.shows == GAIN][:3]
    hurt = [row for row in reversed(rows) if row.raw.interval.shows == LOSS][:3]
    for title, some in (("It gained most on", helped), ("It lost most on", hurt)):
        if some:
            yield f"{title}:\n\n" + "\n".join(f"- {plain(row.federation)}: {points(row.raw)} points" for row in some)
    lines = ["| federation | record | as | seeds | raw | fitted | verdict |", "|---|---|---|---:|---:|---:|---|"]
    lines += [
        f"| {plain(r.federation)} | {r.source} | {plain(r.label)} | {r.seeds} | {points(r.raw)} | {points(r.fitted)} "
        f"| {r.verdict} |"
        for r in rows
    ]
    yield (
        f":::{{dropdown}} All {len(rows)}, in points over the better of FedAvg's two weightings\n"
        + "\n".join(lines)
        + "\n:::"
    )


def numbers(name: str) -> dict[str, Any]:
    """Runs of a method on the digits: the accuracy of the models that clients use by round, and final accuracies."""
    fed = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=20, seed=0)
    curves, final = [], []
    for seed in SEEDS:
        method = fs.methods.METHODS[name]()
        rows = max(c.auxiliary for c in method.components)
        here = fs.federate("digits", fs.partitioners.Dirichlet(alpha=0.1), clients=20, auxiliary=rows) if rows else fed
        run = fs.run(here, method, rounds=ROUNDS, cohort=5, seed=seed, served="every", threads=1)
        curves.append([row["served_accuracy"] for row in run.rounds])
        final.append([run.summary.get(key) for key, _ in MODELS.values()])
    return {"curves": curves, "final": final}


def draw(name: str, mine: dict[str, Any], plain_: dict[str, Any], out: Path) -> None:
    """Beside FedAvg: accuracy by round, and the last accuracy of each kind of model."""
    with canvas.matplotlib().rc_context({**canvas.STYLE, "font.size": 9}):
        figure = canvas.figure(2.7, 7.6, dpi=110)
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        shown = [("fedavg", plain_, "0.45")] + ([(name, mine, canvas.COLOURS[0])] if name != "fedavg" else [])
        for i, (label, runs, colour) in enumerate(shown):
            curves, rounds = np.array(runs["curves"]), np.arange(1, ROUNDS + 1)
            left.fill_between(rounds, curves.min(0), curves.max(0), color=colour, alpha=0.2, linewidth=0)
            left.plot(rounds, curves.mean(0), color=colour, label=label, linestyle="--" if label == "fedavg" else "-")
            values = np.array(runs["final"], dtype=float)
            for at, column in enumerate(values.T):
                right.scatter(column, np.full(len(column), at + 0.12 * (2 * i - 1)), s=14, color=colour)
        left.set(xlabel="round", ylabel="accuracy", ylim=(0, 1), title="the model that each client uses")
        left.legend(loc="lower right")
        right.set_yticks(range(len(MODELS)), [words for _, words in MODELS.values()])
        right.set(xlabel="accuracy", xlim=(0, 1), title="last round, three seeds", ylim=(2.5, -0.5))
        canvas.save(figure, out)


def told(name: str, mine: dict[str, Any], plain_: dict[str, Any]) -> str:
    """The picture in words."""
    means = [np.array(runs["final"], dtype=float).mean(0) for runs in (mine, plain_)]
    parts = [
        f"{words.replace(chr(10), ' ')} {100 * a:.0f} %" + (f" (fedavg {100 * b:.0f} %)" if name != "fedavg" else "")
        for (_, words), a, b in zip(MODELS.values(), *means, strict=True)
    ]
    return f"Accuracy of {name} on the digits after {ROUNDS} rounds, mean of three seeds: {'; '.join(parts)}"


def ingredients(name: str) -> Iterator[str]:
    """Formula and options of what the method has beyond FedAvg."""
    usual = {c.name for c in fs.methods.fedavg().components}
    method = fs.methods.METHODS[name]()
    own = [(place, i) for place, i in method.ingredients() if i.name not in usual] or list(method.ingredients())
    yield "## Formula"
    for place, made in own:
        slot = "parts" if place.startswith("parts") else place
        yield f"**{made.name}**, `--{slot} {made.name}`"
        yield f"```\n{prose(type(made))}\n```"
        from fedskew.catalogue.listing import _options

        rows = [
            f"| `--{place}.{n}` | `{getattr(v, 'name', v)}` | {plain(about)}{words} |"
            for n, v, about, words in _options(made)
        ]
        if rows:
            yield "| option | here | meaning |\n|---|---|---|\n" + "\n".join(rows)


def pace(name: str) -> Iterator[str]:
    """What the authors state."""
    yield "## The authors' pace"
    found = every()["authors"].get(name)
    if isinstance(found, Preset):
        rows = [
            f"| `{place}` | {s.value:.3g} | {s.grade} |"
            if isinstance(s.value, float)
            else f"| `{place}` | {s.value} | {s.grade} |"
            for place, s in found.values.items()
        ]
        yield f"`fedskew run {name} --preset authors` takes:"
        yield "| option | value | grade |\n|---|---|---|\n" + "\n".join(rows)
        grades = sorted({s.grade for s in found.values.values()})
        yield (
            f"{plain(found.setting)}. Source: {plain(found.source)}. "
            + (f"{plain(found.note)}. " if found.note else "")
            + "; ".join(f"{g}: {GRADES[g]}" for g in grades)
            + "."
        )
    else:
        yield f"None is on record: {plain(str(found))}."


def page(row: dict[str, Any], found: Sequence[Found], words: str) -> str:
    """The page of a method."""
    name = row["name"]
    text = re.split(r"\n\n(?=Source:)", prose(fs.methods.METHODS[name]))
    facts = [("serves", SERVES[row["serves"]])]
    keys = {
        "discloses": "discloses",
        "uploads": "extra_upload",
        "downloads": "extra_download",
        "keeps": "state",
        "compute": "extra_compute",
    }
    for fact, label in FACTS.items():
        nothing = "nothing beside the model" if fact == "discloses" else "none"
        facts.append((label, "; ".join(row[keys[fact]]) or nothing))
    lines = [f"| {label} | {plain(value)} |" for label, value in facts]
    method = fs.methods.METHODS[name]()
    papers = dict.fromkeys(filter(None, (method.reference, *(c.reference for c in method.components))))
    parts = [
        f"# {name}",
        paragraphs(text[0]),
        f"`fedskew run {name}`, `fs.methods.{name}()`",
        "| | |\n|---|---|\n" + "\n".join(lines),
        "P parameters, C classes, F features, K participants, N clients; numbers for each client and round.",
        *ingredients(name),
        "## Its effect on a small example",
        f"![{words}](pictures/{name}.png)",
        EXAMPLE.format(command=COMMAND.format(name)),
        *measured(name, found),
        *pace(name),
        "## Reference",
        paragraphs(text[1]) if len(text) > 1 else "",
        *(f"```bibtex\n{bibtex(key)}\n```" for key in papers),
    ]
    return "\n\n".join(parts) + "\n"


def write(folder: Path, place: Path) -> None:
    """A page for each method with its picture, and the page that lists them. ``place`` keeps numbers and pictures."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    todo = [name for name in fs.methods.METHODS if not (place / f"{name}.json").exists()]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for name, made in zip(todo, pool.map(numbers, todo), strict=True):
            (place / f"{name}.json").write_text(json.dumps(made), encoding="utf-8")
    known = {name: json.loads((place / f"{name}.json").read_text("utf-8")) for name in fs.methods.METHODS}
    found, rows = records(), catalogue()
    for row in rows:
        name = row["name"]
        picture = folder / f"pictures/{name}.png"
        key = hashlib.sha256(
            json.dumps([known[name], known["fedavg"]]).encode() + Path(__file__).read_bytes()
        ).hexdigest()
        kept = place / f"{name}-{key[:16]}.png"
        if not kept.exists():
            for old in place.glob(f"{name}-*.png"):
                old.unlink()
            draw(name, known[name], known["fedavg"], kept)
        picture.write_bytes(kept.read_bytes())
        text = page(row, found, told(name, known[name], known["fedavg"]))
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / "index.md").write_text(listed(rows, found), encoding="utf-8")


def listed(rows: Sequence[dict[str, Any]], found: Sequence[Found]) -> str:
    """The page of all methods."""
    lines = ["| method | what it does | serves | leaves the client | measured on |", "|---|---|---|---|---:|"]
    for row in rows:
        many = len(of(row["name"], found))
        leaves = "; ".join(row["discloses"]) or "nothing beside the model"
        cells = [f"[{row['name']}]({row['name']}.md)", plain(row["summary"]), row["serves"], plain(leaves), many or ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return INDEX.format(count=len(rows), table="\n".join(lines), pages="\n".join(row["name"] for row in rows))


INDEX = """# Methods

The {count} methods of fedskew, each with a page that is made from the code and the shipped records: what it does, its
formula and options, its effect on a small example, what it costs, what leaves the client, where it helped. "Measured
on" is the number of stored comparisons with FedAvg. "Serves" says whose model is the
result: `global` one for all, `own` one for each client, `both`.

{table}

```{{toctree}}
:hidden:

{pages}
```
"""
