"""The wheel, as a user gets it: built, looked into, installed away from the checkout and used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

from fedskew.studies.shipped import names as shipped
from fedskew_papers import names as protocols
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
WITHOUT = """  # fedskew in an environment without plug-ins
import sys
from importlib import metadata

metadata.entry_points = lambda group: []
from fedskew.cli.command import main

main(sys.argv[1:])
"""
BESIDE_CODE |= {f"fedskew/flower/files/{path.name}" for path in (ROOT / "src/fedskew/flower/files").iterdir()}
BESIDE_CODE |= {f"fedskew/report/templates/{name}" for name in ("report.html", "page.js", "style.css")}


def _run(*command: str | Path, cwd: Path, code: int = 0, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr * bool(code)


def _build(tmp: Path, project: Path = ROOT) -> Path:
    _run("-m", "build", "--wheel", "--no-isolation", "--outdir", tmp / project.name, project, cwd=tmp)
    (wheel,) = (tmp / project.name).glob("*.whl")
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


def test_the_papers_are_a_wheel_of_their_own(tmp_path: Path) -> None:
    """Who has fedskew alone is told where the papers are; who installs both has their commands."""
    target, without = tmp_path / "site", tmp_path / "without.py"
    without.write_text(WITHOUT)
    told = _run(without, "reproduce", cwd=tmp_path, code=2)
    where = "`pip install ./papers` in a checkout of fedskew"
    assert told == f"fedskew: the command 'reproduce' comes with the plug-in fedskew-papers: {where}\n"
    assert "reproduce" not in _run(without, "--help", cwd=tmp_path)

    wheel = _build(tmp_path, ROOT / "papers")
    names = _names(wheel)
    assert {f"fedskew_papers/protocols/{name}.toml" for name in protocols()} <= set(names)
    assert all(name.startswith(("fedskew_papers/", "fedskew_papers-")) for name in names)
    _run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel, cwd=tmp_path)
    shown = _run("-m", "fedskew", "ledger", cwd=tmp_path, PYTHONPATH=str(target))
    assert "all five: 18 with our number" in shown  # what is computed; no run is there
