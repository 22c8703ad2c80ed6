"""The pictures of the README, taken from the built site: `make screenshots`."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--hide-scrollbars"]
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
            page.screenshot(path=ROOT / "walkthroughs" / "assets" / name)
            print(name, (ROOT / "walkthroughs" / "assets" / name).stat().st_size // 1000, "KB")
        browser.close()


if __name__ == "__main__":
    main()
