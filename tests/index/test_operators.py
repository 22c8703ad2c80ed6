"""Operators of PyTorch, on a little tree: every way to register one, and what is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from annotator.index import Index
from annotator.index.aten import entries, generated_from
from annotator.index.calls import callees
from annotator.index.declarations import counterparts
from annotator.index.operators import Operator, near, operators
from annotator.index.paths import path
from annotator.index.seams import parsed
from tests.index.trees import indexed, meaning

TORCH = {
    "torch/__init__.py": "from torch import library\nfrom torch._ops import ops as ops\n",
    "torch/_ops.py": "class _Ops:\n    def load_library(self): pass\nops: _Ops = _Ops()\n",
    "torch/library.py": "class Library: pass\ndef custom_op(name): pass\n",
    "torch/_C/_VariableFunctions.pyi": "def add(input, other): ...\ndef twice(input): ...\n",
    "torch/_C/__init__.pyi": "class TensorBase:\n    def add(self, other): ...\n",
    "torch/meta.py": (
        "aten = ops.aten\n@register_meta([aten.add.Tensor, aten.other.default])\ndef meta_add(a, b): pass\n"
    ),
    "torch/include/ATen/ops/add_ops.h": (
        "namespace at { namespace _ops {\nstruct TORCH_API add_Tensor { int x; };\n"
        "struct TORCH_API add__Tensor { int x; };\n}}\n"
    ),
    "torch/include/ATen/ops/add_native.h": "namespace at { namespace native {\nint add_kernel(int a);\n}}\n",
    "torchgen/packaged/ATen/native/native_functions.yaml": (
        "- func: add.Tensor(Tensor self, Tensor other) -> Tensor\n"
        "  structured_delegate: add.out\n"
        "  dispatch:\n"
        "    SparseCPU: add_sparse   # a comment: with a colon\n"
        "  tags: [core]\n"
        "\n"
        "- func: add.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)\n"
        "  dispatch:\n"
        "    CPU, CUDA: add_kernel\n"
        "  autogen: twice.out, twice.more\n"
        "\n"
        "- func: add_relu(Tensor self) -> Tensor\n"
    ),
    "torchgen/packaged/autograd/derivatives.yaml": (
        "- name: add.Tensor(Tensor self, Tensor other) -> Tensor\n  self: grad\n  other: 'maybe(grad,\n    other)'\n"
    ),
}
BINDINGS = """
#include "torch/library.h"
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
// ops.def("commented(Tensor x) -> ()");
STABLE_TORCH_LIBRARY_FRAGMENT(_C, ops) {
  ops.def(
      "scale(Tensor! out, Tensor x, "  // goes on
      "float by) -> ()");
  ops.def("lambda(Tensor x) -> ()", [](int x) { return x; });
#ifndef USE_ROCM
  ops.def("only_cuda(Tensor x) -> ()");
#endif
}
STABLE_TORCH_LIBRARY_IMPL(_C, CUDA, ops) {
  ops.impl("scale", TORCH_BOX(&scale_entry));
  ops.impl("only_cuda", TORCH_BOX(&nowhere));
}
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, m) {
  m.def("hidden(Tensor x) -> ()");
  m.impl("hidden", torch::kCPU, &hidden);
}
"""
KERNELS = """
namespace lib {
template <typename T, int N>
__global__ void scale_kernel(T* x) { x[0] = 1; }
template <typename T>
__global__ void __launch_bounds__(max(1, 2)) macro_kernel(T* x) { }
__global__ void idle_kernel(float* x) { }
}
#define LAUNCH(width)                       \\
  DISPATCH(x.type(), [&] {                  \\
    lib::macro_kernel<float>                \\
        <<<grid, block, 0, stream>>>(x);    \\
  });
