// What the memory of a GPU gives to a kernel: the ceilings that bench holds every op against.
//
// Each thread moves 16 bytes at a time, neighbours next to each other, four requests in flight; a block walks over its
// own stretch. DMA copies are not the limit: they are slower than a kernel.

constexpr int kInFlight = 4;

extern "C" __global__ void copy(const uint4* __restrict__ from, uint4* __restrict__ to, long long n) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * kInFlight + threadIdx.x;
  uint4 held[kInFlight];
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const long long at = first + static_cast<long long>(i) * blockDim.x;
    if (at < n) held[i] = from[at];
  }
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const long long at = first + static_cast<long long>(i) * blockDim.x;
    if (at < n) to[at] = held[i];
  }
}

extern "C" __global__ void fill(uint4* __restrict__ to, long long n, unsigned int value) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * kInFlight + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const long long at = first + static_cast<long long>(i) * blockDim.x;
    if (at < n) to[at] = make_uint4(value, value, value, value);
  }
}

// The sum is written where it is zero, so that no load can be left out and almost nothing is stored.
extern "C" __global__ void read(const uint4* __restrict__ from, unsigned int* __restrict__ out, long long n) {
  const long long first = static_cast<long long>(blockIdx.x) * blockDim.x * kInFlight + threadIdx.x;
  unsigned int sum = 1;
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const long long at = first + static_cast<long long>(i) * blockDim.x;
    if (at < n) {
      const uint4 value = from[at];
      sum |= value.x ^ value.y ^ value.z ^ value.w;
    }
  }
  if (sum == 0) out[0] = sum;
}
