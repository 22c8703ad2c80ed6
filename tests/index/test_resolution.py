"""What identifiers lead to: little trees, and for each marked identifier the one right answer, or an honest refusal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.errors import IndexFileError, SymbolNotFound
from annotator.index import Index
from annotator.index.certainty import line_at, tallies
from tests.index.test_extraction import HOSTILE
from tests.index.trees import brief, indexed, meaning

LIB = {
    "lib/__init__.py": (
        "from typing import TYPE_CHECKING\n"
        "from .base import Base as Base, helper\n"
        "from .stars import *\n"
        "if TYPE_CHECKING:\n    from .lazy import Lazy\n"
        "else:\n    import sys\n    sys.modules[__name__] = object()\n"
    ),
    "lib/base.py": (
        "import os\n"
        "class Root:\n    shared = 1\n    def inherited(self): return os\n"
        "class Base(Root):\n"
        "    def __init__(self, other: 'Other', size):\n"
        "        self.other = other\n        self.made = Other()\n        self.size = size\n"
        "    def method(self) -> 'Other': return self.made\n"
        "    @property\n    def prop(self) -> 'Other': return self.made\n"
        "    @classmethod\n    def build(cls): return cls(Other(), 1)\n"
        "class Other:\n    def deep(self): pass\n"
        "def helper(x): return x\n"
        "def factory() -> Base: return Base(Other(), 1)\n"
        "CONSTANT = 3\n"
    ),
    "lib/loose.py": "import stars\nfrom both import both\nstars\nboth\n",
    "lib/stars.py": "def starred(): pass\ndef _hidden(): pass\n",
    "lib/lazy.py": "class Lazy:\n    def run(self): pass\n",
    "lib/sub/__init__.py": "",
    "lib/sub/leaf.py": (
        "from ..base import helper as again\nfrom . import twig\nfrom .. import sub\nagain(1)\ntwig.bark()\nsub.leaf\n"
    ),
    "lib/sub/twig.py": "def bark(): pass\n",
    "lib/loop_a.py": "from .loop_b import thing\n",
    "lib/loop_b.py": "from .loop_a import thing\n",
    "lib/stubbed.pyi": "def only_stub(x: int) -> int: ...\n",
    "lib/both.py": "def both(): pass\n",
    "lib/both.pyi": "def both() -> None: ...\ndef extra() -> None: ...\n",
}
APP = {
    "app/main.py": """
import numpy as np
import os.path
import lib
import lib.sub.leaf
import lib.base as lb
from lib import Base, Lazy, helper, starred, loop_a
from lib.base import CONSTANT, Other, factory
from lib.stubbed import only_stub
from missing.thing import gone
try:
    from lib.base import helper as either
except ImportError:
    from lib.stars import starred as either
class Child(Base):
    extra: Other = None
    def __init__(self):
        super().__init__(Other(), 2)
        self.method()
        self.inherited()
        self.other.deep()
        self.made.deep()
        self.prop.deep()
        self.extra.deep()
        self.size.bit_length()
        self.nowhere
        self.__class__
    def method(self):
        return super().method()
def annotated(b: Base, o: "Other | None", either_way: Base | Lazy, untyped):
    b.method()
    o.deep()
    either_way.method()
    either_way.nowhere()
    untyped.method()
    made = Base(o, 1)
    made.shared
    made.method().deep()
    factory().build()
    twice = Base(o, 1)
    twice = Lazy()
    twice.run()
    del twice
def closure(helper):
    helper(0)
    def inner():
        return helper(1)
    squares = [np for np in range(3)]
    return inner, lambda CONSTANT: CONSTANT + 1
