"""A row program as CUDA C++: a kernel whose `compute` goes through the elements of a row in several passes.

Which threads share a row, where its elements are held and how it is reduced is in include/opsmith/rows/cuda.h; the text
here is what is specific to the program and to its layout.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...launch.planner import LayoutClass
from .. import emit_cuda
from ..emit_cuda import FAST, ROWS, VALUE_TYPES, Operand, entry, listed, method, struct
from ..expression import Column, Input, Node, Program, postorder
from ..text import HALF, SCALAR_TYPES, Writer, computed_in, fast_math, result_names
from ..tuning import cost_of
from .bounds import never_positive
from .conditions import Condition, conditions
from .passes import Pass, Pick, schedule

_OPERATIONS = {"row_sum": "Sum", "row_max": "Highest", "row_min": "Lowest", "row_any": "Highest", "row_all": "Lowest"}


def text(program: Program, layout: LayoutClass) -> str:
    return _Text(program, layout).whole()


def _start(node: Node) -> str:
    """The initial value of a reduction."""
    assert node.function is not None
    name, kind = node.function.name, SCALAR_TYPES[computed_in(node.dtype)]
    if node.dtype is torch.bool:
        return "true" if name == "row_all" else "false"
    return {"row_max": f"lowest<{kind}>()", "row_min": f"highest<{kind}>()"}.get(name, f"{kind}(0)")


class _Text:
    def __init__(self, program: Program, layout: LayoutClass) -> None:
        count = len(program.reads)
        self.layout = layout
        # A row that is not held has no place for other values of its elements either.
        self.plan = schedule(program, layout.modes[count:], cost_of, on_gpu=True, carries=layout.held > 0)
        self.program = self.plan.program
        self.is_fast = fast_math(program)
        self.never_positive = never_positive(self.program)
        self.conditions = conditions(self.program, set(self.plan.constants))
        self.writer = Writer(self.program, VALUE_TYPES)
        self._find_operands(program, count)
        self.columns, self.totals = self.plan.having("column"), self.plan.having("total")
        self.segments = self.plan.having("segment")
        self.constants = self._constants()

    def _find_operands(self, program: Program, reads: int) -> None:
        """Each operand's place among the parameters: pointers, scalars, loops, strides."""
        layout = self.layout
        tensors: list[tuple[str, torch.dtype, Node | None]] = [(read.name, read.dtype, None) for read in program.reads]
        results = zip(result_names(self.program), self.program.results, strict=True)
        tensors += [(name, result.dtype, result.expression) for name, result in results]
        self.scalars_at = len(tensors)
        self.loops_at = self.scalars_at + len(program.scalars)
        strides = self.loops_at + 6 + layout.outer + layout.inner
        self.operands: list[Operand] = []
        for place, ((name, dtype, value), mode) in enumerate(zip(tensors, layout.modes, strict=True)):
            self.operands.append(Operand(name, dtype, mode, place, strides, value))
            if self._has_strides(self.operands[-1]):
                strides += layout.outer + layout.inner
        self.parameter_count = strides
        self.reads, self.results = self.operands[:reads], self.operands[reads:]
        self.by_slot = {read.slot: operand for read, operand in zip(program.reads, self.reads, strict=True)}
        self.strided = [operand for operand in self.operands if self._has_strides(operand)]
        in_rows = {node.slot for node in self.plan.row_inputs}
        self.loaded = [
            operand for slot, operand in self.by_slot.items() if operand.is_strided and slot not in in_rows
        ]  # by element

    @staticmethod
    def _has_strides(operand: Operand) -> bool:
        return operand.is_strided or operand.mode == "row"

    def _bounds(self) -> str:
        """The most threads of a block, and the blocks that a multiprocessor must be able to run at once."""
        threads = 32 * self.layout.warps
        return f"{threads}, {self.layout.resident}" if self.layout.resident else f"{threads}"

    # --- the whole ---------------------------------------------------------------------------------------------------

    def whole(self) -> str:
        layout = self.layout
        cluster = f" __cluster_dims__({layout.cluster}, 1, 1)" if layout.cluster > 1 else ""
        attributes = f"{cluster} __launch_bounds__({self._bounds()})"
        compute = self._compute()  # names values that members hold
        lines = [
            *self._comment(),
            *([FAST] if self.is_fast else []),
            ROWS,
            "",
            "namespace opsmith {",
            "",
            "struct Kernel {",
            f"  using Index = {'uint64_t' if layout.wide else 'uint32_t'};",
            f"  using Loops = RowLoops<Index, {layout.outer}, {layout.inner}>;",
            *(f"  static constexpr int {name} = {number};" for name, number in self._numbers().items()),
            *(f"  static constexpr bool {name} = {str(value).lower()};" for name, value in self._flags().items()),
            "",
            *self._members(),
            *self._locate(),
            *self._load(),
            *self._sums(),
            *compute,
            "};",
            "",
            *entry(self.program, layout, self.parameter_count, attributes, "rows"),
        ]
        return "\n".join(lines)

    def _comment(self) -> list[str]:
        layout = self.layout
        teams = {0: "lanes of a warp", 1: "a block"}.get(layout.cluster, f"a cluster of {layout.cluster} blocks")
        held = f"{layout.held} packs held by a thread" if layout.held else "read again by every pass"
        how = f"rows, in {len(self.plan.passes)} passes, by {teams}, {held}"
        return emit_cuda.comment(self.program, layout, how)

    def _numbers(self) -> dict[str, int]:
        layout = self.layout
        return {
            "vector": layout.vector, "held": layout.held, "cluster": layout.cluster, "threads": 32 * layout.warps,
        }  # fmt: skip

    def _flags(self) -> dict[str, bool]:
        has_sums = bool(self.columns or self.segments or self.totals)
        return {"has_sums": has_sums, "ahead": self.layout.ahead}

    # --- members -----------------------------------------------------------------------------------------------------

    def _constants(self) -> list[tuple[str, str, str]]:
        """Numbers that depend on arguments alone."""
        for node in postorder(self.program.roots()):
            if node.function is None and node not in self.plan.row_inputs and not isinstance(node, Column):
                self.writer.leaf(node)
        found = [self.writer.number(node) for node in self.plan.constants]
        for node in postorder(self.program.roots()):
            if isinstance(node, Column):
                self.writer.given(node, "column", uniform=False)
        return found

    def _members(self) -> list[str]:
        scalars = [(SCALAR_TYPES[scalar.dtype], scalar.name) for scalar in self.program.scalars]
        initial = [
            f"{name}(scalar<{kind}>(parameters, {self.scalars_at + index}))"
            for index, (kind, name) in enumerate(scalars)
        ]
        tensors = [self._member(operand) for operand in self.operands]
        return [
            *(f"  {kind} {name};" for kind, name in scalars),
            *(f"  {kind} {name};" for kind, name, _ in self.constants),
            "  Loops loops;",
            "  struct {",
            *(f"    {declared}" for declared, _ in tensors),
            "  } tensors;",
            "",
            f"  OPSMITH_DEVICE explicit Kernel(const Parameters<{self.parameter_count}>& parameters)",
            "      : " + "".join(f"{each},\n        " for each in initial) + f"loops(parameters, {self.loops_at}),",
            "        tensors{",
            *(f"            {value}," for _, value in tensors),
            "        } {",
            *(f"    {name} = {expression};" for _, name, expression in self.constants),
            "  }",
            "",
        ]

    def _member(self, operand: Operand) -> tuple[str, str]:
        """(declaration, initial value) of an operand."""
        name, pointer = operand.name, f"pointer<{operand.type}>(parameters, {operand.place})"
        if self._has_strides(operand):
            kind = f"Strided<{operand.type}, Index, {self.layout.outer}, {self.layout.inner}>"
            return f"{kind} {name};", f"{{parameters, {operand.place}, {operand.strides}}}"
        if operand.mode in ("scalar", "shared"):
            what = "of one element" if operand.mode == "scalar" else "the same for every row"
            return f"{operand.type}* {name};  // {what}", pointer
        if operand.dtype in HALF and operand.mode != "reduced:segments":
            value = f"{{pointer<void>(parameters, {operand.place}), loops.direct != 0}}"
            return f"PartialSums<{operand.type}, {operand.sum_type}> {name};", value
        partial = f"pointer<{operand.sum_type}>(parameters, {operand.place})"
        return f"{operand.sum_type}* {name};  // partial sums", partial

    # --- places and loads --------------------------------------------------------------------------------------------

    def _locate(self) -> list[str]:
        layout = self.layout
        known = {"strided0": "<0>", "strided1": "<1>"}
        kept = [f"position.along(tensors.{each.name}.kept)" for each in self.strided]
        along = [
            f"start.{each.name} + position.along{known.get(each.mode, '')}(tensors.{each.name}.inner)"
            if each.mode != "row"
            else f"start.{each.name}"
            for each in self.strided
        ]
        at_row = f"    const Position<{layout.outer}, Index> position(row, loops.kept_sizes);"
        at_element = f"    const Position<{layout.inner}, Index> position(index, loops.reduced_sizes);"
        return [
            *listed("  struct Place {", [f"Index {each.name};" for each in self.strided], "};", " "),
            "",
            *method("Place start(Index row)", [at_row, *listed("    return {", kept, "};")]),
            *method(
                "Place locate(const Place& start, Index index)", [at_element, *listed("    return {", along, "};")]
            ),
        ]

    @staticmethod
    def _address(operand: Operand, place: str = "place") -> str:
        return f"tensors.{operand.name}.data + {place}.{operand.name}"

    def _load(self) -> list[str]:
        fields, loads = [], []
        for read in self.loaded:
            kind = SCALAR_TYPES[read.dtype]
            if read.mode == "strided0":
                fields.append(f"Repeated<{kind}> {read.name};")
                loads.append(f"load_repeated({self._address(read)})")
                continue
            fields.append(f"Pack<{kind}, Lanes> {read.name};")
            step = f", tensors.{read.name}.inner.at[0]" if read.mode == "stridedn" else ""
            loads.append(f"load_{'apart' if step else 'pack'}<Lanes>({self._address(read)}{step})")
        shared = [read for read in self.reads if read.mode == "shared"]
        packs = [f"Pack<{SCALAR_TYPES[read.dtype]}, Lanes> {read.name};" for read in shared]
        loads_of_shared = [f"load_pack<Lanes>(tensors.{read.name} + column)" for read in shared]
        return [
            *struct("Inputs", fields, "int Lanes"),
            *method("Inputs<Lanes> load(const Place& place)", listed("    return {", loads, "};"), "int Lanes"),
            *struct("Shared", packs, "int Lanes"),
            *method(
                "Shared<Lanes> load_shared(Index column)",
                [*listed("    return {", loads_of_shared, "};"), *(["    (void)column;"] if not shared else [])],
                "int Lanes",
            ),
        ]

    # --- sums over rows ----------------------------------------------------------------------------------------------

    def _sums(self) -> list[str]:
        """The sums over rows that a team computes."""
        slots = self.layout.held * self.layout.vector
        fields, initial, following, finish = [], [], [], []
        for index in self.columns:
            each = self.results[index]
            partial = f"{each.sum_type}*"
            if each.dtype in HALF:
                partial = f"PartialSums<{each.type}, {each.sum_type}>"
            fields.append(f"ColumnSums<{each.sum_type}, {slots}, {partial}> {each.name};")
            initial.append(f"{each.name}(kernel.tensors.{each.name}, int64_t(share.index) * kernel.loops.length)")
            following.append(f"{each.name}.next_row();")
            finish.append(f"    put_columns(*this, team, share, sums.{each.name}, tensors.{each.name});")
        for index in self.segments:
            each = self.results[index]
            fields.append(f"SegmentSums<{each.sum_type}, {self.layout.held}, {self.layout.vector}> {each.name};")
            finish.append(f"    put_segments(*this, team, share, sums.{each.name}, tensors.{each.name});")
        for number, index in enumerate(self.totals):
            each = self.results[index]
            fields.append(f"{each.sum_type} {each.name} = {each.sum_type}(0);")
            finish.append(f"    put_total<{number}>(team, share, sums.{each.name}, tensors.{each.name});")
        return [
            *struct(
                "Sums",
                [
                    *fields,
                    "OPSMITH_DEVICE Sums(const Kernel& kernel, const Share<Kernel>& share)"
                    + (f" : {', '.join(initial)}" if initial else "")
                    + " { (void)kernel, (void)share; }",
                    f"OPSMITH_DEVICE void next_row() {{{''.join(f' {each}' for each in following)} }}",
                ],
            ),
            *method(
                "void finish(const Team& team, const Share<Kernel>& share, const Sums& sums)",
                [*finish, "    (void)team, (void)share, (void)sums;"],
                "class Team",
            ),
        ]

    # --- passes ------------------------------------------------------------------------------------------------------

    def _compute(self) -> list[str]:
        lines: list[str] = []
        for node in self.plan.row_inputs:
            lines += self._load_of_row(node)
        for slot, read in self.by_slot.items():
            if read.mode == "scalar" and slot not in {node.slot for node in self.plan.row_inputs}:
                name = f"{read.name}_everywhere"
                lines.append(f"    const {VALUE_TYPES[read.dtype]} {name} = load_once(tensors.{read.name});")
        self.carried = {node: self.writer.fresh("carried") for node in self.plan.carried}
        self.divisors: dict[Node, str] = {}
        for carried, name in self.carried.items():
            lines.append(f"    {VALUE_TYPES[computed_in(carried.dtype)]} {name}[held * vector];")
        lines += self._between(0)
        lines += [f"    if (!({self.writer.name(check)})) refuse_index();" for check in self.program.checks]
        for number, each in enumerate(self.plan.passes):
            if each.nodes or each.loads or each.reductions or each.elements or each.columns:
                lines += self._pass(number, each)
            lines += self._between(number + 1)
        if rows := self.plan.having("row"):
            lines.append("    if (mine && team.leads()) {")
            for index in rows:
                result, value = self.results[index], self._value(self.program.results[index].expression, index)
                lines.append(f"      const {VALUE_TYPES[result.dtype]} {result.name}[1] = {{{value}}};")
                lines.append(f"      store_pack<1>({self._address(result, 'start')}, {result.name});")
            lines.append("    }")
        for index in self.totals:
            result = self.results[index]
            value = self.writer.name(self.program.results[index].expression)
            lines.append(f"    if (mine && team.leads()) sums.{result.name} += {value};")
        arguments = "Team& team, const Elements& elements, const Place& start, bool mine, Sums& sums"
        return method(f"void compute(\n      {arguments})", lines, "class Team, class Elements")[:-1]

    def _value(self, node: Node, index: int) -> str:
        """A node as what a result is computed in."""
        dtype = computed_in(self.program.results[index].dtype)
        name = self.writer.element(node)
        return name if computed_in(node.dtype) == dtype else f"cast<{SCALAR_TYPES[dtype]}>({name})"

    def _load_of_row(self, node: Node) -> list[str]:
        operand = self.by_slot[node.slot]  # type: ignore[attr-defined]
        address = f"tensors.{operand.name}"
        if self._has_strides(operand):
            address = self._address(operand, "start")
        self.writer.given(node, operand.name, uniform=True)
        return [f"    const {VALUE_TYPES[operand.dtype]} {operand.name} = load_once({address});"]

    def _between(self, number: int) -> list[str]:
        lines = []
        for node in self.plan.between[number]:
            if isinstance(node, Pick):
                lines += self._pick(node)
            else:
                kind, name, expression = self.writer.number(node)
                lines.append(f"    const {kind} {name} = {expression};")
        return lines

    def _pick(self, pick: Pick) -> list[str]:
        """The element at an index, which every thread of the team computes."""
        kind, name = VALUE_TYPES[computed_in(pick.node.dtype)], self.writer.fresh("row_at")
        index = self.writer.name(pick.index)
        body = [
            f"const int64_t column = {index} >= 0 && {index} < int64_t(loops.length) ? {index} : 0;",
            "const auto inputs = load<1>(locate(start, Index(column)));",
            "const auto shared = load_shared<1>(Index(column));",
            "constexpr int lane = 0;",
            *self._elements(pick.loads, pick.nodes),
            f"{name} = {self.writer.element(pick.element)};",
        ]
        self.writer.given(pick.node, name, uniform=True)
        return [f"    {kind} {name};", "    {", *(f"      {line}" for line in body), "    }"]

    def _divisors(self, each: Pass) -> list[str]:
        """What a pass divides all elements by, prepared once."""
        lines = []
        for node in each.nodes:
            if node.function is None or node.function.name != "div" or node.dtype is not torch.float32:
                continue
            divisor = node.args[1]
            if self.writer.is_uniform(divisor) and divisor not in self.divisors:
                self.divisors[divisor] = self.writer.fresh("divisor")
                lines.append(f"    const Divisor {self.divisors[divisor]}({self.writer.name(divisor)});")
        return lines

    def _expression(self, node: Node) -> str | None:
        """A cheaper form of a node where its arguments allow one."""
        assert node.function is not None
        if node.function.name == "div" and node.dtype is torch.float32 and node.args[1] in self.divisors:
            return f"{self.divisors[node.args[1]]}.divide({self.writer.element(node.args[0])})"
        if self.is_fast and node in self.never_positive:
            name = "exp_or_zero" if self.never_positive[node] else "exp_of_negative"
            return f"fast::{name}({self.writer.element(node.args[0])})"
        return None

    def _product(self, node: Node) -> str | None:
        """The factors of a product, for a fused multiply-add."""
        is_product = node.function is not None and node.function.name == "mul" and node.dtype is torch.float32
        return ", ".join(self.writer.element(arg) for arg in node.args) if is_product else None

    def _elements(self, loads: Sequence[Node], nodes: Sequence[Node]) -> list[str]:
        """Loaded and computed elements."""
        lines = []
        for load in loads:
            operand = self.by_slot[load.slot]  # type: ignore[attr-defined]
            value = f"{'shared' if operand.mode == 'shared' else 'inputs'}.{operand.name}[lane]"
            if operand.mode == "scalar":
                value = f"{operand.name}_everywhere"
            lines.append(f"const {VALUE_TYPES[operand.dtype]} {operand.name} = {value};")
            self.writer.given(load, operand.name, uniform=False)
        return lines + [self.writer.line(node, self._expression(node)) for node in nodes]

    def _pass(self, number: int, each: Pass) -> list[str]:
        """One pass over the row: a function of an element, what it stores, and the reductions of the team."""
        names = {node: self.writer.fresh(node.function.name) for node in each.reductions if node.function}
        lines = [f"    {VALUE_TYPES[computed_in(node.dtype)]} {name} = {_start(node)};" for node, name in names.items()]
        paired = {node: kind for node in names if (kind := self._paired(node))}
        lines += [f"    {kind} {names[node]}_pairs;" for node, kind in paired.items()]
        lines += self._divisors(each)
        lines.append(f"    // pass {number + 1}")
        stored = [self.results[index] for index in each.elements]
        outputs = f"Outputs{number}" if stored else "Nothing"
        if stored:
            fields = [f"{VALUE_TYPES[result.dtype]} {result.name}[vector];" for result in stored]
            lines += [f"    struct {outputs} {{", *(f"      {field}" for field in fields), "    };"]
        condition = next((self.conditions[node] for node in names if node in self.conditions), None)
        always = {node: name for node, name in names.items() if self.conditions.get(node) != condition or not condition}
        if condition is None:
            lines += self._each(each, names, outputs, stored)
        else:  # a pass that leaves out what no result needs
            lines += [
                f"    if ({self._test(condition)}) {{",
                *self._each(each, names, outputs, stored),
                "    } else {",
                *self._each(each, always, outputs, stored),
                "    }",
            ]
        lines += [f"    {names[node]} = {names[node]}_pairs.value();" for node in paired]
        if names:
            parts = [f"by<{_OPERATIONS[node.function.name]}>({name})" for node, name in names.items() if node.function]
            lines += listed("    team.reduce(", parts, ");")
        for node, name in names.items():
            self.writer.given(node, name, uniform=True)
        return lines

    def _test(self, condition: Condition) -> str:
        name = self.writer.name(condition.test)
        return name if condition.holds else f"!{name}"

    def _paired(self, node: Node) -> str | None:
        """The type that reduces elements of a half type two at a time, without converting them: for the largest and the
        smallest of them, or of their magnitudes."""
        assert node.function is not None
        element = node.args[0]
        magnitudes = element.function is not None and element.function.name == "absolute"
        read = element.args[0] if magnitudes else element
        if node.function.name not in ("row_max", "row_min") or not isinstance(read, Input):
            return None
        operand = self.by_slot[read.slot]
        if operand.dtype not in HALF or operand.mode not in ("strided1", "stridedn") or self.layout.vector % 2 != 0:
            return None
        operation, kind = _OPERATIONS[node.function.name], SCALAR_TYPES[operand.dtype]
        return f"Pairs<{operation}, {kind}, {str(magnitudes).lower()}>"

    def _each(self, each: Pass, names: dict[Node, str], outputs: str, stored: list[Operand]) -> list[str]:
        """The loop over a row's elements, with the reductions in `names`."""
        for node in each.carried_in:
            self.writer.given(node, f"{self.carried[node]}[slot]", uniform=False)
        body = self._elements(each.loads, each.nodes)
        for node, name in names.items():
            assert node.function is not None
            if self._paired(node):
                read = node.args[0] if isinstance(node.args[0], Input) else node.args[0].args[0]
                operand = self.by_slot[read.slot]  # type: ignore[attr-defined]
                body.append(f"if (lane % 2 == 0) {name}_pairs.take(inputs.{operand.name}, lane);")
                continue
            value, factors = self.writer.element(node.args[0]), self._product(node.args[0])
            operation = _OPERATIONS[node.function.name]
            added = f"fma({factors}, {name})" if factors else f"{name} + {value}"
            body.append(f"{name} = {added if operation == 'Sum' else f'{operation}::of({name}, {value})'};")
        for node in each.carried_out:
            body.append(f"{self.carried[node]}[slot] = {self.writer.element(node)};")
        for index, result in zip(each.elements, stored, strict=True):
            body.append(f"outputs.{result.name}[lane] = {self._value(self.program.results[index].expression, index)};")
        for index in each.columns:
            value = self.writer.element(self.program.results[index].expression)
            body.append(f"if (mine) sums.{self.results[index].name}.add(slot, column, {value});")
        return [
            f"    elements.template each<{outputs}>(",
            "        [&](const auto& inputs, const auto& shared, auto& outputs, int lane, int64_t column, int slot) {",
            *(f"          {line}" for line in body),
            "          (void)inputs, (void)shared, (void)outputs, (void)lane, (void)column, (void)slot;",
            "        },",
            "        [&](const auto& outputs, const Place& place) {",
            *(f"          {self._store(result)}" for result in stored),
            "          (void)outputs, (void)place;",
            "        });",
        ]

    def _store(self, result: Operand) -> str:
        if result.mode == "stridedn":
            step = f"tensors.{result.name}.inner.at[0]"
            return f"store_apart<vector>({self._address(result)}, {step}, outputs.{result.name});"
        return f"store_pack<vector>({self._address(result)}, outputs.{result.name});"
