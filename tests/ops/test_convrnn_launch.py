"""convrnn's host code for a GPU (launch.cpp) with a fake driver: the shape of each launch, and the counters' rules.

That the kernels compute the right numbers with them is compared in the emulator (tests/emulator/test_shipped.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kernels import fake_cuda

from opsmith.errors import ToolMissingError
from opsmith.toolchain import find_nvrtc

PROCESS = Path(__file__).with_name("convrnn_on_fake_gpu.py")
SHAPES = [  # the grid, the block and the shared bytes of the forward, and of the backward
    [[4, 32, 1, 8192], [4, 32, 1, 16384]],  # one warp per sequence, one per block
    [[150, 32, 4, 8192], [150, 32, 4, 24576]],  # four a block; tanh in a half type reads a third stream
    [[2, 640, 1, 82032], [2, 640, 1, 71792]],  # a block a sequence
    [[3, 160, 1, 46208], [3, 160, 1, 46208]],
    [[5, 32, 1, 4096], [5, 32, 1, 12288]],
]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    try:
        find_nvrtc()
    except ToolMissingError:
        pytest.skip("NVRTC is not installed")
    done = fake_cuda.process(PROCESS, tmp_path_factory.mktemp("driver"))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_sequence_is_divided_by_its_width_and_the_batch_by_the_gpu(outcome: dict[str, Any]) -> None:
    assert outcome["shapes"] == SHAPES


def test_a_stream_has_one_counter_and_a_captured_launch_its_own(outcome: dict[str, Any]) -> None:
    first, second, again, captured = (outcome["counters"][name] for name in ("first", "second", "again", "captured"))
    assert first[0] == first[1] == again[0] == again[1]
    assert second[0] == second[1] != first[0]
    assert len({*captured, *first, *second}) == 4
