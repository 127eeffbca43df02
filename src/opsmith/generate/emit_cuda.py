"""A program and a layout as CUDA C++.

The text contains what is specific to the operator (Element) and to the layout (Kernel). Loops, tails and sums are in
include/opsmith/pointwise/cuda.h.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from ..launch.planner import LayoutClass
from . import tuning
from .expression import Node, Program
from .text import HALF, SCALAR_TYPES, computed_in, fast_math, result_names, source_place, statements, sum_dtype
from .tuning import COMBINE_THREADS, THREADS, least_blocks, packs_in_flight, present, unroll

# NVRTC before CUDA 13.4 takes a lambda in a device function for a host function without the second option.
OPTIONS = ("--device-as-default-execution-space", "-std=c++17")
FAST_OPTIONS = ("--prec-div=false", "--prec-sqrt=false")
FAST = "#define OPSMITH_FAST_MATH"
ROWS = "#include <opsmith/rows/cuda.h>"

COMBINE = "combine_partial_sums"
VALUE_TYPES = {dtype: SCALAR_TYPES[computed_in(dtype)] for dtype in SCALAR_TYPES}


def options(text: str) -> tuple[str, ...]:
    """NVRTC's options for a text. If its functions are fast, division is too, and a row's products and sums round once:
    a row kernel of half types has few instructions to spare (rows/emit_cuda.py)."""
    is_fast = FAST in text
    contracted = "true" if is_fast and ROWS in text else "false"
    return (f"--fmad={contracted}", *OPTIONS, *(FAST_OPTIONS if is_fast else ()))


def cluster_of(text: str) -> int:
    """The blocks of a cluster that a text's kernel is compiled for."""
    found = re.search(r"__cluster_dims__\((\d+)", text)
    return int(found[1]) if found else 1


def entry(program: Program, layout: LayoutClass, parameters: int, attributes: str, driver: str) -> list[str]:
    """The lines of the kernel, which calls a driver of the headers, and the end of the source."""
    return [
        f'extern "C" __global__ void{attributes}',
        f"{entry_name(program, layout)}(__grid_constant__ const Parameters<{parameters}> parameters) {{",
        f"  {driver}(Kernel(parameters));",
        "}",
        "",
        "}  // namespace opsmith",
        "",
    ]


def entry_name(program: Program, layout: LayoutClass) -> str:
    return re.sub(r"\W+", "_", f"{program.name}_{layout.path}")


def text(program: Program, layout: LayoutClass) -> str:
    """The CUDA C++ of a program in a layout."""
    return _Text(program, layout).whole()


def combine_text(result_dtype: torch.dtype, jobs: int = 1) -> str:
    """The CUDA C++ of the kernel that sums partial sums into `jobs` results of one dtype. Its parameters, for each: the
    partial sums, the result, rows, columns."""
    accumulator = SCALAR_TYPES[sum_dtype(result_dtype)]
    return f"""\
// Sums partial sums of {accumulator} into results of {SCALAR_TYPES[result_dtype]}.
#include <opsmith/pointwise/cuda.h>

namespace opsmith {{

extern "C" __global__ void __launch_bounds__({COMBINE_THREADS})
{COMBINE}(__grid_constant__ const Parameters<{4 * jobs}> parameters) {{
  combine<{COMBINE_THREADS}, {SCALAR_TYPES[result_dtype]}, {accumulator}>(parameters);
}}

}}  // namespace opsmith
"""


def comment(program: Program, layout: LayoutClass, how: str) -> list[str]:
    """What a kernel computes, and the layouts that it is for."""
    origin = program.origin
    lines = [f"// {program.name}"]
    if origin is not None:
        lines[0] += f", {source_place(origin)}"
        # A backslash at the end would continue the comment on the next line.
        lines += [f"//   {line.strip().rstrip(chr(92))}" for line in origin.text.splitlines()[:1]]
    bits = 64 if layout.wide else 32
    lines.append(f"// {how}, {layout.vector} elements at a time, {bits}-bit indices")
    names = [*(read.name for read in program.reads), *(result.name for result in program.results)]
    modes = (f"{name} {mode}" for name, mode in zip(names, layout.modes, strict=True))
    return [*lines, f"// {', '.join(modes)}"]


