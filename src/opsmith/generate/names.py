"""Names of the author's as names in C++: none may be a keyword, or hide what a kernel's text uses."""

from __future__ import annotations

import functools
from collections.abc import Sequence

_KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t
class compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable
namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
return short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq"""

# Of the headers in include/opsmith/pointwise and of the emitters' own text.
_IN_USE = """Element Extent Index Inputs Kernel Lanes Mask Outputs Pack Parameters PartialSums Place Position Repeated
Strided Sums Value Vec Visit add as_double at begin bfloat16 bits_as broadcast cast column columns combine compute
computed count divide each_sum element end fast accurate finish float16 given grid infinity inner inputs int16_t
int32_t int64_t int8_t item kept kernel lane lanes launch length linear_index load load_pack locate loops main narrow
not_a_number opsmith OPSMITH_DEVICE OPSMITH_FAST_MATH OPSMITH_INLINE OPSMITH_LANES OPSMITH_SLEEF outputs pairwise
parameters place pointer position put reduced round_to_bfloat16 round_to_float16 row rows scalar segment select size
sizes start std step store store_pack stream strides sum sums task tensors threads threadIdx blockIdx blockDim gridDim
tile total uint8_t uint16_t uint32_t uint64_t unroll value vector visit INNER OUTER STRIDED SUMS PerColumn PerTask
load_contiguous load_linear load_one load_repeated load_strided load_once load_apart store_contiguous store_linear
store_strided store_apart"""


@functools.cache
def _reserved() -> frozenset[str]:
    from .functions.core import _primitives

    return frozenset([*_KEYWORDS.split(), *_IN_USE.split(), *_primitives])


def safe(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once, with underscores behind those that C++ or the kernels' text has taken."""
    reserved = _reserved()
    found: list[str] = []
    for name in names:
        while name in reserved or name in found:
            name += "_"
        found.append(name)
    return tuple(found)
