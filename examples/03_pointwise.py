"""Plain PyTorch in, fused kernels out.

A function in which each element of the result depends only on the elements at the same position of the inputs is
declared with `opsmith.pointwise`. Its kernels are generated: one per direction, in C++ and in CUDA. Here: what that
saves, what the gradient of a broadcast input is, what is refused, and how to see the kernel.
"""

# [pointwise]
import torch

import opsmith


@opsmith.pointwise("examples::scale_bias_relu")
def scale_bias_relu(x: torch.Tensor, bias: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return torch.relu(x * scale + bias)


# [pointwise]


@scale_bias_relu.register_samples
def _(device: torch.device, dtype: torch.dtype):
    x = torch.randn(64, 48, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, torch.randn(48, device=device, dtype=dtype), 0.5), name="a bias a column")
    images = torch.randn(2, 3, 8, 8, device=device, dtype=dtype).to(memory_format=torch.channels_last)
    yield opsmith.Sample(args=(images, torch.randn(3, 1, 1, device=device, dtype=dtype)), name="a bias a channel")


# [two_results]
@opsmith.pointwise("examples::rotate")
def rotate(x: torch.Tensor, y: torch.Tensor, angle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Several results are one kernel; `angle` may be one number, or one per column or row: [], [n], [m, 1]."""
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return x * cosine - y * sine, x * sine + y * cosine


# [two_results]


# [choice]
@opsmith.pointwise("examples::soft_clip")
def soft_clip(x: torch.Tensor, limit: float, smooth: bool = True) -> torch.Tensor:
    if smooth:  # a bool or a string is compiled in: the function may branch on it
        return limit * torch.tanh(x / limit)
    return torch.where(x.abs() <= limit, x, limit * torch.sign(x))  # on values, torch.where


# [choice]


# [inplace]
@opsmith.pointwise("examples::decay_", mutates_args=("x",))
def decay_(x: torch.Tensor, rate: float) -> None:
    x.mul_(1 - rate)


# [inplace]


def main() -> None:
    from opsmith.checks import compare_samples

    for comparison in compare_samples(scale_bias_relu):  # the kernels against the reference: results and gradients
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")

    # [backward]
    x, bias = torch.randn(1024, 256), torch.zeros(256, requires_grad=True)
    y = scale_bias_relu(x, bias, 0.5)
    y.sum().backward()  # one kernel: the 1024 rows are summed in it, in an order that is the same in every run
    assert torch.equal(bias.grad, (y > 0).sum(0).float())
    # [backward]
    print("gradient of the bias:", tuple(bias.grad.shape))

    # [saved]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        scale_bias_relu(x, bias)
    # [saved]
    print("saved for backward:", [tuple(tensor.shape) for tensor in kept])  # the result; x * scale + bias never existed

    real, imaginary = rotate(torch.ones(3), torch.zeros(3), torch.tensor(torch.pi / 2))
    print("rotated:", [round(value, 3) + 0.0 for value in real.tolist()], imaginary.tolist())
    print("clipped:", soft_clip(torch.tensor([-3.0, 0.5, 3.0]), 1.0, smooth=False).tolist())
    print("in place:", decay_(torch.ones(2), 0.25).tolist())

    # [layout]
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    result = scale_bias_relu(images, torch.zeros(3, 1, 1))
    assert result.is_contiguous(memory_format=torch.channels_last)  # a dense layout is kept
    # [layout]
    print("channels last stays channels last:", result.stride() == images.stride())

    # [compile]
    step = torch.compile(lambda v: scale_bias_relu(v, bias) * 2, fullgraph=True, backend="aot_eager")
    fused = torch.compile(lambda v: scale_bias_relu.inline(v, bias) * 2, fullgraph=True, backend="aot_eager")
    # [compile]
    print("compiled:", torch.allclose(step(x), fused(x)))

    # [refused]
    try:

        @opsmith.pointwise("examples::softmax")
        def softmax(x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(x, dim=-1)

    except opsmith.OpsmithError as error:
        print(f"refused: {error}")
    # [refused]

    # [source]
    print(scale_bias_relu.source("cuda").splitlines()[0])  # or: opsmith show NAME --source cuda --from FILE.py
    # [source]


if __name__ == "__main__":
    main()
