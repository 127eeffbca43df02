"""Kernels of a cuda_source launched by C++ host code by their names: values, refusals, calls left to the reference.

Launches run in the emulator here; test_named_launch_driver.py has what the CUDA driver is given.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import native_kernels
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import errors
from opsmith.checks import compare
from opsmith.kernels import emulation

HERE = Path(__file__).parent
Fresh = Callable[[str], str]

cu = opsmith.cuda_source(HERE / "named_kernels.cu")
ext = opsmith.extension("named_launches", [HERE / "named_launches.cpp"], kernels=cu, lazy=True)


def scaled(x: Tensor, factor: float, extra: int = 0) -> Tensor:
    return x * factor


@pytest.fixture
def op(fresh: Fresh) -> opsmith.Op:
    made = opsmith.op(fresh("scaled"))(scaled)
    made.register_kernel("cuda", ext.scaled_forward)
    made.register_backward("cuda", ext.scaled_backward, saves=("factor",))
    return made


def declared(fresh: Fresh, reference: Callable[..., Any], function: str) -> opsmith.Op:
    made = opsmith.op(fresh(reference.__name__))(reference)
    made.register_kernel("cuda", getattr(ext, function))
    return made


@pytest.mark.parametrize("checks", [True, False])
def test_values_and_gradients_are_the_references(op: opsmith.Op, checks: bool) -> None:
    with opsmith.emulate(checks=checks):
        for dtype in (torch.float32, torch.float64):
            for x in (torch.randn(33, 5, dtype=dtype), torch.randn(8, 8, dtype=dtype).t()[1:], torch.empty(0)):
                assert torch.equal(op(x, 3.0), x * 3.0)
        compared = list(compare(op, opsmith.Sample(args=(torch.randn(20, 3), 1.5))))
    assert [str(each) for each in compared if not each] == []
    assert any("gradient" in each.what for each in compared)
    assert op._families.emulated["default"].backward.kernels["cpu"].checked


def test_an_access_outside_of_a_tensor_is_a_fault_at_its_line(op: opsmith.Op) -> None:
    with opsmith.emulate(), pytest.raises(opsmith.KernelFault, match=r"named_kernels\.cu:\d+.* of x \(float32 \[100\]"):
        op(torch.randn(100), 2.0, 1)


def test_shared_memory_and_a_kernel_that_is_no_template(fresh: Fresh) -> None:
    def flipped(x: Tensor, block: int, shared_bytes: int) -> Tensor:
        return x.flip(-1)

    op, x = declared(fresh, flipped, "reversed"), torch.randn(3, 48)
    with opsmith.emulate():
        assert torch.equal(op(x, 48, 48 * 4), x.flip(-1))
        assert torch.equal(op(x, 48, 200 << 10), x.flip(-1))


def sum_of_kinds(x: Tensor, a: int, e: int, j: float) -> Tensor:
    rest = 200 - 300 + 40000 + 7 - 8 + 9 + 1 + 0.1 + 1.5 + 2.75 + 3.5 + 4 + 1
    return (rest + a + e + j + x[3]).reshape(1)


def test_a_parameter_of_each_kind(fresh: Fresh) -> None:
    op, x = declared(fresh, sum_of_kinds, "kinds"), torch.tensor([1.0, 2.0, 3.0, 4.0])
    with opsmith.emulate():
        torch.testing.assert_close(op(x, -128, 1000, 0.5), sum_of_kinds(x, -128, 1000, 0.5))
        with pytest.raises(RuntimeError, match=r"'a' \(signed char\) holds -128 to 127, and -129 does not fit"):
            op(x, -129, 0, 0.0)
        with pytest.raises(RuntimeError, match=r"'e' \(int\) holds -2147483648 to 2147483647, and 2147483648 does not"):
            op(x, 0, 2**31, 0.0)
        with pytest.raises(RuntimeError, match=r"'j' \(float\) cannot hold 1e\+39: it is too large"):
            op(x, 0, 0, 1e39)
        with pytest.raises(RuntimeError, match=r"'o' \(const float4\*\) is read at multiples of 16 bytes"):
            op(torch.zeros(5)[1:], 0, 0, 0.0)


MISTAKES = [
    (
        0,
        r"scale<float, 4>: it takes 4 arguments \(x, y, factor, count\), not 3\.\n  named_kernels\.cu:12: ns::scale",
    ),
    (1, r"parameter 'y' \(float\*\) may be written, and was given a pointer to const"),
    (2, r"parameter 'count' \(int\) takes an integer, and was given a floating-point number"),
    (3, r"parameter 'y' \(float\*\) takes a pointer, and was given an integer"),
    (4, r"parameter 'x' \(const double\*\) was given a pointer to float"),
    (5, r"named_kernels\.cu has no __global__ kernel 'ns::scaled<float>'.*Did you mean 'ns::scale'\?"),
    (6, r"ns::scale of named_kernels\.cu is a template over"),
    (7, r"parameter 'factor' \(float\) cannot hold 1e\+300: it is too large"),
    (8, r"parameter 'factor' \(float\) takes a number, and was given a struct"),
    (9, r"a block of 128 threads is more than the 64 that this kernel can have"),
    (10, r"300000 bytes of shared memory"),
    (11, r"a launch of 0 blocks"),
]


def same(x: Tensor, which: int) -> Tensor:
    return x.clone()


@pytest.mark.parametrize(("which", "message"), MISTAKES, ids=str)
def test_mistakes_are_refused_with_a_message(fresh: Fresh, which: int, message: str) -> None:
    with opsmith.emulate(), pytest.raises((RuntimeError, errors.OpsmithError), match=message):
        declared(fresh, same, "mistaken")(torch.ones(64), which)


def test_the_gpu_that_launches_are_planned_for() -> None:
    call = emulation.cuda_emulator().function(ext.gpu).as_operator(lambda f: f"{f}(Tensor x) -> (int, int, int)").call
    small = emulation.Gpu("small", "sm_86", 20, 99 << 10)
    with opsmith.emulate():
        assert call(torch.ones(1)) == (132, 227 << 10, 90)
        with emulation.entered(emulation.Settings(gpu=small)):
            assert call(torch.ones(1)) == (20, 99 << 10, 86)


# --- calls that the kernel declines -----------------------------------------------------------------------------------

DECLINING = r"""
#include <opsmith/kernel.h>

