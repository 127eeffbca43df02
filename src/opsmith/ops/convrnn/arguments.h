// What convrnn checks of its arguments, on a CPU and on a GPU.
#pragma once

#include <opsmith/kernel.h>

#include <string>

namespace convrnn {

enum class Activation { identity, relu, tanh };  // numbered as in kernel.cu

inline Activation activation_of(const std::string& name) {
  if (name == "tanh") return Activation::tanh;
  if (name == "relu") return Activation::relu;
  if (name == "none") return Activation::identity;
  opsmith::fail("activation is '", name, "'; convrnn takes 'tanh', 'relu' or 'none'");
}

inline void validate(const opsmith::Tensor& x, const opsmith::Tensor& kernel, const opsmith::Tensor& hidden) {
  opsmith::expect(x, "x").dims(3);
  opsmith::expect(kernel, "kernel").same_device(x, "x").same_dtype(x, "x").shape({1, 1, -1});
  opsmith::expect(hidden, "hidden").same_device(x, "x").same_dtype(x, "x").shape({x.size(0), x.size(2)});
  if (kernel.numel() % 2 == 0) opsmith::fail("kernel has ", kernel.numel(), " taps; convrnn takes an odd number");
}

}  // namespace convrnn
