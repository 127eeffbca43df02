"""Doctor's probes, each on a machine where its tool is missing or broken, and what it says then."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith import runtime, toolchain
from opsmith.cli.doctor.finding import Finding
from opsmith.cli.doctor.guard import find
from opsmith.cli.doctor.probes import PROBES, compilers, driver, host, languages, pytorch
from opsmith.cli.doctor.probes.driver import DriverError, Gpu


@pytest.fixture(autouse=True)
def _tools_are_searched_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("CXX", "NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    toolchain.forget()
    yield
    toolchain.forget()


def ask(name: str) -> Finding:
    """The probe's finding, as its own process would report it, in this one."""
    return find(next(probe.function for probe in PROBES if probe.name == name))


def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (pytorch, compilers, languages):
        monkeypatch.setattr(module, "gpus", list)


# --- The C++ compiler ------------------------------------------------------------------------------------------


def test_a_working_compiler_is_proved_by_a_library_that_computes() -> None:
    finding = ask("cxx")
    assert (finding.status, finding.proof) == ("ok", "compiled, loaded and ran a library")
    assert ask("headers").proof == "compiled and loaded a library with it"


def test_the_proof_does_not_come_out_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ask("cxx").status == "ok"
    failing = tmp_path / "compiler"
    failing.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && echo "g++ (a test) 12.2.0" && exit\n'
        "echo 'doctor.cpp:1:1: error: refused'; exit 1\n"
    )
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    toolchain.forget()
    assert ask("cxx").status == "broken"
    assert os.environ["OPSMITH_CACHE_DIR"] == str(tmp_path / "cache"), "the user's cache is given back"


def test_a_broken_compiler_is_reported_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/bin/false")
    finding = ask("cxx")
    assert finding.status == "broken"
    assert finding.found == "/bin/false failed with exit status 1 when asked for its version"
    assert finding.fix == "unset CXX, or set it to a g++ or clang++ that works"
    headers = ask("headers")
    assert (headers.status, headers.fix) == ("broken", "see the C++ compiler's line")
    assert headers.found.endswith("but no C++ compiler works")


def test_no_compiler_at_all_is_missing_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = ask("cxx")
    assert (finding.status, finding.fix) == ("missing", "apt-get install g++")
    assert finding.found == "No C++ compiler was found; looked for c++ on PATH, g++ on PATH, clang++ on PATH"


def test_a_compiler_whose_library_computes_nonsense_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "SQUARES", compilers.SQUARES.replace("value * value", "value"))
    finding = ask("cxx")
    assert finding.status == "broken"
    assert finding.found.endswith("the sum of ten squares is 385, and its library gives 55")


def test_headers_that_are_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    finding = ask("headers")
    assert finding.status == "missing"
    assert finding.found == f"Python.h was not found; looked in {tmp_path}"


# --- CUDA ------------------------------------------------------------------------------------------------------


def test_nvrtc_compiles_half_types_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("cuda") is None:
        pytest.skip("cuda-bindings is not installed here: pip install 'opsmith[cuda13]'")
    no_gpu(monkeypatch)
    finding = ask("nvrtc")
    assert (finding.status, finding.proof) == ("ok", "compiled a kernel with cuda_fp16.h"), finding


def test_nvrtc_that_is_not_installed_names_the_extra_for_torchs_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.setattr(compilers, "torch_cuda_version", lambda: "12.8")
    finding = ask("nvrtc")
    assert (finding.status, finding.fix) == ("missing", "pip install 'opsmith[cuda12]'")


def test_nvcc_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC", "/no/such/nvcc")
    finding = ask("nvcc")
    assert finding.status == "missing"
    assert finding.found.startswith("nvcc, the CUDA compiler, was not found; looked for NVCC=/no/such/nvcc")


class FakeDriver:
    """A driver with the given GPUs, or one whose start fails."""

    def __init__(self, *gpus: Gpu, error: Exception | None = None) -> None:
        self._gpus, self._error, self.version = gpus, error, "13.0"

    def __call__(self) -> FakeDriver:
        if self._error:
            raise self._error
        return self

    def gpus(self) -> list[Gpu]:
        return list(self._gpus)


