"""What is built for an op: the kernels of its samples and of `prebuild=`, for each processor and GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from opsmith import Op
from opsmith.shipping.recording import record_op

EXAMPLE = Path(__file__).parents[2] / "examples" / "10_prebuild.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prebuild_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(op: Op) -> dict[str, int]:
    """The number of kernels for each place."""
    places = [wanted.place for wanted in record_op(op, ["sm_90", "compute_90"]).wanted]
    return {place: places.count(place) for place in places}


def test_prebuild_names_calls_besides_the_samples(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op = example.scaled_relu
    both = built(op)
    assert both.keys() == {"AVX512", "AVX2", "DEFAULT", "sm_90", "compute_90"}
    assert both["sm_90"] == both["compute_90"]
    monkeypatch.setattr(op, "prebuild", None)
    samples_alone = built(op)
    assert all(0 < samples_alone[place] < both[place] for place in both)


def test_an_op_without_samples_says_so(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example.scaled_relu, "prebuild", None)
    monkeypatch.setattr(example.scaled_relu, "samples", None)
    found = record_op(example.scaled_relu, [])
    assert not found.wanted
    assert found.notes == ["it has no samples: register_samples says which calls to build for"]
