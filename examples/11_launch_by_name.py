"""Kernels of a cuda_source, launched by C++ host code: no Python in a call, and no nvcc.

Without a GPU the same code runs in the emulator. Beside this file: 11_launch_by_name.cpp and 11_launch_by_name.cu.
"""

# [declare]
from pathlib import Path

import torch

import opsmith

here = Path(__file__).parent
cu = opsmith.cuda_source(here / "11_launch_by_name.cu")
ext = opsmith.extension("unit_rows_ext", here / "11_launch_by_name.cpp", kernels=cu, lazy=True)


@opsmith.op("examples::unit_rows")
def unit_rows(x: torch.Tensor) -> torch.Tensor:
    """y = x / |x| over each row of x [rows, columns]."""
    return x / x.float().norm(dim=1, keepdim=True).to(x.dtype)


unit_rows.register_kernel("cuda", ext.normalize)
# [declare]


@unit_rows.register_samples
def _(device: torch.device, dtype: torch.dtype):
    yield opsmith.Sample(args=(torch.randn(30, 100, device=device, dtype=dtype),), name="30 rows")
    yield opsmith.Sample(args=(torch.randn(2, 1500, device=device, dtype=dtype).double(),), name="declined: float64")


def main() -> None:
    from opsmith.checks import compare_samples

    with opsmith.emulate():
        for comparison in compare_samples(unit_rows, "cpu"):  # results and gradients, against the reference
            print(f"{'ok' if comparison else 'WRONG':5} {comparison.what}")
    print(ext)


if __name__ == "__main__":
    main()
