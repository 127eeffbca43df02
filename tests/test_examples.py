"""Every example runs, and says what it should."""

from __future__ import annotations

from pathlib import Path

import fresh_process
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
GUIDE = Path(__file__).parents[1] / "docs" / "check.md"
SHOWN = [line for line in GUIDE.read_text().splitlines() if line.startswith(("passed ", "failed "))]
SAID = {
    "01_op_from_a_reference": ["compiled        True", "ok    transposed: gradient of x", "vmap             derived"],
    "02_your_own_backward": ["ok    4x16: gradient of x", "bytes saved for backward: 256", "[0.0, 1.0, 0.0]"],
    "03_pointwise": [
        "ok    a bias a channel: gradient of bias",
        "saved for backward: [(1024, 256)]",
        "clipped: [-1.0, 0.5, 1.0]",
        "channels last stays channels last: True",
        "compiled: True",
        "refused: examples::softmax: the reference softmax",
        "scale_bias_relu_forward",
    ],
    "04_cuda_source": [
        "compiled for sm_90: ",
        "0 bytes spilled",
        "rows of length 1.000, a gradient (100, 1000)",
        "refused: normalize<float>: the block is 2048, and its x is at most 1024",
        "04_cuda_source.py:57: cu[",
    ],
    "05_extension": [
        "ok    transposed: gradient of x",
        "rms_norm_cpu",
        "refused: rms_norm_cpu: x is of int32; this kernel takes float32, float64",
    ],
    "06_triton": [
        "ok    transposed: gradient of x",
        "refused: the Triton kernel softmax_kernel (06_triton.py:13): out of bounds at",
        "it reads 4 bytes at byte 800 of x, which has 800",
    ],
    "07_numba": ["ok    every third: gradient of x", "refused: examples::smooth: <lambda>", "on Numba's own stream"],
    "08_check": [  # what its guide shows of it
        *SHOWN,
        "x = opsmith.checks.layouts.sliced(x)\nopsmith.checks.assert_matches(op, x)\n",
        "examples::halve (cpu, quick): 2 passed, 0 failed, 0 skipped",
    ],
    "09_bench": [
        "64x256 opsmith ",
        "1024x256 eager ",
        "% of the memory limit",
        "0 slower than before",
        "a page of its own: True",
    ],
    "11_launch_by_name": [
        "ok    30 rows: gradient of x",
        "ok    declined: float64: result",
        "<extension unit_rows_ext of 11_launch_by_name.cpp: normalize>",
    ],
    "12_rowwise": [
        "ok    sliced: gradient of weight",
        "gradients: (64, 500) (500,)",
        "saved for backward: [(64, 500), (500,)]",
        "likelihood: True",
        "quantized: torch.int8 torch.float32 (4,)",
        "causal: [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0],",
        "images: True 1.0",
        "refused: examples::centre_both_ways: the reference centre_both_ways",
        "it reduces dimension -1 first and -2 later in 12_rowwise.py:110",
        "rms_norm_forward: rows, in 2 passes",
    ],
    "10_prebuild": ["16x8: as the reference: True", "images, per-channel factor: as the reference: True"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    done = fresh_process.run([str(path)])
    assert done.returncode == 0, done.stderr
    assert "WRONG" not in done.stdout
    for words in SAID[path.stem]:
        assert words in done.stdout
