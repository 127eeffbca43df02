"""Fills memory that a kernel did not allocate or has not written, to find accesses to it; and bitwise comparison.

Also measures the peak memory of a call, and what it leaves allocated.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..reference.tensors import ALIGNMENT, contiguous_clone
from . import values as call_values
from .accuracy.truth import Function
from .subject import Subject

BYTES = (0x00, 0xFE)
"""The bytes that memory is filled with: zeros, and a huge negative number in every floating dtype."""
BAND = 256
"""Bytes before and after a banded tensor."""
GUARD_BEFORE, GUARD_AFTER = 64, 16
"""Bytes that torch's allocator with guards adds around each CPU tensor."""
CALLS = 10
M_PERTURB = -6
"""mallopt's parameter for the byte that the C library fills allocated memory with, given as its complement."""
PAGE, WORD = 4096, 8
CUDA_SIZES = [512 << power for power in range(16)]

Outputs = Sequence["torch.Tensor | None"]


# --- Memory around the inputs -------------------------------------------------------------------------------------


def banded(tensor: torch.Tensor, byte: int) -> torch.Tensor:
    """A copy with the same layout and alignment, in memory that holds `byte` before, after and between elements."""
    if tensor.layout is not torch.strided:
        return tensor
    size = tensor.element_size()
    offset = BAND + (tensor.data_ptr() % ALIGNMENT if tensor.numel() else 0)
    memory = torch.full((offset + _reach(tensor) * size + BAND,), byte, dtype=torch.uint8, device=tensor.device)
    elements = memory[offset : offset + _reach(tensor) * size].view(tensor.dtype)
    elements[_places(tensor)] = tensor.detach().reshape(-1)
    return elements.as_strided(tensor.shape, tensor.stride())


def bands_intact(tensor: torch.Tensor, byte: int) -> bool:
    """Whether the memory around the elements of a banded tensor still holds `byte`."""
    if tensor.layout is not torch.strided:
        return True
    memory = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    others = torch.ones_like(memory, dtype=torch.bool)
    size = tensor.element_size()
    start = tensor.storage_offset() * size
    own = others[start : start + _reach(tensor) * size].view(-1, size)
    own[_places(tensor)] = False
    return bool((memory[others] == byte).all())


