"""Build the site into build/docs/html: run the pages' code, make the pages that come from the code, check them.

python scripts/docs.py              what `make docs` runs: no network; warnings are errors
python scripts/docs.py --links      checks the links to other sites, which needs the network
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import docs_blocks
import docs_contracts
import docs_formulas
import docs_methods
import reference

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build/docs"
SOURCE, HTML, CACHE = BUILD / "source", BUILD / "html", BUILD / "cache"
EXTRA = BUILD / "extra"  # files of the site that are no pages
COPIED = (
    "docs", "notes", "examples/gallery", "results/ledger.csv", "benchmarks/README.md", "CONTRIBUTING.md",
    "CHANGELOG.md", "SECURITY.md",
)  # fmt: skip
INLINE = "module://matplotlib_inline.backend_inline"  # figures of a notebook stand in its page
LARGEST = 500_000  # bytes of a page
SEARCHED = {  # page -> what a reader types into the search when this page is what is meant
    "api/fedskew.md": ("fs.run", "fs.study", "fs.federate"),
    "docs/guide/own-data.md": ("csv", "own data"),
    "docs/guide/own-model.md": ("own model", "own network"),
    "docs/guide/compose.md": ("own method",),
}
FORMULAS = re.compile(r"^(- Formula: |\| \[`\w+`\]\(#\w+\) \| )([^|\n]+)", re.M)  # of partitions
MEANING = re.compile(r"^(\| `--[\w.]+` \| `[^`]*` \| )(.*)( \|)$", re.M)  # of a method's page
OPTIONS = re.compile(r"^\| (?:option|field|name) [^\n]*\n\|[-:| ]+\n(?:\|.*\n?)+", re.M)


def sources() -> Path:
    """The pages of the repository where they stand, those of docs/site at the top, and those that are made."""
    fresh = BUILD / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    for name in COPIED:
        source, target = ROOT / name, fresh / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    for page in (fresh / "docs/site").glob("*.md"):
        page.rename(fresh / page.name)
    shutil.rmtree(EXTRA, ignore_errors=True)
    run_gallery = [sys.executable, str(ROOT / "scripts/docs_gallery.py"), str(fresh / "examples/gallery")]
    if subprocess.run([*run_gallery, str(kept("notebooks"))], env=surroundings()).returncode:
        raise SystemExit("a notebook of the gallery failed")
    list(reference.write(fresh / "docs"))
    (fresh / "docs/site/api").rename(fresh / "api")
    docs_contracts.write(fresh / "api/json.md", EXTRA / "schemas")
    docs_methods.write(fresh / "methods")
    versions = [{"version": "main", "name": "main", "url": f"{published()}/", "preferred": True}]
    (EXTRA / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    for page in [fresh / "docs/site/llms.txt", *fresh.rglob("*.md")]:  # as they stand, for programs
        target = EXTRA / ("llms.txt" if page.suffix == ".txt" else page.relative_to(fresh))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    for page in fresh.rglob("*.md"):
        title, _, text = page.read_text(encoding="utf-8").partition("\n")
        words = SEARCHED.get(page.relative_to(fresh).as_posix(), ())
        index = f"\n```{{index}} {', '.join(f'! {word}' for word in words)}\n```\n" if words else ""
        page.write_text(f"{title}\n{index}{highlighted(text)}", encoding="utf-8")
    return fresh


def highlighted(text: str) -> str:
    """A page for Sphinx: blocks name their language, formulas are typeset, a table of options can be told apart."""

    def named(found: re.Match[str]) -> str:
        if found[1] == "formula":
            return docs_formulas.shown(found[2]) + "\n"
        spoken = docs_blocks.language(found[1], found[2])
        if found[1] in ("", "python"):
            spoken = "pycon" if ">>>" in found[2] and found[1] else spoken
            return f"```{spoken}\n{found[2].rstrip()}\n```"  # doctest wants an empty line at the end
        return found[0]

    text = re.sub(r"^```(\S*)\n(.*?)^```$", named, text, flags=re.M | re.S)
    text = FORMULAS.sub(lambda found: found[1] + docs_formulas.typeset(found[2].replace("Σ_", "sum_")), text)
    return OPTIONS.sub(lambda found: f":::{{container}} options\n{MEANING.sub(meant, found[0])}\n:::\n", text)


def meant(found: re.Match[str]) -> str:
    """A row of options, the formulas in its last cell typeset; code and the words that the option takes stay."""
    parts = re.split(r"(`[^`]+`|\(one of [^()]*\)|\[[^\]]*\]\([^)]*\))", found[2])
    for at, part in list(enumerate(parts))[::2]:
        pieces = docs_formulas.pieces(re.sub(r"\\(\W|_)", r"\1", part))
        parts[at] = "".join(
            docs_formulas.typeset(piece) if math else docs_methods.plain(piece) for math, piece in pieces
        )
    return found[1] + "".join(parts) + found[3]


def published() -> str:
    """Where the site lives, from the one place that says it; empty: nowhere yet."""
    hooks = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    return str(hooks["custom"]["documentation"]).rstrip("/")


def mirror(fresh: Path, target: Path) -> None:
    """Make target as fresh; a file whose content stays keeps its time, so that Sphinx does not read it again."""
    wanted = {p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file()}
    for path in [p for p in target.rglob("*") if p.is_file() and p.relative_to(target) not in wanted]:
        path.unlink()
    for name in wanted:
        new, old = fresh / name, target / name
        if not old.exists() or old.read_bytes() != new.read_bytes():
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(new, old)
    shutil.rmtree(fresh)


def kept(kind: str) -> Path:
    """The folder of what this library gave; those of former ones are deleted."""
    folder = CACHE / f"{kind}-{docs_blocks.package_digest()}"
    for old in CACHE.glob(f"{kind}*"):
        if old != folder:
            shutil.rmtree(old)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def surroundings() -> dict[str, str]:
    """The environment in which notebooks run and Sphinx."""
    told = {
        "FEDSKEW_CHECKOUT": str(ROOT),
        "FEDSKEW_NOTEBOOKS": str(kept("notebooks")),
        "FEDSKEW_EXTRA": str(EXTRA),
        "FEDSKEW_PUBLISHED": published(),
        "MPLBACKEND": INLINE,
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore:IProgress not found",  # of tqdm, which transformers brings: no bar is drawn
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    told["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    return {n: v for n, v in os.environ.items() if n != "FEDSKEW_DATA"} | told


def sphinx(builder: str, out: Path, *pages: Path) -> int:
    """Run Sphinx, over all pages or over some; warnings are errors."""
    words = ["-W", "--keep-going", "-q", "-b", builder, "-c", str(ROOT / "docs"), "-d", str(BUILD / "trees")]
    command = [sys.executable, "-m", "sphinx", *words, str(SOURCE), str(out), *map(str, pages)]
    return subprocess.run(command, env=surroundings()).returncode


def complaints() -> list[str]:
    """What a reader would stumble over in the pages that were built."""
    links = re.findall(r"\]\(([^)]+)\)", (HTML / "llms.txt").read_text(encoding="utf-8"))
    told = [f"llms.txt: no page {link}" for link in links if not (HTML / link).exists()]
    for page in sorted(HTML.rglob("*.html")):
        text, name = page.read_text(encoding="utf-8"), page.relative_to(HTML)
        if len(text.encode()) > LARGEST:
            told.append(f"{name}: {len(text.encode()):,} bytes; at most {LARGEST:,}")
        for image in re.findall(r"<img\b[^>]*>", text):
            alt = re.search(r'alt="([^"]*)"', image)
            if not alt or not alt[1] or re.fullmatch(r"\S+\.(png|svg)", alt[1]):
                told.append(f"{name}: an image without an alternative text: {image[:120]}")
        for link in set(re.findall(r'href="([^"#:?]+)(?:#([^"]*))?"', text)):
            target = (page.parent / link[0]).resolve()
            if not target.exists() and not (target / "index.html").exists():
                told.append(f"{name}: no page {link[0]}")
    return told


def main() -> int:
    """Build, and say what is wrong."""
    start = time.monotonic()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = docs_blocks.run(pages, CACHE / "blocks")
    mirror(sources(), SOURCE)
    if "--links" in sys.argv[1:]:
        return sphinx("linkcheck", BUILD / "links")
    failed = sphinx("html", HTML)
    names = [page for page in SOURCE.glob("api/*.md") if "{eval-rst}" in page.read_text(encoding="utf-8")]
    failed = failed or sphinx("text", BUILD / "text", *names)  # what is made of docstrings, for programs
    for page in names if not failed else ():
        shutil.copy(BUILD / f"text/api/{page.stem}.txt", HTML / f"api/{page.name}")
    wrong += [] if failed else complaints()
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    pages = len(list(HTML.rglob("*.html")))
    print(f"{HTML.relative_to(ROOT)}/index.html: {pages} pages, {time.monotonic() - start:.0f} s")
    return int(bool(failed or wrong))


if __name__ == "__main__":
    sys.exit(main())
