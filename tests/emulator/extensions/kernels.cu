// Host code and kernels as authors of extensions write them, right and wrong ones. test_extensions.py says what each is.
#include <opsmith/cluster.h>
#include <opsmith/kernel.h>

#include <atomic>
#include <thread>

#include "reverse.cuh"

using opsmith::Tensor;

namespace {

constexpr int64_t kThreads = 64;

template <typename scalar>
__global__ void scale(const scalar* x, scalar* y, float factor, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) y[i] = static_cast<scalar>(static_cast<float>(x[i]) * factor);  // here, with too high a count
}

opsmith::Geometry blocks(const Tensor& x) { return {opsmith::blocks_for(x.numel(), kThreads), kThreads}; }

// --- Both forms of a launch, all dtypes -------------------------------------------------------------------------------

Tensor scaled(Tensor x, double factor) {
  opsmith::expect(x, "x").cuda().contiguous();
  Tensor out = opsmith::empty_like(x);
  if (x.numel() == 0) return out;
  const opsmith::DeviceGuard guard(x);
  const opsmith::Stream stream = opsmith::current_stream(x);
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::launch(
        scale<scalar>, blocks(x), stream, opsmith::data<const scalar>(x), opsmith::data<scalar>(out), factor, x.numel());
  });
  return out;
}

std::vector<Tensor> scaled_backward(std::optional<Tensor> grad, double factor, std::vector<bool> needs) {
  return {scaled(*grad, factor)};
}

// The kernel is given `count` elements, whatever x has.
Tensor scaled_counted(Tensor x, double factor, int64_t count) {
  Tensor out = opsmith::empty_like(x);
  opsmith::launch(
      scale<float>, blocks(x), x, opsmith::data<const float>(x), opsmith::data<float>(out), factor, count);
  return out;
}

std::vector<Tensor> faulty_backward(std::optional<Tensor> grad, double factor, std::vector<bool> needs) {
  return {scaled_counted(*grad, factor, grad->numel() + 1)};
}

// --- CUDA's own half types, which torch's convert to ------------------------------------------------------------------

__global__ void fused(const opsmith::half* x, const opsmith::bfloat16* y, opsmith::half* z, opsmith::bfloat16* w) {
  const __half a = x[threadIdx.x];
  const auto b = static_cast<__nv_bfloat16>(y[threadIdx.x]);
  z[threadIdx.x] = __hfma(a, a, __float2half(1.0f));
  w[threadIdx.x] = __hmul(b, __ldg(reinterpret_cast<const __nv_bfloat16*>(y) + threadIdx.x));
}

std::tuple<Tensor, Tensor> halves(Tensor x, Tensor y) {
  Tensor z = opsmith::empty_like(x), w = opsmith::empty_like(y);
  opsmith::launch(
      fused, {1, x.numel()}, x, opsmith::data<const opsmith::half>(x), opsmith::data<const opsmith::bfloat16>(y),
      opsmith::data<opsmith::half>(z), opsmith::data<opsmith::bfloat16>(w));
  return {z, w};
}

// --- Several launches: exp, the sum of each row, and the quotient -----------------------------------------------------

__global__ void exponentials(const float* x, float* y, int columns) {
  const int i = blockIdx.x * columns + threadIdx.x;
  y[i] = expf(x[i]);
}

__global__ void sums(const float* y, float* sum, int columns) {
  __shared__ float part[32];
  part[threadIdx.x] = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 32) part[threadIdx.x] += y[blockIdx.x * columns + i];
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int i = 1; i < 32; ++i) part[0] += part[i];
  sum[blockIdx.x] = part[0];
}

__global__ void quotients(float* y, const float* sum, int columns, int shift) {
  y[blockIdx.x * columns + threadIdx.x] /= sum[blockIdx.x + shift];  // here, with a shift
}

Tensor softmax(Tensor x, int64_t shift) {
  Tensor y = opsmith::empty_like(x), sum = opsmith::empty(x, {x.size(0)});
  const int64_t rows = x.size(0), columns = x.size(1);
  opsmith::launch(exponentials, {rows, columns}, x, opsmith::data<const float>(x), opsmith::data<float>(y), columns);
  opsmith::launch(sums, {rows, 32}, x, opsmith::data<const float>(y), opsmith::data<float>(sum), columns);
  opsmith::launch(
      quotients, {rows, columns}, x, opsmith::data<float>(y), opsmith::data<const float>(sum), columns, shift);
  return y;
}

