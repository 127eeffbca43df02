"""Fixtures all tests share: the two tiers, and names that no two tests have in common."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest
import torch

from opsmith import runtime

pytest_plugins = ["opsmith.testing.plugin", "pytester"]  # the first is installed too, but not where PYTHONPATH serves

_serial = itertools.count()


@pytest.fixture(params=["native", "python"])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs twice: ops declared in it are attached by C++, then by Python."""
    if request.param == "native" and runtime.tier() != "native":
        pytest.skip(f"the C++ runtime is not built: {runtime.reason()}; run `make setup`")
    with runtime.forced(request.param):
        yield request.param


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """fresh('mish') -> an operator name no other test uses."""
    return lambda base: f"opsmith_tests::{base}_{os.getpid()}_{next(_serial)}"


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))
