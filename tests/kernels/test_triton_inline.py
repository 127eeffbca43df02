"""Triton kernels that torch.compile sees: register_kernel(..., inline=True)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, errors

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install 'opsmith[triton]'")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from . import triton_ops  # noqa: E402
from .triton_ops import (  # noqa: E402
    declared,
    launch_square,
    launch_square_backward,
    negative,
    ran,
    square,
    tuned_kernel,
)

Fresh = Callable[[str], str]
pytestmark = pytest.mark.usefixtures("tier")


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


@pytest.fixture
def op(fresh: Fresh) -> Op:
    return declared(fresh("triton_square"))


class Sm90:
    """Triton's driver on a machine without one: enough to tell which tensors a kernel writes."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """traced(function, *shapes): the graph that torch.compile's backend is given, for float32 CUDA tensors."""
    from torch._functorch.aot_autograd import aot_export_joint_simple

    if not torch.cuda.is_available():
        monkeypatch.setattr(triton.runtime.driver, "_active", Sm90())

    def trace(function: Callable[..., Any], *shapes: tuple[int, ...]) -> str:
        with FakeTensorMode():
            tensors = tuple(torch.empty(shape, device="cuda") for shape in shapes)
            return aot_export_joint_simple(lambda *args: tuple(function(*args)), tensors, trace_joint=False).code

    return trace


def test_an_inline_kernel_is_in_the_graph_and_an_opaque_one_is_not(fresh: Fresh, traced: Any) -> None:
    for inline in (True, False):
        op = declared(fresh(f"inline_{inline}"), inline)
        forward = traced(lambda x: (op(x),), (5, 17))  # noqa: B023
        backward = traced(lambda g, x: op._families.default.backward.overload(g, x, None, [True]), (4,), (4,))  # noqa: B023
        for graph in (forward, backward):
            assert ("triton_kernel_wrapper_functional" in graph) == inline
            assert (f"torch.ops.{op.name.replace('::', '.')}" in graph) != inline
        assert ("[inline]" in repr(op)) == inline


def test_an_inline_kernel_gets_contiguous_tensors(fresh: Fresh, traced: Any) -> None:
    op = declared(fresh("inline_strided"), inline=True)
    assert "aten.clone" in traced(lambda x: (op(x.t()),), (5, 17))
    assert "aten.clone" not in traced(lambda x: (op(x),), (5, 17))


def test_a_choice_made_by_using_is_the_one_that_is_seen(fresh: Fresh, traced: Any) -> None:
    op = opsmith.op(fresh("inline_chosen"))(square)
    op.register_kernel("cuda", lambda x: x * x)
    op.register_kernel("cuda", launch_square, name="mine", inline=True)
    with op.using("mine"):
        assert "triton_kernel_wrapper_functional" in traced(lambda x: (op(x),), (8,))
    assert "triton_kernel_wrapper_functional" not in traced(lambda x: (op(x),), (8,))


def test_where_the_kernel_does_not_take_the_arguments_torch_sees_the_op(fresh: Fresh, traced: Any) -> None:
    op = opsmith.op(fresh("inline_not_taken"))(square)
    op.register_kernel("cuda", lambda x: NotImplemented if x.ndim > 1 else launch_square(x), inline=True)
    assert "triton_kernel_wrapper_functional" in traced(lambda x: (op(x),), (8,))
    refused = traced(lambda x: (op(x),), (8, 2))
    assert "triton_kernel_wrapper" not in refused and op._families.default.forward.base in refused


def test_wrap_triton_written_by_the_author_is_not_applied_twice(fresh: Fresh, traced: Any) -> None:
    op = opsmith.op(fresh("inline_by_hand"))(negative)

    @op.register_kernel("cuda", inline=True)
    def launch(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.library.wrap_triton(triton_ops.negate)[(1,)](x, out, x.numel(), BLOCK=8)
        return out

    assert "triton_kernel_wrapper_functional" in traced(lambda x: (op(x),), (8,))


def test_an_inline_kernel_in_place(fresh: Fresh, traced: Any) -> None:
    def negate_(x: Tensor) -> None:
        x.neg_()

    op = opsmith.op(fresh("inline_in_place"), mutates_args=("x",))(negate_)

    @op.register_kernel("cuda", inline=True)
    def launch(x: Tensor) -> None:
        triton_ops.negate[(1,)](x, x, x.numel(), BLOCK=8)

    graph = traced(lambda x: (op(x.clone()),), (8,))
    assert "triton_kernel_wrapper_functional" in graph and op._families.default.forward.base not in graph
    x = torch.randn(8)
    expected = -x
    with opsmith.emulate():
        assert op(x) is x
    torch.testing.assert_close(x, expected)


def test_a_cpu_call_of_an_op_with_an_inline_kernel_compiles_as_ever(fresh: Fresh) -> None:
    op = declared(fresh("inline_on_cpu"), inline=True)
    x = torch.randn(5, requires_grad=True)
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x.detach())
    assert ran == []


def test_export_keeps_the_op(fresh: Fresh) -> None:
    op = declared(fresh("inline_exported"), inline=True)

    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return op(x)

    for device in ("cpu", "cuda"):
        with FakeTensorMode():
            x = torch.empty(4, device=device)
        program = torch.export.export(Module(), (x,)).run_decompositions()
        assert f"{op._families.default.forward.base}.default(x)" in str(program) and "triton_kernel_wrapper" not in str(
            program
        )


def test_a_tensor_subclass_takes_the_op_apart_before_its_kernels_are_seen(fresh: Fresh, traced: Any) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    op = declared(fresh("inline_subclass"), inline=True)

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        result = op(TwoTensor(x, x + 1))
        return result.a, result.b

    graph = traced(both, (8,))
    assert graph.count("triton_kernel_wrapper_functional(") == 2


def test_torchs_cache_knows_every_text_that_an_inline_kernel_depends_on(fresh: Fresh) -> None:
    from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code as source_of
    from torch._library.triton import get_triton_kernels_for_op

    op = declared(fresh("inline_cached"), inline=True)
    text = "\n".join(source_of(kernel) for kernel in get_triton_kernels_for_op(op._families.default.forward.name))
    for name in ("launch_square", "square_kernel", "launch_square_backward", "square_backward_kernel"):
        assert f"def {name}(" in text
    assert list(get_triton_kernels_for_op(declared(fresh("opaque"))._families.default.forward.name)) == []


def test_inline_is_refused_where_there_is_nothing_to_see(op: Op, fresh: Fresh, traced: Any) -> None:
    with pytest.raises(errors.InlineKernelError, match="which run on 'cuda', not on 'cpu'"):
        op.register_kernel("cpu", launch_square, inline=True)
    with pytest.raises(errors.InlineKernelError, match="which run on 'cuda', not on 'cpu'"):
        op.register_backward("cpu", launch_square_backward, inline=True)
    from opsmith.kernels import NativeFunction

    with pytest.raises(errors.InlineKernelError, match=r"C\+\+ square_forward \(kernels.so\) is C\+\+: leave it out"):
        op.register_kernel("cuda", NativeFunction("kernels.so", "square_forward"), inline=True)

    @op.register_kernel("cuda", inline=True)
    def launch(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        tuned_kernel[(1,)](x, out, x.numel())
        return out

    with pytest.raises(errors.InlineKernelError, match=r"tuned_kernel.*torch traces no @triton.heuristics"):
        traced(lambda x: (op(x),), (8,))


# --- on a GPU -------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("choice", ["default", "mine"])
def test_on_a_gpu_torch_compile_sees_an_inline_kernel_and_gives_the_same(fresh: Fresh, choice: str) -> None:
    from torch._inductor.utils import run_and_get_code

    op = opsmith.op(fresh("gpu_inline"))(square)
    name = None if choice == "default" else choice
    op.register_kernel("cuda", launch_square, name=name, inline=True)
    op.register_backward("cuda", launch_square_backward, name=name, inline=True)

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_()
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y, x, weights)
        return y.detach(), gradient

    compiled = torch.compile(lambda x: op(x * 2) + 1, fullgraph=True)
    for x in (torch.randn(33, 65, device="cuda"), torch.randn(65, 33, device="cuda").t()):
        weights = torch.randn_like(x)
        with op.using(choice):
            (y, gradient), codes = run_and_get_code(step, x)
            leaf = x.detach().requires_grad_()
            eager = op(leaf * 2) + 1
            (expected,) = torch.autograd.grad(eager, leaf, weights)
        torch.testing.assert_close(y, eager.detach())
        torch.testing.assert_close(gradient, expected)
        text = "\n".join(codes)
        assert "square_kernel" in text and "square_backward_kernel" in text
        assert "torch.ops.opsmith_tests" not in text, "the op is called as a whole"


@pytest.mark.gpu
def test_on_a_gpu_an_autotuned_inline_kernel_compiles(fresh: Fresh) -> None:
    op = opsmith.op(fresh("gpu_tuned"))(negative)

    @op.register_kernel("cuda", inline=True)
    def launch(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        tuned_negate[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    x = torch.randn(1000, device="cuda")
    torch.testing.assert_close(op(x), -x)
    torch.testing.assert_close(torch.compile(op, fullgraph=True)(x), -x)


tuned_negate = triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])(
    triton_ops.negate
)


@pytest.mark.gpu
def test_on_a_gpu_an_inline_kernel_in_place_compiles(fresh: Fresh) -> None:
    def negate_(x: Tensor) -> None:
        x.neg_()

    op = opsmith.op(fresh("gpu_inline_in_place"), mutates_args=("x",))(negate_)

    @op.register_kernel("cuda", inline=True)
    def launch(x: Tensor) -> None:
        triton_ops.negate[(triton.cdiv(x.numel(), 64),)](x, x, x.numel(), BLOCK=64)

    x = torch.randn(100, device="cuda")
    expected = -(x + 1)
    torch.testing.assert_close(torch.compile(lambda x: op(x + 1), fullgraph=True)(x), expected)
    strided = torch.randn(10, 10, device="cuda").t()
    before = strided.clone()
    torch.compile(lambda x: op(x), fullgraph=True)(strided)
    torch.testing.assert_close(strided, -before)
