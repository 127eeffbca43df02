"""`make compat`: the C++ of opsmith on the oldest and the newest torch of the package index, and tests of its runtime
and of generated kernels; the Sleef in every torch between.

Each torch is installed below build/compat by itself, without NVIDIA's packages (2.3 GB): libraries whose functions fail
take their place, since a machine without a GPU calls none of them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from pathlib import Path

import native_kernels

from opsmith.runtime import native
from opsmith.shipping import torch_headers
from opsmith.toolchain import find_cxx
from opsmith.toolchain.compile import STABLE_ABI
from opsmith.toolchain.linkage import read_linkage

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "compat"
TESTS = (
    "tests/runtime/test_tiers.py",
    "tests/operator/test_op.py",
    "tests/operator/test_kernels.py",
    "tests/generate/test_pointwise.py",
)
_NO_DEVICE = 100  # cudaErrorNoDevice; of the other libraries too, a function that returns it has failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("oldest", "newest"), help="one of the two")
    options = parser.parse_args()
    found = torch_headers.releases()
    for release in found:
        print(f"torch {release.version}: Sleef", flush=True)
        require_sleef(release)
    chosen = {"oldest": found[0], "newest": found[-1]}
    for name in [options.only] if options.only else chosen:
        release = chosen[name]
        print(f"torch {release.version}: compiling", flush=True)
        compile_with(release)
        print(f"torch {release.version}: testing", flush=True)
        if status := run_tests(installed(release)):
            return status
    return 0


def require_sleef(release: torch_headers.Release) -> None:
    """Each torch exports every function of Sleef that generated kernels call: Sleef is not part of its stable ABI, and
    prebuilt kernels are for all releases."""
    names = BUILD / f"sleef-{release.version}.txt"
    if not names.exists():
        ((_, contents),) = torch_headers.members(release, "torch/lib/libtorch_cpu.so".__eq__)
        with tempfile.TemporaryDirectory(prefix="opsmith-compat-") as scratch:
            library = Path(scratch, "libtorch_cpu.so")
            library.write_bytes(contents)
            given = [symbol.name for symbol in read_linkage(library).given if symbol.name.startswith("Sleef_")]
        BUILD.mkdir(parents=True, exist_ok=True)
        names.write_text("\n".join(given))
    if missing := sorted(sleef_of_kernels() - set(names.read_text().split())):
        raise SystemExit(f"torch {release.version} does not export {', '.join(missing)}")


def sleef_of_kernels() -> set[str]:
    """What the header of generated kernels declares, for every length of vectors."""
    found: set[str] = set()
    for lanes, features in ((16, "-mavx512f"), (8, "-mavx512f"), (8, "-mavx2"), (4, "-mavx2")):
        flags = [f"-DOPSMITH_LANES={lanes}", "-DOPSMITH_SLEEF=1", features, f"-I{ROOT}/src/opsmith/include"]
        header = ROOT / "src/opsmith/include/opsmith/pointwise/cpu_math.h"
        command = [*find_cxx().command, "-E", "-x", "c++", "-std=c++17", *flags, str(header)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found |= set(re.findall(r"\bSleef_\w+", text))
    return found


def compile_with(release: torch_headers.Release) -> None:
    """The C++ runtime, and kernels on the stable ABI."""
    with torch_headers.unpacked(release) as include:
        native.build_for(release.minor, include)
        source = BUILD / "kernels.cpp"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(native_kernels.SOURCE)
        flags = ["-std=c++20", "-fsyntax-only", f"-DTORCH_TARGET_VERSION={STABLE_ABI}", f"-I{ROOT}/src/opsmith/include"]
        run([*find_cxx().command, *flags, "-isystem", str(include), str(source)])


def installed(release: torch_headers.Release) -> Path:
    """A directory for PYTHONPATH with that torch, whose other packages are those of this environment."""
    place = BUILD / f"torch-{release.version}"
    finished = place / ".installed"
    if not finished.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        run([*pip, "install", "--no-deps", "--upgrade", "--target", str(place), release.url])
        stand_in_for_nvidia(place / "torch" / "lib")
        finished.touch()
    return place


def run_tests(place: Path) -> int:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (place, ROOT / "src"))),
        "OPSMITH_CACHE_DIR": str(BUILD / "cache"),
        "OPSMITH_RUNTIME": "",
    }
    build = [sys.executable, "-m", "opsmith.runtime.build"]
    tests = [sys.executable, "-m", "pytest", *TESTS, "-q", "-p", "no:cacheprovider"]
    run(build, environment)
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


def stand_in_for_nvidia(directory: Path) -> None:
    """Libraries with the names and the functions that torch's libraries need and this machine lacks."""
    linkages = [read_linkage(path) for path in sorted(directory.glob("*.so*"))]
    here = {path.name for path in directory.iterdir()}
    needed = {name for linkage in linkages for name in linkage.needed} - here
    missing = sorted(name for name in needed if not loads(name))
    given = {symbol.name for linkage in linkages for symbol in linkage.given}
    wanted: dict[str, dict[str, str | None]] = {name: {} for name in missing}
    for symbol in (symbol for linkage in linkages for symbol in linkage.taken):
        if symbol.library in wanted:
            wanted[symbol.library][symbol.name] = symbol.version
        elif symbol.version is None and symbol.name not in given and not symbol.name.startswith(("Py", "_Py", "_Z")):
            wanted[missing[0]].setdefault(symbol.name, None)
    for name in missing:
        if real := runtime_of_cuda(name):
            (directory / name).symlink_to(real)
        else:
            write_stand_in(directory / name, wanted[name])


def loads(name: str) -> bool:
    return (
        subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({name!r})"], capture_output=True).returncode
        == 0
    )


def runtime_of_cuda(name: str) -> Path | None:
    """torch asks libcudart for more than whether there is a GPU, and it is small: the real one, of requirements/."""
    if not name.startswith("libcudart."):
        return None
    return next(Path(sysconfig.get_path("purelib"), "nvidia").rglob(name), None)


def write_stand_in(path: Path, functions: dict[str, str | None]) -> None:
    versions = sorted({version for version in functions.values() if version})
    lines = [f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in sorted(functions)]
    nodes = [f"{version} {{ global: {'; '.join(of_version(functions, version))}; }};" for version in versions]
    source, script = BUILD / "stand_in.c", BUILD / "stand_in.map"
    source.write_text("\n".join([*lines, ""]))
    script.write_text("\n".join([*nodes, ""]))
    flags = ["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w", f"-Wl,-soname,{path.name}"]
    flags += [f"-Wl,--version-script={script}"] if versions else []
    run([*find_cxx().command, "-x", "c", str(source), "-x", "none", *flags, "-o", str(path)])


def of_version(functions: dict[str, str | None], version: str) -> Iterable[str]:
    return sorted(name for name, wanted in functions.items() if wanted == version)


def run(command: list[str], environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
