"""Command lines of ``fedskew compare`` and study files that nobody would write."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from fedskew.methods import METHODS
from support.grammar import WORDS, Grammar

__all__ = ["OWN", "STUDY", "CompareGrammar", "toml_of"]

OWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # flag -> (values that it takes, values that it refuses)
    "--seeds": (
        ("0", "0-1", "1,0", "00", "0 - 1", "٣"),
        ("0,0", "3-1", "-1", "0-", "0-10001", "1e3", "9" * 50, "0-1,1-2", "²"),
    ),
    "--shard": (
        ("1/1", "2/2", "1/3", "3/" + "9" * 9),
        ("0/1", "3/2", "1/0", "1/", "/", "1/2/3", "-1/2", "1/" + "9" * 30, "²/2", "٣/٣"),
    ),
    "--processes": (("1", "2", "٣", "9" * 18), ("0", "-1", "1.0", "1e3", "²", "9" * 20, "1" * 5_000)),
    "--tune": (
        ("lr=log:0.01..0.3", "lr=0.01..0.1,momentum=0..0.9", "epochs=int:1..2", "lr=0..1", "lrr=0..1", "--lr=0..1",
         "rounds=int:1..2", "seed=int:0..3", "validation=0..1", "parts=0..1", "method=0..1", "data=0..1", "lr=0..1e300",
         "lr=int:0..1e300", "lr=-1e308..1e307", "epochs=int:0.2..0.7", "lr=log:1e-320..1e-310", "cohort=int:1..9"),
        ("lr=log:0..1", "lr=1..0", "lr=nan..1", "lr=0..inf", "lr=0..1e400", "lr", "=0..1", "lr=", "lr=-1e308..1e308"),
    ),
    "--tune-trials": (("2", "3"), ("1", "0", "-2", "9" * 5_000, "1000000000000000000", "²")),
    "--metric": (
        ("final_accuracy", "final_loss", "total_upload_bytes"),
        ("worst_class", "label", "state", "collapsed", "best", "finalaccuracy", "final_confusion"),
    ),
    "--baseline": (("fedavg",), ("fedla", "FedAvg")),
    "--title": (WORDS, ("",)),
    "--track": (
        ("tensorboard",),
        ("tensorboard,tensorboard", "", ",", "tensorbord", "wandb,,", " ", "mlflow;wandb"),
    ),
    "--out": (("study", "study2"), ("table.csv", "a" * 300, "/dev/null", "table.npz/x")),
}  # fmt: skip
LISTS = (  # several values of an option of the runs
    ("--lr", "0.1,1"), ("--lr", "0.1,nan"), ("--partition.alpha", "0.1,1"), ("--epochs", "1,2,3"), ("--lr", " 1 , 2 "),
    ("--parts", "proximal;cross_entropy"), ("--weighting", "size,uniform"), ("--model", "logistic,mlp"),
    ("--partition", "iid,shards"), ("--seed", "1,2"), ("--rounds", "1,2"), ("--clients", "3,4"), ("--cohort", "2,9"),
    ("--lr", "1,1"), ("--lr", "1,,2"), ("--data", ","), ("--parts", ";"), ("--epochs", "1;2"), ("--lr", "none,1"),
    ("--partition", "iid,nope"), ("--engine", "auto,threaded"), ("--validation", "0,0.5"),
)  # fmt: skip

STUDY: dict[str, Any] = {
    "title": "A study",
    "methods": ["fedavg", "fedbal(weighting=uniform)"],
    "seeds": "0-1",
    "metric": "final_accuracy",
    "baseline": "fedavg",
    "controls": True,
    "notes": "notes",
    "tune": {"lr": "log:0.01..0.1"},
    "tune_trials": 2,
    "options": {"clients": 3, "cohort": 2, "rounds": 1, "partition": {"name": "dirichlet", "alpha": [0.1, 1]}},
    "settings": [{"lr": 0.1}, {"lr": 0.2, "epochs": 1}],
    "method": {"plain": {"method": "fedavg", "weighting": "uniform"}},
}


def toml_of(content: dict[str, Any]) -> str:
    """A mapping as TOML, a line for each entry; what TOML does not have, such as null, stays as JSON has it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # what is written may be nested deep
    try:
        return "".join(f"{_toml(str(key), True)} = {_toml(value)}\n" for key, value in content.items())
    finally:
        sys.setrecursionlimit(before)


def _toml(value: Any, key: bool = False) -> str:
    if isinstance(value, dict) and not key:
        return "{" + ", ".join(f"{_toml(str(k), True)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # nan and inf are TOML's, too
    return json.dumps(value)


class CompareGrammar(Grammar):
    """Draws command lines of ``compare``: its own options, methods in brackets, study files, options of the runs.

    Args:
        seed: Of the draws.
        data: As for `Grammar`.
        files: As for `Grammar`.
        studies: Study files, good ones and bad ones.
    """

    def __init__(self, seed: int, data: Sequence[Sequence[str]], files: Sequence[str], studies: Sequence[str]) -> None:
        super().__init__(seed, data, files)
        self.studies = list(studies)

    def line(self, number: int) -> list[str]:
        """The words after ``fedskew``. Most lines do nothing, since they end with --dry-run; others are tiny."""
        if self.often(0.25):
            words = ["compare", self.pick(self.studies), *self._own(("--seeds", "--shard", "--processes", "--out"))]
        else:
            several = int(self.gen.integers(1, 4))
            words = ["compare", *dict.fromkeys(["fedavg"] * self.often(0.7) + [self._method() for _ in range(several)])]
            words += ["--clients", "3", "--cohort", "2", "--rounds", "1", "--model", "logistic", "--epochs", "1"]
            words += [*self.pick(self.data), *self._own(tuple(OWN))]
            if self.often(0.3):
                words += self._options(["fedavg", *words[words.index("--clients") :]], 1, replaced=words)
            if self.often(0.4):
                flag, value = self.pick(LISTS)
                self._without(words, {flag})
                words += [flag, value]
        words += ["--store", self.pick(("store", f"store{number}") if self.often(0.9) else self.files)]
        words += ["--dry-run"] * self.often(0.7)
        return self._spoilt(words) if self.often(0.15) else words

    def _method(self) -> str:
        """A method, half the time with options of its own in brackets."""
        name = self.pick(sorted(METHODS)) if self.often(0.97) else str(self.pick(WORDS))
        if self.often(0.5):
            return name
        words = self._options([name if name in METHODS else "fedavg"], 1)
        pairs = " ".join(words).split(" --")
        inner = [pair.removeprefix("--").replace(" ", "=", 1) for pair in pairs]
        if self.often(0.1):
            inner.append(str(self.pick((*WORDS, "lr", "=", "lr=", "=1", "lr=(1)", "lr=0.1,lr=0.2", "weighting"))))
        shut = self.pick((")", "", "))", ") x")) if self.often(0.1) else ")"
        return f"{name}({', '.join(inner)}{shut}"

    def _own(self, flags: Sequence[str]) -> list[str]:
        """Options of ``compare`` itself, most of them with a value that they take."""
        words: list[str] = []
        for flag in flags:
            if self.often(0.2):
                fine, refused = OWN[flag]
                value = self.pick(fine) if self.often(0.85) else self.pick((*refused, *WORDS))
                words += [f"{flag}={value}"] if self.often(0.3) else [flag, value]
        for flag in ("--controls", "--retry") if "--tune" in flags else ("--retry",):
            words += ([flag] if self.often(0.95) else [f"{flag}=1"]) if self.often(0.2) else []
        if "--tune" in words and "--tune-trials" not in words:
            words += ["--tune-trials", "2"]
        return words
