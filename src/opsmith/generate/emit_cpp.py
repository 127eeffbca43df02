"""A program as C++ for the CPU: a struct that computes one vector of elements, and an entry point that runs it.

The drivers, the vectors and the functions are in include/opsmith/pointwise/cpu.h. An entry point has the signature that
torch_parallel_for calls: a range of tasks and the launch parameters.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from ..launch.planner import LayoutClass
from ..toolchain.compile import Abi
from .expression import Input, Node, Program
from .text import SCALAR_TYPES, computed_in, fast_math, result_names, source_place, statements, sum_dtype
from .tuning import present

COMBINE = "opsmith_combine"

_VECTOR_FLAGS: dict[str, tuple[str, ...]] = {
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
_VECTOR_BYTES = {"AVX512": 64, "AVX2": 32}
# Kernels are written in vectors. GCC 12's loop vectoriser adds nothing to them, and for SSE2 it made a wrong mask of
# `maximum(x, 0) <= 0` in a loop down columns.
# -fwrapv: integers wrap as torch's do. No contraction: a * b + c rounds twice, as torch's separate kernels do.
_FLAGS = (
    "-O3",
    "-fno-tree-loop-vectorize",
    "-std=c++17",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fwrapv",
    "-Wno-psabi",
)
LINKED = ("-nodefaultlibs", "-lm", "-lgcc", "-lc")
"""Kernels need no C++ library, and reading its symbols takes the linker longer than everything else."""
HELD = {dtype: f"Vec<{name}>" for dtype, name in SCALAR_TYPES.items()} | {torch.bool: "Mask"}


CAPABILITIES = ("AVX512", "AVX2", "DEFAULT")
_chosen: str | None = None


def capability() -> str:
    """What torch's own kernels use on this processor: 'AVX512', 'AVX2' or anything else. Inside `written_for`, what
    another processor's would."""
    return _chosen or _own_capability()


@functools.cache
def _own_capability() -> str:
    return torch.backends.cpu.get_cpu_capability()


@contextlib.contextmanager
def written_for(chosen: str) -> Iterator[None]:
    """Inside, sources are written for processors of one of CAPABILITIES; for the whole process, which builds ahead of
    time and runs nothing."""
    global _chosen
    before, _chosen = _chosen, chosen
    try:
        yield
    finally:
        _chosen = before


def has_sleef() -> bool:
    """Whether kernels call the Sleef functions that torch carries."""
    return capability() in _VECTOR_FLAGS and _exports_sleef()


