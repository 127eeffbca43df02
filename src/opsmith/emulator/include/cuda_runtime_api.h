// Types of CUDA's runtime.
#pragma once

#include "cuda.h"
#include "opsmith_cuda.h"

enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
using cudaError_t = cudaError;
using cudaStream_t = CUstream;
using cudaEvent_t = CUevent;

#ifdef OPSMITH_EMULATED_HOST  // an extension's sources have host code too
#include "opsmith_cuda_host.h"
#endif
