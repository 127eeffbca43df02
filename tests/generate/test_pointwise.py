"""opsmith.pointwise: what a user sees of it. Values, gradients, layouts, dtypes, what is kept, what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op
from opsmith.errors import SharedMemoryError

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@opsmith.pointwise("pointwise_tests::scale_bias_relu")
def scale_bias_relu(x: Tensor, bias: Tensor, scale: float = 1.0) -> Tensor:
    return torch.relu(x * scale + bias)


@opsmith.pointwise("pointwise_tests::gated")
def gated(x: Tensor, row: Tensor, column: Tensor, one: Tensor) -> Tensor:
    return torch.tanh(x * row + column) * one


@opsmith.pointwise("pointwise_tests::polynomial")
def polynomial(x: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return a * x**3 + b * x**2 + c * x + d


@opsmith.pointwise("pointwise_tests::add")
def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@opsmith.pointwise("pointwise_tests::sigmoid")
def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


@opsmith.pointwise("pointwise_tests::two_results")
def two_results(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * y, y.sin()


@opsmith.pointwise("pointwise_tests::branching")
def branching(x: Tensor, scale: float, times: int, negate: bool = False, kind: str = "sin") -> Tensor:
    y = torch.sin(x) if kind == "sin" else x.cos()
    y = y * math.sqrt(scale) ** times
    return -y if negate else y


@opsmith.pointwise("pointwise_tests::add_two_", mutates_args=("x",))
def add_two_(x: Tensor) -> None:
    x += 2


def leaf(*shape: int, device: str = "cpu", dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64).to(dtype).to(device).requires_grad_()


def check(op: Op, *args: Any, tolerance: float | None = None) -> Tensor:
    """The op beside its reference: values, strides, gradients."""
    result, expected = op(*args), op.reference(*args)
    results, wanted = (r if isinstance(r, tuple) else (r,) for r in (result, expected))
    leaves = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
    grads = [torch.randn_like(each) for each in wanted]
    for mine, theirs in zip(results, wanted, strict=True):
        assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride(), (mine.stride(), theirs.stride())
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    found = torch.autograd.grad(results, leaves, grads)
    for mine, theirs, each in zip(found, torch.autograd.grad(wanted, leaves, grads), leaves, strict=True):
        assert mine.shape == each.shape and mine.dtype == each.dtype
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    return results[0]


# --- broadcasting and its sums ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("x", "bias"),
    [
        ((5, 7), (7,)), ((5, 7), (5, 1)), ((5, 7), (1, 1)), ((5, 7), ()), ((3, 5, 7), (5, 1)), ((3, 5, 7), (3, 1, 7)),
        ((3, 5, 7), (1, 5, 7)), ((2, 3, 4, 5), (3, 1, 1)), ((2, 3, 4, 5), (2, 1, 4, 1)), ((7,), (5, 7)), ((1,), (5, 7)),
        ((), (4,)), ((1, 7), (7,)), ((300, 40), (40,)), ((40, 300), (40, 1)), ((70, 3), (3,)), ((5, 1), (1, 7)),
    ],
)  # fmt: skip
def test_the_gradient_of_a_broadcast_input_is_summed(x: tuple[int, ...], bias: tuple[int, ...], device: str) -> None:
    check(scale_bias_relu, leaf(*x, device=device), leaf(*bias, device=device), 1.7)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_different_dimensions_in_one_call(device: str) -> None:
    check(gated, *(leaf(*shape, device=device) for shape in ((6, 5, 7), (7,), (5, 1), ())))
    check(gated, *(leaf(*shape, device=device) for shape in ((6, 5, 7), (6, 1, 7), (5, 7), (1, 1, 1))))
    check(polynomial, leaf(6, 5, device=device), *(leaf(*s, device=device) for s in ((), (5,), (6, 1), (1, 1))))


@pytest.mark.parametrize("device", DEVICES)
def test_sums_are_the_same_in_every_run_and_for_every_number_of_threads(device: str) -> None:
    x, coefficients = (
        leaf(513, 257, device=device, dtype=torch.float32),
        [leaf(device=device, dtype=torch.float32) for _ in range(4)],
    )
    grad = torch.randn(513, 257, device=device)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(polynomial(x, *coefficients), [x, *coefficients], grad))

    first = gradients()
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, before):
            torch.set_num_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(first, gradients(), strict=True))
    finally:
        torch.set_num_threads(before)


def test_a_long_sum_keeps_its_digits() -> None:
    x = torch.rand(3_000_000) + 1
    bias = torch.zeros(1, requires_grad=True)
    (grad,) = torch.autograd.grad(scale_bias_relu(x, bias), bias, torch.ones_like(x) * 0.1)
    assert abs(grad.item() / 300_000 - 1) < 8 * torch.finfo(torch.float32).eps


def test_gradients_nobody_needs_are_not_computed() -> None:
    x, bias = leaf(4, 3), leaf(3)
    (grad,) = torch.autograd.grad(scale_bias_relu(x, bias), bias, torch.ones(4, 3, dtype=torch.float64))
    programs = [
        prepared
        for prepared in scale_bias_relu._families.generation.compiler._prepared.values()
        if prepared is not None
    ]
    alone = [p.program for p in programs if [result.name for result in p.program.results] == ["grad_bias"]]
    assert alone and all({read.name for read in each.reads} == {"grad_output", "output"} for each in alone)
    assert grad.shape == (3,)
    x = x.detach()
    check(scale_bias_relu, x, bias)


# --- what is kept for backward -----------------------------------------------------------------------------------


def saved(call: Callable[[], Any]) -> list[Tensor]:
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        call()
    return kept


@pytest.mark.usefixtures("tier")
class TestWhatIsKept:
    def declare(self, op: Op, fresh: Callable[[str], str]) -> Op:
        return opsmith.pointwise(fresh(op.__name__))(op.reference)

    def test_the_result_where_it_is_enough(self, fresh: Callable[[str], str]) -> None:
        op = self.declare(scale_bias_relu, fresh)
        x, bias = leaf(4, 3, dtype=torch.float32), leaf(3, dtype=torch.float32)
        result = op(x, bias)
        kept = saved(lambda: op(x, bias))
        assert [tuple(each.shape) for each in kept] == [(4, 3)]
        assert torch.equal(kept[0], result)

    def test_inputs_where_the_result_is_rounded(self, fresh: Callable[[str], str]) -> None:
        op = self.declare(sigmoid, fresh)
        x = leaf(4, dtype=torch.bfloat16)
        kept = saved(lambda: op(x))
        assert len(kept) == 1 and torch.equal(kept[0], x)
        assert len(saved(lambda: op(leaf(4)))) == 1

    def test_nothing_where_nothing_is_needed(self, fresh: Callable[[str], str]) -> None:
        op = self.declare(add, fresh)
        assert saved(lambda: op(leaf(4), leaf(4))) == []

    def test_no_input_that_the_gradient_does_not_read(self, fresh: Callable[[str], str]) -> None:
        op = self.declare(polynomial, fresh)
        x, a, b, c, d = leaf(4), leaf(), leaf(), leaf(), leaf()
        kept = saved(lambda: op(x, a, b, c, d))
        assert len(kept) == 4 and not any(each is d for each in kept)

    def test_derivatives_of_every_order_from_what_is_kept(self, fresh: Callable[[str], str]) -> None:
        op = self.declare(sigmoid, fresh)
        x = leaf(5)

        def derivative(function: Callable[[Tensor], Tensor], order: int) -> Tensor:
            y = function(x)
            for _ in range(order):
                (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            return y

        for order in (1, 2, 3, 4):
            torch.testing.assert_close(derivative(op, order), derivative(torch.sigmoid, order))

    def test_second_gradients_are_kernels(self, fresh: Callable[[str], str]) -> None:
        op = self.declare(polynomial, fresh)
        args = [leaf(4, 3), leaf(), leaf(3), leaf(4, 1), leaf()]
        assert torch.autograd.gradgradcheck(op, args)
        levels = {
            prepared.program.name
            for prepared in op._families.generation.compiler._prepared.values()
            if prepared is not None
        }
        assert any(name.endswith("_backward_backward") for name in levels)


# --- dtypes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (torch.float32, torch.float64), (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16),
        (torch.int64, torch.float32), (torch.int32, torch.bfloat16), (torch.bool, torch.float64),
        (torch.uint8, torch.int16), (torch.int8, torch.int64), (torch.bool, torch.bool),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shapes", [((4, 3), (3,)), ((4, 3), ()), ((), (3,)), ((), ())])
def test_promotion_is_torchs(one: torch.dtype, two: torch.dtype, shapes: Any, device: str) -> None:
    values = [
        (torch.randint(0, 2, shape) if not dtype.is_floating_point else torch.randn(shape)).to(dtype).to(device)
        for shape, dtype in zip(shapes, (one, two), strict=True)
    ]
    mine, theirs = add(*values), values[0] + values[1]
    assert mine.dtype == theirs.dtype
    if theirs.dtype in (torch.float16, torch.bfloat16):  # half types are float32 rounded once
        theirs = sum(v.float() if v.is_floating_point() else v for v in values).to(theirs.dtype)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_mixed_dtypes_have_gradients_of_their_own_dtypes(device: str) -> None:
    for dtypes in ((torch.float32, torch.float64), (torch.bfloat16, torch.float32), (torch.float64, torch.float16)):
        x, bias = leaf(5, 4, device=device, dtype=dtypes[0]), leaf(4, device=device, dtype=dtypes[1])
        result = scale_bias_relu(x, bias, 0.5)
        grads = torch.autograd.grad(result, [x, bias], torch.ones_like(result))
        assert [grad.dtype for grad in grads] == list(dtypes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_types_are_float32_rounded_once(dtype: torch.dtype, device: str) -> None:
    x, bias = leaf(50, 40, device=device, dtype=dtype), leaf(40, device=device, dtype=dtype)
    result = scale_bias_relu(x, bias, 1.3)
    wide = [each.detach().float().requires_grad_() for each in (x, bias)]
    expected = scale_bias_relu.reference(*wide, 1.3)
    assert torch.equal(result, expected.to(dtype))
    grad = torch.randn_like(result)
    found = torch.autograd.grad(result, [x, bias], grad)
    wanted = torch.autograd.grad(expected, wide, grad.float())
    assert torch.equal(found[0], wanted[0].to(dtype))
    torch.testing.assert_close(found[1], wanted[1].to(dtype))


def test_an_absent_tensor_before_another_leaves_dtypes_right(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("absent"))
    def op(x: Tensor, y: Tensor | None, z: Tensor) -> Tensor:
        return x * z if y is None else x * y * z

    x, z = torch.randn(5, dtype=torch.bfloat16), torch.randn(5)
    for other in (z, z.bfloat16()):
        assert torch.equal(op(x, None, other), x * other)
        assert op(x, None, other).dtype == (x * other).dtype


def test_casts_in_the_reference_are_kept(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("casts"))
    def casts(x: Tensor) -> Tensor:
        return (x.to(torch.bfloat16) * 1.1).float() + x.double().to(x.dtype).half().float()

    x = torch.randn(1000, requires_grad=True)
    mine, theirs = casts(x), casts.reference(x)
    assert torch.equal(mine, theirs)
    grad = torch.randn(1000)
    assert torch.equal(torch.autograd.grad(mine, x, grad)[0], torch.autograd.grad(theirs, x, grad)[0])


def test_complex_numbers_go_to_the_reference() -> None:
    x = torch.randn(4, dtype=torch.complex64)
    torch.testing.assert_close(add(x, x), x + x)


# --- layouts -----------------------------------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t,
    "channels_last": lambda t: t.to(memory_format=torch.channels_last),
    "permuted": lambda t: t.permute(3, 1, 0, 2),
    "sliced": lambda t: t[:, ::2],
    "offset": lambda t: t[..., 1:],
    "transposed_slice": lambda t: t[1:, :, ::2].transpose(1, 3),
    "expanded": lambda t: t[:, :1].expand_as(t),
    "misaligned": lambda t: torch.cat([t.flatten(), t.flatten()])[1 : 1 + t.numel()].view(t.shape),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_right_and_dense_ones_are_kept(name: str, device: str) -> None:
    make = LAYOUTS[name]
    x = make(leaf(4, 6, 8, 8, device=device, dtype=torch.float32)).detach().requires_grad_()
    bias = torch.randn(x.shape[1], 1, 1, device=device, requires_grad=True)
    result = check(scale_bias_relu, x, bias, 0.5, tolerance=1e-5)
    if name in ("contiguous", "channels_last", "permuted"):
        assert result.stride() == x.stride()
    full = make(torch.randn(4, 6, 8, 8, device=device)).detach().requires_grad_()
    check(add, x, full)
    # A gradient of another layout than the result's.
    grad = make(torch.randn(4, 6, 8, 8, device=device))
    mine = torch.autograd.grad(scale_bias_relu(x, bias), [x, bias], grad)
    theirs = torch.autograd.grad(scale_bias_relu.reference(x, bias), [x, bias], grad)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 0), (1, 1, 1)])
def test_empty_and_dimensionless(shape: tuple[int, ...], device: str) -> None:
    check(scale_bias_relu, leaf(*shape, device=device), leaf(*shape[-1:], device=device))
    check(add, leaf(*shape, device=device), leaf(device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1023, 1025, 4097])
def test_sizes_around_every_vector(count: int, device: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = leaf(count, device=device, dtype=dtype)
        expected = torch.sigmoid(x.float()).to(dtype)
        torch.testing.assert_close(sigmoid(x), expected)
        (grad,) = torch.autograd.grad(sigmoid(x).sum(), x)
        torch.testing.assert_close(grad, torch.autograd.grad(torch.sigmoid(x.float()).sum(), x)[0])


# --- results, in place, out= -------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_several_results(device: str) -> None:
    check(two_results, leaf(4, 3, device=device), leaf(4, 3, device=device))
    x, y = leaf(4, 3, device=device), leaf(4, 3, device=device)
    (grad,) = torch.autograd.grad(two_results(x, y)[1].sum(), y)
    torch.testing.assert_close(grad, y.cos())


def test_results_of_different_shapes_are_right() -> None:
    check(two_results, leaf(4, 3), leaf(3))
    check(two_results, leaf(3), leaf(4, 3))


@pytest.mark.parametrize("device", DEVICES)
def test_in_place(device: str) -> None:
    x = torch.randn(4, 6, device=device)
    for view in (x.clone(), x.clone().t(), x.clone()[:, ::2]):
        before = view.clone()
        assert add_two_(view) is view
        torch.testing.assert_close(view, before + 2)
    start = leaf(4, device=device)
    y = start * 1
    add_two_(y)
    (grad,) = torch.autograd.grad((y * y).sum(), start)
    torch.testing.assert_close(grad, 2 * (start + 2))


@pytest.mark.parametrize("device", DEVICES)
def test_out_is_written_directly(device: str) -> None:
    x, y = torch.randn(4, 6, device=device), torch.randn(6, device=device)
    out = torch.empty(6, 4, device=device).t()
    assert add(x, y, out=out) is out
    torch.testing.assert_close(out, x + y)
    expected = x + y
    add(x, y, out=x)  # the very same tensor
    torch.testing.assert_close(x, expected)
    memory = torch.randn(9, device=device)
    first, expected = memory[:8], memory[:8] + memory[:8]
    add(first, first, out=memory[1:])  # an overlap
    torch.testing.assert_close(memory[1:], expected)


# --- arguments ---------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_broadcast_are_torchs_error() -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        add(torch.ones(3), torch.ones(4))


# --- torch.compile -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tier")
def test_compile_calls_it_whole_and_does_not_recompile_for_a_float(fresh: Callable[[str], str]) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    op = opsmith.pointwise(fresh("compiled"))(scale_bias_relu.reference)
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(backend=counter, fullgraph=True)
    def model(x: Tensor, bias: Tensor, scale: float) -> Tensor:
        return op(x, bias, scale) * 2

    x, bias = leaf(4, 3), leaf(3)
    for scale in (1.0, 1.5, 2.0, 2.5, 3.5, 0.25):
        result = model(x, bias, scale)
        expected = scale_bias_relu.reference(x, bias, scale) * 2
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(
            torch.autograd.grad(result.sum(), [x, bias]), torch.autograd.grad(expected.sum(), [x, bias])
        )
    assert counter.frame_count <= 2  # one for the first value, one for every other
    assert any(op.name.partition("::")[2] in str(node.target) for graph in counter.graphs for node in graph.graph.nodes)


def test_inline_is_seen_through() -> None:
    from torch._dynamo.testing import EagerAndRecordGraphs

    graphs = EagerAndRecordGraphs()
    torch.compile(lambda x, y: scale_bias_relu.inline(x, y), backend=graphs, fullgraph=True)(
        torch.ones(3), torch.ones(3)
    )
    targets = {str(node.target) for node in graphs.graphs[0].graph.nodes}
    assert not any("pointwise_tests" in target for target in targets)


@pytest.mark.parametrize("other", [(7,), (5, 5), (2, 3, 4), (3,), ()])
def test_an_input_that_is_not_used_has_a_gradient_of_zero_whatever_its_shape(
    other: tuple[int, ...], fresh: Callable[[str], str]
) -> None:
    @opsmith.pointwise(fresh("unused"))
    def unused(x: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(x)

    x, y = leaf(4, 3), leaf(*other)
    grads = torch.autograd.grad(unused(x, y).sum(), [x, y], create_graph=True, allow_unused=True)
    torch.testing.assert_close(grads[0], torch.autograd.grad(torch.sigmoid(x).sum(), x)[0])
    assert grads[1] is None or (grads[1].shape == y.shape and not grads[1].any())


def test_prepare_compiles_for_the_layout_it_is_given(fresh: Callable[[str], str]) -> None:
    op = opsmith.pointwise(fresh("prepared"))(scale_bias_relu.reference)
    x = torch.randn(8, 40)[:, 1:33:2].requires_grad_()
    bias = torch.randn(1, requires_grad=True).expand(16)
    op.prepare(x, bias)
    before = sum(len(prepared.kernels) for prepared in op._families.generation.compiler._prepared.values() if prepared)
    torch.autograd.grad(op(x, bias), [x, bias], torch.ones(8, 16))
    assert (
        sum(len(prepared.kernels) for prepared in op._families.generation.compiler._prepared.values() if prepared)
        == before
    )


# --- what a review found --------------------------------------------------------------------------------------------


def test_third_gradients_keep_every_functions_own_rule(fresh: Callable[[str], str]) -> None:
    @opsmith.pointwise(fresh("kinks"))
    def kinks(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.exp(x)
        return y, torch.relu(y - 1.0) * y

    @opsmith.pointwise(fresh("detached"))
    def with_detach(x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(x)
        return y, y.detach() * x

    def third(function: Callable[..., tuple[Tensor, ...]]) -> Tensor:
        x = torch.tensor([0.0, 0.3, -1.2], dtype=torch.float64, requires_grad=True)
        results = function(x)
        total = sum((each**2).sum() for each in results) + results[1].sum()
        for _ in range(3):
            (grad,) = torch.autograd.grad(total, x, create_graph=True)
            total = (grad**2).sum() + grad.sum()
        return grad

    for op in (kinks, with_detach):
        assert op._families.generation.compiler.saves["full"].results
        torch.testing.assert_close(third(op), third(op.reference))


@pytest.mark.usefixtures("tier")
class TestPassthroughGradients:
    """The gradient of a result may be that of an input: torch passes it on unchanged, and so does opsmith."""

    def shifted(self, fresh: Callable[[str], str]) -> Op:
        @opsmith.pointwise(fresh("shifted"))
        def shifted(x: Tensor, y: Tensor) -> Tensor:
            return x + y * y

        return shifted

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
    def test_the_very_tensor_where_shapes_are_the_same(self, dtype: torch.dtype, fresh: Callable[[str], str]) -> None:
        op, x, y, grad = (
            self.shifted(fresh),
            leaf(3, 4, dtype=dtype),
            leaf(3, 4, dtype=dtype),
            torch.randn(3, 4).to(dtype),
        )
        for _ in range(2):  # by Python, then by C++
            of_x, of_y = torch.autograd.grad(op(x, y), [x, y], grad)
            assert of_x.data_ptr() == grad.data_ptr() and torch.equal(of_x, grad)
            assert torch.equal(of_y, 2 * y.detach() * grad)
            (alone,) = torch.autograd.grad(op(x, y), [x], grad)
            assert alone.data_ptr() == grad.data_ptr()

    def test_a_sum_where_the_input_is_repeated(self, fresh: Callable[[str], str]) -> None:
        op, x, y, grad = self.shifted(fresh), leaf(4), leaf(3, 4), torch.randn(3, 4, dtype=torch.float64)
        for _ in range(2):
            torch.testing.assert_close(torch.autograd.grad(op(x, y), [x], grad)[0], grad.sum(0))

    def test_a_cast_where_dtypes_differ(self, fresh: Callable[[str], str]) -> None:
        op, x, y = self.shifted(fresh), leaf(3, dtype=torch.float32), leaf(3)
        grad = torch.randn(3, dtype=torch.float64)
        for _ in range(2):
            (of_x,) = torch.autograd.grad(op(x, y), [x], grad)
            assert of_x.dtype == torch.float32 and torch.equal(of_x, grad.float())

    def test_second_gradients_go_through(self, fresh: Callable[[str], str]) -> None:
        op, x, y = self.shifted(fresh), leaf(3), leaf(3)
        (of_x,) = torch.autograd.grad(op(x, y).square().sum(), [x], create_graph=True)
        (second,) = torch.autograd.grad(of_x.sum(), [x])
        torch.testing.assert_close(second, torch.full_like(second, 2.0))

    def test_a_cast_that_rounds_is_no_handing_on(self, fresh: Callable[[str], str]) -> None:
        @opsmith.pointwise(fresh("through_float"))
        def through_float(x: Tensor) -> Tensor:
            return x.float().to(x.dtype)

        x, grad = leaf(5), torch.randn(5, dtype=torch.float64)
        assert through_float._families.generation.compiler.passthrough is None
        for _ in range(2):
            assert torch.equal(torch.autograd.grad(through_float(x), [x], grad)[0], grad.float().double())

    def test_the_author_s_backward_is_called(self, fresh: Callable[[str], str]) -> None:
        op, calls = self.shifted(fresh), []

        @op.register_backward("cpu")
        def _(grads: Any, y: Tensor, *, needs: Any) -> Any:
            calls.append(1)
            return grads[0].clone(), 2 * y * grads[0]

        x, y, grad = leaf(3), leaf(3), torch.randn(3, dtype=torch.float64)
        of_x, _ = torch.autograd.grad(op(x, y), [x, y], grad)
        assert calls and of_x.data_ptr() != grad.data_ptr() and torch.equal(of_x, grad)


@pytest.mark.usefixtures("tier")
def test_a_tensor_changed_in_place_is_not_given_twice(fresh: Callable[[str], str]) -> None:
    name = fresh("twice_")

    @opsmith.pointwise(name, mutates_args=("x",))
    def twice_(x: Tensor, y: Tensor) -> None:
        x.mul_(2).add_(y)

    operator = getattr(torch.ops, name.partition("::")[0]).twice_
    x, y = torch.ones(4), torch.ones(4)
    for _ in range(2):  # by Python, then by C++
        before = x.clone()
        operator(x, y)
        assert torch.equal(x, before * 2 + y)
        with pytest.raises(SharedMemoryError, match="share memory"):
            operator(x, x)
