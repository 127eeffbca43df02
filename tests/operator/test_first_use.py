"""The first use of an op, and its declaration, may happen inside any transform, mode or setting of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from first_uses import KINDS, PLACES

PROGRAM = Path(__file__).with_name("first_uses.py")
NAMES = list(PLACES)


@pytest.mark.long
@pytest.mark.parametrize(
    ("tier", "kinds", "places"),
    [
        ("native", list(KINDS), NAMES[::2]),
        ("native", list(KINDS), NAMES[1::2]),
        ("python", ["kernels"], NAMES),  # what declares and generates is the same code on both tiers
    ],
    ids=["native, one half", "native, the other", "python"],
)
def test_an_op_can_be_declared_and_used_first_anywhere(tier: str, kinds: list[str], places: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), ",".join(kinds), *places],
        env={**os.environ, "OPSMITH_RUNTIME": tier},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 2 * len(kinds) * len(places)  # declared before and inside
    wrong = {case: problem for case, problem in found.items() if problem}
    assert not wrong, "\n\n".join(f"{case}:\n{problem}" for case, problem in wrong.items())
