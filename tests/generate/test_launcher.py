"""Generated kernels entered from C++: the same results as through Python, and no Python on the way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import opsmith
from opsmith import runtime
from opsmith.launch.planner import LayoutClass
from opsmith.runtime import execution

TIERS = ("native", "python")


def scale_bias_relu(x: torch.Tensor, bias: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.relu(x * scale + bias)


def wave(x: torch.Tensor, y: torch.Tensor, sine: bool = True, kind: str = "less") -> tuple[torch.Tensor, torch.Tensor]:
    return (x.sin() if sine else x.cos()) * y, (x - y if kind == "less" else x + y)


def cube(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


def perhaps(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    return x * 2 if y is None else x * y


def multiply_add_(x: torch.Tensor, y: torch.Tensor, count: int = 3) -> None:
    x.mul_(y).add_(count)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def group_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    centred = x - x.mean((-3, -2, -1), keepdim=True)
    return centred * torch.rsqrt(centred.square().mean((-3, -2, -1), keepdim=True) + eps) * weight


@dataclass
class Ops:
    """The same ops on one tier. Kernels are named by what comes after the colons: both tiers share what is compiled."""

    scale_bias_relu: opsmith.Op
    wave: opsmith.Op
    cube: opsmith.Op
    perhaps: opsmith.Op
    rms_norm: opsmith.Op
    group_norm: opsmith.Op
    multiply_add_: opsmith.Op


def declare(namespace: str, tier: str) -> Ops:
    functions = (scale_bias_relu, wave, cube, perhaps)
    with runtime.forced(tier):
        return Ops(
            *[opsmith.pointwise(f"{namespace}::{function.__name__}")(function) for function in functions],
            opsmith.rowwise(f"{namespace}::rms_norm")(rms_norm),
            opsmith.rowwise(f"{namespace}::group_norm")(group_norm),
            opsmith.pointwise(f"{namespace}::multiply_add_", mutates_args=("x",))(multiply_add_),
        )


@pytest.fixture(scope="module")
def both() -> dict[str, Ops]:
    if runtime._library() is None:
        pytest.skip(f"the C++ runtime is not built: {runtime.reason()}; run `make setup`")
    return {tier: declare(f"launcher_{tier}", tier) for tier in TIERS}


@pytest.fixture
def ops(both: dict[str, Ops]) -> Ops:
    return both["native"]


@pytest.fixture
def python_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that went to Python."""
    calls: list[str] = []

    def execute(operator: Any, args: Any) -> Any:
        calls.append(operator.name)
        return plain(operator, args)

    plain = execution.execute
    monkeypatch.setattr(execution, "execute", execute)
    return calls


def results_and_gradients(op: Callable[..., Any], tensors: list[torch.Tensor], **values: Any) -> list[torch.Tensor]:
    """Results, gradients, and gradients of those."""
    returned = op(*tensors, **values)
    results = returned if isinstance(returned, tuple) else (returned,)
    weights = [torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape).to(result) for result in results]
    first = torch.autograd.grad(results, tensors, weights, create_graph=True)
    total = sum((grad.double().sin().sum() for grad in first if grad.requires_grad), weights[0].new_zeros(()))
    second = torch.autograd.grad(total, tensors, allow_unused=True) if total.requires_grad else ()
    return [*results, *first, *[grad for grad in second if grad is not None]]


def same(given: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return len(given) == len(expected) and all(
        torch.equal(a, b) and a.dtype == b.dtype and a.stride() == b.stride()
        for a, b in zip(given, expected, strict=True)
    )


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype).requires_grad_()


def remade(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return change(tensor.detach()).requires_grad_()


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last)


