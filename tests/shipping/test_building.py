"""A package built ahead of time runs where no compiler is, and a build that fails keeps the previous one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packages import SOURCES, Run, build
from typer.testing import CliRunner

import opsmith
from opsmith.cli import _app
from opsmith.errors import BuildSettingError, NothingToBuildError, NvrtcNotFoundError
from opsmith.shipping import gpus
from opsmith.shipping.project import targets_for
from opsmith.toolchain import find_nvrtc

CPU = ("AVX512", "AVX2", "DEFAULT")
USE = """
import torch, warnings
import aheadlib
from aheadlib.ops import bent, negated
x, bias = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    bent(x, bias).sum().backward()
    assert torch.equal(bent(x, bias), bent.inline(x, bias))
    assert torch.equal(negated(x), -x)
print("prebuilt kernels ran")
"""

ZIPPED = """
import opsmith, torch

@opsmith.pointwise("{name}::same")
def same(x: torch.Tensor) -> torch.Tensor:
    return x + 0

@same.register_samples
def _(device, dtype):
    if dtype is torch.float32:
        yield opsmith.Sample((torch.ones(4, device=device),))
"""


def manifest(package: Path) -> dict[str, Any]:
    return json.loads((package / "prebuilt" / "manifest.json").read_text())  # type: ignore[no-any-return]


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def _nvrtc() -> None:
    try:
        find_nvrtc()
    except NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")


def test_users_of_a_built_package_need_no_compiler(built: Path, user: Run) -> None:
    kernels = manifest(built)["kernels"]
    assert {row["place"] for row in kernels if row["op"] == "aheadlib::bent"} == set(CPU)
    assert {row["place"] for row in kernels if row["op"] == "aheadlib_ext"} == {"x86-64-v4", "x86-64-v3", "x86-64"}
    assert "prebuilt kernels ran" in user(built, USE)
    shutil.rmtree(built / "prebuilt")
    assert "opsmith cannot compile" in user(built, USE.replace('"error"', '"always"')), "so the reference serves"


def test_a_build_for_a_debugger_is_used_where_debug_is_on(package: Path, user: Run) -> None:
    head, _, extension = (package / "ops.py").read_text().partition("ext = ")
    alone = head.partition("@opsmith")[0] + "ext = " + extension.replace('extra_cflags=["-march=native"], ', "")
    (package / "ops.py").write_text(alone)
    build(package, "--no-cuda", "--debug")
    libraries = [library.read_bytes() for library in (package / "prebuilt").rglob("*.so")]
    assert libraries and all(b".debug_info" in library for library in libraries)
    call = "import torch, aheadlib; print(aheadlib.ops.negated(torch.ones(2)))"
    assert user(package, f"import os; os.environ['DEBUG'] = '1'; {call}") == "tensor([-1., -1.])\n"
    assert "the plain PyTorch reference runs instead" in user(package, call), "another build, which is not prebuilt"


def test_a_part_of_a_namespace_package_is_built_separately(built: Path, user: Run) -> None:
    place = built.parent / "company" / "aheadlib"
    place.parent.mkdir()
    built.rename(place)
    script = (
        USE.replace("aheadlib", "company.aheadlib")
        + """
from opsmith.shipping import building
print([recipe.name for recipe, _ in building.plan(company.aheadlib, [], ()).libraries])
"""
    )
    printed = user(place.parent, script)
    assert "prebuilt kernels ran" in printed
    assert printed.count("'aheadlib_ext'") == 3, "its extension is built with it"


UNCOVERED = """
import torch, warnings
from aheadlib.ops import bent
compiled = lambda: sum(len(each.kernels) for each in bent._families.generation.compiler._prepared.values())
x = torch.randn(4, 8)
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    for _ in range(2):
        for uncovered in (x.t().contiguous().t(), torch.randn(3, 4, 8).transpose(0, 2)):
            bias = torch.ones(uncovered.shape[-1])
            assert torch.equal(bent(uncovered, bias), bent.inline(uncovered, bias))
