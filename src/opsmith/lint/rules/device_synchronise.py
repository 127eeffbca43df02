"""device-synchronise: host code that waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text import Function
from ..rule import Problem, rule
from ..source import Source

_REMOVE = "Remove it: later work on the stream waits by itself, and so does reading the result."
_COPY = "Copy on torch's current stream: cudaMemcpyAsync, or Tensor::copy_."
_WAITS = {
    "cudaDeviceSynchronize": ("waits until the whole GPU is idle", _REMOVE),
    "cudaThreadSynchronize": ("waits until the whole GPU is idle", _REMOVE),
    "cuCtxSynchronize": ("waits until the whole GPU is idle", _REMOVE),
    "cudaStreamSynchronize": ("waits until the stream is idle", _REMOVE),
    "cuStreamSynchronize": ("waits until the stream is idle", _REMOVE),
    "cudaEventSynchronize": ("waits for the GPU", "Let a stream wait for it: cudaStreamWaitEvent."),
    "cudaMemcpy": ("waits until the copy is done", _COPY),
    "cudaMemcpy2D": ("waits until the copy is done", _COPY),
    "cudaFree": ("waits until the whole GPU is idle", "Allocate a tensor instead: torch's allocator does not wait."),
}
_TO_HOST = {"kCPU", "CPU"}


@rule("Waiting in an op leaves the GPU idle between kernels, and cannot be captured in a CUDA graph.")
def device_synchronise(source: Source) -> Iterator[Problem]:
    """A wait in host code: by name, by .item(), or by a copy to the CPU. Programs with a `main` may wait."""
    if source.is_program:
        return
    for function in source.host_functions:
        for name, (what, remedy) in _WAITS.items():
            for call in source.code.calls(name, function.body):
                # Memory that another function allocated may be freed when all work is done.
                if name != "cudaFree" or any(source.code.calls("cudaMalloc", function.body)):
                    yield Problem(source.code, call.name, f"{name} {what}.", remedy)
        yield from _torch_waits(function)
        if source.is_cuda:
            yield from _copies(function)


def _torch_waits(function: Function) -> Iterator[Problem]:
    code = function.code
    for call in code.calls("synchronize", function.body):
        before = code.at(call.name - 1)
        owner = code.at(call.name - 2)
        if before == "::" and owner == "cuda":
            yield Problem(code, call.name, "torch::cuda::synchronize waits until the whole GPU is idle.", _REMOVE)
        elif before in (".", "->") and ("stream" in owner.lower() or owner == ")"):
            yield Problem(code, call.name, "synchronize() waits until the stream is idle.", _REMOVE)


def _copies(function: Function) -> Iterator[Problem]:
    """.item(), .cpu(), .to(torch::kCPU)"""
    code = function.code
    for name in ("item", "cpu", "to"):
        for call in code.calls(name, function.body):
            to_host = bool(_TO_HOST.intersection(code.texts[call.opening : call.closing]))
            is_copy = to_host if name == "to" else not call.arguments
            after_cpu = name == "item" and code.at(code.called(call.name - 2)) == "cpu"  # .cpu() is reported
            if (
                is_copy
                and not after_cpu
                and code.at(call.name - 1) in (".", "->")
                and not _expects(function, call.name)
            ):
                message = f".{name}() waits until the GPU has computed the tensor."
                remedy = "Leave the value on the GPU, and pass the kernel a pointer to it."
                yield Problem(code, call.name, message, remedy)


def _expects(function: Function, index: int) -> bool:
    """opsmith::expect(x, "x").cpu() checks where a tensor is."""
    code = function.code
    while code.at(index - 1) in (".", "->") and code.at(index - 2) == ")":
        index = code.called(index - 2)
        if code.at(index) == "expect":
            return True
    return False
