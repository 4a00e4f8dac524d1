"""The wheel in clean environments: each line of the container, uv, the first page and the gallery.

They install from the network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.gallery import PAGES, script_of
from support.paths import ROOT

PACKAGING = ROOT / "packaging"
COMMAND = re.compile("(fedskew|ls|head) ")
pytestmark = pytest.mark.network


def run(command: str, folder: Path, **variables: str) -> str:
    """A line of a shell in an environment that has nothing of the tests' own."""
    keep = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "UV_"))}
    clean = {**keep, "PATH": os.environ["PATH"], "HOME": str(folder), "XDG_CONFIG_DIRS": "/etc/xdg", **variables}
    done = subprocess.run(["sh", "-c", command], cwd=folder, env=clean, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(f"{sys.executable} -m build --wheel --no-isolation --outdir {folder} {ROOT}", folder)
    (path,) = folder.glob("*.whl")
    return path


def test_each_line_of_the_container_runs_in_a_clean_environment(tmp_path: Path, wheel: Path) -> None:
    """What can be shown without a container engine: each RUN in order, its folders moved below a temporary one."""
    lines = [
        line
        for line in (PACKAGING / "Containerfile").read_text(encoding="utf-8").splitlines()
        if line[:1] not in ("#", "")
    ]
    arguments = dict(line.split(" ", 1)[1].split("=", 1) for line in lines if line.startswith("ARG "))
    arguments["TORCH_INDEX"] = os.environ.get("FEDSKEW_TORCH_INDEX", arguments["TORCH_INDEX"])
    for folder in ("tmp", "opt"):
        (tmp_path / folder).mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    (copied,) = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert copied == ["constraints.txt", "dist/*.whl", "/tmp/fedskew/"]
    (tmp_path / "tmp/fedskew").mkdir()
    for file in (ROOT / "constraints.txt", wheel):
        shutil.copy(file, tmp_path / "tmp/fedskew")
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for line in (line.removeprefix("RUN ") for line in lines if line.startswith("RUN ")):
        moved = re.sub(r"(?<![\w.])/(tmp|opt)/fedskew", rf"{tmp_path}/\1/fedskew", line)
        run(moved, tmp_path, **arguments, PATH=path)
    (entry,) = [line.split("[")[1].strip('"]') for line in lines if line.startswith("ENTRYPOINT")]
    assert "Usage: fedskew" in run(f"{tmp_path}/opt/fedskew/bin/{entry} --help", tmp_path)


def test_the_first_page_and_the_gallery_run_from_the_wheel(tmp_path: Path, wheel: Path) -> None:
    """The commands and the Python of the page, and every example, in an environment with pip and the wheel alone."""
    run(f"{sys._base_executable} -m venv env", tmp_path)  # type: ignore[attr-defined]
    index = os.environ.get("FEDSKEW_TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
    run(f"env/bin/pip install -q --extra-index-url {index} -c {ROOT}/constraints.txt '{wheel}[report]'", tmp_path)
    place = {"PATH": f"{tmp_path / 'env/bin'}:{os.environ['PATH']}", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    page = ROOT / "docs/guide/first-run.md"
    for block in re.findall(r"^```\n(.*?)^```$", page.read_text(encoding="utf-8").split("## Train")[1], re.M | re.S):
        for line in filter(COMMAND.match, block.splitlines()):
            run(line, tmp_path, **place)
    run(f"python -m doctest {page}", tmp_path, **place)
    for example in PAGES:
        (tmp_path / f"{example.stem}.py").write_text(script_of(example), encoding="utf-8")
        run(f"python {example.stem}.py", tmp_path, **place)
    assert str(tmp_path) in run("python -c 'import fedskew; print(fedskew.__file__)'", tmp_path, **place)


def test_uv_installs_the_wheel(tmp_path: Path, wheel: Path) -> None:
    if not (uv := shutil.which("uv")):
        pytest.skip("uv is not installed: pip install uv")
    places = os.environ.get("PIP_FIND_LINKS", "")
    find = f"--find-links {places}" if places else "--torch-backend cpu"
    run(f"{uv} venv -q -p {sys._base_executable} env", tmp_path)  # type: ignore[attr-defined]
    run(f"VIRTUAL_ENV=env {uv} pip install -q {find} -c {ROOT}/constraints.txt '{wheel}[report]'", tmp_path)
    assert "accuracy" in run("env/bin/fedskew run fedavg --data digits --rounds 2", tmp_path)
    assert "fedskew" in run("env/bin/fedskew cite fedskew", tmp_path)
