"""Plug-ins: the guide's example package works, and one that is wrong is one line and breaks nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from support.paths import ROOT, TESTS

PAGE = (ROOT / "docs/guide/plugins.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE, re.S))
COMMANDS = re.search(r"```bash\n(.*?)```", PAGE, re.S)
QUICK = "--clients 4 --cohort 2 --rounds 1 --model logistic"
Run = Callable[..., subprocess.CompletedProcess[str]]


def package(site: Path, name: str, files: dict[str, str], module: str = "") -> None:
    """Install a package with an entry point, as pip does it."""
    for file, text in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text, encoding="utf-8")
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[fedskew.plugins]\n{name} = {module or name.replace('-', '_')}\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site-packages"


@pytest.fixture
def example(site: Path) -> Path:
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    ((_, module),) = project["entry-points"]["fedskew.plugins"].items()
    package(site, project["name"], {name: text for name, text in FILES.items() if name.endswith(".py")}, module)
    return site / module


@pytest.fixture
def python(tmp_path: Path, site: Path) -> Run:
    """A process that finds what is installed in `site`."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(site), str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
        command = [sys.executable, *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture
def fedskew(python: Run) -> Run:
    return lambda words: python("-m", "fedskew", *shlex.split(words))


def together(python: Run, *lines: str) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of command lines, in one process: torch is imported once."""
    code = "import sys, json, shlex; from support.fuzz import ended; out = sys.stdout; "
    code += "print(json.dumps([ended(shlex.split(line)) for line in sys.argv[1:]]), file=out)"
    done = python("-c", code, *lines)
    assert done.returncode == 0, done.stderr
    return [tuple(told) for told in json.loads(done.stdout)]  # type: ignore[misc]


@pytest.mark.thorough
def test_the_example_of_the_guide_works(example: Path, python: Run, tmp_path: Path) -> None:
    assert COMMANDS is not None
    lines = [line.removeprefix("fedskew ") for line in COMMANDS[1].splitlines()]
    *done, (_, shown, _), (_, listed, _), (_, helped, _) = together(
        python, *lines, "show runs/part", "--help", "run ridge --help"
    )
    assert all(code == 0 for code, _, _ in done) and done[-1][1] == "[267, 267, 266]\n", done
    config = json.loads((tmp_path / "runs/ridge/config.json").read_text())
    assert set(config["sources"]) == {"ridge", "in_turn"} and "started_by" not in config and config["rounds"] == 5
    assert shown.endswith("again: fedskew run --from runs/part\n")
    assert "From fedskew-example 0.1.0:\n  sizes  Print how many" in listed
    assert re.search(r"\bridge\b.*\[now: cross_entropy,ridge\]", " ".join(helped.split()))


@pytest.mark.thorough
def test_other_code_is_another_run(example: Path, fedskew: Run) -> None:
    """Of an installed package too, whose other classes count by their names."""
    study = f"compare ridge --data moons --partition in_turn {QUICK} --seeds 0-1 --processes 1 --store store"
    assert fedskew(study).returncode == 0
    assert fedskew(f"run ridge --partition in_turn {QUICK} --out run").returncode == 0
    assert "2 done, 0 missing" in fedskew(f"{study} --dry-run").stdout
    file = example / "method.py"
    file.write_text(file.read_text().replace("grad + ", "grad - "))
    assert "0 done, 2 missing" in fedskew(f"{study} --dry-run").stdout
    told = "run has other code of 'ridge' than is installed here"
    assert told in fedskew("run --resume run --rounds 2").stderr and told in fedskew("show run").stdout
    assert f"note: --from run: it has {told.removeprefix('run has ')}" in fedskew("run --from run --out again").stderr


def test_python_finds_the_names(example: Path, python: Run) -> None:
    (example.parent.parent / "study.toml").write_text('methods = ["ridge"]\nseeds = [0]\noptions = {data = "moons"}\n')
    done = python("-c", """
import fedskew as fs
from fedskew.config.tables import TABLES
from fedskew.methods import METHODS
from fedskew.studies.spec import read_spec

assert "ridge" not in METHODS.own and fs.methods.ridge(0.5).parts[1].strength == 0.5 and "ridge" in [*METHODS]
assert "in_turn" in TABLES["partition"] and TABLES["parts"]["ridge"] is type(fs.methods.ridge().parts[1])
fed = fs.federate("moons", "in_turn", clients=3)
named = fs.run(fed, "ridge", model="logistic", rounds=1, cohort=2)
also = fs.run("moons", "ridge", partition="in_turn", clients=3, model="logistic", rounds=1, cohort=2)
assert named.summary["final_loss"] == also.summary["final_loss"]
assert [cell.experiment.data.name for cell in read_spec("study.toml").cells()] == ["moons"]
assert not hasattr(fs.methods, "rigde")
""")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


WRONG = {  # what a wrong plug-in brings -> what is said of it, after its name
    "raise RuntimeError('of its own')": "cannot be imported; RuntimeError: of its own",
    "import no_such_package": "cannot be imported; ModuleNotFoundError: No module named 'no_such_package'",
    "methods = 3": "has no methods; they must be a dictionary; got 3",
    "methods = {'fedavg': print}": "must have another name; fedskew has one of this name",
    "methods = {'a': 'wrong_4:lost'}": "is left out; AttributeError: module 'wrong_4' has no attribute 'lost'",
    "methods = {'b': dict}": "is left out; called without arguments, it must give a Method of this name; got {}",
    "from fedskew.methods import fedavg\nmethods = {'c': fedavg}": "of this name; got Method(name='fedavg'",
    """
import fedskew as fs
class Proximal(fs.parts.Proximal): pass
def mine(): return fs.Method("mine", parts=(Proximal(),))
methods = {"mine": mine}
""": "must have another name; fedskew has one of this name",
}


def test_a_wrong_plug_in_is_one_line_and_breaks_nothing(site: Path, fedskew: Run) -> None:
    for number, source in enumerate(WRONG):
        package(site, f"wrong-{number}", {f"wrong_{number}.py": source})
    listed, run = fedskew("methods --json"), fedskew("run fedavg --parts proximall")
    assert listed.returncode == 0 and {"fedavg", "mine"} <= {each["name"] for each in json.loads(listed.stdout)}
    assert run.returncode == 2 and run.stderr.splitlines()[-1].startswith("fedskew: unknown part 'proximall'; did you")
    lines, notes = listed.stderr.splitlines(), run.stderr.splitlines()[:-1]
    assert notes[:-1] == lines and len(notes) == len(WRONG)  # an ingredient is looked for where one is unknown
    for number, (line, told) in enumerate(zip(notes, WRONG.values(), strict=True)):
        assert line.startswith("fedskew: note: RuntimeWarning: the ") and f" wrong-{number} 0.1.0 " in line
        assert told in line and "\\" not in line


def test_names_of_datasets_partitioners_and_commands_are_taken_once(site: Path, python: Run) -> None:
    help_ = "('first:command', 'Do nothing.')"
    source = f"datasets = {{'digits': 3}}\npartitioners = {{'iid': 3}}\ncommands = {{'run': {help_}, 'own': {help_}}}\n"
    package(site, "first", {"first.py": source})
    package(site, "second", {"second.py": "commands = {'own': ('second:command', 'Do more.'), 'half': 'second:x'}\n"})
    *listed, (_, helped, noted), (code, said, told) = together(python, "datasets", "partitions", "--help", "own")
    for (ended, _, notes), what in zip(listed, ("dataset 'digits'", "partitioner 'iid'"), strict=True):
        assert ended == 0 and notes.count("\n") == 1
        assert f"the {what} of first 0.1.0 must have another name; fedskew has one of this name" in notes
    assert "the command 'run' of first 0.1.0 must have another name; fedskew has one" in noted
    assert "the command 'own' of second 0.1.0 must have another name; first 0.1.0 has one" in noted
    assert '\'half\' of second 0.1.0 is left out; it must be ("module:name", "what it does")' in noted
    assert helped.count("own  Do nothing.") == 1 and noted.count("\n") == 3
    expected = "the command 'own' of first 0.1.0 cannot be used; AttributeError: module 'first' has no attribute 'com"
    assert (code, said) == (2, "") and f"fedskew: {expected}" in told


LOOK = """
import sys
from fedskew import plugins
from fedskew.cli.command import main
for words in {lines!r}:
    try: main(words.split())
    except SystemExit as end: assert end.code == 0
    print(plugins.installed.cache_info().misses, "importlib.metadata" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("lines", "light"),
    [
        (["--version", "plot --help"], True),
        ([f"run fedprox --parts proximal --data digits --partition iid {QUICK}", "methods fedavg",
          "cite fedbal cifar10 ldam", "datasets digits", "describe --clients 3"], False),
    ],
    ids=["light", "heavy"],
)  # fmt: skip
def test_plug_ins_are_looked_up_when_they_are_needed(lines: list[str], light: bool, site: Path, python: Run) -> None:
    package(site, "wrong", {"wrong.py": "raise RuntimeError"})
    done = python("-c", LOOK.format(lines=lines))
    counted = [line for line in done.stderr.splitlines() if line.endswith(("True", "False"))]
    assert counted == [f"0 {not light}"] * len(lines)  # torch imports importlib.metadata itself
