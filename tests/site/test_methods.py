"""The pages of the contracts: what they show is the catalogue's, the pins' and the zoo's, and nothing else.

Rendered from the real catalogue and the real pins, without building the site.
"""

from __future__ import annotations

import html
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown import Markdown

from annotator import catalog
from annotator.contracts import proofs
from annotator.errors import ContractError, ReadingError, SiteError
from annotator.site import atlas as maps
from annotator.site import methods, proof, sections
from annotator.site.formula import mathml
from annotator.workspace import Workspace

ROOT = Path(__file__).parents[2]
NAMES = catalog.names()


@pytest.fixture(scope="module")
def atlas() -> maps.Atlas:
    workspace = Workspace.find(ROOT)
    if not workspace.index.is_file() or not all(
        workspace.tree(pin).exists() for pin in ("verl", "trl", "vllm", "torch")
    ):
        pytest.skip("the pins are not fetched and indexed here: annotator fetch; annotator index")
    return maps.current(workspace)


def render(atlas: maps.Atlas, name: str) -> str:
    text = (atlas.workspace.readings / f"methods/{name}.md").read_text("utf-8")
    body = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)
    settings = {"annotator.site.extension": {"root": atlas.workspace}}
    return Markdown(extensions=["toc", "annotator.site.extension"], extension_configs=settings).convert(body)


