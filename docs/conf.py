"""Configuration of the site. `make docs` copies the pages to build/docs/source and adds those made from the code."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

from fedskew.fields import documented
from fedskew.settings import Settings

ROOT = Path(os.environ["FEDSKEW_CHECKOUT"])  # scripts/docs.py sets it: this file runs with a copy of the pages
sys.path.insert(0, str(ROOT / "scripts"))
from docs_formulas import pieces, shown, typeset  # noqa: E402

project = "fedskew"
author = copyright = "The fedskew developers"
(release,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "src/fedskew/__init__.py").read_text(encoding="utf-8"), re.M)
version = "main"
published = os.environ["FEDSKEW_PUBLISHED"]  # where the site lives; empty: nowhere yet, so no versions to choose from

root_doc = "index"
exclude_patterns = ["**/notebooks/*"]  # files to download
extensions = ["myst_nb", "sphinx_design", "sphinx.ext.githubpages", "sphinx.ext.autodoc"]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 5  # as on GitHub, so that links hold in both places
highlight_language = "text"
suppress_warnings = [
    "myst.header",  # pages of notes may begin a section at the third level
    "ref.python",  # a field's type names another field, as in AtMost("clients"), and several classes have that field
]

nb_execution_mode = "cache"
nb_execution_cache_path = os.environ["FEDSKEW_NOTEBOOKS"]
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True

default_role = "literal"  # of one backquote in a docstring
add_module_names = False
maximum_signature_line_length = 80
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"

html_theme = "pydata_sphinx_theme"
html_title = "fedskew"
html_static_path = ["site/static"]
html_css_files = ["fedskew.css"]
html_js_files = ["scrolls.js"]
html_favicon = "site/static/favicon.svg"
html_context = {"default_mode": "auto"}  # of the theme: without it the console tells of an error
html_extra_path = [os.environ["FEDSKEW_EXTRA"]]  # llms.txt, its pages as Markdown, schemas
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "switcher": {"json_url": f"{published}/versions.json", "version_match": version},
    "check_switcher": False,  # it is looked for in the pages, where there is none
    "show_version_warning_banner": False,
    "navbar_end": ["version-switcher", "theme-switcher"] if published else ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "navigation_with_keys": False,
}
html_sidebars = {"index": [], "docs/findings": [], "docs/guide/first-run": []}
linkcheck_ignore = [r"http://(localhost|127\.0\.0\.1).*", r"https?://.*example\.(org|com).*"]

MARKUP = re.compile(r"(``[^`]+``|`[^`]+`)|([|*_\\])")
LIMITS = re.compile(r"~?(?:typing\.)?Annotated\[(.+?), .*?\](?= \||,? \w+:| =|, \.\.\.|\)|\]|$)")

FORMULAS = ("fedskew.functional", "fedskew.data.skew", "fedskew.records.metrics")  # what is indented there is one
FORMULA = """.. only:: html

   .. raw:: html

{html}

.. only:: not html

   ::

{text}"""


def formula(part: str) -> str:
    """A formula, typeset for the site and as it stands for programs."""
    text = textwrap.dedent(part)
    return FORMULA.format(html=textwrap.indent(shown(part), " " * 6), text=textwrap.indent(text, " " * 6))


def plain(text: str) -> str:
    """Text in which bars and asterisks mean themselves."""
    return MARKUP.sub(lambda found: found[1] or f"\\{found[2]}", text)


def with_formulas(text: str) -> str:
    """Text, its formulas marked for typeset_marked; a name in front of a colon is an argument's, and stays."""
    lines = []
    for line in text.splitlines():
        name = re.match(r"\s*(?:\*{0,2}\w+(?:, \w+)*: )?", line)[0]  # type: ignore[index]
        marked = [
            piece.replace(piece.strip(), rf"\ :formula:`{piece.strip()}`\ ") if found else plain(piece)
            for found, piece in pieces(line[len(name) :])
        ]
        lines.append(plain(name) + "".join(marked))
    return "\n".join(lines)


def as_text(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """What is indented keeps its lines; fields of a dataclass stand with it."""
    parts = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    formulas = _module(thing).startswith(FORMULAS)
    for i, part in enumerate(parts):
        if all(line.startswith("  ") for line in part.splitlines()):
            typeset = formula(part) if formulas else f"::\n\n{part}"
            parts[i] = part if ">>>" in part else typeset
        elif ">>>" not in part:
            parts[i] = with_formulas(part) if formulas else plain(part)
    lines[:] = GoogleDocstring("\n\n".join(parts), Config(napoleon_use_ivar=True)).lines()
    if isinstance(thing, type) and dataclasses.is_dataclass(thing) and ":ivar" not in "".join(lines):
        fields = {field: " ".join(text.split()) for field, text in documented(thing).items()}
        lines += ["", *(f":ivar {field}: {plain(text)}" for field, text in fields.items()), ""]


def _module(thing: Any) -> str:
    return str(getattr(thing, "__module__", None) or getattr(thing, "__name__", ""))


def without_limits(app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returns: str) -> Any:
    """The page of options has the limits, and the settings, which fs.run takes by keyword."""
    if name == "fedskew.run":
        (function,) = ast.parse(f"def run{signature}: ...").body
        own = [i for i, arg in enumerate(function.args.kwonlyargs) if arg.arg not in Settings.__dataclass_fields__]
        for field in ("kwonlyargs", "kw_defaults"):
            setattr(function.args, field, [getattr(function.args, field)[i] for i in own])
        signature = f"({ast.unparse(function.args)})"
    return (LIMITS.sub(r"\1", signature), returns) if signature else None


def is_field(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Fields stand with their class."""
    return True if what == "class" and not callable(thing) and not isinstance(thing, property) else None


def typeset_marked(app: Sphinx, page: nodes.document, name: str) -> None:
    """The formulas in sentences, on the site; for programs they stay as they stand."""
    for node in [n for n in page.findall(nodes.inline) if "formula" in n["classes"] and app.builder.format == "html"]:
        text = typeset(f" {node.astext()} ").strip()  # a sign stands between spaces
        node.replace_self(nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> None:
    """Docstrings are Google's, not reStructuredText."""
    app.add_role("formula", lambda name, raw, text, *_: ([nodes.inline(raw, text, classes=["formula"])], []))
    app.connect("doctree-resolved", typeset_marked)
    app.connect("autodoc-process-docstring", as_text)
    app.connect("autodoc-process-signature", without_limits)
    app.connect("autodoc-skip-member", is_field)
