"""The items about numbers find every wrong one, show it in lines that raise, and say nothing of right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import opsmith
from opsmith import Op, Sample
from opsmith.checks.items import huge
from opsmith.checks.outcome import Failed, Skipped
from opsmith.checks.subject import Subject

from . import decorated, reproductions

ITEMS = (
    "values", "gradients", "second_gradients", "forward_mode", "needed_gradients", "gradient_layouts", "input_layouts",
    "sizes", "special_values", "dtypes", "determinism", "kernels", "generated",
)  # fmt: skip
FAULTY = [*decorated(Path(__file__).parent / "faulty" / "numeric.py", "faulty"), "takes_dense_memory_"]


@pytest.fixture(scope="module")
def numeric() -> Any:
    from .faulty import numeric

    return numeric


def shows(reproduction: str) -> bool:
    """Whether the lines, run by themselves, raise what a fault raises and not what a slip of the pen does."""
    process = reproductions.run(reproduction)
    print(reproduction, process.stderr, sep="\n")
    last = process.stderr.strip().rpartition("\n")[2]
    return process.returncode == 1 and not last.startswith(
        ("NameError", "AttributeError", "SyntaxError", "ImportError")
    )


@pytest.fixture(autouse=True)
def _default_dtype() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)  # which some reproductions change


@pytest.mark.parametrize(
    "name",
    [
        "softsign", "product", "both", "clamped", "row_sum", "attention", "top_two", "gate", "spectrum",
        "complex_product", "norm_in_own", "norm_in_single", "enlarged",
    ],
)  # fmt: skip
def test_a_sound_op_passes_every_item(numeric: Any, name: str) -> None:
    report = opsmith.check(opsmith.get(f"faulty::{name}"), device="cpu", items=[*ITEMS, "vmap", "fake"])
    assert [f"{item.name}: {item.message}" for item in report.failures] == []


def test_a_gradient_that_is_derived_leaves_no_memory_taken_beside_its_copies(numeric: Any) -> None:
    (found,) = opsmith.check(opsmith.get("faulty::attention"), device="cpu", items=["peak_memory"]).items
    assert found.status == "passed", found.message


@pytest.mark.parametrize(("name", "words"), [
    ("attention", "its reference has no forward mode"), ("complex_product", "its gradients are of complex numbers"),
])  # fmt: skip
def test_skipped_tangents_have_a_reason(numeric: Any, name: str, words: str) -> None:
    (found,) = opsmith.check(opsmith.get(f"faulty::{name}"), device="cpu", items=["forward_mode"]).items
    assert found.status == "skipped" and words in found.message


def test_the_list_of_faults_is_whole(numeric: Any) -> None:
    assert {f"faulty::{name}" for name in FAULTY} == set(numeric.FAULTS)


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found_and_its_reproduction_raises(numeric: Any, name: str) -> None:
    item, words = numeric.FAULTS[f"faulty::{name}"]
    (found,) = opsmith.check(opsmith.get(f"faulty::{name}"), device="cpu", items=[item]).items
    assert found.status == "failed" and words in found.message, found.message
    with pytest.raises((AssertionError, RuntimeError)):
        exec(found.reproduction, {})


@pytest.mark.parametrize("name", ["wrong_remainder", "takes_integers", "counts_on_x", "picks_another_subgradient"])
def test_a_reproduction_raises_in_a_separate_process(numeric: Any, name: str) -> None:
    item, _ = numeric.FAULTS[f"faulty::{name}"]
    assert shows(opsmith.check(opsmith.get(f"faulty::{name}"), device="cpu", items=[item]).failures[0].reproduction)


def test_a_reproduction_passes_where_the_fault_is_not(numeric: Any) -> None:
    (found,) = opsmith.check(opsmith.get("faulty::slightly_off"), device="cpu", items=["values"]).items
    sound = found.reproduction.replace("faulty::slightly_off", "faulty::softsign")
    assert reproductions.run(sound).returncode == 0


def test_a_failure_of_a_generated_call_is_shrunk(numeric: Any) -> None:
    (found,) = opsmith.check(opsmith.get("faulty::wrong_remainder"), device="cpu", items=["generated"]).items
    assert "torch.empty((1, 1)" in found.reproduction and "layouts" not in found.reproduction
    assert shows(found.reproduction)


def test_tangents_that_are_silently_zero_are_found() -> None:
    from .faulty import silent_tangents

    op = opsmith.checks.adopt(
        torch.ops.faulty_elsewhere.cubed, silent_tangents.reference, samples=silent_tangents.samples
    )
    opsmith.checks.assert_matches(op, torch.randn(5))
    (found,) = opsmith.check(op, device="cpu", items=["forward_mode"]).items
    assert found.status == "failed" and "zero everywhere" in found.message
    assert shows(found.reproduction)


def test_forward_mode_that_is_refused_is_no_failure(fresh: Callable[[str], str]) -> None:
    name = fresh("without_tangents")

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
            return 2 * grad

    namespace, _, base = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{base}(Tensor x) -> Tensor")
    library.impl(base, Doubled.apply, "CompositeImplicitAutograd")
    operator = getattr(getattr(torch.ops, namespace), base)
    adopted = opsmith.checks.adopt(operator, lambda x: 2 * x)
    (found,) = opsmith.check(adopted, device="cpu", items=["forward_mode"]).items
    assert found.status == "skipped" and "refused, not wrong" in found.message


def test_an_op_that_draws_random_numbers_is_left_out_with_the_reason(fresh: Callable[[str], str]) -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    op = opsmith.op(fresh("noisy"))(noisy)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(4, 4, dtype=dtype),))]))
    report = opsmith.check(
        op, device="cpu", items=["values", "sizes", "generated", "dtypes", "special_values", "kernels"]
    )
    assert {item.status for item in report.items} == {"skipped"}
    assert all("random numbers" in item.message for item in report.items)
    assert opsmith.check(op, device="cpu", items=["determinism"]).ok


def test_what_a_kernel_refuses_is_reported(fresh: Callable[[str], str]) -> None:
    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    def kernel(x: Tensor) -> Tensor:
        if not x.is_floating_point():
            raise TypeError("floating tensors only")
        return 2 * x

    op = opsmith.op(fresh("doubled"))(doubled)
    op.register_kernel("cpu", kernel)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(4, 4, dtype=dtype),))]))
    (found,) = opsmith.check(op, device="cpu", items=["dtypes"]).items
    assert found.status == "passed" and "refused, though the reference takes them: int8" in found.message


def test_integers_may_give_one_result_in_float32_and_another_in_their_own_dtype(fresh: Callable[[str], str]) -> None:
    def sigmoid_beside(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sigmoid(x), x + 1

    op = opsmith.op(fresh("sigmoid_beside"))(sigmoid_beside)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(4, 4, dtype=dtype),))]))
    (found,) = opsmith.check(op, device="cpu", items=["dtypes"]).items
    assert found.status == "passed", found.message


def test_a_reference_whose_gradient_is_not_its_derivative_is_found(fresh: Callable[[str], str]) -> None:
    def detached(x: Tensor) -> Tensor:
        return x * torch.sin(x.detach())

    op = opsmith.op(fresh("detached"))(detached)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(3, 4, dtype=dtype),))]))
    (found,) = opsmith.check(op, device="cpu", items=["gradients"]).items
    assert found.status == "failed" and "the reference's own gradient is not its derivative" in found.message


def test_beside_a_kink_torchs_own_check_is_not_believed(fresh: Callable[[str], str]) -> None:
    def rectified(x: Tensor) -> Tensor:
        return torch.relu(x - 1.0)

    op = opsmith.op(fresh("rectified"))(rectified)
    op.register_samples(lambda device, dtype: iter([Sample((torch.tensor([1.0, 2.0, 0.5], dtype=dtype),))]))
    assert not torch.autograd.gradcheck(
        rectified, torch.ones(3, dtype=torch.float64, requires_grad=True), raise_exception=False
    )
    assert opsmith.check(op, device="cpu", items=["gradients"]).ok


# --- More than 2^31 elements, of which a test makes fewer ---------------------------------------------------------

FEW = 3 << 20


def halved(fresh: Callable[[str], str], kernel: Callable[[Tensor], Any]) -> Subject:
    def half(x: Tensor) -> Tensor:
        return x * 0.5

    op = opsmith.op(fresh("half"))(half)
    op.register_kernel("cpu", kernel)
    op.register_backward("cpu", lambda grads, *, needs: grads[0] * 0.5)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(6, 4, dtype=dtype),))]))
    return Subject(op, level="full")


def planned(subject: Subject) -> huge.Plan:
    plan = huge.plan(subject, torch.bfloat16)
    assert plan is not None
    return plan


def test_every_window_of_a_huge_call_is_right(fresh: Callable[[str], str]) -> None:
    subject = halved(fresh, lambda x: x * 0.5)
    assert "parts of 2 elements" in huge.check_parts(subject, planned(subject), FEW)


def test_many_windows_of_a_huge_call_are_drawn() -> None:
    starts = huge._starts(1 << 34, seed=3)
    assert len(starts) > huge.WINDOWS and starts != huge._starts(1 << 34, seed=4)


def test_what_is_counted_in_too_few_bits_is_found(fresh: Callable[[str], str]) -> None:
    def wraps(x: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        count = x.numel() % (1 << 20) or 1 << 20
        result.view(-1)[:count] = x.reshape(-1)[:count] * 0.5
        return result

    subject = halved(fresh, wraps)
    with pytest.raises(Failed) as failed:
        huge.check_parts(subject, planned(subject), FEW)
    assert "from" in failed.value.message and "result" in failed.value.message
    scope = {"torch": torch, "opsmith": opsmith, "op": subject.op, "reference": subject.op.inline}
    with pytest.raises(AssertionError):
        exec("\n".join([*failed.value.case.lines, *failed.value.lines]), scope)  # type: ignore[union-attr]


def test_a_huge_gradient_is_checked_too(fresh: Callable[[str], str]) -> None:
    subject = halved(fresh, lambda x: x * 0.5)
    assert isinstance(subject.op, Op)

    def wraps(grads: Any, *, needs: Any) -> Tensor:
        grad = grads[0] * 0.5
        grad.view(-1)[1 << 20 :] = 0
        return grad

    subject.op.register_backward("cpu", wraps)
    with pytest.raises(Failed, match="gradient of x") as failed:
        huge.check_parts(subject, planned(subject), FEW)
    scope = {"torch": torch, "opsmith": opsmith, "op": subject.op, "reference": subject.op.inline}
    with pytest.raises(AssertionError):
        exec("\n".join([*failed.value.case.lines, *failed.value.lines]), scope)  # type: ignore[union-attr]


def test_where_memory_is_short_it_says_how_much(fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    subject = halved(fresh, lambda x: x * 0.5)
    monkeypatch.setattr(huge, "free_bytes", lambda device: 5 << 30)
    with pytest.raises(Skipped, match=r"take 8\.8 GiB, 5\.0 are free"):
        huge.check(subject)


def test_what_a_kernel_needs_besides_is_known_from_a_small_call(
    fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = halved(fresh, lambda x: (x.double() * 0.5).to(x.dtype))
    monkeypatch.setattr(huge, "free_bytes", lambda device: 20 << 30)
    with pytest.raises(Skipped, match=r"take (\d+\.\d) GiB, 20\.0 are free") as skipped:
        huge.check(subject)
    assert float(str(skipped.value).split("take ")[1].split()[0]) > 35  # two copies in float64, beside 8 GiB


def test_memory_that_is_not_torchs_is_known_too(fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: Tensor) -> Tensor:
        numpy.ones(x.numel(), numpy.complex128)  # as a std::vector in a kernel in C++
        return x * 0.5

    subject = halved(fresh, kernel)
    monkeypatch.setattr(huge, "free_bytes", lambda device: 20 << 30)
    with pytest.raises(Skipped, match=r"take (\d+\.\d) GiB, 20\.0 are free") as skipped:
        huge.check(subject)
    assert float(str(skipped.value).split("take ")[1].split()[0]) > 35  # 16 bytes an element, beside 8 GiB


def test_a_process_grows_by_what_is_asked_for() -> None:
    size = 64 << 20
    grown = huge.growth(lambda: numpy.ones(size, numpy.uint8))
    assert abs(grown - size) < 16 << 20  # the system counts pages by and by
    assert huge.growth(lambda: None) < 16 << 20


def test_gradients_may_be_too_much_where_results_are_not(
    fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = halved(fresh, lambda x: x * 0.5)
    monkeypatch.setattr(huge, "free_bytes", lambda device: 11 * FEW // 2)  # x and the result take 4 * FEW
    assert "gradients would take" in huge.check_parts(subject, planned(subject), FEW)


def test_a_call_whose_parts_are_not_independent_is_skipped(fresh: Callable[[str], str]) -> None:
    def centred(x: Tensor) -> Tensor:
        return x - x.mean()

    op = opsmith.op(fresh("centred"))(centred)
    op.register_kernel("cpu", centred)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(6, 4, dtype=dtype),))]))
    with pytest.raises(Skipped, match="does a call split"):
        huge.check(Subject(op, level="full"))


def test_free_memory_is_in_bytes() -> None:
    assert 1 << 26 < huge.free_bytes("cpu") < 1 << 50


# --- On other places ----------------------------------------------------------------------------------------------


def test_an_order_that_changes_the_sum_is_found_in_the_emulator() -> None:
    from .faulty import adds_in_any_order

    (found,) = opsmith.check(adds_in_any_order.total, emulate=True, items=["determinism"]).items
    # On two cores the order is the seed's. On many it changes from call to call, and is found before.
    assert found.status == "failed"
    assert "in another order of blocks" in found.message or "from one call to the next" in found.message
    assert shows(found.reproduction)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mish", "polynomial", "convrnn"])
def test_the_items_hold_on_a_gpu(name: str) -> None:
    report = opsmith.check(getattr(opsmith.ops, name), device="cuda", items=ITEMS)
    assert [f"{item.name}: {item.message}" for item in report.failures] == []


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mish", "elementwise_mult", "add_two_"])
def test_more_than_2_to_the_31_elements_hold_on_a_gpu(name: str) -> None:
    (found,) = opsmith.check(getattr(opsmith.ops, name), device="cuda", level="full", items=["huge"]).items
    assert found.status == "passed", found.message


# --- No false alarm -----------------------------------------------------------------------------------------------


def passes(op: Any, *items: str) -> None:
    for seed in range(3):
        report = opsmith.check(op, device="cpu", items=items or ITEMS, seed=seed)
        assert [f"{item.name}: {item.message}" for item in report.failures] == []


def _lifted(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype.itemsize == 2 else tensor


def test_a_backward_from_the_stored_result_is_as_good_as_torchs(fresh: Callable[[str], str]) -> None:
    """Near the ends of a tanh, 1 - y * y is all rounding of the stored y."""

    def squashed(x: Tensor, shift: Tensor) -> Tensor:
        return torch.tanh(3 * x + shift)

    op = opsmith.op(fresh("squashed"))(squashed)

    def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*tensors: Tensor) -> Any:
            return tuple(each.to(tensors[0].dtype) for each in function(*map(_lifted, tensors)))

        return called

    op.register_kernel("cpu", lambda x, shift: in_float32(lambda x, shift: (squashed(x, shift),))(x, shift)[0])

    @op.register_backward("cpu")
    def _(grads: Any, output: Tensor, *, needs: Any) -> Any:
        return in_float32(lambda g, y: (3 * g * (1 - y * y), g * (1 - y * y)))(grads[0], output)

    def samples(device: Any, dtype: torch.dtype) -> Any:
        for shape in ((8, 32), (64,)):
            yield Sample(tuple(torch.randn(2, *shape, device=device, dtype=dtype)), name=f"shape {shape}")

    op.register_samples(samples)
    passes(op, "values", "gradients", "gradient_layouts", "input_layouts", "needed_gradients")


def test_a_number_beside_a_tie_may_be_rounded_either_way(fresh: Callable[[str], str]) -> None:
    def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
        step = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        return torch.round(x / step).clamp(-127, 127).to(torch.int8), step

    def kernel(x: Tensor) -> tuple[Tensor, Tensor]:
        step = _lifted(x).abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        return torch.round(_lifted(x) * (1 / step)).clamp(-127, 127).to(torch.int8), step.to(x.dtype)

    op = opsmith.op(fresh("quantised"))(quantised)
    op.register_kernel("cpu", kernel)
    shapes = ((4, 32), (2, 3, 65), (512, 1024))
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(shape, dtype=dtype),)) for shape in shapes]))
    passes(op, "values", "sizes")


@pytest.mark.parametrize("name", ["sqrt", "log"])
def test_a_function_of_positive_numbers_is_not_blamed_for_others(name: str) -> None:
    adopted = opsmith.checks.adopt(getattr(torch.ops.aten, name).default, getattr(torch, name))
    passes(adopted, "gradients", "second_gradients")


def test_what_a_clamp_makes_of_infinity_is_as_sure_as_its_neighbours(fresh: Callable[[str], str]) -> None:
    def clipped(x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x.clamp(-7.0, 7.0), approximate="tanh")

    op = opsmith.pointwise(fresh("clipped"))(clipped)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(40, dtype=dtype),))]))
    passes(op, "special_values")


def test_without_samples_nothing_passes(fresh: Callable[[str], str]) -> None:
    def doubled(x: Tensor) -> Tensor:
        return 2 * x

    op = opsmith.op(fresh("doubled"))(doubled)
    op.register_samples(lambda device, dtype: iter([]))
    report = opsmith.check(op, device="cpu", items=[*ITEMS, "outputs_written", "inputs_unchanged", "aliasing"])
    assert not report.ok and [item.name for item in report.items if item.status == "passed"] == []
    (failed,) = [item for item in report.failures if item.name == "values"]
    assert "there is no sample to check" in failed.message
