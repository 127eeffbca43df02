"""The application itself: its verbs, its version, what it imports and how it refuses."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import opsmith
from opsmith import cli

from .conftest import PACKAGES, Invoke, Run, flat

VERBS = [module.name for module in pkgutil.iter_modules(cli.__path__) if not module.name.startswith("_")]


def test_help_names_every_verb(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert len(VERBS) >= 11 and all(f" {verb} " in result.output for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_writes_its_result_as_json(invoke: Invoke, verb: str) -> None:
    assert "--json FILE Write the result as JSON; - prints it in place of the report." in flat(
        invoke(verb, "--help").output.replace("│", "")
    )


def test_no_verb_at_all_shows_the_help(invoke: Invoke) -> None:
    assert "Usage: opsmith" in invoke().output


def test_version(invoke: Invoke) -> None:
    result = invoke("--version")
    assert (result.exit_code, result.output) == (0, f"opsmith {opsmith.__version__}\n")


def test_a_mistyped_verb_is_answered_with_the_right_one(invoke: Invoke) -> None:
    result = invoke("shwo")
    assert result.exit_code == 2
    assert "No such command 'shwo'. Did you mean 'show'?" in result.output


def test_a_bug_of_our_own_is_not_hidden(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages without a traceback are for what users can fix; a bug of opsmith's shows where it is."""
    from opsmith.cli import _ops

    def bug(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(_ops, "load", bug)
    assert isinstance(invoke("list", "mish.py").exception, ZeroDivisionError)


def _imported_by(*arguments: str) -> set[str]:
    """The packages that a run of the command line has imported when it ends."""
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('imported:', *sys.modules))\n"
        f"sys.argv = ['opsmith', *{arguments!r}]\n"
        "from opsmith.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(PACKAGES)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("imported:")[2].split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("check", "--help"), ("doctor", "--help"), ("cache",)]
)
def test_verbs_that_need_no_torch_do_not_import_it(arguments: tuple[str, ...]) -> None:
    assert "torch" not in _imported_by(*arguments)


def test_only_check_imports_hypothesis() -> None:
    code = "import opsmith.benchmark.run, opsmith.checks.run, opsmith.testing.plugin, opsmith.ops, sys\n"
    code += "assert 'hypothesis' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(PACKAGES)})


@pytest.mark.parametrize("verb", ["bench", "cache", "check", "doctor", "lint", "list", "show"])
def test_json_takes_a_file_in_every_verb(verb: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "Write the result as JSON; - prints it in place of the report." in invoke(verb, "--help").output


@pytest.mark.parametrize("verb", ["bench", "check", "list", "show"])
def test_ops_are_given_alike_in_every_verb(verb: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = flat(invoke(verb, "--help").output)
    assert "Ops by name (mish, mylib::mish), or modules and files that declare ops (mylib.ops, ops.py)." in words
    assert "A module or file that declares the named ops." in words


def test_a_terminal_that_cannot_show_a_character_is_no_reason_to_fail(run: Run, tmp_path: Path) -> None:
    done = run("cache", PYTHONIOENCODING="ascii", OPSMITH_CACHE_DIR=str(tmp_path / "zwölf"))
    assert done.returncode == 0, done.stderr
    assert "zw?lf" in done.stdout


def test_public_names_are_imported_on_first_use_and_none_is_also_a_module() -> None:
    code = (
        "import opsmith, sys\n"
        "assert 'torch' not in sys.modules\n"
        "assert set(opsmith.__all__) <= set(dir(opsmith))\n"
        "assert not hasattr(opsmith, 'no_such_name')\n"
        "import importlib.util\n"
        "assert not [n for n in opsmith.__all__ if importlib.util.find_spec(f'opsmith.{n}')]\n"
        "assert opsmith.op.__name__ == 'op' and callable(opsmith.op)\n"
        "from opsmith import *\n"
        "assert op is opsmith.op and Op is opsmith.Op\n"
        "assert opsmith.toolchain.usage\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(PACKAGES)})