def _reach(tensor: torch.Tensor) -> int:
    """Elements from the first to the last in memory."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """The offset of each element from the first."""
    offsets = torch.arange(_reach(tensor), device=tensor.device)
    return offsets.as_strided(tensor.shape, tensor.stride()).reshape(-1)


# --- Memory of the outputs ----------------------------------------------------------------------------------------


def assert_written(function: Callable[[], Any]) -> bool:
    """Raises AssertionError if what `function` returns depends on the previous content of its memory, or if it writes
    outside the CPU tensors it returns. True if all memory was certainly filled.

    On the CPU the C library fills memory that is allocated, workspaces included (glibc's M_PERTURB), and freed. On a
    GPU blocks of many sizes are filled and returned to torch's allocator."""
    sure = True
    first, again = _called(function), _called(function)
    repeatable = same_bits(first, again)
    guards = True
    for byte in BYTES:
        try:
            with filled(byte, first, guards) as fills:
                outputs = _assert_guards_intact(function, [first, again], byte) if fills else _called(function)
        except RuntimeError as error:
            if not guards or _MISFIT not in str(error):
                raise
            guards = False
            with filled(byte, first, guards) as fills:
                outputs = _called(function)
        sure = sure and fills
        if not same_bits(first, outputs):  # is the call deterministic at all?
            repeatable = repeatable and all(same_bits(first, _called(function)) for _ in range(CALLS))
        _compare(first, outputs, repeatable, f"full of 0x{byte:02x}")
    with filled_by_torch():
        _compare(first, _called(function), False, "that torch has filled")
    return sure and not any(tensor is not None and tensor.is_cuda for tensor in first)


def same_bits(first: Outputs, second: Outputs) -> bool:
    """Whether tensors are equal in every bit: NaN equals NaN, and 0.0 is not -0.0."""
    return all(_equal(mine, theirs) for mine, theirs in zip(first, second, strict=True))


def share_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the memory that two tensors are views of overlaps."""
    if first.layout is not torch.strided or second.layout is not torch.strided or first.device != second.device:
        return first is second
    one, other = first.untyped_storage(), second.untyped_storage()
    if not one.nbytes() or not other.nbytes():
        return False
    return one.data_ptr() < other.data_ptr() + other.nbytes() and other.data_ptr() < one.data_ptr() + one.nbytes()


# Raised by operators that ask torch's allocator for raw memory without guards, such as a convolution.
_MISFIT = "dptr.get() == dptr.get_context()"


@contextlib.contextmanager
def filled(byte: int, like: Outputs = (), guards: bool = True) -> Iterator[bool]:
    """Inside, memory holds `byte` when it is allocated. Yields True if that holds for every CPU tensor, and with
    `guards` for the guard bytes around it; on a GPU it holds for tensors of the sizes of `like`, and for others by
    chance."""
    for tensor in like:
        if tensor is not None and tensor.is_cuda:
            for size in (tensor.untyped_storage().nbytes() or 1, *CUDA_SIZES):
                blocks = [torch.full((size,), byte, dtype=torch.uint8, device=tensor.device) for _ in range(4)]
                blocks.clear()
    c_library = ctypes.CDLL(None)
    guarded = hasattr(torch._C, "_set_default_mobile_cpu_allocator")
    if not guarded or not hasattr(c_library, "mallopt") or torch._C._is_default_mobile_cpu_allocator_set():
        yield False
        return
    if guards:
        torch._C._set_default_mobile_cpu_allocator()
    c_library.mallopt(M_PERTURB, byte ^ 0xFF)
    try:
        yield _fills(byte, guards)
    finally:
        c_library.mallopt(M_PERTURB, 0)
        if guards:
            torch._C._unset_default_mobile_cpu_allocator()


@contextlib.contextmanager
def filled_by_torch() -> Iterator[None]:
    """Inside, torch fills what torch.empty gives with NaN, or the largest integer."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic
    fills = settings.fill_uninitialized_memory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings.fill_uninitialized_memory = True
            torch.use_deterministic_algorithms(True, warn_only=True)
            yield
    finally:
        settings.fill_uninitialized_memory = fills
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)


def _called(function: Callable[[], Any]) -> Outputs:
    """The results of a call, with the same random numbers in every call."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        returned = function()
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def _compare(first: Outputs, second: Outputs, repeatable: bool, where: str) -> None:
    """Where the algorithm may be another, or calls are not deterministic, only NaN is evidence."""
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        if one is None or other is None or _equal(one, other):
            continue
        if not repeatable and (not one.is_floating_point() or torch.equal(one.isnan(), other.isnan())):
            continue
        count = int((one.reshape(-1) != other.reshape(-1)).sum()) if one.shape == other.shape else one.numel()
        raise AssertionError(
            f"output {index} holds what its memory held before: in memory {where}, {count} of {one.numel()} elements "
            "are different"
        )


def _assert_guards_intact(function: Callable[[], Any], older: list[Outputs], byte: int) -> Outputs:
    """The results of `function`. If guard bytes were written, it is called again: the C library occasionally leaves a
    small block unfilled, but hardly ever so many in a row, none of which is freed."""
    kept = [*older, _called(function)]
    for _ in range(CALLS):
        fault = _written_guards(kept[-1], kept[:-1], byte)
        if not fault:
            return kept[-1]
        kept.append(_called(function))
    raise AssertionError(fault)


def _written_guards(outputs: Outputs, older: list[Outputs], byte: int) -> str:
    """A message if guard bytes of the outputs were written; else empty."""
    known = {tensor.untyped_storage().data_ptr() for each in older for tensor in each if tensor is not None}
    for index, tensor in enumerate(outputs):
        if tensor is None or tensor.is_cuda or tensor.layout is not torch.strided:
            continue
        address, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        if size == 0 or address in known or not _has_guards(address, size):
            continue
        for where, start, count in (("behind", size, GUARD_AFTER), ("before", -GUARD_BEFORE, GUARD_BEFORE)):
            written = sum(each != byte for each in ctypes.string_at(address + start, count))
            if written:
                return f"of the {count} bytes {where} output {index}, {written} are written"
    return ""


def _has_guards(address: int, size: int) -> bool:
    """Whether torch's allocator with guards allocated this memory; a kernel may use another one. The word before a
    block of glibc's malloc holds its size and flags; malloc_usable_size would crash on any other pointer."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as own:  # there may be no memory before it
            own.seek(address - GUARD_BEFORE - WORD)
            header = int.from_bytes(own.read(WORD), "little")
    except OSError:
        return False
    mapped = bool(header & 2)
    usable = (header & ~7) - (2 * WORD if mapped else WORD)
    needed = GUARD_BEFORE + size + GUARD_AFTER
    return address % ALIGNMENT == 0 and needed <= usable < needed + (PAGE if mapped else ALIGNMENT)


