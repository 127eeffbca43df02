"""What is appended to a source so that its kernels can be entered: for each a plain C function, and its signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..kernels.cuda_source.signature import PRELUDE

MARKER = "13shared_marker"


def text(spellings: Mapping[int, str], constants: Sequence[str] = ()) -> str:
    """The C++ for these kernels: opsmith_enter_<number>, opsmith_signature_<number>; and for constants of the source:
    opsmith_constant_<number>, its address, opsmith_constant_bytes_<number>, opsmith_constant_type_<number>."""
    lines = [_PRELUDE_TEXT]
    for number, name in enumerate(constants):
        lines.append(
            f"OPSMITH_EXPORTED void* opsmith_constant_{number}() {{ return (void*)&{name}; }}\n"
            f"OPSMITH_EXPORTED unsigned long opsmith_constant_bytes_{number}() {{ return sizeof({name}); }}\n"
            f"OPSMITH_EXPORTED const char* opsmith_constant_type_{number}() {{\n"
            f"  return typeid(opsmith_internal::list<opsmith_internal::element<decltype({name})>::type>).name();\n"
            "}"
        )
    for number, spelling in spellings.items():
        lines.append(
            f"OPSMITH_EXPORTED void opsmith_enter_{number}(void** arguments) {{\n"
            f"  opsmith_internal::enter(&{spelling}, arguments);\n"
            "}\n"
            f"OPSMITH_EXPORTED const char* opsmith_signature_{number}() {{\n"
            f"  return typeid(opsmith_internal::of<decltype(&{spelling})>::all).name();\n"
            "}"
        )
    return "\n".join(lines) + "\n"


_PRELUDE_TEXT = (
    """
#include <cstddef>
#include <typeinfo>
#include <utility>
"""
    + PRELUDE
    + """
namespace opsmith_internal {
template <class... P, std::size_t... I>
__attribute__((no_sanitize("thread", "undefined"))) void enter_with(
    void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<P*>(arguments[I])...);
}
template <class... P>
__attribute__((no_sanitize("thread", "undefined"))) void enter(void (*kernel)(P...), void** arguments) {
  enter_with(kernel, arguments, std::index_sequence_for<P...>());
}
static thread_local char shared_marker;
}
#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default"), no_sanitize("thread", "undefined")))
OPSMITH_EXPORTED void* opsmith_shared_marker() { return &opsmith_internal::shared_marker; }
"""
)
