"""C++ types of device code beside what Python and torch have for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch

from ...toolchain.elf import demangled, split_at_commas


class Number(NamedTuple):
    """A scalar type: how it is packed (a letter of the struct module), and the dtype of tensors of it."""

    format: str
    dtype: torch.dtype
    size: int

    @property
    def is_integer(self) -> bool:
        return self.format in "bBhHiIqQ?" and self.dtype is not torch.bfloat16

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        bits = 8 * self.size
        return (-(1 << bits - 1), (1 << bits - 1) - 1) if self.format.islower() else (0, (1 << bits) - 1)


# `long` is 64 bits wide: Linux alone is supported. struct knows no bfloat16, whose bits are packed as an integer's.
NUMBERS = {
    "bool": Number("?", torch.bool, 1),
    "char": Number("b", torch.int8, 1),
    "signed char": Number("b", torch.int8, 1),
    "unsigned char": Number("B", torch.uint8, 1),
    "short": Number("h", torch.int16, 2),
    "unsigned short": Number("H", torch.uint16, 2),
    "int": Number("i", torch.int32, 4),
    "unsigned int": Number("I", torch.uint32, 4),
    "long": Number("q", torch.int64, 8),
    "unsigned long": Number("Q", torch.uint64, 8),
    "long long": Number("q", torch.int64, 8),
    "unsigned long long": Number("Q", torch.uint64, 8),
    "float": Number("f", torch.float32, 4),
    "double": Number("d", torch.float64, 8),
    "__half": Number("e", torch.float16, 2),
    "__nv_bfloat16": Number("H", torch.bfloat16, 2),
    "opsmith::float16": Number("e", torch.float16, 2),  # of opsmith's own headers
    "opsmith::bfloat16": Number("H", torch.bfloat16, 2),
}

# Types that only pointers point to here: a number of one is not passed by value.
_ELEMENTS = {
    "__nv_fp8_e4m3": torch.float8_e4m3fn,
    "__nv_fp8_e5m2": torch.float8_e5m2,
    "__nv_fp8_e8m0": getattr(torch, "float8_e8m0fnu", None),
}
_COMPLEX = {"float": torch.complex64, "double": torch.complex128}
_COMPLEX_NAME = re.compile(r"(?:^|::)complex<(float|double)>$")

_VECTOR = re.compile(
    r"^(char|uchar|short|ushort|int|uint|long|ulong|longlong|ulonglong|float|double)([1-4])(?:_\d+a)?$"
)
_VECTOR_PARTS = {
    "char": "signed char", "uchar": "unsigned char", "ushort": "unsigned short", "uint": "unsigned int",
    "ulong": "unsigned long", "longlong": "long long", "ulonglong": "unsigned long long",
}  # fmt: skip
_OTHER_VECTORS = {"__half2": ("__half", 2), "__nv_bfloat162": ("__nv_bfloat16", 2), "dim3": ("unsigned int", 3)}


def vector(name: str) -> tuple[Number, int] | None:
    """(what a vector type is made of, how many of them): float4 is four floats."""
    if found := _VECTOR.match(name):
        return NUMBERS[_VECTOR_PARTS.get(found[1], found[1])], int(found[2])
    if name in _OTHER_VECTORS:
        part, count = _OTHER_VECTORS[name]
        return NUMBERS[part], count
    return None


def pointee(name: str) -> str | None:
    """'float' of 'float const*', without const and volatile; None for a type that is not a pointer to data."""
    if name.endswith("*"):
        return unqualified(name[:-1])
    return "" if re.search(r"\(\*\)", name) else None


def unqualified(name: str) -> str:
    return re.sub(r"(?:\s*\b(?:const|volatile))+$", "", name.strip()).strip()


def element_dtypes(name: str) -> tuple[torch.dtype, ...]:
    """The dtypes of tensors whose memory is an array of a type: itself, or what it is a vector of."""
    if name in NUMBERS:
        return (NUMBERS[name].dtype,)
    if (dtype := _ELEMENTS.get(name)) is not None:
        return (dtype,)
    if name.endswith("*"):
        return torch.int64, torch.uint64  # addresses
    if found := _COMPLEX_NAME.search(name):
        return (_COMPLEX[found[1]],)
    if made := vector(name):
        part, count = made
        pairs = {torch.float32: torch.complex64, torch.float64: torch.complex128}
        return (part.dtype, pairs[part.dtype]) if count == 2 and part.dtype in pairs else (part.dtype,)
    return ()


# --- the types of a kernel's parameters and of a constant, as the compiler resolved them ------------------------------
#
# NVRTC returns the symbol of any C++ expression. We ask for templates that have the wanted types as arguments: for
# `scale<float>` the symbol of opsmith_internal::signature<...> names every parameter's type, with typedefs and
# dependent types resolved, and its size. The symbols are cached beside the cubin, so that reading them needs no
# compiler.

PRELUDE = """\
namespace opsmith_internal {
template <class... Types> struct list {};
template <unsigned long long... Values> struct numbers {};
template <class T, bool = __is_enum(T)> struct resolved { using type = T; };
template <class T> struct resolved<T, true> { using type = __underlying_type(T); };
template <class T> struct element { using type = T; };
template <class T, unsigned long long N> struct element<T[N]> : element<T> {};
template <class Types, class Sizes> struct described {};
template <class Function> struct of;
template <class... P> struct of<void (*)(P...)> {
  using all = described<list<typename resolved<P>::type...>, numbers<sizeof(P)...>>;
};
template <class Description> __device__ char signature;
template <class Element, unsigned long long Bytes> __device__ char variable;
}
"""


class DeviceType(NamedTuple):
    """A C++ type as compiled code has it: 'float const*', 8 bytes."""

    name: str
    size: int


class Variable(NamedTuple):
    """A __constant__ variable: its symbol, the type of its elements, all its bytes."""

    symbol: str
    element: str
    size: int


def kernel_expressions(spelling: str) -> tuple[str, str]:
    """The expressions whose symbols NVRTC returns for a kernel: the kernel itself, and its signature."""
    return spelling, f"&opsmith_internal::signature<opsmith_internal::of<decltype(&{spelling})>::all>"


def variable_expressions(name: str) -> tuple[str, str]:
    element = f"opsmith_internal::element<decltype({name})>::type"
    return f"&{name}", f"&opsmith_internal::variable<{element}, sizeof({name})>"


def parameter_types(spelling: str, names: Mapping[str, str]) -> list[DeviceType]:
    """A kernel's parameters, from the symbols of a compiled module."""
    return described_types(template_arguments(demangled(names[kernel_expressions(spelling)[1]]))[0])


def described_types(described: str) -> list[DeviceType]:
    """The types that an instance of PRELUDE's `described` names."""
    types, sizes = map(template_arguments, template_arguments(described))
    return [DeviceType(name, _number(size)) for name, size in zip(types, sizes, strict=True)]


def variable(name: str, names: Mapping[str, str]) -> Variable:
    symbol, description = (names[expression] for expression in variable_expressions(name))
    element, size = template_arguments(demangled(description))
    return Variable(symbol, element, _number(size))


def template_arguments(template: str) -> list[str]:
    """['float*', 'int'] of 'list<float*, int>'."""
    return split_at_commas(template[template.index("<") + 1 : template.rindex(">")])


def _number(text: str) -> int:
    return int(re.sub(r"[uUlL]+$", "", text))