using opsmith::Tensor;

Tensor negated(Tensor x, int64_t count) {
  if (count > 3) opsmith::decline();
  if (count < 0) opsmith::fail("a negative count");
  Tensor out = opsmith::empty_like(x);
  opsmith::dispatch<float, double>(x, "x", [&](auto zero) {
    using scalar = decltype(zero);
    for (int64_t i = 0; i < x.numel(); ++i) opsmith::data<scalar>(out)[i] = -opsmith::data<const scalar>(x)[i];
  });
  return out;
}
OPSMITH_EXPORT(negated, negated)

std::vector<Tensor> negated_backward(std::optional<Tensor> grad, Tensor x, int64_t count, std::vector<bool> needs) {
  if (count > 2) opsmith::decline();
  return {negated(*grad, 0)};
}
OPSMITH_EXPORT(negated_backward, negated_backward)

void negated_in_place(Tensor x, int64_t count) {
  if (count > 3) opsmith::decline();
  for (int64_t i = 0; i < x.numel(); ++i) opsmith::data<float>(x)[i] *= -1;
}
OPSMITH_EXPORT(negated_in_place, negated_in_place)
"""


@pytest.fixture(scope="module")
def declining(tmp_path_factory: pytest.TempPathFactory) -> Any:
    source = tmp_path_factory.mktemp("declining") / "declining.cpp"
    source.write_text(DECLINING)
    return opsmith.extension("declining", source)


def test_the_reference_serves_what_a_native_function_declines(tier: str, fresh: Fresh, declining: Any) -> None:
    calls = []

    def negated(x: Tensor, count: int) -> Tensor:
        calls.append(count)
        return x * -1

    op = opsmith.op(fresh("negated"))(negated)
    op.register_kernel("cpu", declining.negated)
    op.register_backward("cpu", declining.negated_backward, saves=("x", "count"))
    x = torch.randn(4, 6)
    op(x, 0)
    assert op._families.default.forward.kernels["cpu"].checked
    calls.clear()
    assert torch.equal(op(x, 1), -x) and calls == [], "by the kernel"
    for each in (x, x[:, ::2], torch.empty(0)):
        assert torch.equal(op(each, 4), -each) and calls.pop() == 4
    with pytest.raises(RuntimeError, match="a negative count"):
        op(x, -1)
    leaf = x.clone().requires_grad_()
    for count in (0, 2, 3, 4):
        (grad,) = torch.autograd.grad(op(leaf, count).sum(), leaf)
        assert torch.equal(grad, -torch.ones_like(x))
    with torch.autocast("cpu"):
        assert torch.equal(op(x, 4), -x)


def test_a_first_call_that_is_declined_leaves_the_kernel_unchecked(tier: str, fresh: Fresh, declining: Any) -> None:
    op = opsmith.op(fresh("negated"))(negative)
    op.register_kernel("cpu", declining.negated)
    x = torch.ones(3)
    assert torch.equal(op(x, 5), -x)
    assert not op._families.default.forward.kernels["cpu"].checked
    assert torch.equal(op(x, 1), -x)
    assert op._families.default.forward.kernels["cpu"].checked


def negative(x: Tensor, count: int) -> Tensor:
    return -x


def test_in_place_what_is_declined_is_changed_by_the_reference(tier: str, fresh: Fresh, declining: Any) -> None:
    def negated_in_place(x: Tensor, count: int) -> None:
        x.neg_()

    op = opsmith.op(fresh("negated_in_place"), mutates_args=("x",))(negated_in_place)
    op.register_kernel("cpu", declining.negated_in_place)
    for count in (0, 1, 4, 4):
        x = torch.ones(3, 4)
        op(x[:, ::2], count)
        op(x, count)
        assert x.tolist() == [[1, -1, 1, -1]] * 3


def test_a_launch_by_name_is_declined_in_the_emulator(op: opsmith.Op) -> None:
    with opsmith.emulate():
        x = torch.randn(10)
        assert torch.equal(op(x, 13.0), x * 13.0)
        assert torch.equal(op(x, 2.0), x * 2.0)


def test_only_code_that_can_decline_is_called_with_care(declining: Any) -> None:
    assert declining.negated.may_decline
    assert not native_kernels.extension().square_forward.may_decline


# --- on a GPU ---------------------------------------------------------------------------------------------------------


def scaled_on_gpu(fresh: Fresh) -> opsmith.Op:
    made = opsmith.op(fresh("scaled"))(scaled)
    made.register_kernel("cuda", ext.scaled_forward)
    made.register_backward("cuda", ext.scaled_backward, saves=("x", "factor"))
    return made


@pytest.mark.gpu
def test_values_gradients_and_declined_calls_on_a_gpu(tier: str, fresh: Fresh) -> None:
    op = scaled_on_gpu(fresh)
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(1000, 7, device="cuda", dtype=dtype, requires_grad=True)
        for factor in (3.0, 13.0, 2.0):
            (gradient,) = torch.autograd.grad(op(x, factor).sum(), x)
            assert torch.equal(op(x, factor), x * factor) and torch.equal(gradient, torch.full_like(x, factor))
    with pytest.raises(RuntimeError, match=r"'count' \(int\) holds -2147483648 to 2147483647"):
        op(x.float(), 2.0, 2**31)
    for device in range(torch.cuda.device_count()):
        y = torch.randn(100, device=f"cuda:{device}")
        assert torch.equal(op(y, 2.0), y * 2.0)


@pytest.mark.gpu
def test_launches_go_to_the_current_stream_and_into_graphs(tier: str, fresh: Fresh) -> None:
    op, x = scaled_on_gpu(fresh), torch.randn(1 << 20, device="cuda")
    op.prepare(x, 2.0)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.add_(1)
        y = op(x, 2.0)
    stream.synchronize()
    assert torch.equal(y, x * 2.0)
    with torch.cuda.graph(graph, stream=stream):
        z = op(x, 3.0)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(z, x * 3.0)


@pytest.mark.gpu
def test_more_shared_memory_than_48_kib_on_a_gpu(fresh: Fresh) -> None:
    def flipped(x: Tensor, block: int, shared_bytes: int) -> Tensor:
        return x.flip(-1)

    op, x = declared(fresh, flipped, "reversed"), torch.randn(3, 48, device="cuda")
    for shared_bytes in (192, 90_000, 60_000):
        assert torch.equal(op(x, 48, shared_bytes), x.flip(-1))
    with pytest.raises(RuntimeError, match="of shared memory a block"):
        op(x, 48, 300_000)
    kinds, y = declared(fresh, sum_of_kinds, "kinds"), torch.arange(4.0, device="cuda")
    torch.testing.assert_close(kinds(y, -128, 1000, 0.5), sum_of_kinds(y, -128, 1000, 0.5))
