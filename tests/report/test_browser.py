"""The page in headless Chromium: how fast it opens, what it asks for, how it looks on a phone and without scripts.

A page of the test's own holds the report in a frame, measures, and sends what it found. Debian: `apt install chromium`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fedskew import report
from support.reports import study

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), "")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium: apt install chromium"),
]
pytest.importorskip("jinja2", reason="jinja2 is not installed: pip install -e '.[report]'")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install -e '.[plot]'")

FRAME = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head>
<body><iframe id="f" style="border:0" width="%(width)d" height="900" %(more)s></iframe><script>
const frame = document.getElementById("f"), start = performance.now();
frame.onload = () => requestAnimationFrame(() => requestAnimationFrame(async () => {
  const opened = performance.now() - start, page = frame.contentDocument, view = frame.contentWindow;
  const found = await (async () => { %(script)s })();
  await fetch("/found", {method: "POST", body: JSON.stringify({opened, ...found})});
}));
frame.src = "/report";
</script></body></html>"""


class Browser:
    """Chromium, and a server that counts what it asks for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.pages = folder, [], {}  # type: ignore[var-annotated]
        self.done, self.found = threading.Event(), {}  # type: ignore[var-annotated]
        browser = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                browser.asked.append(self.path)
                content = browser.pages.get(self.path, "").encode()
                self.send_response(200 if content else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def do_POST(self) -> None:
                browser.found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()
                browser.done.set()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def look(self, page: str, script: str = "return {};", width: int = 1280, more: str = "", *flags: str) -> Any:
        """What a script finds of the page in a frame; ``opened``: milliseconds until it is laid out and drawn."""
        self.pages = {"/": FRAME % {"width": width, "script": script, "more": more}, "/report": page}
        self.done.clear()
        self.asked.clear()
        command = [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-default-apps", "--disable-sync",
            "--window-size=1400,1000", f"--user-data-dir={self.folder}", *flags,
            f"http://127.0.0.1:{self.server.server_port}/",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        process = subprocess.Popen([*command, "--remote-debugging-port=0"], stdout=quiet, stderr=quiet)
        try:
            assert self.done.wait(60), "Chromium found nothing in 60 s"
        finally:
            process.terminate()
            process.wait(20)
        return self.found


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    made = Browser(tmp_path / "chromium")
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_page_of_500_runs_opens_in_a_second_and_asks_for_nothing(browser: Browser) -> None:
    names = tuple(f"class {i}" for i in range(10))
    page = report.build(study(10, 10, 5, names=names, clients=100, rounds=200), title="500 runs")
    script = "return {entries: view.performance.getEntriesByType('resource').length};"
    found = [browser.look(page, script) for _ in range(3)]
    assert min(one["opened"] for one in found) < 1000 and not any(one["entries"] for one in found)
    assert [path for path in browser.asked if path != "/favicon.ico"] == ["/", "/report"]


@pytest.fixture(scope="module")
def small() -> str:
    return report.build(study(3, 2, 3), title="Three methods")


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_but_a_table_scrolls_sideways(browser: Browser, small: str, width: int) -> None:
    script = """
      for (const d of page.querySelectorAll("details")) d.open = true;
      const wide = [...page.querySelectorAll("body *")].filter(e => !e.matches(".skip")
        && !e.parentElement.closest(".scroll, pre")
        && e.getBoundingClientRect().right > view.innerWidth + 1).map(e => e.tagName + "." + e.className);
      return {wide: wide, scrolls: page.documentElement.scrollWidth};"""
    found = browser.look(small, script, width)
    assert found["wide"] == [] and found["scrolls"] <= width


def test_its_own_script_sorts_and_runs_under_its_policy(browser: Browser, small: str) -> None:
    script = """
      const table = page.querySelector("#results table"), head = table.tHead.rows[0].cells[2];
      const read = () => [...table.tBodies[0].rows].map(row => row.cells[2].textContent);
      const before = read(); head.querySelector("button").click();
      const up = read(), told = head.getAttribute("aria-sort"); head.querySelector("button").click();
      return {before, up, told, down: read()};"""
    found = browser.look(small, script)
    assert found["up"] == sorted(found["before"]) and found["down"] == found["up"][::-1]
    assert found["told"] == "ascending"


def test_without_scripts_every_table_and_picture_is_there(browser: Browser, small: str) -> None:
    script = """
      const seen = e => e.getBoundingClientRect().width > 50 && e.getBoundingClientRect().height > 20;
      return {tables: [...page.querySelectorAll("main table")].filter(t => !t.closest("details")).every(seen),
              pictures: [...page.querySelectorAll("figure")].filter(e => !e.matches(".curves figure"))
                .every(e => seen(e) && e.querySelector("img").naturalWidth > 50),
              buttons: page.querySelectorAll("button").length};"""
    found = browser.look(small, script, more='sandbox="allow-same-origin"')
    assert found["tables"] and found["pictures"] and found["buttons"] == 0
