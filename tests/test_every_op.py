"""Every shipped op keeps what opsmith promises. Ops are found by their folders: a new one is tested with no line here.

Kernels are compiled on the way, so a machine without a GPU tries every sample in float32 and the usual call, the first
sample, in the other dtypes. Layouts times dtypes are the business of tests/generate.
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
from opsmith.checks import compare

DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LARGE = 1 << 18


@pytest.fixture(params=opsmith.ops.names())
def op(request: pytest.FixtureRequest) -> Op:
    return getattr(opsmith.ops, request.param)


def readme(op: Op) -> str:
    return (Path(inspect.getfile(op.reference)).parent / "README.md").read_text()


def tensors(sample: Sample) -> list[torch.Tensor]:
    return [value for value in (*sample.args, *sample.kwargs.values()) if isinstance(value, torch.Tensor)]


def samples(op: Op, device: str, dtype: torch.dtype) -> list[Sample]:
    every = op.samples_for(device, dtype)
    return every if dtype is torch.float32 or device == "cuda" else every[:1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_and_gradients_are_the_references(op: Op, dtype: str, device: str) -> None:
    compared = [each for sample in samples(op, device, DTYPES[dtype]) for each in compare(op, sample)]
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []
    assert any("gradient" in each.what for each in compared)


@pytest.mark.parametrize("device", DEVICES)
def test_it_runs_where_nothing_can_be_compiled(op: Op, device: str) -> None:
    with op.using("reference"):
        compared = [each for sample in op.samples_for(device, torch.float32)[:9] for each in compare(op, sample)]
    assert [f"{each.what}: {each.message}" for each in compared if not each] == []


@pytest.mark.parametrize("device", DEVICES)
def test_torch_finds_nothing_wrong_with_it(op: Op, device: str) -> None:
    sample = op.samples_for(device, torch.float32)[0]
    # Called below its wrapper, an in-place op refuses what needs a gradient.
    grad = not op._families.default.inplace
    args = [v.clone().requires_grad_(grad) if isinstance(v, torch.Tensor) else v for v in sample.args]
    torch.library.opcheck(op._families.default.forward.overload, tuple(args), dict(sample.kwargs))


def test_it_is_named_as_its_folder(op: Op) -> None:
    folder = Path(inspect.getfile(op.reference)).parent.name
    assert op.name == f"opsmith::{folder}"
    assert op is getattr(opsmith.ops, folder) and op.__name__ == folder
    assert hasattr(torch.ops.opsmith, folder)


def test_it_has_samples_of_every_kind(op: Op) -> None:
    every = op.samples_for("cpu", torch.float32)
    assert len({sample.name for sample in every} - {""}) == len(every), "each has a name of its own"
    assert any(tensor.numel() == 0 for sample in every for tensor in tensors(sample)), "none is empty"
    assert any(not tensor.is_contiguous() for sample in every for tensor in tensors(sample)), "none is strided"
    assert max(tensor.numel() for sample in every for tensor in tensors(sample)) >= LARGE, "none is worth timing"
    assert all(tensor.dtype is torch.float64 for s in op.samples_for("cpu", torch.float64) for tensor in tensors(s))


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


def test_an_op_is_declared_when_it_is_first_asked_for() -> None:
    subprocess.run([sys.executable, "-c", LAZY], check=True)
