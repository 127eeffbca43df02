"""What is written works: one project with an op of each kind is installed and tested, and faults in it are found.

Each op is there twice. In the second one, the sign of a result is wrong, and its tests must fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import opsmith
from opsmith import lint, scaffold
from opsmith.scaffold import templates

Once = Callable[[str, Callable[[Path], object]], Path]
OPSMITH = Path(opsmith.__file__).parents[1]
PACKAGE = "scaffolded_ops"
OPS = f"src/{PACKAGE}/ops"
FAULTS = {
    "pointwise": ("op.py", "residual.add_(x + bias)", "residual.sub_(x + bias)"),
    "op": ("gradient.py", "grad = grad_total + scale * g -", "grad = grad_total - scale * g -"),
    "cuda": ("kernel.cu", "T(sum * scale", "T(-sum * scale"),
    "extension": ("kernel.cu", "T(sum * scale", "T(-sum * scale"),
    "triton": ("kernel.py", "sum * scale * factor,", "-sum * scale * factor,"),
    "numba": ("kernel.py", "= value * scale *", "= -value * scale *"),
}
"""A file of each kind, and the fault in it."""


@pytest.fixture(scope="module")
def project(once: Once) -> Path:
    """A project with an op of each kind, and one with a fault in it."""
    return once("projects", lambda directory: write(directory / PACKAGE)) / PACKAGE


def write(root: Path) -> None:
    first = scaffold.plan(PACKAGE, into=root)
    scaffold.write(first.root, first.files)
    for kind, (file, right, wrong) in FAULTS.items():
        for name in (f"right_{kind}", f"wrong_{kind}"):
            more = scaffold.plan(name, kind, into=root)
            assert not more.is_project and not more.notes
            scaffold.write(more.root, more.files)
        path = root / OPS / f"wrong_{kind}" / file
        assert path.read_text().count(right) == 1, path
        path.write_text(path.read_text().replace(right, wrong))


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{OPSMITH}{os.pathsep}src", "OPSMITH_RUNTIME": "python", **environment},
    )


@pytest.fixture(scope="module")
def results(project: Path, once: Once) -> dict[tuple[str, str], str]:
    """'passed', 'failed' or 'skipped' by the op and the test: what a CPU shows of each op."""
    printed = once("tests", lambda directory: (directory / "printed").write_text(output_of_tests(project))) / "printed"
    found = re.findall(r"^(PASSED|FAILED|SKIPPED) tests/test_(\w+)\.py::(\S+)", printed.read_text(), re.MULTILINE)
    assert found, printed.read_text()
    return {(op, test): status.lower() for status, op, test in found}


def output_of_tests(project: Path) -> str:
    """What pytest prints about the tests that are chosen here."""
    right = "right and (33 or refused or the_results_are or learns or zeros)"
    wrong = "wrong and (33 or the_results_are or (wrong_op and gradients))"
    chosen = f"({right}) or ({wrong})"
    done = run(
        "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-p", "opsmith.testing.plugin", "-k", chosen, cwd=project
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_an_op_of_every_kind_passes_its_tests(results: dict[tuple[str, str], str], kind: str) -> None:
    own = {test: status for (op, test), status in results.items() if op == f"right_{kind}"}
    assert len(own) >= 5 and set(own.values()) == {"passed"}, own


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_a_wrong_sign_is_found(results: dict[tuple[str, str], str], kind: str) -> None:
    own = {test: status for (op, test), status in results.items() if op == f"wrong_{kind}"}
    assert "failed" in own.values(), own


def test_the_example_trains_and_importing_declares_every_op(project: Path) -> None:
    names = [f"right_{kind}{suffix}" for kind in scaffold.KINDS for suffix in ("", "_")]
    code = (
        f"import torch, {PACKAGE}, examples.train\n"
        f"print([name for name in {names} if not hasattr(torch.ops.{PACKAGE}, name)])\n"
        "examples.train.main()\n"
    )
    (project / "run.py").write_text(code)
    done = run("run", cwd=project)
    (project / "run.py").unlink()
    lines = done.stdout.splitlines()
    losses = [float(line.partition("loss ")[2]) for line in lines[1:]]
    assert lines[0] == "[]" and len(losses) == 5 and losses[-1] < losses[0], done.stdout + done.stderr


# --- Tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("p", "q"), ("a_package_of_kernels_for_a_team", "scaled_dot_product_attention_xyz")])
def test_ruff_has_nothing_to_say_whatever_the_names_are(tmp_path: Path, names: tuple[str, str]) -> None:
    for kind in scaffold.KINDS:
        scaffold.write(tmp_path / kind, templates.rendered(kind, *names, project=True))
    checked = run("ruff", "check", "--no-cache", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    formatted = run("ruff", "format", "--no-cache", "--diff", cwd=tmp_path)
    assert formatted.returncode == 0, formatted.stdout


def test_mypy_has_nothing_to_say(project: Path, tmp_path: Path) -> None:
    done = run("mypy", "--cache-dir", str(tmp_path), cwd=project)
    assert done.returncode == 0, done.stdout


def test_lint_has_nothing_to_say(project: Path) -> None:
    assert lint.lint_files(lint.sources([project / "src"])) == []


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_few_files_are_there_to_be_read(kind: str) -> None:
    files = templates.rendered(kind, "mine", "my", project=True)
    read = [path for path, text in files.items() if not path.endswith(("LICENSE", ".gitignore", ".clangd", ".typed"))]
    read = [path for path in read if not path.endswith("__init__.py") or "import_module" in files[path]]
    assert len(read) <= 12, read


# --- Installation -----------------------------------------------------------------------------------------------------


def test_pip_installs_it_and_builds_a_wheel_of_it_without_torch(project: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    (packages,) = environment.glob("lib/python*/site-packages")
    # It sees this environment's packages; the one that pip makes for the build has its backend alone.
    (packages / "outer.pth").write_text(
        "\n".join([str(OPSMITH), *(path for path in sys.path if "site-packages" in path)])
    )
    pip = ("pip", "--disable-pip-version-check", "--python", str(python))
    done = run(*pip, "install", "--no-input", "-e", ".", cwd=project, PYTHONPATH="")
    if done.returncode and re.search("No matching distribution found for setuptools|Failed to establish", done.stderr):
        pytest.skip(f"pip finds no setuptools to build with: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    code = f"import {PACKAGE}; print({PACKAGE}.__file__)"
    shown = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.strip() == str(project / "src" / PACKAGE / "__init__.py"), shown.stderr

    done = run(
        "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), ".", cwd=project, PYTHONPATH=""
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(project / "src").as_posix() for path in (project / "src" / PACKAGE).rglob("*.*")}
    assert {name for name in sources if name.endswith((".py", ".cu", ".cpp", ".md", ".typed"))} <= names
