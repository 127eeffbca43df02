"""The code that is appended to a source to enter its kernels: for each a plain C function, and facts about it.

The compiler may reject a kernel's entry: an instance that the template does not have, a kernel inside an #if. The line
of its error identifies the entry, and the source is compiled without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..cuda_text.declarations import KernelText
from ..kernels.cuda_source.types import PRELUDE
from ..toolchain.diagnostics import Diagnostic

MARKER = "13shared_marker"
FILE = "<opsmith>"
"""The file name of these lines."""

Entry = tuple[str, int]
"""A kind, 'kernel', 'constant', 'bound' or 'cluster', and its number."""

_KINDS = ("prelude", "kernel", "constant", "bound", "cluster")
_OF_A_KIND, _OF_AN_ENTRY = 10**8, 10  # lines


def text(
    spellings: Sequence[str],
    constants: Sequence[str] = (),
    kernels: Mapping[str, KernelText] | None = None,
    refused: Mapping[Entry, str] | None = None,
) -> str:
    """The C++ for these kernels: opsmith_enter_<number>, opsmith_signature_<number>, and where the author has written
    __launch_bounds__ or __cluster_dims__, opsmith_bound_<number> and opsmith_cluster_<number>; for constants of the
    source opsmith_constant_<number>, its address, opsmith_constant_bytes_<number>, opsmith_constant_type_<number>.

    Those in `refused` are left out; a kernel then has opsmith_refusal_<number>, the compiler's message.
    """
    made: dict[Entry, str] = {("constant", number): _constant(number, name) for number, name in enumerate(constants)}
    for number, spelling in enumerate(spellings):
        made["kernel", number] = _kernel(number, spelling)
        written = (kernels or {}).get(spelling.partition("<")[0])
        if written is not None and written.launch_bounds:
            made["bound", number] = _value("bound", number, spelling, written, f"first({written.launch_bounds})")
        if written is not None and written.cluster_dims:
            made["cluster", number] = _value("cluster", number, spelling, written, f"packed({written.cluster_dims})")
    for (kind, number), message in (refused or {}).items():
        made.pop((kind, number), None)
        if kind == "kernel":
            made.pop(("bound", number), None)
            made.pop(("cluster", number), None)
            made[kind, number] = _refusal(number, message)
    lines = [f'#line 1 "{FILE}"\n{_PRELUDE_TEXT}']
    for (kind, number), entry in made.items():
        line = _KINDS.index(kind) * _OF_A_KIND + number * _OF_AN_ENTRY
        lines.append(f'#line {line + 1} "{FILE}"\n{entry}')
    return "\n".join(lines) + "\n"


def refused(errors: Iterable[object]) -> dict[Entry, str]:
    """The entries that the compiler rejects, with its first message on each."""
    found: dict[Entry, str] = {}
    for error in errors:
        if not isinstance(error, Diagnostic) or error.file != FILE or error.line < _OF_A_KIND:
            continue
        kind, rest = divmod(error.line, _OF_A_KIND)
        found.setdefault((_KINDS[kind], rest // _OF_AN_ENTRY), error.message.splitlines()[0])
    return found


def _kernel(number: int, spelling: str) -> str:
    return (
        f"OPSMITH_EXPORTED void opsmith_enter_{number}(void** arguments) {{\n"
        f"  opsmith_internal::enter(&{spelling}, arguments);\n"
        "}\n"
        f"OPSMITH_EXPORTED const char* opsmith_signature_{number}() {{\n"
        f"  return typeid(opsmith_internal::of<decltype(&{spelling})>::all).name();\n"
        "}"
    )


def _constant(number: int, name: str) -> str:
    return (
        f"OPSMITH_EXPORTED void* opsmith_constant_{number}() {{ return (void*)&{name}; }}\n"
        f"OPSMITH_EXPORTED unsigned long opsmith_constant_bytes_{number}() {{ return sizeof({name}); }}\n"
        f"OPSMITH_EXPORTED const char* opsmith_constant_type_{number}() {{\n"
        f"  return typeid(opsmith_internal::list<opsmith_internal::element<decltype({name})>::type>).name();\n"
        "}"
    )


def _value(kind: str, number: int, spelling: str, written: KernelText, call: str) -> str:
    """A number from what an attribute of the kernel is given, in its scope and with its template's parameters."""
    scope, _, _ = written.name.rpartition("::")
    arguments = spelling[len(written.name) :]
    template = f"template <{', '.join(written.template)}> " if written.template is not None else ""
    value = f"{template}constexpr long opsmith_{kind}_of_{number} = opsmith_internal::{call};"
    return (
        f"{f'namespace {scope} {{ {value} }}' if scope else value}\n"
        f"OPSMITH_EXPORTED long opsmith_{kind}_{number}() {{\n"
        f"  return {scope}::opsmith_{kind}_of_{number}{arguments};\n"
        "}"
    )


def _refusal(number: int, message: str) -> str:
    quoted = message.replace("\\", "\\\\").replace('"', '\\"')
    return f'OPSMITH_EXPORTED const char* opsmith_refusal_{number}() {{ return "{quoted}"; }}'


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
template <class... Others>
constexpr long first(long value, Others...) {
  return value;
}
constexpr long packed(long x, long y = 1, long z = 1) {
  return x | y << 16 | z << 32;
}
static thread_local char shared_marker;
}
#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default"), no_sanitize("thread", "undefined")))
OPSMITH_EXPORTED void* opsmith_shared_marker() { return &opsmith_internal::shared_marker; }
"""
)
