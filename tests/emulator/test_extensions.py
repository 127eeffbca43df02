"""opsmith.extension inside of `emulate`: host code runs on CPU tensors, its launches are emulated, with every check.

The sources are in extensions/, and compile for a GPU as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.checks import compare
from opsmith.errors import EmulationError, LaunchConfigurationError

HERE = Path(__file__).parent / "extensions"
SOURCE = HERE / "kernels.cu"

Fresh = Callable[[str], str]

# Built for the emulator when one of its functions is first called; for a GPU, and so by nvcc, never.
ext = opsmith.extension("emulated_kernels", [SOURCE, HERE / "kernels.cpp"], lazy=True)


@pytest.fixture
def declared(fresh: Fresh) -> Callable[[Callable[..., Any]], opsmith.Op]:
    """An op of a reference, whose "cuda" kernel is the extension's function of that name."""

    def declare(reference: Callable[..., Any]) -> opsmith.Op:
        op = opsmith.op(fresh(reference.__name__))(reference)
        op.register_kernel("cuda", getattr(ext, f"{reference.__name__}_cuda"))
        return op

    return declare


@pytest.fixture
def emulated() -> Iterator[None]:
    with opsmith.emulate():
        yield


def marked(name: str = "kernels.cu", comment: str = "here") -> int:
    """The line with a comment that begins so."""
    lines = (HERE / name).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, start=1) if f"// {comment}" in line)
    return number


def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


def scaled_counted(x: Tensor, factor: float, count: int) -> Tensor:
    return x * factor


def softmax(x: Tensor, shift: int) -> Tensor:
    return torch.softmax(x, -1)


def reversed(x: Tensor, threads: int, shared_bytes: int) -> Tensor:
    return x.flip(-1)


def rows_by_struct(x: Tensor, columns: int) -> Tensor:
    return x + 1


def scaled_head(x: Tensor, elements: int, count: int) -> Tensor:
    return x * 2


# --- Numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_kernel_gives_its_numbers_and_is_what_runs(declared: Any, dtype: torch.dtype, checks: bool) -> None:
    op = declared(scaled)
    x = torch.randn(33, 5).to(dtype)
    with opsmith.emulate(checks=checks):
        assert op._families.in_use() is op._families.emulated["default"]
        for each in (x, x[::2, 1:], x[:0], torch.tensor(1.5, dtype=dtype)):  # strided ones arrive contiguous
            assert torch.equal(op(each, 3.0), (each.float() * 3.0).to(dtype))
        with pytest.raises(RuntimeError, match="is of int32; this kernel takes float32, float64, float16, bfloat16"):
            op(torch.ones(2, dtype=torch.int32), 3.0)


def test_as_in_the_guide(fresh: Fresh) -> None:
    op = opsmith.op(fresh("scaled"))(scaled)
    folder, x = HERE, torch.randn(1000)
    # [extension]
    ext = opsmith.extension("scale_ext", [folder / "kernels.cu", folder / "kernels.cpp"], lazy=True)
    op.register_kernel("cuda", ext.scaled_cuda)
    with opsmith.emulate():
        y = op(x, 3.0)
    # [extension]
    assert torch.equal(y, 3 * x)
    assert not ext.built, "for a GPU, by nvcc"


def test_on_both_tiers(tier: str, declared: Any, emulated: None) -> None:
    op = declared(scaled)
    x = torch.randn(100)
    for _ in range(3):  # the first call is checked, those after it may go another way
        assert torch.equal(op(x, 2.0), x * 2)
    with pytest.raises(opsmith.KernelFault):
        declared(scaled_counted)(x, 2.0, 101)


def test_half_types_are_cudas_own_in_a_kernel(declared: Any, emulated: None) -> None:
    def halves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x.float() ** 2 + 1).half(), y * y

    x, y = torch.randn(40).half(), torch.randn(40).bfloat16()
    z, w = declared(halves)(x, y)
    assert torch.equal(z, (x.double() ** 2 + 1).half()) and torch.equal(w, y * y)


