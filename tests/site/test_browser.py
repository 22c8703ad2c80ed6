"""The built site in a real Chromium: widths, keys, no JavaScript, accessibility, weight. What a reader meets.

`annotator build` comes before. Skipped where no site is built, or where there is no Chromium.
"""

from __future__ import annotations

import functools
import gzip
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
READINGS = ("verl/grpo-advantage", "trl/dpo-loss", "vllm/token-sampling", "pytorch/adamw-step")
METHODS = ("methods/index", "methods/policy-loss", "methods/prefix-cache", "methods/token-sampling")
"""The map; the contract with the most knobs, one without twins, one without knobs."""
KINDS = ("index", READINGS[0], "contracts", "diff", "api/annotator", "source/trl/trl/trainer/dpo_trainer.py", *METHODS)
"""A page of each kind. One is enough: they are made alike, and a real browser is slow."""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]
WIDTHS = (360, 768, 1440)
PATIENCE = 180_000
"""Milliseconds: the cores may be busy with other tests."""

pytestmark = pytest.mark.slow


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A file server that says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if not (SITE / "index.html").is_file():
        pytest.skip("no site is built here: annotator build")
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", KINDS)
def test_no_page_is_wider_than_its_window_or_asks_others(name: str, page: Any, address: str) -> None:
    asked: list[str] = []
    failed = complaints(page)
    page.on("request", lambda request: asked.append(request.url))
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(f"{address}/{name}.html")
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} at {width} pixels: {wide} too wide"
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert failed == []


def complaints(page: Any) -> list[str]:
    """What a page will complain of from now on: errors of its scripts, and what its security policy refuses."""
    told: list[str] = []
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("console", lambda line: told.append(line.text) if "Content Security Policy" in line.text else None)
    return told


ADD = "document.body.insertAdjacentHTML('beforeend', '{}')"
FAULTS = {
    "script-src": "const s = document.createElement('script'); s.text = 'window.ran = 1'; document.body.append(s)",
    "script-src-attr": ADD.format('<img src="nothing.png" onerror="window.ran = 1">'),
    "style-src-attr": ADD.format('<p style="color: red">'),
    "img-src": ADD.format('<img src="http://127.0.0.2:9/a.png">'),
    "connect-src": "fetch('http://127.0.0.2:9/a.json').catch(() => 0)",
}


@pytest.mark.parametrize("directive", FAULTS)
@pytest.mark.parametrize("name", ["index", "source/trl/trl/trainer/dpo_trainer.py"])
def test_what_the_policy_forbids_is_refused_and_told(name: str, directive: str, page: Any, address: str) -> None:
    page.goto(f"{address}/{name}.html")
    told = complaints(page)
    page.evaluate(f"() => {{ {FAULTS[directive]} }}")
    page.wait_for_timeout(300)
    assert told
    assert directive.removesuffix("-attr") in told[0]
    assert page.evaluate("window.ran") is None


FOUND = [
    ("GRPOTr", "GRPOTrainer", "trl/trl/trainer/grpo_trainer.py"),
    ("trainer grpo", "GRPOTrainer", "trl/trl/trainer/grpo_trainer.py"),
    ("DPOTrainer._compute_l", "compute_loss", "trl/trl/trainer/dpo_trainer.py"),
    ("vectorized_out", "compute_grpo_vectorized_outcome_advantage", "verl/verl/trainer/ppo/core_algos.py"),
    ("agg_l", "agg_loss", "verl/verl/trainer/ppo/core_algos.py"),
    ("Tensor", "Tensor", "torch/torch/_tensor.py"),
    ("rms_norm_kernel", "rms_norm_kernel", "vllm/csrc/"),
]