def listed(opening: str, items: list[str], closing: str, separator: str = ", ") -> list[str]:
    """A list on one line, or one item per line if that is too long."""
    inside = separator.join(items)
    padding = " " if separator == " " and items else ""
    line = f"{opening}{padding}{inside}{padding}{closing}"
    if len(line) <= 120:
        return [line]
    indent = " " * (len(opening) - len(opening.lstrip()) + 4)
    ends = [separator.rstrip()] * (len(items) - 1) + [""]
    lines = (f"{indent}{item}{end}" for item, end in zip(items, ends, strict=True))
    return [opening, *lines, f"{indent[:-4]}{closing}"]


def struct(name: str, fields: list[str], template: str = "") -> list[str]:
    head = [f"  template <{template}>"] if template else []
    return [*head, f"  struct {name} {{", *(f"    {field}" for field in fields), "  };", ""]


def method(signature: str, body: list[str], template: str = "") -> list[str]:
    head = [f"  template <{template}>"] if template else []
    return [*head, f"  OPSMITH_DEVICE {signature} const {{", *body, "  }", ""]


@dataclass(frozen=True)
class Operand:
    """A tensor of the kernel."""

    name: str
    dtype: torch.dtype
    mode: str
    place: int  # of its pointer among the parameters
    strides: int  # the place of its strides
    value: Node | None = None  # of a result

    @property
    def type(self) -> str:
        """An element in memory."""
        return ("" if self.value else "const ") + SCALAR_TYPES[self.dtype]

    @property
    def is_strided(self) -> bool:
        return self.mode.startswith("strided")

    @property
    def role(self) -> str | None:
        return self.mode.removeprefix("reduced:") if self.mode.startswith("reduced:") else None

    @property
    def sum_type(self) -> str:
        return SCALAR_TYPES[sum_dtype(self.dtype)]

    @property
    def is_full(self) -> bool:
        """Whether it is loaded or stored element by element."""
        return self.role is None and self.mode != "scalar"


