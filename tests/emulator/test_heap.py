"""Memory that kernels allocate themselves: as much theirs as a tensor, with an end, and gone when it is freed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.kernels.cuda_source.source import CudaSource

RIGHT = opsmith.cuda_source(r"""
struct Node { int value; Node* next; };

__global__ void scratch(const float* x, float* y, int n) {  // each thread has memory of its own
  float* const own = (float*)malloc(n * sizeof(float));
  if (own == nullptr) return;
  for (int i = 0; i < n; ++i) own[i] = x[i] * threadIdx.x;
  float sum = 0.0f;
  for (int i = 0; i < n; ++i) sum += own[i];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  free(own);
}
__global__ void one_for_all(int* y) {  // one thread allocates, all use it, one frees
  __shared__ int* data;
  if (threadIdx.x == 0) data = new int[blockDim.x];
  __syncthreads();
  data[threadIdx.x] = 3 * threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = data[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) delete[] data;
}
__global__ void lists(int* y) {
  Node* head = nullptr;
  for (int i = 0; i < 10; ++i) head = new Node{i + (int)threadIdx.x, head};
  int sum = 0;
  while (head != nullptr) {
    sum += head->value;
    Node* const next = head->next;
    delete head;
    head = next;
  }
  y[threadIdx.x] = sum;
}
__device__ int* kept;
__global__ void keep(int n) {
  kept = (int*)malloc(n * sizeof(int));
  for (int i = 0; i < n; ++i) kept[i] = i * i;
}
__global__ void use_kept(int* y) {
  y[threadIdx.x] = kept[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) free(kept);
}
__global__ void too_much(int* y) {
  char* const large = (char*)malloc(9 << 20);
  char* const small = (char*)malloc(16);
  y[0] = large == nullptr;
  y[1] = small != nullptr;
  free(large);
  free(small);
}
struct alignas(64) Wide { float values[16]; };
__global__ void aligned(int* y) {
  Wide* const wide = new Wide;
  void* const asked = __nv_aligned_device_malloc(100, 256);
  y[0] = (size_t)wide % 64 == 0;
  y[1] = (size_t)asked % 256 == 0;
  y[2] = (size_t)malloc(1) % 16 == 0;
  delete wide;
  free(asked);
}
__global__ void garbage(float* y) {
  float* const own = (float*)malloc(4);
  y[0] = *own;
  free(own);
}
""")


def numbers(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kernels_that_allocate_run_without_alarm(checks: bool, seed: int) -> None:
    x, y, z = torch.rand(20), torch.zeros(128), numbers(64)
    with opsmith.emulate(checks=checks, seed=seed):
        RIGHT.scratch[2, 64](x, y, 20)
        RIGHT.one_for_all[1, 64](z)
    torch.testing.assert_close(y, torch.arange(64).repeat(2) * x.sum())
    assert z.tolist() == [3 * (63 - i) for i in range(64)]
    with opsmith.emulate(checks=checks, seed=seed):
        RIGHT.lists[1, 64](z)
    assert z.tolist() == [45 + 10 * i for i in range(64)]


@pytest.mark.parametrize("checks", [True, False])
def test_memory_outlives_the_launch_that_allocated_it(checks: bool) -> None:
    y = numbers(30)
    with opsmith.emulate(checks=checks):
        RIGHT.keep[1, 1](30)
        RIGHT.use_kept[1, 30](y)
    assert y.tolist() == [i * i for i in range(30)]


def test_there_are_8_mib_as_on_a_gpu_aligned_and_not_zeroed() -> None:
    y, z = numbers(3), torch.zeros(1)
    with opsmith.emulate():
        RIGHT.too_much[1, 1](y)
        assert y.tolist()[:2] == [1, 1]
        RIGHT.aligned[1, 1](y)
        assert y.tolist() == [1, 1, 1]
        RIGHT.garbage[1, 1](z)
    assert z.isnan()


def test_what_is_freed_can_be_had_again() -> None:
    cu = opsmith.cuda_source(r"""
