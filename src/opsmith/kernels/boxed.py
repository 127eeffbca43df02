"""Whether a C++ function takes and returns what an operator's schema says: torch hands values over on trust."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

# C++ types as the compiler's own names are read back, beside those of a schema.
_TYPES = {
    "torch::stable::Tensor": "Tensor",
    "double": "float",
    "long": "int",
    "bool": "bool",
    "std::string": "str",
    "std::basic_string_view<char>": "str",
    "torch::headeronly::ScalarType": "ScalarType",
    "c10::ScalarType": "ScalarType",
}
_SPELLINGS = (
    (
        re.compile(r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>"),
        "std::string",
    ),
    (re.compile(r", std::allocator<[\w: <>]+? ?>(?= ?>)"), ""),
    (re.compile(r"\b(?:c10|torch::headeronly|torch)::(?:Header[Oo]nly)?ArrayRef<"), "std::vector<"),
    (re.compile(r"\b(?:const&?|&)|&"), ""),
    (re.compile(r"\blong long\b"), "long"),
)


def parameters_and_result(function: str) -> tuple[list[str], str]:
    """(parameters, result) of 'R (*)(A, B)', each as a schema spells it; what it has no word for stays C++."""
    result, _, rest = function.partition("(*)(")
    return [_as_schema(each) for each in _split(rest.removesuffix(")"))], _as_schema(result)


def difference(function: str, schema: str) -> str | None:
    """How a C++ function differs from a schema, in words; None where they agree."""
    parsed = torch._C.parse_schema(schema)
    wanted = [_plain(str(argument.type)) for argument in parsed.arguments]
    returned = [_plain(str(result.type)) for result in parsed.returns]
    given, result = parameters_and_result(function)
    results = (
        _split(result[len("tuple<") : -1]) if result.startswith("tuple<") else [] if result == "void" else [result]
    )
    if given == wanted and [_as_schema(each) for each in results] == returned:
        return None
    own, called = (f"({', '.join(types)}) -> {_listed(out)}" for types, out in ((given, results), (wanted, returned)))
    return f"it is {own}, and the op calls {called}"


def _listed(types: Sequence[str]) -> str:
    return types[0] if len(types) == 1 else f"({', '.join(types)})"


def _plain(type: str) -> str:
    """torch's names for a schema's types: 'Optional[Tensor]', 'List[int]'."""
    if inner := re.fullmatch(r"Optional\[(.*)\]", type):
        return f"{_plain(inner[1])}?"
    if inner := re.fullmatch(r"List\[(.*)\]", type):
        return f"{_plain(inner[1])}[]"
    return {"number": "Scalar", "int": "int"}.get(type, type)


def _as_schema(type: str) -> str:
    for pattern, spelled in _SPELLINGS:
        type = pattern.sub(spelled, type)
    type = type.strip()
    if inner := re.fullmatch(r"std::optional<(.*?) ?>", type):
        return f"{_as_schema(inner[1])}?"
    if inner := re.fullmatch(r"std::vector<(.*?) ?>", type):
        return f"{_as_schema(inner[1])}[]"
    if inner := re.fullmatch(r"std::tuple<(.*?) ?>", type):
        return f"tuple<{', '.join(_as_schema(each) for each in _split(inner[1]))}>"
    return _TYPES.get(type, type)


def _split(types: str) -> list[str]:
    parts, depth, first = [], 0, 0
    for position, letter in enumerate(types):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(types[first:position].strip())
            first = position + 1
    last = types[first:].strip()
    return [*parts, last] if last and last != "void" else parts
