"""int32-index: elements counted in 32 bits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text.functions import Function
from ..accesses import Access, accesses_of
from ..expressions import Arithmetic, Factor
from ..rule import Problem, rule
from ..source import SIZES, Source
from ..variables import Variable, Variables

_LIMITS = re.compile(r"canUse32BitIndexMath|INT_MAX|INT32_MAX|UINT32_MAX|2147483647|0x7fffffff", re.IGNORECASE)
_LONGEST_REMEDY = 100
_LONGEST_CHAIN = 50
"""Variables that are each a sum of the one before."""


@rule("A tensor of 2^31 elements or more has indices that 32 bits do not hold: the kernel reads and writes elsewhere.")
def int32_index(source: Source) -> Iterator[Problem]:
    """An index or a count of elements in 32 bits: in a kernel, among its parameters, or in host code.

    A product of two 32-bit numbers has 32 bits, whatever it is assigned to: one of the factors must be widened first.
    The rule is silent in a file whose host code asks for the limit (INT_MAX, canUse32BitIndexMath).

    Bad:

        __global__ void square(const float* x, float* y, int64_t n) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[i] * x[i];
        }

    Bad:

        __global__ void square(const float* x, float* y, int n) {
          int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[i] * x[i];
        }

    Bad:

        __global__ void copy_rows(const float* x, float* y, int columns) {
          for (int i = threadIdx.x; i < columns; i += blockDim.x) y[blockIdx.x * columns + i] = x[i];
        }

    Bad:

        void square(const torch::Tensor& x) {
          int n = x.numel();
        }

    Good:

        __global__ void square(const float* x, float* y, int64_t n) {
          const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
          if (i < n) y[i] = x[i] * x[i];
        }

    Good:

        __global__ void copy_rows(const float* x, float* y, int64_t columns) {
          for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) y[blockIdx.x * columns + i] = x[i];
        }
    """
    if _asks_for_the_limit(source):
        return
    counts = set()
    for function in source.device_functions:
        if any(index in function for index in source.code.words.get("blockIdx", ())):
            for problem in _Indices(source, function).problems():
                counts.add(problem.index)
                yield problem
    for function in source.host_functions:
        yield from _host_counts(source, function)
    for problem in _launched_with_counts(source):
        if problem.index not in counts:
            counts.add(problem.index)
            yield problem


def _asks_for_the_limit(source: Source) -> bool:
    texts = source.code.texts
    for function in source.host_functions:
        first, last = function.body
        for index in range(first, last):
            if _LIMITS.fullmatch(texts[index]):
                return True
            if texts[index] == "numeric_limits" and source.code.at(index + 2) in ("int", "int32_t", "uint32_t"):
                return True
    return False


class _Indices:
    """The indices of one kernel or device function."""

    def __init__(self, source: Source, function: Function) -> None:
        self.code = source.code
        self.function = function
        self.variables: Variables = source.variables(function)
        self.arithmetic: Arithmetic = source.arithmetic(function)
        self._products: dict[Variable, Variable | None] = {}
        self._depth = 0

    def problems(self) -> Iterator[Problem]:
        accesses = list(accesses_of(self.variables))
        told: dict[int, Problem] = {}
        counted: set[Variable] = set()
        dimensions = self._dimensions(accesses)
        for access in accesses:
            product = self.arithmetic.narrow_product(*access.offset, "blockIdx")
            if product is not None:
                told.setdefault(self._key(product), self._product(product))
                continue
            for variable in self._added(access):
                narrow = self._narrow(variable)
                if narrow is not None and narrow not in dimensions:
                    told.setdefault(narrow.index, self._index(narrow))
                    counted.add(narrow)
                elif self._is_flat(variable) and variable not in dimensions:
                    counted.add(variable)
        yield from told.values()
        yield from self._bounds(counted)

    def _key(self, product: list[Factor]) -> int:
        """One finding for all products of a variable: widening it mends them all."""
        for factor in product:
            for index in range(*factor.range):
                variable = self.variables.at(index)
                if variable is not None and "blockIdx" in self.variables.origins_of(variable):
                    return variable.index
        return -1

    def _product(self, product: list[Factor]) -> Problem:
        first, last = product[0].range
        text = self.code.spelled(first, product[-1].range[1])
        return Problem(
            self.code,
            first,
            f"{text} is computed in 32 bits: from 2^31 on it is another number.",
            f"Widen a factor first: {_widened(self.code.spelled(first, last))} * ...",
        )

    def _index(self, variable: Variable) -> Problem:
        name = variable.name
        if variable.bits == 32 and "unsigned" not in variable.type and "uint32_t" not in variable.type:
            message = f"{name} is an index of 32 bits: from 2^31 elements on it is negative."
        elif variable.bits == 64:
            message = f"{name} has 64 bits, but what it is set to is computed in 32: from 2^32 on it begins again at 0."
        else:
            message = f"{name} is an index of 32 bits: from 2^32 elements on it begins again at 0."
        return Problem(self.code, variable.index, message, self._remedy(variable))

    def _remedy(self, variable: Variable) -> str:
        """What the variable is set to, with a factor widened."""
        for first, last in variable.definitions:
            product = self.arithmetic.narrow_product(first, last, "blockIdx")
            if product is not None:
                begin, end = product[0].range
                before, after = self.code.spelled(first, begin), self.code.spelled(end, last)
                before += " " if before and not self.code.adjacent(begin - 1) else ""
                factor = _widened(self.code.spelled(begin, end))
                whole = f"int64_t {variable.name} = {before}{factor} {after};"
                return whole if len(whole) < _LONGEST_REMEDY else f"Widen a factor first: {factor} * ..."
        return f"int64_t {variable.name}"

    def _bounds(self, counted: set[Variable]) -> Iterator[Problem]:
        """Parameters of 32 bits that an index of elements is compared with."""
        told = set()
        for comparison in self.code.comparisons(*self.function.body):
            sides = [
                self.variables.at(first) if last == first + 1 else None
                for first, last in self.code.operands(comparison)
            ]
            for one, other in (sides, sides[::-1]):
                if one in counted and other is not None and other.parameter and other.bits == 32:
                    if other not in told:
                        told.add(other)
                        yield _count(self.function, other)

    def _dimensions(self, accesses: list[Access]) -> set[Variable]:
        """Variables that number the rows or columns of something: they stand in a sum with a product, row * columns +
        column, so it is the sum that numbers elements."""
        found: set[Variable] = set()
        sums = [access.offset for access in accesses]
        for first, last in [*sums, *(definition for variable in self.variables for definition in variable.definitions)]:
            terms = list(self.arithmetic.terms(first, last))
            if any(_is_product(factors) for factors in terms):
                for factors in terms:
                    for factor in factors:
                        found |= self.variables.used_in(*factor.range)
        return found

    def _added(self, access: Access) -> list[Variable]:
        """Variables that an offset is, or is the sum of. None where it has products, for those go by dimensions."""
        found = []
        for factors in self.arithmetic.terms(*access.offset):
            if _is_product(factors):
                return []
            for factor in factors:
                variable = self.variables.at(factor.range[0])
                if variable is not None and not variable.pointer and factor.range[1] == factor.range[0] + 1:
                    found.append(variable)
        return found

    def _narrow(self, variable: Variable) -> Variable | None:
        """The variable that is set to a block's number times something in 32 bits: this one, or one it is a sum of."""
        if variable not in self._products:
            self._products[variable] = None  # while it is looked for: a variable may be set to itself
            if self._depth < _LONGEST_CHAIN:
                self._depth += 1
                self._products[variable] = self._find_narrow(variable)
                self._depth -= 1
        return self._products[variable]

    def _find_narrow(self, variable: Variable) -> Variable | None:
        for first, last in variable.definitions:
            if self.arithmetic.narrow_product(first, last, "blockIdx") is not None:
                return variable
            for factors in self.arithmetic.terms(first, last):
                index, end = factors[0].range
                other = self.variables.at(index) if len(factors) == 1 and end == index + 1 else None
                if other is not None and not other.pointer and (found := self._narrow(other)):
                    return found
        return None

    def _is_flat(self, variable: Variable) -> bool:
        """Whether it is set to a block's number times something, in however many bits."""
        for first, last in variable.definitions:
            for factors in self.arithmetic.terms(first, last):
                ranges = [factor.range for factor in factors]
                if len(factors) > 1 and any("blockIdx" in self.variables.origins(*each) for each in ranges):
                    return True
        return False


