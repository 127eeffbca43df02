// A launch from its begin to its end: workers from the pool, the time it may take, and how it ended.
#pragma once

#include <exception>
#include <optional>

#include "pool.h"
#include "running.h"

namespace opsmith::emulator {

class Run final : private Work {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Run(const Launch& launch) : grid_(launch), deadline_(after(launch.seconds)) {
    if (launch.shared_bytes > Windows::kDynamicBytes) throw std::runtime_error("no GPU has that much shared memory");
    const uint64_t threads = uint64_t(launch.block.x) * launch.block.y * launch.block.z * grid_.blocks_of_cluster;
    const uint64_t wanted = std::min({uint64_t(std::max(launch.workers, 1)), std::max<uint64_t>(grid_.clusters, 1),
                                      std::max<uint64_t>(kMostStacks / std::max<uint64_t>(threads, 1), 1)});
    cpu_set_t cores;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof(cores), &cores);
    core_count_ = CPU_COUNT(&cores);
    try {
      while (threads_.size() < wanted) threads_.push_back(Pool::instance().take(cores));
    } catch (const std::exception&) {
      if (threads_.empty()) throw;  // fewer will do
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    for (PoolThread* thread : threads_) thread->give(this, cores);
  }

  // Waits for the end, no longer than some seconds. Tells whether it has come.
  bool await(double seconds) {
    const Clock::time_point until = after(seconds);
    spin_until([&] { return has_ended_.load(std::memory_order_relaxed); }, core_count_);
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      const Clock::time_point now = Clock::now();
      if (now >= deadline_) halt(Halt::late);
      if (grid_.halted()) wake_workers(now);
      const Clock::time_point next = std::min(until, next_wake_.value_or(deadline_));
      if (changed_.wait_until(lock, next, [&] { return threads_.empty(); })) return true;
      if (Clock::now() >= until) return false;
    }
  }

  // Without a fault, and as soon as its threads can be ended.
  void stop() {
    halt(Halt::stopped);
    while (!await(1.0)) {
    }
  }

  // Once it has ended: reports its fault to Python. The fault's kind.
  int32_t write_fault() const {
    *grid_.launch.fault = grid_.fault();
    return grid_.launch.fault->kind;
  }

  // What has been printed since the last call. It is valid until the next one.
  bool has_printed() { return !grid_.printed.is_empty(); }
  const std::string& printed() { return taken_ = grid_.printed.take(); }

 private:
  // A process may have 65530 mappings (vm.max_map_count), and each stack takes two.
  static constexpr uint64_t kMostStacks = 16 * 1024;
  static constexpr auto kBeforeWakes = std::chrono::milliseconds(100), kBetweenWakes = std::chrono::milliseconds(20);

  static Clock::time_point after(double seconds) {
    static constexpr double kMost = 1e9;  // infinity among them
    const double some = seconds >= 0 ? std::min(seconds, kMost) : 0;
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(some));
  }

  void halt(Halt why) {
    Halt none = Halt::none;
    grid_.halt.compare_exchange_strong(none, why);
  }

  // With the lock: none of the threads goes while it is held.
  void wake_workers(Clock::time_point now) {
    if (!next_wake_) {
      next_wake_ = now + kBeforeWakes;  // most see by themselves that the launch is halted, at a more informative place
    } else if (now >= *next_wake_) {
      next_wake_ = now + kBetweenWakes;
      grid_.endable.try_once_more(reinterpret_cast<void*>(grid_.launch.entry), reinterpret_cast<void*>(&wake_signal));
      for (PoolThread* thread : threads_) pthread_kill(thread->handle(), wake_signal());
    }
  }

  void run(Workplace& place) override {
    try {
      run_blocks(grid_, place);
    } catch (const std::exception& error) {
      Fault fault{};
      fault.kind = no_resources;
      std::snprintf(fault.detail, sizeof(fault.detail), "%s", error.what());
      grid_.report(fault);
    }
  }

  void end(PoolThread* thread) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_.erase(std::find(threads_.begin(), threads_.end(), thread));
    if (!threads_.empty()) return;
    has_ended_.store(true, std::memory_order_relaxed);
    changed_.notify_all();
  }

  const Signals signals_;
  Grid grid_;
  const Clock::time_point deadline_;
  int core_count_ = 1;
  std::atomic<bool> has_ended_{false};
  std::mutex mutex_;
  std::vector<PoolThread*> threads_;  // that have not ended
  std::condition_variable changed_;
  std::optional<Clock::time_point> next_wake_;  // once the launch is halted
  std::string taken_;
};

}  // namespace opsmith::emulator
