"""A launch that may begin while the one before it ends waits for that before it touches memory."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernels import fake_cuda
from kernels.fake_cuda import FakeCuda

from opsmith import ops
from opsmith.generate import devices, emit_cuda, publish
from opsmith.generate.devices import compile_cuda
from opsmith.launch.driver import largest_cluster, substituted
from opsmith.launch.planner import row
from opsmith.runtime import native
from opsmith.toolchain import compile_shared_library

from . import programs
from .test_emit_cuda import _nvrtc as _nvrtc
from .test_emit_cuda import columns, compiled, stream, vector_of, whole

MEMORY = re.compile(r"\b(?:ld|st|atom|red)\.(?!param|shared|local|const)")


def texts(dtype: torch.dtype = torch.float32) -> dict[str, str]:
    vector = vector_of(dtype)
    mish = programs.mish(dtype)
    return {
        "stream": emit_cuda.text(mish, stream(mish, vector)),
        "segment": emit_cuda.text(programs.polynomial_backward(dtype), whole(vector)),
        "column": emit_cuda.text(programs.affine_backward(dtype), columns(vector)),
        "combine": emit_cuda.combine_text(dtype),
    }


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize("path", list(texts()))
def test_kernels_wait_before_they_touch_memory(path: str) -> None:
    for arch in ("sm_90", "sm_120"):
        ptx = compiled(texts()[path], arch).ptx
        body = ptx[ptx.index(".entry") :]
        first = MEMORY.search(body)
        assert first is not None
        assert body.count("griddepcontrol.wait") == 1
        waits = body.index("griddepcontrol.wait")
        assert waits < first.start()
        assert not re.search(r"\b(bra|ret|exit)\b", body[:waits]), "every thread does"
    assert "griddepcontrol" not in compiled(texts()[path], "sm_80").ptx, "where there is no such thing"


@pytest.mark.usefixtures("_nvrtc")
def test_only_what_is_combined_lets_the_next_launch_begin() -> None:
    """Nobody else's launch can come next there."""
    bodies = {path: compiled(text).ptx for path, text in texts().items()}
    assert {path for path, body in bodies.items() if "launch_dependents" in body} == {"segment", "column"}
    for path in ("segment", "column"):
        between = bodies[path].split("griddepcontrol.wait")[1].split("griddepcontrol.launch_dependents")[0]
        assert re.search(r"@!?%p\d+ bra", between), "and where there is one chunk, not that either"


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize(
    ("capability", "version", "variable", "overlapped"),
    [
        ((9, 0), 12030, "", True),
        ((9, 0), 12020, "", False),
        ((8, 9), 13000, "", False),
        ((9, 0), 13000, "0", False),
    ],
)
def test_launches_are_overlapped_where_gpu_and_driver_can(
    capability: tuple[int, int], version: int, variable: str, overlapped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSMITH_OVERLAP", variable)
    cuda = FakeCuda()
    cuda.fake.capabilities[0] = capability
    cuda.set_version(version)
    arch = f"sm_{capability[0]}{capability[1]}"
    cubin = compile_cuda(texts()["combine"], emit_cuda.COMBINE, arch).read_bytes()
    with substituted(cuda):
        kernel, parameters = cuda.kernel(cuda.load(cubin), emit_cuda.COMBINE), row([1, 2, 3, 4])
        devices._launch(kernel, (3, 1, 1), (256, 1, 1), ctypes.addressof(parameters), 0)
        published: list[Any] = []
        monkeypatch.setattr(publish, "_published", set())
        monkeypatch.setattr(devices, "multiprocessors", lambda index: 132)
        monkeypatch.setattr(devices.DEVICES["cuda"], "architecture", lambda index: arch)
        attachment: Any = SimpleNamespace(publish_shared=lambda *given: published.append(given))
        publish._publish_gpu(attachment, 0)
    (launched,) = cuda.launches
    assert launched.overlapped is overlapped and launched.grid == (3, 1, 1)
    assert published == [("gpu", 0, 132, largest_cluster(arch), overlapped)]


LAUNCHER = """
#include <devices.h>
extern "C" __attribute__((visibility("default"))) void launch(
    void* kernel, int64_t blocks, int64_t rows, int64_t* parameters, int index, bool overlapped) {
  opsmith::CudaLauncher::get().launch(kernel, {blocks, rows, 256}, parameters, index, overlapped);
}
"""

NATIVE = """
import ctypes, sys
from pathlib import Path

folder, cubin, library = sys.argv[1:]
ctypes.CDLL(f"{folder}/libtorch_cuda.so", mode=ctypes.RTLD_GLOBAL)  # which the launcher asks for the current stream
from kernels.fake_cuda import FakeCuda
from opsmith.launch.planner import row

cuda, launch = FakeCuda(), ctypes.CDLL(library).launch
launch.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int, ctypes.c_bool]
kernel = cuda.kernel(cuda.load(Path(cubin).read_bytes()), "combine_partial_sums")
for index, overlaps in enumerate((True, False)):
    launch(kernel, 3, 2, row([5, 6, 7, 8]), index, overlaps)
for launched in cuda.launches:
    parameters = list(memoryview(launched.parameters[0]).cast("q"))
    print(launched.overlapped, *launched.grid, *launched.block, launched.shared, hex(launched.stream), *parameters)
"""


@pytest.mark.usefixtures("_nvrtc")
def test_the_cpp_runtime_launches_on_the_current_stream_and_overlaps_on_request(tmp_path: Path) -> None:
    """devices.h of the C++ runtime, with a fake driver in place of libcuda and a library that knows the current stream
    in place of torch's."""
    launcher = compile_shared_library("cuda_launcher", text=LAUNCHER, abi="torch", include_dirs=[native.SOURCE.parent])
    fake_cuda.libraries_in(tmp_path)
    cubin = compile_cuda(texts()["combine"], emit_cuda.COMBINE, "sm_90")
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", NATIVE, str(tmp_path), str(cubin), str(launcher)],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "True 3 2 1 256 1 1 0 0xabc0 5 6 7 8",
        "False 3 2 1 256 1 1 0 0xabc1 5 6 7 8",
    ], done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("in_graph", [False, True], ids=["stream", "graph"])
