"""Calls with more than 2^31 elements are right everywhere: no index and no size overflows 32 bits.

A call that splits into independent calls along a dimension (any pointwise call, a batch elsewhere) is compared a window
at a time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...operator.adopted import Adopted
from ...operator.op import Op
from .. import values as call_values
from ..accuracy.rounding import rounding_of
from ..accuracy.truth import Comparison, Truth, assert_all
from ..cases.acceptance import taken
from ..cases.case import Case
from ..cases.patterns import Pattern, flat_pattern, lengthened, patterns_of
from ..memory import measured
from ..outcome import Skipped
from ..subject import Subject, listed, present, short
from ._cases import accelerated, arguments_of, skip_random
from ._compare import failing_on_error, require

LEVEL = "full"
ORDER = 90
ELEMENTS = 2**31 + 2**20
PERIOD = 2**20 - 3
"""Parts after which the numbers repeat: a prime, so that no two places 2^k apart hold the same."""
WINDOW, WINDOWS = 4096, 24
MEASURED, WATCHED = 2**18, 2**23
"""Elements of the calls whose memory is measured: what torch allocates, and what the process grows by."""
MARGIN = 1.1
"""Times the memory that is needed."""
TRIED = 5
"""Parts of the call on which it is determined whether they are independent."""


def check(subject: Subject) -> str:
    if not accelerated(subject):
        raise Skipped("no kernel of its own runs here, only torch's")
    found = plan(subject, min(subject.dtypes, key=lambda dtype: dtype.itemsize))
    if found is None:
        raise Skipped("along no dimension of its samples does a call split into calls that could be compared")
    return check_parts(subject, found, ELEMENTS)


def check_parts(subject: Subject, found: Plan, elements: int) -> str:
    """Checks the call with so many elements, with gradients if there is enough memory."""
    parts = math.ceil(elements / found.largest) + 1  # one tensor has more than that many elements
    gradients = subject.differentiates(found.case(2)) and not subject.inplace
    free = free_bytes(subject.device)
    text = f"{parts} parts of {found.largest} elements" if found.largest > 1 else f"{parts} elements"
    needed = _needed(subject, found, parts, gradients=False)
    if needed > free:
        raise Skipped(f"{text} take {_gibibytes(needed)} GiB, {_gibibytes(free)} are free")
    if gradients and (more := _needed(subject, found, parts, gradients=True)) > free:
        gradients, text = False, f"{text}; gradients would take {_gibibytes(more)} GiB, no more free"
    block = found.case(min(PERIOD, parts))
    cut = Cut(found.axes, found.result_axes, parts, gradients, subject.seed)
    lines = [
        f"opsmith.checks.items.huge.assert_parts_match(op, opsmith.checks.items.huge.{cut}, {arguments_of(block)})"
    ]
    with failing_on_error(block, lines):
        outputs = _lengthened_outputs(subject, block, cut)
    try:
        for start, comparisons in _windows(subject, block, cut, outputs):
            require(block.named(f"{found.describe(parts)}, from {start} on"), comparisons, lines)
    except torch.OutOfMemoryError as error:
        raise Skipped(f"{text} do not fit: {str(error).splitlines()[0]}") from None
    return text


@dataclass(frozen=True)
class Cut:
    """The dimension along which each tensor, and each result, is cut into parts; None for a tensor that all parts
    share."""

    axes: Sequence[int | None]
    result_axes: Sequence[int]
    parts: int
    gradients: bool
    seed: int


def assert_parts_match(op: Op | Adopted, cut: Cut, /, *args: Any, **kwargs: Any) -> None:
    """Raises AssertionError unless the op matches its reference on windows of a call that is cut into parts, which
    repeat the tensors that are given."""
    subject = Subject(op)
    block = Case("this call", subject.arguments, tuple(op.signature.bind_call(args, kwargs)), ())
    for start, comparisons in _windows(subject, block, cut, _lengthened_outputs(subject, block, cut)):
        assert_all(comparisons, f"{op.name} is not its reference from {start} on")


Output = tuple[str, "torch.Tensor | None", int]
"""Its name, the tensor, and the dimension along which it is cut."""


def _lengthened_outputs(subject: Subject, block: Case, cut: Cut) -> list[Output]:
    pairs = zip(block.every_tensor(), cut.axes, strict=True)
    return _outputs(subject, block, cut, [t if axis is None else lengthened(t, axis, cut.parts) for t, axis in pairs])


def _outputs(subject: Subject, case: Case, cut: Cut, tensors: list[torch.Tensor]) -> list[Output]:
    """Results, and gradients of the tensors that are cut."""
    names = [name for name, _, _ in case.named_tensors()]
    asked = [
        (tensor, name, axis)
        for tensor, name, axis in zip(tensors, names, cut.axes, strict=True)
        if cut.gradients and axis is not None and tensor.is_floating_point()
    ]
    for tensor, _, _ in asked:
        tensor.requires_grad_()
    results = listed(subject.raw(call_values.with_tensors(subject.arguments, case.values, tensors)))
    names = ["result"] if len(results) == 1 else [f"result {index}" for index in range(len(results))]
    outputs: list[Output] = list(zip(names, results, cut.result_axes, strict=True))
    if cut.gradients:
        targets = [result for result in results if result.requires_grad]
        ones = [result.new_ones(()).expand_as(result) for result in targets]
        grads = torch.autograd.grad(targets, [tensor for tensor, _, _ in asked], ones, allow_unused=True)
        outputs += [(f"gradient of {name}", grad, axis) for grad, (_, name, axis) in zip(grads, asked, strict=True)]
    return outputs


def _windows(subject: Subject, block: Case, cut: Cut, outputs: list[Output]) -> Iterator[tuple[int, list[Comparison]]]:
    """(start, comparisons) for each window. The inputs come from the block, since an op that works in place has changed
    its own."""
    length = min(WINDOW, cut.parts)
    only = [place for place, axis in enumerate(cut.axes) if axis is not None]

    def window(start: int) -> list[Any]:
        places = torch.arange(start, start + length)
        pairs = zip(block.every_tensor(), cut.axes, strict=True)
        tensors = [t if a is None else t.index_select(a, (places % t.shape[a]).to(t.device)) for t, a in pairs]
        return call_values.with_tensors(subject.arguments, block.values, tensors)

    rounding = rounding_of(subject.op, window(0), cut.gradients)
    for start in _starts(cut.parts, cut.seed):
        truth = Truth(
            subject.arguments, subject.inline, window(start), cut.gradients, rounding, only=only, lay=torch.ones_like
        )
        given = [(what, None if t is None else t.detach().narrow(axis, start, length)) for what, t, axis in outputs]
        yield start, truth.beside(given)


def _starts(parts: int, seed: int) -> list[int]:
    """Windows at both ends, around the powers of two where 32 bits end, and some others."""
    last = max(0, parts - WINDOW)
    ends = [2**power // divisor for power in (31, 32) for divisor in (1, 2, 4)]
    generator = random.Random(seed)
    drawn = [generator.randint(0, last) for _ in range(WINDOWS)]
    return sorted({min(last, max(0, place)) for place in (0, last, *(end - WINDOW // 2 for end in ends), *drawn)})


# --- Calls that split -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """`axes`: the dimension along which each tensor is cut, None for one that all parts share; `result_axes`: that of
    each result. `sizes`: those of the pattern's other groups. `elements`: of the inputs and of the results in one part;
    `largest`: of the largest tensor among them."""

    subject: Subject
    pattern: Pattern
    sizes: tuple[int, ...]
    group: int
    dtype: torch.dtype
    axes: tuple[int | None, ...]
    result_axes: tuple[int, ...] = ()
    elements: tuple[int, int] = (0, 0)
    largest: int = 1

    def case(self, parts: int) -> Case:
        """The call with so many parts."""
        sizes = [parts if index == self.group else size for index, size in enumerate(self.sizes)]
        return self.pattern.case(sizes, seed=self.subject.seed, name=self.describe(parts))

    def describe(self, parts: int) -> str:
        """'x.shape[0] = 7, bfloat16'"""
        return f"{self.pattern.described(self.group, parts)}, {short(self.dtype)}"


def plan(subject: Subject, dtype: torch.dtype) -> Plan | None:
    """Along the first dimension that allows it, other dimensions as small as may be."""
    for pattern in [flat_pattern(subject, dtype)] if subject.elementwise else patterns_of(subject, dtype):
        if not pattern.groups:
            continue
        skip_random(subject, pattern.base)
        pairs = zip(pattern.groups, pattern.sizes_of(pattern.base), strict=True)
        sizes = tuple(size if group.is_constant else min(size, 2) for group, size in pairs)
        for group in range(len(pattern.groups)):
            found = None if group in pattern.frozen else _along(subject, pattern, sizes, group, dtype)
            if found is not None:
                return found
    return None


def _along(subject: Subject, pattern: Pattern, sizes: tuple[int, ...], group: int, dtype: torch.dtype) -> Plan | None:
    places = pattern.groups[group].places
    if len(dict(places)) != len(places):
        return None  # two dimensions of one tensor
    axes = tuple(dict(places).get(slot) for slot in range(len(pattern.slots)))
    bare = Plan(subject, pattern, sizes, group, dtype, axes)
    whole, more = bare.case(TRIED), bare.case(TRIED + 1)
    if not (taken(subject, whole) and taken(subject, more)):
        return None
    results, others = _exactly(subject, whole.values), _exactly(subject, more.values)
    grown = [
        [axis for axis in range(mine.ndim) if mine.shape[axis] != other.shape[axis]]
        for mine, other in zip(results, others, strict=True)
    ]
    if not results or any(len(each) != 1 for each in grown):
        return None
    result_axes = tuple(each[0] for each in grown)
    tensors = present(subject.arguments, whole.values)
    for part in range(TRIED):
        cut = [t if axis is None else t.narrow(axis, part, 1) for t, axis in zip(tensors, axes, strict=True)]
        alone = _exactly(subject, call_values.with_tensors(subject.arguments, whole.values, cut))
        for mine, other, axis in zip(results, alone, result_axes, strict=True):
            if not torch.allclose(mine.narrow(axis, part, 1), other, rtol=1e-9, atol=0.0):
                return None
    tensors = [t for t, axis in zip(tensors, axes, strict=True) if axis is not None]
    elements = sum(t.numel() for t in tensors) // TRIED, sum(r.numel() for r in results) // TRIED
    largest = max(tensor.numel() for tensor in (*tensors, *results)) // TRIED
    return Plan(subject, pattern, sizes, group, dtype, axes, result_axes, elements, largest)


def _exactly(subject: Subject, values: Sequence[Any]) -> list[torch.Tensor]:
    """The reference on the CPU in float64: on a GPU, and in half types, bits may depend on how many parts there are."""
    wide = call_values.mapped(
        subject.arguments, values, lambda t: t.cpu().double() if t.is_floating_point() else t.cpu()
    )
    return [result.detach() for result in subject.reference(wide)]


# --- Memory -----------------------------------------------------------------------------------------------------------

CGROUP = Path("/sys/fs/cgroup")
SELF = Path("/proc/self")


def _needed(subject: Subject, found: Plan, parts: int, gradients: bool) -> float:
    """Bytes of a call, extrapolated from smaller ones: what torch allocates and, on a CPU, what the process grows by.
    Kernels that take no strides copy a gradient of ones that are all at one address."""
    small, larger = (max(1, min(elements // found.largest, parts)) for elements in (MEASURED, WATCHED))
    taken = measured(subject, subject.raw, found.case(small).values, gradients).peak / small
    taken += found.elements[1] * found.dtype.itemsize * gradients
    if subject.device == "cpu":
        case, cut = found.case(larger), Cut(found.axes, found.result_axes, larger, gradients, subject.seed)
        taken = max(taken, growth(lambda: _outputs(subject, case, cut, case.every_tensor())) / larger)
    return MARGIN * parts * (found.elements[0] * found.dtype.itemsize + taken)


def free_bytes(device: str) -> int:
    """Of the GPU, or of this machine and its container."""
    if device == "cuda":
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])
    return min(_fields(Path("/proc/meminfo"))["MemAvailable"] * 1024, _free_in_container())


def growth(function: Callable[[], Any]) -> int:
    """Bytes by which this process grows at most during a call, including memory that a C++ kernel allocates itself.
    Zero if the system does not report it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # free memory of the process would be used first
        (SELF / "clear_refs").write_text("5")  # resets the peak
        before = _fields(SELF / "status")["VmRSS"]
        function()
        return max(0, _fields(SELF / "status")["VmHWM"] - before) * 1024
    return 0


def _free_in_container() -> int:
    try:
        limit, used = (CGROUP / "memory.max").read_text().strip(), (CGROUP / "memory.current").read_text()
        cached = _fields(CGROUP / "memory.stat").get("inactive_file", 0)
        return 1 << 62 if limit == "max" else int(limit) - int(used) + cached
    except (OSError, ValueError):
        return 1 << 62


def _fields(file: Path) -> dict[str, int]:
    """The lines of a file that are a name and a number: 'MemAvailable:  1024 kB', 'inactive_file 4096'."""
    words = (line.split() for line in file.read_text().splitlines())
    return {each[0].rstrip(":"): int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _gibibytes(count: float) -> str:
    return f"{count / 2**30:.1f}"
