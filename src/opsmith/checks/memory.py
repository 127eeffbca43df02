"""Memory as a kernel may find it: filled with old data, and with other tensors right next to it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from ..reference.tensors import ALIGNMENT

BYTES = (0x00, 0xFE)
"""What memory is filled with: zeros, and in every floating dtype a huge negative number."""
BAND = 256
"""Bytes before and behind a banded tensor."""
ROOM_AHEAD, ROOM_BEHIND = 64, 16
"""Bytes that torch's allocator with guards leaves around each CPU tensor."""
CALLS = 10
M_PERTURB = -6
"""mallopt's parameter for what the C library fills memory with when it is allocated: the byte's complement."""
PAGE, WORD = 4096, 8
CUDA_SIZES = [512 << power for power in range(16)]

Outputs = Sequence["torch.Tensor | None"]


# --- Beside the inputs --------------------------------------------------------------------------------------------


def banded(tensor: torch.Tensor, byte: int) -> torch.Tensor:
    """The same values, laid out and aligned the same, in memory that is `byte` before, behind and between them."""
    if tensor.layout is not torch.strided:
        return tensor
    size = tensor.element_size()
    offset = BAND + (tensor.data_ptr() % ALIGNMENT if tensor.numel() else 0)
    memory = torch.full((offset + _reach(tensor) * size + BAND,), byte, dtype=torch.uint8, device=tensor.device)
    elements = memory[offset : offset + _reach(tensor) * size].view(tensor.dtype)
    elements[_places(tensor)] = tensor.detach().reshape(-1)
    return elements.as_strided(tensor.shape, tensor.stride())


def bands_intact(tensor: torch.Tensor, byte: int) -> bool:
    """Whether a banded tensor still lies in memory that is `byte`."""
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
    """Where each element lies behind the first."""
    places = torch.zeros(tensor.shape, dtype=torch.int64, device=tensor.device)
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        steps = torch.arange(size, device=tensor.device) * stride
        places = places + steps.view([-1 if each == dim else 1 for each in range(tensor.ndim)])
    return places.reshape(-1)


# --- Under the outputs --------------------------------------------------------------------------------------------


