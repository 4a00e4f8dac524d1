#!/usr/bin/env python
# ruff: noqa: E501
"""What must not change while code is moved: bits of models, addresses, records of runs, what commands print.

    python scripts/freeze.py before.json              writes what this checkout gives
    python scripts/freeze.py before.json --compare    says what differs from that file; exit status 1 if anything does

Both are run on one machine: another processor rounds differently. Wall times are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["COLUMNS"] = "100"

BASE = "--data digits --clients 8 --cohort 4 --rounds 3 --checkpoint.every 2"
RUNS = {
    **{
        f"{name}": f"{name} --engine sequential"
        for name in (
            "fedavg", "fedprox", "scaffold", "fednova", "feddyn", "fedadam", "fedavgm", "moon", "fedbal", "fedga",
            "seolkim", "fedgr", "fedla", "fedrs", "fedlc", "fedntd", "fedgrab", "creff", "fedrod", "fedper", "fedrep",
            "ditto", "apfl", "pfedme", "perfedavg", "ifca", "fedbn", "localonly", "fedmlb", "fedsam", "ccvr",
        )
    },
    "threaded": "fedavg --engine threaded --threads 2",
    "threaded, convolutions": "fedprox --engine threaded --threads 2 --model convnet --rounds 1",
    "batched": "scaffold --engine batched",
    "momentum and clip": "fedavg --engine sequential --momentum 0.9 --weight-decay 1e-4 --clip 5",
    "fitted": "fedga --engine sequential --fit-logits tail",
    "held-out rows": "fedavg --engine sequential --validation 0.1 --local-test 0.2 --partition double --partition.labels 3",
    "held-out clients": "fedper --engine sequential --heldout-clients 0.25 --personal-every 1",
    "composed": "scaffold --engine sequential --weighting aggregation_balancer --sampler class_balanced --server adam",
    "authors": "fedbal --engine sequential --preset authors --rounds 1",
    "scores": "fedavg --engine sequential --eval.scores every --partition shards --diagnose drift",
    "convolutions": "fedavg --engine sequential --model convnet --partition iid --rounds 1",
    "batchnorm": "ditto --engine sequential --model resnet20 --rounds 1 --longtail 10",
    "float64": "feddyn --engine sequential --dtype float64 --partition labels_k",
}  # fmt: skip
COMMANDS = (
    "methods", "datasets", "partitions", "models", "cite fedbal", "describe --data digits --partition shards --clients 6",
    "run fedagv", "run fedavg --lr -1", "run fedavg --roundz 3", "run fedavg --partition dirichlett", "run fedavg --model mlpp",
    "run fedavg --partition.alpha x", "run fedavg --clients 0", "run fedavg --cohort 30 --clients 4", "run fedavg --data mnits",
    "run fedavg --parts.proximal.mu 3", "run fedprox --parts.proximal.mu -3", "run fedavg --engine fast", "runs nowhere",
    "show nowhere", "compare fedavg fedagv", "compare fedavg --seeds 3-1", "plot nowhere", "report nowhere", "evaluate nowhere",
    "reproduce nothing", "run", "advise --data digits --partition shards --clients 5", "study", "nothing", "run fedavg --seed a",
    "run fedavg --local.momentum 2", "run fedavg --weighting fedlaa", "run fedavg --fit-logits some", "verify nowhere",
)  # fmt: skip
HELP = (
    "", "run", "run fedbal", "run seolkim", "compare", "evaluate", "plot", "report", "advise", "reproduce", "ledger", "flower",
    "flower init", "runs", "show", "study", "study archive", "verify", "describe", "partition", "methods",
)  # fmt: skip
TIMED = re.compile(r"_s$|_per_s|seconds|peak|memory_bytes|^digest$")
CLOCK = re.compile(r"\d+(\.\d+)? ?(s a round|s\b|min\b|ms\b|core-hours)|wall_s\s+[\d.]+|\d+ kB")


def digest(content: bytes | str) -> str:
    """The first 16 digits of the SHA-256."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def command(words: str) -> tuple[int, str]:
    """The exit code and what is printed, output before errors, without clock times."""
    from fedskew.cli.command import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words.split())
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, CLOCK.sub("T", out.getvalue() + err.getvalue())


