"""Launch errors are raised: none is left behind or swallowed, and no size is skipped silently."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Iterator
from typing import Any

import torch

from ..cases.case import Case
from ..memory import filled_by_torch
from ..outcome import Failed, Skipped
from ..reproduction import in_new_process
from ..subject import SMALL, Subject
from . import _gpu
from ._cases import accelerated, has_gradients
from ._compare import with_kernel

ON = ("cuda",)
ORDER = 90  # what goes wrong here may destroy the GPU's context
SECONDS = {"quick": 3.0, "full": 20.0}
"""After which no further size is tried."""
TIMEOUT = 120.0
SILENT, LOUD = 70, 71
"""Exit status of the process in which a kernel has failed before the op was called: it returned, or it raised."""
QUICK, FULL = (0, 65537), (0, 65537, (1 << 20) + 1)
"""Sizes at which launches fail: an empty grid, a grid that is too large (65535 is the most along y and z), rows too
long for shared memory."""
MOST = 1 << 25
"""Elements of a tensor."""


def check(subject: Subject) -> str:
    if not accelerated(subject):
        raise Skipped("it has no kernel of its own: torch launches, and torch checks")
    if _gpu.cuda_runtime() is None:
        raise Skipped("torch has the CUDA runtime linked in, and the errors that it keeps cannot be read")
    case = subject.first_case()
    # Before anything else calls the op: torch's next call would raise an error that was left behind.
    _Launches(subject, gradients=False).leave_no_error(case)
    tried = sum(_check_kernel(subject, case, kernel) for kernel in _gpu.kernels_to_try(subject))
    found = f"{tried} sizes at which a launch may fail"
    return f"{found}; {_after_a_fault(subject, case)}" if subject.full else found


def check_call(subject: Subject, case: Case) -> None:
    launches = _Launches(subject, has_gradients(subject, case))
    if launches.write_or_raise(case):
        launches.swallow_no_error(case)


def _check_kernel(subject: Subject, case: Case, kernel: str) -> int:
    """Checks one kernel. Returns how many odd sizes were tried."""
    with with_kernel(subject, kernel):
        check_call(subject, case)
        began = time.perf_counter()
        tried = 0
        for odd in odd_cases(subject):
            _Launches(subject, has_gradients(subject, case)).write_or_raise(odd)
            tried += 1
            if time.perf_counter() - began > SECONDS[subject.level]:
                break
        return tried


class _Launches:
    def __init__(self, subject: Subject, gradients: bool) -> None:
        self.subject, self.gradients = subject, gradients
        self.runtime: Any = _gpu.cuda_runtime()

    def leave_no_error(self, case: Case) -> list[torch.Tensor]:
        """The results of a call, forward and backward. Raises Failed if the runtime keeps an error afterwards."""
        left: list[tuple[str, int]] = []

        def record(where: str) -> None:
            left.append((where, self.runtime.cudaGetLastError()))

        self.runtime.cudaGetLastError()
        values, leaves = list(case.values), []
        if self.gradients:
            asking = case.requiring()
            leaves = [leaf for _, leaf in asking.leaves()]
            passed = [leaf.clone() for leaf in leaves]
            for tensor in passed:  # right after the op's backward, on the thread that launches it
                tensor.register_hook(lambda grad: record("backward"))
            values = asking.replaced(passed)
        results = self.subject.call(values)
        record("forward")
        targets = [result for result in results if result.requires_grad]
        if targets:
            ones = [torch.ones_like(target) for target in targets]
            torch.autograd.grad(targets, leaves, ones, allow_unused=True)
        for where, code in left:
            if code:
                self.runtime.cudaGetErrorString.restype = ctypes.c_char_p
                text = self.runtime.cudaGetErrorString(code).decode(errors="replace")
                raise case.failed(
                    f"{where} leaves CUDA error {code} behind ({text}), which torch's "
                    "next kernel raises in its place. After a launch, check cudaGetLastError(): in C++, "
                    "C10_CUDA_KERNEL_LAUNCH_CHECK()"
                )
        return [result.detach() for result in results]

    def swallow_no_error(self, case: Case) -> None:
        """Raises Failed if an error that an earlier call has left is neither raised nor left where it is."""
        torch.cuda.synchronize()
        self.runtime.cudaSetDevice(-1)  # leaves an error, as a failed launch does
        if not self.runtime.cudaPeekAtLastError():
            return
        try:
            self.subject.call(case.values)
            swallowed = not self.runtime.cudaPeekAtLastError()
        except Exception:
            swallowed = False
        finally:
            self.runtime.cudaGetLastError()
        if swallowed:
            raise case.failed(
                "the error that an earlier CUDA call has left is gone afterwards, and was not raised: it calls "
                "cudaGetLastError and ignores what that returns"
            )

    def write_or_raise(self, case: Case) -> bool:
        """Whether the op accepts a size. Raises Failed if it returns memory that was not written."""
        try:
            with filled_by_torch():
                results = self.leave_no_error(case)
            torch.cuda.synchronize()
        except Failed:
            raise
        except Exception as error:
            self._require_context(case, error)
            return False
        if not any(_unwritten(result) for result in results):
            return True
        # NaN, or the largest integer, which may be right.
        for mine, theirs in zip(results, self.subject.reference(case.values), strict=True):
            missing = _unwritten(mine) - _unwritten(theirs)
            if missing > 0:
                raise case.failed(
                    f"{missing} of {mine.numel()} elements of a result have not been written, and nothing was raised: "
                    "a launch has failed, or its grid does not reach so far"
                )
        return True

    def _require_context(self, case: Case, raised: Exception) -> None:
        """An error should be raised, as it was, unless a kernel ran and failed, after which the GPU is lost."""
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            message = f"a kernel fails, and no CUDA call can succeed in this process any more: {reason}"
            raise case.failed(message) from raised


def _unwritten(tensor: torch.Tensor) -> int:
    """Elements that hold what torch fills memory with. Unknown for bool and complex tensors."""
    if tensor.is_floating_point():
        return int(tensor.isnan().sum())
    if tensor.dtype is torch.bool or tensor.is_complex():
        return 0
    return int((tensor == torch.iinfo(tensor.dtype).max).sum())


# --- Odd sizes --------------------------------------------------------------------------------------------------------


def odd_cases(subject: Subject) -> Iterator[Case]:
    """The sample with the most different sizes, with each of them in turn replaced by an odd one in all tensors that
    have it, since equal sizes are usually linked. An op may refuse these calls."""
    filled = [case for case in subject.cases(limit=SMALL) if case.has_elements]
    if not filled:
        return
    case = max(filled, key=lambda case: len(_sizes(case)))
    for new in FULL if subject.full else QUICK:
        for old in _sizes(case):
            counts = [(tensor.numel(), list(tensor.shape).count(old)) for tensor in case.every_tensor()]
            if max(numel // old**count * new**count for numel, count in counts) <= MOST:
                code = f"opsmith.checks.items.launch_errors.stretched({{}}, {old}, {new})"
                name = f"{case.name}, {new} in place of {old}"
                yield case.each_tensor(functools.partial(stretched, old=old, new=new), code, name)


def stretched(tensor: torch.Tensor, old: int, new: int) -> torch.Tensor:
    """With every dimension of size `old` made `new` by repeating its elements."""
    for dim, size in enumerate(tensor.shape):
        if size == old:
            tensor = tensor.index_select(dim, torch.arange(new, device=tensor.device) % old)
    return tensor


def _sizes(case: Case) -> list[int]:
    return sorted({size for tensor in case.every_tensor() for size in tensor.shape if size > 1})


# --- After a kernel has failed ----------------------------------------------------------------------------------------


def _after_a_fault(subject: Subject, case: Case) -> str:
    """Calls the op in a new process in which a kernel has failed: no launch succeeds, and the op must raise."""
    try:
        finished = in_new_process(subject, [*case.lines, *_faulted(case, LOUD, SILENT)], seconds=TIMEOUT)
    except Skipped as reason:
        return f"not called after a kernel has failed: {reason}"
    if finished.status == SILENT:
        message = "called after another kernel has failed, it returns as if nothing had happened: what a launch returns"
        raise case.failed(f"{message} is not checked", _faulted(case, 0, 1))
    if finished.status != LOUD:
        return f"a process to call it after a kernel has failed: {finished.message}"
    return "raises after a kernel has failed"


def _faulted(case: Case, loud: int, silent: int) -> list[str]:
    """Lines that end their process with one of two exit statuses."""
    return [
        "import os, sys",
        f"{case.call()}, {case.call()}  # afterwards torch's cache has memory for a third",
        "torch.cuda.synchronize()",
        "beyond = torch.tensor([9], device='cuda')",
        "try:",
        "    torch.zeros(2, device='cuda')[beyond]  # ends the context: nothing can run after it",
        "    torch.cuda.synchronize()",
        "except RuntimeError:",
        "    try:",
        f"        {case.call()}",
        "    except Exception:",
        f"        os._exit({loud})",
        "    print('it returned as if nothing had happened', file=sys.stderr, flush=True)",
        f"    os._exit({silent})",
    ]
