"""Compile CUDA C++ with the machine's C++ compiler to assembly in which every variable has unused bytes around it."""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Sequence
from pathlib import Path

from ..errors import CompileError
from ..toolchain import cache_key, find_cxx, obtain
from ..toolchain.invoke import invoke
from . import shared_memory
from .mirror import Mirror
from .refused import refusal, refuse_assembly

NATIVE = Path(__file__).parent / "native"
INCLUDE = Path(__file__).parent / "include"
OPSMITH_INCLUDE = Path(__file__).parents[1] / "include"
SETTLED = {INCLUDE: "/opsmith/emulator/include", OPSMITH_INCLUDE: "/opsmith/include"}
"""The names of opsmith's own headers in debug information: another installation may have built a cached library."""
ASSEMBLY = "kernels.s"
_CUDA = "opsmith_cuda.h"
_PRELUDE = f"{_CUDA} for the emulator"
RED_ZONE = 256
"""Unused bytes behind each static __shared__ variable."""

# DWARF 4: addr2line of binutils 2.40 places some lines of version 5 in another file. The locations of variables serve
# only debuggers, and would take a fifth of the compiler's time.
FLAGS = (
    "-std=c++20", "-gdwarf-4", "-fno-var-tracking", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique",
    "-fno-math-errno", "-ffp-contract=off", "-w", "-pthread",
    # A frame that is too large for its stack must hit the guard page below it; memcpy and printf must keep their names;
    # a call must return to the kernel, because its line is known by the return address.
    "-fstack-clash-protection", "-U_FORTIFY_SOURCE", "-fno-builtin-printf", "-fno-optimize-sibling-calls",
)  # fmt: skip
# The compiler emits a call before each load and store, for each addition that might overflow, and for each pointer that
# might be misaligned; native/runtime.cpp defines what is called.
# Volatile accesses have calls of their own.
CHECKED = (
    "-O1", "-fsanitize=thread", "--param=tsan-distinguish-volatile=1",
    "-fsanitize=signed-integer-overflow,alignment,integer-divide-by-zero",
    # Allocations that are never needed are checked too.
    "-fno-builtin-malloc", "-fno-builtin-free", "-fno-allocation-dce",
)  # fmt: skip
UNCHECKED = ("-O2",)
# Functions of the C library, and operators new and delete, which the linker replaces with the runtime's.
WRAPPED = tuple(
    f"-Wl,--wrap={name}"
    for name in (
        "memcpy", "memmove", "memset", "malloc", "free",
        *(f"{new}{kind}" for new in ("_Znwm", "_Znam") for kind in ("", "RKSt9nothrow_t", "St11align_val_t")),
        *(f"{delete}{size}{kind}" for delete in ("_ZdlPv", "_ZdaPv") for size in ("", "m")
          for kind in ("", "St11align_val_t")),
    )
)  # fmt: skip
_LONG_OPTIONS = {"--define-macro": "-D", "--undefine-macro": "-U"}
_MACRO = re.compile(r"^(?P<option>-D|-U|--define-macro|--undefine-macro)(?P<value>.*)$", re.DOTALL)
_VARIABLE = re.compile(r"^(?P<label>[^\s:#.][^\s:]*):\n\t\.zero\t(?P<bytes>\d+)$", re.MULTILINE)
_OBJECT = re.compile(
    r"^\t\.type\t(?P<name>[^,\s]+), ?@object\n(?:\t\.size\t[^\n]+\n)?(?P<label>(?P=name):\n)", re.MULTILINE
)
_COMMON = re.compile(r"^\t\.local\t(?P<name>\S+)\n\t\.comm\t(?P=name),(?P<bytes>\d+),(?P<alignment>\d+)$", re.MULTILINE)
# Sections of __device__ and __constant__ variables.
_OF_THE_DEVICE = (".data", ".bss", "opsmith_constant", "opsmith_constant_of_const")
_SECTION = re.compile(r"^\t(?:\.section\t(?P<name>[^,\n]+)|(?P<plain>\.(?:text|data|bss))\b)", re.MULTILINE)


def own_headers() -> dict[str, str | bytes]:
    """The emulator's headers, as parts of a key."""
    paths = [path for path in (*INCLUDE.rglob("*"), NATIVE / "interface.h", NATIVE / "host.h") if path.is_file()]
    return {f"emulator/{path.relative_to(INCLUDE.parent)}": path.read_bytes() for path in sorted(paths)}


def own_flags(checks: bool) -> list[str]:
    """The flags of everything that is emulated."""
    return [*FLAGS, *(CHECKED if checks else UNCHECKED)]


def macros(options: Sequence[str]) -> list[str]:
    """-DNAME=VALUE and -UNAME, in their order, for NVRTC's and nvcc's spellings: -DX, -D X, -D=X, --define-macro=X, and
    each with its value as a separate option."""
    found = []
    remaining = iter(options)
    for given in remaining:
        match = _MACRO.match(given)
        if match is None:
            continue
        option = _LONG_OPTIONS.get(match["option"], match["option"])
        value = match["value"] or next(remaining, "")
        found.append(option + value.removeprefix("=").strip())
    return found