def timeless(value: Any) -> Any:
    """A record without times of a clock and reasons in words."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not TIMED.search(k) and k != "engine_reason"}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def folder(path: Path) -> dict[str, Any]:
    """The digests of the files of a run, of its records without times, and its address."""
    from safetensors.numpy import load_file

    config = json.loads((path / "config.json").read_text())
    files: dict[str, Any] = {"config": digest(json.dumps(timeless(config)))}
    files["layout"] = [json.dumps(list(config)), sorted(p.relative_to(path).as_posix() for p in path.rglob("*"))]
    for name in ("rounds.jsonl", "summary.json"):
        text = (path / name).read_text()
        records = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else [json.loads(text)]
        again = [json.dumps(r) for r in records] if name.endswith("l") else [json.dumps(records[0], indent=1)]
        files[name] = digest(json.dumps([timeless(r) for r in records]))
        files[f"{name} spelling"] = "\n".join(again) == text.rstrip("\n")
        files[f"{name} keys"] = [list(records[0]), list(records[-1])]
    for name in ("final.safetensors", "checkpoint/state.safetensors"):
        if (path / name).exists():
            tensors = load_file(path / name)
            files[name] = digest(b"".join(k.encode() + tensors[k].tobytes() for k in sorted(tensors)))
    return files


def frozen() -> dict[str, Any]:
    """Everything, by name."""
    from fedskew.config.flags import experiment_from
    from fedskew.studies.address import address

    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        for name, words in RUNS.items():
            given = words.split()
            given += ["--epochs", "1", "--batch-size", "32"] * (name != "seolkim")
            extra = [w for i, w in enumerate(BASE.split()) if not _given(BASE.split(), i, given)]
            code, text = command(f"run {' '.join(given + extra)} --out {digest(name)}")
            facts[f"run {name}"] = folder(Path(digest(name))) if code == 0 else {"refused": text}
            if code == 0:
                experiment = experiment_from(given + extra)
                facts[f"run {name}"]["address"] = address(experiment, experiment.data.load())
        one = digest("fedavg")
        code, _ = command(f"run --resume {one} --rounds 5")
        facts["resumed"] = [code, folder(Path(one)) if code == 0 else None]
        for words in COMMANDS:
            facts[f"says {words}"] = command(words)
        for words in HELP:
            facts[f"help {words}"] = command(f"{words} --help".strip())
        for words in (f"show {one}", "runs .", f"verify {one}", f"evaluate {one}"):
            facts[f"reads {words.split()[0]}"] = command(words)
        facts["compare"] = command(f"compare fedavg fedbal --seeds 0-1 --processes 1 {BASE} --out study --store store")
        facts["store"] = sorted(p.name for p in Path("store").iterdir())
        facts["study"] = sorted(p.name for p in Path("study").iterdir())
    return facts


def _given(words: list[str], index: int, given: list[str]) -> bool:
    """Whether the option at ``index``, or the one whose value stands there, is among ``given``."""
    return words[index if words[index].startswith("--") else index - 1] in given


def main() -> int:
    """Writes or compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--compare", action="store_true")
    asked = parser.parse_args()
    path = asked.file.resolve()
    facts = json.loads(json.dumps(frozen()))
    if not asked.compare:
        path.write_text(json.dumps(facts, indent=1))
        print(f"{len(facts)} facts in {path}")
        return 0
    before = json.loads(path.read_text())
    changed = [name for name in before | facts if before.get(name) != facts.get(name)]
    for name in changed:
        print(f"== {name}")
        old, new = (json.dumps(f.get(name), indent=1).replace("\\n", "\n").splitlines() for f in (before, facts))
        print("\n".join(difflib.unified_diff(old, new, lineterm="", n=0)))
    print(f"{len(changed)} of {len(before)} facts differ")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