np.zeros(3)
os.path.join("a")
lib.helper(2)
lib.sub.leaf.again
lb.CONSTANT
print(starred())
either(3)
only_stub(4)
gone()
undefined_name
Lazy().run
loop_a.thing
"x".join([])
dict(key=1)
helper(x=5)
helper(z=7)
lib.nothing
def twice_defined(): pass
def twice_defined(): pass
twice_defined(6)
""",
    "app/script.py": "import neighbour\nfrom neighbour import near\nnear()\n",
    "app/neighbour.py": "def near(): pass\n",
}

MEANINGS = [
    ("^np.zeros(3)", "external numpy"),
    ("np.^zeros(3)", "external numpy.zeros"),
    ('os.path.^join("a")', "external os.path.join"),
    ("^lib.helper(2)", "lib:lib"),
    ("lib.^helper(2)", "lib:lib.base.helper"),
    ("lib.sub.leaf.^again", "lib:lib.base.helper"),
    ("lib.sub.^leaf.again", "lib:lib.sub.leaf"),
    ("lb.^CONSTANT", "lib:lib.base.CONSTANT"),
    ("^print(starred())", "external builtins.print"),
    ("print(^starred())", "lib:lib.stars.starred"),
    ("^either(3)", "~lib:lib.base.helper"),
    ("^only_stub(4)", "lib:lib.stubbed.only_stub"),
    ("^gone()", "external missing.thing.gone"),
    ("^undefined_name", "? nothing in the sources binds this name"),
    ("Lazy().^run", "lib:lib.lazy.Lazy.run"),
    ("loop_a.^thing", "? the sources show no such name in the module: lib.loop_a.thing"),
    ('"x".^join([])', "~external builtins.str.join"),
    ("lib.^nothing", "? the sources show no such name in the module: lib.nothing"),
    ("helper(^x=5)", "lib:lib.base.helper.x"),
    ("helper(^z=7)", "keyword"),
    ("^twice_defined(6)", "~app:app.main.twice_defined"),
    ("class Child(^Base):", "lib:lib.base.Base"),
    ("super().^__init__(Other(), 2)", "lib:lib.base.Base.__init__"),
    ("self.^method()", "app:app.main.Child.method"),
    ("self.^inherited()", "lib:lib.base.Root.inherited"),
    ("self.^other.deep()", "lib:lib.base.Base.other"),
    ("self.other.^deep()", "lib:lib.base.Other.deep"),
    ("self.made.^deep()", "~lib:lib.base.Other.deep"),
    ("self.prop.^deep()", "~lib:lib.base.Other.deep"),
    ("self.extra.^deep()", "lib:lib.base.Other.deep"),
    ("self.size.^bit_length()", "? the class of what it holds is not plain: size"),
    ("self.^nowhere", "? neither the class nor its bases define such a member: Child.nowhere"),
    ("self.^__class__", "external builtins.object.__class__"),
    ("return super().^method()", "lib:lib.base.Base.method"),
    ("b.^method()", "lib:lib.base.Base.method"),
    ("o.^deep()", "lib:lib.base.Other.deep"),
    ("either_way.^method()", "~lib:lib.base.Base.method"),
    ("either_way.^nowhere()", "? its annotation names several classes"),
    ("untyped.^method()", "? a parameter without annotation"),
    ("^untyped.method()", "local"),
    ("made.^shared", "lib:lib.base.Root.shared"),
    ("made.method().^deep()", "~lib:lib.base.Other.deep"),
    ("factory().^build()", "~lib:lib.base.Base.build"),
    ("twice.^run()", "lib:lib.lazy.Lazy.run"),
    ("^helper(0)", "local"),
    ("return ^helper(1)", "local"),
    ("squares = [^np for np in range(3)]", "local"),
    ("return inner, lambda CONSTANT: ^CONSTANT + 1", "local"),
    ("return ^inner, lambda CONSTANT: CONSTANT + 1", "app:app.main.closure.inner"),
    ("import lib.sub.^leaf", "lib:lib.sub.leaf"),
    ("from lib import Base, ^Lazy, helper, starred, loop_a", "lib:lib.lazy.Lazy"),
    ("from lib.^base import CONSTANT, Other, factory", "lib:lib.base"),
    ("import lib.base as ^lb", "lib:lib.base"),
    ("class ^Child(Base):", "app:app.main.Child"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("resolution"), lib=LIB, app=APP) as opened:
        yield opened


@pytest.mark.parametrize(("marked", "expected"), MEANINGS)
def test_meaning(index: Index, marked: str, expected: str) -> None:
    assert meaning(index, "app", "app/main.py", marked) == expected


def test_relative_imports(index: Index) -> None:
    path = "lib/sub/leaf.py"
    assert meaning(index, "lib", path, "^again(1)") == "lib:lib.base.helper"
    assert meaning(index, "lib", path, "twig.^bark()") == "lib:lib.sub.twig.bark"
    assert meaning(index, "lib", path, "sub.^leaf") == "lib:lib.sub.leaf"


def test_scripts_import_their_neighbours(index: Index) -> None:
    assert meaning(index, "app", "app/script.py", "^near()") == "app:app.neighbour.near"
    assert meaning(index, "lib", "lib/loose.py", "^stars") == "external stars", "in a package nothing is imported so"
    assert meaning(index, "lib", "lib/loose.py", "^both") == "external both.both"


def test_every_identifier_has_a_link(index: Index) -> None:
    links = index.links("app", "app/main.py")
    assert all(link.certainty in ("exact", "inferred", "unresolved") for link in links)
    assert all(link.reason for link in links if link.certainty != "exact")
    assert [(one.line, one.column) for one in links] == sorted({(one.line, one.column) for one in links})


def test_links_are_the_same_from_the_cache(index: Index) -> None:
    assert index.links("app", "app/main.py") == index.links("app", "app/main.py")
    assert Index.open(index.workspace).links("app", "app/main.py") == index.links("app", "app/main.py")


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("lib:lib.base.Base.method", "lib:lib.base.Base.method"),
        ("lib:lib.base", "lib:lib.base"),
        ("lib:lib.Base", "lib:lib.base.Base"),
        ("lib:lib.Lazy.run", "lib:lib.lazy.Lazy.run"),
        ("lib:lib.Base.inherited", "lib:lib.base.Root.inherited"),
        ("lib:lib.sub.leaf.again", "lib:lib.base.helper"),
        ("app:app.main.Child.shared", "lib:lib.base.Root.shared"),
    ],
)
def test_definition_follows_exports(index: Index, symbol: str, expected: str) -> None:
    assert index.definition(symbol).symbol == expected


def test_a_stub_leads_to_its_implementation(index: Index) -> None:
    assert [brief(link) for link in index.links("lib", "lib/both.pyi")] == ["lib:lib.both.both", "lib:lib.both.extra"]
    assert [link.target.path for link in index.links("lib", "lib/both.pyi") if link.target] == [
        "lib/both.py",
        "lib/both.pyi",
    ]


LAZY_PACKAGE = {
    "far/__init__.py": (
        "import sys\n"
        "_import_structure = {'one': ['One', 'alone'], 'sub.two': []}\n"
        "if True:\n    _import_structure['sub.two'].append('Two')\n"
        "else:\n    _import_structure['sub.two'] += ['Three']\n"
        "sys.modules[__name__] = LazyModule(__name__, _import_structure)\n"
    ),
    "far/one.py": "class One:\n    def run(self): pass\n",
    "far/sub/__init__.py": "",
    "far/sub/two.py": "class Two: pass\nclass Three: pass\n",
}


def test_a_lazy_package_is_read_by_its_table(tmp_path: Path) -> None:
    use = "from far import One, Two, Three, Four, alone\nimport far\nOne().run\nfar.Two\n"
    with indexed(tmp_path, far=LAZY_PACKAGE, use={"use.py": use}) as opened:
        found = {(link.line, link.name): brief(link) for link in opened.links("use", "use.py")}
    nothing = "? the sources show no such name in the module: far"
    assert [found[1, name] for name in ("One", "Two", "Three", "Four", "alone")] == [
        "~far:far.one.One",
        "~far:far.sub.two.Two",
        "~far:far.sub.two.Three",
        f"{nothing}.Four",
        f"{nothing}.alone",
    ]
    assert (found[3, "run"], found[4, "Two"]) == ("~far:far.one.One.run", "~far:far.sub.two.Two")


def test_source_comes_before_its_stub(index: Index) -> None:
    assert index.definition("lib:lib.both.both").path == "lib/both.py"
    assert index.definition("lib:lib.both.extra").path == "lib/both.pyi"


@pytest.mark.parametrize(
    ("symbol", "near"),
    [
        ("lib:lib.base.Bases", "lib:lib.base.Base"),
        ("lib:lib.bse.helper", "lib:lib.base.helper"),
        ("helper", "lib:lib.base.helper"),
    ],
)
def test_unknown_symbols_suggest_near_ones(index: Index, symbol: str, near: str) -> None:
    with pytest.raises(SymbolNotFound) as caught:
        index.definition(symbol)
    assert near in caught.value.near


def test_uses_are_found_through_aliases_and_exports(index: Index) -> None:
    found = index.uses(index.definition("lib:lib.base.helper"))
    assert {(use.path, use.text) for use in found} == {
        ("lib/__init__.py", "from .base import Base as Base, helper"),
        ("lib/sub/leaf.py", "from ..base import helper as again"),
        ("lib/sub/leaf.py", "again(1)"),
        ("app/main.py", "from lib import Base, Lazy, helper, starred, loop_a"),
        ("app/main.py", "from lib.base import helper as either"),
        ("app/main.py", "lib.helper(2)"),
        ("app/main.py", "lib.sub.leaf.again"),
        ("app/main.py", "either(3)"),
        ("app/main.py", "helper(x=5)"),
        ("app/main.py", "helper(z=7)"),
    }
    assert not [use for use in found if use.text == "helper(0)"], "a parameter of that name is no use"


def test_uses_of_a_method_know_where_they_stand(index: Index) -> None:
    (use,) = [use for use in index.uses(index.definition("lib:lib.base.Base.method")) if use.text == "b.method()"]
    assert (use.within, use.certainty, use.pin) == ("app:app.main.annotated", "exact", "app")
    assert len(index.uses(index.definition("lib:lib.base.Base.method"), limit=1)) == 1


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("lib.base.Base", "lib:lib.base.Base"),
        ("lib:lib.base.Base", "lib:lib.base.Base"),
        ("Base.method", "lib:lib.base.Base.method"),
        ("helper", "lib:lib.base.helper"),
        ("help", "lib:lib.base.helper"),
        ("only stub", "lib:lib.stubbed.only_stub"),
        ("lib.Lazy", "lib:lib.lazy.Lazy"),
    ],
)
def test_find(index: Index, query: str, first: str) -> None:
    assert index.find(query)[0].symbol == first


def test_find_filters(index: Index) -> None:
    assert {d.symbol for d in index.find("method", pin="app")} == {"app:app.main.Child.method"}
    assert {d.kind for d in index.find("Base", kind="class")} == {"class"}
    assert index.find("no_such_name_anywhere") == []
    assert index.find("") == []


def test_stats_count_the_unresolved(index: Index) -> None:
    index.links("app", "app/main.py")
    figures = index.stats()["app"]
    assert figures["files"] == 3
    assert 0 < figures["unresolved_share"] < 0.2
    (tally,) = tallies(index, "app", sample=1)
    assert (tally.files, tally.of) == (1, 3)
    (tally,) = tallies(index, "app", sample=None)
    assert tally.identifiers == sum(len(index.links("app", path)) for path in index.paths("app"))
    assert tally.reasons["nothing in the sources binds this name"] == 1
    assert tally.reasons.total() == tally.certainties["unresolved"]


@pytest.mark.parametrize("place", ["app/app/main.py", "vendored_refs/app/app/main.py", "./app/app/main.py"])
def test_a_line_and_a_column_have_links(index: Index, place: str) -> None:
    found = line_at(index, f"{place}:3")
    assert [(link.name, link.external) for link in found.links] == [("os", "os"), ("path", "os.path")]
    (link,) = line_at(index, f"{place}:3:7").links
    assert (found.text, link.name) == ("import os.path", "os")
    assert line_at(index, f"{place}:3:0").links == ()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("app/app/mian.py:3", "did you mean"),
        ("app/main.py:3", "app/app/main.py"),
        ("app/app/main.py", "PATH:LINE"),
        ("app/app/main.py:9999", "a line from 1 to"),
        ("nowhere/main.py:3", "pins: app, lib"),
    ],
)
def test_a_place_that_is_none_is_refused(index: Index, place: str, told: str) -> None:
    with pytest.raises(IndexFileError, match=told):
        line_at(index, place)


CPP = {
    "csrc/lib.h": (
        "namespace lib {\nstruct Thing { int size; void grow(int by); };\nint helper(int x);\n}\n#define TWICE(x) (x)\n"
    ),
    "csrc/main.cu": (
        '#include "lib.h"\nnamespace lib {\nint helper(int x) { return x; }\nint inner() { return helper(1); }\n}\n'
        "void Outside() {\n  lib::Thing thing;\n  std::vector<int> v;\n  int helper = 2;\n  helper += 1;\n  TWICE(3);\n"
        "  thing.grow(4);\n  unheard(5);\n}\n__global__ void kernel(float* data) { data[0] = 1; }\n"
    ),
}
CPP_MEANINGS = [
    ("int inner() { return ^helper(1); }", "~c:lib::helper"),
    ("lib::^Thing thing;", "~c:lib::Thing"),
    ("std::^vector<int> v;", "~external std::vector"),
    ("^helper += 1;", "local"),
    ("^TWICE(3);", "~c:TWICE"),
    ("thing.^grow(4);", "~c:lib::Thing::grow"),
    ("^unheard(5);", "? nothing in the sources defines this name"),
    ("__global__ void ^kernel(float* data) { data[0] = 1; }", "c:kernel"),
    ("__global__ void kernel(float* data) { ^data[0] = 1; }", "local"),
]


def test_cpp_meanings(tmp_path: Path) -> None:
    with indexed(tmp_path, c=CPP) as opened:
        found = [(marked, meaning(opened, "c", "csrc/main.cu", marked)) for marked, _ in CPP_MEANINGS]
        assert found == CPP_MEANINGS
        assert opened.definition("c:lib::helper").path == "csrc/main.cu", "the body comes before the declaration"
        uses = opened.uses(opened.definition("c:lib::helper"))
        assert [use.text for use in uses] == ["int inner() { return helper(1); }"]


def test_generated_code_takes_no_longer_than_its_length(tmp_path: Path) -> None:
    body = "".join(f"    x = x.step(a{n})\n    if x.more: y = x.go()\n" for n in range(3000))
    deep = "x" + ".a" * 1500
    text = f"def f(x, y):\n{body}    while x: x = {deep}\n    return y\n"
    with indexed(tmp_path, p={"p.py": text}) as opened:
        start = time.process_time()
        links = opened.links("p", "p.py")
        took = time.process_time() - start
    assert len(links) > 28_000
    assert took < 6, "flow is looked at for few bindings only"


def test_no_input_defeats_links(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"p/m{n}{suffix}": data for n, data in enumerate(HOSTILE) for suffix in (".py", ".cu")
    }
    files["p/chain.py"] = (
        "class A(A): pass\nx = x\ny = z\nz = y\ny.a\nclass B(C): pass\nclass C(B): pass\nB().m\n"
        "class D:\n    __call__: 'D'\n    __iter__: 'D'\n    __getitem__: 'D'\n    __enter__: 'D'\nd = D()\n"
        "d()()(x=1).y\nfor e in d: e.y\nd[0][1].y\nwith d as g: g.y\n(d + d).y\nh = lambda: h()\nh().y\n"
        "def i(): return j()\ndef j(): return i()\ni().y\nT = list[T]\nU = T | U\ndef k(l: U, m: T): l.y, m[0].y\n"
        "class N:\n    def __init__(self): self.o = self.o.o\n    def p(self): return self.p().p()\nN().o.y, N().p()\n"
        + "f"
        + "()" * 3000
    )
    with indexed(tmp_path, p=files) as opened:
        assert len(opened.paths("p")) == len(files)
        for path in opened.paths("p"):
            assert all(link.end_column > link.column for link in opened.links("p", path))
