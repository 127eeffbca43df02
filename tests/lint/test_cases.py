"""Single cases of rules: what they find and what they do not report."""

from __future__ import annotations

import pytest

from opsmith.lint import lint_text


def rules(text: str, path: str = "case.cu") -> list[str]:
    return [finding.rule for finding in lint_text(text, path)]


def messages(text: str, rule: str) -> list[str]:
    return [finding.message for finding in lint_text(text, "case.cu") if finding.rule == rule]


def kernel(body: str, parameters: str = "const float* x, float* y, int64_t n") -> str:
    return f"__global__ void k({parameters}) {{ {body} }}"


FLAT = "blockIdx.x * blockDim.x + threadIdx.x"


class TestInt32Index:
    @pytest.mark.parametrize(
        "body",
        [
            f"int i = {FLAT}; if (i < n) y[i] = x[i];",
            f"unsigned i = {FLAT}; if (i < n) y[i] = x[i];",
            f"auto i = {FLAT}; if (i < n) y[i] = x[i];",
            f"const size_t i = {FLAT}; if (i < n) y[i] = x[i];",
            f"int64_t i = (int64_t)({FLAT}); if (i < n) y[i] = x[i];",
            f"alignas(8) int i = {FLAT}; if (i < n) y[i] = x[i];",
            f"int i; i = {FLAT}; if (i < n) y[i] = x[i];",
            f"int i = ({FLAT}) * 4; if (i < n) y[i] = x[i];",
            f"int i = ({FLAT}) / 32; if (i < n) y[i] = 0;",
            f"int i = {FLAT}; int j = i + 1; if (j < n) *(y + j) = 0;",
            f"int i = {FLAT}; if (i < n) reinterpret_cast<float4*>(y)[i] = float4{{}};",
            f"int i = {FLAT}; if (i < n) __stcs(y + i, 0.0f);",
            f"int i = {FLAT}; if (i < n) ((float4*)y)[i].x = 0;",
            f"if ({FLAT} < n) y[{FLAT}] = 0;",
            "const int tid = threadIdx.x, bid = blockIdx.x; int i = bid * blockDim.x + tid; if (i < n) y[i] = 0;",
            "y += blockIdx.x * 1024; if (threadIdx.x < n) y[threadIdx.x] = 0;",
            "float* row = y + blockIdx.x * blockDim.y; if (threadIdx.x < n) row[threadIdx.x] = 0;",
        ],
    )
    def test_an_index_that_overflows_32_bits_is_found_once(self, body: str) -> None:
        assert rules(kernel(body)) == ["int32-index"]

    @pytest.mark.parametrize(
        "body",
        [
            "int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];",
            "auto i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; if (i < n) y[i] = x[i];",
            "int64_t b = blockIdx.x; int64_t i = b * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i];",
            "y[blockIdx.x] = x[threadIdx.x];",  # one block per row, one thread per column
            "int row = blockIdx.x; if (row < n) y[row] = 0;",
            "int i = 4 * blockIdx.x; y[i] = 0;",  # no grid is so long
            "__shared__ float tile[256]; int i = blockIdx.x * 256 + threadIdx.x; tile[i % 256] = 0;",
            "int lane = (blockIdx.x * blockDim.x + threadIdx.x) % 32; if (lane < n) y[lane] = 0;",
            "int64_t row = blockIdx.x; for (int i = threadIdx.x; i < 100; ++i) y[row * 100 + i] = 0;",
            "for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = 0;",
            "int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;"
            "if (row < n && column < n) y[row * n + column] = x[column];",
            f"{{ int i = {FLAT}; }} int64_t i = threadIdx.x; if (i < n) y[i] = 0;",  # another i
            f"for (int i = {FLAT}; i < 3; ++i) {{ f(i); }} for (int64_t i = 0; i < n; ++i) y[i] = 0;",
            f"int64_t i = threadIdx.x; for (int i = {FLAT}; i < 3; ++i) {{ f(i); }} if (i < n) y[i] = 0;",
            f"int64_t i = threadIdx.x; for (int i = {FLAT}; i < 3; ++i) f(g(i), 1); if (i < n) y[i] = 0;",
            f"int64_t i = threadIdx.x; if (int i = {FLAT}; i < 3) f(i); else {{ g(i); }} if (i < n) y[i] = 0;",
            f"float local[4]; int i = {FLAT}; local[i % 4] = 0; float* p = local; p[i] = 0;",
        ],
    )
    def test_indices_of_64_bits_and_dimensions_are_not_reported(self, body: str) -> None:
        assert rules(kernel(body)) == []

    @pytest.mark.parametrize(
        ("type", "words"),
        [
            ("int", "i is an index of 32 bits: it is negative from 2^31 elements on."),
            ("const unsigned int", "i is an index of 32 bits: it wraps to 0 at 2^32 elements."),
            ("uint32_t", "i is an index of 32 bits: it wraps to 0 at 2^32 elements."),
            ("auto", "i is an index of 32 bits: it wraps to 0 at 2^32 elements."),
            ("int64_t", "i has 64 bits, but its value is computed in 32: it wraps to 0 at 2^32."),
        ],
    )
    def test_where_an_index_overflows_depends_on_its_type(self, type: str, words: str) -> None:
        text = kernel(f"{type} i = {FLAT}; if (i < n) y[i] = 0;")
        assert messages(text, "int32-index") == [words]
        (finding,) = lint_text(text, "case.cu")
        assert finding.remedy == "int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;"

    def test_the_type_of_a_member_is_unknown(self) -> None:
        assert rules(kernel("y[blockIdx.x * walk.columns] = 0;", "float* y, Walk walk")) == []
        assert rules(kernel("y[blockIdx.x * blockDim.y] = 0;", "float* y")) == ["int32-index"]

    def test_a_size_of_a_dimension_may_have_32_bits(self) -> None:
        body = "for (int64_t i = threadIdx.x * 2; i < columns; i += 64) y[blockIdx.x * int64_t(columns) + i] = x[i];"
        assert rules(kernel(body, "const float* x, float* y, int columns")) == []

    def test_a_long_chain_of_sums_is_followed_up_to_a_limit(self) -> None:
        chain = "".join(f"int i{k + 1} = i{k} + 1; auto j{k + 1} = j{k} + 1; " for k in range(500))
        body = f"int i0 = {FLAT}; auto j0 = {FLAT}; {chain} if (i500 < n && j500 < n) y[{{}}] = 0;"
        assert rules(kernel(body.format("i9"))) == ["int32-index"]
        assert rules(kernel(body.format("i500 + j500"))) == []

    def test_a_template_parameter_as_type_is_not_reported(self) -> None:
        body = "index_t i = blockIdx.x * index_t(blockDim.x) + threadIdx.x; if (i < n) y[i] = 0;"
        assert rules("template <typename index_t> " + kernel(body, "float* y, index_t n")) == []

    def test_accessors_are_not_reported(self) -> None:
        body = f"int i = {FLAT}; if (i < x.size(0)) x[i][0] = 0;"
        assert rules(kernel(body, "torch::PackedTensorAccessor64<float, 2> x")) == []

    @pytest.mark.parametrize(
        ("statement", "found"),
        [
            ("int n = x.numel();", True),
            ("const auto n = static_cast<int>(x.numel());", True),
            ("unsigned n = (unsigned)x.numel();", True),
            ("auto n = x.numel();", False),
            ("int rows = x.size(0);", False),
            ("const int blocks = (x.numel() + 255) / 256;", False),
            ("int64_t n = x.numel();", False),
        ],
    )
    def test_a_count_in_host_code(self, statement: str, found: bool) -> None:
        text = f"void f(const torch::Tensor& x) {{ {statement} }}"
        assert rules(text) == ["int32-index"] * found

    def test_a_product_of_sizes_that_a_kernel_is_launched_with(self) -> None:
        text = """void f(const torch::Tensor& x, cudaStream_t s) {
          int batch = x.size(0), channels = x.size(1);
          int total = batch * channels * x.size(2);
          k<<<64, 256, 0, s>>>(total);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
          const c10::cuda::CUDAGuard guard(x.device());
        }"""
        assert messages(text, "int32-index") == ["total counts elements in 32 bits: it overflows from 2^31 on."]
        assert messages(text.replace("(total)", "()"), "int32-index") == []
        assert messages(text.replace("int total", "auto total"), "int32-index") == []  # x.size(2) has 64 bits

    def test_a_parameter_that_is_launched_with_a_count(self) -> None:
        text = kernel("if (threadIdx.x < n) y[threadIdx.x] = 0;", "float* y, int n") + (
            "void f(const torch::Tensor& x, float* y) { k<<<1, 256, 0, stream>>>(y, x.numel()); }"
        )
        assert messages(text, "int32-index") == ["k takes the count n in 32 bits: 2^31 elements do not fit."]


