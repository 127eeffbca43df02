"""A launch that may begin while the one before it ends waits for that before it touches memory."""

from __future__ import annotations

import re

import pytest
import torch
from kernels.fake_cuda import FakeCuda

from opsmith import ops
from opsmith.pointwise import devices, emit_cuda
from opsmith.pointwise.devices import compile_cuda
from opsmith.runtime.driver import substituted

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
        assert not re.search(r"^\s*(@%p\d+ )?bra", body[:waits], re.MULTILINE), "every thread does"
    assert "griddepcontrol" not in compiled(texts()[path], "sm_80").ptx, "where there is no such thing"


@pytest.mark.usefixtures("_nvrtc")
def test_only_what_is_combined_lets_the_next_launch_begin() -> None:
    """Nobody else's launch can come next there."""
    admitting = {path for path, text in texts().items() if "launch_dependents" in compiled(text).ptx}
    assert admitting == {"segment", "column"}


@pytest.mark.usefixtures("_nvrtc")
@pytest.mark.parametrize(
    ("capability", "version", "overlapped"), [((9, 0), 12030, True), ((9, 0), 12020, False), ((8, 9), 13000, False)]
)
def test_launches_are_overlapped_where_gpu_and_driver_can(
    capability: tuple[int, int], version: int, overlapped: bool
) -> None:
    cuda = FakeCuda()
    cuda.fake.capabilities[0] = capability
    cuda.set_version(version)
    arch = f"sm_{capability[0]}{capability[1]}"
    cubin = compile_cuda(texts()["combine"], emit_cuda.COMBINE, arch).read_bytes()
    with substituted(cuda):
        kernel = cuda.kernel(cuda.load(cubin), emit_cuda.COMBINE)
        devices._launch(kernel, (3, 1, 1), (256, 1, 1), [1, 2, 3, 4], 0)
    (launched,) = cuda.launches
    assert launched.overlapped is overlapped and launched.grid == (3, 1, 1)


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

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda.synchronize()
        alone = []
        for tensor in gradients():
            torch.cuda.synchronize()
            alone.append(tensor.clone())
    torch.cuda.synchronize()
    scale = [tensor.double() for tensor in alone[:5]]
    for number, tensor in enumerate(alone):  # which are powers of two apart
        torch.testing.assert_close(tensor.double() * 2.0 ** (number // 5), scale[number % 5], rtol=0, atol=0)
    again = _captured(gradients) if in_graph else gradients
    for _ in range(20):
        assert all(map(torch.equal, again(), alone))


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
