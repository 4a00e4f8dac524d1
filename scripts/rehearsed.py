"""Does a rehearsal predict reality? Natural clients against what `fedskew rehearse` expects from their counts alone.

python scripts/rehearsed.py --write STORE   runs what is missing, writes results/rehearse/natural.json; needs the data
python scripts/rehearsed.py                 writes the table of notes/rehearse.md from this file
python scripts/rehearsed.py --check         writes nothing, and exits with 1 where the page differs from the file
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any, NamedTuple

import fedskew as fs
from fedskew.data.counts import Consortium
from fedskew.records.clients import last_clients, read_clients
from fedskew.studies.rehearsal import LEVEL, TEST, Rehearsal
from fedskew.studies.study import Study

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results/rehearse/natural.json"
PAGE = ROOT / "notes/rehearse.md"
MARKS = re.compile(r"(<!-- judged -->\n).*?(<!-- end -->)", re.S)
COMMON = {"rounds": 20, "epochs": 2, "batch-size": 64, "lr": 0.05, "model": "mlp"}
TRUTH, SEEDS = (100, 101, 102), (0, 1, 2)
NUMBERS = {"accuracy": "accuracy", "gain": "gain over local training", "rare_recall": "recall of the rarest class"}


class Natural(NamedTuple):
    """A dataset with clients of its own, and what stands in for it: of the rule's datasets those that it is not."""

    label: str
    data: dict[str, Any]
    column: str
    standins: tuple[str, ...]  # each alone, or several between commas
    cohort: int
    real: dict[str, Any]  # options of the real runs alone
    both: dict[str, Any]
    local: bool = True  # whether local training is judged


NATURAL = (
    Natural(
        "Heart Disease", {"name": "heart_disease"}, "hospital",
        ("adult", "adult,fashion_mnist,cifar10", "adult,fashion_mnist,cifar10,mnist,digits"), 4, {}, {},
    ),
    Natural(
        "Adult", {"name": "adult", "exclude": "occupation"}, "occupation",
        ("heart_disease", "fashion_mnist", "heart_disease,fashion_mnist,mnist"), 15, {}, {},
    ),
    Natural("FARS", {"name": "fars"}, "client", ("fashion_mnist",), 51, {}, {}),
    Natural(
        "Shakespeare", {"name": "shakespeare", "stride": 40, "least": 10}, "client", ("cifar100",), 40,
        real={"model": {"name": "char_lstm", "hidden": 32}, "lr": 1.0}, both={"epochs": 1, "batch-size": 16},
        local=False,  # a cohort of 40 speakers trains: each alone would have a few rounds
    ),
)  # fmt: skip


def done(study: Study) -> bool:
    """Do what is missing of a study, one run at a time."""
    study.run(1, told=lambda end, one: print(one.cell.name, end.state, end.reason, f"{end.seconds:.0f} s", flush=True))
    return True


def truth(one: Natural, rare: int, store: str) -> dict[str, dict[str, Any]]:
    """By site, what each seed of the real federation and of local training measured: accuracy, recall of a class."""
    partition = {"name": "natural", "column": one.column}
    options = {"data": one.data, "partition": partition, "local-test": TEST, "cohort": one.cohort}
    methods = ["fedavg", "localonly"] if one.local else ["fedavg"]
    made = fs.study(methods, seeds=list(TRUTH), options={**options, **COMMON, **one.both, **one.real}, store=store)
    done(made)
    found: dict[str, dict[str, Any]] = {}
    for planned, run in made.entries():
        assert run is not None and run.state == "finished", planned.cell.name
        for row in last_clients(read_clients(run.folder)):
            seed = found.setdefault(row["name"], {}).setdefault(str(planned.cell.seed), {})
            seed[planned.cell.label] = {"accuracy": row["accuracy"], "rare_recall": row["per_class_recall"][rare]}
    return found


def predicted(one: Natural, standins: str, store: str) -> dict[str, Any]:
    """What the rehearsal expects of each site, from the counts alone."""
    data = fs.data.load(**one.data)
    fed = fs.federate(data, fs.partitioners.Natural(column=one.column))
    names = tuple(data.label_names) or tuple(map(str, range(data.classes)))
    there = fed.counts.sum(0) > 0  # a class without a row at any site is no column of counts
    kept = [name for name, some in zip(names, there.tolist(), strict=True) if some]
    sites = Consortium(fed.client_names, tuple(kept), fed.counts[:, there].numpy(), {})
    options = {"data": standins, **COMMON, **one.both, "cohort": one.cohort}
    made = Rehearsal(sites, "fedavg", tuple((k, str(v)) for k, v in options.items()), SEEDS)
    found = made.done([Study(spec, store) for spec in filter(None, made.studies)], done)
    assert found is not None
    rows = [{name: row[name] for name in ("site", "cases", *NUMBERS)} for row in found["sites"]]
    return {"standins": found["standins"], "rare": names.index(found["rare"]), "sites": rows}


def real(seed: dict[str, Any], number: str) -> float | None:
    """A number that a seed of the real federation measured at a site; None without test rows."""
    if number != "gain":
        found: float | None = seed["fedavg"][number]
        return found
    return seed["fedavg"]["accuracy"] - seed["localonly"]["accuracy"] if "localonly" in seed else None


def table(record: list[dict[str, Any]]) -> str:
    """How often the true value of a site and seed lies inside its interval; of one stand-in, only how far it is off."""
    lines = [
        "| clients | stand-ins | number | inside | of | mean width | median error |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for one in record:
        for made in one["predicted"]:
            told = ", ".join(f"{s['name']} ×{s['factor']:.2g}" for s in made["standins"])
            for number, words in NUMBERS.items() if len(made["standins"]) > 1 else [("accuracy", "accuracy")]:
                inside, widths, errors = 0, [], []
                for row in made["sites"]:
                    known = row[number]
                    for seed in one["truth"].get(row["site"], {}).values() if known else ():
                        if (value := real(seed, number)) is not None:
                            errors.append(abs(value - known["mean"]))
                            if known["low"] is not None:
                                inside += known["low"] - 1e-9 <= value <= known["high"] + 1e-9
                                widths.append(known["high"] - known["low"])
                if errors:
                    share = f"{100 * inside / len(widths):.0f} %" if widths else "–"
                    width = f"{statistics.fmean(widths):.2f}" if widths else "–"
                    numbers = f"{share} | {len(errors)} | {width} | {statistics.median(errors):.2f} |"
                    lines.append(f"| {one['label']} | {told} | {words} | {numbers}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the record or the page, or compare the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="STORE", help="run what is missing in this store and write the record")
    parser.add_argument("--only", metavar="LABEL", help="with --write: this dataset alone; the others' records stay")
    parser.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else []
    for one in NATURAL if asked.write else ():
        if asked.only in (None, one.label):
            made = [predicted(one, names, asked.write) for names in one.standins]
            entry = {
                "label": one.label,
                "level": LEVEL,
                "predicted": made,
                "truth": truth(one, made[0]["rare"], asked.write),
            }
            kept = {old["label"]: old for old in record} | {one.label: entry}
            record = [kept[each.label] for each in NATURAL if each.label in kept]
            RECORD.parent.mkdir(parents=True, exist_ok=True)
            told = json.dumps(record, default=dataclasses.asdict)
            record = json.loads(told, parse_float=lambda text: round(float(text), 6))
            RECORD.write_text(json.dumps(record) + "\n")
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    page = MARKS.sub(lambda match: match[1] + table(record) + match[2], before)
    if asked.check:
        return int(page != before)
    PAGE.write_text(page, encoding="utf-8") if page else print(table(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