class TestMissingBoundsCheck:
    @pytest.mark.parametrize(
        "body",
        [
            "y[i] = 0;",
            "y[i] += x[i];",
            "++y[i];",
            "atomicAdd(&count[i], 1);",
            "atomicAdd(count + i, 1);",
            "atomicAdd(reinterpret_cast<unsigned*>(&count[i]), 1u);",
            "__stcs(&y[i], 0.0f);",
            "y[i].x = 0;",
            "reinterpret_cast<float4*>(y)[i] = float4{};",
            "*(y + i) = 0;",
            "y[2 * i + 1] = 0;",
            "int64_t j = i + 1; y[j] = 0;",
            "float* out = y; out[i] = x[0] > 0 ? 1 : 0;",
        ],
    )
    def test_an_index_of_block_and_thread_that_is_never_compared(self, body: str) -> None:
        text = f"int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; {body}"
        assert rules(kernel(text, "const float* x, float* y, int* count")) == ["missing-bounds-check"]

    @pytest.mark.parametrize(
        "body",
        [
            "if (i >= n) return; y[i] = 0;",
            "if (n > i) y[i] = 0;",
            "bool inside = i < n; if (inside) y[i] = 0;",
            "for (; i < n; i += step) y[i] = 0;",
            "while (valid(i)) { y[i] = 0; i += 1; }",
            "int64_t j = 2 * i; if (j < n) y[j] = 0;",
            "int64_t j = 2 * i; if (i < n) y[j] = 0;",
            "i = min(i, n - 1); y[i] = 0;",
            "float v = y[i]; f(&y[i], y + i);",
            "__shared__ float tile[64]; tile[i] = 0;",
            "assert(i < n); y[i] = 0;",
            "__shared__ float tile[64]; float* own = tile + int(x[threadIdx.x]); own[i] = 0;",
        ],
    )
    def test_an_index_that_is_compared_or_only_read(self, body: str) -> None:
        assert rules(kernel(f"int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; {body}")) == []


