"""The wheel, as a user gets it: built, looked into, installed away from the checkout and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

from fedskew.papers.tables import names as protocols
from fedskew.studies.shipped import names as shipped
from support.paths import ROOT

BESIDE_CODE = {
    "fedskew/py.typed",
    "fedskew/__init__.pyi",
    "fedskew/config/keywords.pyi",
    "fedskew/data/keywords.pyi",
    "fedskew/advice/evidence.json",
    "fedskew/catalogue/papers.bib",
    "fedskew/config/presets/paces.toml",
    "fedskew/report/texts.toml",
}  # what else the package brings
BESIDE_CODE |= {f"fedskew/studies/shipped/{name}.toml" for name in shipped()}
BESIDE_CODE |= {f"fedskew/papers/protocols/{name}.toml" for name in protocols()}
BESIDE_CODE |= {f"fedskew/papers/protocols/fedbench-{name}.csv" for name in ("adult", "mnist")}
BESIDE_CODE |= {"fedskew/papers/printed.csv"}
BESIDE_CODE |= {f"fedskew/flower/files/{path.name}" for path in (ROOT / "src/fedskew/flower/files").iterdir()}
BESIDE_CODE |= {f"fedskew/report/templates/{name}" for name in ("report.html", "sort.js", "style.css")}


def _run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def _build(tmp: Path) -> Path:
    _run("-m", "build", "--wheel", "--no-isolation", "--outdir", tmp / "dist", ROOT, cwd=tmp)
    (wheel,) = (tmp / "dist").glob("fedskew-*.whl")
    return wheel


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def _check_contents(names: list[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in names)
    foreign = [n for n in names if not n.startswith("fedskew/") and ".dist-info/" not in n]
    assert not foreign, f"only the package belongs into the wheel: {foreign}"
    beside = {n for n in names if n.startswith("fedskew/") and Path(n).suffix != ".py"}
    assert beside == BESIDE_CODE, "neither data nor documents belong into the wheel"


def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    wheel = _build(tmp_path)
    _check_contents(_names(wheel))

    target = tmp_path / "site"
    _run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel, cwd=tmp_path)
    # PYTHONPATH comes before site-packages, where an editable install may be.
    outside = partial(_run, cwd=tmp_path, PYTHONPATH=str(target))

    shown = outside("-c", "import fedskew; print(fedskew.__version__, fedskew.__file__)")
    version, file = shown.split(maxsplit=1)
    assert Path(file.strip()).is_relative_to(target)
    assert wheel.name.startswith(f"fedskew-{version}-")

    listed = outside("-m", "fedskew", "methods", "--json")
    assert "fedavg" in listed and json.loads(listed)
