"""The same on a GPU: results, gradients, transforms, streams, graph capture, and a CUDA kernel entered from C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import native_kernels
import pytest
import torch
from torch import Tensor
from zoo import ZOO, declare

import opsmith
from opsmith import Op, errors
from opsmith.checks import compare_samples

Fresh = Callable[[str], str]
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("tier")]


def square(x: Tensor) -> Tensor:
    return x * x


@pytest.fixture
def native_square(fresh: Fresh) -> Op:
    op = opsmith.op(fresh("cuda_square"))(square)
    op.register_kernel("cuda", native_kernels.cuda_library().square_forward)
    return op


@pytest.mark.parametrize("name", ZOO)
def test_results_and_gradients_are_the_references(fresh: Fresh, name: str) -> None:
    op = declare(name, fresh(name))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        if dtype is torch.bfloat16 and name in ("top", "cumulative"):
            continue  # ties among bfloat16 values; logcumsumexp has no bfloat16 kernel in torch
        for comparison in compare_samples(op, "cuda", dtype):
            assert comparison, f"{dtype}: {comparison}"


def test_gradients_of_both_orders_and_transforms(fresh: Fresh) -> None:
    op = declare("scale_bias_relu", fresh("transforms"))
    x = torch.randn(3, 4, device="cuda", dtype=torch.float64, requires_grad=True)
    bias = torch.randn(4, device="cuda", dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(op, (x, bias), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(op, (x, bias))
    mish = declare("mish", fresh("mish"))
    total = lambda f: lambda v: f(v).sum()  # noqa: E731
    hessian, expected = (torch.func.hessian(total(f))(x.detach()) for f in (mish, mish.reference))
    torch.testing.assert_close(hessian, expected)


def test_compiled_by_inductor(fresh: Fresh) -> None:
    op = declare("mish", fresh("compiled"))
    x = torch.randn(1000, device="cuda", requires_grad=True)
    compiled = torch.compile(lambda v: op(v * 2) + 1, fullgraph=True)
    (mine,) = torch.autograd.grad(compiled(x).sum(), x)
    (theirs,) = torch.autograd.grad((op.reference(x * 2) + 1).sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_a_cuda_kernel_from_cpp(native_square: Op) -> None:
    for x in (torch.randn(1000, device="cuda"), torch.randn(30, 40, device="cuda").t(), torch.empty(0, device="cuda")):
        for _ in range(2):
            torch.testing.assert_close(native_square(x), (x * x).contiguous())
    leaf = torch.randn(10, device="cuda", requires_grad=True)
    (gradient,) = torch.autograd.grad(native_square(leaf).sum(), leaf)
    torch.testing.assert_close(gradient, 2 * leaf.detach())


def test_work_goes_to_the_current_stream(native_square: Op) -> None:
    x = torch.randn(1 << 20, device="cuda")
    native_square.prepare(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # holds this stream back, so that work on another would read x too early
        x.fill_(3.0)
        result = native_square(x)
    stream.synchronize()
    assert bool((result == 9.0).all())


@pytest.mark.parametrize("with_kernel", [False, True])
def test_captured_in_a_graph(fresh: Fresh, with_kernel: bool) -> None:
    op = opsmith.op(fresh("captured"))(square)
    if with_kernel:
        op.register_kernel("cuda", native_kernels.cuda_library().square_forward)
    x = torch.randn(100, device="cuda")
    op.prepare(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = op(x)
    x.fill_(5.0)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((result == 25.0).all())


def test_no_hidden_synchronisation(native_square: Op) -> None:
    x = torch.randn(100, device="cuda", requires_grad=True)
    native_square.prepare(x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        native_square(x).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_tensors_on_two_devices_are_named(fresh: Fresh) -> None:
    op = declare("scale_bias_relu", fresh("mixed"))
    for with_kernel in (False, True):
        if with_kernel:
            op.register_kernel("cuda", lambda x, bias, scale: torch.relu(x * scale + bias))
        with pytest.raises(errors.DeviceMixError, match=r"x on cuda:0, bias on cpu.*bias = bias.to\('cuda:0'\)"):
            op(torch.ones(3, device="cuda"), torch.ones(3))
    torch.testing.assert_close(op(torch.ones(3, device="cuda"), torch.tensor(2.0)).cpu(), torch.full((3,), 3.0))


def test_autocast_on_cuda(fresh: Fresh) -> None:
    op = opsmith.op(fresh("lower"), autocast="lower")(square)
    x = torch.randn(8, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        result = op(x)
    assert result.dtype is torch.bfloat16
    result.float().sum().backward()
    assert x.grad is not None and x.grad.dtype is torch.float32


def test_random_references_are_refused_on_cuda(fresh: Fresh) -> None:
    def noisy(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5, True)

    op: Any = opsmith.op(fresh("noisy"))(noisy)
    x = torch.randn(100, device="cuda", requires_grad=True)
    with pytest.raises(errors.RandomReferenceError, match="draws random numbers"):
        op(x).sum().backward()


def test_training_lowers_the_loss(fresh: Fresh) -> None:
    op = declare("mish", fresh("training"))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 1)).cuda()
    x, target = torch.randn(256, 16, device="cuda"), torch.randn(256, 1, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        loss = (model[1](op(model[0](x))) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]


def test_a_backward_kernel_saves_what_it_names_and_nothing_else(fresh: Fresh) -> None:
    op = opsmith.op(fresh("exp"))(_exp)
    op.register_backward("cuda", lambda grads, output, *, needs: grads[0] * output)
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    result = op(x)
    assert torch.cuda.memory_allocated() - before == x.nbytes, "the result, and nothing of x"
    (gradient,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    torch.testing.assert_close(gradient.detach(), x.detach().exp())
    with pytest.raises(RuntimeError, match="does not name x among its parameters"):
        gradient.sum().backward()


def _exp(x: Tensor) -> Tensor:
    return torch.exp(x)
