"""The public names: each package's `__all__` resolves, and fedskew's is its namespace."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import fedskew

PACKAGES = ["fedskew", *(m.name for m in pkgutil.walk_packages(fedskew.__path__, "fedskew.") if m.ispkg)]
# Modules that are attributes of fedskew only because something imported them; a public one stands in __all__.
SUBMODULES = {m.name for m in pkgutil.iter_modules(fedskew.__path__)}
EXTRA = {"fedskew.flower": ("FedSkewStrategy",)}  # names that need the package of an extra
FUTURE = {"annotations"}  # what `from __future__ import annotations` leaves behind


@pytest.mark.parametrize("package", PACKAGES)
def test_all_resolves(package: str) -> None:
    module = importlib.import_module(package)
    names = getattr(module, "__all__", None)
    if names is None:
        pytest.skip(f"{package} declares no __all__")
    missing = [name for name in names if name not in EXTRA.get(package, ()) and not hasattr(module, name)]
    assert not missing, f"{package}.__all__ names what is not there: {missing}"


def test_the_public_namespace_is_all() -> None:
    for name in fedskew.__all__:
        getattr(fedskew, name)  # a lazy name enters the namespace here
    public = {name for name in vars(fedskew) if not name.startswith("_")}
    extra = public - SUBMODULES - FUTURE - set(fedskew.__all__)
    assert not extra, f"public, but not in fedskew.__all__: {sorted(extra)}"


def test_dir_shows_the_public_names_and_no_more() -> None:
    assert dir(fedskew) == sorted(fedskew.__all__)


def test_every_name_is_what_its_home_holds() -> None:
    for name, home in fedskew._HOMES.items():
        module = importlib.import_module(home)
        assert getattr(fedskew, name) is getattr(module, name)
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        fedskew.rnu  # noqa: B018


def test_run_is_the_function_alone() -> None:
    assert callable(fedskew.run)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("fedskew.run")
