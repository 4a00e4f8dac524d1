"""What a study shows while its runs are done, and the table at its end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Column, Table

from fedskew.cli.output import console, say
from fedskew.engines.runtime import Workers
from fedskew.errors import plural, visible

if TYPE_CHECKING:
    from fedskew.studies.clients import ByClient
    from fedskew.studies.study import Planned, Study
    from fedskew.studies.work import Outcome


ALIKE = 0.01  # difference of two methods' work that is none
PLUS_MINUS = "± is the standard deviation over the seeds; the interval is Student's, of paired differences"
NAMED, WORST = 10, 20  # clients that are shown unasked; that are shown at most
LISTED = 8  # runs in progress that the live table names


class StudyProgress:
    """A live table of methods with time left; a line a run where the stream is no terminal."""

    def __init__(self, study: Study, total: int, processes: int) -> None:
        self.total, self.processes = total, processes or Workers.cores()
        self.done, self.lost = 0, list[str]()
        self.metrics = study.spec.metric, study.spec.trial[1]  # of a run that is compared, of a trial
        self._labels = list(dict.fromkeys(p.cell.label for p in study.plan()))
        self._ended: Counter[tuple[str, str]] = Counter()
        self._running: dict[str, tuple[Planned, float]] = {}
        self._began = time.monotonic()
        view = console(stderr=True)
        self.live = Live(console=view, transient=True, refresh_per_second=2) if view.is_terminal and total else None

    def __enter__(self) -> StudyProgress:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def began(self, one: Planned) -> None:
        """A run begins."""
        self._running[one.address] = one, time.monotonic()
        self._draw()

    def ended(self, outcome: Outcome, one: Planned) -> None:
        """A run ended."""
        self.done += 1
        self._running.pop(outcome.address, None)
        self._ended[one.cell.label, outcome.state] += 1
        where = f"{one.cell.label}, {one.cell.setting}, seed {one.cell.seed}" + (
            f", trial {one.cell.trial}" if one.cell.trial >= 0 else ""
        )
        told = f"{self.metrics[one.cell.trial >= 0]} " if outcome.score is not None else ""
        told += f"{outcome.score:.4f}" if outcome.score is not None else outcome.state
        if outcome.state in ("broken", "interrupted"):
            self.lost.append(f"fedskew: {where}: {outcome.reason}; the same command tries it again")
        if self.live:
            self._draw()
        else:
            why = f": {outcome.reason}" if outcome.state not in ("finished", "interrupted") else ""
            left = f", {self.left} left" if self.done < self.total else ""
            say(f"[{self.done}/{self.total}] {where}: {told}{why} ({outcome.seconds:.1f} s{left})", sys.stderr)

    @property
    def left(self) -> str:
        """Time left, from the runs that are done."""
        passed = time.monotonic() - self._began
        return duration(passed / max(self.done, 1) * (self.total - self.done))

    def _draw(self) -> None:
        if self.live:
            table = Table("method", "done", "failed", title=f"{self.done} of {self.total} runs, {self.left} left")
            for label in self._labels:
                bad = sum(n for (name, state), n in self._ended.items() if name == label and state != "finished")
                table.add_row(visible(label), str(self._ended[label, "finished"]), str(bad or ""))
            now = time.monotonic()
            for one, begun in list(self._running.values())[:LISTED]:
                table.caption = f"now: {visible(one.cell.label)}, seed {one.cell.seed}, {now - begun:.0f} s"
            self.live.update(table)


def summary_table(study: Study, fitted: bool = False) -> Iterator[Any]:
    """A table of each setting: mean and deviation of the metric, and the difference from the baseline.

    With ``fitted`` the same of the fitted models beside it, a sentence on each method, and the fitted models of each
    as a method of their own, against the raw baseline and in the ranking.
    """
    from fedskew.records.summary import in_words
    from fedskew.studies.fitted import beside, fitted_name
    from fedskew.studies.statistics import average_ranks, differences, pairs_needed, summaries

    metric, base = study.spec.metric, study.spec.reference
    rows, scores = study.table(), study.scores()
    told = {(d.method, d.setting): d for d in differences(scores, base)}
    name = fitted_name(metric) if fitted else ""
    if fitted and not any(name in row for row in rows):
        yield f"no run has {name}; --fit-logits tail also measures fitted models in the last ten rounds"
        fitted = False
    control = study.scores(name) if fitted else None
    second = {} if control is None else {(s.method, s.setting): s for s in summaries(control)}
    gaps = {} if control is None else {(d.method, d.setting): d for d in differences(control, base)}
    doubled = study.scores(fitted=fitted)
    made = [s for s in summaries(doubled) if s.method not in scores.methods]
    family = doubled.select([base, *dict.fromkeys(s.method for s in made)])  # its p are corrected by themselves
    others = {(d.method, d.setting): d for d in differences(family, base)} if made else {}
    counts, works = study.evaluations(), study.works()
    gradients = {one.cell.label: _gradients(one) for one in study.plan()}
    worked = any(abs(ratio - 1) > ALIKE for ratio in works.values()) or any(gradients.values())
    for setting in scores.settings:
        named, difference = "" if setting == "all" else visible(setting), f"difference from {visible(base)} (95 % CI)"
        whole = Column(metric, overflow="fold")
        table = Table(
            "method", *(("raw", difference, "fitted", difference) if fitted else (whole, difference)),
            *(["work a round"] if worked else []), "seeds",
        )  # fmt: skip
        table.title = ": ".join(filter(None, (named, in_words(metric) + f" ({metric})" * fitted)))
        table.caption = PLUS_MINUS
        differing = len({n for key, n in counts.items() if key[1] == setting}) > 1
        for found in (s for s in summaries(scores) if s.setting == setting):
            mine = [row for row in rows if (row["label"], row["setting"]) == (found.method, setting)]
            states = Counter(row["state"] for row in mine if row["state"] != "finished")
            lost = ", ".join(f"{n} {state}" for state, n in states.items())
            why = next((row["reason"] for row in mine if row["reason"]), "")
            notes = visible(f"({lost}: {why})" if why else f"({lost})") if lost else ""
            key = found.method, setting
            cells = [visible(found.method), " ".join(filter(None, (_mean(found), notes))), _difference(told.get(key))]
            cells[1] += f" of {plural(counts[key], 'evaluation')}" if differing and key in counts else ""
            cells += [_mean(second[key]), _difference(gaps.get(key))] if fitted else []
            cells += [_work(works.get(key), gradients[found.method])] if worked else []
            table.add_row(*cells, str(found.runs))
        table.add_section()
        for found in (s for s in made if s.setting == setting):
            cells = [visible(found.method), _mean(found), _difference(others.get((found.method, setting)))]
            table.add_row(*cells, "", "", *([""] if worked else []), str(found.runs))
        yield table
        yield from (visible(beside(told[key], gaps[key])) for key in gaps if key[1] == setting)
    if worked:
        steps = f"local steps of all clients together, as a multiple of those of {visible(study.plain)}"
        yield f"work a round: {steps}; --equal-work gives all methods as many epochs"
    yield from map(visible, [*_served_notes(study), *_tuned_notes(study)])
    if made and len(scores.settings) > 1:
        ranked = average_ranks(doubled)
        table = Table("method", "average rank", title=f"{metric}: 1 is the best")
        for method, rank in zip(ranked.methods, ranked.ranks, strict=True):
            table.add_row(visible(method), f"{rank:.2f}")
        yield table
        yield visible(ranked.conclusion)
    if len(study.spec.seeds) < (needed := pairs_needed()):
        seeds = plural(len(study.spec.seeds), "seed")
        yield f"{seeds}: a rank test needs at least {needed} pairs to find a difference at 5 %; use the intervals"


def clients_tables(study: Study, wanted: bool) -> Iterator[Any]:
    """What each client would use, a table of each setting; unless ``wanted``, only of up to ten clients with names."""
    from fedskew.records.clients import read_clients
    from fedskew.studies.clients import DEALT, by_client, few_rows, is_natural

    ended = [(one.cell, entry) for one, entry in study.entries() if entry and entry.state == "finished"]
    runs = [(cell.label, cell.setting, read_clients(entry.folder)) for cell, entry in ended]
    found = by_client(runs)
    few = len({one.client for one in found}) <= NAMED and any(is_natural(rows) for *_, rows in runs)
    if wanted and not found:
        yield "no run of this study has rows of its clients; run it again with --clients-every 1"
    if not found or not (wanted or few):
        return
    labels = ended[0][1].config.get("label_names", ())
    for setting in dict.fromkeys(one.setting for one in found):
        yield clients_table([one for one in found if one.setting == setting], "" if setting == "all" else setting)
    yield from map(visible, few_rows(found, labels)[:WORST])
    if any(one.dealt for one in found):
        yield DEALT


def clients_table(found: Sequence[ByClient], setting: str = "") -> Table:
    """Clients, the worst first, each with its methods below it."""
    from fedskew.studies.clients import SAMPLING, in_cells

    names = list(dict.fromkeys(one.client for one in found))
    told = f"the worst {WORST} of {len(names)} clients" if len(names) > WORST else "the worst client first"
    title = visible(": ".join(filter(None, (setting, f"what each client would use, {told}"))))
    view = Table(box=None, pad_edge=False, header_style="dim", title=title, caption=SAMPLING)
    heads = ("accuracy", "sampling, 95 %", "seeds, sd", "balanced", "AUROC", "ECE")
    view.add_column("client, test rows", overflow="fold")
    for head in heads:
        view.add_column(head, justify="right", no_wrap=True)
    for name in names[:WORST]:
        mine = [one for one in found if one.client == name]
        view.add_row(f"{visible(name)}, {mine[0].rows:,}")
        for one in mine:
            cells = in_cells(one, ())
            view.add_row(f"  {visible(one.method)}", *(cells[head] for head in heads))
    return view


def _work(ratio: float | None, gradients: str) -> str:
    """As in "×5.50" or "×1.00, 2 gradients a step"."""
    return ", ".join(filter(None, (f"×{ratio:.2f}" if ratio is not None else "", gradients)))


def _gradients(one: Planned) -> str:
    """What a local step costs beside one gradient, as the components say."""
    parts = one.cell.experiment.method.components if one.cell.experiment else ()
    return "; ".join(part.compute for part in parts if "gradient" in part.compute)


def _served_notes(study: Study) -> Iterator[str]:
    """What the metric leaves out of methods that give clients models of their own, and who has no such metric."""
    spec = study.spec
    served = "--metric mean10_served_accuracy"
    own = {s: [name for name, found in spec.serves.items() if found == s] for s in ("own", "both", "global")}
    if spec.metric.partition("_")[2].startswith("personal_") and own["global"]:
        yield f"{', '.join(own['global'])}: no models of clients' own, so no {spec.metric}; {served} joins all methods"
    elif not spec.own_models and own["own"]:
        told = "clients use models of their own, and this is the metric of a global model that nobody uses"
        yield f"{', '.join(own['own'])}: {told}; {served} judges what clients use"
    if not spec.own_models and own["both"]:
        yield f"{', '.join(own['both'])}: clients also get models of their own; {served} judges them"


def _tuned_notes(study: Study) -> Iterator[str]:
    """What the tuning chose."""
    for (label, setting), options in study.chosen.items():
        where = "" if setting == "all" else f", {setting}"
        chosen = ", ".join(f"{option} {value}" for option, value in options)
        yield f"tuned: {label}{where}: {chosen} (by {study.spec.trial[1]} on rows that are not those of the test)"


def _mean(found: Any) -> str:
    """As in "0.8123 ± 0.0101"."""
    return "" if found.mean is None else f"{found.mean:.4f}{'' if found.sd is None else f' ± {found.sd:.4f}'}"


def _difference(found: Any) -> str:
    """As in "+0.0123 (0.0010 to 0.0236)", with what the signed-rank test concludes."""
    if found is None or found.mean is None:
        return ""
    span = "" if found.low is None else f" ({found.low:+.4f} to {found.high:+.4f})"
    return f"{found.mean:+.4f}{span}{'' if found.verdict == 'open' else f' {found.verdict}'}"


def duration(seconds: float) -> str:
    """As in "40 s", "12 min" or "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
