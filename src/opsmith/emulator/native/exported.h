// How a function is found by name, by Python and by libraries of kernels, and how it knows who has called it.
#pragma once

#include <cstdint>

#define OPSMITH_EXPORTED extern "C" __attribute__((visibility("default")))

#define OPSMITH_CALLER (reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - 1)