@functools.cache
def _exports_sleef() -> bool:
    """Whether this torch lets others call its Sleef: all of it, or none."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    return all(hasattr(library, f"Sleef_exp{lanes}_u10") for lanes in ("f16", "f8", "d8", "d4"))


def flags() -> tuple[str, ...]:
    return (*_FLAGS, *_VECTOR_FLAGS.get(capability(), ()))


def abi() -> Abi:
    """What a kernel links against: torch, where it calls the Sleef in it."""
    return "sleef" if has_sleef() else "plain"


def entry_name(program: Program) -> str:
    return "opsmith_" + re.sub(r"\W+", "_", program.name).strip("_")


def text(program: Program, layout: LayoutClass) -> str:
    """The C++ of a kernel: see cpu.h for what the struct offers its driver."""
    return _Kernel(program, layout).text()


def combine_text(result_dtype: torch.dtype) -> str:
    """The kernel that adds partial sums: result[x] = sum over r of partial[r * columns + x]."""
    arguments = f"<{SCALAR_TYPES[sum_dtype(result_dtype)]}, {SCALAR_TYPES[result_dtype]}>"
    return "\n".join(
        [
            f"// Adds partial sums in a fixed order; results are {SCALAR_TYPES[result_dtype]}.",
            *preamble(lanes([sum_dtype(result_dtype)])),
            "",
            "using namespace opsmith;",
            "",
            *entry(COMBINE, f"combine{arguments}(begin, end, static_cast<const int64_t*>(parameters));"),
            "",
        ]
    )


class Operand(NamedTuple):
    """A tensor of the kernel; `value`: the expression of a result."""

    name: str
    dtype: torch.dtype
    mode: str
    place: int  # of its pointer among the launch parameters
    value: Node | None = None

    @property
    def is_sum(self) -> bool:
        return self.mode.startswith("reduced:")

    @property
    def type(self) -> str:
        """An element in memory."""
        return SCALAR_TYPES[sum_dtype(self.dtype) if self.is_sum else self.dtype]

    @property
    def held(self) -> str:
        """The vector that holds elements of an input."""
        return HELD[computed_in(self.dtype)]


class _Kernel:
    """The text of one kernel, part by part."""

    def __init__(self, program: Program, layout: LayoutClass) -> None:
        self.program = program
        self.layout = layout
        self.struct = struct_name(program)
        computed = present(program, layout)
        self.nodes = computed.nodes()
        self.body = statements(computed, HELD, "broadcast({})")
        modes = list(enumerate(layout.modes))
        self.reads = [
            Operand(read.name, read.dtype, mode, place)
            for read, (place, mode) in zip(program.reads, modes, strict=False)
            if read in computed.reads
        ]
        results = zip(result_names(program), program.results, modes[len(program.reads) :], strict=True)
        self.results = [
            Operand(name, result.dtype, mode, place, result.expression)
            for name, result, (place, mode) in results
            if mode != "absent"
        ]
        strided = [place for place, mode in modes if mode.startswith("strided")]
        self.strided = {place: number for number, place in enumerate(strided)}
        self.sums = [result for result in self.results if result.is_sum]

    def text(self) -> str:
        parts = [
            self._title(),
            preamble(lanes(self._vector_dtypes()), fast=fast_math(self.program)),
            ["", "namespace opsmith {", "namespace {", "", f"struct {self.struct} {{"],
            self._constants(),
            self._members(),
            self._constructor(),
            self._sum_parts() if self.sums else [],
            self._operator(),
            ["};", "", "}  // namespace", "}  // namespace opsmith", ""],
            entry(
                entry_name(self.program),
                f"const opsmith::{self.struct} kernel(static_cast<const int64_t*>(parameters));",
                f"opsmith::{self.layout.path}(begin, end, kernel{self._in_place()});",
            ),
            [""],
        ]
        return "\n".join(line for part in parts for line in part)

    def _vector_dtypes(self) -> list[torch.dtype]:
        """The dtypes held in vectors: elements in memory and everything computed from them."""
        varying: set[Node] = set()
        for node in self.nodes:
            if isinstance(node, Input) or any(arg in varying for arg in node.args):
                varying.add(node)
        dtypes = [node.dtype for node in varying] + [operand.dtype for operand in (*self.reads, *self.results)]
        # A result that no element enters is a number in every lane, in the type it is computed in.
        return dtypes + [result.value.dtype for result in self.results if result.value]

    def _title(self) -> list[str]:
        path = {"stream": "every element", "segment": "sums along rows", "column": "sums down columns"}
        title = f"// {self.program.name}: {path[self.layout.path]}."
        origin = self.program.origin
        if origin is None:
            return [title]
        return [f"{title} From {source_place(origin)}:", f"//   {' '.join(origin.text.split())}".rstrip("\\ ")]

    def _constants(self) -> list[str]:
        numbers = {
            "INNER": self.layout.inner, "OUTER": self.layout.outer, "STRIDED": len(self.strided),
            "SUMS": len(self.sums),
        }  # fmt: skip
        return [f"  static constexpr int {', '.join(f'{name} = {number}' for name, number in numbers.items())};", ""]

    def _in_place(self) -> str:
        if self.layout.path != "stream":
            return ""
        return f", opsmith::is_in_place(parameters, {len(self.program.reads)}, {len(self.program.results)})"

    def _members(self) -> list[str]:
        return [
            *(
                f"  {read.held} {read.name};" if read.mode == "scalar" else f"  const {read.type}* {read.name};"
                for read in self.reads
            ),
            *(f"  {result.type}* {result.name};" for result in self.results),
            *(f"  {SCALAR_TYPES[scalar.dtype]} {scalar.name};" for scalar in self.program.scalars),
            *(f"  {type_name} {name};" for type_name, name, _ in self.body.uniform),
            "  const int64_t* loops;",
            "",
        ]

    def _constructor(self) -> list[str]:
        lines = [f"  explicit {self.struct}(const int64_t* parameters) {{"]
        for read in self.reads:
            address = f"pointer<const {read.type}>(parameters[{read.place}])"
            lines.append(f"    {read.name} = {f'load_one({address})' if read.mode == 'scalar' else address};")
        for result in self.results:
            lines.append(f"    {result.name} = pointer<{result.type}>(parameters[{result.place}]);")
        first = len(self.program.reads) + len(self.program.results)
        for position, scalar in enumerate(self.program.scalars, first):
            value = f"parameters[{position}]"
            value = {torch.float64: f"as_double({value})", torch.bool: f"{value} != 0"}.get(scalar.dtype, value)
            lines.append(f"    {scalar.name} = {value};")
        lines += [f"    {name} = {expression};" for _, name, expression in self.body.uniform]
        return [*lines, f"    loops = parameters + {first + len(self.program.scalars)};", "  }", ""]

    def _sum_parts(self) -> list[str]:
        visits = (
            f"    visit({number}, sums.{result.name}, {result.name}, {self._role(result)}{{}});"
            for number, result in enumerate(self.sums)
        )
        return [
            "  struct Sums {",
            *(f"    Vec<{result.type}> {result.name};" for result in self.sums),
            "  };",
            "  template <typename Visit>",
            "  OPSMITH_INLINE void each_sum(Sums& sums, Visit visit) const {",
            *visits,
            "  }",
            "",
        ]

    def _role(self, result: Operand) -> str:
        by_column = self.layout.path == "column" and result.mode in ("reduced:all", "reduced:inner")
        return "PerColumn" if by_column else "PerTask"

    def _operator(self) -> list[str]:
        arguments = "const Place& at, Sums& sums" if self.sums else "const Place& at"
        lines = ["  template <typename Place>", f"  OPSMITH_INLINE void operator()({arguments}) const {{"]
        for read in self.reads:
            if read.mode != "scalar":
                lines.append(f"    const {read.held} {read.name} = load_{self._place(read)}, this->{read.name});")
        lines += [f"    {line}" for line in self.body.lines]
        for result, value in zip(self.results, self.body.results, strict=True):
            assert result.value is not None
            if result.is_sum:
                value = converted(value, result.value.dtype, sum_dtype(result.dtype))
                lines.append(f"    add(at, sums.{result.name}, {value});")
            else:
                value = converted(value, result.value.dtype, computed_in(result.dtype))
                lines.append(f"    store_{self._place(result)}, {result.name}, {value});")
        return [*lines, "  }"]

    def _place(self, operand: Operand) -> str:
        """The beginning of a call that loads or stores: how the operand is addressed, and which strides it has."""
        if operand.mode == "linear":
            return "linear(at"
        manner = {"strided0": "repeated", "strided1": "contiguous", "stridedn": "strided"}[operand.mode]
        return f"{manner}(at, {self.strided[operand.place]}"


def converted(value: str, dtype: torch.dtype, to: torch.dtype) -> str:
    return value if computed_in(dtype) == to else f"cast<{SCALAR_TYPES[to]}>({value})"


def lanes(dtypes: list[torch.dtype]) -> int:
    """The elements of a vector: as many floats as a register holds, or of the widest type if that is wider."""
    return _VECTOR_BYTES.get(capability(), 16) // max(4, *(dtype.itemsize for dtype in dtypes))


def struct_name(program: Program) -> str:
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", program.name)) or "Kernel"


def preamble(count: int, fast: bool = False, header: str = "pointwise/cpu.h") -> list[str]:
    """What a kernel with vectors of `count` elements begins with."""
    return [
        f"#define OPSMITH_LANES {count}",
        *(["#define OPSMITH_FAST_MATH 1"] if fast else []),
        *(["#define OPSMITH_SLEEF 1"] if has_sleef() else []),
        f"#include <opsmith/{header}>",
    ]


def entry(name: str, *statements: str) -> list[str]:
    return [
        'extern "C" __attribute__((visibility("default")))',
        f"void {name}(int64_t begin, int64_t end, void* parameters) {{",
        *(f"  {statement}" for statement in statements),
        "}",
    ]
