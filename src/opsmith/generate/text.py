"""An expression as C++ statements: the same for CUDA and the CPU, except for the names of types.

Both headers (include/opsmith/pointwise/cuda.h and cpu.h) define the functions that expressions use, on one element and
on a vector of elements. What depends only on arguments and constants, the uniform part, is computed once, as C++
scalars, before the first element.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import torch

from ..errors import SourceLine
from .expression import Column, Constant, Input, Node, Program, Scalar, postorder, rounded

HALF = (torch.float16, torch.bfloat16)

SCALAR_TYPES: dict[torch.dtype, str] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
    torch.bool: "bool",
}
"""An element in memory. `float16` and `bfloat16` are types of the headers, converted to float when loaded."""


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """What a value of this dtype is computed in: half types in float, rounded where the reference casts."""
    return torch.float32 if dtype in HALF else dtype


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a result of this dtype is summed in."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def literal(value: float | int | bool, dtype: torch.dtype) -> str:
    dtype = computed_in(dtype)
    if dtype is torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        if dtype is torch.int64:
            return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{int(value)}LL"
        return f"{SCALAR_TYPES[dtype]}({int(value)})"
    name, is_float = SCALAR_TYPES[dtype], dtype is torch.float32
    number = rounded(float(value)) if is_float else float(value)
    if math.isnan(number):
        return f"not_a_number<{name}>()"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}infinity<{name}>()"
    shortest = f"{number:.9g}" if is_float else repr(number)
    return f"{shortest if any(c in shortest for c in '.en') else shortest + '.0'}{'f' if is_float else ''}"


def source_place(line: SourceLine) -> str:
    """'mish.py:12'; with the folder for files like op.py."""
    path = PurePath(line.file)
    folder = f"{path.parent.name}/" if path.name in ("op.py", "__init__.py") else ""
    return f"{folder}{path.name}:{line.number}"


def result_names(program: Program) -> list[str]:
    """Names for what the results are written to, distinct from those of inputs and arguments."""
    taken = {read.name for read in program.reads} | {scalar.name for scalar in program.scalars}
    names: list[str] = []
    for result in program.results:
        name = result.name
        while name in taken:
            name += "_result"
        taken.add(name)
        names.append(name)
    return names


class Writer:
    """Names the nodes of a program and writes their expressions. `value_type` names the type that holds an element of a
    dtype, `uniform_value` wraps what is one number where it meets elements."""

    def __init__(self, program: Program, value_type: Mapping[torch.dtype, str], uniform_value: str = "{}") -> None:
        self._value_type = value_type
        self._uniform_value = uniform_value
        self._taken = {read.name for read in program.reads} | {result.name for result in program.results}
        self._taken |= {scalar.name for scalar in program.scalars}
        self._by_slot = {read.slot: read.name for read in program.reads}
        self._names: dict[Node, str] = {}
        self._uniforms: set[Node] = set()  # what is one number here, not an element
        self._counts: dict[str, int] = {}

    def leaf(self, node: Node, uniform: bool = False) -> None:
        """Enters an input, an argument, a number or the column's number, which needs no statement."""
        if isinstance(node, Input):
            self.given(node, self._by_slot[node.slot], uniform)
        elif isinstance(node, Constant):
            self.given(node, literal(node.value, node.dtype), uniform=True)
        elif isinstance(node, Scalar):
            self.given(node, node.name, uniform=True)
        else:
            assert isinstance(node, Column)
            self.given(node, "column", uniform)

    def given(self, node: Node, name: str, uniform: bool) -> None:
        """Enters a node under a name."""
        self._names[node] = name
        (self._uniforms.add if uniform else self._uniforms.discard)(node)

    def fresh(self, base: str) -> str:
        while True:
            self._counts[base] = self._counts.get(base, 0) + 1
            name = f"{base}_{self._counts[base]}"
            if name not in self._taken:
                return name

    def name(self, node: Node) -> str:
        return self._names[node]

    def element(self, node: Node) -> str:
        """A node's value where elements are computed."""
        name = self._names[node]
        return self._uniform_value.format(name) if node in self._uniforms else name

    def is_uniform(self, node: Node) -> bool:
        return node in self._uniforms

    def number(self, node: Node) -> tuple[str, str, str]:
        """(type, name, expression) of a node that is one number, computed from numbers."""
        assert node.function is not None
        expression = self._expression(node, [self._names[arg] for arg in node.args])
        self.given(node, self.fresh(node.function.name), uniform=True)
        return SCALAR_TYPES[computed_in(node.dtype)], self._names[node], expression

    def line(self, node: Node, expression: str | None = None) -> str:
        """The statement that computes an element."""
        assert node.function is not None
        if expression is None:
            expression = self._expression(node, [self.element(arg) for arg in node.args])
        self.given(node, self.fresh(node.function.name), uniform=False)
        where = f"  // {source_place(node.line)}" if node.line else ""
        return f"const {self._value_type[computed_in(node.dtype)]} {self._names[node]} = {expression};{where}"

    @staticmethod
    def _expression(node: Node, args: Sequence[str]) -> str:
        assert node.function is not None
        args = [f"({arg})" if arg.startswith("-") else arg for arg in args]  # --1.0f is a decrement
        expression = node.function.text(args, node)
        return f"round_to_{SCALAR_TYPES[node.dtype]}({expression})" if node.dtype in HALF else expression