class _Text:
    def __init__(self, program: Program, layout: LayoutClass) -> None:
        self.program = program
        self.layout = layout
        self.by_column = layout.path == "column"
        self.present = present(program, layout)
        self.body = statements(self.present, VALUE_TYPES)
        self._find_operands()

    def _find_operands(self) -> None:
        """Each operand's place among the parameters: pointers, scalars, loops, strides."""
        program, layout = self.program, self.layout
        self.scalars_at = len(program.reads) + len(program.results)
        self.loops_at = self.scalars_at + len(program.scalars)
        any_strided = any(mode.startswith("strided") for mode in layout.modes)
        self.size_count = layout.outer + layout.inner if any_strided or layout.path != "stream" else 0
        strides = self.loops_at + {"stream": 1, "segment": 4, "column": 5}[layout.path] + self.size_count
        tensors: list[tuple[str, torch.dtype, Node | None]] = [(read.name, read.dtype, None) for read in program.reads]
        for name, result in zip(result_names(program), program.results, strict=True):
            tensors.append((name, result.dtype, result.expression))
        used = {read.name for read in self.present.reads}
        self.operands: list[Operand] = []
        for place, ((name, dtype, value), mode) in enumerate(zip(tensors, layout.modes, strict=True)):
            operand = Operand(name, dtype, mode, place, strides, value)
            if operand.is_strided:
                strides += self.size_count + self.by_column
            if mode != "absent" and (value or name in used):
                self.operands.append(operand)
        self.parameter_count = strides
        self.reads = [operand for operand in self.operands if operand.value is None]
        self.results = [operand for operand in self.operands if operand.value is not None]
        self.strided = [operand for operand in self.operands if operand.is_strided]
        self.is_linear = any(operand.mode == "linear" for operand in self.operands)
        self.summed = [result for result in self.results if not result.is_full]

    def whole(self) -> str:
        layout = self.layout
        bounds = f"{THREADS[layout.path]}, {least_blocks(self.program, layout)}"
        lines = [
            *comment(self.program, layout, f"by {layout.path}"),
            *([FAST] if fast_math(self.program) else []),
            "#include <opsmith/pointwise/cuda.h>",
            "",
            "namespace opsmith {",
            "",
            *self._element(),
            "",
            *self._kernel(),
            "",
            *entry(self.program, layout, self.parameter_count, f" __launch_bounds__({bounds})", layout.path),
        ]
        return "\n".join(lines)

    def _element(self) -> list[str]:
        """What one element computes: the same in every layout."""
        scalars = [(SCALAR_TYPES[scalar.dtype], scalar.name) for scalar in self.program.scalars]
        fields = [f"  {kind} {name};" for kind, name in scalars]
        fields += [f"  {kind} {name};" for kind, name, _ in self.body.uniform]
        members = ", ".join(
            f"{name}(scalar<{kind}>(parameters, {self.scalars_at + index}))"
            for index, (kind, name) in enumerate(scalars)
        )
        arguments = [f"{VALUE_TYPES[read.dtype]} {read.name}" for read in self.reads]
        arguments += [f"{VALUE_TYPES[result.value.dtype]}& {result.name}" for result in self.results if result.value]
        values = zip(self.results, self.body.results, strict=True)
        return [
            "// What one element computes.",
            "struct Element {",
            *fields,
            *([""] if fields else []),
            "  template <int Count>",
            "  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters)"
            + (f" : {members}" if members else "")
            + " {",
            *(f"    {name} = {expression};" for _, name, expression in self.body.uniform),
            "  }",
            "",
            *listed("  OPSMITH_DEVICE void operator()(", arguments, ") const {"),
            *(f"    {line}" for line in self.body.lines),
            *(f"    {result.name} = {value};" for result, value in values),
            "  }",
            "};",
        ]

    def _kernel(self) -> list[str]:
        """Where the elements are: the same for every program of this many tensors."""
        layout = self.layout
        constants = {
            "threads": THREADS[layout.path],
            "vector": layout.vector,
            "unroll": unroll(self.program, layout),
        }
        if layout.path != "stream":
            constants["in_flight"] = packs_in_flight(self.program, layout)
            constants["few_blocks"] = tuning.FEW_BLOCKS
        lines = [
            "// Where its elements are.",
            "struct Kernel {",
            f"  using Index = {'uint64_t' if layout.wide else 'uint32_t'};",
            *(f"  static constexpr int {name} = {number};" for name, number in constants.items()),
            "",
            *self._members(),
            *(self._locate_in_stream() if layout.path == "stream" else self._locate_in_reduction()),
            *self._scalars(),
            *self._load(),
            *self._compute(),
            *self._store(),
            *(self._sums() if layout.path != "stream" else []),
        ]
        return [*lines[:-1], "};"]

    def _members(self) -> list[str]:
        """The tensors, and how each is found among the parameters."""
        layout = self.layout
        dimensions = f"Index, {layout.outer}, {layout.inner}"
        loops_type = f"{layout.path.capitalize()}Loops<{dimensions}>"
        if layout.path == "stream":
            loops_type = f"StreamLoops<Index, {self.size_count}>"
        members = [self._member(operand, dimensions) for operand in self.operands]
        return [
            "  Element element;",
            f"  {loops_type} loops;",
            "  struct {",
            *(f"    {declared}" for declared, _ in members),
            "  } tensors;",
            "",
            f"  OPSMITH_DEVICE explicit Kernel(const Parameters<{self.parameter_count}>& parameters)",
            "      : element(parameters),",
            f"        loops(parameters, {self.loops_at}),",
            "        tensors{",
            *(f"            {value}," for _, value in members),
            "        } {}",
            "",
        ]

    def _member(self, operand: Operand, dimensions: str) -> tuple[str, str]:
        """(declaration, initial value) of an operand."""
        name, pointer = operand.name, f"pointer<{operand.type}>(parameters, {operand.place})"
        if operand.is_strided:
            kind = "ColumnStrided" if self.by_column else "Strided"
            value = f"{{parameters, {operand.place}, {operand.strides}}}"
            return f"{kind}<{operand.type}, {dimensions}> {name};", value
        if operand.mode == "linear":
            return f"{operand.type}* {name};", pointer
        if operand.mode == "scalar":
            return f"const {operand.type.removeprefix('const ')}* {name};  // of one element", pointer
        if operand.dtype in HALF:
            value = f"{{pointer<void>(parameters, {operand.place}), {self._is_whole(operand.dtype)}}}"
            return f"PartialSums<{operand.type}, {operand.sum_type}> {name};", value
        return (
            f"{operand.sum_type}* {name};  // partial sums",
            f"pointer<{operand.sum_type}>(parameters, {operand.place})",
        )

    def _is_whole(self, dtype: torch.dtype) -> str:
        """Whether the results of a dtype have one sum for each of their elements, so that there is nothing to combine:
        the same condition as in the planner (plan.h's find_combines)."""
        roles = {operand.role for operand in self.summed if operand.dtype is dtype}
        conditions = ["loops.block.one_chunk" if self.by_column else "loops.chunks == 1"]
        if roles & {"inner", "none"}:
            conditions.append("loops.kept_count == 1")
        if self.by_column and roles & {"outer", "none"}:
            conditions.append("loops.template is_one_tile<vector>()")
        return " && ".join(conditions)

    # --- places: the offset of each strided operand, and the index that the linear ones share ------------------------

    def _place(self) -> list[str]:
        fields = ["Index linear_index;"] * self.is_linear + [f"Index {operand.name};" for operand in self.strided]
        return [*listed("  struct Place {", fields, "};", " "), ""]

    def _offset(self, operand: Operand) -> str:
        """Along the inner dimensions; the innermost stride is a template argument if it is known."""
        known = "" if self.by_column or operand.mode == "stridedn" else f"<{operand.mode[-1]}>"
        return f"position.along{known}(tensors.{operand.name}.inner)"

    def _position(self, dimensions: int, index: str, sizes: str) -> list[str]:
        if not self.strided:
            return []
        return [f"    const Position<{dimensions}, Index> position({index}, loops.{sizes});"]

    def _locate_in_stream(self) -> list[str]:
        offsets = ["index"] * self.is_linear + [self._offset(operand) for operand in self.strided]
        body = [*self._position(self.layout.inner, "index", "sizes"), *listed("    return {", offsets, "};")]
        return [*self._place(), *method("Place locate(Index index)", body)]

    def _locate_in_reduction(self) -> list[str]:
        column = "column_index" if self.by_column else "0"
        row = "start.linear_index + reduced * loops.columns" if self.by_column else "reduced"
        kept = [column] * self.is_linear
        reduced = [row] * self.is_linear
        across = {"strided0": "", "strided1": " + column_index"}
        for each in self.strided:
            along_columns = across.get(each.mode, f" + column_index * tensors.{each.name}.column")
            kept.append(f"position.along(tensors.{each.name}.kept)" + along_columns * self.by_column)
            reduced.append(f"start.{each.name} + {self._offset(each)}")
        start = [*self._position(self.layout.outer, "kept", "kept_sizes"), *listed("    return {", kept, "};")]
        locate = [
            *self._position(self.layout.inner, "reduced", "reduced_sizes"),
            *listed("    return {", reduced, "};"),
        ]
        return [
            *self._place(),
            *method(f"Place start(Index kept{', Index column_index' * self.by_column})", start),
            *method("Place locate(const Place& start, Index reduced)", locate),
        ]

    def _address(self, operand: Operand) -> str:
        if operand.mode == "linear":
            return f"tensors.{operand.name} + place.linear_index"
        return f"tensors.{operand.name}.data + place.{operand.name}"

    def _step(self, operand: Operand) -> str:
        """The stride along the innermost dimension."""
        return f"tensors.{operand.name}.{'column' if self.by_column else 'inner.at[0]'}"

    # --- what a driver does at a place -------------------------------------------------------------------------------

    def _scalars(self) -> list[str]:
        """The tensors of one element."""
        scalars = [read for read in self.reads if not read.is_full]
        loads = [f"load_once(tensors.{read.name})" for read in scalars]
        return [
            *struct("Scalars", [f"{VALUE_TYPES[read.dtype]} {read.name};" for read in scalars]),
            *method("Scalars scalars()", listed("    return {", loads, "};")),
        ]

    def _load(self) -> list[str]:
        fields, loads = [], []
        for read in self.reads:
            if not read.is_full:
                continue
            kind = SCALAR_TYPES[read.dtype]
            if read.mode == "strided0":
                fields.append(f"Repeated<{kind}> {read.name};")
                loads.append(f"load_repeated({self._address(read)})")
                continue
            fields.append(f"Pack<{kind}, Lanes> {read.name};")
            if read.mode == "stridedn":
                loads.append(f"load_apart<Lanes>({self._address(read)}, {self._step(read)})")
            else:
                loads.append(f"load_pack<Lanes>({self._address(read)})")
        return [
            *struct("Inputs", fields, "int Lanes"),
            *method("Inputs<Lanes> load(const Place& place)", listed("    return {", loads, "};"), "int Lanes"),
        ]

    def _compute(self) -> list[str]:
        fields = [f"{VALUE_TYPES[result.value.dtype]} {result.name}[Lanes];" for result in self.results if result.value]
        values = [f"inputs.{read.name}[lane]" if read.is_full else f"scalars.{read.name}" for read in self.reads]
        values += [f"outputs.{result.name}[lane]" for result in self.results]
        arguments = "const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane"
        return [
            *struct("Outputs", fields, "int Lanes"),
            *method(f"void compute(\n      {arguments})", listed("    element(", values, ");"), "int Lanes"),
        ]

    def _store(self) -> list[str]:
        stores = []
        for result in self.results:
            address, values = self._address(result), f"outputs.{result.name}"
            if not result.is_full:
                continue
            if result.mode in ("linear", "strided1"):
                stores.append(f"    store_pack<Lanes>({address}, {values});")
            else:
                stores.append(f"    store_apart<Lanes>({address}, {self._step(result)}, {values});")
        return method("void store(const Outputs<Lanes>& outputs, const Place& place)", stores, "int Lanes")

    def _sums(self) -> list[str]:
        """What a thread sums: a number, or in the column path a number for each of its columns."""
        fields, adds = [], []
        for each in self.summed:
            if self.by_column and each.role in ("all", "inner"):
                fields.append(f"{each.sum_type} {each.name}[Lanes];")
                adds.append(f"    add_columns(sums.{each.name}, outputs.{each.name});")
            else:
                fields.append(f"{each.sum_type} {each.name};")
                adds.append(f"    sums.{each.name} += pairwise<{each.sum_type}>(outputs.{each.name});")
        sums, lanes = ("Sums<Lanes>", "int Lanes") if self.by_column else ("Sums", "")
        finish = [
            *(f"    sum.template gather<{k}>(sums.{each.name});" for k, each in enumerate(self.summed)),
            "    sum.meet();",
            *(
                f"    sum.template scatter<{k}>(sums.{each.name}, tensors.{each.name});"
                for k, each in enumerate(self.summed)
            ),
        ]
        return [
            *struct("Sums", fields, lanes),
            *method(f"void add({sums}& sums, const Outputs<Lanes>& outputs)", adds, "int Lanes"),
            *method(f"void finish(const {sums}& sums, const Sum& sum)", finish, f"{lanes}, class Sum".lstrip(", ")),
        ]
