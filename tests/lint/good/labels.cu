// A rule that is broken on purpose, with the reason beside it.

// [allow]
__global__ void count(const float* labels, float* counts, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  // opsmith: allow(float-atomics): whole numbers, whose sums are exact
  if (i < n) atomicAdd(&counts[int(labels[i])], 1.0f);
}
// [allow]
