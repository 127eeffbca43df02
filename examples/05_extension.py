"""C++ and CUDA sources as kernels of an op.

`opsmith.extension` builds them once, on torch's stable ABI, and its functions go to `register_kernel`: torch's
dispatcher calls them with no Python between. The gradient is still derived from the reference. Beside this file:
05_extension.cpp and 05_extension.cu.
"""

# [declare]
from pathlib import Path

import torch

import opsmith


@opsmith.op("examples::rms_norm")
def rms_norm(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """y = x / sqrt(mean(x^2) + eps) over each row of x [rows, columns]."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


here = Path(__file__).parent
sources = [here / "05_extension.cpp", here / "05_extension.cu"]
ext = opsmith.extension("rms_norm_ext", sources, cuda=torch.cuda.is_available())  # without a GPU the .cu is left out
rms_norm.register_kernel("cpu", ext.rms_norm_cpu)
if torch.cuda.is_available():
    rms_norm.register_kernel("cuda", ext.rms_norm_cuda)
# [declare]


@rms_norm.register_samples
def _(device: torch.device, dtype: torch.dtype):
    yield opsmith.Sample(args=(torch.randn(64, 300, device=device, dtype=dtype),), name="64 rows")
    yield opsmith.Sample(args=(torch.randn(30, 8, device=device, dtype=dtype).t(),), name="transposed")
    yield opsmith.Sample(args=(torch.randn(0, 8, device=device, dtype=dtype),), name="no rows")


def main() -> None:
    from opsmith.checks import compare_samples

    device = "cuda" if torch.cuda.is_available() else "cpu"
    for comparison in compare_samples(rms_norm, device):  # results and gradients, against the reference
        print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")
    print(ext)

    # [refused]
    try:
        rms_norm(torch.ones(2, 3, dtype=torch.int32))
    except RuntimeError as error:
        print(f"refused: {error}")
    # [refused]


if __name__ == "__main__":
    main()