CALLS: dict[str, tuple[str, Callable[[], list[torch.Tensor]], dict[str, Any]]] = {
    "one element": ("cube", lambda: [leaf(1, 1)], {}),
    "no dimension": ("cube", lambda: [leaf()], {}),
    "no element": ("scale_bias_relu", lambda: [leaf(0, 4), leaf(4)], {}),
    "contiguous": ("cube", lambda: [leaf(5, 7)], {}),
    "every other element": ("cube", lambda: [remade(leaf(40), lambda t: t[::2])], {}),
    "bias of rows": ("scale_bias_relu", lambda: [leaf(33, 17), leaf(17)], {"scale": 2.0}),
    "many rows": ("scale_bias_relu", lambda: [leaf(4000, 17), leaf(17)], {}),
    "many columns": ("scale_bias_relu", lambda: [leaf(3, 2500), leaf(2500)], {}),
    "one bias": ("scale_bias_relu", lambda: [leaf(70000), leaf()], {}),
    "channels": ("scale_bias_relu", lambda: [leaf(4, 5, 6, 7), leaf(5, 1, 1)], {}),
    "channels last": (
        "scale_bias_relu", lambda: [remade(leaf(4, 5, 6, 7), channels_last), leaf(5, 1, 1)], {"scale": 0.5}
    ),
    "both repeated": ("wave", lambda: [leaf(5, 1), leaf(1, 6)], {}),
    "double": ("scale_bias_relu", lambda: [leaf(9, 8, dtype=torch.float64), leaf(8, dtype=torch.float64)], {}),
    "bfloat16": ("scale_bias_relu", lambda: [leaf(9, 8, dtype=torch.bfloat16), leaf(8, dtype=torch.bfloat16)], {}),
    "mixed": ("scale_bias_relu", lambda: [leaf(9, 8, dtype=torch.bfloat16), leaf(8)], {}),
    "other choices": ("wave", lambda: [leaf(9, 8), leaf(8)], {"sine": False, "kind": "more"}),
    "absent": ("perhaps", lambda: [leaf(9)], {}),
    "present": ("perhaps", lambda: [leaf(9), leaf(9)], {}),
    "rows": ("rms_norm", lambda: [leaf(33, 64), leaf(64)], {"eps": 1e-3}),
    "odd rows": ("rms_norm", lambda: [leaf(5, 7, 33, dtype=torch.bfloat16), leaf(33, dtype=torch.bfloat16)], {}),
    "a weight for each head": ("rms_norm", lambda: [leaf(6, 5, 4, 32), leaf(4, 32)], {}),
    "rows in groups": ("group_norm", lambda: [leaf(3, 4, 8, 4, 8), leaf(4, 8, 1, 1)], {}),
}  # fmt: skip


devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


@devices
@pytest.mark.parametrize("call", CALLS)
def test_cpp_gives_what_python_gives_and_calls_no_python(
    both: dict[str, Ops], python_calls: list[str], call: str, device: str
) -> None:
    name, make, values = CALLS[call]
    tensors = [remade(tensor, lambda t: t.to(device)) for tensor in make()]
    expected = results_and_gradients(getattr(both["python"], name), tensors, **values)
    op = getattr(both["native"], name)
    assert same(results_and_gradients(op, tensors, **values), expected)
    del python_calls[:]
    assert same(results_and_gradients(op, tensors, **values), expected)
    assert python_calls == []


def test_floats_and_ints_are_arguments(ops: Ops, python_calls: list[str]) -> None:
    x, y = torch.randn(6), torch.randn(6)
    for scale in (1.0, -3.5, 1e-30):
        assert torch.equal(ops.scale_bias_relu(x, y, scale), scale_bias_relu(x, y, scale))
        changed = x.clone()
        ops.multiply_add_(changed, y, int(scale))
        assert torch.equal(changed, x * y + int(scale))
    assert len(python_calls) <= 2


def test_choices_and_dtypes_are_distinguished(ops: Ops) -> None:
    x, y = torch.randn(6), torch.randn(6)
    for _ in range(2):
        for sine in (True, False):
            for kind in ("less", "more"):
                for dtype in (torch.float32, torch.float64):
                    arguments = (x.to(dtype), y.to(dtype), sine, kind)
                    for given, expected in zip(ops.wave(*arguments), wave(*arguments), strict=True):
                        torch.testing.assert_close(given, expected)


def test_a_tensor_without_dimensions_promotes_as_one(ops: Ops) -> None:
    x = torch.randn(4)
    for _ in range(2):
        assert ops.scale_bias_relu(x, torch.tensor(0.5, dtype=torch.float64)).dtype == torch.float32
        assert ops.scale_bias_relu(x, torch.full((1,), 0.5, dtype=torch.float64)).dtype == torch.float64


def test_the_default_dtype_counts(ops: Ops) -> None:
    x = torch.arange(4)
    before = torch.get_default_dtype()
    try:
        for _ in range(2):
            for dtype in (torch.float32, torch.float64):
                torch.set_default_dtype(dtype)
                assert ops.scale_bias_relu(x, x, 0.5).dtype == dtype
    finally:
        torch.set_default_dtype(before)


def test_only_the_gradients_asked_for_are_computed(ops: Ops, python_calls: list[str]) -> None:
    x, bias = leaf(9, 8), leaf(8)
    for _ in range(2):
        for wanted in ([x], [bias], [x, bias]):
            del python_calls[:]
            found = torch.autograd.grad(ops.scale_bias_relu(x, bias).sum(), wanted)
            expected = torch.autograd.grad(scale_bias_relu(x, bias).sum(), wanted)
            for given, right in zip(found, expected, strict=True):
                torch.testing.assert_close(given, right)
    assert python_calls == []


