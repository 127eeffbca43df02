"""Compilers that fail in ways of their own: each has an error with its name and a remedy, and nothing stays behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import opsmith.toolchain as toolchain
from opsmith import errors

from .support import files_under


def compile() -> Path:
    return toolchain.compile_shared_library("mylib", text="int a;\n", abi="plain")


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("kill -SEGV $$", errors.CompilerCrashedError, "was ended by SIGSEGV when asked for its version"),
        ("exit 3", errors.CompilerSilentError, "failed with exit status 3 when asked for its version"),
        (
            'version "$1"; kill -SEGV $$',
            errors.CompilerCrashedError,
            "was ended by SIGSEGV while compiling mylib(.|\n)*fault of the compiler, not of the source",
        ),
        (
            'version "$1"; sh -c "kill -SEGV \\$\\$"',
            errors.CompilerCrashedError,
            r"status 139 \(SIGSEGV\) while compiling mylib",
        ),
        (
            'version "$1"; echo "x.cpp:1:1: internal compiler error: Segmentation fault"; exit 4',
            errors.CompilerCrashedError,
            "reports an internal error(.|\n)*internal compiler error: Segmentation fault",
        ),
        (
            'version "$1"; kill -KILL $$',
            errors.CompilerOutOfMemoryError,
            "was killed, as the kernel does when memory runs out(.|\n)*Free some memory",
        ),
        (
            'version "$1"; echo "g++: fatal error: Killed signal terminated program cc1plus"; exit 1',
            errors.CompilerOutOfMemoryError,
            "ran out of memory while compiling mylib(.|\n)*cc1plus",
        ),
        (
            'version "$1"; echo "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes"; exit 1',
            errors.CompilerOutOfMemoryError,
            "ran out of memory while compiling mylib",
        ),
        (
            'version "$1"; exit 1',
            errors.CompilerSilentError,
            "exit status 1 and without any message while compiling mylib(.|\n)*Run the command above to check",
        ),
        ('version "$1"; exit 0', errors.CompilerNoOutputError, r"reported success, but mylib\.so is missing"),
        (
            'version "$1"; echo rubbish > mylib.so',
            errors.CompilerNoOutputError,
            r"mylib\.so is missing or not an ELF file",
        ),
        (
            'version "$1"; echo "something odd"; exit 1',
            errors.CompileError,
            "could not compile mylib:\n\n  something odd",
        ),
    ],
)
def test_each_failure_has_its_name(
    script: str, error: type[Exception], message: str, use_compiler: Callable[[str], Path], cache_dir: Path
) -> None:
    path = use_compiler(script)
    with pytest.raises(error, match=message) as caught:
        compile()
    assert str(path) in str(caught.value)
    assert type(caught.value) is error
    assert files_under(cache_dir) == ["artifacts", "locks", "work"]
    use_compiler('version "$1"\nreal "$@"\n')
    assert compile().is_file()


def test_false_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", shutil.which("false") or "false")
    with pytest.raises(errors.CompilerSilentError, match=r"failed with exit status 1(.|\n)*set CXX to another one"):
        compile()


def test_true_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", shutil.which("true") or "true")
    with pytest.raises(errors.CompilerNoOutputError):
        compile()


def test_a_file_that_cannot_be_executed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\n")
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(
        errors.CompilerNotExecutableError, match=r"cannot be started: Permission denied(.|\n)*chmod \+x"
    ):
        compile()


def test_a_file_that_is_not_a_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_bytes(b"\x7fELF rubbish")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(errors.CompilerNotExecutableError, match="Exec format error"):
        compile()


def test_a_compiler_that_is_removed_after_it_was_found_is_named(use_compiler: Callable[[str], Path]) -> None:
    path = use_compiler('version "$1"\nreal "$@"\n')
    toolchain.find_cxx()
    path.unlink()
    with pytest.raises(errors.CompilerNotExecutableError, match="No such file"):
        compile()


def test_a_daemon_that_the_compiler_leaves_behind_is_not_waited_for(
    tmp_path: Path, use_compiler: Callable[[str], Path]
) -> None:
    use_compiler(f'version "$1"\nsleep 60 & echo $! > {tmp_path}/daemon\nreal "$@"\n')
    try:
        assert compile().is_file()
    finally:
        os.kill(int((tmp_path / "daemon").read_text()), 9)


def test_compilers_speak_english_and_keep_their_files_to_themselves(
    tmp_path: Path, use_compiler: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    use_compiler(f'version "$1"\necho "$TMPDIR $LC_ALL $PWD" > {tmp_path}/environment\nreal "$@"\n')
    compile()
    temporary, locale, directory = (tmp_path / "environment").read_text().split()
    assert locale == "C"
    assert Path(temporary).parent == Path(directory)
    assert not Path(directory).exists()
