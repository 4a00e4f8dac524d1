"""Files of the checkout that are no part of the package, as modules."""

from __future__ import annotations

import importlib.util
from typing import Any

from support.paths import ROOT


def script(path: str) -> Any:
    """The file at this path below the checkout's root, imported."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
