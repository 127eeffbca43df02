"""`opsmith new`: the tree of what it writes, what to run next, and requests that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsmith import scaffold

from .conftest import Invoke, Run, flat


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_a_project_is_shown_as_a_tree_with_the_next_commands(invoke: Invoke, here: Path) -> None:
    result = invoke("new", "mine", "--kind", "cuda")
    assert result.exit_code == 0, result.output
    assert files(here / "mine") == set(scaffold.plan("mine", "cuda", force=True).files)
    lines = result.output.splitlines()
    assert lines[:3] == ["✓ The project mine, 17 files:", "", "mine/"]
    assert "│   │   │   ├── kernel.cu  CUDA kernels" in lines
    assert [line.partition("   ")[0].strip() for line in lines[lines.index("Next:") + 1 :]] == [
        "cd mine && pip install -e '.[dev]'",
        "pytest",
        "opsmith bench mine",
    ]


def test_inside_a_project_one_more_op_is_written(invoke: Invoke, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("new", "mine")
    before = {path: (here / "mine" / path).read_text() for path in files(here / "mine")}
    monkeypatch.chdir("mine")
    result = invoke("new", "gate", "--kind", "triton")
    assert result.exit_code == 0, result.output
    assert "✓ The op mine::gate, 5 files:" in result.output and "pytest tests/test_gate.py" in result.output
    assert files(here / "mine") - set(before) == {
        *(f"src/mine/ops/gate/{name}" for name in ("README.md", "__init__.py", "kernel.py", "op.py")),
        "tests/test_gate.py",
    }
    assert all((here / "mine" / path).read_text() == text for path, text in before.items())


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_dry_run_shows_the_tree_and_writes_nothing(invoke: Invoke, here: Path, kind: str) -> None:
    result = invoke("new", "mine", "--kind", kind, "--dry-run")
    assert result.exit_code == 0 and "Would write the project mine, " in result.output
    assert all(Path(path).name in result.output for path in scaffold.plan("mine", kind).files)
    assert "Next:" not in result.output and not list(here.iterdir())


def test_json_has_the_files(invoke: Invoke, here: Path) -> None:
    planned = json.loads(invoke("new", "mine", "--dry-run", "--json", "-").stdout)
    assert not planned.pop("written") and not list(here.iterdir())
    assert invoke("new", "mine", "--json", "made.json").output.startswith("✓ The project mine")
    made = json.loads((here / "made.json").read_text())
    assert made.pop("written") and made == planned
    assert set(made["files"]) == files(here / "mine") and made["replaced"] == []
    assert (made["package"], made["op"], made["kind"]) == ("mine", "add_silu", "pointwise")


def test_force_names_what_it_replaces(invoke: Invoke, here: Path) -> None:
    invoke("new", "mine")
    (here / "mine" / "README.md").write_text("mine")
    assert invoke("new", "mine").exit_code == 2 and (here / "mine" / "README.md").read_text() == "mine"
    (here / "mine" / "pyproject.toml").unlink()
    result = invoke("new", "mine", "--force")
    assert result.exit_code == 0 and "├── README.md  replaced" in result.output
    assert (here / "mine" / "README.md").read_text().startswith("# mine")


def test_what_is_left_to_do_by_hand_is_a_note(invoke: Invoke, here: Path) -> None:
    (here / "src" / "mine").mkdir(parents=True)
    (here / "src" / "mine" / "__init__.py").touch()
    (here / "pyproject.toml").write_text('[project]\nname = "mine"\ndependencies = ["opsmith"]\n')
    result = invoke("new", "gate")
    assert "note: Declare the ops when the package is imported: add `from . import ops`" in flat(result.output)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("my-op",), "'my-op' cannot be the name: a package's name consists of lower-case letters"),
        (("torch",), "'torch' cannot be the name: a module of this name is installed here"),
        (("mine", "--into", "full"), "is not empty: it has notes.txt. Choose another directory (--into DIR)"),
        (("mine", "--into", "full/notes.txt"), "is a file, and the project needs a directory"),
        (("mine", "--kind", "fortran"), "'fortran' is not one of 'pointwise', 'rowwise', 'op'"),
        ((), "Missing argument 'NAME'"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    invoke: Invoke, here: Path, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (here / "full").mkdir()
    (here / "full" / "notes.txt").touch()
    result = invoke("new", *arguments)
    assert result.exit_code == 2
    assert words in flat(result.output)
    assert "Traceback" not in result.output and files(here) == {"full/notes.txt"}


def test_it_works_where_torch_is_not_installed(run: Run, here: Path) -> None:
    (here / "torch.py").write_text("raise ImportError('torch is broken')\n")
    done = run("new", "mine", PYTHONPATH=f"{here}:{Path(scaffold.__file__).parents[2]}")
    assert done.returncode == 0 and (here / "mine" / "pyproject.toml").exists(), done.stderr
