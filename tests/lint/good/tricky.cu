// What looks like a fault, and is a comment, a string, dead code, a template or a shift.
#include <torch/extension.h>

/* kernel<<<1, 1>>>(x.contiguous().data_ptr<float>());
   cudaDeviceSynchronize(); */
// a comment that goes on \
   cudaDeviceSynchronize();
const char* source = R"cuda(
__global__ void square(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = x[i] * x[i];
}
void run(torch::Tensor x) { square<<<1, 256>>>(x.data_ptr<float>(), x.numel()); }
)cuda";
const char* escaped = "\" TORCH_CHECK(x) cudaDeviceSynchronize() \\";
const char quote = '"', other = '\'';
constexpr int64_t kMany = 1'000'000'000'000;

#if 0
void off(torch::Tensor x) { kernel<<<1, 1>>>(x.data_ptr<float>()); it's not even C++ }
#endif

#define NOTHING(x) do { } while (0) /* assert(x) */

std::ostream& operator<<(std::ostream& out, const std::vector<std::pair<int, std::vector<int>>>& pairs) {
  for (const auto& [first, rest] : pairs) out << first << (rest.size() >> 1) << (first < 3 ? "a" : "b");
  return out;
}

template <class T, bool kLess = (sizeof(T) < 4)>
struct Chosen {
  using type = std::conditional_t<kLess, int, std::array<std::array<T, 4>, 4>>;
  Chosen() : values{}, count(0) {}
  ~Chosen() { NOTHING(values); }
  T operator()(int i) const { return i < count ? values[i] : T(0); }
  T values[4];
  int count;
};

template <typename... Kernels>
bool all(bool a, bool b, int c, int d) {
  return a < b && c > d || (c >> 2) > (d << 3) || sizeof...(Kernels) > 1u;
}

template <typename T>
__global__ void negate(T* x, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = -x[i];
}

void launched(float* x, int64_t n, cudaStream_t stream) {
  negate<float><<<dim3((n + 255) >> 8), std::min<int>(n, 256), sizeof(Chosen<std::array<int, 2>>), stream>>>(x, n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

struct Stream {
  void item() {}
  Stream& cpu() { return *this; }
};
