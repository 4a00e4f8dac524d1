"""What commands print with `--json`: a type for each output, its JSON schema, and the page that lists them.

Types are the library's where it has them. An entry that a later version adds may stand beside those that are named.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import torch

from fedskew.advice import adviser, evidence
from fedskew.config import schema
from fedskew.data import skew
from fedskew.method.component import SLOTS
from fedskew.records.decisions import SHARES, Decision
from fedskew.records.metrics import EACH, SCORES, from_confusion
from fedskew.records.typed import Number, Real, Whole, entries
from fedskew.studies.clients import MEANS, ByClient

Named = entries("Named", {"name": str})
Spread = entries("Spread", dict.fromkeys(("min", "median", "max"), Real))
COUNTED = {  # every source of counts has these
    name: list[Real] if isinstance(value, list) else Real for name, value in skew.summary([[2, 1], [0, 1]]).items()
}
FACTS: dict[str, Any] = {  # of a federation or a partition file
    "dataset": str, "fingerprint": str, "partition": str, "partition_options": dict[str, Any], "seed": Whole,
    "longtail": Number, "source": str, "sha256": str, "label_names": list[str], "size": Spread,
    "classes_per_client": Spread, "local_test": Real, "heldout_clients": Real, "heldout_count": Whole,
    "test_is_official": bool, "notes": list[str],
    **{f"{rows}_rows": Whole for rows in (
        "training", "repeated", "unused", "validation", "auxiliary", "local_test", "heldout_clients", "test"
    )},
}  # fmt: skip
Skew = entries("Skew", COUNTED, FACTS)
Method = entries("Method", {
    **dict.fromkeys(("name", "serves", "summary", "suffices", "reference"), str),
    "slots": entries("Slots", {"parts": list[Named], **dict.fromkeys(SLOTS, Named)}),
    **dict.fromkeys(("reads", "extra_upload", "extra_download", "state", "extra_compute"), list[str]),
})  # fmt: skip
Run = entries("Run", {
    **dict.fromkeys(("folder", "method", "data", "partition", "state", "reason"), str), "seed": Whole | None,
    "rounds": Whole | None, "asked": Whole | None, "accuracy": Number, "age": Real, "config": schema.Config,
    "summary": dict[str, Any],
})  # fmt: skip
Near = entries("Near", {**get_type_hints(evidence.Measured), "distance": Real})
Means = entries("Means", get_type_hints(adviser.Means))
Worth = entries("Worth", get_type_hints(adviser.Suggestion))
Rule = entries("Rule", get_type_hints(adviser.Rule))
Advice = entries("Advice", {
    **get_type_hints(adviser.Advice), "fedavg": list[Means], "worth_trying": list[Worth], "neighbours": list[Near],
    "rule": Rule | None, "near": Real,
})  # fmt: skip
Interval = entries("Interval", {**dict.fromkeys(("value", "low", "high"), Real), "by": str})
Decided = entries("Decided", {"decided": Whole, **dict.fromkeys((*SHARES, "f1"), Interval | None)})
WORTH = {
    "rows": Whole, "positives": Whole, "notes": list[str], "argmax": Decided,
    **dict.fromkeys(("brier", "ece_positive", "auroc", "auprc"), Interval | None),
}  # fmt: skip
Chosen = entries("Chosen", {"threshold": Real, "on": str})
OfClient = entries("OfClient", WORTH, {"threshold": Decided, "chosen": Chosen})
Report = entries("Report", WORTH, {"threshold": Decided, "clients": dict[str, OfClient]})
MEASURED = {
    name: list[Number] if isinstance(value, list) else Number
    for name, value in from_confusion(torch.tensor([[2, 1], [0, 1]])).items()
}
ABOUT = {"rows": Whole, "label_names": list[str]}
DECISION = {"decision": Decision | None, "one_against_rest": Report | None}
Labelled = entries(
    "Labelled", {**ABOUT, **MEASURED, "confusion": list[list[Whole]], "loss": Number},
    {**dict.fromkeys(SCORES, Number), **dict.fromkeys(EACH, list[Number]), **DECISION},
)  # fmt: skip
Unlabelled = entries(
    "Unlabelled", {**ABOUT, "predicted": list[str], "probabilities": list[list[Real]]},
    {"decided": list[Any], **DECISION},
)  # fmt: skip
OWN = {name: kind for name, kind in get_type_hints(ByClient).items() if name not in ("recalls", "support", "means")}
Client = entries("Client", OWN | dict.fromkeys(MEANS, Number))
Expected = entries("Expected", {"mean": Real, "low": Number, "high": Number}) | None
EXPECTED = dict.fromkeys(("accuracy", "local", "rare_recall", "gain"), Expected)
VARIED = {"lost": Expected, "rare_lost": Expected, "needs": Whole | None}
VARIED["curve"] = list[entries("Point", {"cases": Whole, "gain": Expected})]
Site = entries("Site", {
    "site": str, "cases": Whole, **dict.fromkeys(("failure", "rounds", "round_s"), Real), **EXPECTED,
    "upload_bytes": Whole, "download_bytes": Whole,
}, VARIED)  # fmt: skip
Rehearsed = entries("Rehearsed", {
    "method": str, "seeds": list[Whole], "rounds": Whole, "rare": str, **EXPECTED, "wall_s": list[Real],
    "standins": list[entries("StandIn", {"name": str, "factor": Real})], "sites": list[Site], "unknown": list[str],
})  # fmt: skip


class Contract(NamedTuple):
    """An output."""

    command: str
    kind: Any
    about: str


CONTRACTS = {
    "describe": Contract(
        "fedskew describe --json", Skew,
        "How skewed a federation is, or a partition file. Facts are there where the source has them.",
    ),
    "methods": Contract("fedskew methods --json", list[Method], "Every method with its ingredients and their options."),
    "runs": Contract(
        "fedskew runs FOLDER --json", list[Run],
        "Every run: columns, the content of config.json, and that of summary.json.",
    ),
    "advise": Contract(
        "fedskew advise --json", Advice, "What follows from federations nearby. A gain is [mean, low, high, seeds].",
    ),
    "rehearse": Contract(
        "fedskew rehearse COUNTS.csv --json", Rehearsed,
        "What each site can expect; `lost`, `curve` and `needs` are of the sites of `--vary`. Bytes are of a round.",
    ),
    "evaluate": Contract(
        "fedskew evaluate RUN --json", Labelled,
        "Metrics of rows with labels; with `--positive` also what the decision is worth.",
    ),
    "evaluate-new": Contract(
        "fedskew evaluate RUN --data csv --data.path new.csv --json", Unlabelled,
        "Predictions of rows without labels; `decided` with `--threshold`.",
    ),
    "evaluate-clients": Contract(
        "fedskew evaluate RUN --by client --json", list[Client],
        "What each client would use, the worst first. Further entries `recall NAME` and "
        "`rows NAME` have the recall and the rows of each class.",
    ),
}  # fmt: skip


def schema_of(contract: Contract) -> dict[str, Any]:
    """Its JSON schema."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": contract.command}
    return {**dialect, **msgspec.json.schema(contract.kind)}


