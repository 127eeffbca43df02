// CUDA's make_float4 and the like, which a kernel has without including anything.
#pragma once
#include "opsmith_cuda.h"
