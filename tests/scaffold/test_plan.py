"""What may be named how, which project an op is added to, and that files are written whole or not at all."""

from __future__ import annotations

import itertools
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from opsmith import scaffold
from opsmith.errors import FilesExistError, ScaffoldNameError, ScaffoldPlaceError
from opsmith.scaffold import writing
from opsmith.scaffold.names import TORCH_NAMESPACES

DEPENDS = '[project]\nname = "my-kernels"\ndependencies = ["torch", "opsmith[cuda13]>=0.1"]\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def package(root: Path, name: str = "my_kernels", settings: str = DEPENDS) -> Path:
    folder = root / "src" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (root / "pyproject.toml").write_text(settings)
    return folder


def contents(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my-kernels", "lower-case letters, digits and underscores, and starts with a letter. Try my_kernels."),
        ("MyKernels", "Try mykernels."),
        ("Torch", "starts with a letter. Try torch_ops."),
        ("_json_", "starts with a letter. Try json_ops."),
        ("2fast", "Try fast."),
        ("über", "lower-case letters"),
        ("", "lower-case letters"),
        ("../up", "Try up."),
        ("_private", "Try private."),
        ("lambda", "it is a keyword of Python. Try lambda_ops."),
        ("json", "it is a module of Python's standard library. Try json_ops."),
        ("torch", "a module of this name is installed here, "),
        ("opsmith", "a module of this name is installed here, "),
        ("pytest", "a module of this name is installed here, "),
        ("aten", "torch has operators of its own in torch.ops.aten. Try my_aten."),
        ("tests", "the project has a directory of this name. Try my_tests."),
        ("src", "the project has a directory of this name. Try my_src."),
        ("mine_", "marks an in-place operator, which the files define as well. Try mine."),
        ("k" * 65, "more than 64 characters"),
    ],
)
def test_names_that_no_package_can_have_are_refused(here: Path, name: str, words: str) -> None:
    with pytest.raises(ScaffoldNameError) as caught:
        scaffold.plan(name)
    assert words in str(caught.value)
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch", "the code of the op uses this name for something else. Try torch_op."),
        ("residual", "the code of the op uses this name for something else."),
        ("def", "it is a keyword of Python. Try def_op."),
        ("test_of_ops", "pytest would take the op for a test. Try test_of_ops_op."),
        ("Gelu", "lower-case letters, digits and underscores, and starts with a letter. Try gelu."),
    ],
)
def test_names_that_no_op_can_have_are_refused(here: Path, name: str, words: str) -> None:
    package(here)
    with pytest.raises(ScaffoldNameError) as caught:
        scaffold.plan(name, "cuda")
    assert words in str(caught.value)


def test_an_op_may_have_the_name_of_an_installed_module(here: Path) -> None:
    package(here)
    assert scaffold.plan("json").op == "json"


def test_every_namespace_of_torch_is_known() -> None:
    code = "import torch; print(*{name.partition('::')[0] for name in torch._C._dispatch_get_all_op_names()})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(found) > 10
    assert {name for name in found if not name.startswith("_")} <= TORCH_NAMESPACES


# --- Places -----------------------------------------------------------------------------------------------------------


def test_outside_a_package_it_is_a_project_in_a_directory_of_its_name(here: Path) -> None:
    made = scaffold.plan("mine", "cuda")
    assert made.is_project and made.root == here / "mine" and made.op == "add_rms_norm"
    assert "src/mine/ops/add_rms_norm/kernel.cu" in made.files and "pyproject.toml" in made.files


@pytest.mark.parametrize("start", [".", "src", "src/my_kernels", "docs/deep"])
def test_anywhere_in_a_package_it_is_one_more_op(here: Path, monkeypatch: pytest.MonkeyPatch, start: str) -> None:
    (package(here) / "ops").mkdir()
    (here / start).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(start)
    made = scaffold.plan("gate", "triton")
    assert not made.is_project and made.root == here and made.package == "my_kernels"
    ops = "src/my_kernels/ops"
    assert set(made.files) == {
        f"{ops}/__init__.py", f"{ops}/gate/__init__.py", f"{ops}/gate/op.py", f"{ops}/gate/kernel.py",
        f"{ops}/gate/README.md", "tests/test_gate.py",
    }  # fmt: skip
    assert '"my_kernels::gate"' in made.files[f"{ops}/gate/op.py"]


def test_into_chooses_the_package(here: Path) -> None:
    package(here / "other")
    assert scaffold.plan("gate", into=here / "other" / "src").root == here / "other"


@pytest.mark.parametrize("into", ["../other", "src/../../other", "nowhere/../../other"])
def test_into_beside_a_project_is_a_separate_project(here: Path, monkeypatch: pytest.MonkeyPatch, into: str) -> None:
    package(here / "one")
    monkeypatch.chdir("one")
    made = scaffold.plan("other", into=Path(into))
    assert made.is_project and made.root == here / "other"


def test_a_package_beside_its_pyproject_is_found(here: Path) -> None:
    package(here)
    os.rename(here / "src" / "my_kernels", here / "my_kernels")
    assert "my_kernels/ops/gate/op.py" in scaffold.plan("gate").files