// --- Shared memory, of any size, and any block ------------------------------------------------------------------------

Tensor reversed(Tensor x, int64_t threads, int64_t shared_bytes) {
  Tensor out = opsmith::empty_like(x);
  opsmith::dispatch<float, opsmith::half>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    opsmith::launch(
        reverse<scalar>, {x.size(0), threads, shared_bytes}, x, opsmith::data<const scalar>(x),
        opsmith::data<scalar>(out), x.size(1));
  });
  return out;
}

// --- Pointers: within a struct, into the middle of a tensor, not from opsmith::data --------------------------

struct Row {
  int64_t columns;
  const float* x;
  float* y;
};

__global__ void add_one(Row row) {
  if (threadIdx.x < row.columns) row.y[threadIdx.x] = row.x[threadIdx.x] + 1.0f;  // here, with too many columns
}

Tensor rows_by_struct(Tensor x, int64_t columns) {
  Tensor out = opsmith::empty_like(x);
  for (int64_t i = 0; i < x.size(0); ++i) {
    const Row row{columns, opsmith::data<const float>(x) + i * x.size(1), opsmith::data<float>(out) + i * x.size(1)};
    opsmith::launch(add_one, {1, kThreads}, x, row);
  }
  return out;
}

__global__ void copy(const float* begin, const float* end, float* y) {
  for (const float* at = begin; at != end; ++at) *y++ = *at;
}

// By the tensors' own pointers: x is an argument, `out` was made by opsmith::empty_like.
Tensor copied(Tensor x) {
  Tensor out = opsmith::empty_like(x);
  const float* const begin = static_cast<const float*>(x.data_ptr());
  opsmith::launch(copy, {1, 1}, x, begin, begin + x.numel(), static_cast<float*>(out.data_ptr()));
  return out;
}

// A view that host code has made ends where it ends.
Tensor scaled_head(Tensor x, int64_t elements, int64_t count) {
  Tensor head = torch::stable::narrow(x, 0, 0, elements);
  Tensor out = opsmith::empty_like(x);
  opsmith::launch(scale<float>, blocks(x), x, opsmith::data<const float>(head), opsmith::data<float>(out), 2.0, count);
  return out;
}

// Memory outside of all tensors.
Tensor from_elsewhere(Tensor x) {
  std::vector<float> own(x.numel(), 3.0f);
  Tensor out = opsmith::empty_like(x);
  opsmith::launch(scale<float>, blocks(x), x, own.data(), opsmith::data<float>(out), 1.0, x.numel());
  return out;
}

__global__ void gather(const float* const* rows, float* y) { y[threadIdx.x] = rows[threadIdx.x][0]; }

Tensor first_of_each(Tensor x, Tensor addresses) {
  Tensor out = opsmith::empty(x, {addresses.numel()});
  const auto* rows = reinterpret_cast<const float* const*>(opsmith::data<const int64_t>(addresses));
  opsmith::launch(gather, {1, addresses.numel()}, x, rows, opsmith::data<float>(out));
  return out;
}

__global__ void is_null(const float* maybe, float* y) { *y = maybe == nullptr ? 1.0f : *maybe; }

Tensor or_one(std::optional<Tensor> maybe, Tensor like) {
  Tensor out = opsmith::empty(like, {1});
  opsmith::launch(is_null, {1, 1}, like, opsmith::data<const float>(maybe), opsmith::data<float>(out));
  return out;
}

// --- Several tensors, in place ----------------------------------------------------------------------------------------

struct Several {
  float* tensors[8];
  int64_t sizes[8];
};

__global__ void double_all(Several several) {
  for (int64_t i = threadIdx.x; i < several.sizes[blockIdx.x]; i += blockDim.x) several.tensors[blockIdx.x][i] *= 2.0f;
}

