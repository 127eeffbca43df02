"""The emulator against a GPU: the same kernels on the same numbers, and how much their results differ.

The kernels are the usual patterns of tests/emulator/right and every CUDA kernel of the shipped ops, forward and
backward, on the op's samples. Differences are in ULP of the tensor's largest number, since sums propagate the rounding
of intrinsics. Integers must be equal.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from overhead import write
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith.checks.accuracy.evaluate import evaluate

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "emulator"))

BAR = 16.0
"""ULP. __expf alone may be off by 2 + 1.16 |x|."""
MOST = 1 << 12
SAMPLES = 6
"""Samples of an op in float32; in other dtypes only the first one. Kernels are compiled for each shape."""
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def compared(mine: torch.Tensor, theirs: torch.Tensor) -> dict[str, Any]:
    """The difference of two tensors."""
    equal = torch.equal(mine, theirs) or bool(((mine == theirs) | (mine.isnan() & theirs.isnan())).all())
    if equal or not mine.is_floating_point():
        return {"elements": mine.numel(), "equal": equal, "ulps": 0.0 if equal else float("inf")}
    first, second = mine.double(), theirs.double()
    finite = first.isfinite() & second.isfinite()
    largest = float(second[finite].abs().max())
    step = torch.finfo(mine.dtype).eps * 2.0 ** torch.frexp(torch.tensor(largest)).exponent.item() / 2
    same_specials = torch.equal(first[~finite].nan_to_num(nan=1.5), second[~finite].nan_to_num(nan=1.5))
    ulps = float((first - second)[finite].abs().max()) / step if same_specials else float("inf")
    return {"elements": mine.numel(), "equal": False, "ulps": ulps}


def patterns() -> Iterator[dict[str, Any]]:
    import test_right as suite

    for name, each in suite.RIGHT.items():
        torch.manual_seed(0)
        with opsmith.emulate():
            emulated = each.run(suite.SOURCES[each.file])
        torch.manual_seed(0)
        with suite.OnGpu():
            on_gpu = each.run(suite.SOURCES[each.file])
        for result, (given, _) in on_gpu.items():
            yield {"kernel": name, "of": each.file, "result": result, "dtype": short(given.dtype),
                   **compared(emulated[result][0], given.cpu())}  # fmt: skip


def shipped() -> Iterator[dict[str, Any]]:
    for name in opsmith.ops.__all__:
        op = getattr(opsmith.ops, name)
        kernels = [kernel.name for kernel in op.kernels.get("cuda", {}).values() if kernel.language == "CUDA C++"]
        for kernel in kernels:
            for dtype in DTYPES:
                yield from of_op(op, kernel, dtype)


def of_op(op: opsmith.Op, kernel: str, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    """A row for each tensor of an op, with the largest difference of its samples."""
    worst: dict[str, dict[str, Any]] = {}
    samples = op.samples_for("cpu", dtype)
    for sample in samples[: SAMPLES if dtype is torch.float32 else 1]:
        args = op.signature.bind(sample.args, dict(sample.kwargs))
        if max(each.numel() for each in op.signature.flatten(args) if each is not None) > MOST:
            continue
        moved = [None if each is None else each.cuda() for each in op.signature.flatten(args)]
        with opsmith.emulate(), op.using(kernel):
            emulated = evaluate(op.signature.arguments, lambda v: op(*v), args)
        with op.using(kernel):
            on_gpu = evaluate(op.signature.arguments, lambda v: op(*v), op.signature.unflatten(args, moved))
        for (what, mine), (_, theirs) in zip(emulated, on_gpu, strict=True):
            if mine is None or theirs is None or mine.numel() == 0:
                continue
            row = {"kernel": f"{op.name} {kernel}", "of": "opsmith.ops", "result": what, "dtype": short(dtype),
                   **compared(mine, theirs.cpu())}  # fmt: skip
            former = worst.get(what)
            if former is not None:
                row["elements"] += former["elements"]
                row["equal"] = row["equal"] and former["equal"]
                row["ulps"] = max(row["ulps"], former["ulps"])
            worst[what] = row
    yield from worst.values()


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [{**row, "bar": BAR, "met": row["ulps"] <= BAR} for row in (*patterns(), *shipped())]
    table = Table("of", "kernels", "tensors", "equal in every bit", "largest difference, ULP", "met")
    for of in sorted({row["of"] for row in rows}):
        mine = [row for row in rows if row["of"] == of]
        table.add_row(
            of, str(len({row["kernel"] for row in mine})), str(len(mine)), str(sum(row["equal"] for row in mine)),
            f"{max(row['ulps'] for row in mine):.3g}", "yes" if all(row["met"] for row in mine) else "NO",
        )  # fmt: skip
    Console().print(table)
    for row in rows:
        if not row["met"]:
            print("different:", row)
    if given.json:
        write(given.json, "agreement", rows, {"gpu": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
