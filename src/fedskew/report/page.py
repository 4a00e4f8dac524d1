"""A comparison as one HTML page: no file beside it, no address in it, at most 2 MB for 500 runs."""

import base64
import hashlib
import shlex
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

from fedskew import __version__
from fedskew.errors import ConfigError, install
from fedskew.plots import canvas
from fedskew.plots.curves import ACROSS
from fedskew.plots.drawing import Picture, inline
from fedskew.report import controls, figures, listings, sentences
from fedskew.report.clients import clients
from fedskew.report.compared import Compared, compare
from fedskew.report.entries import LabelledRun, Trial
from fedskew.report.figures import Detail
from fedskew.report.reached import checked, reached
from fedskew.report.scored import scored
from fedskew.report.tables import TEXTS, ReportTable, Section, Side

OPEN = 12  # rows of a table of options that is not folded


def build(
    entries: Iterable[LabelledRun | tuple[str, str, int | str, Any]],
    *,
    title: str = "",
    metric: str | None = None,
    baseline: str | None = None,
    command: str = "",
    notes: Sequence[str] = (),
    trials: Sequence[Trial] = (),
    targets: Sequence[float] = (),
) -> str:
    """Make the page that compares runs.

    Args:
        entries: (method, setting, seed, run) of each run, as `from_folders` makes them.
        title: Title of the page; empty: the methods.
        metric: A metric of the rounds, such as "accuracy", which is compared by its mean over the last 10 rounds, or a
            number of a summary, such as "final_accuracy".
        baseline: The method that others are compared with; None: "fedavg" if present, else the first.
        command: The command that repeats these runs, in one or more lines.
        notes: Sentences for the reader, for example on runs that were refused.
        trials: Tuning trials, if any.
        targets: Values of the metric whose cost is shown; none: shares of the best mean of each setting.

    Returns:
        The page. Equal arguments give equal pages.

    Raises:
        RecordError: There is no run, or no run was evaluated.
        ConfigError: Two runs have the same method, setting and seed; no run has the metric; the baseline is not one of
            the methods; a target is not finite; Jinja2 or matplotlib is missing.

    Example:
        >>> import fedskew as fs
        >>> from fedskew import report
        >>> fed = fs.federate("digits", "iid", clients=4)
        >>> for seed in (0, 1):
        ...     _ = fs.run(fed, fs.methods.fedavg(), model="logistic", rounds=2, seed=seed, out=f"runs/{seed}")
        >>> report.build(report.from_folders(["runs"]), title="Two seeds")[:15]
        '<!DOCTYPE html>'
    """
    template = _template()
    compared = compare([LabelledRun(*entry) for entry in entries], metric, baseline)
    page_sections = sections(compared, Detail(), command=command, notes=notes, trials=trials, targets=targets)
    style, script = _asset("style.css"), _asset("page.js")
    return str(
        template.render(
            title=title or f"{', '.join(compared.methods[:4])}{' and more' if len(compared.methods) > 4 else ''}",
            lead=sentences.compared_what(compared), sections=page_sections, version=__version__,
            style=style, script=script, style_hash=_hash(style), script_hash=_hash(script), draw=inline,
            is_table=lambda part: isinstance(part, ReportTable), units=tuple(ACROSS),
        )
    )  # fmt: skip


def _template() -> Any:
    """The page's template. Raises ConfigError that names the extra where Jinja2 or matplotlib is missing."""
    canvas.matplotlib()
    try:
        import jinja2
    except ImportError:
        raise ConfigError(f"a report needs jinja2, which is not installed; {install('report')}") from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedskew.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["clean"] = _clean
    return environment.get_template("report.html")


def _clean(text: str, most: int = 10**6) -> str:
    """Text of others on one line, its control characters written out, cut to a length; Jinja2 escapes it."""
    return canvas.short(text.replace("\n", " ").replace("\t", " "), most)