class TestDefaultStream:
    @pytest.mark.parametrize(
        "stream",
        ["0", "nullptr", "NULL", "(cudaStream_t)0", "cudaStream_t{}", "cudaStreamLegacy", "cudaStreamPerThread"],
    )
    def test_ways_to_write_the_default_stream(self, stream: str) -> None:
        text = f"void f(float* x) {{ k<<<1, 2, 0, {stream}>>>(x); C10_CUDA_KERNEL_LAUNCH_CHECK(); }}"
        assert rules(text) == ["default-stream"]

    @pytest.mark.parametrize(
        "stream", ["s", "streams[0]", "at::cuda::getCurrentCUDAStream()", "c10::cuda::getCurrentCUDAStream().stream()"]
    )
    def test_ways_to_write_another_stream(self, stream: str) -> None:
        text = f"void f(float* x, cudaStream_t s) {{ k<<<1, 2, 0, {stream}>>>(x); C10_CUDA_KERNEL_LAUNCH_CHECK(); }}"
        assert rules(text) == []

    def test_a_variable_may_be_set_to_a_stream_later(self) -> None:
        text = "void f() {{ cudaStream_t s = 0; {} k<<<1, 1, 0, s>>>(); C10_CUDA_KERNEL_LAUNCH_CHECK(); }}"
        assert rules(text.format("cudaStreamCreate(&s);")) == []
        assert rules(text.format("")) == ["default-stream"]

    def test_launches_from_kernels_are_not_reported(self) -> None:
        assert rules("__global__ void outer() { inner<<<1, 32>>>(); }") == []

    def test_the_remedy_fits_the_file(self) -> None:
        text = "void f() { k<<<1, 1>>>(); }"
        plain, torch = lint_text(text, "a.cu")[0], lint_text("#include <torch/extension.h>\n" + text, "a.cu")[0]
        assert "cudaStream_t" in plain.remedy and "getCurrentCUDAStream" in torch.remedy


