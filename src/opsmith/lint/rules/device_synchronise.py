"""device-synchronise: host code that waits for the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from ...cuda_text.code import Code
from ...cuda_text.functions import Function
from ..rule import Problem, rule
from ..source import Source

_LEAVE_OUT = "Leave it out: later work on the stream waits by itself, and so does reading the result."
_COPY = "Copy on torch's current stream: cudaMemcpyAsync, or Tensor::copy_."
_WAITS = {
    "cudaDeviceSynchronize": ("waits until the whole GPU is idle", _LEAVE_OUT),
    "cudaThreadSynchronize": ("waits until the whole GPU is idle", _LEAVE_OUT),
    "cuCtxSynchronize": ("waits until the whole GPU is idle", _LEAVE_OUT),
    "cudaStreamSynchronize": ("waits until the stream is idle", _LEAVE_OUT),
    "cuStreamSynchronize": ("waits until the stream is idle", _LEAVE_OUT),
    "cudaEventSynchronize": ("waits for the GPU", "Let a stream wait for it: cudaStreamWaitEvent."),
    "cudaMemcpy": ("waits until the copy is done", _COPY),
    "cudaMemcpy2D": ("waits until the copy is done", _COPY),
    "cudaFree": ("waits until the whole GPU is idle", "Take the memory as a tensor: torch's allocator does not wait."),
}
_TO_HOST = {"kCPU", "CPU"}


@rule("Waiting in an op leaves the GPU idle between kernels, and cannot be captured in a CUDA graph.")
def device_synchronise(source: Source) -> Iterator[Problem]:
    """A wait in host code: by name, by .item(), or by a copy to the CPU. Programs with a `main` are let be.

    Bad:

        void scale(float* x, int64_t n, cudaStream_t stream) {
          scale_kernel<<<blocks, threads, 0, stream>>>(x, n);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
          cudaDeviceSynchronize();
        }

    Bad:

        #include <ATen/cuda/CUDAContext.h>
        float largest(const torch::Tensor& x) { return x.max().item<float>(); }

    Good:

        void scale(float* x, int64_t n, cudaStream_t stream) {
          scale_kernel<<<blocks, threads, 0, stream>>>(x, n);
          C10_CUDA_KERNEL_LAUNCH_CHECK();
        }
    """
    if source.is_program:
        return
    for function in source.host_functions:
        for name, (what, remedy) in _WAITS.items():
            for call in source.code.calls(name, function.body):
                # One that frees what another has allocated may well be called when all is over.
                if name != "cudaFree" or any(source.code.calls("cudaMalloc", function.body)):
                    yield Problem(source.code, call.name, f"{name} {what}.", remedy)
        yield from _torch_waits(source, function)
        if source.is_cuda:
            yield from _copies(source, function)


def _torch_waits(source: Source, function: Function) -> Iterator[Problem]:
    code = source.code
    for call in code.calls("synchronize", function.body):
        before = code.at(call.name - 1)
        owner = code.at(call.name - 2)
        if before == "::" and owner == "cuda":
            yield Problem(code, call.name, "torch::cuda::synchronize waits until the whole GPU is idle.", _LEAVE_OUT)
        elif before in (".", "->") and ("stream" in owner.lower() or owner == ")"):
            yield Problem(code, call.name, "synchronize() waits until the stream is idle.", _LEAVE_OUT)


def _copies(source: Source, function: Function) -> Iterator[Problem]:
    """.item(), .cpu(), .to(torch::kCPU)"""
    code = source.code
    for name in ("item", "cpu", "to"):
        for call in code.calls(name, function.body):
            if code.at(call.name - 1) not in (".", "->") or _expects(source, call.name):
                continue
            if name == "to" and not any(_TO_HOST.intersection(code.texts[slice(*each)]) for each in call.arguments):
                continue
            if name != "to" and call.arguments:
                continue
            if name == "item" and code.at(call.name - 2) == ")" and _called(code, call.name - 2) == "cpu":
                continue  # told of .cpu()
            yield Problem(
                code,
                call.name,
                f".{name}() waits until the GPU has computed the tensor.",
                "Leave the value on the GPU, and give the kernel a pointer to it.",
            )


def _called(code: Code, closing: int) -> str:
    """The name of the call that ends with a bracket."""
    return code.at(code.before_template(code.partner[closing] - 1))


def _expects(source: Source, index: int) -> bool:
    """opsmith::expect(x, "x").cpu() asks where a tensor is."""
    code = source.code
    while code.at(index - 1) in (".", "->") and code.at(index - 2) == ")":
        index = code.before_template(code.partner[index - 2] - 1)
        if code.at(index) == "expect":
            return True
    return False