def test_a_tensor_that_is_not_used_may_have_any_shape(fresh: Callable[[str], str], python_calls: list[str]) -> None:
    def unused(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x * z

    with runtime.forced("native"):
        op = opsmith.pointwise(fresh("unused"))(unused)
    x, z = torch.randn(4, 3).t(), torch.randn(3, 1)
    for y in (torch.randn(7), torch.randn(2, 3, 4), torch.randn(3, 4), torch.randn(())):
        op(x, y, z)
        del python_calls[:]
        result = op(x, y, z)
        assert torch.equal(result, x * z)
        assert result.stride() == (x * z).stride()
        assert python_calls == []


def test_shapes_that_do_not_broadcast_are_refused_as_in_python(both: dict[str, Ops]) -> None:
    for op in (both["native"].scale_bias_relu, both["python"].scale_bias_relu):
        op(torch.randn(3, 4), torch.randn(4))
        with pytest.raises(RuntimeError, match="must match the size"):
            op(torch.randn(3, 4), torch.randn(5))


# --- writing into tensors that are there ------------------------------------------------------------------------------


def test_results_go_straight_into_out(ops: Ops, python_calls: list[str]) -> None:
    x, bias = torch.randn(5, 6), torch.randn(6)
    expected = scale_bias_relu(x, bias)
    for out in (torch.empty(5, 6), torch.empty(6, 5).t()):
        ops.scale_bias_relu(x, bias, out=out)
        out.zero_()
        del python_calls[:]
        assert ops.scale_bias_relu(x, bias, out=out) is out
        assert python_calls == []
        assert torch.equal(out, expected)


def test_out_may_be_an_input(ops: Ops, python_calls: list[str]) -> None:
    x, bias = torch.randn(5, 6), torch.randn(6)
    expected = scale_bias_relu(x, bias)
    ops.scale_bias_relu(x.clone(), bias, out=torch.empty(5, 6))
    del python_calls[:]
    assert torch.equal(ops.scale_bias_relu(x, bias, out=x), expected)
    assert python_calls == []


def test_an_out_that_overlaps_an_input_goes_to_python(ops: Ops, python_calls: list[str]) -> None:
    memory, bias = torch.randn(36), torch.randn(6)
    x, out = memory[:30].view(5, 6), memory[6:].view(5, 6)
    ops.scale_bias_relu(x, bias, out=torch.empty(5, 6))
    del python_calls[:]
    with contextlib.suppress(opsmith.OpsmithError):
        ops.scale_bias_relu(x, bias, out=out)
    assert python_calls != []


def test_an_out_that_does_not_fit_is_refused_as_in_python(both: dict[str, Ops]) -> None:
    x, bias = torch.randn(5, 6), torch.randn(6)
    for op in (both["native"].scale_bias_relu, both["python"].scale_bias_relu):
        op(x, bias, out=torch.empty(5, 6))
        for out in (torch.empty(6, 5), torch.empty(5, 6, dtype=torch.float64)):
            with pytest.raises(opsmith.OpsmithError, match="out="):
                op(x, bias, out=out)
        repeated = torch.empty(1, 6).expand(5, 6)
        with pytest.raises(RuntimeError, match="single memory location"):
            op(x, bias, out=repeated)


def test_in_place(both: dict[str, Ops], python_calls: list[str]) -> None:
    x, y = torch.randn(5, 6), torch.randn(6)
    for tensor in (x, x.t().contiguous().t(), torch.randn(5, 12)[:, ::2]):
        for _ in range(2):
            del python_calls[:]
            changed = tensor.clone(memory_format=torch.preserve_format)
            version = changed._version
            assert both["native"].multiply_add_(changed, y) is changed
            assert torch.equal(changed, tensor * y + 3)
            assert changed._version == version + 1
        assert python_calls == []


# --- whose kernel it is -----------------------------------------------------------------------------------------------


def test_a_written_kernel_takes_the_generated_ones_place(fresh: Callable[[str], str]) -> None:
    with runtime.forced("native"):
        op = opsmith.pointwise(fresh("written"))(cube)
    x = torch.randn(8)
    for _ in range(2):
        assert torch.equal(op(x), x * x * x)

    @op.register_kernel("cpu")
    def _(x: torch.Tensor) -> torch.Tensor:
        ran.append("forward")
        return x * x * x

    ran: list[str] = []
    for _ in range(2):
        op(x)
    assert ran == ["forward"] * 2
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(op(leaf).sum(), leaf)[0], 3 * x * x)  # that one is still generated


