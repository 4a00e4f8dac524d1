"""The command ``fedskew``: run, describe, plot, and what there is. Every mistake is one line and exit code 2."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedskew.cli import interrupt as _interrupt
from fedskew.errors import ConfigError, FedskewError, RecordError, unknown

__all__ = ["main"]

USAGE = """fedskew: federated learning when labels are skewed

  fedskew run METHOD [--data NAME] [--partition NAME] [--clients N] [--cohort K] [--rounds T] ...   train and record
  fedskew run --from RUN                the same run again (or its config.json)
  fedskew run --resume RUN              go on after a stop
  fedskew methods [--json]              every method: composition, disclosure, extra bytes, reference
  fedskew datasets | partitions | models [NAME ...]       every name, what it is, its options with their defaults
  fedskew cite NAME ...                 BibTeX of the methods and ingredients named
  fedskew describe [FILE | --data NAME --partition NAME ...]   how skewed a federation is, and its heat map; FILE is a
                                        partition or a matrix of counts (csv, npy, npz)
  fedskew advise [FILE | --data NAME --partition NAME ... | --from RUN] [--evidence FOLDER] [--top N]
          [--measure accuracy|macro_f1] [--json]   what to try first: what was measured on federations like it
  fedskew partition make|show|verify [FILE] ...           a partition as a file: write it, look at it, check it
  fedskew plot RUN [RUN ...] [--out PICTURE]              one picture and a table that compare runs
  fedskew plot RUN [RUN ...] --figure NAME                a figure of the papers, from what --diagnose recorded

