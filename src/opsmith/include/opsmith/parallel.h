// Loops of CPU kernels on torch's own threads.
#pragma once

#include <mutex>

#include "tensors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

// Calls body(begin, end) on pieces of [0, count) of at least `grain`, on torch's threads; few elements never see
// another thread. The first exception of a piece is thrown here, when all are done.
template <typename Body>
void parallel_for(int64_t count, int64_t grain, Body&& body) {
  if (count <= 0) return;
  if (count <= grain) {
    body(int64_t{0}, count);
    return;
  }
  struct Context {
    std::remove_reference_t<Body>& body;
    std::mutex mutex;
    std::exception_ptr first;
  } context{body, {}, nullptr};
  const auto piece = [](int64_t begin, int64_t end, void* pointer) {
    auto* shared = static_cast<Context*>(pointer);
    try {
      shared->body(begin, end);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(shared->mutex);
      if (shared->first == nullptr) shared->first = std::current_exception();
    }
  };
  check(torch_parallel_for(0, count, grain, piece, &context), "torch_parallel_for");
  if (context.first != nullptr) std::rethrow_exception(context.first);
}

}  // namespace opsmith
