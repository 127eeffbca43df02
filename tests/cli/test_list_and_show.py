"""`opsmith list` and `opsmith show` on ops of the user's own."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
import torch

import opsmith
from opsmith.cli.show import python_calls
from opsmith.kernels import NativeFunction, NativeKernel

from .conftest import Invoke, Run, flat

OPS = Path(__file__).parent / "ops_to_show.py"


def test_list_shows_name_schema_what_is_written_and_the_tier(invoke: Invoke) -> None:
    result = invoke("list", OPS)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("cli_tests::mish "))
    assert "cpu forward, samples" in lines[row]
    assert lines[row].rstrip().endswith(("C++", "Python"))
    assert lines[row + 1].startswith("(Tensor x) -> Tensor")
    assert "only the reference" in next(line for line in lines if line.startswith("cli_tests::optional_bias"))
    assert "in place" in next(line for line in lines if line.startswith("cli_tests::scale_"))


def test_a_file_given_twice_is_imported_once(invoke: Invoke) -> None:
    result = invoke("list", OPS, OPS)
    assert result.exit_code == 0, result.output


def test_a_module_is_found_in_the_current_directory(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_ops.py").write_text(
        "import torch, opsmith\n"
        "@opsmith.op('cli_tests::from_a_module')\n"
        "def double(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x * 2\n"
    )
    monkeypatch.chdir(tmp_path)
    result = invoke("list", "my_own_ops")
    assert "cli_tests::from_a_module" in result.output, result.output


def test_a_file_may_have_the_name_of_an_imported_module(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(
        "import torch, opsmith\n"
        "@opsmith.op('cli_tests::from_json')\n"
        "def double(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x * 2\n"
    )
    assert "cli_tests::from_json" in invoke("list", tmp_path / "json.py").output
    assert importlib.import_module("json").loads("[1]") == [1]


def test_show_lists_the_parts_of_an_op(invoke: Invoke) -> None:
    result = invoke("show", "cli_tests::mish", "--from", OPS)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("cli_tests::mish(Tensor x) -> Tensor\n")
    parts = {line[:15].strip(): line[17:].split() for line in result.output.splitlines() if len(line) > 17}
    assert parts["reference"][:3] == ["written", "mish", "(ops_to_show.py:14)"]
    assert parts["cpu forward"][0] == "written" and "mish_on_cpu" in parts["cpu forward"]
    assert parts["cuda forward"][:3] == ["derived", "the", "reference"]
    assert parts["vmap"][0] == "derived"
    assert parts["cost"][0] == "absent"
    assert "runtime" in result.output
    assert "Python runs in" in result.output


def test_ops_are_selected_by_name_by_file_and_by_from(invoke: Invoke) -> None:
    def listed(*arguments: object) -> list[str]:
        facts = json.loads(invoke("list", *arguments, "--json", "-").stdout)
        return [op["name"] for op in facts["ops"]]

    own = listed(OPS)
    assert "cli_tests::mish" in own and not any(name.startswith("opsmith::") for name in own)
    assert listed("--from", OPS) == own
    assert listed("swiglu", OPS, "opsmith::mish") == ["opsmith::swiglu", *own, "opsmith::mish"]
    assert listed("cli_tests::scale_", "--from", OPS) == ["cli_tests::scale_"]


@pytest.mark.parametrize("name", ["opsmith", "opsmith.ops"])
def test_the_shipped_ops_are_those_of_their_package(invoke: Invoke, name: str) -> None:
    assert invoke("list", name).output == invoke("list").output
    assert invoke("list", "--from", name).output == invoke("list").output


def test_a_module_without_ops_is_named(invoke: Invoke) -> None:
    for verb in ("list", "show", "bench"):
        result = invoke(verb, "email")
        assert result.exit_code == 2 and result.stderr.rstrip().endswith("email/__init__.py declares no op."), verb


def test_json_has_the_facts_of_list_and_show(invoke: Invoke, tmp_path: Path) -> None:
    listed = invoke("list", "swiglu", "--json", tmp_path / "list.json")
    assert "opsmith::swiglu" in listed.output, "the report is still printed"
    (op,) = json.loads((tmp_path / "list.json").read_text())["ops"]
    assert (op["name"], op["generated"]) == ("opsmith::swiglu", True) and "samples" in op["written"]
    shown = json.loads(invoke("show", "swiglu", "gelu", "--json", "-").stdout)["ops"]
    assert [op["name"] for op in shown] == ["opsmith::swiglu", "opsmith::gelu"]
    assert {"name": "vmap", "status": "derived", "detail": "by broadcasting"} in shown[0]["parts"]
    (source,) = json.loads(invoke("show", "swiglu", "--source", "cpu", "--json", "-").stdout)["ops"]
    assert source["source"] == opsmith.ops.swiglu.source("cpu")


def test_show_shows_several_ops(invoke: Invoke) -> None:
    output = invoke("show", "swiglu", "gelu").output
    assert output.index("opsmith::swiglu(") < output.index("\n\nopsmith::gelu(")
    assert invoke("show").exit_code == 2


def test_shipped_ops_are_listed_and_found_without_their_namespace(invoke: Invoke) -> None:
    lines = invoke("list").output.splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("opsmith::")]
    assert listed == [f"opsmith::{name}" for name in opsmith.ops.__all__]
    assert "generated kernels, samples" in flat("\n".join(lines))
    assert invoke("show", "swiglu").output.startswith("opsmith::swiglu(Tensor gate, Tensor up) -> Tensor\n")
    assert invoke("show", "opsmith::_template").exit_code == 0


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_show_prints_generated_sources_as_they_are_compiled(invoke: Invoke, device: str) -> None:
    op = opsmith.ops.polynomial
    forward = invoke("show", "opsmith::polynomial", "--source", device)
    assert forward.exit_code == 0, forward.output
    assert forward.output.rstrip() == op.source(device).rstrip()
    backward = invoke("show", "opsmith::polynomial", "--source", device, "--backward", "--dtype", "bfloat16")
    assert backward.output.rstrip() == op.source(device, backward=True, dtype=torch.bfloat16).rstrip()
    assert forward.output != backward.output


def test_sources_have_colours_in_a_terminal_and_their_own_lines(run: Run) -> None:
    arguments = ("show", "opsmith::scale_bias_relu", "--source", "cuda")
    coloured = run(*arguments, FORCE_COLOR="1", COLUMNS="40", TERM="xterm-256color").stdout
    assert "\x1b[" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert plain.rstrip() == opsmith.ops.scale_bias_relu.source("cuda").rstrip()
    assert run(*arguments, COLUMNS="40").stdout.rstrip() == plain.rstrip()


def test_an_op_that_is_not_pointwise_has_no_generated_source(invoke: Invoke) -> None:
    result = invoke("show", "cli_tests::mish", "--from", OPS, "--source", "cuda")
    assert result.exit_code == 2
    assert result.output.startswith("error: cli_tests::mish has no generated source: it is declared with @opsmith.op")
    result = invoke("show", "opsmith::mish", "--backward")
    assert result.exit_code == 2
    assert "give --source cuda or --source cpu too" in result.output


def test_statuses_have_their_colours_in_a_terminal(run: Run) -> None:
    done = run("show", "cli_tests::mish", "--from", str(OPS), FORCE_COLOR="1", COLUMNS="100", TERM="xterm-256color")
    assert done.returncode == 0, done.stderr
    assert "\x1b[32mwritten" in done.stdout
    assert "\x1b[34mderived" in done.stdout
    assert "\x1b[2mabsent" in done.stdout


def test_show_says_which_calls_go_through_python(tier: str, fresh) -> None:  # type: ignore[no-untyped-def]
    @opsmith.op(fresh("halve"))
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    halve.register_kernel("cuda", lambda x: x / 2)

    class Unbuilt(NativeFunction):
        ready = False  # nothing here calls it

    native = NativeKernel("default", "cpu", "contiguous", Unbuilt("a.so", "f"), halve.signature)
    halve._families.default.forward.kernels["cpu"] = native
    calls = python_calls(halve)
    if tier == "python":
        assert calls == ["every call (the C++ runtime does not serve this process)"]
        return
    assert calls == [
        "forward on cuda (a kernel launched from Python)",
        "backward on cpu and cuda (the reference and its vjp)",
    ]


# --- What users get wrong --------------------------------------------------------------------------------------


def test_an_unknown_op_is_answered_with_the_nearest_and_the_way_to_ones_own(invoke: Invoke) -> None:
    result = invoke("show", "mish", "--from", OPS)
    assert result.exit_code == 2
    assert (
        "error: no op is named 'mish'. Did you mean cli_tests::mish" in result.output
        and "opsmith::mish?" in result.output
    )
    assert "opsmith show mish --from FILE.py" in result.output
    assert "Did you mean cli_tests::scale_?" in invoke("show", "cli_tests::scal_", "--from", OPS).output


MISTAKES = {
    "no such file": ("nowhere/mish.py", None, "nowhere/mish.py: there is no such file."),
    "not Python": ("kernel.cu", "int x;", "is not a Python file (.py)"),
    "no such module": ("no_such_module_here", None, "there is no module 'no_such_module_here' here"),
    "no name at all": ("a b", None, "'a b' is neither a module's name (mylib.ops) nor a Python file"),
    "syntax": ("syntax.py", "x = 1\ndef f(:\n", "syntax.py:2: SyntaxError: invalid syntax\n    def f(:\n          ^"),
    "null bytes": ("null.py", "\0", "SyntaxError: source code string cannot contain null bytes"),
    "an exception": (
        "raises.py",
        "def f():\n    return nowhere\nf()\n",
        "raises.py:2: NameError: name 'nowhere' is not defined\n    return nowhere",
    ),
    "a missing import": (
        "imports.py",
        "import no_such_package\n",
        "imports.py:1: ModuleNotFoundError: No module named",
    ),
    "a script": ("script.py", "import sys\nsys.exit(3)\n", 'under:  if __name__ == "__main__":'),
    "a bad reference": (
        "reference.py",
        "import opsmith\n\n@opsmith.op('cli_tests::bad')\ndef bad(x):\n    return x\n",
        "reference.py:3: cli_tests::bad: the reference bad (reference.py:4) cannot become an operator",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_unusable_source_is_reported_with_its_line_and_without_a_traceback(
    mistake: str, invoke: Invoke, tmp_path: Path
) -> None:
    source, text, message = MISTAKES[mistake]
    if text is not None:
        path = tmp_path / source
        path.write_text(text)
        source = str(path)
    result = invoke("list", "--from", source)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert result.output.startswith("error: ")
    assert "Traceback" not in result.output


def test_a_directory_is_no_source(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("list", f"{tmp_path}/")
    assert result.exit_code == 2
    assert "is a directory. Give the file that declares the ops" in flat(result.output)


def test_a_real_process_ends_with_status_2_and_one_message(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mistake.py"
    path.write_text("1 / 0\n")
    done = run("list", str(path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"error: {path} fails when it is imported.",
        f"{path}:1: ZeroDivisionError: division by zero",
        "    1 / 0",
    ]


def test_show_calls_a_generated_kernel_generated_beside_a_written_one(invoke: Invoke) -> None:
    done = invoke("show", "opsmith::scale_bias_relu")
    lines = [line.split() for line in done.stdout.splitlines() if "forward" in line or "backward" in line]
    statuses = {" ".join(line[:2]): line[2] for line in lines if line[0] in ("cpu", "cuda")}
    assert statuses == dict.fromkeys(["cpu forward", "cuda forward", "cpu backward", "cuda backward"], "generated")
    assert "triton" in done.stdout