class TestCheckedLaunch:
    @pytest.mark.parametrize(
        "check",
        [
            "C10_CUDA_KERNEL_LAUNCH_CHECK();",
            "STD_CUDA_KERNEL_LAUNCH_CHECK();",
            "AT_CUDA_CHECK(cudaGetLastError());",
            "cudaError_t e = cudaPeekAtLastError(); if (e != cudaSuccess) throw e;",
            "CUDA_POST_KERNEL_CHECK();",
            'getLastCudaError("k failed");',
            "my_check();",
        ],
    )
    def test_ways_to_check(self, check: str) -> None:
        mine = "void my_check() { if (cudaGetLastError() != cudaSuccess) throw 1; }\n"
        assert rules(mine + f"void f(cudaStream_t s) {{ k<<<1, 1, 0, s>>>(); {check} }}") == []

    @pytest.mark.parametrize(
        "no_check", ["", "AT_CUDA_CHECK(cudaMemsetAsync(x, 0, 4, s));", "CHECK_CUDA(x);", "check_cuda_shapes();"]
    )
    def test_calls_that_do_not_check(self, no_check: str) -> None:
        mine = "void check_cuda_shapes() { }\n"
        text = mine + f"void f(float* x, cudaStream_t s) {{ k<<<1, 1, 0, s>>>(x); {no_check} }}"
        assert rules(text) == ["unchecked-launch"]

    def test_a_check_before_the_launch_does_not_count(self) -> None:
        text = "void f(cudaStream_t s) { C10_CUDA_KERNEL_LAUNCH_CHECK(); k<<<1, 1, 0, s>>>(); }"
        assert rules(text) == ["unchecked-launch"]

    def test_every_caller_must_check(self) -> None:
        launcher = "void run(cudaStream_t s) { k<<<1, 1, 0, s>>>(); }\n"
        asks = "void one(cudaStream_t s) { run(s); C10_CUDA_KERNEL_LAUNCH_CHECK(); }\n"
        assert rules(launcher + asks) == []
        assert rules(launcher + asks + "void two(cudaStream_t s) { run(s); }") == ["unchecked-launch"]

    def test_the_result_of_a_launching_call_must_be_used(self) -> None:
        call = "cudaLaunchKernel((void*)k, 1, 1, args, 0, s)"
        assert rules(f"void f(cudaStream_t s) {{ {call}; }}") == ["unchecked-launch"]
        assert rules(f"void f(cudaStream_t s) {{ C10_CUDA_CHECK({call}); }}") == []
        assert rules(f"cudaError_t f(cudaStream_t s) {{ return {call}; }}") == []


class TestDeviceGuard:
    LAUNCH = "k<<<1, 1, 0, s>>>(x.data_ptr<scalar_t>()); C10_CUDA_KERNEL_LAUNCH_CHECK();"

    @pytest.mark.parametrize(
        "guard",
        [
            "at::cuda::CUDAGuard g(x.device());",
            "const at::cuda::OptionalCUDAGuard g(device_of(x));",
            "at::DeviceGuard g{x.device()};",
            "torch::stable::accelerator::DeviceGuard g(x.get_device_index());",
            "DEVICE_GUARD(x);",
            "cudaSetDevice(x.get_device());",
        ],
    )
    def test_ways_to_set_the_device(self, guard: str) -> None:
        text = f"void f(const at::Tensor& x, cudaStream_t s) {{ {guard} {self.LAUNCH} }}"
        assert rules(text) == []

    def test_a_guard_after_the_launch_is_too_late(self) -> None:
        text = f"void f(const at::Tensor& x, cudaStream_t s) {{ {self.LAUNCH} at::cuda::CUDAGuard g(x.device()); }}"
        assert rules(text) == ["missing-device-guard"]

    def test_callers_of_a_function_of_pointers_set_the_device(self) -> None:
        launcher = "void run(float* x, cudaStream_t s) { k<<<1, 1, 0, s>>>(x); C10_CUDA_KERNEL_LAUNCH_CHECK(); }\n"
        caller = "void f(const at::Tensor& x, cudaStream_t s) { %s run(x.data_ptr<scalar_t>(), s); }"
        assert rules(launcher) == []
        assert rules(launcher + caller % "") == ["missing-device-guard"]
        assert rules(launcher + caller % "c10::cuda::CUDAGuard g(x.device());") == []

    def test_through_a_chain_of_functions(self) -> None:
        text = """void run(float* x, cudaStream_t s) { k<<<1, 1, 0, s>>>(x); C10_CUDA_KERNEL_LAUNCH_CHECK(); }
        void twice(float* x, cudaStream_t s) { run(x, s); run(x, s); }
        void f(const std::vector<at::Tensor>& all, cudaStream_t s) { %s twice(all[0].data_ptr<scalar_t>(), s); }"""
        assert rules(text % "") == ["missing-device-guard"]
        assert rules(text % "c10::cuda::CUDAGuard g(all[0].device());") == []

    def test_without_a_tensor_parameter_the_message_names_none(self) -> None:
        text = f"void f(cudaStream_t s) {{ auto x = made(); {self.LAUNCH} }}"
        (message,) = messages(text, "missing-device-guard")
        assert message == "f launches on the current GPU, which need not be that of its tensors."


