"""A program as C++ for the CPU: a struct that computes one vector of elements, handed to a driver in the header.

The drivers, the vectors and the functions are in include/opsmith/pointwise/cpu.h. An entry point has the signature that
torch_parallel_for calls: a range of tasks and the parameters of the launch.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import re
from pathlib import Path
from typing import NamedTuple

import torch

from ..launch.planner import LayoutClass
from ..toolchain.abi import Abi
from .expression import Input, Node, Program, Result
from .text import SCALAR_TYPES, computed_in, fast_math, source_place, statements

COMBINE = "opsmith_combine"

_VECTOR_FLAGS: dict[str, tuple[str, ...]] = {
    "AVX512": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mfma", "-mf16c"),
    "AVX2": ("-mavx2", "-mfma", "-mf16c"),
}
_VECTOR_BYTES = {"AVX512": 64, "AVX2": 32}
# -fwrapv: integers wrap as torch's do. No contraction: a * b + c rounds twice, as torch's separate kernels do.
_FLAGS = ("-O3", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fwrapv", "-Wno-psabi")
_HELD = {dtype: f"Vec<{name}>" for dtype, name in SCALAR_TYPES.items()} | {torch.bool: "Mask"}


@functools.cache
def capability() -> str:
    """What torch's own kernels use on this processor: 'AVX512', 'AVX2' or anything else."""
    return torch.backends.cpu.get_cpu_capability()


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
    return f"opsmith_{_identifier(program.name)}"


def text(program: Program, layout: LayoutClass) -> str:
    """The C++ of a kernel: see cpu.h for what the struct offers its driver."""
    return _Kernel(program, layout).text()


def combine_text(result_dtype: torch.dtype) -> str:
    """The kernel that adds partial sums: result[x] = sum over r of partial[r * columns + x]."""
    partial = torch.float64 if result_dtype is torch.float64 else torch.float32
    arguments = f"<{SCALAR_TYPES[partial]}, {SCALAR_TYPES[result_dtype]}>"
    return "\n".join(
        [
            f"// Adds partial sums in a fixed order; results are {SCALAR_TYPES[result_dtype]}.",
            *_preamble(_lanes([partial])),
            "",
            "using namespace opsmith;",
            "",
            *_entry(COMBINE, f"combine{arguments}(begin, end, static_cast<const int64_t*>(parameters));"),
            "",
        ]
    )


