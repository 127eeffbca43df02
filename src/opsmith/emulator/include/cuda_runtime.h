// What a kernel's file needs of CUDA's runtime: the language, and the types that its functions for the host name.
//
// The emulator starts kernels from Python, or from an extension's host code by opsmith::launch. It has no devices, streams
// or allocations for host code to ask for, so that functions such as cudaMalloc are not declared.
#pragma once

#include "cuda_runtime_api.h"
#include "vector_functions.h"
