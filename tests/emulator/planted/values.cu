// Kernels that compute what has no meaning, break a promise of their own, or never end.

// [index_overflow]
__global__ void index_overflow(const float* x, float* y, int row, int row_stride) {
  const int begin = row * row_stride;  // here
  y[threadIdx.x] = x[begin + threadIdx.x];
}
// [index_overflow]

__global__ void sum_overflow(const int* x, int* y, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i];  // here
  *y = sum;
}

// [division_by_zero]
__global__ void division_by_zero(const int* x, int* y, int groups) {
  y[threadIdx.x] = x[threadIdx.x] / groups;  // here
}
// [division_by_zero]

__global__ void remainder_of_zero(const unsigned* x, unsigned* y, unsigned groups) {
  y[threadIdx.x] = x[threadIdx.x] % groups;  // here
}

// [failed_assertion]
__global__ void failed_assertion(const int* label, float* y, int classes) {
  assert(label[threadIdx.x] < classes);  // here
  y[label[threadIdx.x]] = 1.0f;
}
// [failed_assertion]

__global__ void trapped(const float* x) {
  if (x[threadIdx.x] < 0.0f) __trap();  // here
}

// [waits_for_nobody]
__global__ void waits_for_nobody(int* flag, float* y) {
  while (atomicAdd(flag, 0) == 0) {  // here
  }
  *y = 1.0f;
}
// [waits_for_nobody]

__global__ void waits_for_a_plain_flag(volatile int* flag, float* y) {
  while (*flag == 0) {  // here
  }
  *y = 1.0f;
}

// Goes round without touching memory: nothing but time can tell.
__global__ void never_ends(unsigned* y, unsigned step) {
  unsigned i = 1;
  while (i != 0) {  // here
    i = (i + step) | 1u;  // here
  }
  *y = i;
}
