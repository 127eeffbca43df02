"""convrnn: a recurrence whose step is a short convolution over the hidden units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

import opsmith

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "none": lambda sums: sums,
}


@opsmith.op("opsmith::convrnn", autocast="lower")
def convrnn(x: Tensor, kernel: Tensor, hidden: Tensor, activation: str = "tanh") -> Tensor:
    """h_t = act(conv1d(h_{t-1}, kernel) + x_t), for x [B, T, H], kernel [1, 1, K], hidden [B, H] and h [B, T, H].

    K is odd and the padding K // 2; activation is 'tanh', 'relu' or 'none'. All h_t are returned; `hidden` is h_0."""
    check(x, kernel, hidden, activation)
    if x.numel() == 0:
        return x.clone()
    states = []
    for input in x.unbind(1):
        sums = functional.conv1d(hidden.unsqueeze(1), kernel, padding=kernel.shape[2] // 2).squeeze(1) + input
        hidden = ACTIVATIONS[activation](sums)
        states.append(hidden)
    return torch.stack(states, dim=1)


def check(x: Tensor, kernel: Tensor, hidden: Tensor, activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise ValueError(f"convrnn: activation is {activation!r}; it takes 'tanh', 'relu' or 'none'")
    if x.ndim != 3:
        raise ValueError(f"convrnn: x has shape {tuple(x.shape)}; it takes [batch, steps, units]")
    if kernel.ndim != 3 or kernel.shape[:2] != (1, 1) or kernel.shape[2] % 2 == 0:
        raise ValueError(f"convrnn: kernel has shape {tuple(kernel.shape)}; it takes [1, 1, K] with an odd K")
    if hidden.shape != (x.shape[0], x.shape[2]):
        raise ValueError(
            f"convrnn: hidden has shape {tuple(hidden.shape)}; beside x {tuple(x.shape)} it takes "
            f"{(x.shape[0], x.shape[2])}"
        )
    if not x.dtype == kernel.dtype == hidden.dtype:
        raise TypeError(
            f"convrnn: x is {x.dtype}, kernel {kernel.dtype} and hidden {hidden.dtype}; it takes three of one dtype"
        )


@convrnn.register_fake
def _(x: Tensor, kernel: Tensor, hidden: Tensor, activation: str = "tanh") -> Tensor:
    check(x, kernel, hidden, activation)
    return x.new_empty(x.shape)


# --- Kernels ----------------------------------------------------------------------------------------------------

_cpp = opsmith.extension(
    "opsmith_convrnn", Path(__file__).parent / "kernel.cpp", extra_cflags=("-march=native",), lazy=True
)

convrnn.register_kernel("cpu", _cpp.convrnn_forward)
convrnn.register_backward("cpu", _cpp.convrnn_backward, saves=("x", "kernel", "hidden", "activation", "output"))


# NVRTC compiles the lambdas in it as host code without this option.
source = opsmith.cuda_source(Path(__file__).parent / "kernel.cu", options=("-default-device",))
_launch = opsmith.extension("opsmith_convrnn_cuda", Path(__file__).parent / "launch.cpp", kernels=source, lazy=True)

convrnn.register_kernel("cuda", _launch.convrnn_cuda_forward)
convrnn.register_backward(
    "cuda", _launch.convrnn_cuda_backward, saves=("x", "kernel", "hidden", "activation", "output")
)

INSTANCES = [
    f"convrnn::{kernel}<{arguments}>"
    for kernel, more in (("forward", ""), ("backward", ", true, true"))
    for arguments in (
        f"float, 3, 2, 2, true, false, 32, 2, 32{more}",
        f"double, 15, 4, 1, false, false, 128, 1, 4{more}",
        f"opsmith::bfloat16, 5, 4, 2, false, true, 1024, 2, 8{more}",
        f"opsmith::float16, 3, 2, 2, true, false, 128, 0, 16{more}",
    )
]
"""The instances that the tests compile for every GPU: each element type, each way of dividing a sequence."""

# --- Samples ---------------------------------------------------------------------------------------------------


@convrnn.register_samples
def samples(device: str | torch.device, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
    def sample(name: str, batch: int, steps: int, units: int, taps: int, activation: str = "tanh") -> opsmith.Sample:
        generator = torch.Generator().manual_seed(batch * steps + units + taps)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)

        kernel = draw(1, 1, taps)
        kernel = kernel / kernel.abs().sum()  # so that the recurrence does not magnify rounding
        return opsmith.Sample(args=(draw(batch, steps, units), kernel, draw(batch, units), activation), name=name)

    yield sample("T=64 H=64", 4, 64, 64, 3)
    yield sample("relu", 3, 12, 64, 3, "relu")
    yield sample("no activation", 3, 12, 48, 5, "none")
    for units, taps in ((1, 1), (33, 3), (100, 15), (257, 5)):
        yield sample(f"H={units} K={taps}", 2, 6, units, taps)
    yield sample("one step", 3, 1, 40, 3)
    yield sample("no step", 3, 0, 8, 3)
    yield sample("no sequence", 0, 4, 8, 3)
    yield sample("no unit", 2, 4, 0, 3)
    strided = sample("strided", 5, 18, 40, 3)
    x, kernel, hidden, activation = strided.args
    yield opsmith.Sample(args=(x[:, ::2, 1::3], kernel, hidden[:, 1::3], activation), name="strided")
    yield sample("large", 256, 16, 64, 3)


@convrnn.register_cost
def cost(x: Tensor, kernel: Tensor, hidden: Tensor, activation: str = "tanh") -> opsmith.Cost:
    return opsmith.Cost(bytes=2 * x.nbytes + kernel.nbytes + hidden.nbytes, flops=x.numel() * 2 * kernel.shape[2])
