"""Files: directories, files that belong together, sources inside Python files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsmith.lint import lint_file, lint_files, sources

LAUNCH = (
    "void run(const at::Tensor& x, cudaStream_t s) { k<<<(x.numel() + 255) / 256, 256, 0, s>>>(x.data_ptr<float>()); }"
)


def rules(*paths: Path) -> list[str]:
    return [finding.rule for finding in lint_files(paths)]


class TestTogether:
    def test_a_caller_in_another_file_may_have_guard_check_and_dtype(self, tmp_path: Path) -> None:
        kernel, binding = tmp_path / "kernel.cu", tmp_path / "binding.cpp"
        kernel.write_text(LAUNCH)
        binding.write_text("""
            #include "checks.h"
            void op(const at::Tensor& x) {
              CHECK_INPUT(x);
              const at::cuda::OptionalCUDAGuard guard(device_of(x));
              if (x.numel() == 0) return;
              run(x, at::cuda::getCurrentCUDAStream());
              C10_CUDA_KERNEL_LAUNCH_CHECK();
            }""")
        header = tmp_path / "checks.h"
        header.write_text('#define CHECK_INPUT(x) TORCH_CHECK(x.dtype() == at::kFloat, #x " must be float32")')
        alone = ["empty-tensor", "float-only", "missing-device-guard", "unchecked-launch"]
        assert sorted(rules(kernel)) == alone
        assert rules(kernel, binding, header) == []
        assert rules(kernel, binding) == ["float-only"]

    def test_a_launcher_of_pointers_in_another_file_launches_too(self, tmp_path: Path) -> None:
        kernel, binding = tmp_path / "kernel.cu", tmp_path / "binding.cpp"
        kernel.write_text(
            "void run(double* x, cudaStream_t s) { k<<<1, 1, 0, s>>>(x); C10_CUDA_KERNEL_LAUNCH_CHECK(); }"
        )
        binding.write_text("void op(const at::Tensor& x) {\n  run(x.data_ptr<scalar_t>(), stream);\n}\n")
        assert rules(binding) == rules(kernel) == []
        (finding,) = lint_files([kernel, binding])
        assert (finding.place, finding.rule) == (f"{binding}:2:3", "missing-device-guard")

    def test_one_caller_of_two_without_them_is_enough(self, tmp_path: Path) -> None:
        kernel, good, bad = tmp_path / "kernel.cu", tmp_path / "good.cpp", tmp_path / "bad.cpp"
        kernel.write_text("void run(cudaStream_t s) { k<<<1, 1, 0, s>>>(); }")
        good.write_text("void one() { run(stream); C10_CUDA_KERNEL_LAUNCH_CHECK(); }")
        bad.write_text("void two() { run(stream); }")
        assert rules(kernel, good) == []
        assert rules(kernel, good, bad) == ["unchecked-launch"]

    def test_a_function_of_the_same_name_is_another(self, tmp_path: Path) -> None:
        kernel, other = tmp_path / "kernel.cu", tmp_path / "other.cpp"
        kernel.write_text("void run(cudaStream_t s) { k<<<1, 1, 0, s>>>(); }")
        other.write_text("void run(int) { }\nvoid one() { run(1); C10_CUDA_KERNEL_LAUNCH_CHECK(); }")
        assert rules(kernel, other) == ["unchecked-launch"]

    def test_findings_are_ordered_by_file_and_line(self, tmp_path: Path) -> None:
        for name in ("b.cu", "a.cu"):
            (tmp_path / name).write_text("void f() {\n  cudaDeviceSynchronize();\n  cudaDeviceSynchronize();\n}\n")
        found = lint_files([tmp_path / "b.cu", tmp_path / "a.cu"])
        assert [finding.place for finding in found] == [
            f"{tmp_path}/{name}:{line}:3" for name in ("a.cu", "b.cu") for line in (2, 3)
        ]


class TestPython:
    def test_a_source_in_a_string_is_linted_at_its_place_in_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "op.py"
        path.write_text('''"""A docstring may say kernel<<<1, 1>>>(x); and __global__ void."""
import opsmith

cu = opsmith.cuda_source(r"""__global__ void f(float* x) { atomicAdd(x, 1.0f); }
__global__ void g(float* x, long long n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 0;
}
""")
name = "__global__"
''')
        found = [(finding.line, finding.column, finding.rule) for finding in lint_file(path)]
        assert found == [(4, 60, "float-atomics"), (6, 13, "int32-index")]
        assert path.read_text().splitlines()[3][59:].startswith("atomicAdd")

    def test_letters_of_several_bytes_count_as_one(self, tmp_path: Path) -> None:
        path = tmp_path / "op.py"
        path.write_text(
            '\f\nname = "größe"; cu = "__global__ void f(float* x) { atomicAdd(x, 1.0f); }"\n', encoding="utf-8"
        )
        (finding,) = lint_file(path)
        assert (
            path.read_text(encoding="utf-8").split("\n")[finding.line - 1][finding.column - 1 :].startswith("atomicAdd")
        )

    def test_a_string_whose_lines_are_not_lines_of_the_file_is_reported_at_its_beginning(self, tmp_path: Path) -> None:
        path = tmp_path / "op.py"
        path.write_text('x = 1\ncu = "__global__ void f(float* x) {\\n  atomicAdd(x, 1.0f);\\n}"\n')
        assert [(finding.line, finding.column) for finding in lint_file(path)] == [(2, 7)]

    @pytest.mark.parametrize("text", ["def f(:\n", "", "x = f'__global__ void {x}'\n", "\0"])
    def test_other_python_files_have_none(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "op.py"
        path.write_text(text)
        assert lint_file(path) == []


class TestDirectories:
    def test_sources_are_found_and_third_party_code_is_skipped(self, tmp_path: Path) -> None:
        wanted = ["a.cu", "csrc/b.cuh", "csrc/c.cpp", "csrc/deep/d.h", "e.py"]
        others = ["f.txt", ".hidden.cu", ".git/g.cu", "build/h.cu", "third_party/i.cu", "env/lib/j.py"]
        for name in [*wanted, *others]:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / "env" / "pyvenv.cfg").touch()
        found = sources([tmp_path])
        assert sorted(str(path.relative_to(tmp_path)) for path in found) == wanted

    def test_a_named_file_is_linted_whatever_its_suffix_and_once(self, tmp_path: Path) -> None:
        path = tmp_path / "build" / "kernel.inc"
        path.parent.mkdir()
        path.write_text("void f() { k<<<1, 1>>>(); }")
        os.symlink(path, tmp_path / "again.cu")
        assert sources([path, path, tmp_path]) == [path]
        assert set(rules(path)) == {"default-stream", "unchecked-launch"}

    def test_bytes_that_are_not_utf_8_are_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "latin.cu"
        path.write_bytes(b"\xef\xbb\xbf// caf\xe9\nvoid f() { cudaDeviceSynchronize(); }\n")
        assert [(finding.line, finding.column) for finding in lint_file(path)] == [(2, 12)]
