"""Machine instructions of row kernels per element, without a GPU: how much of what memory allows a kernel uses.

Kernels are compiled for sm_90 and disassembled with the cuobjdump that Triton carries. Per second, an H200 issues 31e12
instructions of a thread and copies 4.22e12 bytes: a kernel that is to keep up with memory has 7.4 for each byte that an
element needs. The loop over rows is counted, with both branches of a choice.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from suites import row_op

from opsmith import ops
from opsmith.generate.devices import compile_cuda
from opsmith.generate.generation import LoopGeneration
from opsmith.generate.source import texts

OPS = ["softmax", "rms_norm", "layer_norm", "cross_entropy"]
PER_BYTE = 31e12 / 4.22e12
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4})\*/\s+(.*?;)")
BRANCH = re.compile(r"BRA\S*\s+(?:\S+,\s*)?0x([0-9a-f]+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="*", choices=OPS, default=OPS)
    parser.add_argument("--widths", nargs="*", type=int, default=[1024, 4096, 16384, 131072])
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    options = parser.parse_args()
    call, kernel = ("op", "width", "dtype", "direction"), ("held", "threads", "cluster", "registers", "stack")
    table = Table(*call, *kernel, "instructions", "allowed")
    for dtype in (getattr(torch, name) for name in options.dtypes):
        for name in options.ops:
            for width in options.widths:
                for backward in (False, True):
                    for row in rows(name, width, dtype, backward):
                        table.add_row(name, str(width), str(dtype)[6:], "backward" if backward else "forward", *row)
    Console(width=150).print(table)


def rows(name: str, width: int, dtype: torch.dtype, backward: bool) -> Iterator[tuple[str, ...]]:
    """The columns of the table from "held" on."""
    given, args = row_op(name, 2**27 // width, width, lambda *shape: torch.empty(shape, dtype=dtype, device="meta"))
    op = ops.cross_entropy if name == "cross_entropy" else given
    generation = op._families.generation
    assert isinstance(generation, LoopGeneration)
    tensors = (1 if name == "cross_entropy" else 2) + backward  # read and written, element by element
    for entry, text in texts(generation.compiler, "cuda", op.signature.bind_call(args, {}), backward).items():
        cubin = compile_cuda(text, entry, "sm_90")
        usage = re.search(r"REG:(\d+) STACK:(\d+)", disassembled("-res-usage", cubin))
        number = dict(re.findall(r"static constexpr int (\w+) = (\d+)", text))
        assert usage is not None
        elements = int(number["vector"]) * max(1, int(number["held"]))
        loop = largest_loop(disassembled("-sass", cubin)) / elements
        allowed = tensors * dtype.itemsize * PER_BYTE
        yield (
            number["held"], number["threads"], number["cluster"], usage[1], usage[2], f"{loop:.1f}", f"{allowed:.0f}"
        )  # fmt: skip


def disassembled(option: str, cubin: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "kernel.cubin"  # cuobjdump goes by the name
        copy.write_bytes(cubin.read_bytes())
        return subprocess.run([tool, option, copy], capture_output=True, text=True, check=True).stdout


def largest_loop(sass: str) -> int:
    """Instructions between a branch back and its target."""
    found = [(int(place, 16), text) for place, text in INSTRUCTION.findall(sass)]
    sizes = [0]
    for place, text in found:
        if (branch := BRANCH.search(text)) and (target := int(branch[1], 16)) < place:
            sizes.append(sum(target <= other <= place for other, _ in found))
    return max(sizes)


if __name__ == "__main__":
    main()
