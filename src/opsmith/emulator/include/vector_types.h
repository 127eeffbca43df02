// CUDA's vector types, which a kernel has without including anything.
#pragma once
#include "opsmith_cuda.h"
