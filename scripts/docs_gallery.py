"""Run the notebooks of the gallery, one on each core, into the cache that Sphinx reads; make thumbnails and their page.

python scripts/docs_gallery.py FOLDER CACHE    FOLDER has the notebooks and index.md, whose toctree orders them
"""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from myst_nb.core.read import myst_nb_reader_plugin
from PIL import Image

WIDE = 420  # pixels of a thumbnail
LIMIT = 600  # seconds of a notebook on a machine that is busy with other work
CARD = """:::{{grid-item-card}} {title}
:img-top: {picture}
:img-alt: {alt}
:link: {name}
:link-type: doc
{text}
:::
"""


def executed(pages: list[Path], folder: Path) -> tuple[dict[Path, Any], list[str]]:
    """The notebooks with their outputs, from the cache where it has them; and what failed."""
    cache = get_cache(str(folder))
    names = [str(page) for page in pages]
    for name in names:
        cache.add_nb_to_project(name, read_data={"name": "myst_nb_md", "type": "plugin"})
    done = load_executor("temp-parallel", cache).run_and_cache(filter_uris=names, timeout=LIMIT)
    if wrong := [f"{uri}: {cache.get_project_record(uri).traceback}" for uri in done.excepted + done.errored]:
        return {}, wrong
    return {p: cache.merge_match_into_notebook(myst_nb_reader_plugin(str(p)))[1] for p in pages}, []


def thumbnail(notebook: Any, target: Path) -> None:
    """The first picture of a notebook, small."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    (picture, *_) = [output["data"]["image/png"] for output in outputs if "image/png" in output["data"]]
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.thumbnail((WIDE, WIDE))
        target.parent.mkdir(exist_ok=True)
        image.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(target, optimize=True)


def download(notebook: Any, page: Path) -> None:
    """The notebook as a file, and a link to it at the end of its page."""
    target = page.parent / f"notebooks/{page.stem}.ipynb"
    target.parent.mkdir(exist_ok=True)
    nbformat.write(notebook, target)
    link = f"{{download}}`Download this example as a notebook <notebooks/{target.name}>`"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n{link}\n", encoding="utf-8")


def card(page: Path) -> str:
    """Title, thumbnail and first sentence of a notebook."""
    text = page.read_text(encoding="utf-8")
    title, first = re.findall(r"^# (.+)\n\n(.+?[.?])(?: (?=[A-Z])|$)", text, re.M)[0]
    (alt, *_) = re.findall(r'alt: "(.+)"', text)
    return CARD.format(title=title, picture=f"thumbnails/{page.stem}.png", alt=alt, name=page.stem, text=first)


def main(folder: Path, cache: Path) -> int:
    """Run them, and add the cards to the index."""
    index = folder / "index.md"
    text = index.read_text(encoding="utf-8")
    pages = [folder / f"{name}.md" for name in re.findall(r"^(\w+)$", text, re.M)]
    notebooks, wrong = executed(pages, cache)
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    for page, notebook in notebooks.items():
        thumbnail(notebook, folder / "thumbnails" / f"{page.stem}.png")
        download(notebook, page)
    cards = "\n".join(card(page) for page in pages)
    index.write_text(f"{text}\n::::{{grid}} 1 2 2 3\n:gutter: 3\n\n{cards}::::\n", encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
