// CUDA's mathematical functions, which a kernel has without including anything.
#pragma once
#include "opsmith_cuda.h"
