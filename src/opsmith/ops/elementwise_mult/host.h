// What the C++ kernel and the CUDA kernel of elementwise_mult share: the host code around one multiplication.
//
// Tensors arrive contiguous. One that is broadcast is copied to the full shape before, and its gradient is summed
// afterwards, by torch. (The generated kernels of this op do all in one pass; these show what an extension looks like.)
#pragma once

#include <opsmith/kernel.h>

#include <algorithm>

namespace elementwise_mult {

using opsmith::Sizes;
using opsmith::Tensor;

// Half types are multiplied in float32, and rounded once.
template <typename scalar>
using computed = std::conditional_t<sizeof(scalar) == 2, float, scalar>;

inline std::vector<int64_t> broadcast(const Tensor& a, const Tensor& b) {
  const Sizes one = a.sizes(), other = b.sizes();
  std::vector<int64_t> shape(std::max(one.size(), other.size()), 1);
  for (const Sizes& sizes : {one, other}) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& full = shape[shape.size() - sizes.size() + i];
      if (full == 1) full = sizes[i];
      if (sizes[i] != 1 && sizes[i] != full) {
        opsmith::fail("a ", opsmith::listed(one), " and b ", opsmith::listed(other), " do not broadcast");
      }
    }
  }
  return shape;
}

// `x` in the full shape, on the device of `like`: a number on the CPU may accompany CUDA tensors.
inline Tensor expanded(const Tensor& x, const std::vector<int64_t>& shape, const Tensor& like) {
  if (opsmith::same(x.sizes(), shape) && x.is_cuda() == like.is_cuda()) return x;
  Tensor full = opsmith::empty(like, shape);
  torch::stable::copy_(full, x);
  return full;
}

// The sum of `product` over the dimensions along which `x` was broadcast, as a tensor like `x`.
inline Tensor summed(const Tensor& product, const Tensor& x) {
  const int64_t missing = product.dim() - x.dim();
  std::vector<int64_t> dimensions;
  for (int64_t i = 0; i < product.dim(); ++i) {
    if (i < missing || x.size(i - missing) != product.size(i)) dimensions.push_back(i);
  }
  const Tensor sum = torch::stable::sum(product, dimensions, /*keepdim=*/true);
  return torch::stable::to(torch::stable::view(sum, x.sizes()), x.scalar_type());
}

// A tensor like `x` in the type that its elements are computed in.
inline Tensor computed_like(const Tensor& x) {
  return opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "grad", [&](auto zero) {
    return opsmith::empty<computed<decltype(zero)>>(x, x.sizes());
  });
}

// multiply(a, b, out) fills `out`, of the dtype of `a` and `b` or of the one that they are computed in.
template <typename Multiply>
Tensor forward(const Tensor& a, const Tensor& b, const Multiply& multiply) {
  opsmith::expect(b, "b").same_dtype(a, "a");
  const Tensor& like = a.is_cuda() ? a : b;
  const std::vector<int64_t> shape = broadcast(a, b);
  Tensor out = opsmith::empty(like, shape);
  multiply(expanded(a, shape, like), expanded(b, shape, like), out);
  return out;
}

// The gradients that `needs` asks for: grad * b for a, grad * a for b.
template <typename Multiply>
std::vector<Tensor> backward(
    const std::optional<Tensor>& grad, const Tensor& a, const Tensor& b, const std::vector<bool>& needs,
    const Multiply& multiply) {
  const auto gradient = [&](const Tensor& x, const Tensor& other) {
    if (!grad.has_value()) {
      Tensor zeros = opsmith::empty_like(x);
      return torch::stable::zero_(zeros);
    }
    const std::vector<int64_t> shape(grad->sizes().begin(), grad->sizes().end());
    const bool whole = opsmith::same(x.sizes(), shape);
    Tensor product = whole ? opsmith::empty_like(*grad) : computed_like(*grad);
    multiply(*grad, expanded(other, shape, *grad), product);
    return whole ? product : summed(product, x);
  };
  std::vector<Tensor> found;
  if (needs[0]) found.push_back(gradient(a, b));
  if (needs[1]) found.push_back(gradient(b, a));
  return found;
}

}  // namespace elementwise_mult