def assemble(
    source: Path,
    checks: bool,
    flags: Sequence[str],
    mirror: Mirror,
    *,
    workdir: Path,
    label: str,
    system_dirs: Sequence[Path] = (),
) -> None:
    """Compile a translated text to `workdir / ASSEMBLY`, with these flags in addition to our own.

    Raises CompileError with the author's lines, and UnsupportedFeatureError."""
    command = [
        *own_flags(checks), *flags,
        # First, because an author may name the directory of CUDA's own headers too.
        "-include", str(INCLUDE / _CUDA if flags else _prelude(checks)), f"-I{INCLUDE}",
        *mirror.flags(workdir, system_dirs), *_prefix_maps(), "-x", "c++", "-S", str(source), "-o", ASSEMBLY,
    ]  # fmt: skip
    try:
        invoke(
            find_cxx(), command, workdir=workdir, output=ASSEMBLY, label=label,
            own_directories=mirror.own_directories, is_text=True,
        )  # fmt: skip
    except CompileError as error:
        if refused := refusal(error, label):
            raise mirror.refusals.get(refused.feature, refused) from None
        raise
    assembly = (workdir / ASSEMBLY).read_text()
    refuse_assembly(assembly, label, mirror.own_directories)
    (workdir / ASSEMBLY).write_text(shared_memory.noted(_with_red_zones(assembly)))


def _prelude(checks: bool) -> Path:
    header = _kept_prelude(checks)
    if not header.exists():  # the cache was cleared
        _kept_prelude.cache_clear()
        header = _kept_prelude(checks)
    return header


@functools.cache
def _kept_prelude(checks: bool) -> Path:
    """The headers that every source begins with, precompiled: reading them takes half of the time of a small kernel.
    Only for our own flags: an author's macro may change what they declare."""
    header, compiler = INCLUDE / _CUDA, find_cxx()
    if compiler.kind != "gcc":
        return header
    flags = [*own_flags(checks), f"-I{INCLUDE}", *_prefix_maps()]
    key = cache_key(
        kind="emulated-prelude", sources=own_headers(), flags=flags, arch="host", abi=f"{compiler} {INCLUDE}"
    )
    kept = f"{header.name}.gch"

    def build(workdir: Path) -> dict[str, object]:
        (workdir / header.name).write_text(f'#include "{header}"\n')
        return invoke(
            compiler, [*flags, "-x", "c++-header", str(workdir / header.name), "-o", kept], workdir=workdir,
            output=kept, label=_PRELUDE, is_text=True,
        )  # fmt: skip

    try:
        return obtain(key, build, label=_PRELUDE, filenames=[header.name, kept]).path(header.name)
    except CompileError:
        return header  # a compiler without precompiled headers


def _prefix_maps() -> list[str]:
    return [f"-fdebug-prefix-map={place}={name}" for place, name in SETTLED.items()]


def _with_red_zones(assembly: str) -> str:
    """Put RED_ZONE unused bytes around variables, so that running over the end of one does not reach the next: behind
    each thread-local variable, which is a block's here; before each device variable, and behind the last."""

    def common(found: re.Match[str]) -> str:
        name, size = found["name"], found["bytes"]
        return (
            f"\t.pushsection .bss\n\t.balign\t{found['alignment']}\n\t.zero\t{RED_ZONE}\n"
            f"\t.type\t{name}, @object\n\t.size\t{name}, {size}\n{name}:\n\t.zero\t{size}\n\t.popsection"
        )

    def section(found: re.Match[str]) -> str:
        before = bisect.bisect(starts, found.start()) - 1
        return names[before] if before >= 0 else ""

    def widened(found: re.Match[str]) -> str:
        if not section(found).startswith(".tbss"):
            return found[0]
        return f"{found['label']}:\n\t.zero\t{int(found['bytes']) + RED_ZONE}"

    def preceded(found: re.Match[str]) -> str:
        if section(found) not in _OF_THE_DEVICE:
            return found[0]
        return found[0].removesuffix(found["label"]) + f"\t.zero\t{RED_ZONE}\n{found['label']}"

    for pattern, replaced in ((_VARIABLE, widened), (_OBJECT, preceded)):
        found_sections = list(_SECTION.finditer(assembly))
        starts = [found.start() for found in found_sections]
        names = [found["name"] or found["plain"] for found in found_sections]
        assembly = pattern.sub(replaced, assembly)
    behind = f"\t.zero\t{RED_ZONE}\n"
    ends = (
        "\t.data\n", "\t.bss\n", '\t.section\topsmith_constant,"aw"\n', '\t.section\topsmith_constant_of_const,"a"\n'
    )  # fmt: skip
    return _COMMON.sub(common, assembly) + "".join(end + behind for end in ends)