def shown(page: str) -> str:
    """The text of a page."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_all_that_its_contract_states(name: str, atlas: maps.Atlas) -> None:
    contract, page = catalog.contract(name), render(atlas, name)
    text = shown(page)
    for item in (*contract.inputs, *contract.outputs, *contract.knobs):
        assert f"<code>{item.name}</code>" in page
        assert item.doc in text
    for side in methods.references(contract):
        assert re.search(rf'<th scope="col">{re.escape(side.name)} ', page)
    for deviation in contract.deviations:
        row = re.search(rf'<tr><th scope="row"><code>{re.escape(deviation.name)}</code>.*?</tr>', page)
        assert row
        assert deviation.wrong in shown(row[0])
        assert deviation.right in shown(row[0])
        assert deviation.seen_in.partition(",")[0] in shown(row[0])
    assert page.count("<math ") == sum(
        len(part) for part in (catalog.formula(name).lines, catalog.formula(name).symbols)
    )
    assert f"annotator conform {name}" in text


@pytest.mark.parametrize("name", NAMES)
def test_its_own_sections_are_headings(name: str, atlas: maps.Atlas) -> None:
    heads = re.findall(r'<h2 id="(\w+)">', render(atlas, name))
    assert heads == ["computed", "libraries", "minimal", "proof", "deviations", "yours"]


@pytest.mark.parametrize("name", NAMES)
def test_pinned_code_leads_to_the_line_that_defines_it(name: str, atlas: maps.Atlas) -> None:
    """The link upstream names a line; the pinned file has the definition there."""
    contract = catalog.contract(name)
    for side in methods.sides(atlas, contract, f"methods/{name}.html"):
        assert [one.symbol for one in side.code] == [s for s in contract.implementation(side.name).symbols if ":" in s]
        for one in side.code:
            pin = atlas.lock[one.symbol.partition(":")[0]]
            first = int(re.search(r"#L(\d+)", one.upstream)[1])  # type: ignore[index]
            file = next(
                f for f in atlas.index.paths(pin.name) if pin.permalink(f, first) == one.upstream.split("-L")[0]
            )
            lines = (atlas.workspace.tree(pin.name) / file).read_text("utf-8").splitlines()
            last = one.name.rpartition(".")[2]
            assert re.search(rf"(def|class)\s+{last}\b", lines[first - 1])
            assert not re.search(rf"(def|class)\s+{last}\b", lines[first])


def test_papers_are_links_and_names_are_code(atlas: maps.Atlas) -> None:
    page = render(atlas, "token-sampling")
    assert '<a href="https://arxiv.org/abs/1904.09751" rel="noopener">1904.09751</a>' in page
    assert "vLLM's <code>Sampler</code>." in page
    assert "arxiv.org" not in render(atlas, "terminal-reward")


def test_a_symbol_that_is_gone_is_told(atlas: maps.Atlas) -> None:
    with pytest.raises(ReadingError, match=r"expected a symbol that the index has, found 'verl:verl\.gone'"):
        methods.pinned(atlas, "verl:verl.gone", "methods/x.html")


@pytest.mark.parametrize("name", NAMES)
def test_the_minimal_code_is_the_file(name: str, atlas: maps.Atlas) -> None:
    page = render(atlas, name)
    views = re.findall(r'<div class="ann-view ann-(\w+)">.*?<pre>(.*?)</pre></div>', page, re.DOTALL)
    own = [item for item in catalog.contract(name).implementations if item.role == "minimal"]
    assert [backend for backend, _ in views] == [item.backend for item in own]
    for item, (_, lines) in zip(own, views, strict=True):
        texts = [(ROOT / path).read_text("utf-8").rstrip("\n") for path in item.symbols]
        code = "\n".join(re.findall(r"<code>(.*?)\n</code>", lines, re.DOTALL))
        assert shown(code) in texts


def test_tabs_need_no_script(atlas: maps.Atlas) -> None:
    page = render(atlas, "grpo-advantage")
    radios = re.findall(r'<input type="radio" name="minimal-view" id="([^"]+)" class="([^"]+)"( checked)?>', page)
    assert [(identity, kind) for identity, kind, _ in radios] == re.findall(
        r'<label for="([^"]+)" class="([^"]+)">', page
    )
    assert [bool(checked) for *_, checked in radios] == [True, False]
    assert "<script" not in page
    assert " style=" not in page


@pytest.mark.parametrize("name", NAMES)
def test_the_zoo_is_shown_whole(name: str, atlas: maps.Atlas) -> None:
    tables = [tomllib.loads(table.read_text("utf-8")) for table in sorted((ROOT / "tests/zoo").glob("*/zoo.toml"))]
    stated = [one for table in tables if table["contract"] == name for one in (*table["wrong"], *table["equal"])]
    found = methods.zoo(atlas.workspace, name)
    assert [(item.target.rpartition("/")[2], list(item.deviations)) for item in found] == [
        (one["target"], one.get("deviations", [])) for one in stated
    ]
    assert found
    files = re.findall(r'<details class="ann-wild".*?<pre>(.*?)</pre>', render(atlas, name), re.DOTALL)
    for item, file in zip(found, files, strict=True):
        assert shown("\n".join(re.findall(r"<code>(.*?)\n</code>", file, re.DOTALL))) == item.text


def test_a_table_of_the_zoo_without_its_file_is_told(workspace: Workspace) -> None:
    folder = workspace.root / "tests/zoo/gae"
    folder.mkdir(parents=True)
    (folder / "zoo.toml").write_text('contract = "gae"\n[[wrong]]\ntarget = "gone.py:f"\ndeviations = ["forward"]\n')
    with pytest.raises(ReadingError, match="expected a table of the zoo"):
        methods.zoo(workspace, "gae")
    assert methods.zoo(workspace, "dpo-loss") == []


def test_readings_that_show_it_are_linked(atlas: maps.Atlas) -> None:
    page = render(atlas, "grpo-advantage")
    assert 'href="../verl/grpo-advantage.html#step-scores"' in page
    assert "walkthroughs" not in page
    assert "read line by line" not in render(atlas, "rope")


# Where the libraries stand --------------------------------------------------------------------------------------------


def stands(atlas: maps.Atlas, name: str) -> dict[str, dict[str, tuple[tuple[str, ...], bool]]]:
    sides = methods.sides(atlas, catalog.contract(name), "methods/x.html")
    return {side.name: {knob: (one.values, one.fixed) for knob, one in side.stands.items()} for side in sides}


def test_a_dialect_is_fixed_and_the_rest_is_what_the_library_takes(atlas: maps.Atlas) -> None:
    found = stands(atlas, "grpo-advantage")
    assert found["trl"] == {
        "eps": (("1e-4",), True),
        "scale": (("group", "none", "batch"), False),
        "singleton": (("zero",), True),
    }
    assert found["verl"]["scale"] == (("group", "none"), False)
    assert "verl has no scale 'batch' in its GRPO estimators" in shown(render(atlas, "grpo-advantage"))


@pytest.mark.parametrize(
    ("name", "parted"),
    [
        ("grpo-advantage", {"eps", "scale", "singleton"}),
        ("adamw-step", set()),
        ("rope", {"is_neox_style"}),
        ("orpo-loss", {"nll_over"}),
    ],
)
def test_a_knob_on_which_the_libraries_part_is_marked(name: str, parted: set[str], atlas: maps.Atlas) -> None:
    contract, page = catalog.contract(name), render(atlas, name)
    rows = methods.rows(contract, methods.sides(atlas, contract, f"methods/{name}.html"))
    assert {row.knob.name for row in rows if row.differs} == parted
    assert [row.differs for row in rows] == sorted((row.differs for row in rows), reverse=True)
    assert page.count('<tr class="differs">') == len(parted)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_open_was_taken_by_the_library(name: str, atlas: maps.Atlas) -> None:
    """A choice is shown where the adapter takes a named case with it; a fixed value is the dialect's."""
    contract = catalog.contract(name)
    for side in methods.sides(atlas, contract, "methods/x.html"):
        item = contract.implementation(side.name)
        assert {knob: stand.values[0] for knob, stand in side.stands.items() if stand.fixed} == {
            knob: methods.shown(value) for knob, value in item.dialect.items()
        }
        for knob in (knob for knob in contract.knobs if knob.name not in item.dialect):
            moved = [
                replace(case, knobs={**case.knobs, **item.dialect, knob.name: choice})
                for choice in knob.choices
                if methods.shown(choice) not in side.stands[knob.name].values
                for case in contract.edges()
            ]
            assert all(item.accepts(case) for case in moved)
            assert side.stands[knob.name].values, f"{side.name} takes no choice of {knob.name}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(1e-6, "1e-6"), (1e-4, "1e-4"), (1.5e-8, "1.5e-8"), (0.05, "0.05"), (1.0, "1"), (0.0, "0"), (1e4, "10000")],
        *[(float("inf"), "∞"), (float("-inf"), "−∞"), (True, "True"), (None, "None"), ("group", "group"), (8, "8")],
    ],
)
def test_values_as_a_reader_writes_them(value: object, text: str) -> None:
    assert methods.shown(value) == text


