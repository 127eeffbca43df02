"""The guide to the emulator, docs/emulator.md: the code it quotes, and the messages it shows.

    cd tests && ../.venv/bin/python -m emulator.test_guide

regenerates the messages.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import opsmith

from .test_planted import PLANTED, found
from .test_speed import on_cores

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "emulator.md"
MESSAGE = re.compile(r"<!-- message of (?P<name>\w+) -->\n```text\n(?P<text>.*?)\n```", re.DOTALL)
KINDS = {
    "out of bounds",
    "misaligned access",
    "uninitialised shared memory",
    "partial barrier",
    "absent block",
    "inactive lane",
    "data race",
    "signed overflow",
    "hang",
    "failed assertion",
    "write to a constant",
    "division by zero",
    "use after free",
    "bad free",
}


# [source]
cu = opsmith.cuda_source(r"""
__global__ void scale(const float* x, float* y, float factor, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}
""")
# [source]


def test_a_launch_in_a_with_block() -> None:
    # [with]
    x = torch.randn(1000)
    y = torch.empty_like(x)
    with opsmith.emulate():
        cu.scale[4, 256](x, y, 3.0, x.numel())  # as on a GPU
        result = opsmith.ops.mish(x)  # by the CUDA kernel that opsmith has generated
    # [with]
    assert torch.equal(y, 3.0 * x)
    torch.testing.assert_close(result, torch.nn.functional.mish(x))


# [fixture]
@pytest.fixture(params=range(3), ids="seed {}".format)
def emulated(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that names it runs three times, with blocks and threads in another order each time."""
    with opsmith.emulate(seed=request.param):
        yield


def test_scale(emulated: None) -> None:
    x = torch.randn(1000)
    y = torch.empty_like(x)
    cu.scale[4, 256](x, y, 3.0, x.numel())
    assert torch.equal(y, 3.0 * x)


# [fixture]


def test_a_fault_has_its_facts_as_attributes() -> None:
    # [facts]
    with opsmith.emulate(), pytest.raises(opsmith.KernelFault) as caught:
        cu.scale[4, 256](torch.randn(1000), torch.empty(999), 3.0, 1000)
    fault = caught.value
    assert fault.kind == "out of bounds"
    assert fault.block == (3, 0, 0) and fault.thread == (231, 0, 0)
    assert "it writes 4 bytes at byte 3996 of y (float32 [999], 3996 bytes)" in str(fault)
    # [facts]
    text = Path(__file__).read_text().splitlines()
    assert fault.file == __file__ and fault.line is not None
    assert text[fault.line - 1] == "  if (i < n) y[i] = factor * x[i];"


def message(name: str) -> str:
    """What the kernel's fault says, on one core so that it is the same each time, in lines of the guide's length."""
    with on_cores(1):
        said = str(found(PLANTED[name], 0)).replace(f"{ROOT}/", "")
    return "\n".join(
        textwrap.fill(line, 118, break_on_hyphens=False, break_long_words=False) for line in said.splitlines()
    )


def renewed(text: str) -> str:
    return MESSAGE.sub(
        lambda found: f"<!-- message of {found['name']} -->\n```text\n{message(found['name'])}\n```", text
    )


def test_the_messages_of_the_guide_are_the_emulators() -> None:
    text = GUIDE.read_text()
    assert text == renewed(text), "run: cd tests && ../.venv/bin/python -m emulator.test_guide"
    assert text.count("```text") == len(MESSAGE.findall(text))


def test_the_guide_has_a_bug_of_each_kind() -> None:
    shown = [PLANTED[name] for name, _ in MESSAGE.findall(GUIDE.read_text())]
    assert {bug.kind for bug in shown} == KINDS
    for bug in shown:
        assert f"<!-- tests/emulator/planted/{bug.file} [{bug.name}] -->" in GUIDE.read_text()


if __name__ == "__main__":
    GUIDE.write_text(renewed(GUIDE.read_text()))
