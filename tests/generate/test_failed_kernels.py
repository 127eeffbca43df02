"""A kernel or a planner that cannot be compiled: the reference runs, with one warning."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import fresh_process
import pytest

from opsmith.runtime import native

# Ends itself, as Linux ends a process that runs out of memory, when it is given a source that contains a word.
COMPILER = """#!/bin/sh
for argument in "$@"; do
    if [ -f "$argument" ] && grep -q {word} "$argument"; then kill -9 $$; fi
done
exec g++ "$@"
"""
OPS = """
import sys, warnings
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

x = torch.randn(100, device=sys.argv[1])
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    for _ in range(3):
        torch.testing.assert_close(doomed(x), torch.tanh(x) + 1)
    torch.testing.assert_close(others(x), torch.tanh(x) + 1)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(others(leaf).sum(), leaf)[0], 1 - torch.tanh(x) ** 2)
messages = [str(each.message) for each in met if issubclass(each.category, ReferenceRunsWarning)]
assert len(messages) == 1, messages  # once, for all calls
"""


def run(checks: str, compiler: Path, device: str = "cpu") -> None:
    """Ops called in a new process with an empty cache and this C++ compiler."""
    environment = {
        **os.environ, "CXX": str(compiler), "OPSMITH_CACHE_DIR": str(compiler.parent / "cache"),
        "OPSMITH_RUNTIME": "python",
    }  # fmt: skip
    done = fresh_process.run(["-c", OPS + checks, device], env=environment)
    assert done.returncode == 0, done.stderr


def killed_for(word: str, tmp_path: Path) -> Path:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(word=word))
    compiler.chmod(0o755)
    return compiler


def test_a_compiler_killed_for_one_kernel_turns_off_that_kernel_alone(tmp_path: Path) -> None:
    checks = """
assert "failed_kernels::doomed" in messages[0] and "memory" in messages[0], messages
assert compiled(doomed) == 0 and compiled(others) == 2
"""
    run(checks, killed_for("doomed", tmp_path))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_without_a_compiler_the_reference_runs(device: str, tmp_path: Path) -> None:
    checks = """
assert "pointwise kernels" in messages[0] and "No C++ compiler was found" in messages[0], messages
assert compiled(doomed) == compiled(others) == 0
"""
    run(checks, tmp_path / "missing", device)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_without_a_planner_the_reference_runs(device: str, tmp_path: Path) -> None:
    checks = """
assert "pointwise kernels" in messages[0] and "launch planner" in messages[0], messages
assert compiled(doomed) == compiled(others) == 0
"""
    run(checks, killed_for("opsmith_plan_bind", tmp_path), device)


SUMS = """
import sys, warnings
import torch, opsmith
from opsmith import runtime
from opsmith.errors import ReferenceRunsWarning
from opsmith.generate.call import GeneratedCall

@opsmith.pointwise("failed_kernels::shifted")
def shifted(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x + bias)

in_python = []
call = GeneratedCall.__call__
GeneratedCall.__call__ = lambda self, *args: in_python.append(self.role) or call(self, *args)

def backward(*shape):
    in_python.clear()
    x, bias = torch.randn(shape), torch.randn(1, shape[1], requires_grad=True)
    grad, = torch.autograd.grad(shifted(x, bias).sum(), bias)
    torch.testing.assert_close(grad, torch.autograd.grad(torch.tanh(x + bias).sum(), bias)[0])
    return list(in_python)

assert runtime.tier() == "native", runtime.reason()
with warnings.catch_warnings():
    warnings.simplefilter("error")
    backward(4, 8)
    assert backward(4, 8) == [], "C++ has the kernel"
"""
LARGE = """
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    for _ in range(2):
        assert "backward" in backward(20000, 8)
messages = [str(each.message) for each in met if issubclass(each.category, ReferenceRunsWarning)]
assert len(messages) == 1 and sys.argv[1] in messages[0], messages
assert backward(4, 8) == [], "calls that need no combined sums go on"
"""


def test_without_what_combines_partial_sums_smaller_calls_use_their_kernel(tmp_path: Path) -> None:
    artifact = native.build().parent
    shutil.copytree(artifact, tmp_path / "cache" / "artifacts" / artifact.name)
    (tmp_path / "cache").chmod(0o700)
    crashing = killed_for("opsmith_combine", tmp_path)
    for compiler, reason in ((crashing, "memory"), (tmp_path / "missing", "No C++ compiler was found")):
        environment = {
            **os.environ, "CXX": str(compiler), "OPSMITH_CACHE_DIR": str(tmp_path / "cache"),
            "OPSMITH_RUNTIME": "native",
        }  # fmt: skip
        done = fresh_process.run(["-c", SUMS + LARGE, reason], env=environment)
        assert done.returncode == 0, done.stderr