__global__ void k(int* failures) {
  for (int i = 0; i < 100; ++i) {
    void* const large = malloc(1 << 20);
    if (large == nullptr) atomicAdd(failures, 1);
    free(large);
  }
}
""")
    failures = numbers(1)
    with opsmith.emulate():
        cu.k[4, 1](failures)
    assert failures.item() == 0


WRONG = opsmith.cuda_source(r"""
__global__ void overrun(float* y, int n) {
  float* const own = (float*)malloc(n * sizeof(float));  // allocated
  for (int i = 0; i <= n; ++i) own[i] = 0.0f;  // here overrun
  y[0] = own[0];
}
__global__ void underrun(float* y) {
  float* const own = new float[4];  // allocated
  y[0] = own[-1];  // here underrun
}
__global__ void straddles(double* y) {
  char* const own = (char*)malloc(12);  // allocated
  y[0] = *(double*)(own + 8);  // here straddles
}
__global__ void after_free(float* y) {
  float* const own = (float*)malloc(64);
  own[0] = 1.0f;
  free(own);  // freed
  y[0] = own[0];  // here after_free
}
__global__ void after_delete(int* y) {
  int* const own = new int(y[0]);
  delete own;  // freed
  y[0] = *own;  // here after_delete
}
__global__ void freed_twice(float* y) {
  float* const own = (float*)malloc(64);
  free(own);  // freed
  if (y != nullptr) free(own);  // here freed_twice
}
__global__ void frees_a_tensor(float* y) {
  free(y);  // here frees_a_tensor
}
__global__ void frees_the_midst(float* y) {
  float* const own = (float*)malloc(64);
  free(own + 1);  // here frees_the_midst
}
__global__ void no_memory_left(float* y) {
  float* const own = (float*)malloc(size_t(1) << 40);
  y[0] = own[threadIdx.x];  // here no_memory_left
}
__global__ void races(int* y) {
  __shared__ int* data;
  if (threadIdx.x == 0) data = (int*)malloc(256);
  __syncthreads();
  data[0] = threadIdx.x;  // here races
  y[0] = 1;
}
""")
FAULTS = {
    "overrun": ("out of bounds", "writes 4 bytes at byte 40 of the 40 bytes that the kernel has allocated at"),
    "underrun": (
        "out of bounds",
        "reads 4 bytes that begin 4 bytes before the 16 bytes that the kernel has allocated at",
    ),
    "straddles": ("out of bounds", "reads 8 bytes at byte 8 of the 12 bytes that the kernel has allocated at"),
    "after_free": ("use after free", "reads 4 bytes at byte 0 of the 64 bytes that the kernel has freed at"),
    "after_delete": ("use after free", "reads 4 bytes at byte 0 of the 4 bytes that the kernel has freed at"),
    "freed_twice": ("bad free", "it frees memory that has been freed before, at"),
    "frees_a_tensor": ("bad free", "that neither malloc nor new has returned"),
    "frees_the_midst": ("bad free", "that neither malloc nor new has returned"),
    "no_memory_left": ("out of bounds", "through a null pointer"),
    "races": ("data race", "nothing orders the two"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_misuse_is_found_and_names_where_the_memory_came_from(name: str, seed: int) -> None:
    kind, words = FAULTS[name]
    launches: dict[str, Callable[[CudaSource], None]] = {
        "overrun": lambda cu: cu.overrun[1, 1](torch.zeros(1), 10),
        "straddles": lambda cu: cu.straddles[1, 1](torch.zeros(1, dtype=torch.float64)),
        "after_delete": lambda cu: cu.after_delete[1, 1](numbers(1)),
        "races": lambda cu: cu.races[1, 64](numbers(1)),
    }
    with opsmith.emulate(seed=seed), pytest.raises(opsmith.KernelFault) as caught:
        launches.get(name, lambda cu: cu[name][1, 1](torch.zeros(1)))(WRONG)
    fault, lines = caught.value, Path(__file__).read_text().splitlines()
    assert fault.kind == kind and words in str(fault), fault
    assert f"// here {name}" in lines[(fault.line or 1) - 1], fault
    if words.endswith("at"):
        at = int(str(fault).rpartition(f"{__file__}:")[2].partition(".")[0])
        assert lines[at - 1].endswith(("// allocated", "// freed"))


def test_addresses_know_what_memory_they_are_in() -> None:
    cu = opsmith.cuda_source(r"""
__constant__ int constant = 3;
__device__ int variable;
__global__ void k(int* x, unsigned* out) {
  __shared__ int fixed[4];
  extern __shared__ int dynamic[];
  int own[4];
  const void* const places[] = {x, &variable, fixed + 2, dynamic + 1, &constant, own};
  for (int i = 0; i < 6; ++i) {
    const void* const p = places[i];
    out[i] = __isGlobal(p) + 2 * __isShared(p) + 4 * __isConstant(p) + 8 * __isLocal(p);
  }
  out[6] = __cvta_shared_to_generic(__cvta_generic_to_shared(fixed)) == fixed;
}
""")
    for checks in (True, False):
        out = torch.zeros(7, dtype=torch.uint32)
        with opsmith.emulate(checks=checks):
            cu.k[1, 1, 16](numbers(4), out)
        assert out.tolist() == [1, 1, 2, 2, 4, 8, 1]