@pytest.mark.parametrize("name", ["index", "source/trl/trl/trainer/dpo_trainer.py"])
def test_a_symbol_is_found_by_keys_alone(name: str, page: Any, address: str) -> None:
    told = complaints(page)
    page.goto(f"{address}/{name}.html")
    page.keyboard.press("t")
    for text, symbol, path in FOUND:
        page.locator(".ann-find input").fill(text)
        page.locator(f".ann-find li:has(b:text-is('{symbol}')):has-text('{path}')").first.wait_for()
    page.locator(".ann-find input").fill("xyzzyx")
    page.locator(".ann-find .status:has-text('No symbol')").wait_for()
    page.locator(".ann-find input").fill("compute_grpo_outcome")
    page.locator(".ann-find li").first.wait_for()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.querySelector('b').textContent") == "compute_grpo_outcome_advantage"
    page.keyboard.press("Enter")
    page.wait_for_url("**/source/verl/verl/trainer/ppo/core_algos.py.html#L268")
    assert told == []


def test_a_symbol_whose_file_has_no_page_leads_upstream(page: Any, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.locator(".ann-find-open").click()
    page.locator(".ann-find input").fill("rms_norm_kernel")
    link = page.locator(".ann-find li a").first
    assert "/blob/v0.31.0/csrc/" in link.get_attribute("href")
    page.keyboard.press("Escape")
    assert not page.locator(".ann-find").is_visible()


def test_search_works_under_the_policy_on_a_server_and_from_a_folder(page: Any, address: str) -> None:
    for place in (address, SITE.as_uri()):
        told = complaints(page)
        page.goto(f"{place}/index.html")
        page.locator("input.md-search__input").click()
        page.keyboard.type("gradient")
        page.locator(".md-search-result__item").first.wait_for()
        assert told == []


def test_a_page_that_is_too_wide_is_told(page: Any, address: str) -> None:
    page.goto(f"{address}/index.html")
    page.evaluate("document.body.append(document.createElement('div'))")
    page.evaluate("document.body.lastChild.style.cssText = 'width: 3000px; height: 1px'")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") > 0


@pytest.mark.parametrize("name", READINGS)
def test_a_reading_by_keys_alone(name: str, page: Any, address: str) -> None:
    page.goto(f"{address}/{name}.html")
    heads = page.eval_on_selector_all(".ann-step h3[id]", "all => all.map(one => one.id)")
    passed = []
    for _ in heads:
        page.keyboard.press("j")
        passed.append(page.evaluate("document.activeElement.id"))
    assert passed == [*heads[passed[0] != heads[0] :], *heads[-1:]][: len(heads)]
    page.keyboard.press("k")
    assert page.evaluate("location.hash") == f"#{heads[-2]}"
    assert page.eval_on_selector_all(".ann-map a[aria-current]", "all => all.map(one => one.hash)") == [f"#{heads[-2]}"]
    page.goto(f"{address}/{name}.html")
    assert page.locator(".ann-resume a").get_attribute("href") == f"#{heads[-2]}"


def test_keys_that_are_typed_into_the_search_stay_there(page: Any, address: str) -> None:
    page.goto(f"{address}/verl/grpo-advantage.html")
    page.locator("input.md-search__input").click()
    page.keyboard.type("jk")
    assert page.evaluate("location.hash") == ""


def test_a_card_on_focus_says_what_the_title_says(page: Any, address: str) -> None:
    page.goto(f"{address}/verl/grpo-advantage.html")
    link = page.locator(".ann-code a[title]").first
    title = link.get_attribute("title")
    link.focus()
    card = page.locator(".ann-tip")
    assert card.is_visible()
    assert card.text_content() == title
    page.keyboard.press("Escape")
    assert not card.is_visible()
    assert link.get_attribute("title") == title


def test_switches_are_kept_over_the_site(page: Any, address: str) -> None:
    page.goto(f"{address}/verl/grpo-advantage.html")
    gradient = page.locator(".ann-code .o.g").first
    value = page.locator(".ann-code .o:not(.g)").first
    assert (value.is_visible(), gradient.is_visible()) == (True, False)
    page.locator(".ann-observed label:text('gradients')").first.click()
    page.locator(".ann-observed label:text('values')").first.click()
    assert (value.is_visible(), gradient.is_visible()) == (False, True)
    page.goto(f"{address}/trl/dpo-loss.html")
    assert page.locator(".ann-code .o.g").first.is_visible()
    assert not page.locator(".ann-code .o:not(.g)").first.is_visible()


@pytest.mark.parametrize("script", [True, False])
def test_both_sides_of_a_pair_are_lit_together(script: bool, browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=script, viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{address}/vllm/token-sampling.html")
    step = page.locator(".ann-step:has(#step-min-p)")
    step.locator("label.ann-torch").click()
    pairs = step.locator(".ann-view.ann-torch .w")
    assert pairs.count() == 3

    def lit() -> list[bool]:
        """Which pairs have a colour behind them. Asked of the page, which needs no script of its own for it."""
        colours = [pair.evaluate("one => getComputedStyle(one).backgroundColor") for pair in pairs.all()]
        return [colour != "rgba(0, 0, 0, 0)" for colour in colours]

    assert lit() == [False, False, False]
    pairs.nth(1).locator(".l").first.hover()
    assert lit() == [False, True, False]
    pairs.nth(2).locator(".b a.n").first.focus()
    page.mouse.move(0, 0)
    assert lit() == [False, False, True]
    context.close()


@pytest.mark.parametrize("name", READINGS)
def test_without_javascript(name: str, browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{address}/{name}.html")
    assert page.locator(".ann-step").count() > 4
    assert page.locator(".ann-view.ann-reference .ann-code").first.is_visible()
    step = page.locator(".ann-views:has(.ann-view.ann-proof)").first
    step.locator(".ann-tabs label.ann-proof").click()
    assert step.locator(".ann-card").is_visible()
    assert page.locator(".ann-code .o").first.is_visible()
    context.close()


def test_a_method_without_javascript(browser: Any, address: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{address}/methods/policy-loss.html")
    torch, jax = (page.locator(f".ann-minimal .ann-view.ann-{backend}") for backend in ("torch", "jax"))
    assert (torch.is_visible(), jax.is_visible()) == (True, False)
    page.locator(".ann-minimal .ann-tabs label.ann-jax").click()
    assert (torch.is_visible(), jax.is_visible()) == (False, True)
    file = page.locator(".ann-wild").first
    assert not file.locator(".ann-code").is_visible()
    file.locator("summary").click()
    assert file.locator(".ann-code").is_visible()
    context.close()


def test_the_twin_that_was_chosen_is_kept_over_the_site(page: Any, address: str) -> None:
    page.goto(f"{address}/methods/policy-loss.html")
    page.locator(".ann-minimal .ann-tabs label.ann-jax").click()
    page.goto(f"{address}/methods/gae.html")
    assert page.locator(".ann-minimal .ann-view.ann-jax").is_visible()
    page.goto(f"{address}/methods/prefix-cache.html")  # which has no twin
    assert page.locator(".ann-minimal .ann-view").is_visible()


@pytest.mark.parametrize("name", READINGS)
def test_print(name: str, page: Any, address: str) -> None:
    page.goto(f"{address}/{name}.html")
    page.emulate_media(media="print")
    assert page.pdf(format="A4").startswith(b"%PDF")
    shown = page.eval_on_selector_all(".ann-view.ann-reference", "all => all.filter(one => one.offsetHeight).length")
    assert shown == page.locator(".ann-step").count()


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        *((kind, "light") for kind in KINDS),
        ("index", "dark"),
        (READINGS[0], "dark"),
        ("diff", "dark"),
        (METHODS[0], "dark"),
        (METHODS[1], "dark"),
    ],
)
def test_nothing_serious_is_inaccessible(name: str, scheme: str, browser: Any, address: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{address}/{name}.html")
    if name == "index":  # one page of a kind may as well show the dialog
        page.keyboard.press("t")
        page.keyboard.type("agg_l")
        page.locator(".ann-find li").first.wait_for()
    found = axe.Axe().run(page).response["violations"]
    context.close()
    serious = {
        f"{one['id']}: {one['help']} at {one['nodes'][0]['target']}"
        for one in found
        if one["impact"] in ("serious", "critical")
    }
    assert serious == set()


@pytest.mark.parametrize("name", READINGS)
def test_weight(name: str) -> None:
    if not (SITE / f"{name}.html").is_file():
        pytest.skip("no site is built here: annotator build")
    html = (SITE / f"{name}.html").read_bytes()
    assert len(html) <= 250_000
    assert len(gzip.compress(html)) <= 80_000
