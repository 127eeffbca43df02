// Comments that allow what is not a rule, or what is not broken.
#include <torch/extension.h>
// opsmith: allow-file(device-synchronise)  expect: unused-allow

// opsmith: allow(int32-indices): expect: unknown-allow
__global__ void zero(float* x, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = 0;  // opsmith: allow(missing-bounds-check, float-atomics)  expect: unused-allow, unused-allow
}

// opsmith: allow  expect: unknown-allow
void launch_zero(float* x, int64_t n) {
  // opsmith: allow(default-stream): the one before speaks of the next line with code
  // and so does a comment below it
  zero<<<(n + 255) / 256, 256>>>(x, n);  // expect: unchecked-launch
}