class _Kernel:
    """The text of one kernel, part by part."""

    def __init__(self, program: Program, layout: LayoutClass) -> None:
        self.program = program
        self.layout = layout
        self.struct = "".join(part[:1].upper() + part[1:] for part in re.split(r"[\W_]+", program.name)) or "Kernel"
        self.read_modes = layout.modes[: len(program.reads)]
        self.result_modes = layout.modes[len(program.reads) :]
        present = [mode != "absent" for mode in self.result_modes]
        self.results = [result for result, here in zip(program.results, present, strict=True) if here]
        computed = dataclasses.replace(program, results=tuple(self.results))
        self.nodes = computed.nodes()
        self.body = statements(computed, _HELD, "broadcast({})")
        values = iter(self.body.results)
        self.values = [next(values) if here else "" for here in present]
        self.targets = self._targets()
        used = {node.slot for node in self.nodes if isinstance(node, Input)}
        self.used = [read.slot in used for read in program.reads]
        strided = [number for number, mode in enumerate(layout.modes) if mode.startswith("strided")]
        self.strided = {number: place for place, number in enumerate(strided)}  # by operand

    def _targets(self) -> list[str]:
        """The members that point to results: named as these are, where no other member is."""
        taken = {read.name for read in self.program.reads} | {scalar.name for scalar in self.program.scalars}
        targets: list[str] = []
        for result in self.program.results:
            name = result.name
            while name in taken:
                name += "_result"
            taken.add(name)
            targets.append(name)
        return targets

    def text(self) -> str:
        sums = self._sums()
        parts = [
            self._title(),
            _preamble(_lanes(self._vector_dtypes()), fast=fast_math(self.program)),
            ["", "namespace opsmith {", "namespace {", "", f"struct {self.struct} {{"],
            self._constants(len(sums)),
            self._members(),
            self._constructor(),
            self._sum_parts(sums),
            self._operator(bool(sums)),
            ["};", "", "}  // namespace", "}  // namespace opsmith", ""],
            _entry(
                entry_name(self.program),
                f"const opsmith::{self.struct} kernel(static_cast<const int64_t*>(parameters));",
                f"opsmith::{self.layout.path}(begin, end, kernel{self._in_place()});",
            ),
            [""],
        ]
        return "\n".join(line for part in parts for line in part)

    def _vector_dtypes(self) -> list[torch.dtype]:
        """What is held in vectors: elements in memory and whatever is computed from them."""
        varying: set[Node] = set()
        for node in self.nodes:
            if isinstance(node, Input) or any(arg in varying for arg in node.args):
                varying.add(node)
        dtypes = [node.dtype for node in varying]
        dtypes += [read.dtype for read, used in zip(self.program.reads, self.used, strict=True) if used]
        # A result that no element enters is a number in every lane, in the type it is computed in.
        return dtypes + [dtype for result in self.results for dtype in (result.dtype, result.expression.dtype)]

    def _title(self) -> list[str]:
        path = {"stream": "every element", "segment": "sums along rows", "column": "sums down columns"}
        lines = [f"// {self.program.name}: {path[self.layout.path]}."]
        origin = self.program.origin
        if origin is not None:
            lines[0] += f" From {source_place(origin)}:"
            lines.append(f"//   {' '.join(origin.text.split())}".rstrip("\\ "))
        return lines

    def _constants(self, sums: int) -> list[str]:
        numbers = {
            "INNER": self.layout.inner, "OUTER": self.layout.outer, "STRIDED": len(self.strided), "SUMS": sums
        }  # fmt: skip
        return [f"  static constexpr int {', '.join(f'{name} = {number}' for name, number in numbers.items())};", ""]

    def _in_place(self) -> str:
        if self.layout.path != "stream":
            return ""
        return f", opsmith::is_in_place(parameters, {len(self.program.reads)}, {len(self.program.results)})"

    def _members(self) -> list[str]:
        lines = []
        for read, mode, used in zip(self.program.reads, self.read_modes, self.used, strict=True):
            held, stored = _HELD[computed_in(read.dtype)], SCALAR_TYPES[read.dtype]
            if used:
                lines.append(f"  {held} {read.name};" if mode == "scalar" else f"  const {stored}* {read.name};")
        for result, target, mode in zip(self.program.results, self.targets, self.result_modes, strict=True):
            if mode != "absent":
                lines.append(f"  {_target_type(result, mode)}* {target};")
        lines += [f"  {SCALAR_TYPES[scalar.dtype]} {scalar.name};" for scalar in self.program.scalars]
        lines += [f"  {type_name} {name};" for type_name, name, _ in self.body.uniform]
        return [*lines, "  const int64_t* loops;", ""]

    def _constructor(self) -> list[str]:
        lines = [f"  explicit {self.struct}(const int64_t* parameters) {{"]
        for number, (read, mode, used) in enumerate(zip(self.program.reads, self.read_modes, self.used, strict=True)):
            address = f"pointer<const {SCALAR_TYPES[read.dtype]}>(parameters[{number}])"
            if used:
                lines.append(f"    {read.name} = {f'load_one({address})' if mode == 'scalar' else address};")
        position = len(self.program.reads)
        for result, target, mode in zip(self.program.results, self.targets, self.result_modes, strict=True):
            if mode != "absent":
                lines.append(f"    {target} = pointer<{_target_type(result, mode)}>(parameters[{position}]);")
            position += 1
        for scalar in self.program.scalars:
            value = f"parameters[{position}]"
            value = {torch.float64: f"as_double({value})", torch.bool: f"{value} != 0"}.get(scalar.dtype, value)
            lines.append(f"    {scalar.name} = {value};")
            position += 1
        lines += [f"    {name} = {expression};" for _, name, expression in self.body.uniform]
        return [*lines, f"    loops = parameters + {position};", "  }", ""]

    def _sums(self) -> list[_Sum]:
        sums = []
        for result, target, mode in zip(self.program.results, self.targets, self.result_modes, strict=True):
            if mode.startswith("reduced:"):
                by_column = self.layout.path == "column" and mode in ("reduced:all", "reduced:inner")
                sums.append(_Sum(target, _accumulator(result), "PerColumn" if by_column else "PerTask"))
        return sums

    def _sum_parts(self, sums: list[_Sum]) -> list[str]:
        if not sums:
            return []
        visits = (f"    visit({number}, sums.{s.name}, {s.name}, {s.role}{{}});" for number, s in enumerate(sums))
        return [
            "  struct Sums {",
            *(f"    Vec<{s.type_name}> {s.name};" for s in sums),
            "  };",
            "  template <typename Visit>",
            "  OPSMITH_INLINE void each_sum(Sums& sums, Visit visit) const {",
            *visits,
            "  }",
            "",
        ]

    def _operator(self, summed: bool) -> list[str]:
        arguments = "const Place& at, Sums& sums" if summed else "const Place& at"
        lines = ["  template <typename Place>", f"  OPSMITH_INLINE void operator()({arguments}) const {{"]
        for number, (read, mode, used) in enumerate(zip(self.program.reads, self.read_modes, self.used, strict=True)):
            if used and mode != "scalar":
                held = _HELD[computed_in(read.dtype)]
                lines.append(f"    const {held} {read.name} = load_{self._place(number, mode)}, this->{read.name});")
        lines += [f"    {line}" for line in self.body.lines]
        for number, (result, mode) in enumerate(zip(self.program.results, self.result_modes, strict=True)):
            value, target = self.values[number], self.targets[number]
            if mode.startswith("reduced:"):
                value = _converted(value, result.expression.dtype, _partial_dtype(result))
                lines.append(f"    add(at, sums.{target}, {value});")
            elif mode != "absent":
                value = _converted(value, result.expression.dtype, computed_in(result.dtype))
                place = self._place(len(self.program.reads) + number, mode)
                lines.append(f"    store_{place}, {target}, {value});")
        return [*lines, "  }"]

    def _place(self, operand: int, mode: str) -> str:
        """The beginning of a call that loads or stores: how the operand is addressed, and which strides it has."""
        if mode == "linear":
            return "linear(at"
        manner = {"strided0": "repeated", "strided1": "contiguous", "stridedn": "strided"}[mode]
        return f"{manner}(at, {self.strided[operand]}"


