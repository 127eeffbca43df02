// What kernels print, until the thread that launched them takes it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

namespace opsmith::emulator {

// A call of printf is written as a whole: its text is never broken by another's.
class Printed {
 public:
  // Returns whether it was taken. If no room was made for some time, it is not, and the caller may try again.
  bool write(const char* text, size_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!room_.wait_for(lock, std::chrono::milliseconds(20), [&] { return text_.size() < kMost; })) return false;
    text_.append(text, bytes);
    return true;
  }

  bool is_empty() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_.empty();
  }

  std::string take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    room_.notify_all();
    return std::exchange(text_, {});
  }

 private:
  static constexpr size_t kMost = 1 << 20;
  std::mutex mutex_;
  std::condition_variable room_;
  std::string text_;
};

}  // namespace opsmith::emulator
