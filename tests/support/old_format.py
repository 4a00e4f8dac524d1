"""Run folders of format 1, which has no digests: what older versions wrote, and what a test may change by hand."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["as_format_1"]


def as_format_1(folder: Path) -> Path:
    """Turn a run folder into one of format 1."""
    (folder / "manifest.json").unlink()
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 1}, indent=1))
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    bare = [{name: value for name, value in row.items() if name != "digest"} for row in rows]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(row) + "\n" for row in bare))
    return folder
