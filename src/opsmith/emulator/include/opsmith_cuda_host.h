// The calls of CUDA's runtime that host code makes apart from launches, for an emulated GPU: its memory is the CPU's, and what
// is asked for is done at once.
// Included by cuda_runtime_api.h.
#pragma once

#include <string.h>

#include "cuda.h"

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

inline const char* cudaGetErrorName(cudaError_t code) { return code == cudaSuccess ? "cudaSuccess" : "cudaErrorInvalidValue"; }
inline const char* cudaGetErrorString(cudaError_t code) { return code == cudaSuccess ? "no error" : "invalid argument"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidValue; }

// Of a Hopper with few multiprocessors: blocks run on the cores of this machine.
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 * 1024; return cudaSuccess;
    case cudaDevAttrWarpSize: *value = 32; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = 2; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel*, int threads, size_t) {
  *blocks = threads > 0 && threads <= 1024 ? 2048 / threads : 0;
  return cudaSuccess;
}

inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr) {
  memset(to, value, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes); }

inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t = nullptr) {
  memmove(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind);
}

// A __constant__ or __device__ variable.
template <typename Variable>
cudaError_t cudaMemcpyToSymbolAsync(
    const Variable& variable, const void* from, size_t bytes, size_t offset = 0,
    cudaMemcpyKind = cudaMemcpyHostToDevice, cudaStream_t = nullptr) {
  if (offset > sizeof(variable) || bytes > sizeof(variable) - offset) return cudaErrorInvalidValue;
  memcpy(reinterpret_cast<char*>(&const_cast<Variable&>(variable)) + offset, from, bytes);
  return cudaSuccess;
}
template <typename Variable>
cudaError_t cudaMemcpyToSymbol(
    const Variable& variable, const void* from, size_t bytes, size_t offset = 0,
    cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpyToSymbolAsync(variable, from, bytes, offset, kind);
}
template <typename Variable>
cudaError_t cudaGetSymbolAddress(void** address, const Variable& variable) {
  *address = &const_cast<Variable&>(variable);
  return cudaSuccess;
}