def with_driver(monkeypatch: pytest.MonkeyPatch, *gpus: Gpu, error: Exception | None = None) -> Finding:
    monkeypatch.setattr(driver, "Driver", FakeDriver(*gpus, error=error))
    return ask("driver")


def test_every_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = with_driver(monkeypatch, Gpu("NVIDIA H200", "sm_90", 150 << 30), Gpu("NVIDIA T4", "sm_75", 16 << 30))
    assert finding.status == "ok"
    assert finding.found == "for CUDA up to 13.0: NVIDIA H200 (sm_90, 150.0 GiB), NVIDIA T4 (sm_75, 16.0 GiB)"


def test_a_driver_that_does_not_start_is_broken_with_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = with_driver(monkeypatch, error=DriverError("cuInit", 803, "system has unsupported display driver"))
    assert finding.status == "broken"
    assert finding.found == "cuInit failed with error 803: system has unsupported display driver"
    assert "nvidia-smi" in str(finding.fix)


def test_hidden_gpus_are_reported_with_the_variable_that_hides_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    finding = with_driver(monkeypatch, error=DriverError("cuInit", driver.NO_DEVICE, "no device"))
    assert (finding.status, finding.fix) == ("missing", "unset CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    ("in_kernel", "on_bus", "fix"),
    [
        (True, True, "docker run --gpus all (with NVIDIA's container toolkit)"),
        (False, True, "apt-get install nvidia-driver"),
        (False, False, "a machine with an NVIDIA GPU"),
    ],
)
def test_a_missing_driver_a_missing_gpu_and_a_closed_container_differ(
    in_kernel: bool, on_bus: bool, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.Path, "exists", lambda _: in_kernel)
    monkeypatch.setattr(driver, "_on_the_bus", lambda: on_bus)
    finding = with_driver(monkeypatch, error=OSError("libcuda.so.1: cannot open shared object file"))
    assert (finding.status, finding.fix) == ("missing", fix)


def test_a_kernel_that_computes_nonsense_is_broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Wrong:
        def launch(self, *_: object) -> list[float]:
            return [0.0, 0.0, 0.0]

    monkeypatch.setattr(compilers, "gpus", lambda: [Gpu("a GPU", "sm_80", 1)])
    monkeypatch.setattr(compilers, "Driver", Wrong)
    with pytest.raises(ArithmeticError, match=r"should give \[0.5, 1.5, 2.5\] and gives \[0.0, 0.0, 0.0\]"):
        compilers._prove(tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["driver", "gpu", "nvrtc", "nvcc", "triton", "numba"])
def test_on_a_gpu_kernels_run(name: str) -> None:
    finding = ask(name)
    if finding.status == "missing":
        pytest.skip(f"{name}: {finding.found}")
    assert finding.status == "ok", finding
    if name in ("nvrtc", "nvcc"):
        assert finding.proof == "compiled and ran a kernel with cuda_fp16.h"


# --- Packages --------------------------------------------------------------------------------------------------


def without(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else real(name))


@pytest.mark.parametrize("name", ["torch", "triton", "numba"])
def test_a_package_that_is_not_installed_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without(name, monkeypatch)
    assert ask(name) == Finding("missing", f"no package {name} in this Python")


def test_torch_is_proved_and_reported_with_its_build() -> None:
    finding = ask("torch")
    assert (finding.status, finding.proof) == ("ok", "differentiated a product")
    assert finding.found.startswith(torch.__version__)


def test_torch_built_for_rocm_or_too_old_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    assert ask("torch").found.endswith("which is older than 2.11")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert ask("torch").status == "broken"
    assert ask("torch").found.endswith("built for ROCm 6.4: ROCm is out of scope for now")


