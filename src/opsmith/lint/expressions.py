"""Arithmetic on integers: the terms of an expression, their factors, and in how many bits a product is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..cuda_text.code import Range
from ..cuda_text.functions import INTEGERS
from .variables import Variable, Variables

# Between operands that are computed apart, for they are added, compared, chosen between, or separate arguments.
_BETWEEN_TERMS = {
    "+", "-", "?", ":", "<", ">", "<=", ">=", "==", "!=", "&&", "||", ",", "&", "|", "^", "<<", ";", "=", "+=", "-=",
}  # fmt: skip
_BETWEEN_FACTORS = {"*", "/", "%"}
_UNARY = {"-", "+", "*", "&", "!", "~", "++", "--"}
_LAUNCH_NUMBERS = {"blockIdx", "threadIdx", "blockDim", "gridDim"}
_SIZES = {"numel", "size", "stride"}
_SMALL = 16
"""A block's number times so little does not pass 32 bits: grids that long are not launched."""
_DEEPEST = 40
"""Brackets within brackets. Deeper ones are not looked into."""


@dataclass(frozen=True)
class Factor:
    """One operand of a product. `operator` is what stands before it; `bits` is None where its type is not known."""

    operator: str
    range: Range
    bits: int | None
    value: int | None = None  # of a number


