"""The items about what a caller counts on find every breach, show it in lines that raise, and say nothing else."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import declare

import opsmith
from opsmith import Op, Sample
from opsmith.checks import adopt, memory
from opsmith.checks.items.fork import in_fork
from opsmith.checks.items.threads import assert_threads_agree
from opsmith.checks.outcome import Skipped
from opsmith.checks.reproduction import in_new_process
from opsmith.checks.subject import Subject

from . import decorated, reproductions

Fresh = Callable[[str], str]

QUICK = [
    "outputs_written", "inputs_unchanged", "aliasing", "fake", "opcheck", "vmap", "autocast", "compile", "export",
    "pickling", "functional_transforms", "threads", "peak_memory",
]  # fmt: skip
FAULTY = [*decorated(Path(__file__).parent / "faulty" / "contract.py", "fault", "adopted"), "changes_its_input"]
ON_A_GPU = (
    "tail_not_written", "gradient_not_written", "input_for_scratch", "given_gradient_for_scratch", "nothing_to_do",
    "one_gradient_for_two", "many_intermediates", "keeps_a_lot", "leaks", "fake_of_another_dtype",
    "sizes_become_numbers", "a_graph_for_each_size", "batch_is_first", "rounded_and_cast_back", "two_policies",
    "second_derivative_detached", "one_buffer_for_all",
)  # fmt: skip


@pytest.fixture(scope="module")
def contract() -> Any:
    from .faulty import contract

    return contract


def failures_of(report: opsmith.checks.Report) -> list[str]:
    return [f"{item.name}: {item.message}" for item in report.failures]


def test_an_op_is_not_blamed_for_symbols_that_its_reference_does_not_take(fresh: Fresh) -> None:
    def counted(x: Tensor) -> Tensor:
        return x + float(str(x.shape[0]))  # which a symbol is not

    op = opsmith.op(fresh("counted"))(counted)
    op.register_samples(lambda device, dtype: iter([Sample((torch.randn(4, 3, dtype=dtype),))]))
    (found,) = opsmith.check(op, device="cpu", items=["fake"]).items
    assert found.status == "passed" and "symbolic sizes not checked" in found.message, found.message


# --- What is sound passes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base", ["optional_bias", "weighted_sum", "pieces", "top", "gather_rows", "swap_", "pointwise_scale_bias_relu"]
)
def test_a_sound_op_passes_every_item(base: str, fresh: Fresh) -> None:
    report = opsmith.check(declare(base, fresh(base)), device="cpu", items=QUICK)
    assert failures_of(report) == [] and not report.skipped


def test_an_op_with_hand_written_kernels_passes_every_item(contract: Any) -> None:
    report = opsmith.check(contract.OPS["sound_half"], device="cpu", items=[*QUICK, "fork"], level="full")
    assert failures_of(report) == [] and not report.skipped


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def test_an_operator_of_torch_passes_every_item() -> None:
    report = opsmith.check(adopt(torch.ops.aten.silu, silu), device="cpu", items=QUICK)
    assert failures_of(report) == [] and not report.skipped


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    return torch.nn.functional.softplus(x, beta, threshold)


def test_what_torch_gets_wrong_is_not_the_ops_fault() -> None:
    """torch's shape rule for the gradient of softplus has other strides than its kernel."""
    report = opsmith.check(adopt(torch.ops.aten.softplus, softplus), device="cpu", items=["fake"])
    assert failures_of(report) == [] and not report.skipped


