"""Where the libraries of a package load: on which systems, and in which releases of torch.

auditwheel and torch-abi-audit run if they are installed. Neither reports symbols of the C++ library that a library
imports without a version, which torch's libraries then provide, or a file that is not a library: both are found here.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..toolchain import manylinux
from ..toolchain.linkage import Linkage, NoLibraryError, Symbol, read_linkage

TOOLS = ("auditwheel", "torch-abi-audit")
RUNTIME = "C++ runtimes"
_KINDS = {"pointwise.so": "generated kernels", "opsmith_planner.so": "launch planner", "opsmith_runtime.so": RUNTIME}
_EXTENSIONS = "extensions"
_OF_TORCH = ("libtorch*.so", "libc10*.so")
_CXX_LIBRARY = re.compile(r"_Z(N[KRO]*St|St|TISt|TVSt|TVN10__cxxabiv|N9__gnu_cxx)")
_CXX_OF_TORCH = tuple(f"_Z{letters}{name}" for letters in ("N", "NK") for name in ("5torch", "2at", "3c10"))
_SHIM = ("aoti_torch_", "torch_")
_UNKNOWN = "linux"
_SHOWN = 3


@dataclass(frozen=True)
class Verdict:
    """The verdict on one kind of library. `policy`: the oldest systems on which all of them load; "linux" if that is
    unknown."""

    kind: str
    count: int
    policy: str
    torch: str
    problems: tuple[str, ...]

    def __str__(self) -> str:
        libraries = "1 library" if self.count == 1 else f"{self.count} libraries"
        return f"{self.kind}: {libraries}, {self.policy}, {self.torch}"


def audited(directory: Path) -> list[Verdict]:
    """A verdict on each kind of library among the files of a package, or on one file."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(directory.rglob("*.so")) if directory.is_dir() else [directory]:
        kind = "operators" if path.name.startswith("lib") else _KINDS.get(path.name, _EXTENSIONS)
        kinds.setdefault(kind, []).append(path)
    return [_verdict(kind, paths) for kind, paths in sorted(kinds.items())]


def tools_missing() -> list[str]:
    """Those of TOOLS that are not installed."""
    return [name for name in TOOLS if not installed(name)]


def platform_tag(verdicts: Sequence[Verdict]) -> str:
    """The platform of a wheel with these libraries: that of torch's own wheels, or a later one."""
    machine = platform.machine()
    policies = {verdict.policy for verdict in verdicts} - {manylinux.POLICY}
    if _UNKNOWN in policies:
        return f"{_UNKNOWN}_{machine}"
    return f"{max(policies, key=_version, default=manylinux.POLICY)}_{machine}"


def _version(policy: str) -> tuple[int, ...]:
    return tuple(map(int, policy.split("_")[1:3]))


def _verdict(kind: str, paths: Sequence[Path]) -> Verdict:
    distinct: dict[object, tuple[Path, Linkage]] = {}
    problems: list[str] = []
    for path in paths:
        try:
            linkage = read_linkage(path)
        except NoLibraryError as error:
            problems.append(f"{path.parent.name}: {error}")
        else:
            # Libraries that import the same symbols have the same verdict. Many kernels share a few sets of symbols.
            distinct.setdefault((linkage.needed, linkage.taken), (path, linkage))
    for path, linkage in distinct.values():
        if newer := manylinux.beyond_policy(linkage):
            problems.append(f"{path.name} needs {_some(newer)}, which {manylinux.POLICY} lacks")
        if taken := [symbol.name for symbol in _unversioned(linkage) if _CXX_LIBRARY.match(symbol.name)]:
            problems.append(f"{path.name} takes {_some(taken)} of the C++ library from torch: not every torch has it")
    policy = _policy(list(distinct.values()))
    torch, unstable = _torch(kind, distinct.values())
    return Verdict(kind, len(paths), policy, torch, (*problems, *unstable))


