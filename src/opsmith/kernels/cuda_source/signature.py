"""The types of a kernel's parameters and of a constant, as the compiler resolved them.

NVRTC returns the symbol of any C++ expression. We ask for templates that have the wanted types as arguments: for
`scale<float>` the symbol of opsmith_internal::signature<...> names every parameter's type, with typedefs and dependent
types resolved, and its size. The symbols are cached beside the cubin, so that reading them needs no compiler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ...toolchain.demangle import demangled, split_at_commas

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