@dataclass
class Statements:
    """A program's body. `names` gives each result's value by its position."""

    uniform: list[tuple[str, str, str]] = field(default_factory=list)  # (C type, name, expression), in order
    lines: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


def statements(program: Program, value_type: Mapping[torch.dtype, str], uniform_value: str = "{}") -> Statements:
    """The body of a pointwise program. Inputs and arguments have the names that the program gives them."""
    body = Statements()
    writer = Writer(program, value_type, uniform_value)
    for node in postorder(result.expression for result in program.results):
        if node.function is None:
            writer.leaf(node)
        elif all(writer.is_uniform(arg) for arg in node.args):
            body.uniform.append(writer.number(node))
        else:
            body.lines.append(writer.line(node))
    body.results = [writer.element(result.expression) for result in program.results]
    return body


# --- names ---------------------------------------------------------------------------------------------------------

_KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq"""

# In the headers in include/opsmith/pointwise and in the emitters' text.
_IN_USE = """Element Extent Index Inputs Kernel Lanes Mask Outputs Pack Parameters PartialSums Place Position Repeated
Strided Sums Value Vec Visit add as_double at begin bfloat16 bits_as broadcast cast column columns combine compute
computed count divide each_sum element end fast accurate finish float16 given grid infinity inner inputs int16_t
int32_t int64_t int8_t item kept kernel lane lanes launch length linear_index load load_pack locate loops main narrow
not_a_number opsmith OPSMITH_DEVICE OPSMITH_FAST_MATH OPSMITH_INLINE OPSMITH_LANES OPSMITH_SLEEF outputs pairwise
parameters place pointer position put reduced round_to_bfloat16 round_to_float16 row rows scalar segment select size
sizes start std step store store_pack stream strides sum sums task tensors threads threadIdx blockIdx blockDim gridDim
tile total uint8_t uint16_t uint32_t uint64_t unroll value vector visit INNER OUTER STRIDED SUMS PerColumn PerTask
load_contiguous load_linear load_one load_repeated load_strided load_once load_apart store_contiguous store_linear
store_strided store_apart"""


_reserved = {*_KEYWORDS.split(), *_IN_USE.split()}


def reserve(name: str) -> None:
    """Takes the name of a function that kernels call."""
    _reserved.add(name)


def safe(names: Sequence[str]) -> tuple[str, ...]:
    """The names made distinct, with underscores after those that C++ or the kernels' text uses."""
    found: list[str] = []
    for name in names:
        while name in _reserved or name in found:
            name += "_"
        found.append(name)
    return tuple(found)


# --- accuracy ------------------------------------------------------------------------------------------------------

# Functions that have a fast form or, like division, a fast compiler option. Their last bits differ from torch's.
_APPROXIMATED = {
    "div", "reciprocal", "sqrt", "rsqrt", "exp", "tanh", "sigmoid", "softplus", "tanh_softplus", "normal_cdf",
    "normal_pdf", "sinc", "floor_divide", "trunc_divide",
}  # fmt: skip
# Functions that turn a difference in the last bit into a large one, as do all whose result is not floating.
_ABRUPT = {"floor", "ceil", "trunc", "round", "sign", "floor_divide", "trunc_divide", "remainder", "fmod"}


def fast_math(program: Program) -> bool:
    """Whether a kernel may use fast forms of functions: every floating tensor is of a half type, and nothing
    discontinuous (a comparison, a rounding) is computed from the result of a fast form."""
    tensors = [read.dtype for read in program.reads] + [result.dtype for result in program.results]
    floating = [dtype for dtype in tensors if dtype.is_floating_point]
    if not floating or any(dtype not in HALF for dtype in floating):
        return False
    approximate: set[Node] = set()
    for node in program.nodes():
        if node.function is None:
            continue
        touched = node.function.name in _APPROXIMATED and node.dtype is not torch.float64
        if touched or any(arg in approximate for arg in node.args):
            if node.function.name in _ABRUPT or not node.dtype.is_floating_point:
                return False
            approximate.add(node)
    return True
