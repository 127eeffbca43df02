"""Loading libraries: once, privately, and with the dynamic linker's words when it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import opsmith.toolchain as toolchain
from opsmith import errors

EXPORT = 'extern "C" __attribute__((visibility("default")))'


def test_a_library_is_loaded_once() -> None:
    library = toolchain.compile_shared_library("count", text=f"{EXPORT} int count = 7;", abi="plain")
    assert toolchain.load_library(library) is toolchain.load_library(library)


def test_symbols_of_one_library_do_not_leak_into_another(tmp_path: Path) -> None:
    for number in (1, 2):
        text = f"{EXPORT} int shared_name() {{ return {number}; }}\n{EXPORT} int ask() {{ return shared_name(); }}"
        library = toolchain.compile_shared_library(f"leak{number}", text=text, abi="plain")
        assert toolchain.load_library(library).ask() == number


def test_an_undefined_symbol_is_reported_with_both_torch_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'extern "C" int not_defined_anywhere();\n{EXPORT} int ask() {{ return not_defined_anywhere(); }}'
    library = toolchain.compile_shared_library("ask", text=text, abi="plain")
    with pytest.raises(errors.LoadError, match="undefined symbol: not_defined_anywhere") as caught:
        toolchain.load_library(library)
    assert "built for torch" not in str(caught.value)
    built_for = torch.__version__
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(errors.LoadError) as caught:
        toolchain.load_library(library)
    assert f"It was built for torch {built_for}; this process runs torch 2.99.0." in str(caught.value)
    assert f"rm -r {library.parent}" in str(caught.value)
    assert isinstance(caught.value, ImportError)


def test_a_library_that_was_deleted_is_reported(tmp_path: Path) -> None:
    library = toolchain.compile_shared_library("gone", text="int a;\n", abi="plain")
    toolchain.clear()
    with pytest.raises(errors.LoadError, match=r"is gone .*run the program again"):
        toolchain.load_library(library)


def test_a_file_that_is_not_a_library_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "text.so"
    source.write_text("not a library")
    with pytest.raises(errors.LoadError, match=r"invalid ELF header|file too short"):
        toolchain.load_library(source)


def test_a_failure_is_not_remembered(tmp_path: Path) -> None:
    library = toolchain.compile_shared_library("late", text=f"{EXPORT} int late() {{ return 5; }}", abi="plain")
    with pytest.raises(errors.LoadError):
        toolchain.load_library(tmp_path / "late.so")
    shutil.copy(library, tmp_path / "late.so")
    assert toolchain.load_library(tmp_path / "late.so").late() == 5