std::vector<Tensor> doubled(std::vector<Tensor> tensors) {
  std::vector<Tensor> copies;
  Several several{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    copies.push_back(torch::stable::clone(tensors[i]));
    several.tensors[i] = opsmith::data<float>(copies[i]);
    several.sizes[i] = tensors[i].numel();
  }
  opsmith::launch(double_all, {static_cast<int64_t>(tensors.size()), 32}, tensors[0], several);
  return copies;
}

void doubled_in_place(Tensor x) {
  const Several several{{opsmith::data<float>(x)}, {x.numel()}};
  opsmith::launch(double_all, {1, 32}, x, several);
}

// --- One mistake of each kind -----------------------------------------------------------------------------------------

__global__ void mistaken(const float* x, float* y, int kind, int large) {
  __shared__ float tile[kThreads];
  if (kind < 0) tile[threadIdx.x] = 0.0f;
  if (kind == 0) assert(x[threadIdx.x] > 2.0f);                           // here: failed assertion
  if (kind == 1) CUDA_KERNEL_ASSERT(x[threadIdx.x] > 2.0f);               // here: torch's assertion
  if (kind == 2) *y += x[threadIdx.x];                                    // here: data race
  if (kind == 3) y[threadIdx.x] = tile[0];                                // here: uninitialised
  if (kind == 4 && threadIdx.x < 8) __syncthreads();                      // here: partial barrier
  if (kind == 5) y[0] = reinterpret_cast<const float4*>(x + 1)->x;        // here: misaligned
  if (kind == 6) y[0] = static_cast<float>(large * 3);                    // here: signed overflow
  if (kind == 7) y[0] = __shfl_sync(0xffu, x[threadIdx.x], 31);           // here: inactive lane
  if (kind == 8) y[threadIdx.x] = static_cast<float>(large / (kind - 8));  // here: division by zero
}

Tensor mistake(Tensor x, int64_t kind) {
  Tensor out = opsmith::empty_like(x);
  opsmith::launch(
      mistaken, {1, kThreads}, x, opsmith::data<const float>(x), opsmith::data<float>(out), kind, int64_t{1} << 30);
  return out;
}

// --- Variables of the device ------------------------------------------------------------------------------------------

__constant__ float coefficients[3];
__device__ int calls = 0;

__global__ void parabola(const float* x, float* y) {
  y[threadIdx.x] = (coefficients[2] * x[threadIdx.x] + coefficients[1]) * x[threadIdx.x] + coefficients[0];
  if (threadIdx.x == 0) atomicAdd(&calls, 1);
}

__global__ void read_calls(float* y) { *y = calls; }

Tensor polynomial(Tensor x, double a, double b, double c) {
  const float values[3] = {static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)};
  const opsmith::Stream stream = opsmith::current_stream(x);
  if (cudaMemcpyToSymbolAsync(coefficients, values, sizeof values, 0, cudaMemcpyHostToDevice, stream) != cudaSuccess) {
    opsmith::fail("the coefficients were not copied");
  }
  Tensor out = opsmith::empty_like(x);
  opsmith::launch(parabola, {1, x.numel()}, stream, opsmith::data<const float>(x), opsmith::data<float>(out));
  return out;
}

Tensor polynomial_calls(Tensor x) {
  Tensor out = opsmith::empty(x, {1});
  opsmith::launch(read_calls, {1, 1}, x, opsmith::data<float>(out));
  return out;
}

// --- Host code with a life of its own ---------------------------------------------------------------------------------

// Threads, atomics, statics, exceptions: in a file that is instrumented for its kernels' sake.
Tensor busy_host(Tensor x) {
  static std::atomic<int> total{0};
  static int plain = 0;
  std::vector<int> parts(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&parts, i] {
      parts[i] = i;
      total += i;
    });
  }
  for (std::thread& each : threads) each.join();
  try {
    if (++plain > 0) throw std::logic_error("caught");
  } catch (const std::logic_error&) {
    total += parts[3];
  }
  int overflowing = std::numeric_limits<int>::max() - 1;
  for (int i = 0; i < 3; ++i) overflowing += static_cast<int>(x.numel());  // not a kernel's, and none of our business
  return scaled(x, static_cast<double>(total) / (9.0 * plain));
}

