// my_op on the CPU, for contiguous rows, which are split among torch's threads:
//   total = x + residual, y = total * scale * weight, scale = 1 / sqrt(mean(total^2) + eps)
#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace {

using opsmith::Tensor;

constexpr int64_t kRows = 64;  // rows of a block: enough work for a thread

// Half types are computed in float32, and rounded once; sums over a row are made in float64.
template <typename scalar>
using computed = std::conditional_t<sizeof(scalar) == 2, float, scalar>;

template <typename Function>
void dispatch(const Tensor& x, Function&& function) {
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", function);
}

void validate(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  opsmith::expect(x, "x").cpu().contiguous();
  if (x.dim() == 0) opsmith::fail("x has no dimension; it must be [..., features]");
  opsmith::expect(residual, "residual").same_device(x, "x").same_dtype(x, "x").same_shape(x, "x").contiguous();
  opsmith::expect(weight, "weight").same_device(x, "x").same_dtype(x, "x").shape({x.size(x.dim() - 1)}).contiguous();
}

// In place if y is x and total is residual.
void compute(Tensor x, Tensor residual, Tensor weight, Tensor y, Tensor total, double eps) {
  if (x.numel() == 0) return;
  const int64_t columns = weight.numel(), rows = x.numel() / columns;
  dispatch(x, [&](auto zero) {
    using scalar = decltype(zero);
    using V = computed<scalar>;
    opsmith::parallel_for(rows, kRows, [&](int64_t begin, int64_t end) {
      const scalar* factors = opsmith::data<const scalar>(weight);
      for (int64_t row = begin; row < end; ++row) {
        const scalar* left = opsmith::data<const scalar>(x) + row * columns;
        const scalar* right = opsmith::data<const scalar>(residual) + row * columns;
        scalar* to_y = opsmith::data<scalar>(y) + row * columns;
        scalar* to_total = opsmith::data<scalar>(total) + row * columns;
        double squares = 0;
        for (int64_t i = 0; i < columns; ++i) {
          const double sum = static_cast<V>(left[i]) + static_cast<V>(right[i]);
          squares += sum * sum;
        }
        const V scale = static_cast<V>(1 / std::sqrt(squares / columns + eps));
        for (int64_t i = 0; i < columns; ++i) {
          const V sum = static_cast<V>(left[i]) + static_cast<V>(right[i]);
          to_total[i] = static_cast<scalar>(sum);
          to_y[i] = static_cast<scalar>(sum * scale * static_cast<V>(factors[i]));
        }
      }
    });
  });
}

std::tuple<Tensor, Tensor> forward(Tensor x, Tensor residual, Tensor weight, double eps) {
  validate(x, residual, weight);
  Tensor y = opsmith::empty_like(x), total = opsmith::empty_like(x);
  compute(x, residual, weight, y, total, eps);
  return {y, total};
}

void in_place(Tensor x, Tensor residual, Tensor weight, double eps) {
  validate(x, residual, weight);
  compute(x, residual, weight, x, residual, eps);
}

// The gradients that `needs` asks for. With g = grad_y * weight:
//   grad of total   grad_total + scale * g - total * scale^3 * mean(g * total), which is that of x and of residual
//   grad of weight  the sum over rows of grad_y * total * scale: of each block of rows, and then of the blocks
std::vector<Tensor> backward(
    std::optional<Tensor> grad_y, std::optional<Tensor> grad_total, Tensor weight, double eps, Tensor total,
    std::vector<bool> needs) {
  const int64_t columns = weight.numel(), rows = columns == 0 ? 0 : total.numel() / columns;
  const int64_t blocks = (rows + kRows - 1) / kRows;
  const Tensor grad_x = opsmith::empty_like(total), grad_residual = opsmith::empty_like(total);
  Tensor grad_weight = opsmith::empty_like(weight);
  dispatch(total, [&](auto zero) {
    using scalar = decltype(zero);
    std::vector<double> sums(blocks * columns);
    const scalar* factors = opsmith::data<const scalar>(weight);
    const scalar* of_y = grad_y ? opsmith::data<const scalar>(*grad_y) : nullptr;
    const scalar* of_total = grad_total ? opsmith::data<const scalar>(*grad_total) : nullptr;
    opsmith::parallel_for(blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first * kRows; row < std::min(rows, last * kRows); ++row) {
        const int64_t start = row * columns;
        const scalar* values = opsmith::data<const scalar>(total) + start;
        const auto grad = [&](int64_t i) { return of_y ? static_cast<double>(of_y[start + i]) : 0; };
        double squares = 0, products = 0;
        for (int64_t i = 0; i < columns; ++i) {
          const double value = static_cast<double>(values[i]);
          squares += value * value;
          products += grad(i) * static_cast<double>(factors[i]) * value;
        }
        const double scale = 1 / std::sqrt(squares / columns + eps);
        const double factor = products / columns * scale * scale * scale;
        for (int64_t i = 0; i < columns; ++i) {
          const double value = static_cast<double>(values[i]);
          const double after = of_total ? static_cast<double>(of_total[start + i]) : 0;
          const double result = after + scale * grad(i) * static_cast<double>(factors[i]) - factor * value;
          opsmith::data<scalar>(grad_x)[start + i] = static_cast<scalar>(static_cast<computed<scalar>>(result));
          opsmith::data<scalar>(grad_residual)[start + i] = opsmith::data<scalar>(grad_x)[start + i];
          sums[row / kRows * columns + i] += grad(i) * value * scale;
        }
      }
    });
    for (int64_t i = 0; i < columns; ++i) {
      double sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += sums[block * columns + i];
      opsmith::data<scalar>(grad_weight)[i] = static_cast<scalar>(static_cast<computed<scalar>>(sum));
    }
  });
  std::vector<Tensor> found;
  if (needs[0]) found.push_back(grad_x);
  if (needs[1]) found.push_back(grad_residual);
  if (needs[2]) found.push_back(grad_weight);
  return found;
}

}  // namespace

OPSMITH_EXPORT(forward_of_my_op, forward)
OPSMITH_EXPORT(in_place_of_my_op, in_place)
OPSMITH_EXPORT(backward_of_my_op, backward)
