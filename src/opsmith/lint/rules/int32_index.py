"""int32-index: elements counted in 32 bits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...cuda_text import Code, Function, Range, Variable
from ..accesses import Access, accesses_of
from ..expressions import Arithmetic, Factor
from ..rule import Problem, rule
from ..source import SIZES, Source

_LIMITS = re.compile(r"canUse32BitIndexMath|INT_MAX|INT32_MAX|UINT32_MAX|2147483647|0x7fffffff", re.IGNORECASE)
_LONGEST_REMEDY = 100
_LONGEST_CHAIN = 50
"""Variables that are each a sum of the one before."""


@rule("An index of 32 bits overflows for a tensor of 2^31 elements: the kernel reads and writes the wrong memory.")
def int32_index(source: Source) -> Iterator[Problem]:
    """An index or a count of elements in 32 bits: in a kernel, among its parameters, or in host code.

    A product of two 32-bit numbers has 32 bits, whatever it is assigned to: one of the factors must be widened first.
    Files whose host code checks the limit (INT_MAX, canUse32BitIndexMath) have no findings.
    """
    if any(_checks_the_limit(function) for function in source.host_functions):
        return
    for function in source.functions:
        if function.kind != "host" and "blockIdx" in function.texts:
            yield from _Indices(function, source.constants).problems()
    for function in source.host_functions:
        yield from _host_counts(source, function)
    yield from _launched_with_counts(source)


def _checks_the_limit(function: Function) -> bool:
    code = function.code
    limits = [index for index in code.words.get("numeric_limits", ()) if index in function]
    return any(map(_LIMITS.fullmatch, function.texts)) or any(
        code.at(index + 2) in ("int", "int32_t", "uint32_t") for index in limits
    )


class _Indices:
    """The indices of one kernel or device function."""

    def __init__(self, function: Function, constants: dict[str, int | None]) -> None:
        self.code = function.code
        self.function = function
        self.variables = function.variables
        self.arithmetic = Arithmetic(function, constants)

    def problems(self) -> Iterator[Problem]:
        accesses = list(accesses_of(self.function))
        found: dict[int, Problem] = {}  # by the variable that is widened
        counters: set[Variable] = set()
        dimensions = self._dimensions(accesses)
        for access in accesses:
            product = self.arithmetic.narrow_product(*access.offset)
            if product is not None:
                found.setdefault(self._widened_by(product), self._product(product))
                continue
            for variable in self._added(access):
                narrow = self._narrow(variable)
                if narrow is not None and narrow not in dimensions:
                    found.setdefault(narrow.index, self._index(narrow))
                    counters.add(narrow)
                elif self._is_flat(variable) and variable not in dimensions:
                    counters.add(variable)
        yield from found.values()
        yield from self._bounds(counters)

    def _widened_by(self, product: list[Factor]) -> int:
        """One finding for all products of a variable: widening it fixes them all."""
        for factor in product:
            for index in range(*factor.range):
                variable = self.variables.at(index)
                if variable is not None and "blockIdx" in self.variables.origins_of(variable):
                    return variable.index
        return -1

    def _product(self, product: list[Factor]) -> Problem:
        first, last = product[0].range
        text = self.code.spelled(first, product[-1].range[1])
        remedy = f"Widen a factor first: {_widened(self.code, first, last)} * ..."
        return Problem(self.code, first, f"{text} is computed in 32 bits: it overflows from 2^31 on.", remedy)

    def _index(self, variable: Variable) -> Problem:
        if variable.bits == 64:
            problem = "has 64 bits, but its value is computed in 32: it wraps to 0 at 2^32"
        elif variable.bits == 32 and not {"unsigned", "uint32_t"} & set(variable.type):
            problem = "is an index of 32 bits: it is negative from 2^31 elements on"
        else:
            problem = "is an index of 32 bits: it wraps to 0 at 2^32 elements"
        return Problem(self.code, variable.index, f"{variable.name} {problem}.", self._remedy(variable))

    def _remedy(self, variable: Variable) -> str:
        """The definition of the variable, with a factor widened."""
        for first, last in variable.definitions:
            product = self.arithmetic.narrow_product(first, last)
            if product is not None:
                begin, end = product[0].range
                before, after = self.code.spelled(first, begin), self.code.spelled(end, last)
                before += " " if before and not self.code.adjacent(begin - 1) else ""
                factor = _widened(self.code, begin, end)
                whole = f"int64_t {variable.name} = {before}{factor} {after};"
                return whole if len(whole) < _LONGEST_REMEDY else f"Widen a factor first: {factor} * ..."
        return f"int64_t {variable.name}"

    def _bounds(self, counters: set[Variable]) -> Iterator[Problem]:
        """Parameters of 32 bits that an index of elements is compared with."""
        for comparison in self.code.comparisons(*self.function.body):
            one, other = (self.variables.only(*each) for each in self.code.operands(comparison))
            for index, bound in ((one, other), (other, one)):
                if index in counters and bound is not None and bound.parameter and bound.bits == 32:
                    yield _count(self.function, bound)

    def _dimensions(self, accesses: list[Access]) -> set[Variable]:
        """Variables that number rows or columns: they stand in a sum with a product, row * columns + column, so it is
        the sum that numbers elements."""
        found: set[Variable] = set()
        definitions = [definition for variable in self.variables for definition in variable.definitions]
        for first, last in [*(access.offset for access in accesses), *definitions]:
            terms = list(self.arithmetic.terms(first, last))
            if any(map(_is_product, terms)):
                found.update(*(self.variables.used_in(*factor.range) for factors in terms for factor in factors))
        return found

    def _added(self, access: Access) -> list[Variable]:
        """The variable that an offset is, or those it is the sum of. None where it has products: it has dimensions."""
        terms = list(self.arithmetic.terms(*access.offset))
        if any(map(_is_product, terms)):
            return []
        variables = [self.variables.only(*factor.range) for factors in terms for factor in factors]
        return [variable for variable in variables if variable is not None and not variable.pointer]

    def _narrow(self, variable: Variable) -> Variable | None:
        """The variable that is set to a product of a block index in 32 bits: this one, or one it is a sum of."""
        waiting, seen = [variable], {variable}
        while waiting and len(seen) < _LONGEST_CHAIN:
            variable = waiting.pop()
            if any(self.arithmetic.narrow_product(*definition) for definition in variable.definitions):
                return variable
            terms = (factors for definition in variable.definitions for factors in self.arithmetic.terms(*definition))
            added = (self.variables.only(*factors[0].range) for factors in terms if len(factors) == 1)
            new = [other for other in added if other is not None and not other.pointer and other not in seen]
            seen.update(new)
            waiting += new
        return None

    def _is_flat(self, variable: Variable) -> bool:
        """Whether it is set to a block index times something, in however many bits."""
        return any(
            len(factors) > 1 and any("blockIdx" in self.variables.origins(*factor.range) for factor in factors)
            for definition in variable.definitions
            for factors in self.arithmetic.terms(*definition)
        )


def _is_product(factors: list[Factor]) -> bool:
    """Whether it has several factors that are not numbers."""
    return sum(factor.value is None and factor.operator in ("", "*") for factor in factors) > 1


def _widened(code: Code, first: int, last: int) -> str:
    text = code.spelled(first, last)
    return f"static_cast<int64_t>{text if text.startswith('(') else f'({text})'}"


def _count(function: Function, parameter: Variable) -> Problem:
    message = f"{function.name} takes the count {parameter.name} in 32 bits: 2^31 elements do not fit."
    return Problem(function.code, parameter.index, message, f"Take it as int64_t {parameter.name}.")


def _host_counts(source: Source, function: Function) -> Iterator[Problem]:
    """`int n = x.numel();`, and `int n = batch * channels;` that a kernel is launched with."""
    arithmetic = Arithmetic(function, source.constants)
    launched = {
        function.variables.only(*argument)
        for where, launch in source.host_launches
        if where is function
        for argument in launch.arguments or ()
    }
    for variable in function.variables:
        if not variable.definitions or variable.pointer:
            continue
        definition = variable.definitions[0]
        bits = variable.bits if variable.type != ("auto",) else arithmetic.bits(*definition)
        first, last = _uncast(source.code, *definition)
        if _is_numel(source.code, first, last):
            counts = [len(factors) for factors in arithmetic.terms(first, last)] == [1]  # not y + x.numel()
        else:
            counts = variable in launched and _is_volume(arithmetic, first, last)
        if counts and bits == 32:
            message = f"{variable.name} counts elements in 32 bits: it overflows from 2^31 on."
            remedy = f"const int64_t {variable.name} = {source.code.spelled(first, last)};"
            yield Problem(source.code, variable.index, message, remedy)


def _is_numel(code: Code, first: int, last: int) -> bool:
    return code.texts[max(first, last - 3) : last] == ["numel", "(", ")"]


def _is_volume(arithmetic: Arithmetic, first: int, last: int) -> bool:
    """Whether an expression is a product of sizes."""
    terms = list(arithmetic.terms(first, last))
    return len(terms) == 1 < len(terms[0]) and all(
        factor.operator in ("", "*") and bool(arithmetic.variables.origins(*factor.range) & SIZES)
        for factor in terms[0]
    )


def _uncast(code: Code, first: int, last: int) -> Range:
    """The value in `static_cast<int>(x.numel())`, `(int)x.numel()` and `int(x.numel())`."""
    if code.at(first) == "(" and code.at(first + 2) == ")":
        return first + 3, last
    opening = first + 1
    if code.at(first) == "static_cast":
        opening = code.template_end(first + 1) + 1
    elif code.at(first) not in ("int", "unsigned", "int32_t", "uint32_t"):
        return first, last
    return (opening + 1, last - 1) if code.partner.get(opening) == last - 1 else (first, last)


def _launched_with_counts(source: Source) -> Iterator[Problem]:
    """Parameters of 32 bits that a launch in this file sets to a tensor's numel()."""
    for function, launch in source.host_launches:
        kernel = source.kernels.get(launch.kernel)
        if kernel is None or launch.arguments is None or len(launch.arguments) != len(kernel.parameters):
            continue
        for parameter, argument in zip(kernel.parameters, launch.arguments, strict=True):
            variable = function.variables.only(*argument)
            is_set_once = variable is not None and len(variable.definitions) == 1
            value = variable.definitions[0] if variable is not None and is_set_once else argument
            declared = kernel.variables.find(parameter.name, parameter.index)
            if _is_numel(source.code, *value) and declared is not None and declared.bits == 32:
                yield _count(kernel, declared)
