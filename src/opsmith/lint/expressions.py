"""Arithmetic on integers: the terms of an expression, their factors, and in how many bits a product is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..cuda_text import INTEGERS, Function, Range, Variable, is_number

# Operators between operands that are computed separately.
_BETWEEN_TERMS = {
    "+", "-", "?", ":", "<", ">", "<=", ">=", "==", "!=", "&&", "||", ",", "&", "|", "^", "<<", ";", "=", "+=", "-=",
}  # fmt: skip
_BETWEEN_FACTORS = {"*", "/", "%"}
_UNARY = {"-", "+", "*", "&", "!", "~", "++", "--"}
_INDICES = {"blockIdx", "threadIdx", "blockDim", "gridDim"}
_SIZES = {"numel", "size", "stride"}
_SMALL = 16
"""A block index times at most this stays below 2^31: no grid is that long."""
_DEEPEST = 40
"""Brackets within brackets that are read."""


@dataclass(frozen=True)
class Factor:
    """One operand of a product. `operator` stands before it; `bits` is None where its type is unknown."""

    operator: str
    range: Range
    bits: int | None
    value: int | None = None  # of a number


class Arithmetic:
    """Reads the expressions of one function. `constants` are the bits of names that are defined at file scope."""

    def __init__(self, function: Function, constants: Mapping[str, int | None]) -> None:
        self.function = function
        self.variables = function.variables
        self.code = function.code
        self.constants = constants
        self._bits: dict[Variable, int | None] = {}
        self._depth = 0

    def terms(self, first: int, last: int) -> Iterator[list[Factor]]:
        """The products in an expression that are added, compared and so on; brackets around all of it are ignored."""
        while first < last and self._is_enclosed(first, last):
            first, last = first + 1, last - 1
        for begin, end in self._between(first, last, _BETWEEN_TERMS):
            factors = []
            for start, stop in self._between(begin, end, _BETWEEN_FACTORS):
                operator = self.code.texts[start - 1] if start > begin else ""
                factors.append(Factor(operator, (start, stop), *self._operand(start, stop)))
            yield factors

    def bits(self, first: int, last: int) -> int | None:
        """How many bits an expression is computed in: 64 if any operand has them."""
        if self._depth > _DEEPEST:
            return None
        self._depth += 1
        widths = [factor.bits for factors in self.terms(first, last) for factor in factors]
        self._depth -= 1
        return 64 if 64 in widths else None if None in widths or not widths else 32

    def narrow_product(self, first: int, last: int, depth: int = 0) -> list[Factor] | None:
        """The factors of a product of 32 bits with a block index in one of them, and another that is not small.

        Of products within products the innermost: widening one of its factors widens them all."""
        for factors in self.terms(first, last):
            followed_by = [*(factor.operator for factor in factors[1:]), ""]
            for factor, operator in zip(factors, followed_by, strict=True):
                inner = self._inside(*factor.range)
                # A remainder does not grow, whatever the number before it.
                if inner is not None and operator != "%" and depth < _DEEPEST:
                    found = self.narrow_product(*inner, depth + 1)
                    if found is not None:
                        return found
            if self._is_narrow(factors):
                return factors
        return None

    def _is_narrow(self, factors: list[Factor]) -> bool:
        multiplied = [factor for factor in factors if factor.operator in ("", "*")]
        large = [factor for factor in multiplied if factor.value is None or factor.value > _SMALL]
        return (
            len(large) > 1
            and all(factor.bits == 32 for factor in factors)
            and any("blockIdx" in self.variables.origins(*factor.range) for factor in multiplied)
        )

    # --- Parts of an expression -------------------------------------------------------------------------------------

    def _is_enclosed(self, first: int, last: int) -> bool:
        return self.code.at(first) == "(" and self.code.partner.get(first) == last - 1

    def _between(self, first: int, last: int, operators: set[str]) -> Iterator[Range]:
        """The operands between binary operators that no brackets enclose, without signs."""
        begin = first
        for index in self.code.outside(first, last, templates=True):
            text = self.code.texts[index]
            if text in _UNARY and index == begin:
                begin = index + 1
            # After `(int64_t)` an operand follows, though it may begin with an operator.
            elif text in operators and index > begin and not self._is_cast(begin, index):
                yield begin, index
                begin = index + 1
        if begin < last:
            yield begin, last

    def _is_cast(self, first: int, last: int) -> bool:
        return self._is_enclosed(first, last) and self._type_bits(first + 1, last - 1) is not None

    def _inside(self, first: int, last: int) -> Range | None:
        """The expression in brackets, or the one that is cast."""
        if self._is_enclosed(first, last):
            return first + 1, last - 1
        if self.code.at(first) == "(" and first in self.code.partner:
            return self.code.partner[first] + 1, last
        opening = self._cast_opening(first, last)
        if opening is not None and self.code.partner.get(opening) == last - 1:
            return opening + 1, last - 1
        return None

    def _cast_opening(self, first: int, last: int) -> int | None:
        """The bracket in `static_cast<int>(`, `int64_t(`, `std::size_t{`."""
        index = first
        if self.code.at(first) == "static_cast" and self.code.at(first + 1) == "<":
            index = self.code.template_end(first + 1) + 1
        else:
            while index < last and _is_of_type(self.code.texts[index]):
                index += 1
        return index if first < index < last and self.code.texts[index] in ("(", "{") else None

    # --- Operands ---------------------------------------------------------------------------------------------------

    def _type_bits(self, first: int, last: int) -> int | None:
        """The bits of an integer type; None for anything else."""
        texts = self.code.texts[first:last]
        widths = [INTEGERS.get(text, 0) for text in texts]
        return max(widths) or None if texts and all(map(_is_of_type, texts)) else None

    def _operand(self, first: int, last: int) -> tuple[int | None, int | None]:
        """Bits, and the value if it is a number."""
        code = self.code
        text = code.texts[first]
        if last == first + 1:
            return _number(text) if is_number(text) else (self._word(first), None)
        if self._is_enclosed(first, last):
            return self.bits(first + 1, last - 1), None
        if text == "(" and first in code.partner:  # a cast, or anything else
            return self._type_bits(first + 1, code.partner[first]), None
        opening = self._cast_opening(first, last)
        if opening is not None:
            return self._type_bits(*((first + 2, opening - 1) if text == "static_cast" else (first, opening))), None
        if text == "sizeof" or (code.texts[last - 1] == ")" and code.at(code.opening(last - 1) - 1) in _SIZES):
            return 64, None
        return 32 if text in _INDICES and last == first + 3 else None, None

    def _word(self, index: int) -> int | None:
        variable = self.variables.at(index)
        name = self.code.texts[index]
        if variable is None:
            type = self.function.template_parameters.get(name)
            if type is not None:
                return max((INTEGERS[word] for word in type if word in INTEGERS), default=None)
            return self.constants.get(name)
        if variable.type != ("auto",) or not variable.definitions:
            return variable.bits
        if variable not in self._bits:
            self._bits[variable] = None  # while it is computed: a variable may be set to itself
            self._bits[variable] = self.bits(*variable.definitions[0])
        return self._bits[variable]


def _is_of_type(text: str) -> bool:
    return text in INTEGERS or text in ("std", "::", "const")


def _number(text: str) -> tuple[int | None, int | None]:
    """32 or 64 bits, and the value; neither of a floating-point number."""
    text = text.lower().replace("'", "")
    digits = text.rstrip("ulz")
    try:
        value = int(digits, 8 if digits.isdigit() and digits.startswith("0") else 0)
    except ValueError:
        return None, None
    return 64 if text[len(digits) :].strip("u") or value >= 1 << 32 else 32, value
