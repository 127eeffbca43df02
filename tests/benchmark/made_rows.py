"""Rows as `opsmith bench` would write them on two imaginary machines: for tests of readers of rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from opsmith.benchmark import Results

COPY = {"cuda": 4.18e12, "cpu": 2.3e10}
CEILINGS: dict[str, dict[str, Any]] = {
    "cuda": {
        "read": 4.4e12,
        "write": 3.9e12,
        "copy": COPY["cuda"],
        "matmul": {"bfloat16": 7.6e14, "float16": 7.5e14, "float32": 5.1e13},
    },
    "cpu": {"read": 2.1e10, "write": 1.6e10, "copy": COPY["cpu"], "matmul": {"float32": 1.4e11, "float64": 7e10}},
}
NAMES = {"cuda": "NVIDIA H200", "cpu": "AMD EPYC 9654 96-Core Processor"}
SIZES = tuple(2**power for power in range(10, 31, 4))
SLOWER = {"opsmith": 1.0, "eager": 3.1, "compile": 1.22, "compile-max": 1.05, "triton": 1.4}
STARTING = {"cuda": 1.6, "cpu": 2.0}
"""Microseconds that the smallest call takes."""


def made_row(
    op: str = "opsmith::mish",
    sample: str = "1048576",
    *,
    kind: str = "cuda",
    dtype: str = "float32",
    direction: str = "forward",
    contender: str = "opsmith",
    elements: int = 1 << 20,
    flops: int = 7,
    seed: int = 0,
) -> dict[str, Any]:
    """A row with every column."""
    draw = random.Random(f"{op} {sample} {dtype} {direction} {contender} {seed}")
    width = {"float64": 8, "float32": 4}.get(dtype, 2)
    moved = elements * width * (2 if direction == "forward" else 3)
    least = moved / COPY[kind] * 1e6
    own = least / 0.96 + STARTING[kind]
    factor = math.exp(math.log(SLOWER[contender]) * draw.uniform(0.4, 1.4) + draw.uniform(-0.02, 0.05))
    us = own * (factor if contender != "opsmith" else 1)
    spread = draw.uniform(0.003, 0.02)
    row: dict[str, Any] = {
        "op": op, "sample": sample, "dtype": dtype, "elements": elements, "direction": direction,
        "contender": contender, "device": NAMES["cuda"] if kind == "cuda" else "cpu",
        "threads": None if kind == "cuda" else 2,
        "us": us, "low_us": us * (1 - spread), "high_us": us * (1 + spread), "rounds": 30,
        "bytes": moved, "flops": flops * elements if direction == "forward" else 0,
        "share": round(least / us, 4), "limit": "memory",
    }  # fmt: skip
    if contender != "opsmith":
        row |= {"speedup": factor, "speedup_low": factor * (1 - spread), "speedup_high": factor * (1 + spread)}
    if kind == "cuda":
        held = elements * width
        row |= {"peak_bytes": int(held * (1 if contender == "opsmith" else factor)), "held_bytes": held}
        if elements <= 1 << 14:
            row["host_us"] = {"opsmith": 9.9, "eager": 22.0}.get(contender, 27.5) * draw.uniform(0.95, 1.1)
        if elements == SIZES[0] and direction == "forward":
            row["cold_s"] = {"opsmith": 0.4, "eager": 0.2, "compile": 6.2}.get(contender, 21.0) * draw.uniform(0.8, 1.2)
    return {**row, "verified": True, "notes": []}


def made_results(
    kind: str = "cuda",
    ops: Sequence[str] = ("opsmith::mish", "opsmith::gelu", "opsmith::polynomial", "opsmith::swiglu"),
    dtypes: Sequence[str] = ("float32", "bfloat16"),
    sizes: Sequence[int] = SIZES,
    contenders: Sequence[str] = ("opsmith", "eager", "compile", "compile-max"),
    warnings: Sequence[str] = (),
) -> Results:
    rows = [
        made_row(
            op, str(size), kind=kind, dtype=dtype, direction=direction, contender=name, elements=size, flops=4 + place
        )
        for place, op in enumerate(ops)
        for dtype in dtypes
        for size in sizes
        for direction in ("forward", "backward")
        for name in contenders
    ]  # fmt: skip
    environment = {
        "device": NAMES[kind],
        "kind": kind,
        "date": "2026-05-04T10:11:12+00:00",
        "torch": "2.11.0+cu130" if kind == "cuda" else "2.13.0+cpu",
        "python": "3.12.4",
        "cuda": "13.0" if kind == "cuda" else None,
        "threads": None if kind == "cuda" else 2,
        "ceilings": CEILINGS[kind],
        "opsmith": "0.1.0",
    }
    return Results(rows, environment, list(warnings))
