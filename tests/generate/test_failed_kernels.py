"""A kernel that cannot be compiled leaves all others alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Ends itself, as Linux ends a process for want of memory, when it is given a source that has "doomed" in it.
COMPILER = """#!/bin/sh
for argument in "$@"; do
    if [ -f "$argument" ] && grep -q doomed "$argument"; then kill -9 $$; fi
done
exec g++ "$@"
"""
PROGRAM = """
import warnings
import torch, opsmith
from opsmith.errors import ReferenceRunsWarning

@opsmith.pointwise("failed_kernels::doomed")
def doomed(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1

@opsmith.pointwise("failed_kernels::others")
def others(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) + 1

def compiled(op):
    return sum(len(each.kernels) for each in op._families.generation.compiler._prepared.values())

x = torch.randn(100)
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    for _ in range(3):
        torch.testing.assert_close(doomed(x), torch.tanh(x) + 1)
    torch.testing.assert_close(others(x), torch.tanh(x) + 1)
told = [str(each.message) for each in met if issubclass(each.category, ReferenceRunsWarning)]
assert len(told) == 1, told  # once, though it was called three times
assert "failed_kernels::doomed" in told[0] and "memory" in told[0], told
assert compiled(doomed) == 0 and compiled(others) == 1
"""


def test_a_compiler_killed_for_one_kernel_turns_off_that_kernel_alone(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    environment = {
        **os.environ, "CXX": str(compiler), "OPSMITH_CACHE_DIR": str(tmp_path / "cache"), "OPSMITH_RUNTIME": "python"
    }  # fmt: skip
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