@pytest.mark.parametrize(
    "settings",
    [
        '[project]\nname = "web"\ndependencies = ["django"]  # not "opsmith"\n',
        '[project]\nname = "opsmith"\nscripts.opsmith = "opsmith.cli:main"\n',
        '[project]\nname = "near"\ndependencies = ["opsmith_tools", "not-opsmith"]\n',
    ],
)
def test_a_project_that_does_not_depend_on_opsmith_gets_no_op(here: Path, settings: str) -> None:
    package(here, settings=settings)
    assert scaffold.plan("mine").is_project


def test_of_several_packages_it_is_the_one_named_as_the_project_or_the_one_around(here: Path) -> None:
    package(here)
    other = package(here, "more_kernels")
    assert scaffold.plan("gate").package == "my_kernels"
    assert scaffold.plan("gate", into=other).package == "more_kernels"
    (here / "pyproject.toml").write_text(DEPENDS.replace("my-kernels", "neither"))
    with pytest.raises(ScaffoldPlaceError, match=r"several packages: src.more_kernels, src.my_kernels\. .* --into "):
        scaffold.plan("gate")


def test_what_the_author_must_do_by_hand_is_listed(here: Path) -> None:
    folder = package(here)
    first = scaffold.plan("gate", "cuda")
    assert "src/my_kernels/ops/__init__.py" in first.files
    assert [note.partition(":")[0] for note in first.notes] == [
        "Declare the ops when the package is imported",
        "Put the kernel into the wheel",
    ]
    (folder / "ops").mkdir()
    (folder / "ops" / "__init__.py").write_text("from .old import old\n")
    second = scaffold.plan("gate")
    assert "src/my_kernels/ops/__init__.py" not in second.files
    assert "does not look for folders: import the op there" in second.notes[0]


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_a_directory_that_is_not_empty_is_refused_and_force_keeps_its_other_files(here: Path) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("mine")
    (here / "mine" / "README.md").write_text("mine")
    with pytest.raises(FilesExistError, match=r"is not empty: it has README.md, notes.txt\..*--force"):
        scaffold.plan("mine")
    made = scaffold.plan("mine", force=True)
    scaffold.write(made.root, made.files)
    assert contents(here / "mine") == {**made.files, "notes.txt": "mine"}


def test_a_repository_without_files_is_empty(here: Path) -> None:
    (here / "mine" / ".git").mkdir(parents=True)
    (here / "mine" / ".git" / "HEAD").write_text("ref: refs/heads/main")
    made = scaffold.plan("mine")
    scaffold.write(made.root, made.files)
    assert contents(here / "mine") == {**made.files, ".git/HEAD": "ref: refs/heads/main"}


def test_an_op_that_exists_is_refused(here: Path) -> None:
    package(here)
    made = scaffold.plan("gate")
    scaffold.write(made.root, made.files)
    with pytest.raises(FilesExistError, match=r"already has src.my_kernels.ops.gate.*another name.*--force"):
        scaffold.plan("gate", "cuda")


def test_a_file_in_the_place_of_the_directory_is_refused(here: Path) -> None:
    (here / "mine").touch()
    for into in (here / "mine", here / "mine" / "below"):
        with pytest.raises(ScaffoldPlaceError, match=rf"^{here}/mine is a file"):
            scaffold.plan("mine", into=into)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize(("function", "call"), [("pathlib.Path.write_text", 5), ("os.replace", 5), ("os.rename", 0)])
def test_interrupted_writing_leaves_everything_as_it_was(
    here: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int, error: BaseException
) -> None:
    if function == "os.replace":  # files go one by one only into a directory that is there
        (here / "mine").mkdir()
        (here / "mine" / "README.md").write_text("mine")
    before = contents(here), sorted(os.listdir(here))
    made = scaffold.plan("mine", force=True)
    real, calls = pkgutil.resolve_name(function), itertools.count()

    def failing_once(*arguments: object, **options: object) -> object:
        if next(calls) == call:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(function, failing_once)
    with pytest.raises((ScaffoldPlaceError, KeyboardInterrupt)):
        scaffold.write(made.root, made.files)
    assert next(calls) > call
    assert (contents(here), sorted(os.listdir(here))) == before


def test_a_place_that_cannot_be_written_to_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(writing.tempfile, "mkdtemp", refused)
    with pytest.raises(ScaffoldPlaceError, match="cannot be written to: Permission denied"):
        scaffold.write(here / "a" / "b", {"x": ""})
    assert not list(here.iterdir())


def test_no_template_is_hidden_where_setuptools_and_git_would_leave_it_out() -> None:
    root = Path(scaffold.__file__).parents[1] / "templates"
    assert [path.name for path in root.rglob("*") if path.name.startswith(".")] == []
    assert {".gitignore", ".clangd", ".github/workflows/ci.yml"} <= set(scaffold.plan("zzz").files)


def test_planning_imports_neither_torch_nor_ops() -> None:
    code = "import sys; from opsmith import scaffold; scaffold.plan('zzz', 'numba'); assert 'torch' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code], check=True, cwd="/", env={**os.environ, "PYTHONPATH": ":".join(sys.path)}
    )