class Arithmetic:
    """Reads the expressions of one function. `constants` are the bits of names that mean the same everywhere."""

    def __init__(self, variables: Variables, constants: Mapping[str, int | None]) -> None:
        self.variables = variables
        self.code = variables.code
        self.constants = constants
        self._bits: dict[Variable, int | None] = {}
        self._depth = 0

    def terms(self, first: int, last: int) -> Iterator[list[Factor]]:
        """The products that are added, compared and so on in an expression; brackets around all of it are taken off."""
        first, last = self._without_brackets(first, last)
        for begin, end in self._between(first, last, _BETWEEN_TERMS):
            factors = []
            for start, stop in self._between(begin, end, _BETWEEN_FACTORS):
                operator = self.code.texts[start - 1] if start > begin else ""
                bits, value = self._operand(start, stop)
                factors.append(Factor(operator, (start, stop), bits, value))
            yield factors

    def bits(self, first: int, last: int) -> int | None:
        """How many bits an expression is computed in: 64 if any operand has them."""
        if self._depth > _DEEPEST:
            return None
        self._depth += 1
        try:
            widths = [factor.bits for factors in self.terms(first, last) for factor in factors]
        finally:
            self._depth -= 1
        return 64 if 64 in widths else None if None in widths or not widths else 32

    def narrow_product(self, first: int, last: int, origin: str, depth: int = 0) -> list[Factor] | None:
        """The factors of a product of 32 bits that has `origin` in one of them, and another that is not small.

        Of products within products the innermost: widening one of its factors widens them all."""
        for factors in self.terms(first, last):
            for number, factor in enumerate(factors):
                following = factors[number + 1].operator if number + 1 < len(factors) else ""
                inner = self._inside(*factor.range)
                # A remainder does not grow, whatever it is a remainder of.
                if inner is not None and following != "%" and depth < _DEEPEST:
                    found = self.narrow_product(*inner, origin, depth + 1)
                    if found is not None:
                        return found
            if self._is_narrow(factors, origin):
                return factors
        return None

    def _is_narrow(self, factors: list[Factor], origin: str) -> bool:
        multiplied = [factor for factor in factors if factor.operator in ("", "*")]
        if len(multiplied) < 2 or any(factor.bits != 32 for factor in factors):
            return False
        large = [factor for factor in multiplied if factor.value is None or factor.value > _SMALL]
        return len(large) > 1 and any(origin in self.variables.origins(*factor.range) for factor in multiplied)

    # --- Parts of an expression -------------------------------------------------------------------------------------

    def _without_brackets(self, first: int, last: int) -> Range:
        code = self.code
        while first < last and code.texts[first] == "(" and code.partner[first] == last - 1:
            first, last = first + 1, last - 1
        return first, last

    def _between(self, first: int, last: int, operators: set[str]) -> Iterator[Range]:
        """The operands between binary operators that no brackets enclose. Signs and the like are left off."""
        code = self.code
        begin = index = first
        while index < last:
            text = code.texts[index]
            if text in _UNARY and index == begin:
                begin = index + 1
            elif text == "<" and code.template_end(index) >= 0:
                index = min(code.template_end(index), last)
            elif text in ("(", "[", "{"):
                index = code.closing(index, last)
            elif text in operators and index > begin and not self._is_cast(begin, index):
                yield begin, index
                begin = index + 1
            index += 1
        if begin < last:
            yield begin, last

    def _inside(self, first: int, last: int) -> Range | None:
        """What stands in brackets, or is cast."""
        code = self.code
        if code.at(first) == "(" and code.partner[first] >= 0:
            closing = code.partner[first]
            return (first + 1, closing) if closing == last - 1 else (closing + 1, last)
        opening = self._cast_opening(first, last)
        if opening is not None and code.partner[opening] == last - 1:
            return opening + 1, last - 1
        return None

    def _cast_opening(self, first: int, last: int) -> int | None:
        """The bracket in `static_cast<int>(`, `int64_t(`, `std::size_t{`."""
        code, index = self.code, first
        if code.at(first) == "static_cast" and code.at(first + 1) == "<":
            index = code.template_end(first + 1) + 1
        else:
            while index < last and self._is_type(index, index + 1):
                index += 1
            if index == first:
                return None
        return index if index < last and code.texts[index] in ("(", "{") else None

    def _is_cast(self, first: int, last: int) -> bool:
        """Whether a range is `(int64_t)` alone: then an operand follows, though it may begin with an operator."""
        code = self.code
        return code.at(first) == "(" and code.partner[first] == last - 1 and self._is_type(first + 1, last - 1)

    # --- Operands ---------------------------------------------------------------------------------------------------

    def _is_type(self, first: int, last: int) -> bool:
        return first < last and all(
            text in INTEGERS or text in ("std", "::", "const") for text in self.code.texts[first:last]
        )

    def _type_bits(self, first: int, last: int) -> int | None:
        if not self._is_type(first, last):
            return None
        return max(INTEGERS.get(text, 0) for text in self.code.texts[first:last]) or None

    def _operand(self, first: int, last: int) -> tuple[int | None, int | None]:
        """Bits, and the value if it is a number."""
        code = self.code
        text = code.texts[first]
        if last == first + 1:
            return _number(text) if code.is_number(first) else (self._word(first), None)
        if text == "(" and code.partner[first] >= 0:
            closing = code.partner[first]
            if closing == last - 1:
                return self.bits(first + 1, closing), None
            return self._type_bits(first + 1, closing), None  # a cast; None for anything else
        opening = self._cast_opening(first, last)
        if opening is not None:
            return self._type_bits(*((first + 2, opening - 1) if text == "static_cast" else (first, opening))), None
        if text == "sizeof":
            return 64, None
        if text in _LAUNCH_NUMBERS and last == first + 3:
            return 32, None
        if code.texts[last - 1] == ")" and code.at(code.partner[last - 1] - 1) in _SIZES:
            return 64, None
        return None, None

    def _word(self, index: int) -> int | None:
        variable = self.variables.at(index)
        name = self.code.texts[index]
        if variable is None:
            template = self.variables.function.template_parameters.get(name)
            if template is not None:
                return max((INTEGERS[word] for word in template if word in INTEGERS), default=None)
            return self.constants.get(name)
        if variable.type != ("auto",) or not variable.definitions:
            return variable.bits
        if variable not in self._bits:
            self._bits[variable] = None  # while it is looked for: a variable may be set to itself
            self._bits[variable] = self.bits(*variable.definitions[0])
        return self._bits[variable]


def _number(text: str) -> tuple[int | None, int | None]:
    """32 or 64 bits, and the value; neither of a floating-point number."""
    text = text.lower().replace("'", "")
    digits = text.rstrip("ulz")
    try:
        value = int(digits, 8 if digits.isdigit() and digits.startswith("0") else 0)
    except ValueError:
        return None, None
    return 64 if text[len(digits) :].strip("u") or value >= 1 << 32 else 32, value
