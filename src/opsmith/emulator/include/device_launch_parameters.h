// CUDA's threadIdx, blockIdx, blockDim and gridDim, which a kernel has without including anything.
#pragma once
#include "opsmith_cuda.h"
