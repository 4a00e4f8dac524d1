"""Run the notebooks of the gallery, two at a time, into the cache that Sphinx reads; make thumbnails and their page.

python scripts/docs_gallery.py FOLDER CACHE    FOLDER has the notebooks and index.md, whose toctree orders them
"""

from __future__ import annotations

import base64
import io
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import myst_nb_reader_plugin
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from PIL import Image

WIDE = 420  # pixels of a thumbnail
LIMIT = 180  # seconds of a notebook
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
    read = {page: myst_nb_reader_plugin(str(page)) for page in pages}
    todo = [page for page in pages if not _is_known(cache, read[page])]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(todo, pool.map(lambda page: _run(read[page]), todo), strict=True))
    for page in (page for page in todo if not found[page]):
        cache.cache_notebook_bundle(CacheBundleIn(read[page], str(page)), check_validity=False)
    wrong = [f"examples/gallery/{page.name}: {found[page]}" for page in todo if found[page]]
    return {page: cache.merge_match_into_notebook(read[page])[1] for page in pages} if not wrong else {}, wrong


def _is_known(cache: Any, notebook: Any) -> bool:
    try:
        return bool(cache.match_cache_notebook(notebook))
    except KeyError:
        return False


def _run(notebook: Any) -> str:
    """Run it in an empty folder; what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        place, quiet = {"metadata": {"path": folder}}, ["--log-level=ERROR"]
        try:
            NotebookClient(
                notebook, timeout=LIMIT, resources=place, extra_arguments=quiet, record_timing=False
            ).execute()
        except (CellExecutionError, TimeoutError) as error:
            return str(error).strip()[-600:]
    return ""


def thumbnail(notebook: Any, target: Path) -> None:
    """The first picture of a notebook, small."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    (picture, *_) = [output["data"]["image/png"] for output in outputs if "image/png" in output["data"]]
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        image.thumbnail((WIDE, WIDE))
        target.parent.mkdir(exist_ok=True)
        image.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(target, optimize=True)


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
    cards = "\n".join(card(page) for page in pages)
    index.write_text(f"{text}\n::::{{grid}} 1 2 2 3\n:gutter: 3\n\n{cards}::::\n", encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
