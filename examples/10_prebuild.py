"""Kernels that `opsmith build` compiles ahead of time: those of the samples, and of other calls that users make.

python examples/10_prebuild.py
"""

import torch

import opsmith


# [op]
def images(device, dtype):
    x = torch.randn(2, 8, 4, 4, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, torch.randn(8, 1, 1, device=device, dtype=dtype)), name="images, per-channel factor")


@opsmith.pointwise("examples::scaled_relu", prebuild=images)
def scaled_relu(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * scale)


@scaled_relu.register_samples  # what check and bench run; `opsmith build` builds for these too
def _(device, dtype):
    x = torch.randn(16, 8, device=device, dtype=dtype)
    yield opsmith.Sample(args=(x, torch.randn(8, device=device, dtype=dtype)), name="16x8")


# [op]


def main() -> None:
    calls = [*scaled_relu.samples_for("cpu", torch.float32), *images("cpu", torch.float32)]
    for sample in calls:
        result, expected = scaled_relu(*sample.args), scaled_relu.inline(*sample.args)
        print(f"{sample.name}: as the reference: {torch.equal(result, expected)}")


if __name__ == "__main__":
    main()
