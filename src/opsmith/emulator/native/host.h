// The interface between the emulator and host code compiled for it: a launch, its parameters, the tensors it may use.
//
// The headers that host code includes (../include/opsmith_host_*.h) fill these; Python reads them (structures.py
// has the same layout) and runs the launch.
#pragma once

#include "interface.h"

namespace opsmith::emulator {

// A `record` may contain an address: a struct, a number of 64 bits.
enum class ParameterKind : int32_t { value = 0, pointer = 1, pointer_to_pointers = 2, record = 3 };

struct HostParameter {
  uintptr_t address;  // of the argument, as the kernel's parameter has it
  uint64_t size;
  ParameterKind kind;
  const char* type;  // mangled
};

// A tensor that host code has made, or has asked for its elements.
struct HostTensor {
  uintptr_t begin, end;  // its first byte, and the one after its last
  uintptr_t storage;     // where the memory begins that it lies in
  const char* description;  // "float32 [64]"
  int32_t by_data;       // whether opsmith::data was asked for its elements
};

struct HostLaunch {
  const char* name;    // of a kernel that is launched by its name; null for one of the library, at `kernel`
  const void* kernel;
  Entry entry;
  void** arguments;
  uintptr_t arguments_begin, arguments_end;  // the memory that all arguments lie in
  const HostParameter* parameters;
  uint64_t parameter_count;
  const HostTensor* tensors;
  uint64_t tensor_count;
  Dim grid, block;
  uint64_t shared_bytes;
  char refusal[1024];  // why a GPU would not have launched it
};

// `stopped`: the error is stored for the caller of host code.
enum class LaunchResult : int32_t { done = 0, stopped = 1, refused = 2 };

using HostHook = LaunchResult (*)(HostLaunch* launch);

extern "C" {

void opsmith_set_host_hook(HostHook hook);
LaunchResult opsmith_host_launch(HostLaunch* launch);
// What the thread's innermost call of host code keeps about itself; null outside of one.
void** opsmith_host_frame();
}

}  // namespace opsmith::emulator
