"""Texts for property tests: anything, and C++ that a compiler accepts."""

from __future__ import annotations

from hypothesis import strategies as st

# In any order: nearer to what breaks a reader than random letters.
PIECES = [
    "__global__ void f(float* x, int n) {", "void g(torch::Tensor x) {", "}", "{", "(", ")", "[", "]", "<", ">",
    "<<<", ">>>", ",", ";", "=", "+", "*", "/", "%", "&", "?", ":", "::", ".", "->", "\n", "\\\n", "#if 0\n",
    "#else\n", "#endif\n", "#define F(x) ", "//", "/*", "*/", '"', "'", 'R"(', ')"', "x", "n", "int i = ",
    "blockIdx.x", "threadIdx.x", "x[", "f<<<n, 1>>>(", "template <", "typename T", "operator", "auto", "dim3",
    "static_cast<", "atomicAdd(", "thrust::", "sort", "cub::DeviceReduce::Max(", "m.def(", "TORCH_CHECK(",
    ".contiguous()", ".data_ptr<float>()", "opsmith::launch(", "// opsmith: allow(",
    "// opsmith: allow-file(int32-index)", "0", "1'000", "0x7f", "namespace a {", "struct S {", "~",
]  # fmt: skip
texts = st.one_of(
    st.text(),
    st.text(alphabet="\"'/*\\\nR()#<>{}[];a0 "),
    st.lists(st.sampled_from(PIECES), max_size=60).map("".join),
    st.lists(st.sampled_from(PIECES), max_size=60).map(" ".join),
)

CUDA = r"""
namespace a::b {
template <typename T, int N = (2 > 1), class U = Pair<T, int>>
__global__ void __launch_bounds__(256, 4) kernel(const T* __restrict__ x, unsigned int n, float y[4]) {
  if (x[0] < n && n > 3) { shared<N>(x); }
}
inline namespace v2 { static __global__ void plain(float*, int count = sizeof(int) > 4 ? 1 : 2); }
}
extern "C" { __device__ __forceinline__ float device_function(float) { return 0; } }
__constant__ float table[4], *pointer = nullptr; __constant__ struct { int rows; int columns; } sizes;
__device__ int counter{1}; __device__ const float pi = 3.14f;
__device__ float4 operator+(float4 p, float4 q) { return p; }
struct Walk : Base<int> {
  Walk(int n) : n_(n), step{1} { }
 private:
  C10_HOST_DEVICE float operator()(int i) const { return i; }
};
static auto lambdas = [](int) { return 1; };
const char* names[] = {"a", "b"}; const char quote = '"', brace = '{', other = '\''; int million = 1'000'000;
MACRO(16) __global__ void C10_LAUNCH_BOUNDS_1(512) with_macros(int k) ATTRIBUTE(3) {}
template <> __global__ void kernel<int>(const int* z, unsigned int n, float y[4]) {}
OPSMITH_EXPORT(one, two)
std::vector<at::Tensor> host(const at::Tensor& x, std::optional<at::Tensor> bias = std::nullopt) {
  a::b::kernel<float, 4><<<dim3(n >> 2, 1), 256, sizeof(A<B<int>>), stream>>>(x.data_ptr<float>(), n, f(1, 2));
  opsmith::launch(plain, {grid, block}, x, opsmith::data<float>(x));
}
auto trailing(int64_t n) -> decltype(n + 1) { return n; }
"""
