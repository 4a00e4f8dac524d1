"""The rules of the house that a reader of the source can check: no import of fedskew, only its text."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

PACKAGES = (ROOT / "src/fedskew", ROOT / "papers/src/fedskew_papers")
SOURCES = {path: path.relative_to(package).as_posix() for package in PACKAGES for path in sorted(package.rglob("*.py"))}
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}

Finding = tuple[int, str]
Rule = Callable[[ast.Module, str], Iterator[Finding]]  # (tree, path inside the package) -> what breaks the rule


def _dotted(node: ast.AST) -> str:
    """`a.b.c` for a chain of attributes on a name; what stands before a chain on anything else is left out."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node, _dotted(node.func)


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every absolute dotted name that is imported, `from a import b` as `a.b`. Relative imports are not used here."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _room(path: str) -> str:
    """`parts/moon.py` is in the room parts, `run.py` in the room run, the package's `__init__.py` in the room ''."""
    first = path.split("/", 1)[0].removesuffix(".py")
    return "" if first == "__init__" else first


# What ruff cannot tell. It refuses what executes or unpickles, the modules of global randomness, and print.


def unpickles(tree: ast.Module, path: str) -> Iterator[Finding]:
    for node, name in _calls(tree):
        if any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords):
            yield node.lineno, f"{name}(...)"


# Randomness comes from fedskew.rng.

TORCH_RANDOM = re.compile(
    r"torch\.(random\.)?(rand\w*|manual_seed|seed|normal|bernoulli|multinomial|poisson|cuda\.manual_seed\w*)"
    r"|(torch\.nn\.functional|nn\.functional|F)\.(alpha_|feature_\w*)?dropout\w*"
    r"|.*\.(bernoulli|cauchy|exponential|geometric|log_normal|normal|random|uniform)_"
)


def draws_globally(tree: ast.Module, path: str) -> Iterator[Finding]:
    forked = {
        call
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and any(_forks(item.context_expr) for item in node.items)
        for call in ast.walk(node)
    }
    for line, name in _imports(tree):
        if TORCH_RANDOM.fullmatch(name):
            yield line, f"import of {name}"
    for call, name in _calls(tree):
        given = any(k.arg == "generator" and not _is_none(k.value) for k in call.keywords)
        if TORCH_RANDOM.fullmatch(name) and call not in forked and not given:
            yield call.lineno, f"{name}(...) outside fork_rng"


def _forks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func).split(".")[-1] == "fork_rng"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# A method is a value.

INNER_LOOPS = {"methods/pfedme.py": 1}  # over the steps that one mini-batch is given, not over batches or clients


def loops_in_a_method(tree: ast.Module, path: str) -> Iterator[Finding]:
    if _room(path) == "methods":
        loops = [n for n in ast.walk(tree) if isinstance(n, ast.For | ast.AsyncFor | ast.While)]
        yield from ((node.lineno, "a loop") for node in loops[INNER_LOOPS.get(path, 0) :])


# functional is tensors in, tensors out. What may import what else is in the contracts: see test_imports.py.


STANDARD = {"__future__", "collections", "functools", "math", "types", "typing"}


def imports_other_than_torch(tree: ast.Module, path: str) -> Iterator[Finding]:
    if _room(path) == "functional":
        for line, name in _imports(tree):
            if name.split(".")[0] not in STANDARD | {"torch", "fedskew"}:
                yield line, f"functional imports {name}; it is tensors in, tensors out"


# The core knows fields; only the command knows flags.

KNOWS_FLAGS = {
    "studies/arguments.py",
    "config/flags.py",
    "config/words.py",
    "catalogue/listing.py",  # it prints the options of a dataset or partitioner
    "flower/launcher.py",  # Flower's flags
}


def names_a_flag(tree: ast.Module, path: str) -> Iterator[Finding]:
    if _room(path) == "cli" or path in KNOWS_FLAGS:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and node.values and _text(node.values[0]) == "--":
            yield node.lineno, 'f"--{...}"'
        elif re.match(r"--[a-z]", _text(node)):
            yield node.lineno, repr(_text(node)[:40])


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


# A difference that rounds to zero is +0.0: the sign of what was cut off means nothing.