`fedskew run METHOD --help` lists every option of that method's composition.
"""


HINTS = {  # what a flag that is read here wants
    "--match": "dataset or labels",
    "--style": "auto, circles or colours",
    "--measure": "a name",
    "--evidence": "a folder of runs, or a table of them",
    "--top": "a whole number",
}


def main(words: Sequence[str] | None = None) -> None:
    """Entry point. Exits with 0, with 2 after a mistake of the user's, with 130 after an interruption."""
    words = list(sys.argv[1:] if words is None else words)
    try:
        _interrupt.end()
        code = _dispatch(words)
    except FedskewError as error:
        print(f"fedskew: {' '.join(str(error).split())}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        if os.environ.get("FEDSKEW_DEBUG"):
            raise
        print(
            f"fedskew: a fault of fedskew itself, {type(error).__name__}: {error}; FEDSKEW_DEBUG=1 shows where",
            file=sys.stderr,
        )
        code = 1
    sys.exit(code)


def _dispatch(words: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "run": _run,
        "methods": _methods,
        "datasets": lambda words: _names("datasets", "data", words),
        "partitions": lambda words: _names("partitions", "partition", words),
        "models": lambda words: _names("models", "model", words),
        "cite": _cite,
        "describe": _describe,
        "advise": _advise,
        "partition": _partition,
        "plot": _plot,
    }
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if words[0] == "--version":
        from fedskew import __version__

        print(__version__)
        return 0
    if words[0] not in commands:
        raise unknown("command", words[0], commands)
    if words[0] != "run" and ("--help" in words or "-h" in words):
        print(USAGE, end="")
        return 0
    return commands[words[0]](words[1:])


def _pull(words: list[str], flag: str) -> tuple[str | None, list[str]]:
    """(value of a flag or None, the other words). Raises ConfigError where it has none, or is given twice."""
    from fedskew.config.flags import ELSEWHERE

    found: list[str] = []
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word != flag and not word.startswith(f"{flag}="):
            others.append(word)
            continue
        value = word.partition("=")[2] if word != flag else next(rest, "--")
        if word == flag and value.startswith("--"):
            hint = {**ELSEWHERE, **HINTS}.get(flag, "see fedskew --help")
            raise ConfigError(f"{flag} must be followed by a value, {hint}")
        found.append(value)
    if len(found) > 1:
        raise ConfigError(f"{flag} must be given once; got {found[0]!r} and {found[1]!r}")
    return (found[0] if found else None), others


def _run(words: list[str]) -> int:
    from fedskew.config import experiment as config
    from fedskew.config.flags import experiment_from
    from fedskew.engines import choose
    from fedskew.settings import check_device

    if "--help" in words or "-h" in words:
        return _help([w for w in words if w not in ("--help", "-h")])
    resumed, words = _pull(words, "--resume")
    out, words = _pull(words, "--out")
    if resumed is not None:
        if words or out:
            raise ConfigError(
                f"--resume must stand alone: the run's own config.json decides; got {' '.join(words) or '--out'!r}"
            )
        experiment = config.load(Path(resumed) / "config.json") if Path(resumed).is_dir() else _no_run(resumed)
        folder = Path(resumed)
    else:
        experiment = experiment_from(words)
        folder = Path(out) if out else config.folder_of(experiment)
    choose(experiment.engine, experiment.device)  # a misspelt engine is told before data are read
    check_device(experiment.device)
    for note in _unused(experiment):
        print(f"fedskew: note: {note}", file=sys.stderr)
    with _Progress(experiment.method.name, experiment.rounds) as progress:
        result = experiment.run(folder, resume=resumed is not None, on_round=progress.update)
    return _report(experiment.method.name, result)


def _unused(experiment: Any) -> list[str]:
    """What was asked for and nothing reads: said, not refused, since runs that are compared share their options."""
    method, notes = experiment.method, []
    if experiment.auxiliary and not any(c.auxiliary for c in method.components):
        rows = "the server's rows are taken from the training set and left unused"
        notes.append(f"--auxiliary {experiment.auxiliary}: {method.name} does not read them; {rows}")
    if experiment.personal_every and not method.having("personalize"):
        notes.append(f"--eval.personal {experiment.personal_every}: {method.name} has no models of the clients' own")
    return notes


def _no_run(folder: str) -> Any:
    raise RecordError(f"--resume must be a run folder; got {folder!r}")


def _report(name: str, result: Any) -> int:
    s = result.summary
    if result.stopped:
        print(f"stopped after round {s['rounds']}; the record is kept, `fedskew run --resume {result.folder}` goes on")
        return 130
    parts = [
        f"accuracy {s['final_accuracy']:.4f} (mean of last 10: {s['mean10_accuracy']:.4f})",
        f"macro-F1 {s['final_macro_f1']:.4f}",
    ]
    if "final_personal_accuracy" in s:
        parts.append(f"clients' own models {s['final_personal_accuracy']:.4f}")
    print(f"{name}: {', '.join(parts)}; {s['rounds']} rounds in {s['total_wall_s']:.1f} s; {result.folder}")
    return 0


class _Progress:
    """A bar with round time, accuracy and time left; on a stream that is no terminal, ten lines a run."""

    def __init__(self, name: str, rounds: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.live = console.is_terminal
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=console, transient=True, disable=not self.live)
        self.task = self.bar.add_task(name, total=rounds, note="")
        self.name, self.rounds = name, rounds

    def __enter__(self) -> _Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, row: dict[str, Any]) -> None:
        """After a round."""
        accuracy = f"accuracy {row['accuracy']:.4f}  " if "accuracy" in row else ""
        note = f"{accuracy}{row['wall_s']:.2f} s a round"
        number = row["round"]
        self.bar.update(self.task, completed=number)
        if accuracy:
            self.bar.update(self.task, note=note)
        if not self.live and (number == self.rounds or number % max(1, self.rounds // 10) == 0):
            print(f"{self.name} round {number}/{self.rounds}  {note}", file=sys.stderr, flush=True)


def _help(words: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table

    from fedskew.config.flags import ALIASES, SLOTTED, experiment_from, options_of, table_names
    from fedskew.fields import choices

    experiment = experiment_from(words or ["fedavg"])
    short: dict[str, list[str]] = {}
    for name, full in ALIASES.items():
        short.setdefault(full, []).append(name)
    console = Console()
    names = Table(
        _folded("slot"),
        _folded("names"),
        title=f"fedskew run {experiment.method.name}: ingredients",
        title_justify="left",
    )
    for slot in (*SLOTTED, "parts"):
        names.add_row(f"--{slot}", ", ".join(table_names(slot)))
    console.print(names)
    table = Table(
        _folded("option"),
        _folded("value"),
        _folded("what it is"),
        title="options of this composition",
        title_justify="left",
    )
    for o in options_of(experiment):
        table.add_row(
            ", ".join([*short.get(o.flag, []), o.flag]), str(o.default), " ".join(o.help.split()) + choices(o.type)
        )
    console.print(table)
    console.print("also: --out FOLDER, --from RUN, --resume RUN", highlight=False)
    more = "`fedskew datasets`, `fedskew partitions` and `fedskew models` say what each name is, with its own options"
    console.print(more, highlight=False)
    return 0


def _folded(head: str) -> Any:
    """A column whose cells wrap: a name that must be typed is never cut."""
    from rich.table import Column

    return Column(head, overflow="fold")


def _methods(words: list[str]) -> int:
    from fedskew.catalogue.listing import catalogue, page

    rows = catalogue()
    if words == ["--json"]:
        print(json.dumps(rows, indent=1))
        return 0
    if words == ["--markdown"]:
        print(page(), end="")
        return 0
    if words:
        raise ConfigError(f"fedskew methods takes --json, --markdown or nothing; got {' '.join(words)!r}")
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
    return 0


def _names(command: str, slot: str, words: list[str]) -> int:
    """Every name that --data, --partition or --model takes, or those asked for."""
    from rich.console import Console
    from rich.table import Table

    from fedskew.catalogue.listing import named

    console = Console()
    view = Table(_folded(f"--{slot}"), _folded("what it is"), _folded(f"--{slot}.OPTION"), show_lines=True)
    for name, text, options in named(slot, words):
        if words:
            console.print("\n".join([name, "", text, "", *options, ""]), markup=False, highlight=False, soft_wrap=True)
        view.add_row(name, text, "\n".join(options) or "–")
    if not words:
        console.print(view)
        print(f"`fedskew {command} NAME` says what the options of NAME mean")
    return 0


def _cite(words: list[str]) -> int:
    from fedskew.catalogue.listing import citations

    if not words:
        raise ConfigError("fedskew cite needs at least one method or ingredient")
    print("\n\n".join(citations(words)))
    return 0


def _source(command: str, words: list[str]) -> Any:
    """What is described: a file of counts or of a partition, or the federation that the options name."""
    from fedskew.config.flags import experiment_from, split

    positional, flags = split(words)
    if len(positional) > 1 or (positional and flags):
        more = positional[1] if len(positional) > 1 else flags[0][0]
        raise ConfigError(f"fedskew {command} takes one FILE, or options; got {positional[0]!r} and {more!r}")
    return Path(positional[0]) if positional else experiment_from(["fedavg", *words]).federation()


def _only_options(command: str, words: list[str], hint: str) -> None:
    from fedskew.config.flags import split

    if positional := split(words)[0]:
        raise ConfigError(f"fedskew {command} takes options here; got {positional[0]!r}; {hint}")


def _describe(words: list[str]) -> int:
    from rich.console import Console

    import fedskew.data.describe as describe
    from fedskew.plots import canvas
    from fedskew.plots import skew as skewplots

    as_json = "--json" in words
    out, words = _pull([w for w in words if w != "--json"], "--out")
    path, to = canvas.target(out or "federation.png"), sys.stderr if as_json else sys.stdout
    source = _source("describe", words)
    found = describe.counted(source)
    dataset = getattr(source, "dataset", None)
    notes = list(dataset.notes) if dataset else []
    if as_json:
        print(json.dumps({**describe.describe(source), "notes": notes}, indent=1))
    else:
        Console().print(describe.describe_table(source))
        for note in notes:
            print(f"note: {note}")
    beside, overlap = (path.with_name(f"{path.stem}-{name}{path.suffix}") for name in ("histograms", "overlap"))
    drawn = skewplots.report(found.counts, (path, beside, overlap), title=found.title, class_names=found.class_names)
    for name, file in zip(("heat map", "histograms", "overlap"), drawn, strict=True):
        print(f"{name}: {file}", file=to)
    return 0


def _advise(words: list[str]) -> int:
    from rich.console import Console

    from fedskew.advice.adviser import advise
    from fedskew.advice.table import advice_table
    from fedskew.config.flags import experiment_from, split

    as_json = "--json" in words
    evidence, words = _pull([w for w in words if w != "--json"], "--evidence")
    measure, words = _pull(words, "--measure")
    top, words = _pull(words, "--top")
    if top is not None and not (top.isdecimal() and int(top) > 0):
        raise ConfigError(f"--top must be a whole number of at least 1; got {top!r}")
    source = _source("advise", words)
    told = {flag for flag, _ in split(words)[1]} & {"--model", "--from"}
    model = experiment_from(["fedavg", *words]).model.name if told else None
    found = advise(source, evidence, model=model, measure=measure or "accuracy", top=int(top or 5))
    print(json.dumps(found.to_json(), indent=1)) if as_json else Console().print(advice_table(found))
    return 0


def _partition(words: list[str]) -> int:
    from rich.console import Console

    from fedskew.cli import partition as command
    from fedskew.config.flags import experiment_from

    action, *words = words or [""]
    if action not in ("make", "show", "verify"):
        raise unknown("action of fedskew partition", action, ("make", "show", "verify"))
    out, words = _pull(words, "--out")
    if action == "make":
        _only_options("partition make", words, "the file is named by --out")
        path = command.free(out)  # before the data are read
        print(command.make(experiment_from(["fedavg", *words]).federation(), path))
        return 0
    if not words or words[0].startswith("--"):
        raise ConfigError(f"fedskew partition {action} needs a file")
    file, *words = words
    if action == "verify":
        match, words = _pull(words, "--match")
        _only_options("partition verify", words, "one FILE at a time")
        experiment = experiment_from(["fedavg", *words])
        dataset = experiment.data.load(experiment.path) if words else None
        print(command.verify(file, dataset, match or "dataset"))  # type: ignore[arg-type]
        return 0
    as_json = "--json" in words
    style, words = _pull([w for w in words if w != "--json"], "--style")
    measure, words = _pull(words, "--measure")
    if words:
        raise ConfigError(
            f"unknown option {words[0]!r} of fedskew partition show; it takes --json, --out FOLDER, --style, --measure"
        )
    shown = command.show(file, as_json=as_json, pictures=out, style=style or "auto", measure=measure or "overlap")  # type: ignore[arg-type]
    print(shown.body) if as_json else Console().print(shown.body)
    for picture in shown.pictures:
        print(f"picture: {picture}", file=sys.stderr if as_json else sys.stdout)
    return 0


def _plot(words: list[str]) -> int:
    from rich.console import Console

    import fedskew.plots.curves as plots
    import fedskew.plots.rounds as diagplots
    from fedskew.plots import canvas

    out, words = _pull(words, "--out")
    figure, words = _pull(words, "--figure")
    if figure is not None and figure not in diagplots.FIGURES:
        raise unknown("figure", figure, diagplots.FIGURES)
    flags = [w for w in words if w.startswith("--")]
    if flags:
        raise ConfigError(
            f"unknown option {flags[0]!r} of fedskew plot; it takes run folders, --figure NAME and --out PICTURE"
        )
    if not words:
        raise ConfigError("fedskew plot needs at least one run folder, or a folder that holds some")
    folders = plots.find_runs([Path(w) for w in words])
    name = "comparison.png" if figure is None else f"{figure}.png"
    target = Path(out) if out else (Path(words[0]) if len(words) == 1 else Path(".")) / name
    canvas.target(target)  # refused before anything is printed
    if figure is None:
        Console().print(plots.table(folders))
    print(f"picture: {diagplots.draw(figure or 'curves', folders, target)}")
    return 0