def test_under_inference_mode_results_are_inference_tensors(ops: Ops, python_calls: list[str]) -> None:
    x = torch.randn(8)
    ops.cube(x)
    del python_calls[:]
    with torch.inference_mode():
        assert ops.cube(x).is_inference()
    assert not ops.cube(x).is_inference()
    assert python_calls == []


def test_many_threads_meet_a_new_op_at_once(fresh: Callable[[str], str]) -> None:
    with runtime.forced("native"):
        op = opsmith.pointwise(fresh("threads"))(scale_bias_relu)
    inputs = [
        (torch.randn(9, 8), torch.randn(8)),
        (torch.randn(72), torch.randn(72)),
        (torch.randn(9, 8), torch.randn(9, 1)),
    ]
    expected = [scale_bias_relu(*pair) for pair in inputs]
    wrong: list[Any] = []

    def work(turn: int) -> None:
        for step in range(200):
            which = (turn + step) % len(inputs)
            if not torch.equal(op(*inputs[which]), expected[which]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_more_dimensions_than_cpp_takes_go_to_python(ops: Ops) -> None:
    x = torch.randn((1,) * 15 + (2, 3))
    for _ in range(2):
        assert torch.equal(ops.cube(x), x * x * x)


def test_a_first_call_that_cpp_never_takes_does_not_send_later_ones_to_python(
    fresh: Callable[[str], str], python_calls: list[str]
) -> None:
    with runtime.forced("native"):
        op = opsmith.pointwise(fresh("first_in_python"))(cube)
    x = torch.randn(6)
    op(x.reshape((1,) * 15 + (2, 3)))
    op(x)
    del python_calls[:]
    assert torch.equal(op(x), x * x * x)
    assert python_calls == []


def test_a_layout_class_is_encoded_with_all_of_its_parts() -> None:
    plain = LayoutClass("stream", ("linear", "strided1"), 0, 2, 4, False)
    others = [
        LayoutClass("column", ("linear", "strided1"), 0, 2, 4, False),
        LayoutClass("stream", ("linear", "strided0"), 0, 2, 4, False),
        LayoutClass("stream", ("linear", "strided1"), 1, 2, 4, False),
        LayoutClass("stream", ("linear", "strided1"), 0, 3, 4, False),
        LayoutClass("stream", ("linear", "strided1"), 0, 2, 8, False),
        LayoutClass("stream", ("linear", "strided1"), 0, 2, 4, True),
    ]
    assert len({layout.encoded() for layout in (plain, *others)} | {plain.encoded(index=1)}) == 8
    assert all(LayoutClass.decoded(layout.encoded()) == layout for layout in (plain, *others))


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_what_is_not_aligned_is_not_moved_in_packs(both: dict[str, Ops], python_calls: list[str]) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        memory = torch.randn(1025, device="cuda", dtype=dtype)
        for tensor in (memory[1:], memory[:-1], memory[:-2], memory[4:-1].view(-1, 3).t()):
            for op in (both["python"].cube, both["native"].cube):
                op(tensor)
            del python_calls[:]
            torch.testing.assert_close(both["native"].cube(tensor), tensor**3)
            assert python_calls == []


@pytest.mark.gpu
def test_more_elements_than_32_bits_count(ops: Ops, python_calls: list[str]) -> None:
    x = torch.full((2**31 + 24,), 3, device="cuda", dtype=torch.bfloat16)
    ops.cube(x)
    del python_calls[:]
    assert bool((ops.cube(x) == 27).all())
    assert python_calls == []


@pytest.mark.gpu
def test_a_thread_that_has_not_used_cuda_may_call(ops: Ops) -> None:
    x = torch.randn(8, device="cuda")
    ops.cube(x)
    found: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: found.append(ops.cube(x)))
    thread.start()
    thread.join()
    torch.testing.assert_close(found[0], x**3)


@pytest.mark.gpu
def test_kernels_run_on_the_current_stream(ops: Ops) -> None:
    x = torch.zeros(1 << 22, device="cuda")
    ops.cube(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(3)
        result = ops.cube(x)
    assert not stream.query()
    stream.synchronize()
    assert bool((result == 27).all())


@pytest.mark.gpu
def test_a_cuda_graph_captures_calls(ops: Ops) -> None:
    x, bias = torch.randn(64, 100, device="cuda"), torch.randn(100, device="cuda")
    ops.scale_bias_relu(ops.cube(x), bias)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.scale_bias_relu(ops.cube(x), bias)
    x.fill_(2)
    graph.replay()
    torch.testing.assert_close(result, torch.relu(8 + bias).expand(64, 100))