@pytest.mark.parametrize(
    ("seen_in", "expected"),
    [
        ("", []),
        ("TorchFort #38", [("TorchFort #38", "")]),
        ("verl #2506", [("verl #2506", "/issues/2506")]),
        ("TRL #1868, #1904", [("TRL #1868", "/issues/1868"), ("TRL #1904", "/issues/1904")]),
        ("pytorch #170862, AReaL #312", [("pytorch #170862", "/issues/170862"), ("AReaL #312", "")]),
        (
            "CleanRL #198, #457; skrl #449",
            [("CleanRL #198", ""), ("CleanRL #457", ""), ("skrl #449", "")],
        ),
    ],
)
def test_threads(seen_in: str, expected: list[tuple[str, str]], atlas: maps.Atlas) -> None:
    """Only a project that is pinned has an address that is known."""
    found = list(methods.threads(atlas, seen_in))
    assert [text for text, _ in found] == [text for text, _ in expected]
    for (_, address), (_, end) in zip(found, expected, strict=True):
        assert address.endswith(end)
        assert bool(address) == bool(end)


# The map --------------------------------------------------------------------------------------------------------------


def test_the_map_has_every_contract_and_every_reference_in_its_column(atlas: maps.Atlas) -> None:
    found = [concept for items in methods.concepts(atlas, "methods/index.html").values() for concept in items]
    assert sorted(concept.contract.name for concept in found) == sorted(NAMES)
    for concept in found:
        *columns, others = concept.cells
        for title, cell in zip(methods.LIBRARIES.values(), columns, strict=True):
            assert all(side.library == title for side in cell)
        assert not {side.library for side in others} & set(methods.LIBRARIES.values())
        placed = sorted(side.name for cell in concept.cells for side in cell)
        assert placed == sorted(item.name for item in methods.references(concept.contract))
        assert concept.href == f"{concept.contract.name}.html"