def _shown(node: dict[str, Any]) -> str:
    """A type in a word or two."""
    if "$ref" in node:
        return node["$ref"].rpartition("/")[2]
    if "anyOf" in node:
        words = dict.fromkeys(map(_shown, node["anyOf"]))
        return " or ".join(word for word in words if word != "integer" or "number" not in words)
    if node.get("type") == "array":
        return f"list of {_shown(node['items'])}" if node.get("items") else "list"
    return str(node.get("type", "anything"))


def page() -> str:
    """All contracts, each as a table of its entries."""
    parts = [HEAD]
    for name, contract in CONTRACTS.items():
        whole = schema_of(contract)
        many = whole.get("type") == "array"
        first = (whole["items"] if many else whole)["$ref"].rpartition("/")[2]
        what = "A list of objects" if many else "An object"
        parts += [f"## {name}", f"`{contract.command}`: {contract.about} {what}."]
        parts.append(f'Schema: <a href="../schemas/{name}.json">{name}.json</a>.')
        for title, node in sorted(whole["$defs"].items(), key=lambda item: item[0] != first):
            if node.get("type") == "object" and "properties" in node:
                needed = node.get("required", ())
                rows = [
                    f"| `{entry}` | {_shown(kind)} | {'yes' if entry in needed else ''} |"
                    for entry, kind in node["properties"].items()
                ]
                table = "| entry | type | always |\n|---|---|---|\n" + "\n".join(rows)
                parts.append(table if title == first else f":::{{dropdown}} {title}\n{table}\n:::")
    return "\n\n".join(parts) + "\n"


HEAD = """# JSON of the command

What commands print with `--json`, each with its JSON schema (draft 2020-12).

- stdout is one JSON value and nothing else; notes stand on stderr.
- A mistake is one line on stderr and exit code 2, with nothing on stdout.
- NaN and infinity do not occur: what is not defined is `null`.
- A later version may add entries. Where it takes one away or changes a type, the [changelog](../CHANGELOG.md) says so.

[Records](../docs/reference/records.md) and [scores](../docs/reference/scores.md) define the numbers,
[splits](../docs/guide/splits.md) those of `describe`."""


def write(target: Path, schemas: Path) -> None:
    """The page and the schemas."""
    target.write_text(page(), encoding="utf-8")
    schemas.mkdir(parents=True, exist_ok=True)
    for name, contract in CONTRACTS.items():
        (schemas / f"{name}.json").write_text(json.dumps(schema_of(contract), indent=1) + "\n", encoding="utf-8")