before = compiled()
bent(x.bfloat16(), x[0].bfloat16())
assert compiled() == before + 1, "a prebuilt kernel is used after a call that has none"
print(len(met), met[0].message)
"""


def test_one_warning_names_a_call_that_is_not_prebuilt_and_prebuilt_kernels_still_run(built: Path, user: Run) -> None:
    printed = user(built, UNCOVERED)
    assert printed.startswith("1 a kernel of aheadlib::bent is not prebuilt for x float32 [4, 8] with strides [1, 4]")
    assert "bias float32 [8] on cpu, and cannot be compiled here" in printed
    assert "No C++ compiler was found" in printed
    assert "a call like this in the op's samples or its prebuild=" in printed


def test_a_package_that_another_opsmith_built_names_both_versions(built: Path, user: Run) -> None:
    facts = manifest(built)
    (built / "prebuilt" / "manifest.json").write_text(json.dumps({**facts, "opsmith": "0.0.7"}))
    assert "prebuilt kernels ran" in user(built, USE), "those that are found"
    shutil.rmtree(built / "prebuilt" / "artifacts")
    printed = user(built, "import torch, aheadlib; x = torch.ones(2); aheadlib.ops.bent(x, x); aheadlib.ops.negated(x)")
    said = (
        f"The prebuilt kernels of aheadlib were built with opsmith 0.0.7, and opsmith {opsmith.__version__} is running"
    )
    assert printed.count("ReferenceRunsWarning") == printed.count(said) == 2, "for a generated kernel and an extension"
    assert "pip install 'opsmith==0.0.7'" in printed
    assert f"ask the author of aheadlib for a build with opsmith {opsmith.__version__}" in printed
    assert "prebuild=" not in printed, "another sample would not help"
    assert said in show(user, built, "aheadlib::bent")


def test_calls_that_cannot_be_recorded_are_reported(built_once: tuple[Path, str]) -> None:
    assert "aheadlib::bent: no samples in float16: TypeError: no float16 here" in built_once[1]


def test_a_second_build_from_nothing_gives_the_same_bytes(package: Path) -> None:
    (package / "ops.py").write_text((package / "ops.py").read_text().partition("cu = ")[0])
    assert "all identical" in build(package, "--no-cuda", "--verify").stdout


@pytest.mark.usefixtures("_nvrtc")
def test_kernels_of_each_gpu_and_ptx_are_built(package: Path) -> None:
    build(package, "aheadlib", "--arch", "sm_80,sm_90+PTX")
    assert manifest(package)["cuda"] == find_nvrtc().major
    kernels = manifest(package)["kernels"]
    for op, label in (("aheadlib::bent", "bent_forward_stream"), ("aheadlib::twice", "twice<float>")):
        found = {row["place"]: row["key"] for row in kernels if row["op"] == op and row["label"].startswith(label)}
        assert {"sm_80", "sm_90", "compute_90"} <= set(found)
        code = {
            place: (package / "prebuilt/artifacts" / key / "kernel.cubin").read_bytes() for place, key in found.items()
        }
        assert code["sm_90"].startswith(b"\x7fELF")
        assert b".target sm_90" in code["compute_90"]


def test_show_says_what_is_prebuilt_and_what_was_checked(built: Path, user: Run, tmp_path: Path) -> None:
    report = {
        "op": "aheadlib::bent", "device": "cpu", "level": "quick", "emulated": False, "ok": True,
        "items": [{"name": "values", "status": "passed"}], "environment": {"torch": "2.13", "machine": "x86_64"},
    }  # fmt: skip
    (tmp_path / "check.json").write_text(json.dumps({"reports": [report]}))
    build(built, "--no-cuda", "--passport", str(tmp_path / "check.json"))
    words = show(user, built, "aheadlib::bent")
    assert "kernels, for AVX2, AVX512, any processor" in words
    assert re.search(r"cpu here \d+ prebuilt checked", words), words
    assert "checked 1 items passed; level quick, the CPU (x86_64), torch 2.13" in words
    facts = json.loads(show(user, built, "aheadlib::bent", "--json", "-"))["ops"][0]
    assert facts["here"]["cpu"].keys() == {"prebuilt"} and facts["passport"][0][0] == "checked"


def test_show_says_what_is_not_prebuilt_any_more(built: Path, user: Run) -> None:
    words = show(user, built, "aheadlib::negated")
    assert "prebuilt 3 kernels, for any processor, AVX2, AVX512 cpu here 1 prebuilt" in words
    for path in (built / "ops.py", built / "negated.cpp"):
        path.write_text(path.read_text().replace("x * 0.5", "x * 0.25").replace("-from[i]", "0 - from[i]"))
    assert "cpu here 1 not compiled yet" in show(user, built, "aheadlib::negated")
    words = show(user, built, "aheadlib::bent")
    counts = dict(re.findall(r"(\d+) (prebuilt|not compiled yet)", words.partition("cpu here")[2]))
    assert set(counts.values()) == {"prebuilt", "not compiled yet"}, "what sums partial results has not changed"


def test_show_says_that_prebuilt_kernels_are_for_another_cuda(built: Path, user: Run) -> None:
    held = manifest(built)
    assert held["cuda"] is None, "it is built for CPUs"
    (built / "prebuilt" / "manifest.json").write_text(json.dumps({**held, "cuda": 12}))
    words = show(user, built, "aheadlib::bent", before="import torch; torch.version.cuda = '13.0'")
    assert "; CUDA 12. Those for GPUs are not used: torch is built for CUDA 13" in words
    words = show(user, built, "aheadlib::bent", before="import torch; torch.version.cuda = '12.8'")
    assert "; CUDA 12" in words and "not used" not in words


def show(user: Run, package: Path, *arguments: str, before: str = "pass") -> str:
    """The words that `opsmith show` prints."""
    line = ["opsmith", "show", *arguments, "--from", "aheadlib"]
    script = f"{before}; import sys; sys.argv = {line}; from opsmith.cli import main; main()"
    return " ".join(user(package, script).split())


@pytest.mark.parametrize(
    ("damaged", "contents", "message"),
    [
        (
            "pointwise.so",
            lambda image: image[:-1] + b"x",
            "the contents of pointwise.so have changed since it was built",
        ),
        ("pointwise.so", lambda image: image[: len(image) // 2], "pointwise.so has "),
        ("provenance.json", lambda text: text[: len(text) // 2], "JSONDecodeError"),
    ],
    ids=["tampered", "truncated", "seals"],
)
def test_a_damaged_file_is_named_and_not_used(
    built: Path, user: Run, damaged: str, contents: Callable[[bytes], bytes], message: str
) -> None:
    for library in (built / "prebuilt").rglob("pointwise.so"):
        path = library.with_name(damaged)
        path.write_bytes(contents(path.read_bytes()))
    script = "import torch, aheadlib; x = torch.ones(4, 8); aheadlib.ops.bent(x, x[0]); print(aheadlib.ops.negated(x))"
    printed = user(built, script)
    assert message in printed
    assert "the plain PyTorch reference runs instead" in printed
    assert "[-1., -1.," in printed, "other files of the build are used"


def test_a_damaged_library_of_an_extension_is_named_and_not_used(built: Path, user: Run) -> None:
    for library in (built / "prebuilt").rglob("aheadlib_ext.so"):
        library.write_bytes(library.read_bytes()[:-100])
    printed = user(built, "import torch, aheadlib; print(aheadlib.ops.negated(torch.ones(2)))")
    assert "aheadlib_ext.so has " in printed
    assert "the plain PyTorch reference runs instead" in printed
    assert "[-1., -1.]" in printed


def test_a_list_of_files_that_cannot_be_read_does_not_matter(built: Path, user: Run) -> None:
    (built / "prebuilt" / "manifest.json").write_text('{"kernels": [')
    assert "prebuilt kernels ran" in user(built, USE)


def test_a_build_that_fails_keeps_the_previous_one(built: Path) -> None:
    before = files(built / "prebuilt")
    names = sorted(each.name for each in built.iterdir())
    source = built / "negated.cpp"
    source.write_text(source.read_text().replace("-from[i]", "-form[i]"))
    done = build(built, "--no-cuda", fails=True)
    assert "negated.cpp" in done.stderr
    assert "form" in done.stderr
    assert files(built / "prebuilt") == before
    assert sorted(each.name for each in built.iterdir()) == names


@pytest.mark.usefixtures("_nvrtc")
def test_a_kernel_that_fails_for_one_gpu_is_named(package: Path) -> None:
    ops = (package / "ops.py").read_text()
    wrong = "#if __CUDA_ARCH__ == 800\n#error not on this GPU\n#endif\ntemplate <typename T> __global__"
    (package / "ops.py").write_text(ops.replace("template <typename T> __global__", wrong))
    done = build(package, "--arch", "sm_80,sm_90", fails=True)
    assert "not on this GPU" in done.stderr
    assert "sm_80" in done.stderr
    assert not (package / "prebuilt").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_build_that_is_interrupted_keeps_the_previous_one(new_package: Path, number: signal.Signals) -> None:
    package = new_package
    ops = (package / "ops.py").read_text().partition("cu = ")[0]
    (package / "ops.py").write_text(ops.replace("dtype is torch.float64", "dtype is not torch.float32"))
    former = package / "prebuilt" / "manifest.json"
    former.parent.mkdir()
    former.write_text("{}")
    names = {each.name for each in package.iterdir()}
    process = subprocess.Popen(
        [sys.executable, "-m", "opsmith.cli", "build", "--no-cuda"],
        cwd=package.parents[1],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list(package.glob(".prebuilt-*/artifacts")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait(30) != 0
    assert former.read_text() == "{}"
    left = {each.name for each in package.iterdir()} - names - {"__pycache__"}
    assert len(left) == (number is signal.SIGKILL), "this signal alone leaves no time to tidy"
    build(package, "--no-cuda")
    assert {each.name for each in package.iterdir()} - {"__pycache__"} == names
    assert files(package / "prebuilt").keys() > {"manifest.json"}


def test_files_that_no_build_wrote_are_not_replaced(package: Path) -> None:
    (package.parents[1] / "results").mkdir()
    (package.parents[1] / "results" / "thesis.txt").touch()
    done = build(package, "--no-cuda", "--into", "results", fails=True)
    assert "but has thesis.txt, which no build wrote" in done.stderr
    assert "Traceback" not in done.stderr
    assert (package.parents[1] / "results" / "thesis.txt").exists()


@pytest.mark.parametrize("options", [["--into"], ["--wheel", "--into"], ["--library", "--into"], ["--hf-kernel"]])
@pytest.mark.parametrize("into", ["pyproject.toml", "pyproject.toml/below", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], into: str
) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(_app.create(), ["build", "a_package_that_is_not_reached", *options, into])
    assert done.exit_code == 1
    assert f"{into} is not a directory that can be written: " in " ".join(done.stderr.split())
    assert done.stderr.endswith("Choose another directory.\n")


def test_a_package_in_a_zip_file_needs_a_place_for_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"zipped_{zlib.crc32(str(tmp_path).encode())}"
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr(f"{name}/__init__.py", ZIPPED.format(name=name))
    monkeypatch.syspath_prepend(tmp_path / "all.zip")
    done = CliRunner().invoke(_app.create(), ["build", name, "--no-cuda"])
    assert done.exit_code == 1
    assert f"{tmp_path}/all.zip/{name}/prebuilt is not a directory that can be written: Not a directory" in done.stderr
    built = CliRunner().invoke(_app.create(), ["build", name, "--no-cuda", "--into", str(tmp_path / "built")])
    assert built.exit_code == 0, built.stderr


# --- The GPUs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "no_cuda", "environment", "targets"),
    [
        (None, False, {}, gpus.ALL),
        ("all", False, {"GPU_TARGETS": "8.0"}, gpus.ALL),
        ("all-major", False, {}, gpus.ALL),
        (None, False, {"GPU_TARGETS": "8.0;9.0+PTX"}, ("sm_80", "sm_90", "compute_90")),
        ("sm_120", False, {"GPU_TARGETS": "8.0"}, ("sm_120",)),
        ("sm_90", True, {}, ()),
        (None, False, {"USE_CUDA": "0"}, ()),
    ],
)
def test_the_gpus_to_build_for(
    monkeypatch: pytest.MonkeyPatch, arch: str | None, no_cuda: bool, environment: dict[str, str], targets: object
) -> None:
    for name in ("GPU_TARGETS", "USE_CUDA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert targets_for(arch, no_cuda) == targets


def test_an_invalid_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TARGETS", "banana")
    with pytest.raises(BuildSettingError, match="GPU_TARGETS='banana' is not valid"):
        targets_for(None, False)


EXTENSION = """
import opsmith
ext = opsmith.extension("aheadlib_gpu", "kernel.cu", lazy=True)
"""
HIDE_NVRTC = 'import sys\nsys.modules["cuda.bindings.nvrtc"] = None\n'


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        (HIDE_NVRTC, {}, "NVRTC, which compiles CUDA kernels, was not found"),
        (EXTENSION, {"NVCC": "/no/such/nvcc"}, "nvcc, the CUDA compiler, was not found; looked for NVCC=/no/such/nvcc"),
        ("", {"GPU_TARGETS": "sm_999"}, "cannot compile for 'sm_999'; it supports sm_"),
    ],
    ids=["no NVRTC", "no nvcc", "unknown GPU"],
)
@pytest.mark.usefixtures("_nvrtc")
def test_without_a_compiler_for_the_gpus_nothing_is_begun(
    package: Path, planned_cache: Path, tmp_path: Path, lines: str, settings: dict[str, str], message: str
) -> None:
    (package / "ops.py").write_text(lines + (package / "ops.py").read_text().replace("from __future__", "# "))
    (package / "kernel.cu").touch()
    cache = shutil.copytree(planned_cache, tmp_path / "cache")
    settings = {"GPU_TARGETS": "sm_80", **settings, "OPSMITH_CACHE_DIR": str(cache)}
    done = build(package, fails=True, **settings)
    assert f"Kernels for {settings['GPU_TARGETS']} cannot be compiled here." in done.stderr
    assert message in done.stderr and "opsmith build --no-cuda" in done.stderr
    assert not list(package.glob("*prebuilt*")) and not list(cache.glob("packages-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "Python finds no module 'nowhere' here"),
        (["json.decoder"], "is a file; only a package (a directory) can hold files"),
        (["not-a-name"], "that is not a valid package name"),
        (["email", "--arch", "sm_banana"], "GPU architectures are written sm_90"),
        (["email"], "it declares no op"),
        ([], "there is no package in"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(_app.create(), ["build", *arguments, "--into", "here"])
    assert done.exit_code == 1
    assert message in " ".join(done.stderr.split())
    assert not list(tmp_path.iterdir())


def test_options_and_variables_are_compared_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    both = CliRunner().invoke(_app.create(), ["build", "email", "--no-cuda", "--arch", "sm_90"])
    assert both.exit_code == 2 and "leave out --arch, or --no-cuda" in both.stderr
    monkeypatch.setenv("DEBUG", "perhaps")
    done = CliRunner().invoke(_app.create(), ["build", "email", "--no-cuda"])
    assert done.exit_code == 1 and "DEBUG='perhaps' is not valid: set it to 1 or 0, or unset it." in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import no_such_accelerator",
            "note: the ops of {name}.part are left out, because it cannot be imported: No module named",
        ),
        (
            "from . import missing",
            "{name} fails when it is imported. {place}:1: ImportError: cannot import name 'missing'",
        ),
        (
            "import pytest\npytest.skip('no GPU here', allow_module_level=True)",
            "note: the ops of {name}.part are left out, because it cannot be imported: no GPU here",
        ),
        ("def f(x):\n    return x\nf(1, 2)", "{place}:3: TypeError: f() takes 1 positional argument but 2 were given"),
        ("import sys\nsys.exit()", "{place} ended the program (exit status None) while it was imported."),
    ],
    ids=["an optional package", "a skipped module", "a missing name", "an error", "a script"],
)
def test_a_module_that_cannot_be_imported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    name = tmp_path.name  # a different one in each test, for Python keeps modules by their names
    place = tmp_path / name / "part.py"
    place.parent.mkdir()
    (place.parent / "__init__.py").touch()
    place.write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = CliRunner().invoke(_app.create(), ["build", name, "--no-cuda"])
    assert message.format(name=name, place=place) in " ".join(done.stderr.split())
    assert done.exit_code == (1 if "nothing to build" in done.stderr else 2)
    assert ("nothing to build" in done.stderr) is ("left out" in message), "what is missing or skipped is optional"


def test_tests_in_a_package_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = tmp_path.name
    for part in (".", "tests", "inner", "inner/tests"):
        (tmp_path / name / part).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / part / "__init__.py").touch()
    for part in ("conftest.py", "tests/test_part.py", "inner/tests/__init__.py"):
        (tmp_path / name / part).write_text("1 / 0")
    (tmp_path / name / "inner" / "part.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = CliRunner().invoke(_app.create(), ["build", name, "--no-cuda"])
    assert "it declares no op" in done.stderr, done.stderr
    assert f"{name}.inner.part" in sys.modules


def test_a_module_of_a_package_in_src_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = tmp_path.name
    (tmp_path / "src" / name).mkdir(parents=True)
    for file in ("__init__.py", "kernels.py"):
        (tmp_path / "src" / name / file).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    done = CliRunner().invoke(_app.create(), ["build", f"{name}.kernels", "--no-cuda"])
    assert f"kernels.py is a file; only a package (a directory) can hold files. Build {name}." in done.stderr


def test_an_empty_package_says_what_is_built() -> None:
    assert "register_samples" in str(NothingToBuildError("mine", ["mine::op: it has no samples"]))


def test_the_gpu_of_an_emulated_tensor_is_an_h200() -> None:
    import torch

    assert opsmith.gpu_of(torch.ones(1)).name == "H200"
