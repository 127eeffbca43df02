// What kernels call to allocate memory and to free it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include "exported.h"
#include "worker.h"

namespace opsmith::emulator {

namespace {

bool in_checked_kernel() {
  Worker* const worker = Worker::current;
  return worker != nullptr && worker->running_a_thread() && worker->launch().checks;
}

// Whether a pointer was a kernel's, and has been freed.
bool freed_for_kernel(void* pointer, uintptr_t pc) {
  if (pointer == nullptr) return true;
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  if (!in_checked_kernel()) return Heap::instance().free(address, pc) != Heap::Freed::never_allocated;
  Worker::current->free(address, pc);
  return true;
}

constexpr size_t kAligned = alignof(std::max_align_t);

}  // namespace

OPSMITH_EXPORTED Space opsmith_space(const void* address) {
  return Worker::current->space(reinterpret_cast<uintptr_t>(address));
}
OPSMITH_EXPORTED void* opsmith_allocate(size_t bytes, size_t alignment) {
  if (in_checked_kernel()) return Heap::instance().allocate(bytes, alignment, OPSMITH_CALLER);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

// The C library's and C++'s own, for which the linker puts these where a kernel is checked. Host code has its own.
#define OPSMITH_ALLOCATE(name, parameters, alignment, hosts)                                                   \
  OPSMITH_EXPORTED void* __wrap_##name parameters {                                                            \
    return in_checked_kernel() ? Heap::instance().allocate(bytes, alignment, OPSMITH_CALLER) : (hosts);        \
  }
#define OPSMITH_FREE(name, parameters, hosts)                                                                  \
  OPSMITH_EXPORTED void __wrap_##name parameters {                                                             \
    if (!freed_for_kernel(pointer, OPSMITH_CALLER)) hosts;                                                     \
  }
#define OPSMITH_NEW(name)                                                                                      \
  OPSMITH_ALLOCATE(name, (size_t bytes), kAligned, ::operator new(bytes))                                      \
  OPSMITH_ALLOCATE(name##RKSt9nothrow_t, (size_t bytes, const std::nothrow_t& tag), kAligned,                  \
                   ::operator new(bytes, tag))                                                                 \
  OPSMITH_ALLOCATE(name##St11align_val_t, (size_t bytes, std::align_val_t alignment),                          \
                   static_cast<size_t>(alignment), ::operator new(bytes, alignment))
#define OPSMITH_DELETE(name)                                                                                   \
  OPSMITH_FREE(name, (void* pointer), ::operator delete(pointer))                                              \
  OPSMITH_FREE(name##m, (void* pointer, size_t), ::operator delete(pointer))                                   \
  OPSMITH_FREE(name##St11align_val_t, (void* pointer, std::align_val_t alignment),                             \
               ::operator delete(pointer, alignment))                                                          \
  OPSMITH_FREE(name##mSt11align_val_t, (void* pointer, size_t, std::align_val_t alignment),                    \
               ::operator delete(pointer, alignment))
OPSMITH_ALLOCATE(malloc, (size_t bytes), kAligned, std::malloc(bytes))
OPSMITH_FREE(free, (void* pointer), std::free(pointer))
OPSMITH_NEW(_Znwm)
OPSMITH_NEW(_Znam)
OPSMITH_DELETE(_ZdlPv)
OPSMITH_DELETE(_ZdaPv)
#undef OPSMITH_ALLOCATE
#undef OPSMITH_FREE
#undef OPSMITH_NEW
#undef OPSMITH_DELETE

}  // namespace opsmith::emulator
