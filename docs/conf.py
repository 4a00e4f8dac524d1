"""Configuration of the site. `make docs` copies the pages to build/docs/source and adds those made from the code."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(os.environ["FEDSKEW_CHECKOUT"])  # scripts/docs.py sets it: this file runs with a copy of the pages

project = "fedskew"
author = copyright = "The fedskew developers"
(release,) = re.findall(r'^__version__ = "(.+)"', (ROOT / "src/fedskew/__init__.py").read_text(encoding="utf-8"), re.M)
version = "main"

root_doc = "index"
extensions = ["myst_nb", "sphinx_design", "sphinx.ext.githubpages"]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 5  # as on GitHub, so that links hold in both places
highlight_language = "text"
suppress_warnings = ["myst.header"]  # pages of notes may begin a section at the third level

nb_execution_mode = "cache"
nb_execution_cache_path = os.environ["FEDSKEW_NOTEBOOKS"]
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "fedskew"
html_static_path = ["site/static"]
html_css_files = ["fedskew.css"]
html_extra_path = [os.environ["FEDSKEW_EXTRA"]]  # llms.txt, its pages as Markdown, schemas
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "switcher": {"json_url": "_static/versions.json", "version_match": version},
    "check_switcher": False,  # it is looked for in the pages, where there is none
    "show_version_warning_banner": False,
    "navbar_end": ["version-switcher", "theme-switcher"],
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
