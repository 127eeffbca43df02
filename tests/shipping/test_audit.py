"""The audit names every library that other systems or other releases of torch refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.shipping import audit
from opsmith.toolchain import compile_shared_library, manylinux

EXPORT = 'extern "C" __attribute__((visibility("default")))'


def verdict(directory: Path, text: str, name: str = "mine") -> audit.Verdict:
    """On a library of this source, linked plainly and not against the C++ library."""
    path = compile_shared_library(name, text=text, abi="plain", extra_ldflags=("-nodefaultlibs", "-lm", "-lc"))
    (directory / path.name).write_bytes(path.read_bytes())
    (found,) = audit.audited(directory)
    return found


def test_a_built_package_passes(built: Path) -> None:
    if manylinux.obstacle():
        pytest.skip("libraries are linked plainly here")
    found = {each.kind: each for each in audit.audited(built / "prebuilt")}
    assert found.keys() == {"extensions", "generated kernels"}
    assert {each.policy for each in found.values()} == {manylinux.POLICY}
    assert not any(each.problems for each in found.values())
    assert found["extensions"].count == 3 and "torch's stable ABI" in found["extensions"].torch
    assert audit.platform_tag(list(found.values())).startswith(f"{manylinux.POLICY}_")


def test_opsmith_build_prints_the_verdicts(built_once: tuple[Path, str]) -> None:
    assert "extensions: 3 libraries, manylinux_2_28, torch's stable ABI" in built_once[1]


def test_symbols_of_newer_systems_are_named(tmp_path: Path) -> None:
    text = f"#include <cmath>\n{EXPORT} double far(double x, double y) {{ return std::hypot(x, y); }}"
    found = verdict(tmp_path, text)
    if not found.problems:
        pytest.skip("this system's hypot is old enough")
    assert found.policy != manylinux.POLICY
    assert "mine.so needs hypot@GLIBC_2.35, which manylinux_2_28 lacks" in found.problems
    assert manylinux.POLICY not in audit.platform_tag([found])


@pytest.mark.parametrize(
    ("symbol", "problem"),
    [
        ("_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv", "of the C++ library from torch"),
        ("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv", "of the C++ library from torch"),
        ("_ZN3c105Error4whatEv", "uses torch's C++ API, which changes with its releases"),
    ],
)
def test_what_a_library_takes_from_torch_is_judged(tmp_path: Path, symbol: str, problem: str) -> None:
    found = verdict(tmp_path, f'extern "C" void {symbol}();\n{EXPORT} void call() {{ {symbol}(); }}', symbol[:12])
    assert any(symbol in each and problem in each for each in found.problems), found


def test_a_file_that_is_not_a_library_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.so").write_text("version https://git-lfs.github.com/spec/v1")
    (found,) = audit.audited(tmp_path)
    assert found.policy == "linux" and "mine.so is not a 64-bit ELF file" in found.problems[0]