void launch(float* x) {
  dim3 grid(1);
  lib::scale_kernel<float, 4>
      <<<grid, 32>>>(x);
}
void scale_entry(float* x) {
  DISPATCH_TYPES(x, "scale", [&] { launch(x); });
  LAUNCH(8);
}
void after(float* x) { }
"""
LIB = {
    "csrc/gpu/bindings.cpp": BINDINGS,
    "csrc/gpu/ops.h": "void scale_entry(float* x);\nvoid hidden(float* x);\n",
    "csrc/gpu/kernels.cu": KERNELS,
    "csrc/cpu/kernels.cpp": "void scale_entry(float* x) { }\nvoid hidden(float* x) { }\n",
    "lib/__init__.py": "",
    "lib/registry.py": (
        "import torch\nfrom torch.library import Library\nlib = Library('lib', 'FRAGMENT')\n"
        "def direct_register_custom_op(op_name, op_func, mutates_args=None, fake_impl=None, target_lib=None): pass\n"
    ),
    "lib/layers.py": (
        "import torch\n"
        "from lib.registry import direct_register_custom_op, lib\n"
        "def attend(x): return x\n"
        "def attend_fake(x): return x\n"
        "direct_register_custom_op(op_name='attend', op_func=attend, fake_impl=attend_fake, target_lib=lib)\n"
        "direct_register_custom_op(op_name=make_name(), op_func=attend)\n"
        "@torch.library.custom_op('lib::mine', mutates_args=())\n"
        "def mine(x: torch.Tensor) -> torch.Tensor: return x\n"
        "@mine.register_fake\n"
        "def _(x): return x\n"
        "mine.register_autograd(mine_backward)\n"
        "def mine_backward(ctx, grad): return grad\n"
        "lib.define('defined(Tensor x) -> Tensor')\n"
        "def defined_cuda(x): return x\n"
        "lib.impl('defined', defined_cuda, 'CUDA')\n"
        "other.impl('defined', defined_cuda, 'CPU')\n"
        "class Layer:\n"
        "    def forward(self, x):\n"
        "        torch.ops._C.scale(x)\n"
        "        torch.ops.lib.attend(x)\n"
        "        torch.ops._rocm_C.hidden.default(x)\n"
        "        torch.ops.lib.unheard(x)\n"
        "        return torch.ops.aten.add.Tensor(x, x)\n"
        "    def quoted(self):\n"
        "        return 'torch.ops._C.scale'\n"
    ),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with indexed(tmp_path_factory.mktemp("operators"), torch=TORCH, lib=LIB) as opened:
        yield opened


def only(found: list[Operator]) -> Operator:
    assert len(found) == 1, [one.name for one in found]
    return found[0]


def places(index: Index, asked: str, role: str) -> list[tuple[str, str, str]]:
    """Key, what stands there and certainty, of one role."""
    parts = [part for part in only(operators(index, asked)).parts if part.role == role]
    return [(part.key, part.symbol.partition(":")[2] or part.text, part.certainty) for part in parts]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("aten::add.Tensor", ("aten", "add", "Tensor")),
        ("torch.ops._C.rms_norm", ("_C", "rms_norm", None)),
        ("torch.ops.aten.add.default", ("aten", "add", "")),
        ("torch.add", ("aten", "add", None)),
        ("Tensor.add", ("aten", "add", None)),
        ("add.out", ("", "add", "out")),
        ("rms_norm", ("", "rms_norm", None)),
    ],
)
def test_what_is_asked(asked: str, meant: tuple[str, str, str | None]) -> None:
    assert parsed(asked) == meant


def test_an_operator_of_a_macro_leads_to_its_kernels(index: Index) -> None:
    assert places(index, "_C::scale", "schema") == [("", "scale(Tensor! out, Tensor x, float by) -> ()", "exact")]
    assert places(index, "scale", "implementation") == [("CUDA", "scale_entry", "inferred")]
    (part,) = (one for one in only(operators(index, "scale")).parts if one.role == "implementation")
    assert (part.path, part.line) == ("csrc/gpu/kernels.cu", 19), "the body beside the registration, not the CPU's"
    kernels = places(index, "scale", "kernel")
    assert kernels == [("CUDA", "lib::scale_kernel", "inferred"), ("CUDA", "lib::macro_kernel", "inferred")]


def test_a_kernel_that_nothing_launches_is_none_of_an_operator(index: Index) -> None:
    idle = index.definition("lib:lib::idle_kernel")
    assert idle.decorators == ("__global__",)
    assert all("idle" not in name for _, name, _ in places(index, "scale", "kernel"))


def test_conditions_and_lambdas_are_told(index: Index) -> None:
    (schema,) = (one for one in only(operators(index, "_C::only_cuda")).parts if one.role == "schema")
    assert "#ifndef USE_ROCM" in schema.reason
    assert places(index, "_C::only_cuda", "implementation") == [("CUDA", "nowhere", "unresolved")]
    assert places(index, "_C::lambda", "implementation") == [("", "", "unresolved")]


def test_a_namespace_behind_a_macro_is_told_by_who_calls(index: Index) -> None:
    assert [one.name for one in operators(index, "hidden")] == ["_rocm_C::hidden"]
    assert places(index, "_rocm_C::hidden", "schema") == [("", "hidden(Tensor x) -> ()", "inferred")]
    assert operators(index, "_C::hidden") == [], "nothing calls it by that namespace"


@pytest.mark.parametrize("asked", ["commented", "_D::scale", "unheard", "aten::scale", "torch.scale", "add.nope"])
def test_what_is_no_operator(index: Index, asked: str) -> None:
    assert operators(index, asked) == []


def test_near_operators_are_offered(index: Index) -> None:
    assert near(index, "_D::scale") == ["_C::scale"]
    assert "scale" in near(index, "scal")


def test_python_registers_too(index: Index) -> None:
    layers = "lib.layers."
    assert places(index, "lib::attend", "implementation") == [("the platform's", layers + "attend", "exact")]
    assert places(index, "lib::attend", "fake") == [("", layers + "attend_fake", "exact")]
    assert places(index, "lib::mine", "implementation") == [("", layers + "mine", "exact")]
    assert places(index, "lib::mine", "derivative") == [("", layers + "mine_backward", "exact")]
    assert places(index, "lib::mine", "fake") == [("", layers + "_", "exact")]
    assert places(index, "lib::defined", "schema") == [("", "defined(Tensor x) -> Tensor", "exact")]
    assert places(index, "lib::defined", "implementation") == [("CUDA", layers + "defined_cuda", "exact")]


def test_callers_are_code_not_text(index: Index) -> None:
    assert places(index, "_C::scale", "caller") == [("", "lib.layers.Layer.forward", "exact")]


def test_torchs_own_are_read_from_its_yaml(index: Index) -> None:
    assert places(index, "aten::add.Tensor", "implementation") == [
        ("SparseCPU", "add_sparse", "unresolved"),
        ("CPU, CUDA", "at::native::add_kernel", "inferred"),
    ]
    assert places(index, "aten::add.Tensor", "derivative") == [
        ("self", "grad", "exact"),
        ("other", "maybe(grad, other)", "exact"),
    ]
    assert places(index, "aten::add.Tensor", "declaration") == [("", "at::_ops::add_Tensor", "exact")]
    assert places(index, "aten::add.Tensor", "fake") == [("", "torch.meta.meta_add", "exact")]
    stubs = [name for _, name, _ in places(index, "aten::add.Tensor", "stub")]
    assert stubs == ["torch._C._VariableFunctions.add", "torch._C.TensorBase.add"]
    assert [one.name for one in operators(index, "add")] == ["aten::add.Tensor", "aten::add.out"]
    assert places(index, "aten::add_relu", "implementation")[0][0] == "CompositeImplicitAutograd"
    assert "generated from add.out" in only(operators(index, "aten::twice.out")).parts[0].reason


def test_entries_know_their_lines(index: Index) -> None:
    tree = index.workspace.tree("torch") / "torchgen/packaged"
    (entry,) = entries(tree / "ATen/native/native_functions.yaml", "add", "out")
    assert (entry.line, entry.dispatch) == (7, {"CPU, CUDA": ("add_kernel", 9)})
    assert not list(entries(tree / "ATen/native/native_functions.yaml", "dd"))
    assert generated_from(tree / "ATen/native/native_functions.yaml", "twice.mor") is None


MEANINGS = [
    ("torch.ops._C.^scale(x)", "~lib:scale_entry"),
    ("torch.ops.lib.^attend(x)", "~lib:lib.layers.attend"),
    ("torch.ops._rocm_C.^hidden.default(x)", "~lib:hidden"),
    ("torch.ops._rocm_C.hidden.^default(x)", "~lib:hidden"),
    ("return torch.ops.aten.add.^Tensor(x, x)", "~torch:at::_ops::add_Tensor"),
    ("torch.ops.lib.^unheard(x)", "? no source shows the operator's implementation: lib::unheard"),
]


def test_torch_ops_leads_to_implementations(index: Index) -> None:
    for _ in ("resolved", "kept"):
        assert [(marked, meaning(index, "lib", "lib/layers.py", marked)) for marked, _ in MEANINGS] == MEANINGS


def test_a_python_call_reaches_the_kernel(index: Index) -> None:
    start, goal = (index.definition(f"lib:{name}") for name in ("lib.layers.Layer.forward", "lib::scale_kernel"))
    chain = path(index, start, goal)
    assert chain is not None
    assert [call.callee for call in chain] == ["lib:scale_entry", "lib:launch", "lib:lib::scale_kernel"]
    assert {call.certainty for call in chain} == {"inferred"}
    assert path(index, start, index.definition("lib:lib::idle_kernel")) is None


def test_a_macro_calls_what_its_body_names(index: Index) -> None:
    calls = callees(index, index.definition("lib:LAUNCH"))
    assert [call.callee for call in calls] == ["lib:lib::macro_kernel"]


def test_where_torch_is_not_a_pin(tmp_path: Path) -> None:
    with indexed(tmp_path, lib=LIB) as opened:
        assert meaning(opened, "lib", "lib/layers.py", "torch.ops._C.^scale(x)") == "~lib:scale_entry"
        assert operators(opened, "aten::add") == []


SHAPES = {
    "a/shape.h": (
        "namespace g {\nclass Shape {\n public:\n  int area(int scale, const float* by = nullptr) const;\n"
        "  int area();\n};\n"
        "void draw(Shape& it);\nvoid erase(Shape& it);\n}\n"
    ),
    "b/shape.h": "namespace g {\nvoid draw(Shape& shape);\nvoid draw(int shape);\n}\n",
    "a/shape.cpp": (
        "namespace g {\nint Shape::area(int scale,  // by how much\n    const float* by) const { return scale; }\n"
        "void draw(Shape& shape) { }\n}\n"
    ),
}


def test_declarations_and_bodies_know_each_other(tmp_path: Path) -> None:
    with indexed(tmp_path, g=SHAPES) as opened:
        found = {(one.path, one.line): one for path in SHAPES for one in opened.definitions("g", path)}

        def others(path: str, line: int) -> tuple[bool, list[tuple[str, int]]]:
            has_body, them = counterparts(opened, found[path, line])
            return has_body, [(one.path, one.line) for one in them]

        assert others("a/shape.cpp", 2) == (True, [("a/shape.h", 4)]), "the other overload takes nothing"
        assert others("a/shape.h", 4) == (False, [("a/shape.cpp", 2)])
        assert others("a/shape.cpp", 4) == (True, [("a/shape.h", 7), ("b/shape.h", 2)]), "the near one first"
        assert others("a/shape.h", 8) == (False, []), "nothing defines it"
        assert others("a/shape.h", 2) == (False, []), "a class is no function"
        assert opened.find("draw")[0].path == "a/shape.cpp", "a body is found before its declarations"
        assert found["a/shape.cpp", 2].signature == "int Shape::area(int scale, const float* by) const"


CLOSE = {
    "a/own.cu": "static int helper(int x) { return x; }\nusing Word = int;\nint open(int x, int y) { return x; }\n",
    "a/shape.h": (
        "HIDDEN_NAMESPACE_BEGIN(lib, deep)\nstruct Base { int size() const; };\n"
        "struct Shape : public Base { int grow(int by); int grow(int by, int more); Shape* next; };\n"
        "HIDDEN_NAMESPACE_END(lib, deep)\nint at(int x);\nint open(int x, int y = 0);\n"
    ),
    "a/user.cu": (
        '#include "shape.h"\nusing namespace lib::deep;\n'
        "template <typename T>\nint take(Shape& it, T other, std::shared_ptr<Shape> held) {\n"
        "  it.grow(1);\n  it.grow(1, 2);\n  it.size();\n  held->grow(3);\n  auto made = Shape();\n  made.grow(4);\n"
        "  other.grow(5);\n  helper(6);\n  Word w;\n  open(7);\n  at::Tensor* t;\n  unknown->grow(8);\n  return 0;\n}\n"
        "#ifdef A\nint odd() { if (1) {\n#else\nint odd() { if (2) {\n#endif\n}}\n"
        "#if B\nstruct C {\n#endif\nint even();\n#if B\n};\n#endif\n"
    ),
}
CLOSE_MEANINGS = [
    ("it.^grow(1);", "~c:lib::deep::Shape::grow"),
    ("it.^grow(1, 2);", "~c:lib::deep::Shape::grow"),
    ("it.^size();", "~c:lib::deep::Base::size"),
    ("held->^grow(3);", "~c:lib::deep::Shape::grow"),
    ("made.^grow(4);", "~c:lib::deep::Shape::grow"),
    ("other.^grow(5);", "? the class of the object is not plain"),
    ("^helper(6);", "? none of the definitions of the name fits: 1"),
    ("^Word w;", "? none of the definitions of the name fits: 1"),
    ("^open(7);", "~c:open"),
    ("^at::Tensor* t;", "? none of the definitions of the name fits: 1"),
    ("unknown->^grow(8);", "? the class of the object is not plain"),
]


def test_members_overloads_and_what_is_not_visible(tmp_path: Path) -> None:
    with indexed(tmp_path, c=CLOSE) as opened:
        assert [(marked, meaning(opened, "c", "a/user.cu", marked)) for marked, _ in CLOSE_MEANINGS] == CLOSE_MEANINGS
        columns = {
            link.line: link.target.column
            for link in opened.links("c", "a/user.cu")
            if link.name == "grow" and link.target
        }
        assert columns[5] < columns[6], "overloads are told apart by the number of arguments"
        (called,) = [link.target for link in opened.links("c", "a/user.cu") if link.name == "open"]
        assert called is not None
        assert called.path == "a/own.cu", "the body, although only the declaration says that one argument will do"
        names = {one.qualname for one in opened.definitions("c", "a/user.cu")}
        assert {"odd", "even"} <= names, "a branch that leaves a brace open costs nothing else"
