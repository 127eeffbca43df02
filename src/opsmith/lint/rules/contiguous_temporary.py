"""contiguous-temporary: a pointer into a tensor that is gone."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text.code import Code
from ..rule import Problem, rule
from ..source import Source

_DATA = ("data_ptr", "const_data_ptr", "mutable_data_ptr")
# What may return a fresh tensor that nothing else holds.
_COPIES = {"clone", "to", "float", "half", "double", "bfloat16", "cuda", "reshape", "flatten", "toType", "repeat"}
_CASTS = {"static_cast", "reinterpret_cast", "const_cast"}


@rule("The copy that contiguous() makes dies at the end of the statement, and its memory goes to the next tensor.")
def contiguous_temporary(source: Source) -> Iterator[Problem]:
    """`x.contiguous().data_ptr()`; and a pointer kept from another call that may return a fresh tensor.

    Bad:

        void scale(const torch::Tensor& x) {
          const double* data = x.contiguous().data_ptr<double>();
          launch_scale(data, x.numel());
        }

    Bad:

        void scale(const torch::Tensor& x) {
          auto* data = static_cast<float*>(x.to(torch::kFloat32).data_ptr());
          launch_scale(data, x.numel());
        }

    Good:

        void scale(const torch::Tensor& x) {
          const torch::Tensor dense = x.contiguous();
          launch_scale(dense.data_ptr<double>(), dense.scalar_type(), dense.numel());
        }
    """
    for code in (source.code, *(macro.code for macro in source.macros)):
        for word in _DATA:
            for index in code.words.get(word, ()):
                if code.at(index - 1) in (".", "->") and code.at(index - 2) == ")":
                    yield from _problem(code, index, index - 2)
        for call in code.calls("data"):  # opsmith::data<float>(x.contiguous())
            if code.at(call.name - 2) == "opsmith" and code.at(call.closing - 1) == ")":
                yield from _problem(code, call.name, call.closing - 1)


def _problem(code: Code, index: int, closing: int) -> Iterator[Problem]:
    name = code.before_template(code.partner[closing] - 1)
    made = code.at(name)
    if made != "contiguous" and not (made in _COPIES and code.at(name - 1) in (".", "->") and _is_kept(code, index)):
        return
    first = name
    while code.at(first - 1) in (".", "->", "::") and code.is_word(first - 2):
        first -= 2
    tensor = code.spelled(first, closing + 1)
    kept = "is kept" if _is_kept(code, index) else "is taken"
    yield Problem(
        code,
        first,
        f"A pointer into {tensor} {kept}, and the tensor is gone after the statement.",
        f"Name it first: const auto dense = {tensor};",
    )


def _is_kept(code: Code, index: int) -> bool:
    """Whether the statement assigns the pointer, rather than hand it to a call."""
    start = code.statement_start(index)
    while code.at(start - 1) == "(" and code.at(code.before_template(start - 2)) in _CASTS:
        index, start = start - 2, code.statement_start(start - 2)
    return "=" in code.texts[start:index]