def _is_product(factors: list[Factor]) -> bool:
    """Of more than one factor that is no number."""
    return sum(factor.value is None and factor.operator in ("", "*") for factor in factors) > 1


def _widened(text: str) -> str:
    return f"static_cast<int64_t>{text if text.startswith('(') else f'({text})'}"


def _count(function: Function, parameter: Variable) -> Problem:
    message = f"{function.name} takes the count {parameter.name} in 32 bits: 2^31 elements do not fit."
    return Problem(function.code, parameter.index, message, f"Take it as int64_t {parameter.name}.")


def _host_counts(source: Source, function: Function) -> Iterator[Problem]:
    """`int n = x.numel();`, and `int n = batch * channels;` that a kernel is launched with."""
    variables, arithmetic = source.variables(function), source.arithmetic(function)
    launched = {
        variables.at(first)
        for where, launch in source.host_launches
        if where is function
        for first, last in launch.arguments or ()
        if last == first + 1
    }
    for variable in variables:
        if not variable.definitions or variable.pointer:
            continue
        first, last = variable.definitions[0]
        bits = variable.bits if variable.type != ("auto",) else arithmetic.bits(first, last)
        if bits != 32:
            continue
        first, last = _uncast(source, first, last)
        if source.code.texts[last - 3 : last] == ["numel", "(", ")"]:
            counts = _is_whole(arithmetic, first, last)
        else:
            counts = variable in launched and _is_volume(variables, arithmetic, first, last)
        if counts:
            message = f"{variable.name} counts elements in 32 bits: from 2^31 on it is another number."
            text = source.code.spelled(first, last)
            yield Problem(source.code, variable.index, message, f"const int64_t {variable.name} = {text};")


