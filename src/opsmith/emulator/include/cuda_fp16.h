// CUDA's __half and __half2, with their functions.
#pragma once

struct __half;
struct __half2;
struct __nv_bfloat16;

#define OPSMITH_WORD half
#define OPSMITH_HALF __half
#define OPSMITH_HALF2 __half2
#define OPSMITH_HALF_RAW __half_raw
#define OPSMITH_HALF2_RAW __half2_raw
#define OPSMITH_OTHER_HALF __nv_bfloat16
#define OPSMITH_FORMAT opsmith::emulator::Binary16
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define OPSMITH_CONVERTS 0
#else
#define OPSMITH_CONVERTS 1
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define OPSMITH_OPERATORS 0
#else
#define OPSMITH_OPERATORS 1
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define OPSMITH_OPERATORS2 0
#else
#define OPSMITH_OPERATORS2 1
#endif
#include "opsmith_cuda_half.h"

#ifndef CUDA_NO_HALF
using half = __half;
using half2 = __half2;
using nv_half = __half;
using nv_half2 = __half2;
using __nv_half = __half;
using __nv_half2 = __half2;
using __nv_half_raw = __half_raw;
using __nv_half2_raw = __half2_raw;
#endif

#define CUDART_INF_FP16 __ushort_as_half(0x7c00)
#define CUDART_NAN_FP16 __ushort_as_half(0x7fff)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half(0x0001)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half(0x7bff)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half(0x8000)
#define CUDART_ZERO_FP16 __ushort_as_half(0x0000)
#define CUDART_ONE_FP16 __ushort_as_half(0x3c00)
