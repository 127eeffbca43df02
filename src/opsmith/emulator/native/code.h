// Where in a process code lies: the kernel's, the runtime's own, or that of what the kernel has called.
#pragma once

#include <link.h>

#include <atomic>
#include <cstdint>

namespace opsmith::emulator {

// The code of the library that a function is in.
struct Code {
  uintptr_t begin = 0, end = 0;

  static Code around(const void* function) {
    Code found{reinterpret_cast<uintptr_t>(function), 0};
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* given) {
          Code& code = *static_cast<Code*>(given);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& part = info->dlpi_phdr[i];
            const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
            if (part.p_type != PT_LOAD || code.begin - begin >= part.p_memsz) continue;
            code = {begin, begin + part.p_memsz};
            return 1;
          }
          return 0;
        },
        &found);
    return found;
  }

  bool holds(uintptr_t address) const { return address >= begin && address < end; }
};

// Where a thread of a halted launch may be ended: in the kernel itself, not inside what it has called and what
// others need too, such as malloc. One that never comes back from there is ended after all.
class Endable {
 public:
  // Before each signal that is to end threads.
  void try_once_more(const void* of_kernel, const void* of_runtime) {
    if (tries_ == 0) {
      kernel_ = Code::around(of_kernel);
      runtime_ = Code::around(of_runtime);
    }
    ++tries_;
  }

  bool at(uintptr_t pc) const { return kernel_.holds(pc) || (tries_ > kPatience && !runtime_.holds(pc)); }

 private:
  static constexpr int kPatience = 100;
  Code kernel_, runtime_;
  std::atomic<int> tries_{0};
};

}  // namespace opsmith::emulator