class TestFloatAtomics:
    TEMPLATE = "template <typename T> __global__ void k(T* y) {{ atomicAdd(y, T(1)); }}\n"
    LAUNCH = "void f({0}* y, cudaStream_t s) {{ k<{0}><<<1, 1, 0, s>>>(y); C10_CUDA_KERNEL_LAUNCH_CHECK(); }}"

    @pytest.mark.parametrize(("type", "found"), [("float", True), ("at::Half", True), ("int", False)])
    def test_the_type_of_a_template_comes_from_its_launches(self, type: str, found: bool) -> None:
        text = (self.TEMPLATE + self.LAUNCH).format(type)
        assert rules(text) == ["float-atomics"] * found

    @pytest.mark.parametrize(
        ("statement", "found"),
        [
            ("atomicAdd(y, v);", True),
            ("atomicAdd(&y[3], v);", True),
            ("gpuAtomicAddNoReturn(y + 3, v);", True),
            ("__shared__ double sum; atomicAdd(&sum, 1.0);", True),
            ("atomicAdd(count, 1);", False),
            ("atomicMax(count, 1);", False),
            ("atomicAdd(reinterpret_cast<int*>(y), 1);", False),
            ("atomicAdd(&s->sum, 1);", False),  # of what type, is not known here
        ],
    )
    def test_types_that_are_added_to(self, statement: str, found: bool) -> None:
        text = (
            f"template <typename scalar_t> __device__ void f(scalar_t* y, int* count, S* s, float v) {{ {statement} }}"
        )
        assert rules(text) == ["float-atomics"] * found


