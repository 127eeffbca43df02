"""On a GPU: each item finds the fault it is for, reports it, and passes sound ops.

What needs no GPU is in test_gpu_items_without_gpu.py.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

import opsmith
from opsmith.checks import Item
from opsmith.checks.items import sanitizer

from . import reproductions

pytestmark = pytest.mark.gpu

QUICK = ["side_stream", "graph_replay", "synchronisation", "second_device", "launch_errors"]
WITH_MORE_KERNELS = ["add_two", "elementwise_mult", "polynomial", "scale_bias_relu"]


def faulty(name: str) -> Any:
    return importlib.import_module(f"{__package__}.faulty.{name}").op


def looked_at(op: Any, item: str, level: Any = "quick") -> Item:
    (found,) = opsmith.check(op, device="cuda", level=level, items=[item]).items
    return found


def shown(found: Item) -> None:
    """The lines of a failure raise; those of the sound op in its place do not."""
    assert found.status == "failed" and found.reproduction
    assert reproductions.run(found.reproduction).returncode == 1, found.reproduction


def spared(found: Item, name: str) -> None:
    text = found.reproduction.replace(f"faulty.{name}", "faulty.doubled").replace(f"faulty::{name}", "faulty::doubled")
    ended = reproductions.run(text)
    assert ended.returncode == 0, f"{text}\n{ended.stderr}"


# --- What is sound ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", opsmith.ops.names())
def test_shipped_ops_pass(name: str) -> None:
    report = opsmith.check(getattr(opsmith.ops, name), device="cuda", items=QUICK)
    assert report.ok, report
    skipped = {item.name for item in report.skipped}
    assert skipped == ({"second_device"} if torch.cuda.device_count() < 2 else set()), report.skipped


@pytest.mark.parametrize("name", WITH_MORE_KERNELS)
def test_every_kernel_of_an_op_passes(name: str) -> None:
    report = opsmith.check(getattr(opsmith.ops, name), device="cuda", level="full", items=QUICK)
    assert report.ok, report


@pytest.mark.parametrize("item", QUICK)
def test_a_sound_kernel_passes(item: str) -> None:
    found = looked_at(faulty("doubled"), item)
    assert found.status == ("skipped" if item == "second_device" and torch.cuda.device_count() < 2 else "passed"), found


def test_an_operator_of_torch_passes() -> None:
    adopted = opsmith.checks.adopt(torch.ops.aten.hypot, hypotenuse)
    report = opsmith.check(adopted, device="cuda", items=QUICK)
    assert report.ok, report


def hypotenuse(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.hypot(x, y)


# --- What is not ------------------------------------------------------------------------------------------------------

FAULTS = [
    ("on_default_stream", "side_stream", "the result was computed before the stream it was called on had written"),
    (
        "backward_on_default_stream",
        "side_stream",
        "the gradient of x was (computed before|not there yet when) the stream",
    ),
    ("on_default_stream", "graph_replay", "a replay with other inputs gives a result that is not theirs|captured"),
    ("keeps_result", "graph_replay", "something computed earlier was kept on the host"),
    ("reads_item", "graph_replay", "forward cannot be captured in a CUDA graph, after having run"),
    ("synchronises", "graph_replay", "cannot be captured in a CUDA graph"),
    ("reads_item", "synchronisation", r"as \.item\(\), \.cpu\(\)"),
    ("synchronises", "synchronisation", "forward returns only when earlier work of the GPU has ended"),
    ("copies_to_host", "synchronisation", "forward returns only when earlier work of the GPU has ended"),
    ("leaves_error", "launch_errors", "invalid device ordinal"),  # reported by the item, or by torch's next step
    ("swallows_error", "launch_errors", "the error that an earlier CUDA call has left is gone afterwards"),
    ("unchecked_launch", "launch_errors", "elements of a result have not been written, and nothing was raised"),
]


@pytest.mark.parametrize(("name", "item", "words"), FAULTS, ids=[f"{name}-{item}" for name, item, _ in FAULTS])
def test_a_fault_is_found_and_shown(name: str, item: str, words: str) -> None:
    found = looked_at(faulty(name), item)
    assert found.status == "failed", found
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.message)
    shown(found)
    spared(found, name)
    assert looked_at(faulty("doubled"), item).status == "passed", "and nothing is left behind in this process"


def test_work_that_is_late_shows_where_the_default_stream_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsmith.checks.items import side_stream

    monkeypatch.setattr(side_stream._Order, "inputs_written_late", lambda self, seconds, backward_elsewhere: True)
    found = looked_at(faulty("on_default_stream"), "side_stream")
    assert "not there yet when the stream it was called on was done" in found.message
    shown(found)
    spared(found, "on_default_stream")


def test_an_unchecked_launch_is_silent_after_a_fault() -> None:
    from opsmith.checks.items import launch_errors
    from opsmith.checks.outcome import Failed
    from opsmith.checks.subject import Subject

    subject = Subject(faulty("unchecked_launch"), "cuda", "full")
    with pytest.raises(Failed, match="it returns as if nothing had happened") as failed:
        launch_errors._after_a_fault(subject, subject.first_case())
    text = subject.reproduction(failed.value)
    assert "as if nothing had happened" in reproductions.run(text).stderr
    sound = Subject(faulty("doubled"), "cuda", "full")
    assert launch_errors._after_a_fault(sound, sound.first_case()) == "raises after a kernel has failed"


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_an_operator_that_works_on_the_current_device_is_found() -> None:
    found = looked_at(faulty("other_device"), "second_device")
    assert "the result of tensors on cuda:1 is on cuda:0" in found.message
    shown(found)


@pytest.mark.parametrize("name", ["lies_about_dtype", "lies_about_strides"])
def test_a_fake_that_lies_is_reported_and_the_process_continues(name: str) -> None:
    """torch.compile trusts it and writes where it must not. A process that has used CUDA cannot be forked, so the item
    runs in a new one."""
    torch.zeros(1, device="cuda")
    report = opsmith.check(faulty(name), device="cuda", level="full", items=["fake", "compile"])
    assert [item.name for item in report.failures] == ["fake", "compile"], report
    assert "register_fake" in report.failures[0].message  # what to fix
    assert torch.ones(3, device="cuda").sum().item() == 3


# --- compute-sanitizer ------------------------------------------------------------------------------------------------


def sanitized(op: Any, *tools: str) -> Item:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sanitizer, "TOOLS", tools or sanitizer.TOOLS)
        found = looked_at(op, "sanitizer", "full")
    if found.status == "skipped":
        pytest.skip(found.message)
    return found


@pytest.mark.parametrize(
    ("name", "tool", "words"),
    [
        ("writes_beyond", "memcheck", r"odd, float32: memcheck: Invalid __global__ write of size 4 bytes in beyond at"),
        ("races", "racecheck", "racecheck: race with a (Read|Write) access in racy at"),
        ("reads_unset", "initcheck", "initcheck: Uninitialized __global__ memory read of size 4 bytes in unset at"),
        (
            "divergent_barrier",
            "synccheck",
            "synccheck: Barrier error detected. Invalid arguments in diverg",
        ),
    ],
)
def test_what_a_tool_finds_is_reported_with_sample_kernel_and_line(name: str, tool: str, words: str) -> None:
    found = sanitized(faulty(name), tool)
    assert found.status == "failed", found
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.message)


@pytest.mark.parametrize("name", ["scale_bias_relu", "convrnn"])
def test_the_tools_find_nothing_in_shipped_ops(name: str) -> None:
    found = sanitized(getattr(opsmith.ops, name))
    assert found.status == "passed", found
    assert found.message.startswith("memcheck, racecheck, initcheck, synccheck over"), found
    assert found.seconds < 60
