"""What a run writes is what its readers check: an entry that no type names is read as it stands, whatever it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import fedskew as fs
from fedskew.config import schema

FREE = {"config.format", "round.digest"}  # read before, and by a reader of their own
LEARNT = {"config.engine_used", "config.engine_reason", "config.threads_used"}  # told, and not read


def unnamed(value: Any, kind: Any, where: str) -> Iterator[str]:
    """The entries of a JSON value that its type does not name; options of an ingredient are its own to check."""
    inner = get_args(kind)
    if isinstance(value, dict) and (objects := [k for k in (kind, *inner) if is_typeddict(k)]):
        hints = get_type_hints(objects[0])
        for name, entry in value.items():
            if name in hints:
                yield from unnamed(entry, hints[name], f"{where}.{name}")
            elif objects[0] is not schema.NamedSpec:
                yield f"{where}.{name}"
    elif isinstance(value, dict | list) and inner:
        for entry in value.values() if isinstance(value, dict) else value:
            yield from unnamed(entry, inner[-1], f"{where}[]")


def test_every_entry_of_a_run_has_a_type(tmp_path: Path) -> None:
    fed = fs.federate("digits", "iid", clients=6, longtail=10.0, validation=0.1, local_test=0.3)
    more = {"fit_logits": "every", "average_models": "every", "monitor": "val_loss", "patience": 2}
    fs.run(fed, "ditto", model="logistic", rounds=3, cohort=3, out=tmp_path, **more)  # type: ignore[arg-type]
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    read = [(rounds[-1], schema.Round, "round")]
    for name, kind in {"summary": schema.Summary, "config": schema.Config}.items():
        read.append((json.loads((tmp_path / f"{name}.json").read_text()), kind, name))
    assert {name for given in read for name in unnamed(*given)} == FREE | LEARNT
