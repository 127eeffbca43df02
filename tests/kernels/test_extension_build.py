"""Building an extension: what is compiled again and what is not, in parallel, interrupted, killed; switches and errors.

Each test has a cache of its own, and sources that need no header of torch's: a hundredth of a second each.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from toolchain.conftest import cache_dir, logging_compiler, use_compiler  # noqa: F401
from toolchain.support import files_under, wait_until

import opsmith
from opsmith import errors, runtime, toolchain
from opsmith.kernels.extension import Extension
from opsmith.toolchain import objects

EXPORT = 'extern "C" __attribute__((visibility("default")))'
runtime.tier()  # decided here, by the cache that all tests share


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GPU_TARGETS", "DEBUG", "USE_CUDA", "MAX_JOBS"):
        monkeypatch.delenv(variable, raising=False)


def returning(directory: Path, *values: int, suffix: str = ".cpp") -> list[Path]:
    """A source a value, value<number>.cpp, with a function value<number>() in it."""
    paths = []
    for number, value in enumerate(values):
        path = directory / f"value{number}{suffix}"
        path.write_text(f"{EXPORT} int value{number}() {{ return {value}; }}\n")
        paths.append(path)
    return paths


def call(ext: Extension, name: str = "value0") -> int:
    return int(getattr(toolchain.load_library(ext.build()), name)())


# --- what is compiled, and when


def test_editing_one_of_ten_sources_compiles_one(tmp_path: Path, logging_compiler: Callable[[], int]) -> None:  # noqa: F811
    sources = returning(tmp_path, *range(10))
    ext = opsmith.extension("ten", sources)
    assert [call(ext, f"value{number}") for number in range(10)] == list(range(10))
    assert logging_compiler() == 11  # ten objects, one library
    assert opsmith.extension("ten", sources).build() == ext.build()
    assert logging_compiler() == 11
    sources[3].write_text(sources[3].read_text().replace("return 3", "return 33"))
    edited = opsmith.extension("ten", sources)
    assert logging_compiler() == 13
    assert [call(edited, f"value{number}") for number in (2, 3)] == [2, 33]
    assert call(ext, "value3") == 3, "the previous library stays loaded beside the new one"


def test_time_stamps_do_not_matter_and_headers_do(tmp_path: Path, logging_compiler: Callable[[], int]) -> None:  # noqa: F811
    (source,) = returning(tmp_path, 1)
    (tmp_path / "more.h").write_text("#define MORE 40\n")
    source.write_text('#include "more.h"\n' + source.read_text().replace("return 1", "return 1 + MORE"))
    assert call(opsmith.extension("headers", source)) == 41
    os.utime(source, (2**31, 2**31))
    assert call(opsmith.extension("headers", source)) == 41
    assert logging_compiler() == 2
    (tmp_path / "more.h").write_text("#define MORE 50\n")
    os.utime(tmp_path / "more.h", (1, 1))  # older than what was built
    assert call(opsmith.extension("headers", source)) == 51


def test_flags_reach_the_compiler_and_libraries_the_linker(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "base.h").write_text("#define BASE 7\n")
    source = tmp_path / "flags.cpp"
    source.write_text(
        f"#include <base.h>\n#include <cmath>\n{EXPORT} int value0() {{ return BASE + OFFSET + (int)std::cos(0.0); }}\n"
    )
    flags = ["-DOFFSET=1", f"-I{tmp_path / 'sub'}", "-lm"]
    assert call(opsmith.extension("flags", source, extra_cflags=flags)) == 9
    with pytest.raises(errors.CompileError, match="cannot find -lno_such_library"):
        opsmith.extension("flags", source, extra_cflags=[*flags, "-lno_such_library"])


def test_lineinfo_is_for_nvccs_compiler_though_it_begins_like_a_library(tmp_path: Path) -> None:
    recipe = toolchain.Recipe(
        "flags", (tmp_path / "a.cu",), targets=toolchain.gpu_targets("sm_90"), cuda_cflags=("-lineinfo", "-lm")
    )
    assert objects.library_flags(recipe) == ["-lm"]
    assert objects.without_libraries(recipe.cuda_cflags) == ["-lineinfo"]


def test_an_object_is_linked_as_it_is(tmp_path: Path) -> None:
    (source,) = returning(tmp_path, 5)
    subprocess.run(["g++", "-fPIC", "-c", str(source), "-o", str(tmp_path / "value0.o")], check=True)
    other = tmp_path / "other.cpp"
    other.write_text(f'extern "C" int value0();\n{EXPORT} int doubled() {{ return 2 * value0(); }}\n')
    assert call(opsmith.extension("linked", [tmp_path / "value0.o", other]), "doubled") == 10


def test_sources_are_compiled_at_once_but_no_more_than_max_jobs(
    tmp_path: Path,
    use_compiler: Callable[[str], Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = tmp_path / "running"
    use_compiler(
        f"""
        version "$1"
        mkdir -p {running}
        touch {running}/$$
        ls {running} | wc -l >> {tmp_path}/counts
        sleep 0.3
        rm {running}/$$
        real "$@"
        """
    )
    for jobs in (1, 3):
        monkeypatch.setenv("MAX_JOBS", str(jobs))
        (tmp_path / "counts").unlink(missing_ok=True)
        opsmith.extension("parallel", returning(tmp_path, *range(10 * jobs, 10 * jobs + 5)))
        assert max(map(int, (tmp_path / "counts").read_text().split())) == jobs


def test_a_debug_build_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "debug.cpp"
    source.write_text(f"{EXPORT} int value0() {{\n#ifdef __OPTIMIZE__\n  return 1;\n#else\n  return 0;\n#endif\n}}\n")
    assert call(opsmith.extension("debug", source)) == 1
    assert call(opsmith.extension("debug", source, debug=True)) == 0
    monkeypatch.setenv("DEBUG", "1")
    assert call(opsmith.extension("debug", source)) == 0
    for off in ("0", "", "OFF"):
        monkeypatch.setenv("DEBUG", off)
        assert call(opsmith.extension("debug", source)) == 1


def test_an_extension_that_is_built_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = returning(tmp_path, 1, 2)
    opsmith.extension("cached", sources)
    monkeypatch.setenv("CXX", "no-such-compiler")
    toolchain.forget()
    assert call(opsmith.extension("cached", sources), "value1") == 2


def test_a_source_edited_while_it_is_compiled_is_compiled_again(
    tmp_path: Path,
    use_compiler: Callable[[str], Path],  # noqa: F811
) -> None:
    (source,) = returning(tmp_path, 1)
    edited = source.read_text().replace("return 1", "return 2")
    use_compiler(
        f"""
        version "$1"
        real "$@"
        if [ ! -e {tmp_path}/edited ]; then echo '{edited.strip()}' > {source}; touch {tmp_path}/edited; fi
        """
    )
    assert call(opsmith.extension("edited", source)) == 2
    source.write_text(source.read_text().replace("return 2", "return 1"))
    assert call(opsmith.extension("edited", source)) == 1, "what came of the first text is not kept under its key"


# --- interrupted and killed

SLOW = 'version "$1"\ncase "$*" in *" -c "*) echo $$ >> {pids}; sleep 60;; esac\nreal "$@"\n'
BUILD = """
import sys
import opsmith
opsmith.extension("slow", sys.argv[1:])
print("built", flush=True)
"""


def start(sources: list[Path]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, *map(str, sources)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "MAX_JOBS": "3"},
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_build_that_is_killed_blocks_nothing(
    ending: signal.Signals,
    tmp_path: Path,
    cache_dir: Path,  # noqa: F811
    use_compiler: Callable[[str], Path],  # noqa: F811
) -> None:
    sources = returning(tmp_path, 1, 2, 3)
    pids = tmp_path / "pids"
    use_compiler(SLOW.format(pids=pids))
    process = start(sources)
    try:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3, "three compilers run", timeout=60)
        process.send_signal(ending)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    compilers = list(map(int, pids.read_text().split()))
    if ending is signal.SIGINT:
        assert process.returncode != 0 and "KeyboardInterrupt" in said
        wait_until(lambda: not any(map(alive, compilers)), "the compilers are gone")
        assert files_under(cache_dir) == ["artifacts", "locks", "work"]
    else:
        assert process.returncode == -signal.SIGKILL
        assert files_under(cache_dir / "artifacts") == []
        for pid in compilers:  # orphans that would run to their end
            os.killpg(pid, signal.SIGKILL)
    use_compiler('version "$1"\nreal "$@"\n')
    started = time.monotonic()
    assert [call(opsmith.extension("slow", sources), f"value{n}") for n in range(3)] == [1, 2, 3]
    assert time.monotonic() - started < 20, "nothing waits for the dead"
    assert files_under(cache_dir / "work") == files_under(cache_dir / "locks") == []


def test_two_processes_build_each_source_once(
    tmp_path: Path,
    logging_compiler: Callable[[], int],  # noqa: F811
) -> None:
    processes = [start(returning(tmp_path, *range(6))) for _ in range(2)]
    outcomes = [process.communicate(timeout=120) for process in processes]
    assert [output for output, _ in outcomes] == ["built\n"] * 2, outcomes
    assert logging_compiler() == 7


def test_after_a_failure_what_was_compiled_is_kept(
    tmp_path: Path,
    use_compiler: Callable[[str], Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAX_JOBS", "2")
    sources = returning(tmp_path, 1, 2)
    sources[0].write_text("int wrong() { return undeclared; }\n")
    log = tmp_path / "log"
    use_compiler(f'version "$1"\necho "$@" >> {log}\ncase "$*" in *value1.cpp*) sleep 0.5;; esac\nreal "$@"\n')
    with pytest.raises(errors.CompileError) as caught:
        opsmith.extension("half", sources)
    assert f"could not compile the extension half ({sources[0].name})" in str(caught.value)
    assert f"{sources[0]}:1:22: error: 'undeclared' was not declared" in str(caught.value)
    returning(tmp_path, 1)
    log.unlink()
    assert call(opsmith.extension("half", sources)) == 1
    assert len(log.read_text().splitlines()) == 2  # value0.cpp and the library


# --- names


def test_the_same_module_replaces_and_another_is_refused(tmp_path: Path) -> None:
    first, second = returning(tmp_path, 1, 2)
    opsmith.extension("taken", first)
    assert call(opsmith.extension("taken", second), "value1") == 2  # as a notebook's cell does
    elsewhere = {"__name__": "elsewhere", "opsmith": opsmith, "path": first}
    with pytest.raises(errors.ExtensionArgumentError) as caught:
        exec("opsmith.extension('taken', path)", elsewhere)
    assert (
        f"'taken' cannot be built: module {__name__} already declares one of this name, from {second}. Choose"
        in str(caught.value)
    )
    exec("ext = opsmith.extension('another', path)", elsewhere)


@pytest.mark.parametrize("name", ["my ext", "2nd", "", "a::b", 3])
def test_a_name_is_an_identifier(name: str, tmp_path: Path) -> None:
    with pytest.raises(errors.ExtensionArgumentError, match="its name must be letters, digits and underscores"):
        opsmith.extension(name, returning(tmp_path, 1))


def test_relative_sources_start_at_the_current_directory_else_at_the_calling_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for directory, value in ((here, 1), (there, 2)):
        directory.mkdir()
        returning(directory, value)
    script = {"__name__": "script", "__file__": str(there / "script.py"), "opsmith": opsmith}
    monkeypatch.chdir(tmp_path)
    exec("ext = opsmith.extension('relative', 'value0.cpp')", script)
    assert call(script["ext"]) == 2  # type: ignore[arg-type]
    monkeypatch.chdir(here)
    exec("ext = opsmith.extension('relative', ['value0.cpp'])", script)
    assert call(script["ext"]) == 1  # type: ignore[arg-type]


# --- bad input


def test_sources_that_are_not_sources(tmp_path: Path) -> None:
    with pytest.raises(errors.SourceNotFoundError, match=rf"{tmp_path}/gone\.cpp of the extension bad cannot be read"):
        opsmith.extension("bad", tmp_path / "gone.cpp")
    with pytest.raises(errors.SourceNotFoundError, match="cannot be read: No such file"):
        opsmith.extension("bad", tmp_path / "gone.cpp", lazy=True)
    with pytest.raises(errors.NoSourceError, match="nothing to compile for the extension bad"):
        opsmith.extension("bad", [])
    (tmp_path / "notes.txt").touch()
    with pytest.raises(
        errors.ExtensionArgumentError, match=r"notes\.txt is not a source file, whose names end in \.cpp, .*\.cu"
    ):
        opsmith.extension("bad", tmp_path / "notes.txt")


def test_invalid_arguments(tmp_path: Path) -> None:
    sources = returning(tmp_path, 1)
    with pytest.raises(errors.ExtensionArgumentError, match="abi='python' is not one of 'stable', 'torch'"):
        opsmith.extension("bad", sources, abi="python")  # type: ignore[arg-type]
    with pytest.raises(errors.ExtensionArgumentError, match=r'extra_cflags is a list of flags: write \["-O2"\]'):
        opsmith.extension("bad", sources, extra_cflags="-O2")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("DEBUG", "maybe", "DEBUG='maybe' is not valid: set it to 1 or 0, or unset it"),
        ("USE_CUDA", "13", "USE_CUDA='13' is not valid"),
        ("MAX_JOBS", "many", "MAX_JOBS='many' is not valid: set the number of compilers"),
        ("MAX_JOBS", "0", "MAX_JOBS='0' is not valid"),
    ],
)
def test_an_invalid_setting_is_refused(
    variable: str, value: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(errors.BuildSettingError, match=words):
        opsmith.extension("switches", returning(tmp_path, 1))


def test_a_compiler_that_is_missing_or_too_old_is_reported_as_such(
    tmp_path: Path,
    use_compiler: Callable[[str], Path],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = returning(tmp_path, 1)
    use_compiler('echo "g++ (Ubuntu 9.4.0) 9.4.0"\n')
    with pytest.raises(errors.CompilerTooOldError, match=r"gcc 9\.4\.0.*does not support C\+\+20.*gcc 10 or newer"):
        opsmith.extension("old", sources).build()
    monkeypatch.setenv("CXX", "no-such-compiler")
    toolchain.forget()
    with pytest.raises(errors.CompilerNotFoundError, match="CXX=no-such-compiler"):
        opsmith.extension("old", sources).build()


def test_without_a_compiler_the_import_succeeds_and_the_reference_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    toolchain.forget()
    ext = opsmith.extension("nowhere", returning(tmp_path, 7))

    @opsmith.op(f"no_compiler_{tier}::doubled")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    doubled.register_kernel("cpu", ext.doubled)
    with pytest.warns(errors.ReferenceRunsWarning, match="CXX=no-such-compiler"):
        assert doubled(torch.ones(2)).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doubled(torch.ones(2)).tolist() == [2.0, 2.0]


def test_errors_arrive_whole_from_another_process() -> None:
    for error in (
        errors.BuildSettingError("DEBUG", "maybe", "set 1 or 0"),
        errors.ExtensionArgumentError("bad", "its name"),
        errors.UnknownFunctionError("ext", "nowhere", ["here"], ["b.cu"]),
        errors.OperatorsRegisteredError("ext", "the namespace 'mylib'"),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))


# --- for editors


def test_compile_commands_are_written_beside_the_sources_and_merged(tmp_path: Path) -> None:
    sources = returning(tmp_path, 1, 2)
    opsmith.extension("one", sources, extra_cflags=["-DONE"])
    file = tmp_path / "build" / "compile_commands.json"
    first = {entry["file"]: entry for entry in json.loads(file.read_text())}
    assert set(first) == {str(source) for source in sources}
    command = first[str(sources[0])]["arguments"]
    assert "-DONE" in command and "-std=c++20" in command and command[-2:] == ["-c", str(sources[0])]
    subprocess.run([*command, "-o", str(tmp_path / "out.o")], check=True, cwd=first[str(sources[0])]["directory"])

    other = tmp_path / "other.cpp"
    other.write_text("int other;\n")
    opsmith.extension("two", other)
    opsmith.extension("one", sources[0], extra_cflags=["-DTWO"])
    merged = {entry["file"]: entry["arguments"] for entry in json.loads(file.read_text())}
    assert set(merged) == {*first, str(other)}
    assert "-DTWO" in merged[str(sources[0])] and "-DONE" in merged[str(sources[1])]
    written = file.stat().st_mtime_ns
    opsmith.extension("two", other)
    assert file.stat().st_mtime_ns == written, "what is right is left alone"
    assert files_under(file.parent) == ["compile_commands.json"]


def test_where_compile_commands_cannot_be_written_they_are_left_out(tmp_path: Path) -> None:
    sources = returning(tmp_path, 1)
    (tmp_path / "build").touch()  # a file where the directory would be; even root cannot write under it
    assert call(opsmith.extension("unwritten", sources)) == 1
    (tmp_path / "build").unlink()
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "compile_commands.json").write_text("not JSON")
    assert call(opsmith.extension("unwritten", sources)) == 1
    assert (tmp_path / "build" / "compile_commands.json").read_text() == "not JSON"


def test_a_failed_build_has_compile_commands_too(tmp_path: Path) -> None:
    (tmp_path / "wrong.cpp").write_text("int wrong() { return undeclared; }\n")
    with pytest.raises(errors.CompileError):
        opsmith.extension("wrong", tmp_path / "wrong.cpp")
    assert (tmp_path / "build" / "compile_commands.json").exists(), "an editor needs it to fix the source"


# --- operators of its own


def test_a_source_may_register_operators_once_per_process(tmp_path: Path) -> None:
    source = tmp_path / "own.cpp"
    text = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
using torch::stable::Tensor;
Tensor copied(const Tensor& x) { return torch::stable::clone(x); }
STABLE_TORCH_LIBRARY(opsmith_extension_own, m) { m.def("copied(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(opsmith_extension_own, CPU, m) { m.impl("copied", TORCH_BOX(&copied)); }
"""
    source.write_text(text)
    opsmith.extension("own", source)
    x = torch.randn(3)
    assert torch.equal(torch.ops.opsmith_extension_own.copied(x), x)
    opsmith.extension("own", source)  # the same library
    source.write_text(text.replace("clone(x)", "clone(x) "))
    with pytest.raises(
        errors.OperatorsRegisteredError, match=r"the namespace 'opsmith_extension_own'(.|\n)*Restart Python"
    ):
        opsmith.extension("own", source)
    source.write_text(text.replace("LIBRARY(", "LIBRARY_FRAGMENT("))
    with pytest.raises(errors.OperatorsRegisteredError, match="the operator opsmith_extension_own::copied"):
        opsmith.extension("own", source)
    assert torch.equal(torch.ops.opsmith_extension_own.copied(x), x)