def test_a_torch_without_cuda_on_a_machine_with_a_gpu_has_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytorch, "gpus", lambda: [Gpu("a GPU", "sm_90", 1)])
    monkeypatch.setattr(torch.version, "cuda", None)
    finding = ask("gpu")
    assert finding.status == "missing"
    assert finding.fix == f"pip install --force-reinstall torch=={torch.__version__.split('+')[0]}"


PROBE_NUMBA = """
import sys, numpy
if sys.argv[1] == "without" and hasattr(numpy, "row_stack"):
    del numpy.row_stack  # as NumPy 2.5 has
from opsmith.cli.doctor.guard import find
finding = find("opsmith.cli.doctor.probes.languages:numba")
assert finding.status == "ok" and finding.proof.startswith("ran a kernel"), finding
assert finding.found.endswith("looks for it, and opsmith supplies it") == (not hasattr(numpy, "row_stack")), finding
print(finding.found)
"""


@pytest.mark.parametrize("name", ["with", "without"])
def test_numba_works_under_numpy_that_numba_cuda_does_not_know(name: str) -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed here: pip install 'opsmith[numba]'")
    done = subprocess.run([sys.executable, "-c", PROBE_NUMBA, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert name == "with" or "NumPy" in done.stdout


@pytest.mark.parametrize("name", ["triton", "numba"])
def test_without_a_gpu_a_kernel_runs_in_the_languages_own_emulator(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec({"triton": "triton", "numba": "numba_cuda"}[name]) is None:
        pytest.skip(f"{name} is not installed here: pip install 'opsmith[{name}]'")
    no_gpu(monkeypatch)
    finding = ask(name)
    assert finding.status == "ok", finding
    emulator = {"triton": "interpreter", "numba": "simulator"}[name]
    assert finding.proof == f"ran a kernel in its {emulator} (there is no GPU)"


# --- The rest --------------------------------------------------------------------------------------------------


def test_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "OLDEST_PYTHON", (9, 9))
    assert ask("python").status == "broken"


def test_the_cache_is_proved_by_writing_into_it(tmp_path: Path) -> None:
    finding = ask("cache")
    assert (finding.status, finding.proof) == ("ok", "wrote, renamed and read a file")
    assert finding.found == f"{tmp_path}/cache, mode 0700, 0 builds, 0 bytes"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["artifacts", "locks", "work"]


def test_a_cache_that_others_can_write_has_a_fix(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache").chmod(0o777)
    finding = ask("cache")
    assert finding.status == "broken"
    assert "its mode 0777 lets others write into it" in finding.found
    assert f"chmod 700 {tmp_path}/cache" in str(finding.fix)


def test_a_cache_that_cannot_be_made_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert ask("cache").found == f"The cache directory {tmp_path}/file/cache cannot be used: Not a directory"
    monkeypatch.setenv("OPSMITH_CACHE_DIR", str(tmp_path / "cache"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(host.tempfile, "TemporaryDirectory", full)
    assert ask("cache") == Finding("broken", f"{tmp_path}/cache, mode 0700: No space left on device")


def test_a_probe_that_needs_torch_where_there_is_none_points_at_torchs_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_torch() -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(compilers, "find_nvcc", no_torch)
    assert ask("nvcc") == Finding("broken", "needs torch", fix="see PyTorch's line")


@pytest.mark.parametrize("tier", ["native", "python"])
def test_the_runtime_is_reported_with_its_tier_and_the_reason(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if tier == "native" and runtime.tier() != "native":
        pytest.skip(f"the C++ runtime is not built: {runtime.reason()}; run `make setup`")
    monkeypatch.delenv("OPSMITH_RUNTIME", raising=False)
    with runtime.forced(tier):
        finding = ask("runtime")
    shown, status = {"native": ("C++", "ok"), "python": ("Python", "missing")}[tier]
    assert finding.found == f"{opsmith.__version__} on the {shown} tier ({runtime.reason()})"
    assert finding.status == status


def test_the_python_runtime_is_ok_where_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_RUNTIME", "python")
    with runtime.forced("python"):
        assert ask("runtime").status == "ok"
