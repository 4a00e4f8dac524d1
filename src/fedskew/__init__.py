"""fedskew: federated learning when labels are skewed. A method is a value; the loops exist once."""

# Names are found when they are first used, so that `import fedskew` and the command start without torch. They are
# listed in __init__.pyi, which type checkers and editors read.

import ast as _ast
from importlib import import_module as _import_module
from pathlib import Path as _Path

__version__ = "0.1.0"

_HOMES = {  # name -> where it is found
    alias.name: node.module
    for node in _ast.parse(_Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, _ast.ImportFrom)
    for alias in node.names
}
__all__ = sorted(_HOMES)


def __getattr__(name):
    """A public name on its first use; afterwards it is an attribute like any other."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedskew' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "fedskew":
        return _import_module(f"fedskew.{name}")
    found = _import_module(home)
    value = getattr(found, name) if hasattr(found, name) else _import_module(f"{home}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
