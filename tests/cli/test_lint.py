"""`opsmith lint`: places that editors lead to, the line, the remedy, and the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith.lint import REASONS

from .conftest import PACKAGES, Invoke, Run, flat

BAD = "void f(float* x) {\n  scale_kernel<<<1, 256>>>(x);\n}\n"
GOOD = "void f(float* x, cudaStream_t s) {\n  scale<<<1, 256, 0, s>>>(x);\n  C10_CUDA_KERNEL_LAUNCH_CHECK();\n}\n"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.cu"
    path.write_text(BAD)
    return path


def test_a_finding_has_its_place_its_line_with_a_mark_and_its_remedy(run: Run, bad: Path) -> None:
    done = run("lint", str(bad), COLUMNS="100")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[:6] == [
        f"{bad}:2:3: default-stream",
        "    scale_kernel is launched on the default stream: if another stream is current (torch.cuda.stream,",
        "    a CUDA graph), it runs too early or too late.",
        "   2 │ scale_kernel<<<1, 256>>>(x);",
        "     │ ^~~~~~~~~~~~",
        "    fix Take a cudaStream_t from the caller: <<<grid, block, 0, stream>>>",
    ]
    assert done.stdout.splitlines()[-1] == "2 findings in 1 of 1 file: default-stream 1, unchecked-launch 1"


def test_a_place_is_never_wrapped_however_narrow_the_terminal_is(run: Run, bad: Path) -> None:
    done = run("lint", str(bad), COLUMNS="30")
    assert f"{bad}:2:3: default-stream" in done.stdout.splitlines()


def test_the_mark_is_under_what_was_found_after_tabs_and_wide_letters(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wide.cu"
    path.write_text("void f() {\n\t\tx = /* 漢字 */ 1;\tcudaDeviceSynchronize();\n}\n")
    lines = run("lint", str(path), COLUMNS="100").stdout.splitlines()
    assert lines[2] == "   2 │ x = /* 漢字 */ 1;    cudaDeviceSynchronize();"
    assert lines[3] == "     │ " + " " * 21 + "^" + "~" * 20  # two cells each


def test_of_a_long_line_the_part_is_shown_that_has_the_mark(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.cu"
    path.write_text("void f() { " + "g(); " * 100 + "cudaDeviceSynchronize(); }\n")
    lines = run("lint", str(path), COLUMNS="80").stdout.splitlines()
    assert lines[2].startswith("   1 │ …") and "cudaDeviceSynchronize" in lines[2]
    assert lines[2].index("cudaDevice") == lines[3].index("^")
    assert all(len(line) <= 80 for line in lines[1:])


def test_right_sources_end_well(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "one.cu").write_text(GOOD)
    (tmp_path / "two.py").write_text("x = 1\n")
    result = invoke("lint", tmp_path)
    assert (result.exit_code, flat(result.output)) == (0, "✓ no finding in 2 files")


def test_json_has_every_fact(invoke: Invoke, bad: Path, tmp_path: Path) -> None:
    written = tmp_path / "findings.json"
    result = invoke("lint", bad, "--json", written)
    assert result.exit_code == 1 and "default-stream" in result.output
    facts = json.loads(written.read_text())
    assert facts["files"] == 1 and len(facts["findings"]) == 2
    assert facts["findings"][0] == {
        "path": str(bad),
        "line": 2,
        "column": 3,
        "rule": "default-stream",
        "message": "scale_kernel is launched on the default stream: if another stream is current "
        "(torch.cuda.stream, a CUDA graph), it runs too early or too late.",
        "remedy": "Take a cudaStream_t from the caller: <<<grid, block, 0, stream>>>",
    }
    alone = invoke("lint", bad, "--json", "-")
    assert json.loads(alone.output) == facts


def test_rules_are_listed_with_their_reasons(invoke: Invoke) -> None:
    result = invoke("lint", "--rules")
    assert result.exit_code == 0
    for name, reason in REASONS.items():
        assert f"{name} {reason}" in flat(result.output)


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--select", "default-stream"), ["default-stream"]),
        (("--ignore", "default-stream"), ["unchecked-launch"]),
        (("--select", "default-stream, unchecked-launch", "--ignore", "unchecked-launch"), ["default-stream"]),
        (("--select", "int32-index", "--select", "float-atomics"), []),
    ],
)
def test_rules_are_chosen(invoke: Invoke, bad: Path, options: tuple[str, ...], left: list[str]) -> None:
    result = invoke("lint", bad, "--json", "-", *options)
    assert [finding["rule"] for finding in json.loads(result.output)["findings"]] == left
    assert result.exit_code == bool(left)


def test_an_allow_is_not_called_unused_because_its_rule_was_not_chosen(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "allowed.cu"
    path.write_text(BAD.replace("(x);", "(x);  // opsmith: allow(default-stream, unchecked-launch)"))
    assert invoke("lint", path, "--ignore", "default-stream").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a CUDA or C++ source, or a directory of them: opsmith lint csrc/"),
        (("nowhere.cu",), "nowhere.cu: there is no such file or directory."),
        (
            (".", "--select", "defaultstream"),
            "--select defaultstream: there is no such rule. Did you mean default-stream?",
        ),
        ((".", "--ignore", "x"), "--ignore x: there is no such rule. `opsmith lint --rules` lists the rules."),
        ((".",), "no source was found in .: sources end in .cu .cuh"),
        (("locked.cu",), "locked.cu: cannot be read: Permission denied."),
    ],
)
def test_invalid_options_are_refused(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if "locked.cu" in arguments:
        (tmp_path / "locked.cu").touch()

        def locked(*_: object) -> None:
            raise PermissionError(13, "Permission denied", "locked.cu")

        monkeypatch.setattr("opsmith.lint.lint_files", locked)
    result = invoke("lint", *arguments)
    assert result.exit_code == 2
    assert words in flat(result.output)
    assert "Traceback" not in result.output


def test_a_json_file_that_cannot_be_written_is_refused(invoke: Invoke, bad: Path, tmp_path: Path) -> None:
    result = invoke("lint", bad, "--json", tmp_path / "no" / "where.json")
    assert result.exit_code == 2
    assert "there is no directory" in flat(result.output)


def test_it_works_where_torch_is_broken(bad: Path) -> None:
    code = (
        "import sys\n"
        "class Broken:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch': raise ImportError('torch is broken')\n"
        "sys.meta_path.insert(0, Broken())\n"
        f"sys.argv = ['opsmith', 'lint', {str(bad)!r}]\n"
        "from opsmith.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(PACKAGES)}
    )
    assert done.returncode == 1, done.stderr
    assert "2 findings in 1 of 1 file" in flat(done.stdout)
