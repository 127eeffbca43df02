// Types of CUDA's runtime.
#pragma once

#include "cuda.h"
#include "opsmith_cuda.h"

enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2 };
using cudaError_t = cudaError;
using cudaStream_t = CUstream;
using cudaEvent_t = CUevent;
