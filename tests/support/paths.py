"""Where the checkout stands, and the numbers of the papers' cards that several tests compare with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
GOLDEN: dict[str, Any] = json.loads((TESTS / "golden/test_vectors.json").read_text(encoding="utf-8"))
