"""What identifiers lead to: little trees, and for each marked identifier the one right answer, or an honest refusal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.errors import SymbolNotFound
from annotator.index import Index
from tests.index.test_extraction import HOSTILE
from tests.index.trees import indexed, meaning

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
    ("loop_a.^thing", "? module lib.loop_a binds no thing that the sources show"),
    ('"x".^join([])', "~external builtins.str.join"),
    ("lib.^nothing", "? module lib binds no nothing that the sources show"),
    ("helper(^x=5)", "keyword"),
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
    ("self.size.^bit_length()", "? the class of size is not plain"),
    ("self.^nowhere", "? Child and its bases define no nowhere"),
    ("self.^__class__", "external builtins.object.__class__"),
    ("return super().^method()", "lib:lib.base.Base.method"),
    ("b.^method()", "lib:lib.base.Base.method"),
    ("o.^deep()", "lib:lib.base.Other.deep"),
    ("either_way.^method()", "? its annotation names several classes"),
    ("untyped.^method()", "? a parameter without annotation"),
    ("^untyped.method()", "local"),
    ("made.^shared", "lib:lib.base.Root.shared"),
    ("made.method().^deep()", "~lib:lib.base.Other.deep"),
    ("factory().^build()", "~lib:lib.base.Base.build"),
    ("twice.^run()", "? twice is bound 2 times"),
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
    assert 0 < index.unresolved_rate("app", 3) < 0.2


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
    ("thing.^grow(4);", "? the class of the object is not plain"),
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


def test_no_input_defeats_links(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        f"p/m{n}{suffix}": data for n, data in enumerate(HOSTILE) for suffix in (".py", ".cu")
    }
    files["p/chain.py"] = (
        "class A(A): pass\nx = x\ny = z\nz = y\ny.a\nclass B(C): pass\nclass C(B): pass\nB().m\n" + "f" + "()" * 3000
    )
    with indexed(tmp_path, p=files) as opened:
        assert len(opened.paths("p")) == len(files)
        for path in opened.paths("p"):
            assert all(link.end_column > link.column for link in opened.links("p", path))
