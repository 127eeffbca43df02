// Threads of the machine that run kernels, kept from one launch to the next: to start one and to map its stacks takes
// longer than most launches do.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <memory>

#include "signals.h"

namespace opsmith::emulator {

class Pool;
class PoolThread;

// Waits for what another thread is about to do, without sleeping: on a virtual machine a sleeper's wake takes longer than
// a small block. Tells whether it has come; the wait is as short as what it may save. `cores` is how many both have.
template <typename Condition>
bool spin_until(const Condition& has_come, int cores) {
  static constexpr auto kLongest = std::chrono::microseconds(100);
  if (has_come()) return true;
  if (cores < 2) return false;  // the other one needs this core
  const auto until = std::chrono::steady_clock::now() + kLongest;
  do {
    for (int i = 0; i < 16; ++i) {
      if (has_come()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
  } while (std::chrono::steady_clock::now() < until);
  return has_come();
}

// What threads of the pool are given to do, by a launch.
class Work {
 public:
  virtual void run(Workplace& place) = 0;
  // The thread has run it, and may be given other work.
  virtual void end(PoolThread* thread) = 0;

 protected:
  ~Work() = default;
};

class PoolThread {
 public:
  explicit PoolThread(Pool& pool) : pool_(pool) {}

  pthread_t handle() const { return handle_; }

  // On the cores that the launching thread may use.
  void start(const cpu_set_t& cores);
  void give(Work* work, const cpu_set_t& cores);

 private:
  static void* live(void* self);
  Work* next_work();

  Pool& pool_;
  pthread_t handle_{};
  cpu_set_t cores_{};  // the launching thread's to use
  std::atomic<int> core_count_{1};
  std::condition_variable given_;
  std::atomic<Work*> work_{nullptr};
  Workplace place_;
};

// Each launch has its own threads while it runs, so that none waits for another; those that have had nothing to do
// for some time end.
class Pool {
 public:
  static constexpr auto kIdle = std::chrono::seconds(2);

  static Pool& instance() {
    static Pool* const kept = [] {
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      return new Pool;  // never destroyed: its threads may outlive the process's own end
    }();
    return *kept;
  }

  PoolThread* take(const cpu_set_t& cores) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!idle_.empty()) {
        PoolThread* const taken = idle_.back();  // the one whose memory is most likely in the cache
        idle_.pop_back();
        return taken;
      }
    }
    auto made = std::make_unique<PoolThread>(*this);
    made->start(cores);
    return made.release();
  }

  // By the thread itself, with the lock: it may be taken again.
  void put_back(PoolThread* thread) { idle_.push_back(thread); }

  // By the thread itself, with the lock: it may end, unless a launch has taken it.
  bool let_go(PoolThread* thread) {
    const auto found = std::find(idle_.begin(), idle_.end(), thread);
    if (found == idle_.end()) return false;
    idle_.erase(found);
    return true;
  }

  std::mutex mutex;

 private:
  static void before_fork() {
    instance().mutex.lock();
    Signals::before_fork();
    Heap::instance().before_fork();
  }
  static void after_fork_in_parent() {
    Heap::instance().after_fork();
    Signals::after_fork_in_parent();
    instance().mutex.unlock();
  }
  // The child has the memory of these threads, but not the threads.
  static void after_fork_in_child() {
    Heap::instance().after_fork();
    Signals::after_fork_in_child();
    instance().idle_.clear();
    instance().mutex.unlock();
  }

  std::vector<PoolThread*> idle_;
};

inline void PoolThread::start(const cpu_set_t& cores) {
  cores_ = cores;
  core_count_ = CPU_COUNT(&cores);
  sigset_t blocked = Signals::blocked(), before;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);  // which the new thread inherits
  const int error = pthread_create(&handle_, &attributes, live, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) throw std::runtime_error(std::string("the system cannot start a thread: ") + std::strerror(error));
}

inline void PoolThread::give(Work* work, const cpu_set_t& cores) {
  if (!CPU_EQUAL(&cores, &cores_)) {
    pthread_setaffinity_np(handle_, sizeof(cores), &cores);
    cores_ = cores;
    core_count_ = CPU_COUNT(&cores);
  }
  {
    const std::lock_guard<std::mutex> lock(pool_.mutex);
    work_ = work;
  }
  given_.notify_one();
}

inline void* PoolThread::live(void* given) {
  const std::unique_ptr<PoolThread> self(static_cast<PoolThread*>(given));
  // A separate stack for signals: that of a kernel's thread may be what has overflowed.
  const auto stack = std::make_unique<char[]>(64 * 1024);
  stack_t description = {};
  description.ss_sp = stack.get();
  description.ss_size = 64 * 1024;
  sigaltstack(&description, nullptr);
  std::fesetenv(FE_DFL_ENV);  // not that of whichever thread came first: torch.set_flush_denormal
  while (Work* const work = self->next_work()) {
    work->run(self->place_);
    {
      const std::lock_guard<std::mutex> lock(self->pool_.mutex);
      self->work_ = nullptr;
      self->pool_.put_back(self.get());
    }
    work->end(self.get());
    self->place_.tidy();
  }
  description.ss_flags = SS_DISABLE;
  sigaltstack(&description, nullptr);
  return nullptr;
}

// Null when none has come for a while.
inline Work* PoolThread::next_work() {
  spin_until([&] { return work_.load(std::memory_order_relaxed) != nullptr; }, core_count_);
  std::unique_lock<std::mutex> lock(pool_.mutex);
  while (!given_.wait_for(lock, Pool::kIdle, [&] { return work_ != nullptr; })) {
    if (pool_.let_go(this)) return nullptr;
  }
  return work_;
}

}  // namespace opsmith::emulator
