"""A program and a layout as CUDA C++.

The text holds what is particular to the operator (Element) and to the layout (Kernel). Loops, tails and sums are the
header's, include/opsmith/pointwise/cuda.h, in code that a person wrote.
"""

from __future__ import annotations

import re

import torch

from ..launch.planner import LayoutClass
from . import tuning
from .expression import Node, Program
from .text import HALF, SCALAR_TYPES, computed_in, fast_math, source_place, statements
from .tuning import COMBINE_THREADS, THREADS, least_blocks, packs_in_flight, present, unroll

OPTIONS = ("--fmad=false", "-std=c++17")
FAST_OPTIONS = ("--prec-div=false", "--prec-sqrt=false")
_FAST = "#define OPSMITH_FAST_MATH"

COMBINE = "combine_partial_sums"
VALUE_TYPES = {dtype: SCALAR_TYPES[computed_in(dtype)] for dtype in SCALAR_TYPES}


def options(text: str) -> tuple[str, ...]:
    """NVRTC's options for a text: OPTIONS, and where its functions are fast, division is too."""
    return (*OPTIONS, *FAST_OPTIONS) if _FAST in text else OPTIONS


def entry_name(program: Program, layout: LayoutClass) -> str:
    return re.sub(r"\W+", "_", f"{program.name}_{layout.path}")


def text(program: Program, layout: LayoutClass) -> str:
    """The CUDA C++ of a program in a layout."""
    return _Text(program, layout).whole()


def combine_text(result_dtype: torch.dtype, jobs: int = 1) -> str:
    """The CUDA C++ of the kernel that sums partial sums into `jobs` results of one dtype. Its parameters, for each: the
    partial sums, the result, rows, columns."""
    accumulator = _accumulator(result_dtype)
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


def _accumulator(dtype: torch.dtype) -> str:
    return "double" if dtype is torch.float64 else "float"


def _listed(opening: str, items: list[str], closing: str, separator: str = ", ") -> list[str]:
    """A list in one line, or an item a line where that is too long."""
    inside = separator.join(items)
    padding = " " if separator == " " and items else ""
    line = f"{opening}{padding}{inside}{padding}{closing}"
    if len(line) <= 120:
        return [line]
    indent = " " * (len(opening) - len(opening.lstrip()) + 4)
    ends = [separator.rstrip()] * (len(items) - 1) + [""]
    return [
        opening,
        *(f"{indent}{item}{end}" for item, end in zip(items, ends, strict=True)),
        f"{indent[:-4]}{closing}",
    ]


class _Operand:
    """A tensor of the kernel: its name in the text, its type in memory, its parameters."""

    def __init__(self, name: str, dtype: torch.dtype, mode: str, place: int, strides: int) -> None:
        self.name = name
        self.dtype = dtype
        self.type = SCALAR_TYPES[dtype]
        self.mode = mode
        self.place = place  # of its pointer among the parameters
        self.strides = strides  # and of its strides

    @property
    def is_strided(self) -> bool:
        return self.mode.startswith("strided")

    @property
    def role(self) -> str | None:
        return self.mode.removeprefix("reduced:") if self.mode.startswith("reduced:") else None

    @property
    def sum_type(self) -> str:
        return _accumulator(self.dtype)

    @property
    def is_full(self) -> bool:
        """Whether it is loaded or stored element by element."""
        return self.role is None and self.mode != "scalar"


