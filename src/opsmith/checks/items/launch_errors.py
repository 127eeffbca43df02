"""Launch errors are raised: none is left behind or swallowed, and no size is skipped silently."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ...operator import child_process
from ...toolchain.process import run
from ..cases.case import Case
from ..memory import filled_by_torch
from ..outcome import Failed, Skipped
from ..reproduction import not_importable, setup
from ..subject import Subject
from . import _gpu
from ._choice import accelerated, has_gradients, outputs_of
from ._odd_sizes import odd_cases
from ._truth import matching

ON = ("cuda",)
ORDER = 90  # what goes wrong here may take the GPU's context with it
SECONDS = {"quick": 3.0, "full": 20.0}
"""After which no further size is tried."""
TIMEOUT = 120.0
SILENT, LOUD = 70, 71
"""How the process ends in which a kernel has failed before the op was called: it returned, or it raised."""


def check(subject: Subject) -> str:
    if not accelerated(subject):
        raise Skipped("it has no kernel of its own: torch launches, and torch checks")
    runtime = _gpu.cuda_runtime()
    if runtime is None:
        raise Skipped("torch has the CUDA runtime built in, and what that keeps of errors cannot be read")
    case = subject.first_case()
    # Before anything else calls the op: an error that is left behind is raised by whatever torch does next.
    _Launches(subject, "", runtime, gradients=False).leave_no_error(case)
    gradients = has_gradients(subject, case)
    tried = 0
    for choice in _gpu.choices(subject):
        with _gpu.chosen(subject, choice):
            launches = _Launches(subject, choice, runtime, gradients)
            launches.leave_no_error(case)
            launches.swallow_no_error(case)
            began = time.perf_counter()
            for odd in odd_cases(subject):
                launches.take_or_raise(odd)
                tried += 1
                if time.perf_counter() - began > SECONDS[subject.level]:
                    break
    found = f"{tried} sizes at which a launch may fail"
    return f"{found}; {_after_a_fault(subject, case)}" if subject.full else found


class _Launches:
    def __init__(self, subject: Subject, choice: str, runtime: Any, gradients: bool) -> None:
        self.subject, self.choice, self.runtime, self.gradients = subject, choice, runtime, gradients

    def leave_no_error(self, case: Case) -> list[torch.Tensor]:
        """The results of a call, forward and backward, that leaves the runtime as it was."""
        left: list[tuple[str, int]] = []

        def look(where: str) -> None:
            left.append((where, self.runtime.cudaGetLastError()))

        self.runtime.cudaGetLastError()
        values, leaves = list(case.values), []
        if self.gradients:
            asking = case.requiring()
            leaves = [leaf for _, leaf in asking.leaves()]
            values = asking.replaced([_Behind.apply(leaf, look) for leaf in leaves])  # type: ignore[no-untyped-call]
        results = self.subject.call(values)
        look("forward")
        targets = [result for result in results if result.requires_grad]
        if targets:
            ones = [torch.ones_like(target) for target in targets]
            torch.autograd.grad(targets, leaves, ones, allow_unused=True)
        for where, code in left:
            if code:
                raise self._left(case, where, code)
        return [result.detach() for result in results]

    def swallow_no_error(self, case: Case) -> None:
        """An error that somebody's call has left before must be raised, or left where it is."""
        torch.cuda.synchronize()
        self.runtime.cudaSetDevice(-1)
        if not self.runtime.cudaPeekAtLastError():
            return
        try:
            self.subject.call(case.values)
            swallowed = not self.runtime.cudaPeekAtLastError()
        except RuntimeError:
            swallowed = False
        finally:
            self.runtime.cudaGetLastError()
        if swallowed:
            message = (
                "the error that an earlier CUDA call has left is gone afterwards, and was not raised: it calls "
                "cudaGetLastError and does not look at the answer"
            )
            lines = [
                *_RUNTIME,
                case.call(),
                "torch.cuda.synchronize()",
                "runtime.cudaSetDevice(-1)  # leaves an error, as a launch that fails does",
                "raised = False",
                "try:",
                f"    {case.call()}",
                "except RuntimeError:",
                "    raised = True",
                "assert raised or runtime.cudaPeekAtLastError(), 'the error is gone'",
            ]
            raise self._failed(case, message, lines)

    def take_or_raise(self, case: Case) -> None:
        """An op may refuse a size. What it returns must have been written."""
        try:
            with filled_by_torch():
                results = self.leave_no_error(case)
            torch.cuda.synchronize()
        except Failed:
            raise
        except Exception as error:
            self._survived(case, error)
            return
        if not any(_unwritten(result) for result in results):
            return
        # NaN, or the largest integer: perhaps rightly so.
        for mine, theirs in zip(results, self.subject.reference(case.values), strict=True):
            missing = _unwritten(mine) - _unwritten(theirs)
            if missing > 0:
                message = (
                    f"{missing} of {mine.numel()} elements of a result have not been written, and nothing was raised: "
                    "a launch has failed, or its grid does not reach so far"
                )
                filling = "torch.use_deterministic_algorithms(True, warn_only=True)  # fills torch.empty with NaN"
                raise self._failed(case, message, [filling, matching(case, gradients=False)])

    def _survived(self, case: Case, raised: Exception) -> None:
        """Raised is what an error should be; unless a kernel ran and went wrong, after which the GPU is lost."""
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            message = f"a kernel fails, and no CUDA call can succeed in this process any more: {_first_line(error)}"
            lines = [outputs_of(case, self.gradients), "torch.cuda.synchronize()"]
            raise self._failed(case, message, lines) from raised

    def _left(self, case: Case, where: str, code: int) -> Failed:
        message = (
            f"{where} leaves CUDA error {code} behind ({_error_string(self.runtime, code)}), which torch's next "
            "kernel raises in its place. After a launch, check cudaGetLastError(): in C++, "
            "C10_CUDA_KERNEL_LAUNCH_CHECK()"
        )
        others = "x = torch.ones(1, device='cuda', requires_grad=True)\nx.mul(2).sum().backward()  # which is sound"
        return self._failed(case, message, [outputs_of(case, where == "backward"), *others.split("\n")])

    def _failed(self, case: Case, message: str, lines: Sequence[str]) -> Failed:
        return Failed(f"{case.name}{_gpu.by(self.choice)}: {message}", case, _gpu.using(self.choice, lines))


