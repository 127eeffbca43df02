"""A row program as C++ for the CPU: a struct whose passes go through a row one after the other.

The drivers are in include/opsmith/rows/cpu.h. A pass is a struct like a kernel of pointwise/cpu.h, which handles
vectors, incomplete vectors at the end of a row, and strides.
"""

from __future__ import annotations

import torch

from ...launch.planner import LayoutClass
from .. import tuning
from ..emit_cpp import HELD, Operand, converted, entry, entry_name, lanes, preamble, struct_name
from ..expression import Column, Node, Program, Scalar, postorder, varying
from ..text import SCALAR_TYPES, Writer, computed_in, fast_math, result_names, source_place
from .passes import Pass, Pick, schedule

_EXACT = {"row_sum": "add_exactly", "row_max": "raise_to", "row_min": "lower_to",
          "row_any": "raise_to", "row_all": "lower_to"}  # fmt: skip
_FOLDED = {"row_sum": "sum_of_lanes", "row_max": "most_of_lanes",
           "row_min": "least_of_lanes", "row_any": "most_of_lanes", "row_all": "least_of_lanes"}  # fmt: skip


_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal",
           "equal": "equal", "not_equal": "not_equal"}  # fmt: skip
"""Comparisons with their arguments exchanged."""


def _has_column(node: Node) -> bool:
    return any(isinstance(arg, Column) for arg in node.args)


def text(program: Program, layout: LayoutClass) -> str:
    return _RowKernel(program, layout).text()


def _is_float_sum(node: Node) -> bool:
    """Whether a reduction is added up in blocks."""
    assert node.function is not None
    return node.function.name == "row_sum" and node.dtype.is_floating_point


def _start(node: Node) -> str:
    """The initial value of a reduction, in every lane."""
    assert node.function is not None
    name, kind = node.function.name, SCALAR_TYPES[computed_in(node.dtype)]
    if node.dtype is torch.bool:
        return f"broadcast({'true' if name == 'row_all' else 'false'})"
    number = {"row_max": f"lowest<{kind}>()", "row_min": f"highest<{kind}>()"}.get(name, f"{kind}(0)")
    return f"broadcast({number})"


