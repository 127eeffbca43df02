// A function for both devices, as some extensions have one: it asks the tensor where it is.
#include <cuda_runtime.h>
#include <opsmith/kernel.h>

using opsmith::Tensor;

Tensor negative_on_gpu(const Tensor& x);  // in kernels.cu

namespace {

Tensor negative(Tensor x) {
#ifdef OPSMITH_WITH_CUDA
  if (cudaGetLastError() != cudaSuccess) opsmith::fail("an earlier launch has failed");
  if (x.is_cuda()) return negative_on_gpu(x);
#endif
  opsmith::fail("the way of the CPU");
}

}  // namespace

OPSMITH_EXPORT(negative_cuda, negative)
