"""messageless-check: a refusal that does not say what was wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Call, Code
from ..rule import Problem, rule
from ..source import Source

_CHECKS = {
    "TORCH_CHECK", "STD_TORCH_CHECK", "AT_CHECK", "AT_ASSERT", "TORCH_CHECK_VALUE", "TORCH_CHECK_TYPE",
    "TORCH_CHECK_INDEX", "TORCH_CHECK_NOT_IMPLEMENTED", "TORCH_CHECK_LINALG",
}  # fmt: skip
_REMEDY = 'As in: TORCH_CHECK(x.dim() == 2, "op: x must be [rows, columns], is ", x.sizes());'


@rule("A check without a message repeats a line of C++: the user learns neither what was passed nor what is accepted.")
def messageless_check(source: Source) -> Iterator[Problem]:
    """TORCH_CHECK and similar macros with only a condition; `assert` in host code."""
    for code in source.codes:
        for name in _CHECKS & code.words.keys():
            for call in code.calls(name):
                if call.arguments and _is_silent(code, call):
                    condition = code.spelled(*call.arguments[0])
                    yield Problem(code, call.name, f"If it fails, {name} only says that {condition} is false.", _REMEDY)
    for function in source.host_functions if source.is_torch else ():
        for call in source.code.calls("assert", function.body):
            if call.arguments and source.code.at(call.name - 1) not in (".", "->", "::"):
                condition = source.code.spelled(*call.arguments[0])
                message = f"assert ends the process where {condition} is false, and NDEBUG removes it."
                yield Problem(source.code, call.name, message, _REMEDY)


def _is_silent(code: Code, call: Call) -> bool:
    return all(code.texts[slice(*argument)] == ['""'] for argument in call.arguments[1:])