class _Sum(NamedTuple):
    """A result that is summed: its name, the type it is summed in, what has a sum of its own."""

    name: str
    type_name: str
    role: str


def _target_type(result: Result, mode: str) -> str:
    return _accumulator(result) if mode.startswith("reduced:") else SCALAR_TYPES[result.dtype]


def _partial_dtype(result: Result) -> torch.dtype:
    return torch.float64 if result.dtype is torch.float64 else torch.float32


def _accumulator(result: Result) -> str:
    return SCALAR_TYPES[_partial_dtype(result)]


def _converted(value: str, dtype: torch.dtype, to: torch.dtype) -> str:
    return value if computed_in(dtype) == to else f"cast<{SCALAR_TYPES[to]}>({value})"


def _lanes(dtypes: list[torch.dtype]) -> int:
    """The elements of a vector: as many floats as a register holds, or of the widest type if that is wider."""
    return _VECTOR_BYTES.get(capability(), 16) // max(4, *(dtype.itemsize for dtype in dtypes))


def _preamble(lanes: int, fast: bool = False) -> list[str]:
    return [
        f"#define OPSMITH_LANES {lanes}",
        *(["#define OPSMITH_FAST_MATH 1"] if fast else []),
        *(["#define OPSMITH_SLEEF 1"] if has_sleef() else []),
        "#include <opsmith/pointwise/cpu.h>",
    ]


def _entry(name: str, *statements: str) -> list[str]:
    return [
        'extern "C" __attribute__((visibility("default")))',
        f"void {name}(int64_t begin, int64_t end, void* parameters) {{",
        *(f"  {statement}" for statement in statements),
        "}",
    ]


def _identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")
