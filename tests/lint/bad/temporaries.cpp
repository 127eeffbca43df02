// Pointers into tensors that end with the statement.
#include <opsmith/kernel.h>
#include <torch/extension.h>

void run(const float* x, const float* y, float* z, int64_t n);

struct Params {
  const float* x;
};

void pointers(const torch::Tensor& x, const torch::Tensor& y, torch::Tensor z) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat32, "pointers: x must be float32, is ", x.scalar_type());
  const float* first = x.contiguous().data_ptr<float>();                                     // expect: contiguous-temporary
  const auto* second = y.t().contiguous().const_data_ptr<float>();                           // expect: contiguous-temporary
  float* third = reinterpret_cast<float*>(z.to(torch::kFloat32).mutable_data_ptr());         // expect: contiguous-temporary
  Params params;
  params.x = x.to(torch::kCUDA).data_ptr<float>();                                           // expect: contiguous-temporary
  run(first, second, third, x.numel());
  run(x.clone().data_ptr<float>(), second, third, x.numel());  // lives until run returns
}

void stable(const opsmith::Tensor& x) {
  const float* data = opsmith::data<const float>(torch::stable::contiguous(x));  // expect: contiguous-temporary
  run(data, data, nullptr, x.numel());
}