def _is_whole(arithmetic: Arithmetic, first: int, last: int) -> bool:
    """Whether an expression is one operand: x.numel(), not y + x.numel()."""
    return [len(factors) for factors in arithmetic.terms(first, last)] == [1]


def _is_volume(variables: Variables, arithmetic: Arithmetic, first: int, last: int) -> bool:
    """Whether an expression is a product of sizes."""
    terms = list(arithmetic.terms(first, last))
    return (
        len(terms) == 1
        and len(terms[0]) > 1
        and all(factor.operator in ("", "*") and bool(variables.origins(*factor.range) & SIZES) for factor in terms[0])
    )


def _uncast(source: Source, first: int, last: int) -> tuple[int, int]:
    """The value in `static_cast<int>(x.numel())`, `(int)x.numel()` and `int(x.numel())`."""
    code = source.code
    opening = first + 1
    if code.at(first) == "static_cast":
        opening = code.template_end(first + 1) + 1
    elif code.at(first) == "(" and code.at(first + 2) == ")":
        return first + 3, last
    elif code.at(first) not in ("int", "unsigned", "int32_t", "uint32_t"):
        return first, last
    if code.at(opening) in ("(", "{") and code.partner[opening] == last - 1:
        return opening + 1, last - 1
    return first, last


def _launched_with_counts(source: Source) -> Iterator[Problem]:
    """Parameters of 32 bits that a launch in this file gives a tensor's numel()."""
    for function, launch in source.host_launches:
        kernel = source.kernels.get(launch.kernel)
        if kernel is None or launch.arguments is None or len(launch.arguments) != len(kernel.parameters):
            continue
        variables = source.variables(function)
        for parameter, (first, last) in zip(kernel.parameters, launch.arguments, strict=True):
            value = (first, last)
            variable = variables.at(first) if last == first + 1 else None
            if variable is not None and len(variable.definitions) == 1:
                value = variable.definitions[0]
            if source.code.texts[value[1] - 3 : value[1]] != ["numel", "(", ")"]:
                continue
            declared = source.variables(kernel).find(parameter.name, parameter.index)
            if declared is not None and declared.bits == 32:
                yield _count(kernel, declared)