@cache
def _fills(byte: int, guards: bool) -> bool:
    """Whether this C library fills memory that was used before, in small and large blocks."""
    ahead, behind = (GUARD_BEFORE, GUARD_AFTER) if guards else (0, 0)
    for size in (100, 5000, 1 << 18):
        used = [torch.full((size,), byte ^ 0x55, dtype=torch.uint8) for _ in range(16)]
        used.clear()
        fresh = [torch.empty(size, dtype=torch.uint8) for _ in range(16)]
        found = [ctypes.string_at(each.data_ptr() - ahead, ahead + size + behind) for each in fresh]
        if any(each.count(byte) != len(each) for each in found):
            return False
    return True


def _equal(mine: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    return torch.equal(_bytes(mine), _bytes(theirs))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return contiguous_clone(tensor.detach().resolve_conj().resolve_neg()).reshape(-1).view(torch.uint8)


# --- What a call allocates and keeps ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Allocated:
    """Bytes: the peak that a call allocated, and what is still allocated after its results are freed."""

    peak: int
    left: int


def measured(subject: Subject, function: Function, values: Sequence[Any], gradients: bool) -> Allocated:
    """Of a call of the op, or of its reference, and of its backward; without the incoming gradients."""
    own = call_values.mapped(
        subject.arguments, values, lambda t: t.detach().requires_grad_(gradients and t.is_floating_point())
    )
    leaves = [tensor for tensor in call_values.present(subject.arguments, own) if tensor.requires_grad]

    def results() -> list[torch.Tensor]:
        return call_values.listed(function(subject.copied(own)))

    weights = [torch.ones_like(result) for result in results() if result.requires_grad]

    def called() -> Any:
        found = results()
        targets = [result for result in found if result.requires_grad]
        return found, torch.autograd.grad(targets, leaves, weights, allow_unused=True) if targets else None

    return allocated(called, subject.device)


def allocated(function: Callable[[], Any], device: str = "cpu") -> Allocated:
    """Of a second call, so that one-time allocations do not count. The garbage collector is off: a reference cycle that
    holds a tensor counts as a leak."""
    function()
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _on_cuda(function) if device == "cuda" else _on_cpu(function)
    finally:
        if collecting:
            gc.enable()


def _on_cpu(function: Callable[[], Any]) -> Allocated:
    """From the events of torch's legacy profiler; the current one prints, and is a hundred times slower to start."""
    from torch.autograd import _disable_profiler_legacy, _enable_profiler_legacy, profiler_legacy

    _enable_profiler_legacy(profiler_legacy.profile(profile_memory=True).config())
    try:
        function()
    finally:
        threads = _disable_profiler_legacy()
    events: list[Any] = [event for thread in threads for event in thread]
    changes = [event.cpu_memory_usage() for event in events if event.kind() == "memory_alloc"]
    held = [0, *itertools.accumulate(changes)]
    return Allocated(max(held), held[-1])


def _on_cuda(function: Callable[[], Any]) -> Allocated:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    peak = torch.cuda.max_memory_allocated() - before
    return Allocated(peak, torch.cuda.memory_allocated() - before)


def held_after(function: Callable[..., Any], *values: Any) -> int:
    """How many tensors of the first of three calls are still alive after the last; each call gets copies."""
    first: list[weakref.ref[torch.Tensor]] = []
    for turn in range(3):
        fresh = tree_map(lambda value: value.clone() if isinstance(value, torch.Tensor) else value, list(values))
        if turn == 0:
            first = [weakref.ref(each) for each in tree_leaves(fresh) if isinstance(each, torch.Tensor)]
        function(*fresh)
        del fresh
    gc.collect()
    return sum(each() is not None for each in first)