class _RowKernel:
    def __init__(self, program: Program, layout: LayoutClass) -> None:
        count = len(program.reads)
        self.layout = layout
        self.plan = schedule(program, layout.modes[count:], tuning.cost_of)
        self.program = self.plan.program
        self.struct = struct_name(program)
        self.writer = Writer(self.program, HELD, "broadcast({})")
        self.names = result_names(self.program)
        self.reads = [
            Operand(read.name, read.dtype, mode, place)
            for place, (read, mode) in enumerate(zip(program.reads, layout.modes, strict=False))
        ]
        self.by_slot = {read.slot: operand for read, operand in zip(program.reads, self.reads, strict=True)}
        self.results = [
            Operand(name, result.dtype, mode, place, result.expression)
            for place, (name, result, mode) in enumerate(
                zip(self.names, self.program.results, layout.modes[count:], strict=True), count
            )
        ]
        strided = [each.place for each in (*self.reads, *self.results)
                   if each.mode.startswith("strided") or each.mode == "row"]  # fmt: skip
        self.strided = {place: number for number, place in enumerate(strided)}
        self.columns = self.plan.having("column")
        self.segments = self.plan.having("segment")
        self.totals = self.plan.having("total")
        self.carried = self.plan.carried
        self.per_row: list[tuple[str, str]] = []  # (type, name) of what is known of a row

    # --- the whole ---------------------------------------------------------------------------------------------------

    def text(self) -> str:
        constants = self._constants_of_arguments()
        passes = self._passes()
        numbers = {
            "INNER": self.layout.inner, "OUTER": self.layout.outer, "STRIDED": len(self.strided),
            "COLUMNS": len(self.columns), "SEGMENTS": len(self.segments), "TOTALS": len(self.totals),
            "BUFFERS": len(self.carried),
        }  # fmt: skip
        body = [
            f"  static constexpr int {', '.join(f'{name} = {number}' for name, number in numbers.items())};",
            "",
            f"  using {self.struct}Tensors::{self.struct}Tensors;",
            "",
            *self._memory(),
            "  // What is known of a row.",
            "  struct Known {",
            *(f"    {kind} {name};" for kind, name in self.per_row),
            "  };",
            "",
            *passes,
        ]
        parts = [
            self._title(),
            preamble(lanes(self._vector_dtypes()), fast_math(self.program), "rows/cpu.h"),
            ["", "namespace opsmith {", "namespace {", "", f"struct {self.struct}Tensors {{"],
            [*self._members(constants), *self._constructor(constants)[:-1], "};", ""],
            [f"struct {self.struct} : {self.struct}Tensors {{"],
            body,
            ["};", "", "}  // namespace", "}  // namespace opsmith", ""],
            entry(
                entry_name(self.program),
                f"opsmith::{self.struct} kernel(static_cast<const int64_t*>(parameters));",
                "opsmith::rows(begin, end, kernel);",
            ),
            [""],
        ]
        return "\n".join(line for part in parts for line in part)

    def _title(self) -> list[str]:
        title, origin = f"// {self.program.name}: rows, in {len(self.plan.passes)} passes.", self.program.origin
        if origin is None:
            return [title]
        return [f"{title} From {source_place(origin)}:", f"//   {' '.join(origin.text.split())}".rstrip("\\ ")]

    def _vector_dtypes(self) -> list[torch.dtype]:
        roots = self.program.roots()
        assert self.program.rows is not None
        dtypes = [node.dtype for node in varying(roots, self.program.rows) if node.function is not None]
        dtypes += [node.dtype for node in postorder(roots) if node.function is not None and node.function.reduces]
        dtypes += [each.dtype for each in (*self.reads, *self.results)]
        # Indices are few; vectors as wide as their eight bytes would be short for everything else.
        return [dtype for dtype in dtypes if dtype is not torch.int64] or dtypes

    # --- members -----------------------------------------------------------------------------------------------------

    def _constants_of_arguments(self) -> list[tuple[str, str, str]]:
        for node in postorder(self.program.roots()):
            if node.function is None and node not in self.plan.row_inputs:
                self.writer.leaf(node)
        constants = [self.writer.number(node) for node in self.plan.constants]
        for node in postorder(self.program.roots()):
            if isinstance(node, Scalar) or node in self.plan.constants:
                self.writer.given(node, f"kernel.{self.writer.name(node)}", uniform=True)
        return constants

    def _members(self, constants: list[tuple[str, str, str]]) -> list[str]:
        lines = [f"  const {read.type}* {read.name};" for read in self.reads]
        lines += [f"  {result.type}* {result.name};" for result in self.results if result.mode != "absent"]
        lines += [f"  {SCALAR_TYPES[scalar.dtype]} {scalar.name};" for scalar in self.program.scalars]
        lines += [f"  {kind} {name};" for kind, name, _ in constants]
        lines += [f"  {SCALAR_TYPES[computed_in(node.dtype)]}* {self._buffer(node)};" for node in self.carried]
        lines += [f"  ColumnSums<{self.results[index].type}> {self._column(index)};" for index in self.columns]
        lines += [f"  SegmentSums<{self.results[index].type}> {self._segment(index)};" for index in self.segments]
        lines += [f"  double {self._total(index)};" for index in self.totals]
        return [*lines, "  const int64_t* loops;", ""]

    def _constructor(self, constants: list[tuple[str, str, str]]) -> list[str]:
        lines = [f"  explicit {self.struct}Tensors(const int64_t* parameters) {{"]
        for read in self.reads:
            lines.append(f"    {read.name} = pointer<const {read.type}>(parameters[{read.place}]);")
        for result in self.results:
            if result.mode != "absent":
                lines.append(f"    {result.name} = pointer<{result.type}>(parameters[{result.place}]);")
        first = len(self.reads) + len(self.results)
        for position, scalar in enumerate(self.program.scalars, first):
            value = f"parameters[{position}]"
            value = {torch.float64: f"as_double({value})", torch.bool: f"{value} != 0"}.get(scalar.dtype, value)
            lines.append(f"    {scalar.name} = {value};")
        lines += [f"    {name} = {expression};" for _, name, expression in constants]
        return [*lines, f"    loops = parameters + {first + len(self.program.scalars)};", "  }", ""]

    def _buffer(self, node: Node) -> str:
        return f"carried_{self.carried.index(node) + 1}"

    def _column(self, index: int) -> str:
        return f"columns_{self.columns.index(index) + 1}"

    def _segment(self, index: int) -> str:
        return f"segments_{self.segments.index(index) + 1}"

    def _total(self, index: int) -> str:
        return f"total_{self.totals.index(index) + 1}"

    def _memory(self) -> list[str]:
        """The memory of a task, and its sums over rows."""
        sums = [("Column", self._column(index), self.results[index]) for index in self.columns]
        sums += [("Segment", self._segment(index), self.results[index]) for index in self.segments]
        sizes = ["length * sizeof(double)" for _ in self.carried]
        sizes += [f"{kind}Sums<{result.type}>::bytes(length, segment)" for kind, _, result in sums]
        lines = ["  static int64_t bytes(int64_t length, int64_t segment) {",
                 f"    return {' + '.join(sizes) or '0'};", "    (void)length, (void)segment;", "  }"]  # fmt: skip
        begin = [f"    {self._total(index)} = 0;" for index in self.totals]
        for node in self.carried:
            kind = SCALAR_TYPES[computed_in(node.dtype)]
            begin += [f"    {self._buffer(node)} = reinterpret_cast<{kind}*>(memory);",
                      "    memory += length * sizeof(double);"]  # fmt: skip
        for _, name, _ in sums:
            begin += [f"    {name}.begin(memory, length, segment);",
                      f"    memory += {name}.bytes(length, segment);"]  # fmt: skip
        lines += ["  void begin(char* memory, int64_t length, int64_t segment) {", *begin,
                  "    (void)memory, (void)length, (void)segment;", "  }"]  # fmt: skip
        if sums or self.totals:
            lines += ["  void end(int64_t task) {"]
            lines += [f"    {name}.end({result.name} + task * {name}.count);" for _, name, result in sums]
            lines += [f"    {self.results[i].name}[task] = {self._total(i)};" for i in self.totals]
            lines += ["  }"]
        return [*lines, ""]

    # --- passes ------------------------------------------------------------------------------------------------------

    def _passes(self) -> list[str]:
        structs: list[str] = []
        row = [
            "  template <typename Loops>",
            "  OPSMITH_INLINE void operator()(const Loops& loops, const int64_t* offset, int64_t number) {",
            f"    const {self.struct}Tensors& kernel = *this;",
            "    Known row{};",
        ]
        for node in self.plan.row_inputs:
            row.append(self._load_once(node))
        row += self._between(0)
        row += self._checks()
        for number, each in enumerate(self.plan.passes):
            if each.nodes or each.loads or each.reductions or each.elements or each.columns:
                structs += self._struct(number, each)
                row += self._run(number, each)
            row += self._between(number + 1)
        for index in self.plan.having("row"):
            result = self.results[index]
            value = self._number_as(self.program.results[index].expression, computed_in(result.dtype))
            row.append(f"    scatter({result.name} + offset[{self.strided[result.place]}], 1, "
                       f"[](int) {{ return 0; }}, broadcast({value}));")  # fmt: skip
        for index in self.totals:
            row.append(f"    {self._total(index)} += double({self._known(self.program.results[index].expression)});")
        if self.columns:
            ends = " ".join(f"{self._column(index)}.end_block();" for index in self.columns)
            row.append(f"    if ((number + 1) % 16 == 0) {{ {ends} }}")
        return [*structs, *row, "    (void)kernel, (void)offset, (void)number, (void)loops, (void)row;", "  }"]

    def _number_as(self, node: Node, dtype: torch.dtype) -> str:
        value = self._known(node)
        held = computed_in(node.dtype)
        return value if held == dtype else f"cast<{SCALAR_TYPES[dtype]}>({value})"

    def _known(self, node: Node) -> str:
        return self.writer.name(node)

    def _enter(self, node: Node, base: str) -> str:
        """A value of the row under a new name; returns that name."""
        name = self.writer.fresh(base)
        self.per_row.append((SCALAR_TYPES[computed_in(node.dtype)], name))
        self.writer.given(node, f"row.{name}", uniform=True)
        return name

    def _load_once(self, node: Node) -> str:
        operand = self.by_slot[node.slot]  # type: ignore[attr-defined]
        at = f" + offset[{self.strided[operand.place]}]" if operand.place in self.strided else ""
        name = self._enter(node, operand.name)
        if node.dtype is torch.bool:
            return f"    row.{name} = any(load_one({operand.name}{at}));"
        return f"    row.{name} = load_one({operand.name}{at})[0];"

    def _between(self, number: int) -> list[str]:
        lines = []
        for node in self.plan.between[number]:
            if isinstance(node, Pick):
                lines += self._pick(node)
                continue
            kind, name, expression = self.writer.number(node)
            self.per_row.append((kind, name))
            self.writer.given(node, f"row.{name}", uniform=True)
            lines.append(f"    row.{name} = {expression};")
        return lines

    def _pick(self, pick: Pick) -> list[str]:
        """The element at an index, computed as numbers."""
        index = self._known(pick.index)
        lines = []
        for load in pick.loads:
            operand = self.by_slot[load.slot]
            name = self._enter(load, operand.name)
            first, stride = operand.name, "0"
            if operand.place in self.strided:
                number = self.strided[operand.place]
                first += f" + offset[{number}]"
                stride = f"loops.strides[{number} * Loops::PITCH + OUTER]"
            lines.append(f"    row.{name} = element_at({first}, {index}, {stride}, loops.length);")
        for node in (*pick.nodes, pick.node):
            if node is not pick.node:
                kind, name, expression = self.writer.number(node)
            else:
                kind, name = SCALAR_TYPES[computed_in(node.dtype)], self.writer.fresh("row_at")
                expression = self._known(pick.element)
            self.per_row.append((kind, name))
            self.writer.given(node, f"row.{name}", uniform=True)
            lines.append(f"    row.{name} = {expression};")
        return lines

    def _checks(self) -> list[str]:
        if not self.program.checks:
            return []
        condition = " && ".join(self._known(node) for node in self.program.checks)
        return [f"    if (!({condition})) refuse(this->loops);"]

    def _struct(self, number: int, each: Pass) -> list[str]:
        """A pass as a kernel for the drivers of pointwise/cpu.h."""
        sums = [node for node in each.reductions if _is_float_sum(node)]
        named = {node: f"{node.function.name}_{place}" for place, node in enumerate(each.reductions)}  # type: ignore[union-attr]
        lines = [
            f"  struct Pass{number} {{",
            f"    static constexpr int STRIDED = {len(self.strided)}, SUMS = {max(1, len(sums))};",
            # Copies, which loops can keep in registers.
            f"    const {self.struct}Tensors kernel;",
            "    const Known row;",
            "    struct Sums {",
        ]
        for node in each.reductions:
            held = HELD[computed_in(node.dtype)]
            lines.append(f"      {held} {named[node]} = {'{}' if _is_float_sum(node) else _start(node)};")
        lines += [
            "    };",
            "    template <typename Visit>",
            "    OPSMITH_INLINE void each_sum(Sums& sums, Visit visit) const {",
            *(
                f"      visit({place}, sums.{named[node]}, static_cast<{SCALAR_TYPES[node.dtype]}*>(nullptr), "
                "PerTask{});"
                for place, node in enumerate(sums)
            ),
            "      (void)sums, (void)visit;",
            "    }",
            "    template <typename Place>",
            "    OPSMITH_INLINE void operator()(const Place& at, Sums& sums) const {",
        ]  # fmt: skip
        lines += [f"      {line}" for line in self._elements(each, named)]
        return [*lines, "      (void)at, (void)sums;", "    }", "  };"]

    def _elements(self, each: Pass, named: dict[Node, str]) -> list[str]:
        lines = []
        for load in each.loads:
            operand = self.by_slot[load.slot]
            loaded = f"load_one(kernel.{operand.name})" if operand.mode == "scalar" else self._load(operand)
            lines.append(f"const {operand.held} {operand.name} = {loaded};")
            self.writer.given(load, operand.name, uniform=False)
        if each.numbers and self._uses_numbers(each):
            lines.append("const Vec<int64_t> column = numbers(at);")
        for node in each.carried_in:
            name = self.writer.fresh("carried")
            lines.append(f"const {HELD[computed_in(node.dtype)]} {name} = carried(at, kernel.{self._buffer(node)});")
            self.writer.given(node, name, uniform=False)
        lines += [self.writer.line(node, self._compared(node)) for node in each.nodes]
        lines += [self._reduce(node, named[node]) for node in each.reductions]
        for node in each.carried_out:
            lines.append(f"carry(at, kernel.{self._buffer(node)}, {self.writer.element(node)});")
        for index in each.elements:
            result, expression = self.results[index], self.program.results[index].expression
            value = converted(self.writer.element(expression), expression.dtype, computed_in(result.dtype))
            manner = {"strided1": "contiguous", "stridedn": "strided"}[result.mode]
            lines.append(f"store_{manner}(at, {self.strided[result.place]}, kernel.{result.name}, {value});")
        for index in each.columns:
            value = self.writer.element(self.program.results[index].expression)
            if index in self.columns:
                lines.append(f"add_to_column(at, kernel.{self._column(index)}, {value});")
            else:
                lines.append(f"add_to_segment(at, kernel.{self._segment(index)}, {value});")
        return lines

    def _uses_numbers(self, each: Pass) -> bool:
        """Whether the elements' numbers are needed as a vector."""
        if any(_has_column(node) and self._compared(node) is None for node in each.nodes):
            return True
        roots = [self.program.results[index].expression for index in each.elements]
        return any(isinstance(root, Column) for root in roots) or any(_has_column(node) for node in each.reductions)

    def _compared(self, node: Node) -> str | None:
        """A comparison of the column's number with a value of the row, which needs no vector of int64."""
        if node.function is None or node.function.name not in _TURNED or not _has_column(node):
            return None
        first, second = node.args
        other = second if isinstance(first, Column) else first
        if not self.writer.is_uniform(other):
            return None
        name = node.function.name if isinstance(first, Column) else _TURNED[node.function.name]
        return f"numbers_{name}(at, {self.writer.name(other)})"

    def _load(self, operand: Operand) -> str:
        manner = {"strided0": "repeated", "strided1": "contiguous", "stridedn": "strided"}[operand.mode]
        return f"load_{manner}(at, {self.strided[operand.place]}, kernel.{operand.name})"

    def _reduce(self, node: Node, name: str) -> str:
        assert node.function is not None
        value = self.writer.element(node.args[0])
        if _is_float_sum(node):
            return f"add(at, sums.{name}, {value});"
        return f"{_EXACT[node.function.name]}(at, sums.{name}, {value});"

    def _run(self, number: int, each: Pass) -> list[str]:
        lines = [
            f"    const Pass{number} pass{number}{{*this, row}};",
            f"    PassSums<Pass{number}> task{number};",
            f"    pass_over(loops, offset, pass{number}, task{number});",
        ]
        place = 0
        for position, node in enumerate(each.reductions):
            assert node.function is not None
            member = f"{node.function.name}_{position}"
            name = self._enter(node, node.function.name)
            if _is_float_sum(node):
                lines.append(f"    row.{name} = task{number}.sum({place}, task{number}.sums.{member});")
                place += 1
            else:
                lines.append(f"    row.{name} = {_FOLDED[node.function.name]}(task{number}.sums.{member});")
        return lines
