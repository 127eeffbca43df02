"""Clusters of blocks in the emulator beside what a kernel computes: other launches, memory, what is not followed."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import opsmith
from opsmith.errors import EmulationError, KernelFault, NvrtcNotFoundError
from opsmith.toolchain import find_nvrtc

SOURCE = opsmith.cuda_source(r"""
#include <cooperative_groups.h>
#include <opsmith/cluster.h>
namespace cg = cooperative_groups;

extern __shared__ float tile[];
__device__ float reversed(const float* from) { return from[blockDim.x - 1 - threadIdx.x]; }

// With and without clusters, by the same pointer at file scope.
__global__ void reverse(const float* x, float* y) {
  __shared__ float copy[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned other = opsmith::block_count_of_cluster() - 1 - opsmith::rank_in_cluster();
  tile[threadIdx.x] = x[i];
  opsmith::cluster_barrier();
  copy[threadIdx.x] = opsmith::load_from_block(&tile[blockDim.x - 1 - threadIdx.x], other);
  opsmith::cluster_barrier();
  y[i] = copy[threadIdx.x];
}
__global__ void reverse_alone(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = reversed(tile);
}

__global__ void address_from_a_neighbour(const float* x, float* y) {
  __shared__ float value;
  __shared__ float* from_neighbour;
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (threadIdx.x == 0) {
    const unsigned other = cluster.block_rank() ^ 1;
    *cluster.map_shared_rank(&from_neighbour, other) = cluster.map_shared_rank(&value, other);
  }
  cluster.sync();
  if (threadIdx.x == 0) *from_neighbour = x[blockIdx.x];
  cluster.sync();
  if (threadIdx.x == 0) y[blockIdx.x] = value;
}

__global__ void block_that_returns(const float* x, float* y, int blocks) {
  if (blockIdx.x >= blocks) return;
  cg::this_cluster().sync();
  y[blockIdx.x] = x[blockIdx.x];
}

__global__ void kinds_of_memory(float* y) {
  __shared__ float value;
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  const float* own = cluster.map_shared_rank(&value, rank);
  const float* other = cluster.map_shared_rank(own, rank ^ 1);
  const float* back = cluster.map_shared_rank(other, rank);
  int good = back == &value && cluster.query_shared_rank(other) == (rank ^ 1) && cluster.query_shared_rank(own) == rank;
  good += 2 * (__isShared(own) && !__isShared(other) && !__isShared(y));
  good += 4 * (__isCtaShared(own) && !__isCtaShared(other) && !__isCtaShared(y));
  good += 8 * (__isClusterShared(own) && __isClusterShared(other) && !__isClusterShared(y));
  good += 16 * (!__isGlobal(own) && !__isGlobal(other) && __isGlobal(y));
  y[blockIdx.x] = good;
}

__global__ void rank_out_of_range(float* y) {
  __shared__ float value;
  value = 1.0f;
  y[0] = *cg::this_cluster().map_shared_rank(&value, 2);
}

__global__ void many_threads(float* y) {
  __shared__ int arrived;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) arrived = 0;
  cluster.sync();
  atomicAdd(cluster.map_shared_rank(&arrived, 0), 1);
  cluster.sync();
  if (cluster.thread_rank() == 0) y[blockIdx.x / cluster.num_blocks()] = arrived;
}
""")


@pytest.mark.parametrize("checks", [True, False])
def test_launches_with_and_without_clusters_do_not_disturb_each_other(checks: bool) -> None:
    x, y = torch.randn(8, 64), torch.empty(8, 64)
    with opsmith.emulate(checks=checks):
        for cluster in (None, 4, 2, None, 8, 1):
            SOURCE.reverse[8, 64, 256, cluster](x, y)
            size = cluster or 1
            assert torch.equal(y, x.view(8 // size, size, 64).flip(1, 2).reshape(8, 64)), cluster
            SOURCE.reverse_alone[8, 64, 256](x, y)
            assert torch.equal(y, x.flip(1)), f"after clusters of {cluster}"


def test_an_address_that_another_block_has_mapped_is_refused_where_it_is_used() -> None:
    with opsmith.emulate(), pytest.raises(EmulationError, match="Pass ranks between blocks, not addresses"):
        SOURCE.address_from_a_neighbour[2, 32, 0, 2](torch.randn(2), torch.empty(2))


def test_without_checks_threads_that_have_returned_are_not_waited_for() -> None:
    x, y = torch.randn(4), torch.zeros(4)
    for seed in range(3):
        with opsmith.emulate(checks=False, seed=seed):
            SOURCE.block_that_returns[4, 32, 0, 4](x, y, 3)
    assert torch.equal(y[:3], x[:3]) and y[3] == 0


@pytest.mark.parametrize("checks", [True, False])
def test_an_address_tells_whose_memory_it_is_in(checks: bool) -> None:
    y = torch.zeros(4)
    with opsmith.emulate(checks=checks):
        SOURCE.kinds_of_memory[4, 1, 0, 2](y)
    assert y.tolist() == [31.0] * 4


def test_a_block_that_is_not_there_is_no_memory_without_checks_either() -> None:
    with opsmith.emulate(checks=False), pytest.raises(KernelFault, match="bad memory access"):
        SOURCE.rank_out_of_range[2, 1, 0, 2](torch.zeros(1))


@pytest.mark.parametrize("checks", [True, False])
def test_sixteen_blocks_of_1024_threads(checks: bool) -> None:
    y = torch.zeros(2)
    with opsmith.emulate(checks=checks):
        SOURCE.many_threads[32, 1024, 0, 16](y)
    assert y.tolist() == [16 * 1024.0] * 2


def test_the_largest_cluster_takes_less_than_half_a_gibibyte() -> None:
    text = (
        "import re, torch\nfrom tests.emulator.test_clusters import SOURCE\nimport opsmith\n"
        "def kibibytes(what): return int(re.search(rf'{what}:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "y = torch.zeros(1)\n"
        "with opsmith.emulate():\n"
        "    SOURCE.many_threads[1, 32, 0, 1](y)\n"
        "    open('/proc/self/clear_refs', 'w').write('5')\n"  # the peak is what is resident now
        "    before = kibibytes('VmRSS')\n"
        "    SOURCE.many_threads[16, 1024, 0, 16](y)\n"
        "print((kibibytes('VmHWM') - before) // 1024)\n"
    )
    taken = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout
    print(f"{taken.strip()} MiB more")
    assert 16 < int(taken) < 512, "a page or more of each stack, and what is recorded"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_the_header_is_cuda_on_gpus_with_and_without_clusters(arch: str) -> None:
    try:
        find_nvrtc()
    except NvrtcNotFoundError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    text = (
        "#include <opsmith/cluster.h>\nstruct alignas(16) Pair { double a, b; };\ntemplate <class T>\n"
        "__global__ void k(T* y) {\n  __shared__ T place;\n  opsmith::cluster_barrier();\n"
        "  opsmith::store_in_block(&place, opsmith::rank_in_cluster(), y[0]);\n  opsmith::cluster_arrive();\n"
        "  opsmith::cluster_wait();\n"
        "  y[1] = opsmith::load_from_block(&place, opsmith::block_count_of_cluster() - 1);\n}\n"
    )
    source = opsmith.cuda_source(text)
    for kind in ("char", "bool", "short", "float", "double", "float2", "Pair", "int4"):
        compiled = source[f"k<{kind}>"].compile(arch=arch)
        assert compiled.attributes.shared_bytes > 0 and compiled.attributes.local_bytes == 0, kind
