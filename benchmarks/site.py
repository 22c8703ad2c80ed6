"""How fast the site is built and how light its pages are, as Markdown tables.

    python benchmarks/site.py [--jobs 2] [--full PIN,… | --full all] [--pages 100,500,2000]

Builds in this checkout's ``site/``, from the index that is there. Processor seconds stand beside the clock's, because
the machine may be busy. Times in a browser need Chromium and Playwright; they are left out where there is none.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import http.server
import os
import platform
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from annotator.index import Index  # noqa: E402
from annotator.site import build, source  # noqa: E402
from annotator.site.atlas import Atlas, current, source_address  # noqa: E402
from annotator.site.serving import Preview  # noqa: E402
from annotator.workspace import Workspace  # noqa: E402

READING = "verl/grpo-advantage"
SLOW = {"downloadThroughput": 1_600_000 / 8, "uploadThroughput": 750_000 / 8, "latency": 150, "offline": False}
"""Lighthouse's slow 4G: 1.6 Mbit/s, 150 ms."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]

Rows = list[tuple[str, str, str, str]]


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor in this process and those it started."""
    began, used = time.perf_counter(), processor()
    action()
    return time.perf_counter() - began, processor() - used


def processor() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


@contextlib.contextmanager
def edited(file: Path, old: str, new: str) -> Iterator[None]:
    """A file with other text for a while."""
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(text, encoding="utf-8")


def say(text: str) -> None:
    """Tells on standard error what runs now, so that the tables alone are on standard output."""
    print(text, file=sys.stderr, flush=True)


def seconds(taken: tuple[float, float]) -> str:
    return f"{taken[0]:.1f} s ({taken[1]:.1f} s of the processor)"


def builds(workspace: Workspace) -> Rows:
    """Whole builds, cold and with one reading changed, and the preview's."""
    say("cold build")
    for derived in (workspace.site, *(workspace.root / ".cache").glob("symbols-*")):
        shutil.rmtree(derived, ignore_errors=True)
    workspace.index.with_name("links.sqlite").unlink(missing_ok=True)
    rows: Rows = [
        ("cold build of all readings", "nothing kept but the index", seconds(timed(lambda: build(workspace))), "60 s")
    ]
    say("one reading changed")
    reading = workspace.readings / f"{READING}.md"
    with edited(reading, "\n/// step", "\nA sentence more.\n\n/// step"):
        rows.append(("build, one reading changed", READING, seconds(timed(lambda: build(workspace))), "10 s"))
    preview = Preview(workspace)
    preview.start()
    with edited(reading, "\n/// step", "\nA sentence more.\n\n/// step"):
        rows.append(("preview, one reading changed", READING, seconds(timed(preview.again)), "2 s"))
    build(workspace)
    return rows


def sizes(workspace: Workspace, atlas: Atlas, keys: list[tuple[str, str]]) -> tuple[int, int]:
    """Lines and bytes of files."""
    query = "SELECT lines, size FROM files WHERE pin=? AND path=?"
    found = [atlas.index.connection.execute(query, key).fetchone() for key in keys]
    return sum(lines for lines, _ in found), sum(size for _, size in found)


class Some(Atlas):
    """A map on which just these files have a page."""

    files: list[tuple[str, str]]

    @property
    def paged(self) -> list[tuple[str, str]]:
        return self.files


def some(workspace: Workspace, files: list[tuple[str, str]]) -> Some:
    known = current(workspace)
    atlas = Some(workspace, known.lock, Index.open(workspace), {}, whole=True)
    atlas.touched = known.touched
    atlas.files = files
    return atlas


def full(workspace: Workspace, pins: list[str], jobs: int) -> Rows:
    """Source pages of whole pins, names resolved anew, and then once more with the links that were kept."""
    rows: Rows = []
    with Index.open(workspace) as index:
        files = {pin: [(pin, path) for path in index.paths(pin)] for pin in pins}
    for pin, keys in files.items():
        atlas = some(workspace, keys)
        lines, size = sizes(workspace, atlas, keys)
        for how in ("resolved anew", "links kept"):
            say(f"{pin}: {lines:,} lines, {how}")
            if how == "resolved anew":
                workspace.index.with_name("links.sqlite").unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(dir=workspace.root / ".cache") as folder:
                taken = timed(lambda: source.write(atlas, Path(folder), jobs=jobs))  # noqa: B023
                html = sum(file.stat().st_size for file in Path(folder).rglob("*.html"))
            rate = f"{lines / taken[0]:,.0f} lines/s, {seconds(taken)}"
            rows.append((f"--full, {how}", f"{pin}, {lines:,} lines", rate, "20,000 lines/s"))
        rows.append(("markup bytes a byte of source", pin, f"{(html - size) / size:.1f}", "12"))
    return rows


