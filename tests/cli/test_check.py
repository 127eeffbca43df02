"""`opsmith check`: what it runs on, what it shows and writes, and that it outlives the ops it checks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import fresh_process
import pytest
from checks.reproductions import run as reproduce

import opsmith
from opsmith.checks.report import Item, Report
from opsmith.checks.reproduction import setup
from opsmith.cli._screen import RefusedError
from opsmith.cli.check.screen import Display
from opsmith.cli.check.supervisor import Supervisor
from opsmith.cli.check.worker import Job, chosen

from .conftest import PACKAGES, Invoke, Run, flat

OPS = Path(__file__).parent / "ops_to_check.py"
OPERATORS = Path(__file__).parent / "operators_to_adopt.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGES), "OPSMITH_RUNTIME": "python"}


class Checked:
    """One run over all ops of the file: what was printed, and what was written."""

    def __init__(self, folder: Path) -> None:
        written, self.junit = folder / "report.json", folder / "report.xml"
        arguments = [str(OPS), "--item", "values", "--timeout", "8"]
        arguments += ["--json", str(written), "--junit", str(self.junit)]
        self.done = fresh_process.run(
            ["-m", "opsmith.cli", "check", *arguments],
            timeout=240,
            env={**ENVIRONMENT, "OPSMITH_CACHE_DIR": str(folder / "cache")},
        )
        assert self.done.returncode == 1, self.done.stderr
        self.reports = {report["op"]: report for report in json.loads(written.read_text())["reports"]}

    def item(self, op: str) -> dict[str, Any]:
        (item,) = self.reports[f"check_tests::{op}"]["items"]
        return item  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    return Checked(tmp_path_factory.mktemp("check"))


def test_every_op_of_a_file_is_checked_whatever_the_others_do(checked: Checked) -> None:
    found = {op.partition("::")[2]: report["items"][0]["status"] for op, report in checked.reports.items()}
    bad = dict.fromkeys(["crashes", "hangs", "leaves", "wrong"], "failed")
    assert found == {**bad, "slow": "passed", "sound": "passed"}


def test_a_crash_is_a_failure_that_names_the_signal_and_the_authors_line(checked: Checked) -> None:
    line = OPS.read_text().splitlines().index("    ctypes.string_at(0)") + 1
    message = checked.item("crashes")["message"]
    assert message.startswith("the process was ended by SIGSEGV")
    assert message.endswith(f"; Python was at ops_to_check.py:{line}, in crash")


def test_a_hang_is_ended_and_located(checked: Checked) -> None:
    line = OPS.read_text().splitlines().index("    time.sleep(1000)") + 1
    assert checked.item("hangs")["message"] == f"did not end within 8 s; Python was at ops_to_check.py:{line}, in hang"
    assert 8 <= checked.item("hangs")["seconds"] < 20


def test_a_process_that_an_op_ends_is_a_failure(checked: Checked) -> None:
    assert checked.item("leaves")["message"].startswith("the process ended with status 7")


def test_a_line_an_item_where_the_output_is_no_terminal(checked: Checked) -> None:
    lines = checked.done.stdout.splitlines()
    assert any(line.startswith("passed  check_tests::sound values (") for line in lines)
    assert any(line.startswith("failed  check_tests::wrong values (") for line in lines)
    assert lines[-1].startswith("6 ops: 2 passed, 4 failed, 0 skipped in ")
    assert "\x1b" not in checked.done.stdout


def test_what_a_kernel_prints_is_passed_on_apart(checked: Checked) -> None:
    assert "the kernel says hello" in checked.done.stderr
    assert "the kernel says hello" not in checked.done.stdout


def test_a_failure_is_printed_with_lines_that_show_it_when_run(checked: Checked) -> None:
    failed = checked.item("wrong")
    assert f"```python\n{failed['reproduction']}\n```" in checked.done.stdout
    assert failed["message"] in checked.done.stdout
    done = reproduce(failed["reproduction"])
    assert done.returncode == 1
    assert "AssertionError: check_tests::wrong is not its reference" in done.stderr


def test_an_op_without_samples_is_refused_in_one_sentence(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import opsmith, torch\n@opsmith.pointwise('mine::bare')\n"
        "def bare(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"
    )
    done = run("check", str(tmp_path / "mine.py"))
    assert done.returncode == 1 and done.stdout == ""
    assert re.match(
        r"error: mine::bare has no samples to run on.\n  mine.py:3: def bare.*\nGive some:\n    @op.register_s",
        done.stderr,
    )


def test_an_exception_that_ended_several_items_is_printed_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import opsmith, torch\n"
        "@opsmith.op('check_tests::raises')\n"
        "def raises(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x + 1\n"
        "@raises.register_kernel('cpu')\n"
        "def _(x):\n"
        "    if len(x) == 4:\n"
        "        raise ValueError('out of luck')\n"
        "    raise ValueError('too short')\n"
        "@raises.register_samples\n"
        "def _(device, dtype):\n"
        "    yield opsmith.Sample((torch.ones(4, device=device, dtype=dtype),))\n"
    )
    items = [part for name in ("values", "gradients", "determinism", "sizes") for part in ("--item", name)]
    done = run("check", str(tmp_path / "mine.py"), *items)
    assert done.returncode == 1
    assert done.stdout.count("assert_matches") == 2  # of the sample, and of an empty tensor
    assert "The same exception ended 2 more: gradients, determinism." in done.stdout
    assert "4 failed" in done.stdout


def test_a_crash_can_be_had_again(checked: Checked) -> None:
    assert reproduce(checked.item("crashes")["reproduction"]).returncode == -signal.SIGSEGV


def test_the_json_says_where_and_with_what_it_ran(checked: Checked) -> None:
    report = checked.reports["check_tests::sound"]
    assert report["ok"] is True and report["unfinished"] == []
    assert (report["device"], report["level"], report["seed"], report["emulated"]) in [
        ("cpu", "quick", 0, False),
        ("cuda", "quick", 0, False),
    ]
    assert {"opsmith", "torch", "python", "machine"} == set(report["environment"])
    assert checked.reports["check_tests::wrong"]["ok"] is False


def test_the_xml_has_a_suite_an_op_and_a_case_an_item(checked: Checked) -> None:
    root = ElementTree.parse(checked.junit).getroot()
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "6", "4")
    suites = {suite.get("name", "").split()[0]: suite for suite in root}
    assert set(suites) == set(checked.reports)
    (case,) = suites["check_tests::wrong"].findall("testcase")
    assert case.get("name") == "values" and float(case.get("time", "")) > 0
    (failure,) = case.findall("failure")
    assert failure.get("message") == checked.item("wrong")["message"]
    assert checked.item("wrong")["reproduction"] in (failure.text or "")
    assert suites["check_tests::sound"].find("testcase/failure") is None


def test_two_processes_share_the_items_of_an_op_and_then_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSMITH_RUNTIME", "python")
    items = (
        "values",
        "gradients",
        "aliasing",
        "input_layouts",
        "inputs_unchanged",
        "needed_gradients",
        "vmap",
        "dtypes",
    )
    job = Job(("check_tests::slow", "check_tests::sound"), (str(OPS),), device="cpu", items=items)
    running: list[tuple[str, str]] = []
    together: set[tuple[str, ...]] = set()

    class Recorded(Display):
        def began(self, report: Report, item: str) -> None:
            running.append((report.op, item))
            together.add(tuple(op for op, _ in running))

        def ended(self, report: Report, item: Item) -> None:
            running.remove((report.op, item.name))

    reports = Supervisor(job, Recorded(), workers=2).run()
    assert all([item.name for item in report.items] == list(items) for report in reports), (
        "in the order of the checklist"
    )
    assert all(report.ok for report in reports), list(map(str, reports))
    assert ("check_tests::slow", "check_tests::slow") in together
    assert ("check_tests::slow", "check_tests::sound") not in together


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_report_of_what_was_done(number: signal.Signals, tmp_path: Path) -> None:
    written, junit = tmp_path / "report.json", tmp_path / "report.xml"
    arguments = ["check_tests::sound", "check_tests::hangs", "--from", str(OPS), "--item", "values"]
    process = subprocess.Popen(
        [sys.executable, "-m", "opsmith.cli", "check", *arguments, "--json", str(written), "--junit", str(junit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**ENVIRONMENT, "OPSMITH_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(1)
    workers = children(process.pid)
    process.send_signal(number)
    rest = process.stdout.read()
    assert process.wait(60) == 130
    assert first.startswith("passed  check_tests::sound values")
    assert rest.splitlines()[-1].startswith("2 ops: 1 passed, 0 failed, 0 skipped in ")
    assert rest.splitlines()[-1].endswith("; interrupted, 1 not run")
    reports = json.loads(written.read_text())["reports"]
    assert [(report["op"], report["unfinished"]) for report in reports] == [
        ("check_tests::sound", []),
        ("check_tests::hangs", ["values"]),
    ]
    assert ElementTree.parse(junit).getroot().get("skipped") == "1"
    assert len(workers) == 1 and not Path(f"/proc/{workers[0]}").exists()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_an_operator_of_torch_is_checked_beside_a_function(run: Run, tmp_path: Path) -> None:
    written = tmp_path / "report.json"
    options = ["--device", "cpu", "--item", "values", "--json", str(written)]
    done = run("check", "torch.ops.check_tests_adopted.double", "--reference", f"{OPERATORS}:double", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed  check_tests_adopted::double values" in done.stdout


def test_its_samples_may_be_given_and_a_failure_can_be_had_again(run: Run, tmp_path: Path) -> None:
    # A file whose name no `import` takes.
    operators = shutil.copy(OPERATORS, tmp_path / "01-operators.py")
    written = tmp_path / "report.json"
    options = ["--device", "cpu", "--item", "values", "--json", str(written)]
    functions = ["--reference", f"{operators}:triple", "--samples", f"{operators}:one_row"]
    done = run("check", "torch.ops.check_tests_adopted.triple", *functions, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    (item,) = json.loads(written.read_text())["reports"][0]["items"]
    assert item["message"].startswith("one row, float32: ")
    again = reproduce(item["reproduction"])
    assert again.returncode == 1
    assert "AssertionError: check_tests_adopted::triple is not its reference" in again.stderr


def test_an_unknown_item_is_refused(run: Run) -> None:
    done = run("check", "mish", "--item", "valeus")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no item is called 'valeus'; there are values, ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cuda", "--emulate"], "leave out --device cuda or --emulate"),
        (["--json", "no/such/folder/report.json"], "there is no directory"),
    ],
)
def test_options_that_make_no_sense_are_refused_at_once(arguments: list[str], words: str, invoke: Invoke) -> None:
    result = invoke("check", "mish", *arguments)
    assert result.exit_code == 2
    assert words in flat(result.output)


def test_without_a_name_every_shipped_op_is_checked() -> None:
    assert [op.name for op in chosen(Job())] == [f"opsmith::{name}" for name in opsmith.ops.__all__]


def test_a_name_may_lack_its_namespace_and_an_op_named_twice_is_checked_once() -> None:
    assert [op.name for op in chosen(Job(names=("square", "opsmith::mish", "square")))] == [
        "opsmith::square",
        "opsmith::mish",
    ]


def test_a_package_means_the_ops_of_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Callable[[str], str]
) -> None:
    names = [fresh("first"), fresh("second")]
    package = tmp_path / f"package_{os.getpid()}"
    package.mkdir()
    (package / "__init__.py").write_text("from . import first, second\n")
    for file, name in zip(("first", "second"), names, strict=True):
        (package / f"{file}.py").write_text(
            f"import opsmith, torch\n@opsmith.op('{name}')\ndef f(x: torch.Tensor) -> torch.Tensor:\n    return x + 1\n"
        )
    monkeypatch.chdir(tmp_path)
    assert [op.name for op in chosen(Job(names=(package.name,)))] == names
    assert [op.name for op in chosen(Job(names=(f"{package.name}.second",)))] == names[1:]
    assert [op.name for op in chosen(Job(sources=(f"{package.name}/first.py",)))] == names[:1]
    assert [op.name for op in chosen(Job(names=(names[1],), sources=(package.name,)))] == names[1:]


DOUBLE = "torch.ops.check_tests_adopted.double"


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (Job(names=("no_such_op",)), "no op is named 'no_such_op'"),
        (Job(names=("opsmith::mihs",)), "Did you mean opsmith::mish?"),
        (Job(names=("opsmith::mihs",)), "opsmith check opsmith::mihs --from FILE.py"),
        (Job(names=("no_such_file.py",)), "no_such_file.py: there is no such file."),
        (Job(names=("no.such.module",)), "there is no module 'no' here"),
        (Job(names=("json",)), "declares no op"),
        (Job(names=("torch.ops.aten.sin",)), "add --reference FILE.py:FUNCTION"),
        (
            Job(names=("mish",), reference=f"{OPERATORS}:double"),
            "go with one operator of torch.ops, and mish was given",
        ),
        (Job(samples=f"{OPERATORS}:one_row"), "go with one operator of torch.ops, and no operator was given"),
        (Job(names=(DOUBLE, DOUBLE), reference=f"{OPERATORS}:double"), "go with one operator"),
        (Job(names=(DOUBLE,), reference="double"), "give a file or a module and the function in it"),
        (Job(names=(DOUBLE,), reference=f"{OPERATORS}:duoble"), "has no function 'duoble'"),
        (Job(names=(DOUBLE,), reference=f"{OPERATORS}:NOT_A_FUNCTION"), "is not a function but int"),
        (
            Job(names=("torch.ops.check_tests_adopted.quadruple",), reference=f"{OPERATORS}:double"),
            "torch has no operator torch.ops.check_tests_adopted.quadruple",
        ),
        (
            Job(names=("torch.ops.check_tests_adopted.several",), reference=f"{OPERATORS}:double"),
            "has several overloads: first, second",
        ),
    ],
)
def test_unknown_ops_and_functions_are_refused_with_suggestions(job: Job, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        chosen(job)
    assert words in flat(str(refused.value))


def test_one_overload_of_an_operator_can_be_named() -> None:
    (op,) = chosen(Job(names=("torch.ops.check_tests_adopted.triple.scaled",), reference=f"{OPERATORS}:triple"))
    assert [argument.name for argument in op.signature.arguments] == ["x", "scale"]
    assert setup(op)[-1] == "op = opsmith.checks.adopt(torch.ops.check_tests_adopted.triple.scaled, reference)"


def test_a_report_that_cannot_be_written_is_refused_at_once(invoke: Invoke, tmp_path: Path) -> None:
    for option in ("--json", "--junit"):
        result = invoke("check", "mish", "--item", "pickling", option, tmp_path)
        assert result.exit_code == 2 and f"{option} {tmp_path} cannot be written" in flat(result.output)
