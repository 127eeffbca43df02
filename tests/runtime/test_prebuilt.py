"""A C++ runtime from opsmith's wheel is used from the first process, by the torch that it was built for alone."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith.errors import OpsmithError, RuntimeReleaseError
from opsmith.runtime import native
from opsmith.toolchain import compile_shared_library
from opsmith.toolchain.compile import _Plan, release_settings

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, warnings
from pathlib import Path
import opsmith.toolchain.cache as cache
cache.OWN_PREBUILT = Path(sys.argv[1])
cache.prebuilt_directories[:] = [cache.OWN_PREBUILT]
import torch, opsmith
from opsmith import runtime

@opsmith.op("shipped::square")
def square(x: torch.Tensor) -> torch.Tensor:
    return x * x

x = torch.ones(3, requires_grad=True)
square(x).sum().backward()
assert x.grad.tolist() == [2.0, 2.0, 2.0]
print(square._families.default.forward.attachment.tier, "|", runtime.reason())
"""


def shipped(directory: Path, library: Path, *releases: str) -> Path:
    """A package's directory of prebuilt files with a runtime for these releases of torch."""
    for release in releases:
        plan = _Plan("opsmith_runtime", [native.SOURCE], None, release_settings(release), ("-O2",), (), (), "")
        entry = directory / "artifacts" / plan.key
        entry.mkdir(parents=True)
        image = library.read_bytes()
        (entry / plan.library).write_bytes(image)
        seal = {"size": len(image), "sha256": hashlib.sha256(image).hexdigest()}
        (entry / "provenance.json").write_text(json.dumps({"files": {plan.library: seal}}))
    rows = [{"place": f"torch {release}", "label": "opsmith_runtime"} for release in releases]
    (directory / "manifest.json").write_text(json.dumps({"kernels": rows}))
    return directory


def without_a_compiler(prebuilt: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    missing = {"CXX": str(scratch / "none"), "PATH": "", "OPSMITH_RUNTIME": ""}
    settings = {**os.environ, **missing, "OPSMITH_CACHE_DIR": str(scratch / "cache")}
    command = [sys.executable, "-c", SCRIPT, str(prebuilt)]
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False)


@pytest.fixture
def runtime() -> Path:
    """The one for the installed torch."""
    try:
        return native.build()
    except OpsmithError as error:
        pytest.skip(f"the C++ runtime cannot be built: {error}")


def test_a_prebuilt_runtime_serves_the_first_process(tmp_path: Path, runtime: Path) -> None:
    release = native.torch_release()
    done = without_a_compiler(shipped(tmp_path / "prebuilt", runtime, "2.10", release), tmp_path)
    assert done.stdout == f"native | prebuilt for torch {release}\n", done.stderr
    assert done.stderr == ""


def test_a_torch_that_is_not_among_the_prebuilt_gets_one_warning(tmp_path: Path, runtime: Path) -> None:
    done = without_a_compiler(shipped(tmp_path / "prebuilt", runtime, "2.9", "2.10"), tmp_path)
    assert done.stdout.startswith("python | "), done.stderr
    assert done.stderr.count("TorchNotPrebuiltWarning") == 1
    assert f"prebuilt for torch 2.9, 2.10, and torch {native.torch_release()} is running" in done.stderr
    assert "Install a C++ compiler" in done.stderr


def test_a_runtime_for_another_torch_is_refused() -> None:
    text = 'extern "C" __attribute__((visibility("default"))) const char* opsmith_torch_release() { return "2.1"; }'
    library = compile_shared_library("another_runtime", text=text, abi="plain")
    with pytest.raises(RuntimeReleaseError, match=r"was built for torch 2\.1, and torch 2\.\d+ is running"):
        native.Library(library)
