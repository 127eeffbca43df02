"""A library linked for other systems asks for nothing newer than the policy, and works here."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest

from opsmith.toolchain import Recipe, build_library, compile_shared_library, load_library, manylinux
from opsmith.toolchain.linkage import NoLibraryError, read_linkage

SOURCE = """
#include <charconv>
#include <cmath>
#include <dlfcn.h>
#include <filesystem>
#include <future>
#include <sstream>
#include <sys/stat.h>

template <typename T> T doubled(T x) { return x + x; }
template int doubled(int);

extern "C" __attribute__((visibility("default"))) int answers(double x, char* text) {
  std::ostringstream stream;
  stream << std::pow(x, 2.0) + std::hypot(3 * x, 4 * x) << ' ' << std::filesystem::path("/a/b").filename();
  const std::string written = stream.str();
  struct stat facts;
  *std::to_chars(text, text + 60, x).ptr = 0;
  std::string(text).append(" ").append(written).copy(text, 60);
  const bool found = dlsym(nullptr, "strlen") != nullptr && stat("/", &facts) == 0;
  return std::async(std::launch::async, [&] { return found ? int(written.size()) : -1; }).get();
}
"""
EXPORT = 'extern "C" __attribute__((visibility("default")))'


@pytest.fixture(autouse=True)
def _possible_here() -> None:
    if found := manylinux.obstacle():
        pytest.skip(found)


def test_a_library_is_within_the_policy_and_gives_the_same_results(tmp_path: Path) -> None:
    results = []
    for linked in (False, True):
        name = f"answers{linked}"
        if linked:
            with manylinux.for_other_systems():
                path = compile_shared_library(name, text=SOURCE, abi="plain")
        else:
            path = compile_shared_library(name, text=SOURCE, abi="plain")
        text = ctypes.create_string_buffer(100)
        results.append((load_library(path).answers(ctypes.c_double(1.5), text), text.value))
    linkage = read_linkage(path)
    assert results[0] == results[1] and results[1][0] > 0
    assert manylinux.beyond_policy(linkage) == []
    assert [symbol.name for symbol in linkage.given] == ["answers"]
    assert [each.name for each in linkage.taken if not each.version and not each.is_weak] == []


def test_an_extension_takes_nothing_of_the_c_library_from_torch(tmp_path: Path) -> None:
    source = tmp_path / "shown.cpp"
    source.write_text(
        "#include <opsmith/kernel.h>\n#include <sstream>\n"
        "torch::stable::Tensor shown(const torch::stable::Tensor& x) {\n"
        '  std::stringstream text; text << x.numel() << " elements";\n'
        "  if (x.numel() > 9) throw std::runtime_error(text.str());\n  return x;\n}\nOPSMITH_EXPORT(same, shown)\n"
    )
    import opsmith

    headers = Path(opsmith.__file__).parent / "include"
    with manylinux.for_other_systems():
        linkage = read_linkage(build_library(Recipe("shown", (source,), system_dirs=(headers,), label="shown")))
    assert manylinux.beyond_policy(linkage) == []
    assert [symbol.name for symbol in linkage.taken if not symbol.version and symbol.name.startswith("_ZNSt")] == []
    assert "libtorch_cpu.so" in linkage.needed


@pytest.mark.skipif(platform.libc_ver()[1] < "2.36", reason="arc4random came with glibc 2.36")
def test_a_library_that_needs_newer_functions_is_linked_plainly(tmp_path: Path) -> None:
    text = (
        '#include <cstdlib>\nextern "C" __attribute__((visibility("default"))) int any() { return arc4random() & 1; }'
    )
    with manylinux.for_other_systems():
        path = compile_shared_library("newer", text=text, abi="plain")
    assert {symbol.version for symbol in read_linkage(path).taken if symbol.name == "arc4random"} == {"GLIBC_2.36"}
    assert load_library(path).any() in (0, 1)


def test_without_the_system_s_archives_the_plain_link_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manylinux, "_ARCHIVES", ("libnowhere.a",))
    manylinux._parts.cache_clear()
    try:
        assert "has no libnowhere.a" in (manylinux.obstacle() or "")
        assert manylinux.identity() == "plain"
        with manylinux.for_other_systems():
            path = compile_shared_library("plain", text=f"{EXPORT} int one() {{ return 1; }}", abi="plain")
        assert load_library(path).one() == 1
    finally:
        manylinux._parts.cache_clear()


@pytest.mark.parametrize("contents", [b"not a library", b"\x7fELF\x02\x01" + b"\xff" * 100])
def test_a_file_that_is_not_a_library_is_named(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "strange.so"
    path.write_bytes(contents)
    with pytest.raises(NoLibraryError, match=r"strange\.so is"):
        read_linkage(path)