def flat(workspace: Workspace, counts: list[int]) -> Rows:
    """Time a page with more and more pages of some hundred lines."""
    query = "SELECT pin, path FROM files WHERE language='python' AND lines BETWEEN 80 AND 400 ORDER BY pin, path"
    with Index.open(workspace) as index:
        files = index.connection.execute(query).fetchall()
    rows: Rows = []
    for count in counts:
        step = max(1, len(files) // count)
        keys = files[::step][:count]
        say(f"{len(keys)} pages")
        with tempfile.TemporaryDirectory(dir=workspace.root / ".cache") as folder:
            taken = timed(lambda: source.write(some(workspace, keys), Path(folder), jobs=1))  # noqa: B023
        lines = sizes(workspace, current(workspace), keys)[0]
        row = f"{taken[1] / len(keys) * 1e3:.1f} ms of the processor, {taken[1] / lines * 1e6:.0f} µs a line"
        rows.append(("time a page", f"{len(keys):,} source pages", row, "flat"))
    return rows


def weights(workspace: Workspace) -> Rows:
    """The heaviest reading page, plain and compressed, and the markup of source pages."""
    atlas = current(workspace)
    pages = {}
    for reading in atlas.pages.values():
        if reading.steps:
            html = (workspace.site / f"{reading.name}.html").read_bytes()
            pages[reading.name] = len(html), len(gzip.compress(html))
    name = max(pages, key=lambda one: pages[one][0])
    rows: Rows = [("heaviest reading page", name, f"{pages[name][0] / 1e3:.0f} KB", "250 KB")]
    name = max(pages, key=lambda one: pages[one][1])
    rows.append(("heaviest reading page, gzip", name, f"{pages[name][1] / 1e3:.0f} KB", "80 KB"))
    ratios = {}
    for key in current(workspace).paged:
        size = sizes(workspace, atlas, [key])[1]
        ratios[key] = ((workspace.site / source_address(*key)).stat().st_size - size) / max(size, 2000)
    worst = max(ratios, key=lambda one: ratios[one])
    rows.append(("markup bytes a byte of source, worst", "/".join(worst), f"{ratios[worst]:.1f}", "12"))
    every = [file.stat().st_size for file in (workspace.site / "symbols").rglob("*.json")]
    rows.append(
        (
            "data of the symbol search",
            f"{len(every):,} files",
            f"{sum(every) / 1e6:.0f} MB, largest {max(every) / 1e3:.0f} KB",
            "",
        )
    )
    return rows


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that compresses, as hosts of pages do, and says nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def do_GET(self) -> None:
        """A file; text is compressed."""
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        body, kind = file.read_bytes(), self.guess_type(str(file))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        if kind.startswith("text/") or kind.endswith(("javascript", "json", "svg+xml")):
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def long_page(workspace: Workspace) -> tuple[str, int]:
    """The page of about 3,000 lines that has one here."""
    atlas = current(workspace)
    lines = {key: sizes(workspace, atlas, [key])[0] for key in atlas.paged}
    key = min(lines, key=lambda one: abs(lines[one] - 3000))
    return source_address(*key), lines[key]


PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
SLOWEST = """
() => {
  window.took = [];
  const seen = new PerformanceObserver((list) => list.getEntries().forEach((one) => window.took.push(one.duration)));
  seen.observe({ type: 'event', durationThreshold: 16, buffered: true });
}
"""


def browser(workspace: Workspace) -> Rows:
    """First paint on a slow line, and how long the slowest interaction waits for its paint on a page of 3,000 lines."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if not program:
        say("no browser here")
        return []
    rows: Rows = []
    page_address, lines = long_page(workspace)
    with served(workspace.site) as address, sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for name in (f"{READING}.html", page_address):
            say(f"first paint of {name}")
            paints = []
            for _ in range(3):
                page = opened.new_page()
                page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", SLOW)
                page.goto(f"{address}/{name}", wait_until="load", timeout=120_000)
                page.wait_for_function(PAINTED)
                paints.append(page.evaluate(PAINTED))
                page.close()
            rows.append(("first contentful paint, 1.6 Mbit/s, 150 ms", name, f"{sorted(paints)[1] / 1e3:.2f} s", "1 s"))
        say(f"interactions on {page_address}")
        page = opened.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}/{page_address}")
        page.evaluate(SLOWEST)
        page.evaluate("document.querySelector('.outline').open = true")
        links = page.locator(".outline a")
        for at in range(0, links.count(), max(1, links.count() // 8)):
            links.nth(at).click()
            page.wait_for_timeout(150)
        for key in ("End", "Home", "PageDown", "PageDown", "Tab", "Tab", "t", "g", "r", "Escape"):
            page.keyboard.press(key)
            page.wait_for_timeout(150)
        worst = page.evaluate("Math.max(0, ...window.took)")
        nodes = page.evaluate("document.querySelectorAll('*').length")
        told = f"{worst:.0f} ms" if worst else "below 16 ms"
        rows.append(("slowest interaction to its next paint", f"{lines:,} lines, {nodes:,} elements", told, "100 ms"))
        opened.close()
    return rows


def table(rows: Rows) -> None:
    print("| measure | of | result | target |\n| --- | --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--full", default="verl", help="pins of which every file is written, or all")
    parser.add_argument("--pages", default="100,500,2000")
    given = parser.parse_args()
    workspace = Workspace.find(ROOT)
    with Index.open(workspace) as index:
        pins = index.pins() if given.full == "all" else given.full.split(",")
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the start\n")
    table(builds(workspace))
    table([*weights(workspace), *browser(workspace)])
    table([*full(workspace, pins, given.jobs), *flat(workspace, [int(count) for count in given.pages.split(",")])])


if __name__ == "__main__":
    main()
