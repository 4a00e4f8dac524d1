"""The page of the authors' paces: every method's values with their grades, its source, or why there is none."""

from __future__ import annotations

from fedskew.config.presets import AUTHORS, GRADES, PRESETS, Preset, Stated

__all__ = ["paces_markdown"]

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
TEXT = """# The authors' paces

Made by `python scripts/reference.py`; a test compares.

A method's own defaults are for comparisons at common settings. This page lists the pace that each method's authors
state: rate, momentum, weight decay, decay of the rate, batch, epochs, the share of the clients in a round, the server's
rate. A comparison can be run both ways:

```
fedskew run moon --lr 0.1 --rounds 50          # common settings: the options that you give to every method
fedskew run moon --preset authors --rounds 50  # the authors' pace
fedskew run moon --preset authors --cohort 5   # an option that you give goes before the preset
```

In Python:

```python
method = fs.presets.authors("moon")
fs.run(fed, method, rounds=50)  # takes the authors' share of the clients
fs.run(fed, method.with_("pace", lr=0.02), cohort=5)  # your values go before the preset's
```

The number of rounds stays yours. `config.json` holds the values that were used, and the preset's name under `method`.
What a cell leaves open keeps the method's default. A row of two names is another preset of the method: `--preset` takes
the second name. Some of them are no pace but a reading of the paper.

Each value has a grade: """


def paces_markdown() -> str:
    """The page as Markdown."""
    grades = "; ".join(f"**{letter}** {meaning}" for letter, meaning in GRADES.items())
    lines = [TEXT + grades + ".", "", f"| method | {' | '.join(COLUMNS)} | other |", "|---" * (len(COLUMNS) + 2) + "|"]
    found = {
        (name if preset == "authors" else f"{name}`, `{preset}"): row
        for preset, rows in PRESETS.items()
        for name, row in rows.items()
        if isinstance(row, Preset)
    }
    lines += [_row(name, preset) for name, preset in found.items()]
    lines += ["", "## Sources", ""]
    lines += [
        f"- `{name}`: {p.setting}. {p.source}.{f' Note: {p.note}.' if p.note else ''}" for name, p in found.items()
    ]
    lines += ["", "## No pace on record", ""]
    lines += [f"- `{name}`: {why}." for name, why in AUTHORS.items() if isinstance(why, str)]
    return "\n".join(lines) + "\n"


def _row(name: str, preset: Preset) -> str:
    cells = [_cell(preset.values.get(place)) for place in COLUMNS.values()]
    rest = [f"`{place}` {_cell(value)}" for place, value in preset.values.items() if place not in COLUMNS.values()]
    return f"| `{name}` | {' | '.join(cells)} | {', '.join(rest)} |"


def _cell(stated: Stated | None) -> str:
    """ "0.01 P"; empty where nothing is stated."""
    if stated is None:
        return ""
    return f"{stated.value if isinstance(stated.value, str) else format(stated.value, '.3g')} {stated.grade}"