class _Text:
    def __init__(self, program: Program, layout: LayoutClass) -> None:
        self.program = program
        self.layout = layout
        self.body = statements(present(program, layout), VALUE_TYPES)
        self._find_operands()

    def _find_operands(self) -> None:
        program, layout = self.program, self.layout
        self.scalars_at = len(program.reads) + len(program.results)
        self.loops_at = self.scalars_at + len(program.scalars)
        fixed = {"stream": 1, "segment": 4, "column": 5}[layout.path]
        any_strided = any(mode.startswith("strided") for mode in layout.modes)
        sizes = layout.outer + layout.inner if any_strided or layout.path != "stream" else 0
        next_strides = self.loops_at + fixed + sizes
        used = present(program, layout)
        names = {read.name for read in program.reads}
        self.reads: list[_Operand] = []
        self.results: list[tuple[_Operand, Node]] = []
        tensors = [(read.name, read.dtype) for read in program.reads]
        tensors += [(result.name, result.dtype) for result in program.results]
        for place, ((name, dtype), mode) in enumerate(zip(tensors, layout.modes, strict=True)):
            is_result = place >= len(program.reads)
            if is_result:
                while name in names:
                    name += "_result"
                names.add(name)
            operand = _Operand(name, dtype, mode, place, next_strides)
            if operand.is_strided:
                next_strides += sizes + (layout.path == "column")
            if mode == "absent":
                continue
            if is_result:
                self.results.append((operand, program.results[place - len(program.reads)].expression))
            elif program.reads[place] in used.reads:
                self.reads.append(operand)
        self.size_count = sizes
        self.parameter_count = next_strides
        self.operands = [*self.reads, *(operand for operand, _ in self.results)]
        self.strided = [operand for operand in self.operands if operand.is_strided]
        self.loaded = [read for read in self.reads if read.is_full]
        self.stored = [operand for operand, _ in self.results if operand.is_full]
        self.summed = [operand for operand, _ in self.results if not operand.is_full]

    def whole(self) -> str:
        layout = self.layout
        entry = entry_name(self.program, layout)
        define = [_FAST] if fast_math(self.program) else []
        bounds = f"{THREADS[layout.path]}, {least_blocks(self.program, layout)}"
        lines = [
            *self._comment(),
            *define,
            "#include <opsmith/pointwise/cuda.h>",
            "",
            "namespace opsmith {",
            "",
            *self._element(),
            "",
            *self._kernel(),
            "",
            f'extern "C" __global__ void __launch_bounds__({bounds})',
            f"{entry}(__grid_constant__ const Parameters<{self.parameter_count}> parameters) {{",
            f"  {layout.path}(Kernel(parameters));",
            "}",
            "",
            "}  // namespace opsmith",
            "",
        ]
        return "\n".join(lines)

    def _comment(self) -> list[str]:
        layout, origin = self.layout, self.program.origin
        lines = [f"// {self.program.name}"]
        if origin is not None:
            lines[0] += f", {source_place(origin)}"
            # A backslash at the end would draw the next line into the comment.
            lines += [f"//   {line.strip().rstrip(chr(92))}" for line in origin.text.splitlines()[:1]]
        bits = 64 if layout.wide else 32
        lines.append(f"// by {layout.path}, {layout.vector} elements at a time, {bits}-bit indices")
        names = [*(read.name for read in self.program.reads), *(result.name for result in self.program.results)]
        modes = (f"{name} {mode}" for name, mode in zip(names, layout.modes, strict=True))
        lines.append(f"// {', '.join(modes)}")
        return lines

    def _element(self) -> list[str]:
        """What one element computes: the same in every layout."""
        scalars = [(SCALAR_TYPES[scalar.dtype], scalar.name) for scalar in self.program.scalars]
        lines = ["// What one element computes.", "struct Element {"]
        lines += [f"  {kind} {name};" for kind, name in scalars]
        lines += [f"  {kind} {name};" for kind, name, _ in self.body.uniform]
        if scalars or self.body.uniform:
            lines.append("")
        members = [
            f"{name}(scalar<{kind}>(parameters, {self.scalars_at + index}))"
            for index, (kind, name) in enumerate(scalars)
        ]
        lines += [
            "  template <int Count>",
            "  OPSMITH_DEVICE explicit Element(const Parameters<Count>& parameters)"
            + (f" : {', '.join(members)}" if members else "")
            + " {",
            *(f"    {name} = {expression};" for _, name, expression in self.body.uniform),
            "  }",
            "",
        ]
        parameters = [f"{VALUE_TYPES[read.dtype]} {read.name}" for read in self.reads]
        parameters += [f"{VALUE_TYPES[node.dtype]}& {operand.name}" for operand, node in self.results]
        lines += _listed("  OPSMITH_DEVICE void operator()(", parameters, ") const {")
        lines += [f"    {line}" for line in self.body.lines]
        lines += [
            f"    {operand.name} = {value};"
            for (operand, _), value in zip(self.results, self.body.results, strict=True)
        ]
        return [*lines, "  }", "};"]

    def _kernel(self) -> list[str]:
        """Where the elements are: the same for every program of this many tensors."""
        layout = self.layout
        lines = [
            "// Where its elements are.",
            "struct Kernel {",
            f"  using Index = {'uint64_t' if layout.wide else 'uint32_t'};",
            f"  static constexpr int threads = {THREADS[layout.path]};",
            f"  static constexpr int vector = {layout.vector};",
            f"  static constexpr int unroll = {unroll(self.program, layout)};",
        ]
        if layout.path != "stream":
            lines += [
                f"  static constexpr int in_flight = {packs_in_flight(self.program, layout)};",
                f"  static constexpr int few_blocks = {tuning.FEW_BLOCKS};",
            ]
        lines += ["", *self._members(), "", *self._locate()]
        for method in (self._scalars, self._load, self._compute, self._store):
            lines += ["", *method()]
        if layout.path != "stream":
            lines += ["", *self._sums()]
        return [*lines, "};"]

    def _members(self) -> list[str]:
        """The tensors, and how each is found among the parameters."""
        layout = self.layout
        dimensions = f"Index, {layout.outer}, {layout.inner}"
        loops_type = f"{layout.path.capitalize()}Loops<{dimensions}>"
        if layout.path == "stream":
            loops_type = f"StreamLoops<Index, {self.size_count}>"
        strided_type = "ColumnStrided" if layout.path == "column" else "Strided"
        members = []
        parameters = []
        for operand in self.operands:
            const = "const " if operand in self.reads else ""
            found = f"pointer<{const}{operand.type}>(parameters, {operand.place})"
            if operand.is_strided:
                members.append(f"{strided_type}<{const}{operand.type}, {dimensions}> {operand.name};")
                found = f"{{parameters, {operand.place}, {operand.strides}}}"
            elif operand.mode == "linear":
                members.append(f"{const}{operand.type}* {operand.name};")
            elif operand.mode == "scalar":
                members.append(f"const {operand.type}* {operand.name};  // of one element")
            elif operand.dtype in HALF:
                members.append(f"PartialSums<{operand.type}, {operand.sum_type}> {operand.name};")
                found = f"{{pointer<void>(parameters, {operand.place}), {self._is_whole(operand.dtype)}}}"
            else:
                members.append(f"{operand.sum_type}* {operand.name};  // partial sums")
                found = f"pointer<{operand.sum_type}>(parameters, {operand.place})"
            parameters.append(found)
        return [
            "  Element element;",
            f"  {loops_type} loops;",
            "  struct {",
            *(f"    {member}" for member in members),
            "  } tensors;",
            "",
            f"  OPSMITH_DEVICE explicit Kernel(const Parameters<{self.parameter_count}>& parameters)",
            "      : element(parameters),",
            f"        loops(parameters, {self.loops_at}),",
            "        tensors{",
            *(f"            {found}," for found in parameters),
            "        } {}",
        ]

    def _is_whole(self, dtype: torch.dtype) -> str:
        """Whether the results of a dtype have one sum for each of their elements, so that nothing is to be combined:
        the launchers (launch.py, native/reduce.h) ask the same."""
        roles = {operand.role for operand in self.summed if operand.dtype is dtype}
        conditions = ["loops.block.one_chunk" if self.layout.path == "column" else "loops.chunks == 1"]
        if roles & {"inner", "none"}:
            conditions.append("loops.kept_count == 1")
        if self.layout.path == "column" and roles & {"outer", "none"}:
            conditions.append("loops.template is_one_tile<vector>()")
        return " && ".join(conditions)

    def _locate(self) -> list[str]:
        """Place: the offset of each strided operand, and the index that the linear ones share."""
        layout = self.layout
        fields = [f"Index {operand.name};" for operand in self.strided]
        inner = [f"position.along{self._innermost(operand)}(tensors.{operand.name}.inner)" for operand in self.strided]
        is_linear = any(operand.mode == "linear" for operand in self.operands)
        if is_linear:
            fields.insert(0, "Index linear_index;")
        if layout.path == "stream":
            return [
                *_listed("  struct Place {", fields, "};", " "),
                "",
                "  OPSMITH_DEVICE Place locate(Index index) const {",
                *self._position(layout.inner, "index", "sizes"),
                *_listed("    return {", ["index"] * is_linear + inner, "};"),
                "  }",
            ]
        kept = [f"position.along(tensors.{operand.name}.kept)" for operand in self.strided]
        if layout.path == "column":
            known = {"strided0": "", "strided1": " + column_index"}
            columns = [known.get(each.mode, f" + column_index * tensors.{each.name}.column") for each in self.strided]
            kept = [offset + column for offset, column in zip(kept, columns, strict=True)]
        inner = [f"start.{operand.name} + {offset}" for operand, offset in zip(self.strided, inner, strict=True)]
        if is_linear:
            by_column = layout.path == "column"
            kept.insert(0, "column_index" if by_column else "0")
            inner.insert(0, "start.linear_index + reduced * loops.columns" if by_column else "reduced")
        return [
            *_listed("  struct Place {", fields, "};", " "),
            "",
            f"  OPSMITH_DEVICE Place start(Index kept{', Index column_index' * (layout.path == 'column')}) const {{",
            *self._position(layout.outer, "kept", "kept_sizes"),
            *_listed("    return {", kept, "};"),
            "  }",
            "",
            "  OPSMITH_DEVICE Place locate(const Place& start, Index reduced) const {",
            *self._position(layout.inner, "reduced", "reduced_sizes"),
            *_listed("    return {", inner, "};"),
            "  }",
        ]

    def _position(self, dimensions: int, index: str, sizes: str) -> list[str]:
        if not self.strided:
            return []
        return [f"    const Position<{dimensions}, Index> position({index}, loops.{sizes});"]

    def _innermost(self, operand: _Operand) -> str:
        """The innermost stride where it is known, as a template's argument."""
        if self.layout.path == "column" or operand.mode == "stridedn":
            return ""
        return f"<{operand.mode[-1]}>"

    def _address(self, operand: _Operand) -> str:
        if operand.mode == "linear":
            return f"tensors.{operand.name} + place.linear_index"
        return f"tensors.{operand.name}.data + place.{operand.name}"

    def _step(self, operand: _Operand) -> str:
        """The stride along the innermost dimension."""
        return f"tensors.{operand.name}.{'column' if self.layout.path == 'column' else 'inner.at[0]'}"

    def _scalars(self) -> list[str]:
        """The tensors of one element."""
        scalars = [read for read in self.reads if not read.is_full]
        return [
            "  struct Scalars {",
            *(f"    {VALUE_TYPES[read.dtype]} {read.name};" for read in scalars),
            "  };",
            "",
            "  OPSMITH_DEVICE Scalars scalars() const {",
            *_listed("    return {", [f"load_once(tensors.{read.name})" for read in scalars], "};"),
            "  }",
        ]

    def _load(self) -> list[str]:
        fields = []
        loads = []
        for read in self.loaded:
            if read.mode == "strided0":
                fields.append(f"Repeated<{read.type}> {read.name};")
                loads.append(f"load_repeated({self._address(read)})")
                continue
            fields.append(f"Pack<{read.type}, Lanes> {read.name};")
            if read.mode == "stridedn":
                loads.append(f"load_apart<Lanes>({self._address(read)}, {self._step(read)})")
            else:
                loads.append(f"load_pack<Lanes>({self._address(read)})")
        return [
            "  template <int Lanes>",
            "  struct Inputs {",
            *(f"    {field}" for field in fields),
            "  };",
            "",
            "  template <int Lanes>",
            "  OPSMITH_DEVICE Inputs<Lanes> load(const Place& place) const {",
            *_listed("    return {", loads, "};"),
            "  }",
        ]

    def _compute(self) -> list[str]:
        fields = [f"{VALUE_TYPES[node.dtype]} {operand.name}[Lanes];" for operand, node in self.results]
        values = [f"inputs.{read.name}[lane]" if read.is_full else f"scalars.{read.name}" for read in self.reads]
        values += [f"outputs.{operand.name}[lane]" for operand, _ in self.results]
        return [
            "  template <int Lanes>",
            "  struct Outputs {",
            *(f"    {field}" for field in fields),
            "  };",
            "",
            "  template <int Lanes>",
            "  OPSMITH_DEVICE void compute(",
            "      const Scalars& scalars, const Inputs<Lanes>& inputs, Outputs<Lanes>& outputs, int lane) const {",
            *_listed("    element(", values, ");"),
            "  }",
        ]

    def _store(self) -> list[str]:
        stores = []
        for operand in self.stored:
            if operand.mode in ("linear", "strided1"):
                stores.append(f"store_pack<Lanes>({self._address(operand)}, outputs.{operand.name});")
            else:
                stores.append(
                    f"store_apart<Lanes>({self._address(operand)}, {self._step(operand)}, outputs.{operand.name});"
                )
        return [
            "  template <int Lanes>",
            "  OPSMITH_DEVICE void store(const Outputs<Lanes>& outputs, const Place& place) const {",
            *(f"    {store}" for store in stores),
            "  }",
        ]

    def _sums(self) -> list[str]:
        """What a thread sums: a number, or in the column path a number for each of its columns."""
        by_column = self.layout.path == "column"
        fields = []
        adds = []
        for operand in self.summed:
            kind = operand.sum_type
            if by_column and operand.role in ("all", "inner"):
                fields.append(f"{kind} {operand.name}[Lanes];")
                adds.append(f"add_columns(sums.{operand.name}, outputs.{operand.name});")
            else:
                fields.append(f"{kind} {operand.name};")
                adds.append(f"sums.{operand.name} += pairwise<{kind}>(outputs.{operand.name});")
        lanes, sums = (["  template <int Lanes>"], "Sums<Lanes>") if by_column else ([], "Sums")
        return [
            *lanes,
            "  struct Sums {",
            *(f"    {field}" for field in fields),
            "  };",
            "",
            "  template <int Lanes>",
            f"  OPSMITH_DEVICE void add({sums}& sums, const Outputs<Lanes>& outputs) const {{",
            *(f"    {add}" for add in adds),
            "  }",
            "",
            f"  template <{'int Lanes, ' * by_column}class Sum>",
            f"  OPSMITH_DEVICE void finish(const {sums}& sums, const Sum& sum) const {{",
            *(f"    sum.template gather<{k}>(sums.{each.name});" for k, each in enumerate(self.summed)),
            "    sum.meet();",
            *(
                f"    sum.template scatter<{k}>(sums.{each.name}, tensors.{each.name});"
                for k, each in enumerate(self.summed)
            ),
            "  }",
        ]
