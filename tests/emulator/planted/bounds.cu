// Kernels that leave the memory they were given. The faulty line of each ends in `here`.

// [off_by_one]
__global__ void off_by_one(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) x[i] = 0.0f;  // here
}
// [off_by_one]

// The grid is rounded up to whole blocks; the last one has threads without an element.
__global__ void missing_bounds_check(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i];  // here
}

__global__ void negative_index(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] - x[i - 1];  // here
}

// 0u - 1 is 4294967295, and 64-bit pointers go there.
__global__ void unsigned_index_below_zero(const float* x, float* y, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned left = i - 1;
  if (i < n) y[i] = x[i] - x[left];  // here
}

// Launched on x[:600] of a longer x, with the length of the whole.
__global__ void slice_taken_for_the_whole(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    y[i] = x[i];  // here
  }
}

// Writes a value a pair, into an output that has room for every other.
__global__ void output_too_small(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];  // here
}

// Four at a time, and nobody asks whether the last four are all there.
__global__ void missing_tail_mask(const float* x, float* y, int n) {
  const int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) {
    const float4 four = *reinterpret_cast<const float4*>(x + i);  // here
    for (int k = 0; k < 4 && i + k < n; ++k) y[i + k] = (&four.x)[k];
  }
}

// A matrix of rows and columns, indexed with the one where the other belongs.
__global__ void rows_and_columns_swapped(float* matrix, int rows, int columns) {
  const int column = threadIdx.x, row = threadIdx.y;
  if (row < rows && column < columns) matrix[column * columns + row] = 1.0f;  // here
}

__global__ void index_from_a_tensor(const float* table, const long long* index, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = table[index[i]];  // here
}

__global__ void optional_tensor_not_asked_for(const float* x, const float* bias, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + bias[i];  // here
}

__device__ float half_of(const float* x, long long i) {
  return 0.5f * x[i];  // here
}

__global__ void in_a_device_function(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = half_of(x, i + 1);
}

__constant__ float coefficients[4] = {1.0f, 0.5f, 0.25f, 0.125f};

__global__ void constant_past_its_end(const float* x, float* y, int terms) {
  float sum = 0.0f;
  for (int term = 0; term < terms; ++term) sum = sum * x[threadIdx.x] + coefficients[term];  // here
  y[threadIdx.x] = sum;
}

// [write_to_a_constant]
__global__ void write_to_a_constant(float scale) {
  float* const first = const_cast<float*>(&coefficients[0]);
  *first = scale;  // here
}
// [write_to_a_constant]

__device__ int visits[8];

__global__ void device_variable_past_its_end(int n) {
  if (threadIdx.x <= n) visits[threadIdx.x] = 1;  // here
}

// memcpy is an access like any other.
__global__ void copied_by_memcpy(const float* x, float* y, int bytes) {
  if (threadIdx.x == 0) memcpy(y, x, bytes);  // here
}

// --- Alignment -----------------------------------------------------------------------------------------------------

// [misaligned_float4]
__global__ void misaligned_float4(const float* x, float* y, int n) {
  const int i = 4 * threadIdx.x;
  if (i + 3 < n) {
    const float4 four = *reinterpret_cast<const float4*>(x + i);  // here
    y[threadIdx.x] = four.x + four.y + four.z + four.w;
  }
}
// [misaligned_float4]

// A header of one int, then doubles.
__global__ void double_at_four_bytes(const unsigned char* message, double* y) {
  y[threadIdx.x] = reinterpret_cast<const double*>(message + 4)[threadIdx.x];  // here
}

// One array after another in dynamic shared memory: the floats are an odd number.
__global__ void carved_without_alignment(double* y, int floats) {
  extern __shared__ unsigned char memory[];
  float* const first = reinterpret_cast<float*>(memory);
  double* const second = reinterpret_cast<double*>(first + floats);
  second[threadIdx.x] = threadIdx.x;  // here
  __syncthreads();
  y[threadIdx.x] = second[threadIdx.x];
}