Tensor launched_by_a_thread(Tensor x) {
  Tensor out = opsmith::empty_like(x);
  std::exception_ptr thrown;
  std::thread([&] {
    try {
      opsmith::launch(
          scale<float>, blocks(x), x, static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), 2.0,
          x.numel());
    } catch (...) {
      thrown = std::current_exception();
    }
  }).join();
  if (thrown) std::rethrow_exception(thrown);
  return out;
}

// Continues after a launch that failed, which is a mistake.
Tensor swallowed(Tensor x) {
  try {
    return scaled_counted(x, 2.0, 10 * x.numel());
  } catch (...) {
    return scaled(x, 2.0);
  }
}

// --- Clusters ---------------------------------------------------------------------------------------------------------

constexpr int kBlocks = 4;

// Each block of two stores its half of x where the other one's was.
__global__ void __cluster_dims__(2, 1, 1) swap_halves(const float* x, float* y) {
  __shared__ float half[kThreads];
  opsmith::cluster_barrier();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  opsmith::store_in_block(&half[threadIdx.x], opsmith::rank_in_cluster() ^ 1, x[i]);
  opsmith::cluster_barrier();
  y[i] = half[threadIdx.x];
}
__global__ void __cluster_dims__(2, 2) in_clusters_of_four(float* x) { x[blockIdx.x] = opsmith::rank_in_cluster(); }
__global__ void __cluster_dims__(16) in_clusters_of_sixteen(float* x) { x[blockIdx.x] = 1.0f; }
__global__ void __cluster_dims__(kBlocks) in_clusters_by_name(float* x) { x[blockIdx.x] = 1.0f; }

Tensor swapped(Tensor x) {
  Tensor out = opsmith::empty_like(x);
  opsmith::launch(swap_halves, blocks(x), x, opsmith::data<const float>(x), opsmith::data<float>(out));
  return out;
}

Tensor in_clusters(Tensor x, int64_t of) {
  Tensor out = opsmith::empty_like(x);
  const auto kernel = of == 4 ? in_clusters_of_four : of == 16 ? in_clusters_of_sixteen : in_clusters_by_name;
  opsmith::launch(kernel, {x.numel(), 1}, x, opsmith::data<float>(out));
  return out;
}

Tensor refuses(Tensor x) { opsmith::fail("x has ", x.numel(), " elements, and that is the kernel's own business"); }

}  // namespace

// For kernels.cpp.
Tensor negative_on_gpu(const Tensor& x) { return scaled(x, -1.0); }

OPSMITH_EXPORT(scaled_cuda, scaled)
OPSMITH_EXPORT(scaled_backward_cuda, scaled_backward)
OPSMITH_EXPORT(scaled_counted_cuda, scaled_counted)
OPSMITH_EXPORT(faulty_backward_cuda, faulty_backward)
OPSMITH_EXPORT(halves_cuda, halves)
OPSMITH_EXPORT(softmax_cuda, softmax)
OPSMITH_EXPORT(reversed_cuda, reversed)
OPSMITH_EXPORT(rows_by_struct_cuda, rows_by_struct)
OPSMITH_EXPORT(copied_cuda, copied)
OPSMITH_EXPORT(scaled_head_cuda, scaled_head)
OPSMITH_EXPORT(from_elsewhere_cuda, from_elsewhere)
OPSMITH_EXPORT(first_of_each_cuda, first_of_each)
OPSMITH_EXPORT(or_one_cuda, or_one)
OPSMITH_EXPORT(doubled_cuda, doubled)
OPSMITH_EXPORT(doubled_in_place_cuda, doubled_in_place)
OPSMITH_EXPORT(mistake_cuda, mistake)
OPSMITH_EXPORT(polynomial_cuda, polynomial)
OPSMITH_EXPORT(polynomial_calls_cuda, polynomial_calls)
OPSMITH_EXPORT(busy_host_cuda, busy_host)
OPSMITH_EXPORT(launched_by_a_thread_cuda, launched_by_a_thread)
OPSMITH_EXPORT(swallowed_cuda, swallowed)
OPSMITH_EXPORT(refuses_cuda, refuses)
OPSMITH_EXPORT(swapped_cuda, swapped)
OPSMITH_EXPORT(in_clusters_cuda, in_clusters)
