"""The pictures of the README, of the built site and of a report of `diff`: `make screenshots`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--hide-scrollbars"]
FOLDER = ROOT / ".github" / "pictures"
MINE = "tests/zoo/grpo/np_std.py:compute_advantages"
PICTURES = {"reading.png": ("verl/grpo-advantage.html", "step-what-it-multiplies")}


def main() -> None:
    """Takes each picture, gradients switched on."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        for name, (address, step) in PICTURES.items():
            page.goto((ROOT / "site" / address).as_uri())
            page.evaluate("document.querySelectorAll('.ann-observed .g').forEach((box) => { box.checked = true; })")
            page.evaluate(f"document.getElementById('{step}').scrollIntoView(); window.scrollBy(0, -90)")
            page.wait_for_timeout(400)
            save(page, name)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.html")
            diff = [sys.executable, "-m", "annotator", "diff", MINE, "grpo-advantage", "--html", str(report)]
            subprocess.run(diff, cwd=ROOT, check=False)  # exits with 1: it differs
            page.goto(report.as_uri())
            save(page, "diff.png")
        browser.close()


def save(page: Page, name: str) -> None:
    """Takes what the window shows."""
    page.screenshot(path=FOLDER / name)
    print(name, (FOLDER / name).stat().st_size // 1000, "KB")


if __name__ == "__main__":
    main()