class _Behind(torch.autograd.Function):
    """Nothing, with a look right behind what comes after it, on the way back: on the thread that launches there."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, look: Callable[[str], None]) -> torch.Tensor:
        ctx.look = look
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.look("backward")
        return grads[0], None


_RUNTIME = (
    "import ctypes",
    "runtime = ctypes.CDLL('libcudart.so.' + torch.version.cuda.split('.')[0])",
)


def _error_string(runtime: Any, code: int) -> str:
    import ctypes

    runtime.cudaGetErrorString.restype = ctypes.c_char_p
    return str(runtime.cudaGetErrorString(code).decode(errors="replace"))


def _unwritten(tensor: torch.Tensor) -> int:
    """Elements that hold what torch fills memory with. Not known for bool and complex tensors."""
    if tensor.is_floating_point():
        return int(tensor.isnan().sum())
    if tensor.dtype is torch.bool or tensor.is_complex():
        return 0
    return int((tensor == torch.iinfo(tensor.dtype).max).sum())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# --- After a kernel has failed ----------------------------------------------------------------------------------------


def _after_a_fault(subject: Subject, case: Case) -> str:
    """In a process of its own: once a kernel has failed no launch succeeds, and the op must say so."""
    if reason := not_importable(subject.op):
        return f"not called after a kernel has failed: {reason}"
    text = "\n".join([*setup(subject.op, in_child=True), *case.lines, *_faulted(case, LOUD, SILENT)])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "after_a_fault.py"
        file.write_text(text + "\n")
        try:
            outcome = run([sys.executable, str(file)], env=child_process.environment(), timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"a process to call it after a kernel has failed did not end in {TIMEOUT:.0f} s"
    if outcome.status == SILENT:
        message = (
            f"{case.name}: called after another kernel has failed, it returns as if nothing had happened: what a "
            "launch returns is not looked at"
        )
        raise Failed(message, case, _faulted(case, 0, 1))
    if outcome.status != LOUD:
        last = (outcome.output.strip().splitlines() or ["nothing"])[-1]
        return f"a process to call it after a kernel has failed ended by itself, saying {last}"
    return "raises after a kernel has failed"


def _faulted(case: Case, loud: int, silent: int) -> list[str]:
    """Lines that end their process with either status."""
    return [
        "import os, sys",
        f"{case.call()}, {case.call()}  # and memory is there for a third",
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