def _asset(name: str) -> str:
    return (resources.files("fedskew.report") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As the page's own policy names what it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def sections(
    compared: Compared,
    detail: Detail,
    *,
    command: str = "",
    notes: Sequence[str] = (),
    trials: Sequence[Trial] = (),
    targets: Sequence[float] = (),
) -> list[Section]:
    """The page as plain values: what `build` renders, and `fedskew.report.paper` writes for a paper.

    Args:
        compared: What was compared.
        detail: How much is shown.
        command: As for `build`.
        notes: As for `build`.
        trials: As for `build`.
        targets: As for `build`.

    Returns:
        The sections, in order.
    """
    shown, settings = _methods(compared, detail.methods), compared.settings[: detail.settings]
    heads = TEXTS["introduced"]
    left_out, written = _left_out(compared, detail, shown), _left_out(compared, detail, shown, TEXTS["written"])
    coloured = [TEXTS["coloured"].format(baseline=compared.baseline)] * (len(compared.methods) > 1)
    work = controls.work(compared)
    splits = [figures.federation(compared, s) for s in compared.settings[: detail.heats]]
    pairs = [(m, s) for s in settings for m in shown][: detail.matrices]
    charts = [tuple(figures.curves(compared, s, shown, detail.points)) for s in settings]
    heats = [(figures.recalls(compared, s, shown), s) for s in settings]
    together = [None] * (len(compared.methods) > 1 and len(compared.settings) > 1)
    results = [listings.results(compared, s) for s in (*together, *compared.settings)]
    costs = [listings.costs(compared, s) for s in compared.settings]
    options, how = listings.options(compared), heads["how"].format(baseline=compared.baseline)
    open_ = tuple(t for t in options if t.key != "shared" and len(t.rows) <= OPEN)
    rest = tuple(t for t in options if t not in open_)
    ranked = compared.ranks is not None and len(compared.ranks.settings) > 1
    page_sections = [
        Section(
            "verdict", "Result", (sentences.headline(compared),), _drawn([figures.gains(compared)]),
            tuple(sentences.verdict(compared)),
        ),
        Section("cautions", "What these numbers do not show", listed=(*notes, *sentences.cautions(compared))),
        Section("results", "Results", parts=tuple(results)),
        Section("curves", "Curves", (heads["curves"], *left_out), tuple(filter(None, charts))),
        Section(
            "recalls", "Recall of each class", (*coloured, *left_out),
            tuple(listings.recalls(compared, heat, s) for heat, s in heats if heat),
        ),
        clients(compared, settings, (*coloured, *written)),
        scored(compared, settings, shown, written),
        Section("ranks", "Ranks", (heads["ranks"],), (listings.ranks(compared),) if ranked else ()),
        Section("cost", "Cost", parts=(*costs, *([work] if work else ()))),
        reached(compared, settings, shown, checked(targets), written),
        Section(
            "federation", "The federation", (heads["federation"],), _drawn([heat for heat, _ in splits]),
            tuple(f"{s}: {text}" if s else text for s, (_, text) in zip(compared.settings, splits, strict=False)),
        ),
        Section(
            "confusion", "Confusion matrices", (heads["confusion"], *left_out),
            _drawn([figures.confusion(compared, m, s) for m, s in pairs]),
        ),
        Section("tuning", "Tuning", (heads["tuning"],), (listings.tuned(trials),) if trials else ()),
        Section("how", "What was compared, and how", (how,), open_, folded=rest),
        Section("runs", "Runs and environments", folded=(listings.runs(compared),)),
        _again(compared, command),
    ]  # fmt: skip
    return [s for s in page_sections if s.parts or s.listed or s.code or s.folded]


def _drawn(pictures: Sequence[Picture | None]) -> tuple[Side, ...]:
    """The pictures that there are, side by side."""
    shown = tuple(picture for picture in pictures if picture is not None)
    return (shown,) if shown else ()


def _methods(compared: Compared, most: int) -> list[str]:
    """The methods that pictures show: the best, and the baseline always."""
    best = list(compared.order[:most])
    return best if compared.baseline in best else [*best[:-1], compared.baseline]


def _left_out(compared: Compared, detail: Detail, shown: Sequence[str], whole: str = TEXTS["whole"]) -> tuple[str, ...]:
    """What a section leaves out, in words."""
    notes = []
    if len(compared.settings) > detail.settings:
        notes.append(f"The first {detail.settings} of {len(compared.settings)} settings are shown here; {whole}.")
    if len(compared.methods) > len(shown):
        best = f"The {len(shown)} methods of {len(compared.methods)} with the best ranks"
        notes.append(f"{best} are shown here; {whole}.")
    return tuple(notes)


def _again(compared: Compared, command: str) -> Section:
    text = ["The same configuration and seed give the same numbers on one machine and one version of torch."]
    if command:
        return Section("again", "Repeat it", tuple(text), code=command)
    text.append("This command repeats one run; the table of runs names the others' folders.")
    if any(entry.run.config.get("started_by") == "python" for entry in compared.entries):
        text.append("Runs that were started from Python are repeated by their program.")
    if any(entry.run.config.get("own_data") for entry in compared.entries):
        text.append("Runs over Flower on the nodes' own rows are repeated by `sh run.sh` of their app.")
    first = shlex.quote(str(compared.entries[0].run.folder))
    return Section("again", "Repeat it", (" ".join(text),), code=f"fedskew run --from {first} --out again")