MISSPELLED = """
#include <torch/csrc/stable/library.h>
STABLE_TORCH_LIBRARY(opsmith_misspelled, m) { m.def("ident(Tensr x) -> Tensor"); }
"""


def test_a_registration_that_torch_refuses_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "misspelled.cpp"
    path.write_text(MISSPELLED)
    with pytest.raises(errors.LoadingFailedError, match="aoti_torch_library_def"):
        opsmith.extension("misspelled", path)


REGISTERED_BY_MACRO = """
#include <torch/csrc/stable/library.h>
#define MINE(name) STABLE_TORCH_LIBRARY(name, m)
MINE(opsmith_by_macro) { m.def("ident(Tensor x) -> Tensor"); }  // %d
"""


def test_operators_that_a_macro_registers_are_not_registered_twice(tmp_path: Path) -> None:
    path = tmp_path / "by_macro.cpp"
    path.write_text(REGISTERED_BY_MACRO % 1)
    opsmith.extension("by_macro", path)
    path.write_text(REGISTERED_BY_MACRO.replace("ident", "other") % 2)
    with pytest.raises(errors.OperatorsRegisteredError):
        opsmith.extension("by_macro", path)


def test_a_header_whose_edits_would_not_be_noticed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plain.cpp"
    path.write_text("#include <opsmith/kernel.h>\n")
    with pytest.raises(errors.ExtensionArgumentError, match=r"has -include, .* Write its #include"):
        opsmith.extension("forced", path, extra_cflags=["-include", "config.h"])
