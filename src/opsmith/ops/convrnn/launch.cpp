// convrnn on a GPU: the instance of kernel.cu for a call, and its launch. What no instance supports is declined.
#include <opsmith/kernel.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "arguments.h"

namespace {

using convrnn::Activation;
using opsmith::Tensor;

constexpr int64_t kLanes = 32;
constexpr int64_t kMostTaps = 15;
constexpr int64_t kMostUnitsOfAWarp = 8 * kLanes;
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostSteps = (int64_t{1} << 30) - 1;
constexpr int64_t kBytesAhead = 48 * 1024;  // of a block's shared memory, for prefetched steps
constexpr int64_t kSharedForSums = 4096;    // bytes of it that are left for the block's sums

// How a sequence is divided. `units` elements per thread, read `vector` at a time; `whole`: no thread has fewer. One warp
// per sequence, `sequences` of them per block; or, `in_block`, all threads of a block. `ahead` steps are prefetched.
struct Plan {
  int64_t units;
  int64_t vector;
  bool whole;
  bool in_block;
  int64_t ahead;
  int64_t threads;
  int64_t sequences;
  int64_t shared_bytes;

  opsmith::Geometry geometry(int64_t batch) const {
    return {opsmith::blocks_for(batch, sequences), {threads, sequences}, shared_bytes};
  }
};

// `alignment`: of every tensor, in bytes; `streams`: the tensors that each step reads.
Plan plan(
    const Tensor& x, int64_t taps, int64_t streams, int64_t alignment, int64_t multiprocessors, int64_t shared_limit) {
  const int64_t batch = x.size(0), steps = x.size(1), width = x.size(2);
  const auto size = static_cast<int64_t>(x.element_size());
  if (taps > kMostTaps || steps > kMostSteps) opsmith::decline();
  Plan made{};
  made.in_block = width > kMostUnitsOfAWarp;
  if (made.in_block) {
    made.units = 2;
    while (made.units * kMostThreads < width) made.units *= 2;
    made.threads = kLanes * opsmith::blocks_for(width, made.units * kLanes);
  } else {
    made.units = opsmith::blocks_for(width, kLanes);
    made.threads = kLanes;
    // Asynchronous copies have at least 4 bytes: two half numbers.
    if (size == 2 && width % 2 == 0) made.units += made.units % 2;
  }
  made.vector = 1;
  while (made.vector * 2 * size <= std::min<int64_t>(16, alignment) && made.units % (made.vector * 2) == 0 &&
         width % (made.vector * 2) == 0) {
    made.vector *= 2;
  }
  made.whole = width == made.threads * made.units;
  // Measured on one H200, H=64: one warp per block and 32 steps while every warp can have its own scheduler (56 ns per
  // step); beyond, 4 warps and 16 steps (90 % of copy bandwidth at a batch of 4096).
  const bool few = batch <= 4 * multiprocessors;
  made.sequences = made.in_block || few ? 1 : 4;
  const int64_t state = made.in_block ? 2 * (made.threads * made.units + taps - 1) * std::max<int64_t>(size, 4) : 0;
  const int64_t row = streams * made.threads * made.sequences * made.units * size;
  made.ahead = few ? 32 : 16;
  while (made.ahead > 1 && (row * made.ahead > kBytesAhead || row * made.ahead + state > shared_limit)) made.ahead /= 2;
  made.shared_bytes = row * made.ahead + state;
  if (made.shared_bytes > shared_limit || made.units > 32) opsmith::decline();
  return made;
}

Plan plan_for(const std::vector<const Tensor*>& tensors, const Tensor& kernel, int64_t streams) {
  uint64_t addresses = 16;
  for (const Tensor* each : tensors) addresses |= reinterpret_cast<uintptr_t>(each->const_data_ptr());
  const opsmith::GpuInfo gpu = opsmith::gpu_of(*tensors[0]);
  return plan(*tensors[0], kernel.size(2), streams, static_cast<int64_t>(addresses & -addresses), gpu.multiprocessors,
              gpu.shared_bytes - kSharedForSums);
}

const char* flag(bool value) { return value ? "true" : "false"; }

// "convrnn::forward<float, 3, 2, 2, true, false, 32, 2, 32>"
template <typename Element>
std::string instance(
    const char* direction, const Plan& plan, int64_t taps, Activation activation, const std::string& more = "") {
  const char* const element = std::is_same_v<Element, float>            ? "float"
                              : std::is_same_v<Element, double>         ? "double"
                              : std::is_same_v<Element, opsmith::half>  ? "opsmith::float16"
                                                                        : "opsmith::bfloat16";
  const int64_t most_threads = plan.in_block ? kMostThreads : plan.threads * plan.sequences;
  std::string name = "convrnn::";
  name.append(direction).append("<").append(element);
  for (const int64_t number : {taps, plan.units, plan.vector}) name.append(", ").append(std::to_string(number));
  name.append(", ").append(flag(plan.whole)).append(", ").append(flag(plan.in_block));
  for (const int64_t number : {most_threads, static_cast<int64_t>(activation), plan.ahead}) {
    name.append(", ").append(std::to_string(number));
  }
  return name + more + ">";
}

template <typename Function>
void dispatch(const Tensor& x, Function&& function) {
  opsmith::dispatch<float, double, opsmith::half, opsmith::bfloat16>(x, "x", function);
}

Tensor forward(Tensor x, Tensor kernel, Tensor hidden, std::string activation_name) {
  opsmith::expect(x, "x").cuda();
  convrnn::validate(x, kernel, hidden);
  const Activation activation = convrnn::activation_of(activation_name);
  Tensor output = opsmith::empty_like(x);
  if (x.numel() == 0) return output;
  const Plan chosen = plan_for({&x, &hidden, &output}, kernel, /*streams=*/1);
  dispatch(x, [&](auto zero) {
    using Element = decltype(zero);
    opsmith::launch(instance<Element>("forward", chosen, kernel.size(2), activation), chosen.geometry(x.size(0)), x,
                    opsmith::data<const Element>(x), opsmith::data<const Element>(kernel),
                    opsmith::data<const Element>(hidden), opsmith::data<Element>(output), x.size(0), x.size(1),
                    x.size(2));
  });
  return output;
}

Tensor new_counter(const Tensor& x) {
  Tensor made = opsmith::empty<int32_t>(x, {1});
  opsmith::zero(made);
  return made;
}

// A zero that the kernel resets to zero. One per stream, where kernels run one after another. A captured graph may be
// replayed on any stream, so it gets its own.
Tensor counter(const Tensor& x, const opsmith::Stream& stream) {
  if (opsmith::is_emulated || opsmith::is_capturing(stream)) return new_counter(x);
  static auto& counters = *new std::map<std::pair<int32_t, void*>, Tensor>;  // never freed: CUDA may be gone by then
  static auto& mutex = *new std::mutex;
  const auto key = std::make_pair(stream.device, static_cast<void*>(stream.handle));
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto found = counters.find(key); found != counters.end()) return found->second;
  }
  const Tensor made = new_counter(x);  // without the lock: torch may ask Python, which another thread holds
  const std::lock_guard<std::mutex> lock(mutex);
  return counters.emplace(key, made).first->second;
}