def _policy(libraries: Sequence[tuple[Path, Linkage]]) -> str:
    """The oldest systems that all of them load on; not older than those of torch itself."""
    if not libraries:
        return _UNKNOWN
    newer = any(manylinux.beyond_policy(linkage) for _, linkage in libraries)
    if not installed("auditwheel"):
        return _UNKNOWN if newer else manylinux.POLICY
    found = _by_auditwheel([path for path, _ in libraries])
    if found == _UNKNOWN or _version(found) > _version(manylinux.POLICY):
        return found
    return _UNKNOWN if newer else manylinux.POLICY


def _unversioned(linkage: Linkage) -> list[Symbol]:
    """The symbols that any library of the process may provide."""
    return [symbol for symbol in linkage.taken if symbol.version is None and not symbol.is_weak]


def _torch(kind: str, libraries: Iterable[tuple[Path, Linkage]]) -> tuple[str, list[str]]:
    """What they use of torch, and problems: uses that torch changes between releases."""
    uses, problems, since = set(), [], set()
    for path, linkage in libraries:
        names = [symbol.name for symbol in _unversioned(linkage)]
        unstable = [name for name in names if name.startswith(_CXX_OF_TORCH)]
        if unstable and kind != RUNTIME:
            problems.append(f"{path.name} uses torch's C++ API, which changes with its releases: {_some(unstable)}")
        if any(name.startswith("Sleef_") for name in names):
            uses.add("the Sleef in torch")
        if unstable:
            uses.add("the C++ API of one torch each" if kind == RUNTIME else "the C++ API of one torch")
        elif any(name.startswith(_SHIM) for name in names):
            uses.add("torch's stable ABI")
            if kind != RUNTIME and installed("torch-abi-audit"):
                found, refused = _by_torch_abi_audit(path)
                since.update(found)
                problems += refused
    text = " and ".join(sorted(uses)) or "no torch"
    return (f"{text} since {max(since, key=_release)}" if since else text), problems


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def installed(distribution: str) -> bool:
    try:
        return bool(importlib.metadata.version(distribution))
    except importlib.metadata.PackageNotFoundError:
        return False


def _by_auditwheel(libraries: Sequence[Path]) -> str:
    """The policy of a wheel with these libraries: "manylinux_2_24", or "linux"."""
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.wheel_abi import analyze_wheel_abi

    machine = platform.machine()
    with tempfile.TemporaryDirectory(prefix="opsmith-audit-") as scratch:
        wheel = Path(scratch, f"audited-0-py3-none-linux_{machine}.whl")
        with zipfile.ZipFile(wheel, "w") as archive:
            names = [f"audited/{number}.so" for number in range(len(libraries))]
            for name, library in zip(names, libraries, strict=True):
                archive.write(library, name)
            archive.writestr("audited-0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
            archive.writestr("audited-0.dist-info/RECORD", "".join(f"{name},,\n" for name in names))
        found = analyze_wheel_abi(
            Libc.GLIBC,
            Architecture(machine),
            wheel,
            frozenset(_OF_TORCH),
            disable_isa_ext_check=True,  # kernels for AVX are loaded where the processor has it
            allow_graft=False,
        )
    return str(min(found.sym_policy, found.ref_policy).name).removesuffix(f"_{machine}")


def _by_torch_abi_audit(library: Path) -> tuple[list[str], list[str]]:
    """The oldest torch that a library loads into, and the library's problems."""
    from torch_abi_audit import inspect_extension

    report = inspect_extension(library)
    if report.error:
        return [], [f"torch-abi-audit on {library.name}: {report.error}"]
    if report.torch.uses_torch and not report.torch.stable:
        return [], [f"torch-abi-audit: {library.name} uses {_some(report.torch.unstable_symbols)}"]
    version = report.torch.min_torch_version
    return [version] if version else [], []


def _some(names: Iterable[str]) -> str:
    every = [str(name) for name in names]
    return ", ".join(every[:_SHOWN]) + (f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else "")
