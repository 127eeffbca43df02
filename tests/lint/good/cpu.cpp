// An op for the CPU: values may be asked for, nothing is launched.
#include <torch/extension.h>

double clipped_sum(const torch::Tensor& x, const torch::Tensor& limit) {
  TORCH_CHECK(limit.numel() == 1, "clipped_sum: limit must have one element, has ", limit.sizes());
  return x.clamp_max(limit.item<double>()).sum().item<double>();
}

TORCH_LIBRARY(mylib, m) {
  m.def("clipped_sum(Tensor x, Tensor limit) -> float", &clipped_sum);
}
