// What cuda_fp16.h includes in CUDA's own headers.
#include "cuda_fp16.h"
