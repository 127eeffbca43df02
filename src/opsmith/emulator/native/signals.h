// Signals while a launch runs: what a kernel breaks is a fault of it, and a kernel that spins is woken.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <mutex>

#include "worker.h"

namespace opsmith::emulator {

// By this one the thread that launched wakes a worker that does not see that the launch is halted.
inline int wake_signal() { return SIGRTMIN + 5; }

// While one exists the process has the emulator's handlers; when the last one is gone, it has its own again.
class Signals {
 public:
  Signals() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (state().in_use++ > 0) return;
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
    for (Handled& each : state().handled) {
      sigaction(each.number, nullptr, &each.former);  // to be known when the first signal comes
      sigaction(each.number, &action, nullptr);
    }
  }
  Signals(const Signals&) = delete;
  ~Signals() {
    const std::lock_guard<std::mutex> lock(state().mutex);
    if (--state().in_use == 0) restore();
  }

  // For threads that run kernels: they get no signals but those that their own code causes, and the one to wake them.
  static sigset_t blocked() {
    sigset_t set;
    sigfillset(&set);
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, wake_signal()}) {
      sigdelset(&set, number);
    }
    return set;
  }

  // Around fork: the child has none of the launches that were under way.
  static void before_fork() { state().mutex.lock(); }
  static void after_fork_in_parent() { state().mutex.unlock(); }
  static void after_fork_in_child() {
    if (state().in_use > 0) restore();
    state().in_use = 0;
    state().mutex.unlock();
  }

 private:
  struct Handled {
    int number;
    struct sigaction former;
  };
  struct State {
    std::mutex mutex;
    int in_use = 0;
    Handled handled[5] = {{SIGSEGV, {}}, {SIGBUS, {}}, {SIGFPE, {}}, {SIGILL, {}}, {wake_signal(), {}}};
  };
  static State& state() {
    static State* const kept = new State;  // never destroyed: a signal may come while the process ends
    return *kept;
  }

  static void restore() {
    for (const Handled& each : state().handled) {
      struct sigaction present = {};
      sigaction(each.number, nullptr, &present);
      if (present.sa_sigaction == handle) sigaction(each.number, &each.former, nullptr);  // else somebody came after us
    }
  }

  static void handle(int number, siginfo_t* info, void* context) {
    Worker* const worker = Worker::current;
    const bool is_caused = info->si_code > 0;  // by what the thread itself did, not sent
    if (number == wake_signal() && info->si_code == SI_TKILL && info->si_pid == getpid()) {
      if (worker != nullptr) wake(*worker, static_cast<ucontext_t*>(context));
    } else if (number != wake_signal() && is_caused && worker != nullptr && worker->running_a_thread()) {
      fail(*worker, number, reinterpret_cast<uintptr_t>(info->si_addr), static_cast<ucontext_t*>(context));
    } else {
      pass_on(number, info, context);
    }
  }

  // Ends a thread of a halted launch, if it can be: not inside what it may have called and what other threads
  // need too, such as malloc. It is tried again.
  static void wake(Worker& worker, const ucontext_t* context) {
    const Grid& grid = worker.grid();
    const uintptr_t pc = program_counter(context);
    if (!grid.halted() || !worker.on_stack_of_thread(stack_pointer(context))) return;
    if (grid.endable.at(pc)) worker.stop_if_halted(pc);
  }

  [[noreturn]] static void fail(Worker& worker, int number, uintptr_t address, const ucontext_t* context) {
    Fault fault{};
    fault.kind = number == SIGFPE                  ? division_by_zero
                 : number == SIGILL                ? illegal_instruction
                 : worker.at_end_of_stack(address) ? stack_overflow
                                                   : bad_memory_access;
    fault.pc = program_counter(context);
    fault.address = address;
    fault.region = -1;
    worker.fail(fault);
  }

  // Not a kernel's: as if we were not here.
  static void pass_on(int number, siginfo_t* info, void* context) {
    for (const Handled& each : state().handled) {
      if (each.number != number) continue;
      const struct sigaction& former = each.former;
      if (former.sa_flags & SA_SIGINFO) return former.sa_sigaction(number, info, context);
      if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) return former.sa_handler(number);
      if (former.sa_handler == SIG_IGN && info->si_code <= 0) return;
      signal(number, SIG_DFL);
      if (info->si_code <= 0) raise(number);  // one that was caused comes again when the instruction does
    }
  }

  static uintptr_t program_counter(const ucontext_t* context) {
#if defined(__x86_64__)
    return context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return context->uc_mcontext.pc;
#else
    return 0;
#endif
  }

  static uintptr_t stack_pointer(const ucontext_t* context) {
#if defined(__x86_64__)
    return context->uc_mcontext.gregs[REG_RSP];
#elif defined(__aarch64__)
    return context->uc_mcontext.sp;
#else
    return 0;
#endif
  }
};

}  // namespace opsmith::emulator
