"""Compile C++ with g++ or clang++ and CUDA with nvcc, each build cached."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import NoSourceError, SourceNotFoundError
from .abi import Abi, abi_settings
from .cache import cache_key, find, obtain
from .find import Compiler, find_cxx, find_nvcc, require_cuda_major, torch_cuda_version
from .headers import included_files
from .invoke import invoke
from .stand_in import stand_in

CXX_STANDARD = "c++20"  # torch 2.13's own choice for extensions
# Some compilers link a C++ runtime of their own into each library. Its symbols stay inside: mixed with those of the
# runtime that torch uses, even printing a number fails.
_CXX_FLAGS = ("-O3", "-fPIC", "-fvisibility=hidden", f"-std={CXX_STANDARD}", "-shared", "-Wl,--exclude-libs,ALL")
_NVCC_FLAGS = {
    "cubin": ("-cubin",),
    "object": ("-c", "-Xcompiler=-fPIC,-fvisibility=hidden"),
    "shared": ("-shared", "-Xcompiler=-fPIC,-fvisibility=hidden", "-Xlinker=--exclude-libs=ALL"),
}
_NVCC_SUFFIXES = {"cubin": ".cubin", "object": ".o", "shared": ".so"}
COMPILED = {".o", ".a"}


def compile_shared_library(
    name: str,
    sources: Sequence[Path] = (),
    *,
    text: str | None = None,
    abi: Abi,
    extra_cflags: Sequence[str] = (),
    extra_ldflags: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    libraries: Sequence[str] = (),
    label: str | None = None,
) -> Path:
    """One shared library from C++ source files, objects (.o, .a) and generated ``text``: cached, or built now.

    ``abi`` says what it links against. The key holds the contents of the sources and of the author's headers, the
    flags, the machine's architecture and the ABI level.
    Raises CompileError, a CompilerBrokenError, CompilerNotFoundError, SourceNotFoundError.
    """
    plan = _plan(name, sources, text, abi, extra_cflags, extra_ldflags, include_dirs, libraries, label or name)
    return obtain(plan.key, plan.build, label=plan.label, filenames=plan.filenames).path(plan.library)


def find_shared_library(
    name: str, sources: Sequence[Path], *, abi: Abi, extra_cflags: Sequence[str] = (), label: str | None = None
) -> Path | None:
    """What compile_shared_library would return, if it has been built; compiles nothing."""
    plan = _plan(name, sources, None, abi, extra_cflags, (), (), (), label or name)
    found = find(plan.key, label=plan.label, filenames=plan.filenames)
    return None if found is None else found.path(plan.library)


@dataclass(frozen=True)
class _Plan:
    """A build that has its key: to be looked up, or carried out."""

    key: str
    build: Callable[[Path], dict[str, object]]
    label: str
    library: str
    filenames: Sequence[str]


def _plan(
    name: str,
    sources: Sequence[Path],
    text: str | None,
    abi: Abi,
    extra_cflags: Sequence[str],
    extra_ldflags: Sequence[str],
    include_dirs: Sequence[Path],
    libraries: Sequence[str],
    label: str,
) -> _Plan:
    if not sources and text is None:
        raise NoSourceError(label)
    sources = [Path(source).absolute() for source in sources]
    settings = abi_settings(abi)
    flags, include_dirs = without_include_flags(extra_cflags, include_dirs)
    generated = f"{file_stem(name)}.cpp"
    library = f"{file_stem(name)}.so"
    texts = {generated: text} if text is not None else {}
    own_directories = [*(source.parent for source in sources), *include_dirs]
    maps = prefix_maps([*own_directories, *settings.include_dirs])
    key = cache_key(
        kind="shared-library",
        sources=contents(sources, texts, include_dirs, label),
        flags=[library, *_CXX_FLAGS, *settings.cflags, *flags, "--", *libraries, "--", *extra_ldflags],
        arch=host_arch(flags),
        abi=settings.level,
    )

    def build(workdir: Path) -> dict[str, object]:
        for filename, contents in texts.items():
            (workdir / filename).write_text(contents)
        arguments = [
            *_CXX_FLAGS,
            *settings.cflags,
            *flags,
            *maps,
            *(f"-I{directory}" for directory in include_dirs),
            # As system headers, so that their warnings are not the author's.
            *(part for directory in settings.include_dirs for part in ("-isystem", str(directory))),
            *texts,
            *map(str, sources),
            "-o",
            library,
            *(f"-L{directory}" for directory in settings.library_dirs),
            "-Wl,--no-as-needed",
            *(str(stand_in(name)) for name in settings.names),
            *(f"-l{library}" for library in (*settings.libraries, *libraries)),
            *extra_ldflags,
        ]
        return invoke(
            find_cxx(),
            arguments,
            workdir=workdir,
            output=workdir / library,
            label=label,
            own_directories=own_directories,
        )

    return _Plan(key, build, label, library, [library, *texts])


def compile_with_nvcc(
    name: str,
    source: Path,
    *,
    arch: str,
    output: Literal["cubin", "object", "shared"] = "cubin",
    abi: Abi = "plain",
    extra_flags: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    libraries: Sequence[str] = (),
    label: str | None = None,
) -> Path:
    """A cubin, an object (for ``compile_shared_library`` to link) or a shared library from one CUDA source file.

    ``arch`` is a GPU architecture such as "sm_90". Raises NvccNotFoundError, CudaVersionMismatchError, and what
    ``compile_shared_library`` raises.
    """
    label = label or name
    source = Path(source).absolute()
    settings = abi_settings(abi)
    flags, include_dirs = without_include_flags(extra_flags, include_dirs)
    common = ("-O3", f"-std={CXX_STANDARD}", f"-arch={arch}", *_NVCC_FLAGS[output], *settings.cflags, *flags)
    result = file_stem(name) + _NVCC_SUFFIXES[output]
    own_directories = [source.parent, *include_dirs]
    key = cache_key(
        kind=f"nvcc-{output}",
        sources=contents([source], {}, include_dirs, label),
        flags=[result, *common, "--", *libraries],
        arch=arch if output == "cubin" else f"{host_arch(flags)} {arch}",
        abi=f"{settings.level} cuda{cuda_major()}",
    )

    def build(workdir: Path) -> dict[str, object]:
        nvcc, host = nvcc_for_torch(), find_cxx()
        linked = (*settings.libraries, *libraries) if output == "shared" else ()
        arguments = [
            *common,
            *(f"-Xcompiler={flag}" for flag in prefix_maps([*own_directories, *settings.include_dirs])),
            *(() if host.arguments else ("-ccbin", str(host.path))),
            *(f"-I{directory}" for directory in include_dirs),
            *(part for directory in settings.include_dirs for part in ("-isystem", str(directory))),
            str(source),
            "-o",
            result,
            *(f"-L{directory}" for directory in settings.library_dirs),
            "-Xlinker=--no-as-needed",
            *(f"-l{library}" for library in linked),
        ]
        return invoke(
            nvcc,
            arguments,
            workdir=workdir,
            output=workdir / result,
            label=label,
            own_directories=own_directories,
        )

    return obtain(key, build, label=label, filenames=[result]).path(result)


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


def host_arch(flags: Sequence[str]) -> str:
    """The machine's architecture; for "native" code its processor's features too: machines may share a home."""
    machine = platform.machine()
    if not any(flag.endswith("=native") for flag in flags):
        return machine
    features = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    digest = hashlib.sha256((features[1] if features else platform.processor()).encode()).hexdigest()
    return f"{machine}-native-{digest[:16]}"


def contents(
    sources: Iterable[Path], texts: dict[str, str], include_dirs: Sequence[Path], label: str
) -> dict[str, str | bytes]:
    """Every file that makes the build what it is, under names that are the same on every machine."""
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
    """Take this machine's paths out of __FILE__, which error messages carry: the key does not know where files lie."""
    # nvcc cuts what it hands to the host compiler at commas.
    return [
        f"-fmacro-prefix-map={directory}/=" for directory in dict.fromkeys(directories) if "," not in str(directory)
    ]


def file_stem(name: str) -> str:
    """A file name for an op's name: "mylib::mish" becomes mylib__mish."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name).lstrip(".-") or "unnamed"