def assert_written(function: Callable[[], Any]) -> bool:
    """Raises AssertionError where what `function` returns depends on what its memory held before, or where it writes
    beside one of the CPU tensors it returns.

    On the CPU the C library fills whatever is allocated, workspaces too (glibc's M_PERTURB), and what is freed. On a
    GPU blocks of many sizes are filled and given back to torch's allocator. True where all memory was sure to be
    filled."""
    sure = True
    first, again = _called(function), _called(function)
    repeatable = same_bits(first, again)
    rooms = True
    for byte in BYTES:
        try:
            with filled(byte, first, rooms) as fills:
                outputs = _assert_rooms_intact(function, [first, again], byte) if fills else _called(function)
        except RuntimeError as error:
            if not rooms or _MISFIT not in str(error):
                raise
            rooms = False
            with filled(byte, first, rooms) as fills:
                outputs = _called(function)
        sure = sure and fills
        if not same_bits(first, outputs):  # then it is worth to be sure that calls are alike otherwise
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
def filled(byte: int, like: Outputs = (), rooms: bool = True) -> Iterator[bool]:
    """Inside, memory holds `byte` when it is allocated. True where that is so for every CPU tensor, and with `rooms`
    for the room around it, which is nobody's; on a GPU it is so for tensors of the sizes of `like`, and for others by
    chance."""
    for tensor in like:
        if tensor is not None and tensor.is_cuda:
            _fill_cuda(tensor.device, [tensor.untyped_storage().nbytes() or 1, *CUDA_SIZES], byte)
    c_library = ctypes.CDLL(None)
    guarded = hasattr(torch._C, "_set_default_mobile_cpu_allocator")
    if not guarded or not hasattr(c_library, "mallopt") or torch._C._is_default_mobile_cpu_allocator_set():
        yield False
        return
    if rooms:
        torch._C._set_default_mobile_cpu_allocator()
    c_library.mallopt(M_PERTURB, byte ^ 0xFF)
    try:
        yield _fills(byte, rooms)
    finally:
        c_library.mallopt(M_PERTURB, 0)
        if rooms:
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
    """What a call returns. Random numbers are the same in every call."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        returned = function()
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def _compare(first: Outputs, second: Outputs, repeatable: bool, where: str) -> None:
    """Where another algorithm may be at work, or two calls differ by themselves, only NaN is evidence."""
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


def _assert_rooms_intact(function: Callable[[], Any], older: list[Outputs], byte: int) -> Outputs:
    """What `function` returns, called again where something beside it is written: the C library leaves a small block
    now and then unfilled, but hardly ever so many in a row, of which none is given back."""
    kept = [*older, _called(function)]
    for _ in range(CALLS):
        fault = _beside(kept[-1], kept[:-1], byte)
        if not fault:
            return kept[-1]
        kept.append(_called(function))
    raise AssertionError(fault)


def _beside(outputs: Outputs, older: list[Outputs], byte: int) -> str:
    """A message if bytes next to the outputs were written; else empty."""
    known = {tensor.untyped_storage().data_ptr() for each in older for tensor in each if tensor is not None}
    for index, tensor in enumerate(outputs):
        if tensor is None or tensor.is_cuda or tensor.layout is not torch.strided:
            continue
        address, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
        if size == 0 or address in known or not _has_room(address, size):
            continue
        for where, start, room in (("behind", size, ROOM_BEHIND), ("before", -ROOM_AHEAD, ROOM_AHEAD)):
            count = sum(each != byte for each in ctypes.string_at(address + start, room))
            if count:
                return f"of the {room} bytes {where} output {index}, {count} are written"
    return ""


def _has_room(address: int, size: int) -> bool:
    """Whether memory comes from torch's allocator with guards: a kernel may have got it elsewhere. The word before what
    glibc's malloc gives holds its size, and flags; malloc_usable_size would follow it, were it anything else."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as own:  # there may be no memory before it
            own.seek(address - ROOM_AHEAD - WORD)
            header = int.from_bytes(own.read(WORD), "little")
    except OSError:
        return False
    mapped = bool(header & 2)
    usable = (header & ~7) - (2 * WORD if mapped else WORD)
    needed = ROOM_AHEAD + size + ROOM_BEHIND
    return address % ALIGNMENT == 0 and needed <= usable < needed + (PAGE if mapped else ALIGNMENT)


@cache
def _fills(byte: int, rooms: bool) -> bool:
    """Whether this C library does fill memory that was used before, small and large."""
    ahead, behind = (ROOM_AHEAD, ROOM_BEHIND) if rooms else (0, 0)
    for size in (100, 5000, 1 << 18):
        used = [torch.full((size,), byte ^ 0x55, dtype=torch.uint8) for _ in range(16)]
        used.clear()
        fresh = [torch.empty(size, dtype=torch.uint8) for _ in range(16)]
        found = [ctypes.string_at(each.data_ptr() - ahead, ahead + size + behind) for each in fresh]
        if any(each.count(byte) != len(each) for each in found):
            return False
    return True


def _fill_cuda(device: torch.device, sizes: Sequence[int], byte: int) -> None:
    for size in sizes:
        blocks = [torch.full((size,), byte, dtype=torch.uint8, device=device) for _ in range(4)]
        blocks.clear()


def _equal(mine: torch.Tensor | None, theirs: torch.Tensor | None) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    return torch.equal(_bytes(mine), _bytes(theirs))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor.detach()
        .resolve_conj()
        .resolve_neg()
        .clone(memory_format=torch.contiguous_format)
        .reshape(-1)
        .view(torch.uint8)
    )


def held_after(function: Callable[..., Any], *values: Any, calls: int = 3) -> int:
    """How many tensors that the first of some calls was given are alive when all of them are over, each on copies."""
    first: list[weakref.ref[torch.Tensor]] = []
    for turn in range(calls):
        fresh = tree_map(lambda value: value.clone() if isinstance(value, torch.Tensor) else value, list(values))
        if turn == 0:
            first = [weakref.ref(each) for each in tree_leaves(fresh) if isinstance(each, torch.Tensor)]
        function(*fresh)
        del fresh
    gc.collect()
    return sum(each() is not None for each in first)
