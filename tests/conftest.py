"""Fixtures all tests share: the two tiers, and names that no two tests have in common."""

# ruff: noqa: E402  # the garbage collector is stopped before torch is imported
from __future__ import annotations

import fcntl
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Processes that share the cores: threads of one that wait for each other are not to keep the other's from running. It
# is read when torch is imported, here and in the processes that pytest-xdist starts.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# The collector would read the objects of torch and of the tests again and again: a fifth of the time of a test process.
gc.disable()  # until pytest_collection_finish

import torch

from opsmith import Op, runtime
from opsmith.kernels import extension as extensions
from opsmith.operator.registry import registry

pytest_plugins = ["opsmith.testing.plugin", "pytester"]  # the first is installed too, but not where PYTHONPATH serves

# A shell starts a background job with SIGINT ignored, and every process inherits that: `nohup make test &`. Tests press
# Ctrl-C, here and in processes they start.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_serial = itertools.count()
_former: list[Op] = []  # whose operators torch still has
IMPORT_SECONDS = 1.5
"""Of `import torch` on the two cores that bars in seconds are meant for, when nobody else uses them."""


@pytest.fixture(params=["native", "python"])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs twice: ops declared in it are attached by C++, then by Python."""
    if request.param == "native" and runtime.tier() != "native":
        pytest.skip(f"the C++ runtime is not built: {runtime.reason()}; run `make setup`")
    with runtime.forced(request.param):
        yield request.param


@pytest.fixture
def fresh() -> Iterator[Callable[[str], str]]:
    """fresh('mish') -> an operator name no other test uses, nor finds afterwards. What is generated for an operator has
    its base name in it: one that is declared in many tests is compiled once."""
    namespaces: list[str] = []

    def name(base: str) -> str:
        namespaces.append(f"opsmith_tests_{os.getpid()}_{next(_serial)}")
        return f"{namespaces[-1]}::{base}"

    yield name
    for each in [each for each in registry if each.partition("::")[0] in namespaces]:
        _former.append(registry.pop(each))


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """once('library', make) -> a directory that make(directory) has filled. All workers of pytest-xdist share it: a
    fixture that takes long to make is made once per run, not once per worker."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    def shared(name: str, make: Callable[[Path], object]) -> Path:
        directory, made = root / f"once-{name}", root / f"once-{name}.made"
        with (root / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                shutil.rmtree(directory, ignore_errors=True)  # of a worker whose `make` has raised
                directory.mkdir()
                make(directory)
                made.touch()
        return directory

    return shared


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where no cache can be written, opsmith builds among the temporary files, and every process of the user finds what
    is there: without this, tests would find builds of other runs."""
    os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("temporary"))
    tempfile.tempdir = None


@pytest.fixture(scope="session")
def at_speed() -> None:
    """For bars in seconds, which are meant for two cores that nobody else uses: skips, and says so, where the machine
    is slower than that now. The bars stay what they are."""

    def imported() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        return time.perf_counter() - began

    taken = min(imported() for _ in range(3))
    if taken > IMPORT_SECONDS:
        pytest.skip(f"this machine is slow just now: it imports torch in {taken:.2f} s, not in {IMPORT_SECONDS}")


@pytest.fixture(autouse=True)
def _extension_names_of_its_own() -> Iterator[None]:
    """What a test names its extensions is free again after it: which tests share a process is chance."""
    before = dict(extensions.registry)
    yield
    extensions.registry.clear()
    extensions.registry.update(before)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    """Dynamo compiles one function so many times and no more, and counts those of all tests in a process."""
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(5000, 20, 20)
    gc.enable()


@pytest.hookimpl(trylast=True)  # after tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _long_ones_first(items)
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


def _long_ones_first(items: list[pytest.Item]) -> None:
    """Each worker of `-n N --dist worksteal` starts with a part of the tests that take long: none is the last one, for
    which the other workers wait. The workers have equal parts of the list."""
    long = [item for item in items if "long" in item.keywords]
    others = [item for item in items if "long" not in item.keywords]
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        first = long[worker::workers]
        count = max(0, (len(items) - len(ordered)) // (workers - worker) - len(first))  # as xdist divides them
        ordered += [*first, *others[:count]]
        del others[:count]
    items[:] = [*ordered, *others]
