"""The site that `make docs` built, in a browser: nothing fails, text can be read, no page is too wide or too long."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.paths import ROOT

SITE = ROOT / "build/docs/html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), "")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: apt install chromium"),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="no site: make docs"),
]
KINDS = (  # one page of each kind, and the largest ones
    "index", "guide", "project", "search", "docs/guide/first-run", "docs/guide/compose", "docs/guide/own-data",
    "docs/findings", "docs/reference/options", "docs/reference/parts", "docs/reference/partitions",
    "methods/index", "methods/fedbal", "api/index", "api/fedskew",
    "api/json", "api/methods", "api/results", "api/studies", "examples/gallery/index", "examples/gallery/eleven",
    "examples/gallery/deploy", "notes/cards", "notes/log", "CHANGELOG",
)  # fmt: skip
WATCH = """<script>
window.wrong = [];
addEventListener("error", e => wrong.push(e.message || `not loaded: ${e.target.src || e.target.href}`), true);
addEventListener("unhandledrejection", e => wrong.push(`${e.reason}`));
const plain = console.error; console.error = (...words) => { wrong.push(words.join(" ")); plain(...words); };
</script>"""
LOOK = Path(__file__).with_name("site.html")


class Handler(SimpleHTTPRequestHandler):
    """Serves the site, each page with a script that notes what fails, and takes what was found."""

    done: threading.Event
    found: list[dict[str, Any]]

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if self.path == "/look":
            self._say(LOOK.read_text(encoding="utf-8").replace("KINDS", json.dumps(KINDS)))
        elif path.suffix == ".html" and path.exists():
            self._say(path.read_text(encoding="utf-8").replace("<head>", f"<head>{WATCH}", 1))
        else:
            super().do_GET()

    def _say(self, page: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.encode())

    def do_POST(self) -> None:
        type(self).found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.done.set()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the browser found on each kind of page, at two widths, in the light and in the dark."""
    Handler.done = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--window-size=1600,1000", "--remote-debugging-port=0",
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}", f"http://127.0.0.1:{server.server_port}/look",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert Handler.done.wait(300), "Chromium found nothing in 300 s"
    finally:
        process.terminate()
        process.wait(20)
        server.shutdown()
        server.server_close()
    return Handler.found


def _told(seen: list[dict[str, Any]], entry: str) -> list[tuple[Any, ...]]:
    return [(page["name"], page["width"], page["theme"], page[entry]) for page in seen if page[entry]]


def test_every_page_is_opened_in_both_themes(seen: list[dict[str, Any]]) -> None:
    assert len(seen) == 4 * len(KINDS) and all(page["title"] and page["is"] == page["theme"] for page in seen)


def test_nothing_fails_and_nothing_is_asked_of_other_sites(seen: list[dict[str, Any]]) -> None:
    assert _told(seen, "wrong") == [] and _told(seen, "broken") == [] and _told(seen, "outside") == []


def test_text_stands_out_from_its_ground(seen: list[dict[str, Any]]) -> None:
    """4.5 to 1, or 3 to 1 if it is large: WCAG 2.1, level AA."""
    assert _told(seen, "faint") == []


def test_no_page_is_wider_than_the_window(seen: list[dict[str, Any]]) -> None:
    assert [(page["name"], page["scrolls"]) for page in seen if page["scrolls"] > page["width"]] == []


def test_no_page_is_longer_than_fifteen_screens(seen: list[dict[str, Any]]) -> None:
    assert [(page["name"], page["width"], page["tall"]) for page in seen if page["tall"] > 15] == []
