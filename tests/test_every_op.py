"""Every shipped op has what a user expects of its folder: samples, cost, docstring, README. Ops are found by their
folders: a new one is tested with no line here.

tests/checks/test_shipped.py runs the checklist on them, which compares a few samples in every dtype; here it is every
sample, in float32.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith import Op, Sample
from opsmith.checks import compare_samples

LARGE = 1 << 18


@pytest.fixture(params=opsmith.ops.names())
def op(request: pytest.FixtureRequest) -> Op:
    return getattr(opsmith.ops, request.param)


def readme(op: Op) -> str:
    return (Path(inspect.getfile(op.reference)).parent / "README.md").read_text()


def tensors(sample: Sample) -> list[torch.Tensor]:
    return [value for value in (*sample.args, *sample.kwargs.values()) if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_sample_matches_the_reference(op: Op, device: str) -> None:
    compared = compare_samples(op, device)
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    assert any("gradient" in each.what for each in compared)


def test_it_is_named_as_its_folder(op: Op) -> None:
    folder = Path(inspect.getfile(op.reference)).parent.name
    assert op.name == f"opsmith::{folder}"
    assert op is getattr(opsmith.ops, folder) and op.__name__ == folder
    assert hasattr(torch.ops.opsmith, folder)


def test_it_has_samples_of_every_kind(op: Op) -> None:
    every = op.samples_for("cpu", torch.float32)
    assert len({sample.name for sample in every} - {""}) == len(every), "names are unique"
    assert any(tensor.numel() == 0 for sample in every for tensor in tensors(sample)), "none is empty"
    assert any(not tensor.is_contiguous() for sample in every for tensor in tensors(sample)), "none is strided"
    assert max(tensor.numel() for sample in every for tensor in tensors(sample)) >= LARGE, "none is worth timing"
    double = [tensor for sample in op.samples_for("cpu", torch.float64) for tensor in tensors(sample)]
    assert all(tensor.dtype is torch.float64 for tensor in double if tensor.is_floating_point())  # others are indices


def test_its_cost_is_at_least_its_tensors(op: Op) -> None:
    assert op.cost is not None
    for sample in op.samples_for("cpu", torch.float32):
        cost = op.cost(*sample.args, **sample.kwargs)
        assert cost.bytes >= sum(tensor.nbytes for tensor in tensors(sample)) and cost.flops >= 0


def test_its_docstring_opens_with_the_equation_and_the_shapes(op: Op) -> None:
    first = (op.__doc__ or "").splitlines()[0]
    assert re.match(r"\w+ (=|<-) \S", first) and "[" in first, first


def test_its_readme_opens_with_the_signature(op: Op) -> None:
    parameters = [str(each).replace("'", '"') for each in inspect.signature(op.reference).parameters.values()]
    plain = [re.sub(r'^(\w+: )"([^"]*)"', r"\1\2", text) for text in parameters]
    signature = f"{op.name.replace('::', '.ops.')}({', '.join(plain)})"
    screen = "\n".join(readme(op).splitlines()[:25])
    assert signature in screen
    assert "[" in screen.partition(signature)[2], "with the shapes of its tensors"


def test_the_code_in_its_readme_runs(op: Op) -> None:
    blocks = re.findall(r"```python\n(.*?)```", readme(op), re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})


LAZY = """
import sys
import opsmith.ops, opsmith.nn
assert "torch" not in sys.modules
first, second, third, *others = opsmith.ops.__all__
op = getattr(opsmith.ops, first)
exec(f"from opsmith.ops import {second}; import opsmith.ops.{third} as imported")
assert globals()[second] is getattr(opsmith.ops, second) and imported is getattr(opsmith.ops, third)
from opsmith.operator.registry import registry
assert sorted(registry) == [f"opsmith::{name}" for name in (first, second, third)]
assert set(opsmith.ops.__all__) <= set(dir(opsmith.ops)) and "_template" not in opsmith.ops.__all__
assert not hasattr(opsmith.ops, "no_such_op")
"""


def test_an_op_is_declared_on_first_access() -> None:
    subprocess.run([sys.executable, "-c", LAZY], check=True)
