// CUDA's __nv_bfloat16 and __nv_bfloat162, with their functions.
#pragma once

#include "cuda_fp16.h"

struct __nv_bfloat162;

#define OPSMITH_WORD bfloat16
#define OPSMITH_HALF __nv_bfloat16
#define OPSMITH_HALF2 __nv_bfloat162
#define OPSMITH_HALF_RAW __nv_bfloat16_raw
#define OPSMITH_HALF2_RAW __nv_bfloat162_raw
#define OPSMITH_OTHER_HALF __half
#define OPSMITH_FORMAT opsmith::emulator::Brain16
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define OPSMITH_CONVERTS 0
#else
#define OPSMITH_CONVERTS 1
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define OPSMITH_OPERATORS 0
#else
#define OPSMITH_OPERATORS 1
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define OPSMITH_OPERATORS2 0
#else
#define OPSMITH_OPERATORS2 1
#endif
#include "opsmith_cuda_half.h"

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

#ifndef __CUDA_NO_HALF_CONVERSIONS__
inline __half::__half(__nv_bfloat16 value) : __half(opsmith::emulator::number(value)) {}
#endif
#ifndef __CUDA_NO_BFLOAT16_CONVERSIONS__
inline __nv_bfloat16::__nv_bfloat16(__half value) : __nv_bfloat16(opsmith::emulator::number(value)) {}
#endif

#define CUDART_INF_BF16 __ushort_as_bfloat16(0x7f80)
#define CUDART_NAN_BF16 __ushort_as_bfloat16(0x7fff)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16(0x0001)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16(0x7f7f)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16(0x8000)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16(0x0000)
#define CUDART_ONE_BF16 __ushort_as_bfloat16(0x3f80)
