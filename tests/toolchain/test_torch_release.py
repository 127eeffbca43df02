"""A torch that is too old is named when opsmith is first used, and not by what fails later."""

from __future__ import annotations

import fresh_process
import pytest
import torch

from opsmith.errors import TorchTooOldError
from opsmith.toolchain.torch_release import require_torch


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0+cu130", "2.13.1a0+git1234", "3.0"])
def test_newer_releases_are_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    require_torch()


@pytest.mark.parametrize("version", ["2.10.1+cpu", "1.13.0"])
def test_older_ones_are_refused_with_the_command_that_installs_one(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(TorchTooOldError, match=r"opsmith needs 2\.11 or newer(.|\n)*pip install"):
        require_torch()


@pytest.mark.parametrize("name", ["op", "pointwise", "extension", "cuda_source", "ops.mish"])
def test_every_way_into_opsmith_asks(name: str) -> None:
    script = f"import torch, opsmith; torch.__version__ = '2.10.0'; opsmith.{name}"
    done = fresh_process.run(["-c", script])
    assert done.stderr.rstrip().endswith("pip install 'torch>=2.11'"), done.stderr
