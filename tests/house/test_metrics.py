"""A metric stands in one table, `METRICS` in records/metrics.py, from which all other lists of metrics are made."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from fedskew.records import metrics
from fedskew.records.metrics import METRICS, metric_of
from support.paths import ROOT

SOURCE = ROOT / "src/fedskew"
TABLE = SOURCE / "records/metrics.py"
NAMES = {m.name for m in METRICS} | {m.client for m in METRICS if m.client}
BEFORE = re.compile(r"^(?:final_|best_|mean\d+_)?(?:(?:part|val|local|personal|served|heldout|fitted|averaged)_)*")
EXCEPTIONS = {  # file -> the metrics that it may name, with a reason
    "advice/evidence.py": {"accuracy", "macro_f1"},  # the columns that evidence.json has
    "cli/evaluate.py": {"auroc", "auprc"},  # of one positive class, as records/decisions.py measures them
    "cli/progress.py": {"accuracy", "macro_f1"},  # a sentence
    "cli/records.py": {"accuracy", "loss"},  # the curves that are drawn unless others are asked for
    "engines/fitting.py": {"accuracy", "loss"},  # measured of the fit that counts rows
    "plots/curves.py": {"accuracy", "macro_f1"},  # a picture of its own
    "records/clients.py": {"accuracy", "per_class_recall", "loss"},  # what every row of clients.jsonl has
    "records/decisions.py": {"auroc", "auprc"},  # of one positive class, under the weights of a bootstrap
}


def listed(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Lists, dicts and classes whose entries are named by two metrics or more, with their lines."""
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict):
            inner = ast.walk(node)
            words = [one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        elif isinstance(node, ast.ClassDef):
            words = [
                one.target.id
                for one in node.body
                if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
            ]
        found = {name for word in words if (name := BEFORE.sub("", word)) in NAMES}
        if len(found) > 1:
            yield node.lineno, found


def test_no_other_file_lists_metrics_by_hand() -> None:
    files = {path.relative_to(SOURCE).as_posix(): path for path in SOURCE.rglob("*.py") if path != TABLE}
    by_hand = {name: [*listed(ast.parse(path.read_text(encoding="utf-8")))] for name, path in files.items()}
    named = {name: set[str]().union(*(metrics for _, metrics in found)) for name, found in by_hand.items() if found}
    assert named == EXCEPTIONS, by_hand


def test_names_of_the_table_are_different_and_found_behind_spans() -> None:
    assert len({m.name for m in METRICS}) == len(METRICS)
    for one in METRICS:
        assert metric_of(f"mean10_heldout_{one.name}") is one and one.title


def test_a_metric_is_added_by_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CONTRIBUTING promises: evaluations, client rows and sentences follow from the entry."""
    import torch

    from fedskew.records.summary import metric_words, more_is_better

    worst = metrics.Metric("worst_precision", "matrix", lambda m: m.precision.min(), "worst precision")
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, worst))
    assert metrics.from_confusion(torch.tensor([[8, 2], [1, 4]]))["worst_precision"] == pytest.approx(4 / 6)
    assert metrics.named("matrix")[-1] == "worst_precision"
    assert metric_words("heldout_worst_precision") == "heldout worst precision" and more_is_better("worst_precision")
