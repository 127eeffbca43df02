// Host code for the kernels of 11_launch_by_name.cu, compiled by the C++ compiler alone.

// [host]
#include <opsmith/kernel.h>

using opsmith::Tensor;

Tensor normalize(Tensor x) {
  opsmith::expect(x, "x").cuda().dims(2).contiguous();
  if (opsmith::dtype_number(x) != opsmith::dtype_number<float>()) opsmith::decline();  // the reference runs
  Tensor y = opsmith::empty_like(x);
  if (x.numel() == 0) return y;
  const int64_t threads = x.size(1) < 1024 ? 128 : 512;
  const int64_t shared_bytes = threads / 32 * 4;
  opsmith::launch("normalize<float>", {x.size(0), threads, shared_bytes}, x, opsmith::data<const float>(x),
                  opsmith::data<float>(y), x.size(1));
  return y;
}

OPSMITH_EXPORT(normalize, normalize)
// [host]
