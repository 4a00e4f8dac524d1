"""Runs for reports: made up in memory, as many as a test wants, and pages read back."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew.config.recorded import Run
from fedskew.records.metrics import EACH, from_mixes
from fedskew.records.summary import summarise
from fedskew.report import LabelledRun, build

ENVIRONMENT = {"versions": {"fedskew": "0.1.0", "torch": "2.6.0"}, "python": "3.11.2", "platform": "Linux", "cores": 2}


def made_run(
    folder: Path | str = "run",
    method: str = "fedavg",
    seed: int = 0,
    level: float = 0.5,
    rounds: int = 20,
    names: tuple[str, ...] = ("a", "b", "c"),
    clients: int = 8,
    **config: Any,
) -> Run:
    """A run whose accuracy rises to a level, with noise of its seed."""
    spent = sum(map(ord, method))
    gen = np.random.Generator(np.random.PCG64([seed, len(method), spent]))
    classes = len(names)
    rows = []
    for r in range(1, rounds + 1):
        accuracy = float(np.clip(level * r / rounds + 0.02 * gen.normal(), 0, 1))
        recall = np.clip(accuracy + 0.1 * gen.normal(size=classes), 0, 1)
        rows.append(
            {
                "round": r, "accuracy": accuracy, "macro_f1": accuracy * 0.9, "balanced_accuracy": float(recall.mean()),
                "g_mean": 0.3, "worst_class_recall": float(recall.min()), "loss": 2 - accuracy,
                "per_class_recall": recall.tolist(), "support": [50] * classes,
                "upload_bytes": 192200 * (1 + spent % 3), "download_bytes": 192200,
                "samples": 300, "steps": 20, "wall_s": 0.1 + 0.03 * (spent % 7),
            }
        )  # fmt: skip
    counts = gen.integers(0, 40, (clients, classes)).tolist()
    spec = {
        "name": method, "parts": [{"name": "cross_entropy"}], "pace": {"name": "fixed", "epochs": 2, "lr": 0.1},
        "weighting": {"name": "size"}, "server": {"name": "plain", "lr": 1.0},
    }  # fmt: skip
    known = {
        "method": spec, "data": {"name": "digits"}, "partition": {"name": "dirichlet", "alpha": 0.1}, "rounds": rounds,
        "model": {"name": "mlp", "hidden": 128}, "clients": clients, "cohort": 4, "seed": seed, "device": "cpu",
        "label_names": list(names), "counts": counts, "engine_used": "batched", "started_by": "python",
    }  # fmt: skip
    summary = summarise(rows, class_names=names)
    right = np.rint(np.array(rows[-1]["per_class_recall"]) * 50).astype(int)
    confusion = np.diag(right)
    confusion[np.arange(classes), (np.arange(classes) + 1) % classes] += 50 - right
    summary["final_confusion"] = confusion.tolist()
    each = {name: gen.uniform(size=classes).tolist() for name in EACH}
    mixes = from_mixes(torch.from_numpy(confusion), torch.tensor(counts))
    scores = dict(zip(("auroc_macro", "auprc_macro", "recall_at_precision_macro", "ece"), gen.uniform(size=4).tolist(),
                      strict=True))  # fmt: skip
    summary |= {f"final_{name}": value for name, value in (scores | mixes | each).items()}
    return Run(Path(folder), {**known, **config}, rows, summary)


def study(methods: int, settings: int, seeds: int, tmp: Path | None = None, **more: Any) -> list[LabelledRun]:
    """Runs of every method under every setting; with a folder, their environments stand there."""
    entries = []
    for m in range(methods):
        for s in range(settings):
            for k in range(seeds):
                folder = Path(f"runs/{m:03d}{s:03d}{k:03d}abcdef0123456789")
                if tmp is not None:
                    folder = tmp / folder
                    folder.mkdir(parents=True)
                    started = f"2026-01-01T00:{m % 60:02d}:{k % 60:02d}+0000"
                    (folder / "env.json").write_text(json.dumps({**ENVIRONMENT, "started": started}))
                partition = {"name": "dirichlet", "alpha": 0.01 * (s + 1)}
                name = f"method{m}"
                run = made_run(folder, name, k, 0.4 + 0.3 * m / methods, partition=partition, **more)
                entries.append(LabelledRun(name, f"alpha {0.01 * (s + 1):g}" if settings > 1 else "", k, run))
    return entries


def parsed(page: str) -> ET.Element:
    """The page as XML: every element is closed, every attribute quoted, every sign escaped."""
    kind, _, rest = page.partition("\n")
    assert kind == "<!DOCTYPE html>"
    return ET.fromstring(rest)


def sections(page: str) -> dict[str, str]:
    """Text of each section, by its key."""
    return {s.attrib["id"]: words_of(s) for s in parsed(page).iter("section")}


@contextmanager
def undrawn() -> Iterator[None]:
    """Pages are built without their pictures, which take most of the time. Also a decorator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedskew.report.page.inline", lambda _: "data:,")
        yield


@undrawn()
def page_of(entries: list[LabelledRun], **asked: Any) -> ET.Element:
    """The page that compares these runs, parsed, without pictures."""
    return parsed(build(entries, **asked))


def sections_of(entries: list[LabelledRun], **asked: Any) -> dict[str, str]:
    """Text of each section of the page that compares these runs, by its key."""
    return {s.attrib["id"]: words_of(s) for s in page_of(entries, **asked).iter("section")}


def words_of(element: ET.Element) -> str:
    """All text of an element, without scripts and styles."""
    for hidden in [*element.iter("script"), *element.iter("style")]:
        hidden.text = ""
    return re.sub(r"\s+", " ", " ".join(element.itertext()))
