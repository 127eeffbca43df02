// The rows of a matrix in the opposite order of columns, through dynamic shared memory. A header with a kernel in it.
#pragma once

template <typename scalar>
__global__ void reverse(const scalar* x, scalar* y, int columns) {
  extern __shared__ unsigned char memory[];
  scalar* const row = reinterpret_cast<scalar*>(memory);
  row[threadIdx.x] = x[blockIdx.x * columns + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * columns + threadIdx.x] = row[columns - 1 - threadIdx.x];  // here, with too little memory
}
