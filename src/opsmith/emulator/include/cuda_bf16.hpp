// What cuda_bf16.h includes in CUDA's own headers.
#include "cuda_bf16.h"
