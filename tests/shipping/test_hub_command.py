"""`opsmith build --hf-kernel` writes what kernels loads, and says what it left out."""

from __future__ import annotations

import json
from pathlib import Path

import fresh_process
import pytest
from packages import build, written


@pytest.mark.long
def test_the_command_writes_a_variant_for_processors_and_one_for_cuda(tmp_path: Path) -> None:
    package = written(tmp_path)
    done = build(package, "--arch", "sm_90", "--hf-kernel", "hub", "--json", "built.json")
    project = package.parents[1]
    made = sorted((project / "hub" / "build").iterdir())
    assert [each.name.split("-")[3] for each in made] == ["cpu", "cu130"]
    assert all((each / "__init__.py").is_file() and (each / "metadata.json").is_file() for each in made)
    facts = json.loads((project / "built.json").read_text())
    assert [each["backend"] for each in facts["variants"]] == ["cpu", "cu130"]
    assert not (package / "prebuilt").exists()
    assert "NOASSERTION" in done.stderr
    assert "prebuilt kernels ran" in user_of(project / "hub")


USE = """
import json, pathlib, sys
import kernels, torch
sys.modules["opsmith"] = None
kernel = kernels.get_local_kernel(pathlib.Path("hub"))
x, bias = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
result = kernel.bent(x, bias)
result.sum().backward()
assert torch.equal(bias.grad, (torch.relu(x * 0.5 + bias) > 0).sum(0).float())
assert torch.equal(kernel.negated(x), -x)
facts = json.loads((pathlib.Path(kernel.__file__).parent / "metadata.json").read_text())
for name in ("bent", "negated"):
    found = torch._C._dispatch_dump(f"{facts['id']}::{name}")
    assert "CPU: registered at aheadlib" in found, found
print("prebuilt kernels ran")
"""


def user_of(hub: Path) -> str:
    """What a script prints where kernels is installed and opsmith cannot be imported."""
    done = fresh_process.run(["-c", USE], cwd=hub.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_not_combined_with_other_results(tmp_path: Path) -> None:
    done = build(written(tmp_path), "--hf-kernel", "hub", "--wheel", fails=True)
    assert "leave out --wheel, --library and --into" in done.stdout + done.stderr
