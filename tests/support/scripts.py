"""Files of the checkout that are no part of the package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from support.paths import ROOT


def script(path: str) -> Any:
    """The file at this path below the checkout's root, imported."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # for dataclasses, and for a script that imports another
    sys.path.insert(0, str(file.parent))  # of what stands beside it
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module
