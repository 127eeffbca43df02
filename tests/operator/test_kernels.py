"""Parts the author writes: kernels in Python and C++, backward kernels, and what they may and may not do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import native_kernels
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample, errors
from opsmith.checks import compare_samples
from opsmith.kernels.native import INCLUDE_DIRECTORY
from opsmith.toolchain import compile_shared_library

Fresh = Callable[[str], str]
pytestmark = pytest.mark.usefixtures("tier")


def square(x: Tensor) -> Tensor:
    return x * x


def weighted_rows(x: Tensor, weight: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    return (x * weight[:, None]).sum(0) * scale, torch.full((1,), x.shape[0], dtype=x.dtype, device=x.device)


@pytest.fixture
def native_square(fresh: Fresh) -> Op:
    op = opsmith.op(fresh("square"))(square)
    op.register_kernel("cpu", native_kernels.library().square_forward)
    op.register_backward("cpu", native_kernels.library().square_backward_kernel, saves=("x",))

    @op.register_samples
    def _(device: Any, dtype: torch.dtype) -> Any:
        yield Sample(args=(torch.randn(5, 3, device=device, dtype=dtype),))
        yield Sample(args=(torch.randn(5, 3, device=device, dtype=dtype).t(),), name="permuted")
        yield Sample(args=(torch.randn(9, 9, device=device, dtype=dtype)[1::2, ::3],), name="sliced")
        yield Sample(args=(torch.randn(0, 3, device=device, dtype=dtype),), name="empty")
        yield Sample(args=(torch.tensor(1.5, device=device, dtype=dtype),), name="0-dim")

    return op


def test_a_cpp_kernel_gives_the_references_numbers(native_square: Op) -> None:
    for dtype in (torch.float32, torch.float64):
        for _ in range(2):  # The first call is checked in Python; the next ones are entered from C++.
            assert all(compare_samples(native_square, dtype=dtype))
    assert native_square.kernels["cpu"]["default"].checked


def test_a_cpp_kernel_in_every_transform(native_square: Op) -> None:
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    native_square(x)
    assert torch.autograd.gradcheck(native_square, (x,), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(native_square, (x,))
    total = lambda value: native_square(value).sum()  # noqa: E731
    torch.testing.assert_close(torch.func.hessian(total)(x.detach()), 2 * torch.eye(4, dtype=torch.float64))
    torch.testing.assert_close(torch.vmap(native_square)(torch.randn(3, 4)).shape, torch.Size([3, 4]))
    torch.testing.assert_close(torch.vmap(torch.func.grad(total))(x.detach()[:, None]), 2 * x.detach()[:, None])
    compiled = torch.compile(native_square, fullgraph=True, backend="aot_eager")
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x.detach())


def test_a_cpp_kernel_is_called_without_python(native_square: Op, tier: str) -> None:
    x = torch.randn(4, requires_grad=True)
    native_square.prepare(x)
    python_calls: list[str] = []
    native_square(x)
    sys.setprofile(lambda frame, event, arg: python_calls.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        result = native_square(x)
    finally:
        sys.setprofile(None)
    inside = [name for name in python_calls if "opsmith" in name and not name.endswith(("op.py", "test_kernels.py"))]
    assert result.requires_grad
    if tier == "native":
        assert inside == []
    else:
        assert inside, "the Python tier is expected to go through Python: this test would not notice otherwise"


def test_a_cpp_kernel_with_several_arguments_and_results(fresh: Fresh) -> None:
    op = opsmith.op(fresh("weighted_rows"))(weighted_rows)
    op.register_kernel("cpu", native_kernels.library().weighted_rows_forward)
    x, weight = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    for strided in (x, torch.randn(3, 4, dtype=torch.float64).t()):
        for _ in range(2):
            torch.testing.assert_close(op(strided, weight, 2.0), weighted_rows(strided, weight, 2.0))
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    assert torch.autograd.gradcheck(lambda *a: op(*a)[0], leaves)


def test_a_cpp_kernel_in_place(fresh: Fresh) -> None:
    def square_(x: Tensor) -> None:
        x.copy_(x.clone() ** 2)

    op = opsmith.op(fresh("square_"), mutates_args=("x",))(square_)
    op.register_kernel("cpu", native_kernels.library().square_in_place_kernel)
    for _ in range(2):
        x = torch.arange(6.0).reshape(2, 3)
        assert op(x) is x
        torch.testing.assert_close(x, torch.arange(6.0).reshape(2, 3) ** 2)
        wide = torch.arange(6.0)
        op(wide[::2])
        torch.testing.assert_close(wide, torch.tensor([0.0, 1, 4, 3, 16, 5]))
    leaf = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda value: op(value.clone()), (leaf,))


@pytest.mark.parametrize("flags", [(), ("-static-libstdc++", "-static-libgcc")], ids=["shared", "static"])
def test_a_kernel_that_raises_keeps_its_own_message(fresh: Fresh, flags: tuple[str, ...]) -> None:
    """Also where the compiler links its own C++ runtime, across which an exception would kill the process."""
    path = compile_shared_library(
        "opsmith_raising",
        text=native_kernels.SOURCE,
        abi="stable",
        include_dirs=[INCLUDE_DIRECTORY],
        extra_ldflags=flags,
    )
    op = opsmith.op(fresh("raises"))(square)
    op.register_kernel("cpu", native_kernels.NativeLibrary(path).raises_kernel)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the kernel's own words"):
            op(torch.randn(3))


def test_unknown_symbol_is_refused(fresh: Fresh) -> None:
    op = opsmith.op(fresh("unknown"))(square)
    with pytest.raises(errors.UnknownFunctionError, match="exports no function 'nowhere'; it exports raises_kernel"):
        op.register_kernel("cpu", native_kernels.library().nowhere)


def test_a_python_kernel_replaces_the_reference_and_gets_contiguous_tensors(fresh: Fresh) -> None:
    op = opsmith.op(fresh("kernel"))(square)
    seen: list[bool] = []

    @op.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        seen.append(x.is_contiguous())
        return x * x

    x = torch.randn(4, 3).t()
    torch.testing.assert_close(op(x), (x * x).contiguous())
    assert seen == [True]


def test_a_strided_kernel_gets_tensors_as_they_are(fresh: Fresh) -> None:
    op = opsmith.op(fresh("strided"))(square)
    seen: list[tuple[int, ...]] = []

    @op.register_kernel("cpu", layout="strided")
    def _(x: Tensor) -> Tensor:
        seen.append(x.stride())
        return (x * x).contiguous()

    op(torch.randn(4, 3).t())
    assert seen == [(1, 3)]


def test_what_a_kernel_does_not_take_goes_to_the_reference(fresh: Fresh) -> None:
    op = opsmith.op(fresh("partial"))(square)
    calls: list[torch.dtype] = []

    @op.register_kernel("cpu")
    def _(x: Tensor) -> Any:
        calls.append(x.dtype)
        return NotImplemented if x.dtype != torch.float32 else x * x

    for dtype in (torch.float32, torch.float64, torch.int64):
        x = torch.arange(3).to(dtype)
        torch.testing.assert_close(op(x), x * x)
    assert calls == [torch.float32, torch.float64, torch.int64]


def _lying(result: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def kernel(x: Tensor) -> Any:
        return result(x)

    return kernel


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (lambda x: x.new_empty(7), r"result has shape \(7,\), the reference's \(2, 3\)"),
        (lambda x: (x * x).double(), "result has dtype torch.float64, the reference's torch.float32"),
        (lambda x: (x * x).t().contiguous().t(), r"result has strides \(1, 2\), the reference's \(3, 1\)"),
        (lambda x: (x * x).to("meta"), "result has device meta, the reference's cpu"),
        (lambda x: x, "result shares memory with an input"),
        (lambda x: (x, x), "it returned 2 results, the reference 1"),
        (lambda x: None, "it returned 0 results, the reference 1"),
        (lambda x: 3.0, "result is a float, not a Tensor"),
    ],
)
def test_a_kernel_that_returns_something_else_is_refused(
    fresh: Fresh, result: Callable[[Tensor], Any], complaint: str
) -> None:
    op = opsmith.op(fresh("lying"))(square)
    op.register_kernel("cpu", _lying(result), name="liar")
    with pytest.raises(errors.KernelResultError, match=complaint) as caught:
        op(torch.randn(2, 3))
    assert "'liar' on cpu" in str(caught.value)
    assert "test_kernels.py" in str(caught.value)


def test_a_cpp_kernel_of_the_wrong_shape_is_refused(fresh: Fresh) -> None:
    op = opsmith.op(fresh("wrong"))(square)
    op.register_kernel("cpu", native_kernels.library().wrong_shape_kernel)
    for _ in range(2):
        with pytest.raises(errors.KernelResultError, match=r"result has shape \(5,\), the reference's \(4,\)"):
            op(torch.randn(4))


def test_a_kernel_that_changes_its_input_is_refused(fresh: Fresh) -> None:
    op = opsmith.op(fresh("mutating"))(square)
    op.register_kernel("cpu", lambda x: x.mul_(x).clone())
    with pytest.raises(errors.UndeclaredMutationError, match="changes its input 'x' in place"):
        op(torch.randn(4))


def test_a_backward_kernel_saves_what_it_names_and_nothing_else(fresh: Fresh) -> None:
    def sigmoid_times(x: Tensor, weight: Tensor) -> Tensor:
        return torch.sigmoid(x) * weight

    op = opsmith.op(fresh("sigmoid_times"))(sigmoid_times)
    asked: list[Any] = []

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor], weight: Tensor, output: Tensor, *, needs: Any) -> tuple[Any, Any]:
        asked.append((needs.x, needs.weight, len(needs)))
        (grad,) = grads
        gate = output / weight
        return (grad * weight * gate * (1 - gate), grad * gate if needs.weight else None)

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(5, dtype=torch.float64).add(0.5).requires_grad_()
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t.untyped_storage().nbytes()) or t, lambda t: t
    ):
        result = op(x, weight)
    assert sorted(saved) == [40, 40], "weight and the output; of x a shape"
    torch.autograd.grad(result, x, torch.ones_like(result))
    torch.autograd.grad(op(scaled := x * 1, weight * 1), scaled, torch.ones_like(result))
    assert asked == [(True, False, 2)] * 2, "only the gradient asked for, of a leaf and of another tensor"
    assert torch.autograd.gradcheck(op, (x, weight))


def test_the_second_gradient_of_a_partial_backward_names_what_it_lacks(fresh: Fresh) -> None:
    op = opsmith.op(fresh("exp"))(_exp)

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor], output: Tensor, *, needs: Any) -> Tensor:
        return grads[0] * output

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not name x among its parameters"):
        gradient.sum().backward()
    # Under a transform everything is kept, so there it works.
    torch.testing.assert_close(torch.func.hessian(lambda v: op(v).sum())(x.detach()), torch.diag(x.detach().exp()))


def _exp(x: Tensor) -> Tensor:
    return torch.exp(x)


def test_a_backward_kernel_that_names_all_inputs_has_second_gradients(fresh: Fresh) -> None:
    op = opsmith.op(fresh("cube"))(_cube)
    calls: list[int] = []

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor], x: Tensor, *, needs: Any) -> Tensor:
        calls.append(1)
        return grads[0] * 3 * x * x

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(op, (x,))
    assert torch.autograd.gradgradcheck(op, (x,))
    assert calls
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 3 * x.detach() ** 2)


def _cube(x: Tensor) -> Tensor:
    return x**3


def test_undefined_gradients_arrive_as_none(fresh: Fresh) -> None:
    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x * 3

    op = opsmith.op(fresh("two"))(two)
    seen: list[list[bool]] = []

    @op.register_backward("cpu")
    def _(grads: tuple[Tensor | None, ...], x: Tensor, *, needs: Any) -> Tensor:
        seen.append([grad is None for grad in grads])
        total = torch.zeros_like(x)
        for grad, factor in zip(grads, (2, 3), strict=True):
            total = total if grad is None else total + grad * factor
        return total

    x = torch.randn(3, requires_grad=True)
    first, second = op(x)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x, retain_graph=True)[0], torch.full((3,), 2.0))
    torch.testing.assert_close(torch.autograd.grad(second.sum(), x, retain_graph=True)[0], torch.full((3,), 3.0))
    torch.testing.assert_close(torch.autograd.grad((first + second).sum(), x)[0], torch.full((3,), 5.0))
    assert seen == [[False, True], [True, False], [False, False]]


@pytest.mark.parametrize(
    ("backward", "saves", "complaint"),
    [
        (lambda g, x: x, None, "a backward kernel is `def _"),
        (lambda grads, x: x, ("x",), r"is called with \(grads, x, needs=needs\), and .*unexpected keyword .*needs"),
        (lambda grads, *, needs: None, ("x",), r"is called with \(grads, x, needs=needs\), and .*too many positional"),
    ],
)
def test_a_backward_kernel_of_another_signature_is_refused(
    fresh: Fresh, backward: Any, saves: Any, complaint: str
) -> None:
    op = opsmith.op(fresh("refused"))(square)
    with pytest.raises(errors.KernelSignatureError, match=rf"{complaint}(.|\n)*\n  test_kernels.py:\d+: \(lambda g"):
        op.register_backward("cpu", backward, saves=saves)


def test_a_backward_kernel_that_asks_for_something_unknown_is_refused(fresh: Fresh) -> None:
    op = opsmith.op(fresh("unknown"))(square)
    message = "asks for 'nonsense', which is neither an argument nor a result. There are x, output"
    with pytest.raises(errors.UnknownSaveError, match=message):

        @op.register_backward("cpu")
        def _(grads: Any, nonsense: Tensor, *, needs: Any) -> Tensor:
            return nonsense


def test_a_backward_kernel_with_the_wrong_number_of_gradients_is_refused(fresh: Fresh) -> None:
    op = opsmith.op(fresh("count"))(_mul)
    op.register_backward("cpu", lambda grads, a, b, *, needs: (grads[0] * b,))
    a, b = torch.randn(3, requires_grad=True), torch.randn(3)
    with pytest.raises(errors.KernelResultError, match="returned 1 gradients for 2 tensor arguments"):
        op(a, b).sum().backward()


def _mul(a: Tensor, b: Tensor) -> Tensor:
    return a * b


def test_a_cpp_backward_must_say_what_it_saves(fresh: Fresh) -> None:
    op = opsmith.op(fresh("unsaid"))(square)
    with pytest.raises(errors.SavesMissingError, match=r'needs saves=\("x", ...\), .* There are x, output'):
        op.register_backward("cpu", native_kernels.library().square_backward_kernel)


def test_register_autograd_takes_torch_librarys_signature(fresh: Fresh) -> None:
    op = opsmith.op(fresh("written"))(square)
    calls: list[int] = []

    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> Tensor:
        calls.append(1)
        (x,) = ctx.saved_tensors
        return 2 * x * grad

    op.register_autograd(backward, setup_context=setup_context)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(op, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(op, (x,))
    assert calls
    with pytest.raises(errors.GradientTakenError, match="use one of the two"):
        op.register_backward("cpu", lambda grads, x, *, needs: 2 * x * grads[0])
    torch.testing.assert_close(torch.func.grad(lambda v: op(v).sum())(x.detach()), 2 * x.detach())


def test_register_fake_is_what_tracing_sees(fresh: Fresh) -> None:
    op = opsmith.op(fresh("fake"))(square)
    calls: list[int] = []

    @op.register_fake
    def _(x: Tensor) -> Tensor:
        calls.append(1)
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    torch.library.opcheck(op._families.default.forward.overload, (torch.randn(3),))
    assert calls


def test_register_vmap_is_what_vmap_calls(fresh: Fresh) -> None:
    op = opsmith.op(fresh("vmap"))(square)
    calls: list[Any] = []

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Tensor) -> Any:
        calls.append((info.batch_size, in_dims))
        return op(x), in_dims[0]

    x = torch.randn(3, 5)
    torch.testing.assert_close(torch.vmap(op, in_dims=1)(x), (x * x).t())
    assert calls == [(5, (1,))]


def test_register_autocast_casts_in_the_region_only(fresh: Fresh) -> None:
    op = opsmith.op(fresh("autocast"))(square)
    op.register_autocast("cpu", torch.float16)
    x = torch.randn(3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = op(x)
    assert inside.dtype is torch.float16
    assert op(x).dtype is torch.float32
    inside.float().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("policy", "expected"), [("keep", None), ("lower", torch.bfloat16), ("float32", torch.float32)]
)
@pytest.mark.parametrize("kernel", [False, True])
def test_autocast_policies(fresh: Fresh, policy: str, expected: torch.dtype | None, kernel: bool) -> None:
    def times(x: Tensor, w: Tensor, index: Tensor) -> Tensor:
        return (x @ w)[index]

    op = opsmith.op(fresh("policy"), autocast=policy)(times)
    if kernel:
        op.register_kernel("cpu", lambda x, w, index: (x @ w)[index])
    index = torch.tensor([1, 0])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x, w = torch.randn(2, 2, dtype=dtype, requires_grad=True), torch.randn(2, 2, dtype=dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = op(x, w, index)
            batched = torch.vmap(op, in_dims=(0, None, None))(x.detach()[None], w, index)
        assert result.dtype is (dtype if expected is None or dtype is torch.float64 else expected)
        assert batched.dtype is result.dtype
        result.sum().backward()
        assert x.grad is not None and x.grad.dtype is dtype


def test_several_kernels_are_chosen_by_using(fresh: Fresh) -> None:
    op = opsmith.op(fresh("several"))(square)
    calls: list[str] = []

    def kernel(name: str) -> Callable[[Tensor], Tensor]:
        def function(x: Tensor) -> Tensor:
            calls.append(name)
            return x * x

        return function

    def backward(name: str) -> Callable[..., Tensor]:
        def function(grads: Any, x: Tensor, *, needs: Any) -> Tensor:
            calls.append(f"{name} backward")
            return 2 * x * grads[0]

        return function

    op.register_kernel("cpu", kernel("first"), name="first")
    op.register_kernel("cpu", kernel("second"), name="second")
    op.register_backward("cpu", backward("first"), name="first")
    op.register_backward("cpu", backward("second"), name="second")
    x = torch.randn(3, requires_grad=True)

    op(x).sum().backward()
    with op.using("second"):
        recorded = op(x)
    recorded.sum().backward()  # The choice made at forward holds, though the region is left.
    with op.using("reference"):
        op(x)
    assert calls == ["first", "first backward", "second", "second backward"]
    assert set(op.kernels["cpu"]) == {"first", "second"}
    with (
        pytest.raises(
            errors.UnknownKernelError, match=r"has no kernel 'third'; it has 'default', 'reference', 'first'"
        ),
        op.using("third"),
    ):
        pass


def test_using_holds_under_compile(fresh: Fresh) -> None:
    op = opsmith.op(fresh("compiled_choice"))(square)
    calls: list[str] = []
    op.register_kernel("cpu", lambda x: calls.append("first") or x * x, name="first")
    op.register_kernel("cpu", lambda x: calls.append("second") or x * x, name="second")
    compiled = torch.compile(lambda v: op(v) + 1, fullgraph=True, backend="aot_eager")
    x = torch.randn(3)
    compiled(x)
    with op.using("second"):
        compiled(x)
    compiled(x)
    assert calls == ["first", "second", "first"]


def test_using_is_of_one_thread(fresh: Fresh) -> None:
    op = opsmith.op(fresh("threads"))(square)
    calls: list[str] = []
    op.register_kernel("cpu", lambda x: calls.append("first") or x * x, name="first")
    op.register_kernel("cpu", lambda x: calls.append("second") or x * x, name="second")
    with op.using("second"):
        thread = threading.Thread(target=op, args=(torch.randn(3),))
        thread.start()
        thread.join()
        op(torch.randn(3))
    assert calls == ["first", "second"]


def test_a_kernel_registered_again_replaces_the_previous_one(fresh: Fresh) -> None:
    op = opsmith.op(fresh("again"))(square)
    op.register_kernel("cpu", lambda x: x * x)
    op(torch.randn(3))
    op.register_kernel("cpu", native_kernels.library().square_forward)
    torch.testing.assert_close(op(torch.ones(3) * 3), torch.full((3,), 9.0))
    torch.testing.assert_close(op(torch.ones(3) * 3), torch.full((3,), 9.0))
    op.register_kernel("cpu", lambda x: (x * x).clone())
    torch.testing.assert_close(op(torch.ones(3) * 4), torch.full((3,), 16.0))


def test_prepare_checks_forward_and_backward_ahead(native_square: Op) -> None:
    x = torch.randn(3, requires_grad=True)
    native_square.prepare(x)
    assert native_square._families.default.forward.kernels["cpu"].checked
    assert native_square._families.default.backward.kernels["cpu"].checked
    assert x.grad is None