def test_several_launches_in_one_function(declared: Any, emulated: None) -> None:
    x = torch.randn(7, 50)
    torch.testing.assert_close(declared(softmax)(x, 0), torch.softmax(x, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_dynamic_shared_memory_of_a_kernel_in_a_header(declared: Any, dtype: torch.dtype) -> None:
    op = declared(reversed)
    x = torch.randn(5, 48).to(dtype)
    for checks in (True, False):
        with opsmith.emulate(checks=checks):
            assert torch.equal(op(x, 48, 48 * x.element_size()), x.flip(-1))
            assert torch.equal(op(x, 48, 227 * 1024), x.flip(-1))


def test_a_backward_kernel_and_a_choice_by_using(fresh: Fresh) -> None:
    op = opsmith.op(fresh("scaled"))(scaled)
    op.register_kernel("cuda", ext.scaled_cuda, name="extension")
    op.register_backward("cuda", ext.scaled_backward_cuda, name="extension", saves=("factor",))
    with opsmith.emulate(), op.using("extension"):
        sample = opsmith.Sample(args=(torch.randn(20, 3), 1.5))
        compared = list(compare(op, sample))
        assert op._families.emulated["extension"].forward.kernels["cpu"].checked
        assert op._families.emulated["extension"].backward.kernels["cpu"].checked
    assert [str(each) for each in compared if not each] == []
    assert any("gradient" in each.what for each in compared)


def test_a_backward_that_runs_after_the_block(fresh: Fresh) -> None:
    op = opsmith.op(fresh("scaled"))(scaled)
    op.register_kernel("cuda", ext.scaled_cuda)
    op.register_backward("cuda", ext.scaled_backward_cuda, saves=("factor",))
    x = torch.randn(20, requires_grad=True)
    with opsmith.emulate():
        y = op(x, 2.5)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, torch.full_like(x, 2.5))


def test_outside_of_emulate_the_op_runs_as_ever(declared: Any) -> None:
    op = declared(scaled_counted)
    with opsmith.emulate():
        pass
    assert torch.equal(op(torch.ones(3), 2.0, 10**6), torch.full((3,), 2.0)), "by the reference"


def test_several_tensors_by_a_struct_of_pointers(declared: Any, emulated: None) -> None:
    def doubled(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor * 2 for tensor in tensors]

    op = declared(doubled)
    tensors = [torch.randn(size) for size in (10, 1, 77)]
    assert all(torch.equal(one, 2 * other) for one, other in zip(op(tensors), tensors, strict=True))


def test_a_tensor_is_changed_in_place(fresh: Fresh, emulated: None) -> None:
    def doubled_in_place(x: Tensor) -> None:
        x.mul_(2)

    op = opsmith.op(fresh("doubled_in_place"), mutates_args=("x",))(doubled_in_place)
    op.register_kernel("cuda", ext.doubled_in_place_cuda)
    x = torch.randn(6, 10)
    expected = 2 * x
    assert op(x) is x and torch.equal(x, expected)
    op(x[:, ::2])
    expected[:, ::2] *= 2
    assert torch.equal(x, expected)


def test_constants_and_variables_of_the_device_stay_from_launch_to_launch(declared: Any, emulated: None) -> None:
    def polynomial(x: Tensor, a: float, b: float, c: float) -> Tensor:
        return a + b * x + c * x * x

    def polynomial_calls(x: Tensor) -> Tensor:
        return x.new_zeros(1)

    op, calls = declared(polynomial), declared(polynomial_calls)
    x = torch.randn(16)
    before = calls(x).item()
    for a, b, c in ((1.0, 2.0, 3.0), (-1.0, 0.5, 0.0)):
        torch.testing.assert_close(op(x, a, b, c), a + b * x + c * x * x)
    assert calls(x).item() == before + 2


def test_a_function_that_tests_the_device_takes_the_branch_for_gpus(declared: Any, emulated: None) -> None:
    def negative(x: Tensor) -> Tensor:
        return -x

    x = torch.randn(10)
    assert torch.equal(declared(negative)(x), -x)


def test_host_code_may_do_as_it_likes(declared: Any, emulated: None) -> None:
    def busy_host(x: Tensor) -> Tensor:
        return x.clone()

    op = declared(busy_host)
    x = torch.randn(200)
    for _ in range(3):
        assert torch.equal(op(x), x)


# --- Pointers ---------------------------------------------------------------------------------------------------------


def test_pointers_in_a_struct_and_into_the_middle_of_a_tensor(declared: Any, emulated: None) -> None:
    op = declared(rows_by_struct)
    x = torch.randn(5, 40)
    assert torch.equal(op(x, 40), x + 1)
    with pytest.raises(opsmith.KernelFault, match=r"at byte 800 of x \(float32 \[5, 40\], 800 bytes\)") as caught:
        op(x, 41)
    assert caught.value.line == marked(comment="here, with too many columns")
    assert caught.value.thread == (40, 0, 0)


def test_the_tensors_own_pointers_and_one_past_the_end(declared: Any, emulated: None) -> None:
    def copied(x: Tensor) -> Tensor:
        return x.clone()

    x = torch.randn(30)
    assert torch.equal(declared(copied)(x), x)


def test_a_view_made_by_host_code_ends_where_it_ends(declared: Any, emulated: None) -> None:
    op = declared(scaled_head)
    x = torch.randn(100)
    assert torch.equal(op(x, 60, 60)[:60], 2 * x[:60])
    with pytest.raises(opsmith.KernelFault, match=r"at byte 240 of x \(float32 \[60\], 240 bytes\)"):
        op(x, 60, 61)


def test_memory_outside_tensors_is_refused_unless_checks_are_off(declared: Any) -> None:
    def from_elsewhere(x: Tensor) -> Tensor:
        return torch.full_like(x, 3.0)

    op = declared(from_elsewhere)
    x = torch.randn(10)
    with opsmith.emulate(), pytest.raises(EmulationError) as caught:
        op(x)
    assert re.match(
        r"scale<float>, emulated on the CPU: x \(const float\*\) leads to memory outside every known tensor",
        str(caught.value),
    )
    assert "opsmith::data" in str(caught.value) and "checks=False" in str(caught.value)
    with opsmith.emulate(checks=False):
        assert torch.equal(op(x), torch.full_like(x, 3.0))


def test_pointers_in_memory_are_refused_unless_nothing_is_checked(declared: Any) -> None:
    def first_of_each(x: Tensor, addresses: Tensor) -> Tensor:
        return x[:, 0].clone()

    op = declared(first_of_each)
    x = torch.randn(6, 4)
    addresses = torch.tensor([row.data_ptr() for row in x])
    with (
        opsmith.emulate(),
        pytest.raises(EmulationError, match=r"^gather, .*: rows \(.*\) leads to further poin"),
    ):
        op(x, addresses)
    with opsmith.emulate(checks=False):
        assert torch.equal(op(x, addresses), x[:, 0])


def test_a_null_pointer_is_one(declared: Any, emulated: None) -> None:
    def or_one(maybe: Tensor | None, like: Tensor) -> Tensor:
        return like.new_ones(1) if maybe is None else maybe.clone()

    op = declared(or_one)
    x = torch.randn(3)
    assert op(None, x).tolist() == [1.0]
    assert torch.equal(op(x[:1], x), x[:1])


# --- Faults -----------------------------------------------------------------------------------------------------------


def test_a_fault_names_the_authors_line_and_later_calls_are_fine(declared: Any, emulated: None) -> None:
    op = declared(scaled_counted)
    x = torch.randn(100)
    for _ in range(3):
        with pytest.raises(opsmith.KernelFault) as caught:
            op(x, 2.0, 101)
        fault = caught.value
        assert (fault.kernel, fault.kind) == ("scale<float>", "out of bounds")
        assert (fault.file, fault.line) == (str(SOURCE), marked(comment="here, with too high a count"))
        assert (fault.block, fault.thread) == ((1, 0, 0), (36, 0, 0))
        assert "it reads 4 bytes at byte 400 of x (float32 [100], 400 bytes)" in str(fault)
        assert torch.equal(op(x, 2.0, 100), x * 2)


MISTAKES = {
    "failed assertion": "assert(x[threadIdx.x] > 2.0f)",
    "torch's assertion": "assert(x[threadIdx.x] > 2.0f)",
    "data race": "y (float32 [64], 256 bytes)",
    "uninitialised": "it reads 4 bytes of shared memory",
    "partial barrier": "every thread of the block must reach the same __syncthreads()",
    "misaligned": "not a multiple of 16",
    "signed overflow": "the multiplication overflows its signed type",
    "inactive lane": "with mask 0x000000ff",
    "division by zero": "an integer is divided by zero",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_check_is_made(declared: Any, mistake: str, emulated: None) -> None:
    def mistake_(x: Tensor, kind: int) -> Tensor:
        return x.clone()

    mistake_.__name__ = "mistake"
    with pytest.raises(opsmith.KernelFault) as caught:
        declared(mistake_)(torch.randn(64), list(MISTAKES).index(mistake))
    assert MISTAKES[mistake] in str(caught.value)
    assert caught.value.kind.startswith(mistake.replace("torch's", "failed"))
    assert caught.value.line == marked(comment=f"here: {mistake}")


def test_a_fault_in_one_of_several_launches(declared: Any, emulated: None) -> None:
    op = declared(softmax)
    x = torch.randn(4, 20)
    with pytest.raises(opsmith.KernelFault, match=r"at byte 16 of sum \(float32 \[4\], 16 bytes\)") as caught:
        op(x, 1)
    assert caught.value.kernel == "quotients"
    assert caught.value.line == marked(comment="here, with a shift")
    torch.testing.assert_close(op(x, 0), torch.softmax(x, -1))


def test_a_fault_in_a_header(declared: Any, emulated: None) -> None:
    with pytest.raises(opsmith.KernelFault, match="dynamic shared memory, of which the launch has 100") as caught:
        declared(reversed)(torch.randn(2, 48), 48, 100)
    assert caught.value.file == str(HERE / "reverse.cuh")


def test_a_fault_in_backward(fresh: Fresh, emulated: None) -> None:
    op = opsmith.op(fresh("scaled"))(scaled)
    op.register_kernel("cuda", ext.scaled_cuda)
    op.register_backward("cuda", ext.faulty_backward_cuda, saves=("factor",))
    x = torch.randn(100, requires_grad=True)
    y = op(x, 2.0)
    with pytest.raises(opsmith.KernelFault) as caught:
        torch.autograd.grad(y.sum(), x)
    assert caught.value.kernel == "scale<float>"


def test_a_fault_that_host_code_swallows_is_raised_nevertheless(declared: Any, emulated: None) -> None:
    def swallowed(x: Tensor) -> Tensor:
        return x * 2

    with pytest.raises(opsmith.KernelFault):
        declared(swallowed)(torch.randn(10))


def test_host_codes_own_errors_stay_its_own(declared: Any, emulated: None) -> None:
    def refuses(x: Tensor) -> Tensor:
        return x.clone()

    with pytest.raises(RuntimeError, match="refuses_cuda: x has 3 elements, and that is the kernel's own business"):
        declared(refuses)(torch.ones(3))


def test_blocks_of_a_cluster_write_into_each_others_shared_memory(declared: Any, emulated: None) -> None:
    def swapped(x: Tensor) -> Tensor:
        return x.view(-1, 2, 64).flip(1).reshape(x.shape)

    x = torch.randn(6 * 64)
    assert torch.equal(declared(swapped)(x), swapped(x))
    with pytest.raises(LaunchConfigurationError, match="the grid is 3, which is not a whole number of clusters of 2"):
        declared(swapped)(torch.randn(3 * 64))


def test_clusters_that_an_extension_cannot_have_are_refused(declared: Any, emulated: None) -> None:
    def in_clusters(x: Tensor, of: int) -> Tensor:
        return x + of

    op = declared(in_clusters)
    with pytest.raises(
        LaunchConfigurationError, match=r"the grid is 4, which is not a whole number of clusters of \(2, 2\)"
    ):
        op(torch.zeros(4), 4)
    with pytest.raises(LaunchConfigurationError, match="16 blocks, and more than 8 need an attribute of the kernel"):
        op(torch.zeros(16), 16)
    with pytest.raises(EmulationError, match=r"__cluster_dims__\(kBlocks\), .* write them as numbers"):
        op(torch.zeros(4), 0)


def test_a_launch_from_another_thread_is_refused(declared: Any, emulated: None) -> None:
    def launched_by_a_thread(x: Tensor) -> Tensor:
        return x * 2

    with pytest.raises(RuntimeError, match="the emulator runs launches of the thread that called host code"):
        declared(launched_by_a_thread)(torch.ones(3))


@pytest.mark.parametrize("checks", [True, False])
def test_a_geometry_that_no_gpu_takes(declared: Any, checks: bool) -> None:
    op = declared(reversed)
    x = torch.randn(2, 48)
    with opsmith.emulate(checks=checks):
        with pytest.raises(
            RuntimeError,
            match=r"^reversed_cuda: reverse<float> was not launched with grid \(2, 1, 1\), block \(2048, 1, 1\) and "
            r"192 bytes of dynamic shared memory on the emulated GPU: invalid config.* at most 1024 threads per block",
        ):
            op(x, 2048, 192)
        with pytest.raises(RuntimeError, match=r"and 232449 bytes of dynamic shared memory .* and 232448 bytes of dyn"):
            op(x, 48, 232449)
        with pytest.raises(RuntimeError, match="a launch of 0 blocks or threads; return before it"):
            op(x[:0], 48, 192)
        assert torch.equal(op(x, 48, 192), x.flip(-1))


def test_an_argument_that_does_not_fit_is_refused_as_on_a_gpu(declared: Any, emulated: None) -> None:
    with pytest.raises(
        RuntimeError, match="argument 3 of the kernel is 4294967296, and its parameter takes -2147483648"
    ):
        declared(softmax)(torch.randn(4, 20), 1 << 32)


# --- The same sources on a GPU ----------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_a_gpu_gives_the_emulators_numbers(declared: Any, dtype: torch.dtype) -> None:
    op = declared(scaled)
    x = torch.randn(33, 5).to(dtype)
    with opsmith.emulate():
        emulated = op(x, 3.0)
    assert torch.equal(op(x.cuda(), 3.0).cpu(), emulated)


@pytest.mark.gpu
def test_a_gpu_gives_the_emulators_numbers_for_every_right_kernel(declared: Any) -> None:
    def halves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x.float() ** 2 + 1).half(), y * y

    def copied(x: Tensor) -> Tensor:
        return x.clone()

    def negative(x: Tensor) -> Tensor:
        return -x

    def polynomial(x: Tensor, a: float, b: float, c: float) -> Tensor:
        return a + b * x + c * x * x

    def doubled(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor * 2 for tensor in tensors]

    x, row = torch.randn(7, 48), torch.randn(40)
    calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (halves, (row.half(), row.bfloat16())),
        (softmax, (x, 0)),
        (reversed, (x, 48, 48 * 4)),
        (rows_by_struct, (x, 48)),
        (copied, (row,)),
        (negative, (row,)),
        (polynomial, (row, 1.0, 2.0, 3.0)),
        (doubled, ([row, x],)),
        (scaled_counted, (row, 2.0, 40)),
    ]
    for reference, args in calls:
        op = declared(reference)
        with opsmith.emulate():
            emulated = op(*args)
        there = op(*torch.utils._pytree.tree_map_only(Tensor, Tensor.cuda, args))
        torch.testing.assert_close(torch.utils._pytree.tree_map_only(Tensor, Tensor.cpu, there), emulated)