@pytest.mark.parametrize("elements", [1000, 1 << 16, 3_000_001])
def test_each_call_sees_what_the_one_before_it_wrote(elements: int, in_graph: bool) -> None:
    """Fifty calls, each of the one before's result, which is dropped: memory is written again while it is new."""
    x = torch.randn(elements, device="cuda")

    def chain() -> torch.Tensor:
        y = x
        for _ in range(50):
            y = ops.add_two(y)
        return y

    expected = x.clone()
    for _ in range(50):
        expected += 2
    chain()
    result = _captured(chain) if in_graph else chain
    for _ in range(20):
        assert torch.equal(result(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("in_graph", [False, True], ids=["stream", "graph"])
@pytest.mark.parametrize("shape", [(1 << 18,), (1 << 20,), (4096, 256), (64, 64, 64)], ids=str)
def test_sums_are_combined_only_when_they_are_there(shape: tuple[int, ...], in_graph: bool) -> None:
    """Gradients of sums, over and over: the partial sums of one call lie where those of the call before lay."""
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(shape[-1:], device="cuda", dtype=torch.bfloat16, requires_grad=True)
    coefficients = [torch.randn((), device="cuda", requires_grad=True) for _ in range(4)]
    wide, grad = x.float(), torch.randn_like(x)
    grads = [grad * 2.0**-scale for scale in range(6)]

    def gradients() -> list[torch.Tensor]:
        found = []
        for grad in grads:
            found += torch.autograd.grad(ops.scale_bias_relu(x, bias, 1.5), bias, grad)
            found += torch.autograd.grad(ops.polynomial(wide, *coefficients), coefficients, grad.float())
        return found

    first = [tensor.clone() for tensor in gradients()]
    for number, tensor in enumerate(first):  # five for each of the gradients, which are powers of two apart
        assert torch.equal(tensor.double() * 2.0 ** (number // 5), first[number % 5].double())
    again = _captured(gradients) if in_graph else gradients
    for _ in range(20):
        assert all(map(torch.equal, again(), first))


def _captured(call):  # type: ignore[no-untyped-def]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        results = call()

    def replay():  # type: ignore[no-untyped-def]
        graph.replay()
        torch.cuda.synchronize()
        return results

    return replay
