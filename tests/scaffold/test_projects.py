"""What is written works: one project with an op of each kind is installed and tested, and faults in it are found.

Each op is there twice. In the second one, the sign of a result is wrong, and its tests must fail.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import fresh_process
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
    "rowwise": ("op.py", "residual.add_(x)", "residual.sub_(x)"),
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
    return fresh_process.run(
        ["-m", *arguments],
        cwd=cwd,
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


@pytest.mark.long
@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_an_op_of_every_kind_passes_its_tests(results: dict[tuple[str, str], str], kind: str) -> None:
    own = {test: status for (op, test), status in results.items() if op == f"right_{kind}"}
    assert len(own) >= 5 and set(own.values()) == {"passed"}, own


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_a_wrong_sign_is_found(results: dict[tuple[str, str], str], kind: str) -> None:
    own = {test: status for (op, test), status in results.items() if op == f"wrong_{kind}"}
    assert "failed" in own.values(), own


USE = f"""
import functools
import re
import runpy
import opsmith
import torch
import {PACKAGE}
names = {[f"right_{kind}{ending}" for kind in scaffold.KINDS for ending in ("", "_")]}
print([name for name in names if not hasattr(torch.ops.{PACKAGE}, name)])
(block,) = re.findall(r"```python\\n(.*?)```", open("README.md").read(), re.DOTALL)
exec(block)
opsmith.bench = functools.partial(opsmith.bench, against="eager", direction="forward")  # the rest takes a minute
runpy.run_path("benchmarks/bench.py", run_name="__main__")
runpy.run_path("examples/train.py", run_name="__main__")
"""


def test_importing_declares_every_op_and_the_readme_the_benchmark_and_the_example_run(project: Path) -> None:
    (project / "run.py").write_text(USE)
    done = run("run", cwd=project)
    (project / "run.py").unlink()
    lines = done.stdout.splitlines()
    assert lines and lines[0] == "[]", done.stdout + done.stderr
    timed = [line.split()[-3] for line in lines if line.endswith(" us")]
    assert timed and timed == ["opsmith", "eager"] * (len(timed) // 2), done.stdout
    losses = [float(line.partition("loss ")[2]) for line in lines if "loss" in line]
    assert len(losses) == 5 and losses[-1] < losses[0], done.stdout + done.stderr


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_the_workflow_tests_builds_and_publishes_a_tag_and_asks_for_extras_that_there_are(kind: str) -> None:
    yaml = pytest.importorskip("yaml")
    files = templates.rendered(kind, "mine", "my", project=True)
    jobs = yaml.safe_load(files[".github/workflows/ci.yml"])["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands["test"] == ["pip install -e '.[dev]'", "ruff check && ruff format --check && mypy", "pytest"]
    assert commands["wheel"][-1] == "opsmith build mine --wheel"
    assert jobs["wheel"]["needs"] == "test" and jobs["publish"]["needs"] == "wheel"
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    own, ours = (_extras(text) for text in (files["pyproject.toml"], (OPSMITH.parent / "pyproject.toml").read_text()))
    wanted = re.findall(
        r"(\.|opsmith)\[(\w+)\]", " ".join([*itertools.chain(*commands.values()), files["pyproject.toml"]])
    )
    assert ("opsmith", "build") in wanted and all(extra in (own if of == "." else ours) for of, extra in wanted)


def _extras(settings: str) -> set[str]:
    (section,) = re.findall(r"^\[project\.optional-dependencies\]\n(.*?)^\[", settings, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^(\w+) = ", section, re.MULTILINE))


# --- Tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("p", "q"), ("a_package_of_kernels_for_a_team", "scaled_dot_product_attention_xyz")])
def test_ruff_reports_nothing_for_any_names(tmp_path: Path, names: tuple[str, str]) -> None:
    for kind in scaffold.KINDS:
        scaffold.write(tmp_path / kind, templates.rendered(kind, *names, project=True))
    checked = run("ruff", "check", "--no-cache", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    formatted = run("ruff", "format", "--no-cache", "--diff", cwd=tmp_path)
    assert formatted.returncode == 0, formatted.stdout


def test_mypy_reports_nothing(project: Path, tmp_path: Path) -> None:
    done = run("mypy", "--cache-dir", str(tmp_path), cwd=project)
    assert done.returncode == 0, done.stdout


def test_lint_reports_nothing(project: Path) -> None:
    assert lint.lint_files(lint.sources([project / "src"])) == []


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_at_most_twelve_files_must_be_read(kind: str) -> None:
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

    done = run("build", "--outdir", str(tmp_path), cwd=project, PYTHONPATH="")  # by way of a source distribution
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(project / "src").as_posix() for path in (project / "src" / PACKAGE).rglob("*.*")}
    assert {name for name in sources if name.endswith((".py", ".cu", ".cpp", ".md", ".typed"))} <= names