def test_the_map_says_in_few_words_where_a_library_stands(atlas: maps.Atlas) -> None:
    page = render(atlas, "index")
    row = re.search(r'<tr><th scope="row"><a href="grpo-advantage\.html">.*?</tr>', page)
    assert row
    verl, trl, vllm, *_ = re.findall(r"<td.*?</td>", row[0])
    assert "singleton raw" in verl
    assert "eps 1e-4, singleton zero" in trl
    assert shown(vllm) == "–"


def test_stale_is_said_in_red_on_the_page_and_on_the_map(atlas: maps.Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "holds on cpu" in shown(render(atlas, "index"))
    monkeypatch.setattr(atlas, "cards", {})
    monkeypatch.setattr(proofs, "stale", lambda *_: "the adapter changed since it was recorded")
    assert '<td class="bad">stale</td>' in render(atlas, "index")
    assert 'class="bad">Stale: ' in render(atlas, "rope")


def test_missing_is_said_in_red_on_the_page_and_on_the_map(atlas: maps.Atlas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atlas, "cards", {})
    monkeypatch.setattr(proof, "recorded", lambda *_: [])
    assert '<td class="bad">no proof is recorded</td>' in render(atlas, "index")
    assert '<p class="bad">No proof is recorded.</p>' in render(atlas, "rope")


# Formulas, and what is wrong ------------------------------------------------------------------------------------------


def test_every_contract_has_a_formula_and_no_other_has() -> None:
    assert set(catalog.FORMULAS) == set(NAMES)
    with pytest.raises(ContractError, match="expected a formula of the contract, found none"):
        catalog.formula("no-such-contract")


@pytest.mark.parametrize("name", NAMES)
def test_a_formula_is_sound_mathml(name: str) -> None:
    formula = catalog.formula(name)
    for latex in (*formula.lines, *formula.symbols):
        tree = ElementTree.fromstring(mathml(latex))
        assert tree.tag.endswith("math")
        assert "style" not in {key for node in tree.iter() for key in node.attrib}


@pytest.mark.parametrize("latex", [r"\nosuchcommand{x}", r"a &= b", r"\begin{cases} a"])
def test_a_formula_that_is_none_is_told(latex: str) -> None:
    with pytest.raises(SiteError, match="expected LaTeX"):
        mathml(latex)


def test_another_title_than_the_contract_has_is_told() -> None:
    place = "walkthroughs/methods/gae.md"
    with pytest.raises(ReadingError, match=r"gae\.md: expected the contract's title, 'Generalised .*', found 'GAE'"):
        sections.contract_of("gae", place, "GAE")
    with pytest.raises(ReadingError, match=r"expected a contract of the catalogue, found 'gaee'"):
        sections.contract_of("gaee", place, "GAE")
    assert sections.contract_of("gae", place, catalog.contract("gae").title).name == "gae"


def test_every_contract_has_its_page(atlas: maps.Atlas) -> None:
    assert atlas.methods == {name: f"methods/{name}.html" for name in NAMES}


@pytest.mark.parametrize("block", ["/// contrakt | gae\n///", "/// concept\n///"])
def test_a_block_whose_name_is_misspelt_is_told(block: str) -> None:
    from annotator.readings.parsing import parse

    with pytest.raises(ReadingError, match="expected a block's name"):
        parse(f"# A page\n\n{block}\n", "walkthroughs/x.md")