def test_an_op_made_of_a_convolution_passes(fresh: Fresh) -> None:
    """Convolutions ask torch's allocator for memory that it cannot put bands around."""

    def smoothed(x: Tensor, kernel: Tensor) -> Tensor:
        return torch.nn.functional.conv1d(x, kernel)

    def samples(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
        yield Sample(
            (torch.randn(2, 3, 9, device=device, dtype=dtype), torch.randn(4, 3, 3, device=device, dtype=dtype))
        )

    op = opsmith.op(fresh("smoothed"))(smoothed)
    op.register_samples(samples)
    report = opsmith.check(op, device="cpu", items=["outputs_written", "peak_memory"])
    assert failures_of(report) == []


def relu_(x: Tensor) -> Tensor:
    return torch.relu_(x)


def test_an_operator_that_works_in_place_passes_every_item() -> None:
    report = opsmith.check(adopt(torch.ops.aten.relu_, relu_), device="cpu", items=QUICK)
    assert failures_of(report) == []


def some(device: Any, dtype: torch.dtype) -> Iterator[Sample]:
    yield Sample((torch.randn(5, 7, device=device, dtype=dtype),), name="5x7")


def test_a_reference_that_draws_random_numbers_raises_no_alarm(fresh: Fresh) -> None:
    def dropout(x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    op = opsmith.op(fresh("dropout"))(dropout)
    op.register_samples(some)
    report = opsmith.check(op, device="cpu", items=QUICK)
    assert failures_of(report) == []
    assert {item.message for item in report.skipped} == {
        "its reference draws random numbers, and no two calls are alike"
    }


def test_an_op_without_gradients_raises_no_alarm(fresh: Fresh) -> None:
    def places(x: Tensor) -> Tensor:
        return x.argmax(-1)

    op = opsmith.op(fresh("places"))(places)
    op.register_samples(some)
    report = opsmith.check(op, device="cpu", items=QUICK)
    assert failures_of(report) == []
    assert [item.name for item in report.skipped] == ["functional_transforms"]


# --- What is not is found -----------------------------------------------------------------------------------------


def test_the_list_of_faults_is_whole(contract: Any) -> None:
    assert set(FAULTY) == set(contract.FAULTS)


@cache
def found_in(name: str) -> opsmith.checks.Item:
    from .faulty import contract

    item, level, _ = contract.FAULTS[name]
    return opsmith.check(contract.OPS[name], device="cpu", items=[item], level=level).items[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found(contract: Any, name: str) -> None:
    _, _, words = contract.FAULTS[name]
    found = found_in(name)
    assert found.status == "failed" and words in found.message, found.message


@pytest.mark.long
def test_the_reproductions_raise_where_the_fault_is_and_nowhere_else(contract: Any) -> None:
    """In one process for all, for each would spend its seconds on importing torch."""
    texts = {}
    for name in FAULTY:
        found = found_in(name)
        texts[name] = found.reproduction
        if isinstance(contract.OPS[name], Op) and contract.OPS[name].reference is contract.halved:
            texts[f"{name}, sound"] = found.reproduction.replace(f"faulty::{name}", "faulty::sound_half")
    runs = (
        "import json, sys\nerrors = {}\n"
        f"for name, text in {texts!r}.items():\n"
        "    try:\n        exec(compile(text, name, 'exec'), {'__name__': name})\n"
        "    except Exception as error:\n        errors[name] = repr(error)\n"
        "print(json.dumps(errors))"
    )
    process = reproductions.run(runs)
    assert process.returncode == 0, process.stderr
    raised = json.loads(process.stdout.splitlines()[-1])
    assert {name for name in texts if name in raised} == set(FAULTY), raised
    broken = [error for error in raised.values() if error.startswith("NameError") or "module 'opsmith" in error]
    assert not broken


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_fault_is_found_on_a_gpu(contract: Any, name: str) -> None:
    item, level, words = contract.FAULTS[name]
    (found,) = opsmith.check(contract.OPS[name], device="cuda", items=[item], level=level).items
    words = words.replace("cpu", "cuda").replace("to bfloat16", "to float16")  # a region lowers to float16 on a GPU
    assert found.status == "failed" and words in found.message, found.message


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mish", "scale_bias_relu", "add_two_", "convrnn"])
def test_a_shipped_op_passes_every_item_on_a_gpu(name: str) -> None:
    report = opsmith.check(getattr(opsmith.ops, name), device="cuda", items=[*QUICK, "fork"])
    assert failures_of(report) == []


def test_an_op_that_becomes_another_by_copying_is_found(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    op = declare("mish", fresh("copied"))
    monkeypatch.setattr(Op, "__deepcopy__", lambda self, memo: "another")
    (found,) = opsmith.check(op, device="cpu", items=["pickling"]).items
    assert found.status == "failed" and found.message == "after deepcopy the op is a different object: 'another'"


def test_numbers_that_out_does_not_get_are_found(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    op = declare("mish", fresh("out"))
    assert op._families.default.out is not None
    monkeypatch.setattr(op._families.default.out, "overload", lambda *args, out: out.zero_())
    (found,) = opsmith.check(op, device="cpu", items=["outputs_written"]).items
    assert found.status == "failed" and "out= gets other numbers than it returns, which is offset" in found.message


# --- What they found in opsmith itself ----------------------------------------------------------------------------


def test_out_of_an_op_with_keyword_only_arguments(fresh: Fresh) -> None:
    op = declare("optional_bias", fresh("keyword_out"))
    x, weight = torch.randn(3, 4), torch.randn(4, 2)
    out = torch.empty(3, 2)
    assert op(x, weight, negate=True, out=out) is out
    torch.testing.assert_close(out, -(x @ weight))


def test_vmap_of_an_op_that_changes_one_of_two_tensors(fresh: Fresh) -> None:
    op = declare("add_scaled_", fresh("batched_"))
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    expected = x.sin() + y * y * 0.5
    torch.testing.assert_close(torch.vmap(lambda a, b: op(a.clone(), b, 0.5))(x, y), expected)


# --- The instruments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("byte", memory.BYTES)
@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(5, 7),
        torch.randn(5, 7).t()[::2],
        torch.randn(1, 7).expand(3, 7),
        torch.tensor(2.0),
        torch.randn(0, 3),
    ],
    ids=["contiguous", "strided", "expanded", "scalar", "empty"],
)
def test_a_banded_tensor_is_the_same_among_other_bytes(tensor: Tensor, byte: int) -> None:
    banded = memory.banded(tensor, byte)
    assert torch.equal(banded, tensor) and banded.stride() == tensor.stride()
    assert not tensor.numel() or banded.data_ptr() % 64 == tensor.data_ptr() % 64
    assert memory.bands_intact(banded, byte)
    around = torch.empty(0, dtype=torch.uint8).set_(banded.untyped_storage())
    around[-1] = 0x11
    assert not memory.bands_intact(banded, byte)


def test_a_gap_between_elements_belongs_to_the_bands() -> None:
    banded = memory.banded(torch.randn(4, 6)[:, ::2], 0)
    banded.fill_(1.0)
    assert memory.bands_intact(banded, 0)
    banded.as_strided((2,), (1,), banded.storage_offset()).fill_(1.0)
    assert not memory.bands_intact(banded, 0)


def test_bits_are_compared_not_numbers() -> None:
    nan, zero = torch.tensor([torch.nan]), torch.tensor([0.0])
    assert memory.same_bits([nan, None], [nan.clone(), None])
    assert not memory.same_bits([zero], [-zero])
    assert not memory.same_bits([zero], [zero.double()])
    assert not memory.same_bits([zero], [None])


def test_memory_is_filled_and_not_changed_afterwards() -> None:
    for byte in memory.BYTES:
        with memory.filled(byte) as sure:
            if not sure:
                pytest.skip("this machine's C library does not fill memory")
            fresh = [torch.empty(5000, dtype=torch.uint8) for _ in range(8)]
            assert all(bool((each == byte).all()) for each in fresh)
    assert not torch._C._is_default_mobile_cpu_allocator_set()


def test_no_setting_of_torch_is_left_changed(contract: Any) -> None:
    torch.manual_seed(7)
    before = (
        torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        torch.get_num_threads(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.initial_seed(),
    )  # fmt: skip
    opsmith.check(contract.OPS["sound_half"], device="cpu", items=QUICK)
    after = (
        torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        torch.get_num_threads(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.initial_seed(),
    )  # fmt: skip
    assert before == after


def test_what_a_call_holds_and_leaves_is_counted() -> None:
    x = torch.randn(1 << 16)
    found = memory.allocated(lambda: x.sin().cos())
    assert (found.peak, found.left) == (2 * x.nbytes, 0)
    kept: list[Tensor] = []
    assert memory.allocated(lambda: kept.append(x.sin())).left == x.nbytes


def test_a_tensor_in_a_cycle_counts_as_left_behind() -> None:
    x = torch.randn(1 << 16)

    def call() -> None:
        cycle: list[Any] = [x.sin()]
        cycle.append(cycle)

    assert memory.allocated(call).left == x.nbytes


def test_threads_that_raise_and_threads_that_disagree_have_their_own_messages() -> None:
    def refuse() -> list[Tensor]:
        raise ValueError("not here")

    with pytest.raises(AssertionError, match="a thread raised ValueError: not here"):
        assert_threads_agree([refuse] * 2)
    count = iter(range(100))
    with pytest.raises(
        AssertionError,
        match=r"thread 0 of 2 got different .* tensor 2 of 2, results and then gradients, in 4 of 4 elements",
    ):
        assert_threads_agree([lambda: [torch.ones(3), torch.full((4,), next(count))]] * 2)
    assert_threads_agree([lambda: [torch.ones(3)]] * 4, rounds=2)


def test_how_a_forked_process_ends() -> None:
    def die() -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    def refuse() -> bool:
        raise ValueError

    def hang() -> bool:
        threading.Event().wait()
        return True

    endings = [in_fork(call, seconds=1) for call in (lambda: True, lambda: False, refuse, hang, die)]
    assert endings == ["true", "false", "raises", "hangs", "dies"]


def test_a_process_is_ended_with_its_children_when_its_time_is_up(contract: Any) -> None:
    subject = Subject(contract.OPS["sound_half"])
    lines = [
        "import subprocess, sys, time",
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])",
        "print(child.pid, flush=True)",
        "time.sleep(600)",
    ]
    began = time.monotonic()
    finished = in_new_process(subject, lines, seconds=20)
    assert finished.status is None and "has not ended" in finished.message and time.monotonic() - began < 60
    child = int(finished.output.split()[-1])
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
        if Path(f"/proc/{child}/stat").read_text().split(")")[-1].split()[0] == "Z":  # ended, and not yet waited for
            return
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{child}")


def test_an_op_that_a_new_process_cannot_import_is_reported(fresh: Fresh) -> None:
    op = declare("mish", fresh("local"))
    with pytest.raises(Skipped, match="in a new process does not declare it"):
        in_new_process(Subject(op), [])


def test_the_message_says_how_a_process_ended(contract: Any) -> None:
    subject = Subject(contract.OPS["sound_half"])
    assert in_new_process(subject, ["raise ValueError('odd')"]).message == "ValueError: odd"
    killed = in_new_process(subject, ["import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
    assert killed.message == "it was ended by SIGSEGV"