std::vector<Tensor> zeros_like(const std::vector<const Tensor*>& tensors, const std::vector<bool>& needs) {
  std::vector<Tensor> made;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (needs[i]) opsmith::zero(made.emplace_back(opsmith::empty_like(*tensors[i])));
  }
  return made;
}

std::vector<Tensor> backward(
    std::optional<Tensor> grad, Tensor x, Tensor kernel, Tensor hidden, std::string activation_name, Tensor output,
    std::vector<bool> needs) {
  opsmith::expect(x, "x").cuda();
  if (x.numel() == 0 || !grad.has_value()) return zeros_like({&x, &kernel, &hidden}, needs);
  const Activation activation = convrnn::activation_of(activation_name);
  const bool needs_x = needs[0], needs_kernel = needs[1], needs_hidden = needs[2];
  const int64_t streams = activation == Activation::tanh && x.element_size() == 2 ? 3 : 2;
  const Plan chosen = plan_for({&x, &hidden, &output, &*grad}, kernel, streams);
  const opsmith::Stream stream = opsmith::current_stream(x);
  const opsmith::Geometry geometry = chosen.geometry(x.size(0));
  std::optional<Tensor> grad_x, grad_kernel, grad_hidden, finished;
  if (needs_x) grad_x = opsmith::empty_like(x);
  if (needs_hidden) grad_hidden = opsmith::empty_like(hidden);
  if (needs_kernel) {
    grad_kernel = opsmith::empty_like(kernel);
    finished = counter(x, stream);
  }
  dispatch(x, [&](auto zero) {
    using Element = decltype(zero);
    using Value = std::conditional_t<sizeof(Element) == 2, float, Element>;
    std::optional<Tensor> partial_sums;
    if (needs_kernel) partial_sums = opsmith::empty<Value>(x, {geometry.grid.x, kernel.size(2)});
    const std::string more = std::string(", ") + flag(needs_x) + ", " + flag(needs_kernel);
    opsmith::launch(instance<Element>("backward", chosen, kernel.size(2), activation, more), geometry, stream,
                    opsmith::data<const Element>(grad), opsmith::data<const Element>(x),
                    opsmith::data<const Element>(kernel), opsmith::data<const Element>(hidden),
                    opsmith::data<const Element>(output), opsmith::data<Element>(grad_x),
                    opsmith::data<Element>(grad_hidden), opsmith::data<Element>(grad_kernel),
                    opsmith::data<Value>(partial_sums), opsmith::data<int32_t>(finished), x.size(0), x.size(1),
                    x.size(2));
  });
  std::vector<Tensor> results;
  for (const std::optional<Tensor>& each : {grad_x, grad_kernel, grad_hidden}) {
    if (each.has_value()) results.push_back(*each);
  }
  return results;
}

}  // namespace

OPSMITH_EXPORT(convrnn_cuda_forward, forward)
OPSMITH_EXPORT(convrnn_cuda_backward, backward)
