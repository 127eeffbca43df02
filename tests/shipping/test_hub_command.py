"""`opsmith build --hf-kernel` writes what kernels loads, and says what it left out."""

from __future__ import annotations

import json
from pathlib import Path

from packages import build, written


def test_the_command_writes_a_variant_for_processors_and_one_for_cuda(tmp_path: Path) -> None:
    package = written(tmp_path)
    done = build(package, "--arch", "sm_90", "--hf-kernel", "hub", "--verify", "--json", "built.json")
    project = package.parents[1]
    made = sorted((project / "hub" / "build").iterdir())
    assert [each.name.split("-")[3] for each in made] == ["cpu", "cu130"]
    assert all((each / "__init__.py").is_file() and (each / "metadata.json").is_file() for each in made)
    assert "built a second time: " in done.stdout and "all the same" in done.stdout
    facts = json.loads((project / "built.json").read_text())
    assert [each["backend"] for each in facts["variants"]] == ["cpu", "cu130"]
    assert not (package / "prebuilt").exists()
    assert "NOASSERTION" in done.stderr


def test_it_is_not_combined_with_other_results(tmp_path: Path) -> None:
    done = build(written(tmp_path), "--hf-kernel", "hub", "--wheel", fails=True)
    assert "leave out --wheel and --into" in done.stdout + done.stderr