class TestHostCode:
    @pytest.mark.parametrize(
        "check",
        [
            "if (x.numel() == 0) return;",
            "if (n < 1) return;",
            "if (0 == x.size(0)) return;",
            "if (!n) return;",
            'TORCH_CHECK(n > 0, "empty");',
            "blocks = std::max<int64_t>(blocks, 1);",
        ],
    )
    def test_ways_to_check_for_an_empty_tensor(self, check: str) -> None:
        text = f"""void f(const at::Tensor& x, cudaStream_t s) {{
          const c10::cuda::CUDAGuard guard(x.device());
          const int64_t n = x.numel();
          int64_t blocks = (n + 255) / 256;
          {check}
          k<<<blocks, 256, 0, s>>>();
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }}"""
        assert rules(text) == []
        assert rules(text.replace(check, "if (x.dim() == 1) return;")) == ["empty-tensor"]

    def test_a_grid_that_does_not_depend_on_a_tensor_is_never_empty(self) -> None:
        text = """void f(const at::Tensor& x, cudaStream_t s) {
          const c10::cuda::CUDAGuard guard(x.device());
          k<<<4 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount, 256, 0, s>>>();
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }"""
        assert rules(text) == []

    @pytest.mark.parametrize(
        ("grid", "found"),
        [
            ("dim3(1, x.size(0))", True),
            ("dim3(1, 1, x.size(0) * x.size(1))", True),
            ("dim3(x.size(0), 4)", False),
            ("dim3(1, (x.size(0) + 15) / 16)", False),
            ("dim3(1, std::min<int64_t>(x.size(0), 65535))", False),
            ("dim3(1, limited)", False),
            ("dim3(1, rows)", True),
        ],
    )
    def test_the_grid_along_y_and_z(self, grid: str, found: bool) -> None:
        text = f"""void f(const at::Tensor& x, cudaStream_t s) {{
          const c10::cuda::CUDAGuard guard(x.device());
          if (x.numel() == 0) return;
          const int64_t rows = x.size(0), limited = x.size(0);
          if (rows == 0 || limited > kMost) return;
          k<<<{grid}, 256, 0, s>>>();
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }}"""
        assert rules(text) == ["no-grid-limit"] * found

    @pytest.mark.parametrize("where", ["cuda.cu", "cpu.cpp"])
    def test_item_waits_where_there_is_a_gpu(self, where: str) -> None:
        text = "double f(const at::Tensor& x) { return x.sum().item<double>(); }"
        assert rules(text, where) == ["device-synchronise"] * (where == "cuda.cu")

    @pytest.mark.parametrize(
        "wait",
        ["at::cuda::getCurrentCUDAStream().synchronize();", "stream.synchronize();", "torch::cuda::synchronize();"],
    )
    def test_waits_of_torch(self, wait: str) -> None:
        assert rules(f"void f(c10::cuda::CUDAStream stream) {{ {wait} }}") == ["device-synchronise"]

    def test_expect_checks_where_a_tensor_is_and_copies_nothing(self) -> None:
        assert rules('void f(Tensor x) { opsmith::expect(x, "x").cpu().dims(2); }') == []
        assert rules("void f(Tensor x) { auto y = x.cpu(); }") == ["device-synchronise"]
        assert rules("void f(Tensor x) { auto y = cpu(), z = x.cpu(1); }") == []

    def test_tests_and_programs_may_wait(self) -> None:
        text = "void f() { cudaDeviceSynchronize(); }\n"
        assert rules(text) == ["device-synchronise"]
        assert rules("#include <gtest/gtest.h>\n" + text) == []
        assert rules(text + "int main() { f(); }") == []

    def test_assert_is_for_kernels(self) -> None:
        assert rules("__device__ void f(int i, int n) { assert(i < n); }\nat::Tensor g();") == []
        assert rules("void f(at::Tensor x) { assert(x.dim() == 2); }") == ["messageless-check"]
        assert rules("void f(int i) { assert(i == 2); }", "no_torch.cpp") == []

    @pytest.mark.parametrize(
        ("argument", "found"),
        [
            ("x.data_ptr<float>()", True),
            ("x.const_data_ptr<double>()", True),
            ("(float*)x.data_ptr()", True),
            ("reinterpret_cast<const int64_t*>(x.data_ptr())", True),
            ("x.data_ptr()", False),  # a void*: whoever takes it may ask
            ("x.data_ptr<int64_t>()", False),  # raises for another dtype, and an index has one
            ("x.data_ptr<scalar_t>()", False),
            ("fresh.data_ptr<float>()", False),
        ],
    )
    def test_elements_read_as_one_type(self, argument: str, found: bool) -> None:
        text = "void f(at::Tensor x) {{ auto fresh = at::empty({{4}}, at::kFloat); {} run({}); }}"
        assert rules(text.format("", argument)) == ["float-only"] * found
        assert rules(text.format('TORCH_CHECK(x.dtype() == at::kFloat, "f: x");', argument)) == []

    def test_a_schema_must_declare_a_mutation(self) -> None:
        text = 'void f(at::Tensor x) {{ x.zero_(); }}\nTORCH_LIBRARY(a, m) {{ m.def("f({} x) -> ()", &f); }}'
        assert rules(text.format("Tensor(a!)")) == []
        assert rules(text.format("Tensor")) == ["undeclared-mutation"]

    def test_a_copy_may_be_mutated(self) -> None:
        text = """void f(at::Tensor x) { x = x.clone(); x.zero_(); }
        TORCH_LIBRARY(a, m) { m.def("f(Tensor x) -> ()", &f); }"""
        assert rules(text) == []
