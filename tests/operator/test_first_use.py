"""The first use of an op, and its declaration, may happen inside any transform, mode or setting of torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from first_uses import PLACES

PROGRAM = Path(__file__).with_name("first_uses.py")
NAMES = list(PLACES)


@pytest.mark.parametrize("places", [NAMES[::2], NAMES[1::2]], ids=["one half", "the other"])
@pytest.mark.parametrize("tier", ["native", "python"])
def test_an_op_can_be_declared_and_used_first_anywhere(places: list[str], tier: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *places],
        env={**os.environ, "OPSMITH_RUNTIME": tier},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) == 6 * len(places)
    wrong = {case: said for case, said in found.items() if said}
    assert not wrong, "\n\n".join(f"{case}:\n{said}" for case, said in wrong.items())
