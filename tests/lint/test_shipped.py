"""opsmith's own sources, written and generated, have no findings; linting is fast and needs no torch."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.lint import lint_files, lint_text, sources

ROOT = Path(__file__).parents[2]
WRITTEN = ["src/opsmith", "examples", "benchmarks", "tests/emulator/right", "tests/generate/golden"]
GENERATED = [name for name in opsmith.ops.names() if getattr(opsmith.ops, name).is_generated]


@pytest.mark.parametrize("folder", WRITTEN)
def test_written_sources_have_no_finding(folder: str) -> None:
    paths = sources([ROOT / folder])
    assert paths
    assert [str(finding) for finding in lint_files(paths)] == []


@pytest.mark.parametrize(("device", "suffix"), [("cuda", ".cu"), ("cpu", ".cpp")])
@pytest.mark.parametrize("name", GENERATED)
def test_generated_kernels_have_no_finding(name: str, device: str, suffix: str) -> None:
    op = getattr(opsmith.ops, name)
    for backward in (False, True) if not op.signature.mutated else (False,):
        for dtype in (torch.float32, torch.bfloat16):
            text = op.source(device, backward=backward, dtype=dtype)
            assert [str(finding) for finding in lint_text(text, f"{name}{suffix}")] == []


def test_the_linter_needs_only_the_standard_library() -> None:
    code = (
        "import sys\n"
        "class Broken:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'numpy', 'rich', 'typer'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Broken())\n"
        "from opsmith import lint\n"
        "print(len(lint.lint_text('void f() { k<<<1, 1>>>(); }', 'a.cu')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT / "src")
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


@pytest.mark.timing
def test_a_thousand_lines_take_less_than_a_tenth_of_a_second() -> None:
    folders = (ROOT / "tests" / "lint" / "bad", ROOT / "tests" / "emulator" / "right")
    text = "".join(path.read_text() for folder in folders for path in sorted(folder.glob("*.cu")))
    text = "\n".join(text.split("\n")[:1000])
    assert text.count("\n") == 999
    times = []
    for _ in range(5):
        begin = time.process_time()  # of this process, whatever else the machine does
        assert lint_text(text, "long.cu")
        times.append(time.process_time() - begin)
    assert min(times) < 0.1