def signs_a_zero(tree: ast.Module, path: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if re.search(r"(^|:)\+\.\d", _text(node)):
            yield getattr(node, "lineno", 0), f"{_text(node)}: write +z"


RULES = [unpickles, draws_globally, loops_in_a_method, imports_other_than_torch, names_a_flag, signs_a_zero]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps(rule: Rule) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path, tree in TREES.items()
        for line, what in rule(tree, SOURCES[path])
    ]
    assert not found, f"{rule.__name__}:\n" + "\n".join(found)


BROKEN = [
    (unpickles, "records.py", "rows = np.load(path, allow_pickle=True)"),
    (draws_globally, "run.py", "noise = torch.randn(3)"),
    (draws_globally, "run.py", "noise = torch.randn(3, generator=None)"),
    (draws_globally, "run.py", "from torch import randn"),
    (draws_globally, "run.py", "torch.random.manual_seed(0)"),
    (draws_globally, "models.py", "weight.uniform_(-1, 1)"),
    (draws_globally, "models.py", "x = F.dropout(x, 0.5)"),
    (loops_in_a_method, "methods/mine.py", "while True:\n    pass"),
    (imports_other_than_torch, "functional/losses.py", "import numpy as np"),
    (names_a_flag, "shared/mine.py", "require(lr > 0, '--lr', 'be positive', lr)"),
    (names_a_flag, "shared/mine.py", "raise ConfigError(f'--{name} must be positive')"),
    (signs_a_zero, "report/mine.py", "told = f'{gain:+.1f}'"),
    (signs_a_zero, "report/mine.py", "told = '{:+.2f}'.format(gain)"),
]
KEPT = [
    (draws_globally, "data/partitions.py", "def draw(rng: np.random.Generator): return rng.normal(0, 1)"),
    (draws_globally, "shared/mine.py", "noise = rng.normal(key, (3,))"),
    (draws_globally, "models.py", "with torch.random.fork_rng(devices=[]):\n    torch.manual_seed(seed)"),
    (loops_in_a_method, "methods/mine.py", "names = [part.name for part in parts]"),
    (names_a_flag, "cli/mine.py", "option = '--lr'"),
    (names_a_flag, "plots/mine.py", "dashes = ('-', '--')"),
    (signs_a_zero, "report/mine.py", "told = f'{gain:+z.1f} of 0+.1f'"),
]


@pytest.mark.parametrize(("rule", "path", "source"), BROKEN)
def test_a_rule_sees_what_breaks_it(rule: Rule, path: str, source: str) -> None:
    assert list(rule(ast.parse(source), path))


@pytest.mark.parametrize(("rule", "path", "source"), KEPT)
def test_a_rule_lets_pass_what_keeps_it(rule: Rule, path: str, source: str) -> None:
    assert not list(rule(ast.parse(source), path))


def _unused(trees: list[ast.Module]) -> set[str]:
    """Private functions that nothing names. A method that stayed behind when its base was renamed is one of them."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    made = {f.name for f in nodes if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) and not f.decorator_list}
    named = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.attr for n in nodes if isinstance(n, ast.Attribute)}
    return {name for name in made - named if re.match(r"_(?!repr_\w+_$)[^_]", name)}  # notebooks name _repr_png_


def test_no_private_function_is_left_behind() -> None:
    assert not _unused(list(TREES.values()))
    assert _unused([ast.parse("class A:\n    def run(self): self.probes()\n    def _probes(self): ...")]) == {"_probes"}


# The project speaks of itself alone. Written so that this file does not match itself.
ELSEWHERE = re.compile(
    r"(?<!torch)\.librar[y]\b|\.\./share[d](?!/data\b)|(?<!\w)/wor[k]/|\b(DESIG[N]|STYL[E]|FIEL[D]|METHOD[S])\.md\b"
)


def _tracked() -> list[Path]:
    """Files of the checkout that git does not ignore, those about to be added among them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


ROOM = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "Makefile", "pyproject.toml"}
ROOM |= {"benchmarks", "docs", "examples", "notes", "packaging", "papers", "results", "scripts", "src", "tests"}
ROOM |= {"AGENTS.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
ROOM |= {"constraints-flower.txt", "constraints-lowest.txt", "constraints.txt"}


def test_the_root_holds_what_it_is_meant_to() -> None:
    """A run or a checkpoint that a test forgot there is not committed."""
    assert {path.relative_to(ROOT).parts[0] for path in _tracked()} <= ROOM


def test_no_file_speaks_of_the_workplace() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()[:100]}"
        for path in _tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1)
        if ELSEWHERE.search(line)
    ]
    assert not found, "\n".join(found)
