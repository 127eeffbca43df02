"""Compile C++ with g++ or clang++ and CUDA with nvcc, each build cached; and what a library links against."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import NoSourceError, SourceNotFoundError
from . import manylinux
from .cache import cache_key, find, obtain
from .find import Compiler, find_cxx, find_nvcc, require_cuda_major, torch_cuda_version
from .headers import included_files
from .invoke import invoke

CXX_STANDARD = "c++20"  # torch 2.13's own choice for extensions
# Some compilers link their own C++ runtime into each library. Its symbols stay inside: mixed with those of the runtime
# that torch uses, even printing a number fails.
_CXX_FLAGS = ("-O3", "-fPIC", "-fvisibility=hidden", f"-std={CXX_STANDARD}", "-shared", "-Wl,--exclude-libs,ALL")
COMPILED = {".o", ".a"}

Abi = Literal["stable", "torch", "sleef", "plain"]
"""torch's stable ABI, the C++ ABI of one torch, its Sleef, or no torch at all."""

# The first torch whose stable ABI we use, 2.11: the library then loads into this torch and every later one.
STABLE_ABI = "0x020b000000000000"


@dataclass(frozen=True)
class AbiSettings:
    """``level`` is part of the cache key; the paths are this machine's, and not part of it."""

    level: str
    cflags: tuple[str, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    library_dirs: tuple[Path, ...] = ()
    libraries: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    """Libraries that the process has already loaded, and that the linker need not read (stub)."""


def release_settings(release: str, include: Path | None = None) -> AbiSettings:
    """The C++ API of a minor release of torch ("2.13"), whose headers are in ``include``: for a library that is shipped
    to users of that release. Nothing of torch needs to be installed."""
    include_dirs = () if include is None else (include, include / "torch/csrc/api/include")
    flags = ("-D_GLIBCXX_USE_CXX11_ABI=1",)
    return AbiSettings(f"torch-{release}", flags, include_dirs, stubs=("libtorch_cpu.so", "libc10.so"))


def abi_settings(abi: Abi | AbiSettings) -> AbiSettings:
    """Flags and directories for ``abi``, and its name in the cache key."""
    if isinstance(abi, AbiSettings):
        return abi
    if abi == "plain":
        return AbiSettings("plain")
    if abi == "sleef":
        return AbiSettings("sleef", stubs=("libtorch_cpu.so",))
    import torch

    package = Path(torch.__file__).parent
    include_dirs = (package / "include", package / "include/torch/csrc/api/include")
    # No run path to torch's libraries: they are in the process already, and the dynamic linker finds them by name.
    library_dirs, libraries = (package / "lib",), ("torch", "torch_cpu", "c10")
    if abi == "stable":
        level = f"torch-stable-{STABLE_ABI}"
        cflags = (f"-DTORCH_TARGET_VERSION={STABLE_ABI}",)
        return AbiSettings(level, cflags, include_dirs, library_dirs, libraries)
    if abi == "torch":
        cxx11 = int(torch._C._GLIBCXX_USE_CXX11_ABI)
        level = f"torch-{torch.__version__}-cxx11abi{cxx11}"
        return AbiSettings(level, (f"-D_GLIBCXX_USE_CXX11_ABI={cxx11}",), include_dirs, library_dirs, libraries)
    raise ValueError(f"abi must be 'stable', 'torch', 'sleef' or 'plain', not {abi!r}")


def compile_shared_library(
    name: str,
    sources: Sequence[Path] = (),
    *,
    text: str | None = None,
    abi: Abi | AbiSettings,
    extra_cflags: Sequence[str] = (),
    extra_ldflags: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    label: str | None = None,
) -> Path:
    """One shared library from C++ source files, objects (.o, .a) and generated ``text``: cached, or built now.

    ``abi`` is what it links against. The key holds the contents of the sources and of the author's headers, the flags,
    the machine's architecture and the ABI level.
    Raises CompileError, a CompilerBrokenError, CompilerNotFoundError, SourceNotFoundError.
    """
    plan = _Plan(name, sources, text, abi, extra_cflags, extra_ldflags, include_dirs, label or name)
    return obtain(plan.key, plan.build, label=plan.label, filenames=plan.filenames).path(plan.library)


def find_shared_library(
    name: str,
    sources: Sequence[Path],
    *,
    abi: Abi | AbiSettings,
    extra_cflags: Sequence[str] = (),
    label: str | None = None,
) -> Path | None:
    """The path that compile_shared_library would return, if it has been built; compiles nothing."""
    plan = _Plan(name, sources, None, abi, extra_cflags, (), (), label or name)
    found = find(plan.key, label=plan.label, filenames=plan.filenames)
    return None if found is None else found.path(plan.library)


class _Plan:
    """A build whose sources are read and whose key is known: to be looked up, or carried out."""

    def __init__(
        self,
        name: str,
        sources: Sequence[Path],
        text: str | None,
        abi: Abi | AbiSettings,
        cflags: Sequence[str],
        ldflags: Sequence[str],
        include_dirs: Sequence[Path],
        label: str,
    ) -> None:
        if not sources and text is None:
            raise NoSourceError(label)
        self.label, self.ldflags = label, ldflags
        self.settings = abi_settings(abi)
        self.sources = [Path(source).absolute() for source in sources]
        self.texts = {f"{file_stem(name)}.cpp": text} if text is not None else {}
        self.library = f"{file_stem(name)}.so"
        self.filenames = [self.library]
        flags, self.include_dirs = without_include_flags(cflags, include_dirs)
        self.flags = [*_CXX_FLAGS, *self.settings.cflags, *flags]
        self.key = cache_key(
            kind="shared-library",
            sources=contents(self.sources, self.texts, self.include_dirs, label),
            flags=[self.library, *self.flags, "--", *ldflags],
            arch=host_arch(flags),
            abi=self.settings.level,
        )

    def build(self, workdir: Path) -> dict[str, object]:
        for filename, text in self.texts.items():
            (workdir / filename).write_text(text)
        own_directories = [*(source.parent for source in self.sources), *self.include_dirs]
        compiled = [
            *self.flags,
            *prefix_maps([*own_directories, *self.settings.include_dirs]),
            *include_flags(self.include_dirs, self.settings.include_dirs),
            *self.texts,
            *map(str, self.sources),
            "-o",
            self.library,
        ]
        libraries = [
            *(f"-L{directory}" for directory in self.settings.library_dirs),
            "-Wl,--no-as-needed",
            *map(stub, self.settings.stubs),
            *(f"-l{library}" for library in self.settings.libraries),
            *self.ldflags,
        ]

        def run(between: Sequence[str]) -> dict[str, object]:
            return invoke(
                find_cxx(),
                [*compiled, *between, *libraries],
                workdir=workdir,
                output=self.library,
                label=self.label,
                own_directories=own_directories,
            )

        return manylinux.link(workdir / self.library, run, cxx="-nodefaultlibs" not in self.ldflags)


def stub(name: str) -> str:
    """The path of a library without symbols that the linker accepts in place of the one of that name.

    What is linked against it needs the real one when it is loaded, and finds its symbols there. Linking against
    libtorch_cpu.so itself takes 0.16 s, as long as compiling a small kernel: the linker reads all of its names.
    """
    flags = ("-shared", "-nostdlib", f"-Wl,-soname,{name}")
    key = cache_key(kind="stub", sources={}, flags=flags, arch=platform.machine(), abi="plain")

    def build(workdir: Path) -> dict[str, object]:
        return invoke(
            find_cxx(), [*flags, "-x", "c", "/dev/null", "-o", name], workdir=workdir, output=name, label=name
        )

    return str(obtain(key, build, label=f"a stub of {name}", filenames=[name]).path(name))


def compile_with_nvcc(name: str, source: Path, *, arch: str) -> Path:
    """A cubin of one CUDA source file for ``arch``, a GPU architecture such as "sm_90".

    Raises NvccNotFoundError, CudaVersionMismatchError, and what ``compile_shared_library`` raises.
    """
    source = Path(source).absolute()
    cubin = f"{file_stem(name)}.cubin"
    flags = ["-O3", f"-std={CXX_STANDARD}", f"-arch={arch}", "-cubin"]
    key = cache_key(
        kind="nvcc-cubin",
        sources=contents([source], {}, (), name),
        flags=[cubin, *flags],
        arch=arch,
        abi=f"cuda{cuda_major()}",
    )

    def build(workdir: Path) -> dict[str, object]:
        arguments = [*flags, *host_compiler_flags(), str(source), "-o", cubin]
        return invoke(
            nvcc_for_torch(),
            arguments,
            workdir=workdir,
            output=cubin,
            label=name,
            own_directories=[source.parent],
        )

    return obtain(key, build, label=name, filenames=[cubin]).path(cubin)


def cuda_major() -> str:
    """The major version of the CUDA that code is compiled for: torch's own, else nvcc's."""
    return (torch_cuda_version() or find_nvcc().version).split(".")[0]


def nvcc_for_torch() -> Compiler:
    """nvcc, of the major version of torch's CUDA; raises NvccNotFoundError, CudaVersionMismatchError."""
    nvcc, torch_cuda = find_nvcc(), torch_cuda_version()
    if torch_cuda:
        remedy = f"Set CUDA_HOME to a CUDA {torch_cuda.split('.')[0]} toolkit."
        require_cuda_major("nvcc", nvcc.version, torch_cuda, remedy)
    return nvcc


def host_compiler_flags() -> list[str]:
    """nvcc's flags for the host compiler; none for a wrapper such as "ccache g++", which nvcc cannot start."""
    host = find_cxx()
    return [] if host.arguments else ["-ccbin", str(host.path)]


def include_flags(own: Iterable[Path], system: Iterable[Path]) -> list[str]:
    """-I for the author's directories; -isystem for others, whose warnings are not the author's."""
    flags = [f"-I{directory}" for directory in own]
    return flags + [part for directory in dict.fromkeys(system) for part in ("-isystem", str(directory))]


def host_arch(flags: Sequence[str]) -> str:
    """The machine's architecture; for "native" code its processor's features too, as machines may share a cache."""
    machine = platform.machine()
    if not any(flag.endswith("=native") for flag in flags):
        return machine
    features = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    digest = hashlib.sha256((features[1] if features else platform.processor()).encode()).hexdigest()
    return f"{machine}-native-{digest[:16]}"


def contents(
    sources: Iterable[Path], texts: Mapping[str, str], include_dirs: Sequence[Path], label: str
) -> dict[str, str | bytes]:
    """Every file that the build depends on, under names that are the same on every machine."""
    found: dict[str, str | bytes] = {}
    for filename, text in texts.items():
        found[f"text {filename}"] = text
        found.update(included_files(text, None, include_dirs))
    for number, source in enumerate(sources):
        try:
            data = source.read_bytes()
        except OSError as error:
            raise SourceNotFoundError(source, label, error.strerror or str(error)) from error
        found[f"source {number} {source.name}"] = data
        if source.suffix not in COMPILED:
            headers = included_files(data.decode(errors="replace"), source.parent, include_dirs)
            found.update({f"header {number} {name}": header for name, header in headers.items()})
    return found


def without_include_flags(flags: Sequence[str], include_dirs: Sequence[Path]) -> tuple[list[str], list[Path]]:
    """Take -I out of the flags: its directory is read for headers like any other, and the key is free of paths."""
    rest: list[str] = []
    directories = [Path(directory).absolute() for directory in include_dirs]
    remaining = iter(flags)
    for flag in remaining:
        if flag == "-isystem":
            directories.append(Path(next(remaining, ".")).absolute())
        elif flag.startswith("-I"):
            directories.append(Path(flag[2:] or next(remaining, ".")).absolute())
        else:
            rest.append(flag)
    return rest, directories


def prefix_maps(directories: Iterable[Path]) -> list[str]:
    """Take this machine's paths out of __FILE__, which error messages carry: the key does not contain them."""
    # nvcc splits what it passes to the host compiler at commas.
    return [
        f"-fmacro-prefix-map={directory}/=" for directory in dict.fromkeys(directories) if "," not in str(directory)
    ]


def file_stem(name: str) -> str:
    """A file name for an op's name: "mylib::mish" becomes mylib__mish."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-") or "unnamed"
