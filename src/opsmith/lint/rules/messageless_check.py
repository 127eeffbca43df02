"""messageless-check: a refusal that does not say what was wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text.code import Call, Code
from ..rule import Problem, rule
from ..source import Source

_CHECKS = {
    "TORCH_CHECK", "STD_TORCH_CHECK", "AT_CHECK", "AT_ASSERT", "TORCH_CHECK_VALUE", "TORCH_CHECK_TYPE",
    "TORCH_CHECK_INDEX", "TORCH_CHECK_NOT_IMPLEMENTED", "TORCH_CHECK_LINALG",
}  # fmt: skip
_REMEDY = 'As in: TORCH_CHECK(x.dim() == 2, "op: x must be [rows, columns], is ", x.sizes());'


@rule("A check without a message repeats a line of C++: the user learns neither what was given nor what is taken.")
def messageless_check(source: Source) -> Iterator[Problem]:
    """TORCH_CHECK and its kin with a condition alone, also in macros; `assert` in host code.

    Bad:

        #define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda())

    Bad:

        void scale(const torch::Tensor& x) { assert(x.dim() == 2); }

    Good:

        #define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor, is on ", x.device())

    Good:

        void scale(const torch::Tensor& x) {
          TORCH_CHECK(x.dim() == 2, "scale: x must be [rows, columns], is ", x.sizes());
        }
    """
    for code in (source.code, *(macro.code for macro in source.macros)):
        for name in _CHECKS & code.words.keys():
            for call in code.calls(name):
                if call.arguments and _is_silent(code, call):
                    condition = code.spelled(*call.arguments[0])
                    yield Problem(
                        code,
                        call.name,
                        f"Where it fails, {name} says no more than that {condition} is false.",
                        _REMEDY,
                    )
    if source.is_torch:
        yield from _asserts(source)


def _is_silent(code: Code, call: Call) -> bool:
    rest = call.arguments[1:]
    return all(last == first + 1 and code.texts[first] == '""' for first, last in rest)


def _asserts(source: Source) -> Iterator[Problem]:
    for function in source.host_functions:
        for call in source.code.calls("assert", function.body):
            if call.arguments and source.code.at(call.name - 1) not in (".", "->", "::"):
                condition = source.code.spelled(*call.arguments[0])
                yield Problem(
                    source.code,
                    call.name,
                    f"assert ends the process where {condition} is false, and NDEBUG leaves it out.",
                    _REMEDY,
                )
