"""Linking against a name alone: the real library is needed when the result is loaded, and read by no linker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import opsmith.toolchain as toolchain
from opsmith.toolchain.stand_in import stand_in

EXPORT = 'extern "C" __attribute__((visibility("default")))'
THREADS = f"""
#include <stdint.h>
extern "C" int torch_get_num_threads(uint32_t*);
{EXPORT} int threads() {{ uint32_t found; return torch_get_num_threads(&found) ? -1 : found; }}
"""


def test_a_kernel_finds_torchs_functions() -> None:
    library = toolchain.load_library(toolchain.compile_shared_library("threads", text=THREADS, abi="sleef"))
    assert library.threads() == torch.get_num_threads()


def test_it_does_not_load_without_torch() -> None:
    path = toolchain.compile_shared_library("threads", text=THREADS, abi="sleef")
    load = f"import ctypes\ntry:\n    ctypes.CDLL({str(path)!r})\nexcept OSError as error:\n    print(error)"
    told = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True).stdout
    assert "libtorch_cpu.so: cannot open shared object file" in told


def test_the_linker_reads_no_library_of_torchs(tmp_path: Path, use_compiler: Callable[[str], Path]) -> None:
    use_compiler(f'version "$1"\necho "$@" >> {tmp_path}/commands\nreal "$@"\n')
    toolchain.compile_shared_library("threads", text=THREADS, abi="sleef")
    (command,) = [line for line in (tmp_path / "commands").read_text().splitlines() if "threads.so" in line]
    assert "-ltorch" not in command
    assert str(stand_in("libtorch_cpu.so")) in command


def test_what_is_built_is_found_where_no_compiler_is(monkeypatch: pytest.MonkeyPatch) -> None:
    path = toolchain.compile_shared_library("threads", text=THREADS, abi="sleef")
    monkeypatch.setenv("CXX", "/there/is/none")
    toolchain.forget()
    assert toolchain.compile_shared_library("threads", text=THREADS, abi="sleef") == path
