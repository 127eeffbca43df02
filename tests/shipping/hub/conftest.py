"""A package built for the Hub once, and loaded by kernels without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hub_packages import installed_kernels, package, passport_of, written

from opsmith.shipping.hub.layout import Variant

Load = Callable[[Path], ModuleType]


@pytest.fixture
def kernels() -> Iterator[Any]:
    with installed_kernels() as module:
        yield module


@pytest.fixture(scope="session")
def load() -> Load:
    def loaded(directory: Path) -> ModuleType:
        with installed_kernels() as kernels:
            module: ModuleType = kernels.get_local_kernel(directory)
            return module

    return loaded


@pytest.fixture(scope="session")
def author(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return package(tmp_path_factory.mktemp("author"))


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="session")
def variant(hub: Path, author: ModuleType) -> Variant:
    return written(hub, author, passport=passport_of(author, "gradients", "compile"))


@pytest.fixture(scope="session")
def kernel(variant: Variant, hub: Path, load: Load) -> ModuleType:
    return load(hub)
