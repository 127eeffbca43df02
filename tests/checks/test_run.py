"""Running the checklist: the report, whatever the op and its items do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor

import opsmith
from opsmith.checks import Item, Report, adopt, to_json, to_junit
from opsmith.checks.items import CheckItem
from opsmith.checks.outcome import Failed, Skipped
from opsmith.checks.reproduction import setup
from opsmith.checks.run import run_item, subject_of
from opsmith.errors import CheckOptionError, NotAnOperatorError, NotAnOpError, SamplesMissingError

from .reproductions import run as reproduce

Fresh = Callable[[str], str]


def declared(fresh: Fresh, kernel: Callable[[Tensor], Tensor] | None = None) -> opsmith.Op:
    @opsmith.op(fresh("square"))
    def square(x: Tensor) -> Tensor:
        return x * x

    @square.register_samples
    def _(device: Any, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        yield opsmith.Sample(args=(torch.randn(5, device=device, dtype=dtype),), name="five")

    if kernel is not None:
        square.register_kernel("cpu", kernel)
    return square


def item(check: Callable[[Any], str], on: tuple[str, ...] = ("cpu",)) -> CheckItem:
    return CheckItem("mine", "It holds.", check, "quick", on, 50)


def test_a_report_has_an_entry_for_each_item(fresh: Fresh) -> None:
    seen: list[Item] = []
    report = opsmith.check(declared(fresh), device="cpu", items=["gradients", "values"], on_item=seen.append)
    assert [each.name for each in report.items] == ["gradients", "values"], "in the order asked for"
    assert report.items == seen == report.passed
    assert report.ok and bool(report) and report.failures == [] == report.skipped == report.unfinished
    assert all(each.message and each.description and each.seconds > 0 and not each.reproduction for each in seen)
    assert str(report).endswith(f"(cpu, quick): 2 passed, 0 failed, 0 skipped in {report.seconds:.1f} s")
    assert json.loads(to_json([report]))["reports"][0] == report.as_dict()


def test_an_op_that_raises_fails_with_the_line_of_the_author(fresh: Fresh) -> None:
    def broken(x: Tensor) -> Tensor:
        raise KeyError("block_size")

    subject = subject_of(declared(fresh, broken), device="cpu")
    failed = run_item(subject, item(lambda subject: str(subject.call(subject.first_case().values))))
    line = broken.__code__.co_firstlineno + 1
    assert (failed.status, failed.message) == ("failed", f"KeyError: 'block_size' (test_run.py:{line})")
    report = opsmith.check(subject.op, device="cpu", items=["values"])
    assert not report.ok and str(report).endswith(f"\n  values: {report.failures[0].message}")


def test_what_an_item_raises_is_its_outcome(fresh: Fresh) -> None:
    subject = subject_of(declared(fresh), device="cpu")

    def fails(_: Any) -> str:
        raise Failed("is wrong", subject.first_case(), ["assert torch.equal(op(x), x)"])

    def skips(_: Any) -> str:
        raise Skipped("nothing to see")

    failed, skipped = run_item(subject, item(fails)), run_item(subject, item(skips))
    assert (failed.status, failed.message) == ("failed", "is wrong")
    assert failed.reproduction.endswith("\nassert torch.equal(op(x), x)")
    assert (skipped.status, skipped.message, skipped.reproduction) == ("skipped", "nothing to see", "")


def test_a_failure_without_lines_is_reproduced_by_running_its_item(fresh: Fresh) -> None:
    subject = subject_of(declared(fresh), device="cpu", seed=3)

    def fails(_: Any) -> str:
        raise Failed("is wrong")

    assert run_item(subject, item(fails)).reproduction.endswith(
        "report = opsmith.check(op, device='cpu', level='quick', seed=3, items=['mine'])\nassert report.ok, report"
    )


def test_an_item_for_another_device_is_skipped_with_the_reason(fresh: Fresh) -> None:
    found = run_item(subject_of(declared(fresh), device="cpu"), item(lambda _: "", on=("cuda", "emulated")))
    assert (found.status, found.message) == ("skipped", "is for cuda and emulated, and this is cpu")


def test_an_op_without_a_cuda_kernel_does_not_pass_when_emulated(fresh: Fresh) -> None:
    report = opsmith.check(declared(fresh), emulate=True)
    assert report.where == "cuda, emulated"
    assert {each.message for each in report.items} == {"it has no kernel for CUDA to emulate"}
    assert report.passed == [] and len(report.skipped) == len(report.items) > 0


def test_the_callers_random_numbers_stay_as_they_were(fresh: Fresh) -> None:
    op = declared(fresh)
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    opsmith.check(op, device="cpu", items=["values"])
    assert torch.equal(torch.rand(3), expected)


def test_unknown_devices_are_refused(fresh: Fresh) -> None:
    op = declared(fresh)
    for options, words in [
        ({"items": ["valeus"]}, "no item is called 'valeus'"),
        ({"device": "tpu"}, "device is 'cpu' or 'cuda', not 'tpu'"),
        ({"level": "thorough"}, "level is 'quick' or 'full', not 'thorough'"),
        ({"device": "cuda", "emulate": True}, "emulated kernels run on the CPU"),
    ]:
        with pytest.raises(CheckOptionError, match=words):
            opsmith.check(op, **options)  # type: ignore[arg-type]
    if not torch.cuda.is_available():
        with pytest.raises(CheckOptionError, match="torch finds no CUDA device here"):
            opsmith.check(op, device="cuda")


def test_xml_accepts_any_message_and_lists_items_that_did_not_run() -> None:
    items = [
        Item("values", "failed", "kernel \x00\x1b[31m<&>\ud800\nsecond line", 'assert op(x) == "<"', 0.5, ""),
        Item("huge", "skipped", "needs 40 GiB"),
        Item("fake", "passed", "3 calls", "", 0.25),
    ]
    report = Report("mylib::mish", "cpu", "full", 7, False, items, {"torch": "2.13"}, unfinished=["vmap"])
    (suite,) = ElementTree.fromstring(to_junit([report]).encode())
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "2",
        "time": "0.750",
    }
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["values"].get("classname") == "mylib.mish.cpu"
    failure = cases["values"].find("failure")
    assert failure is not None
    assert failure.get("message") == "kernel \ufffd\ufffd[31m<&>\ufffd"
    assert 'second line\n\nTo reproduce:\n\nassert op(x) == "<"\n' in (failure.text or "")
    reasons = {name: skipped.get("message") for name in ("huge", "vmap") for skipped in cases[name]}
    assert reasons == {"huge": "needs 40 GiB", "vmap": "the check was interrupted"}
    assert {each.get("name"): each.get("value") for each in suite.iter("property")} == {
        "level": "full",
        "seed": "7",
        "torch": "2.13",
    }


def test_an_interrupted_report_is_not_ok() -> None:
    report = Report("mylib::mish", "cpu", "quick", 0, unfinished=["values"])
    assert not report.ok and "1 not run" in str(report)


def test_the_lines_of_a_failure_import_its_op() -> None:
    from .faulty import wrong_gradient

    (failed,) = opsmith.check(wrong_gradient.op, device="cpu", items=["gradients"]).failures
    done = reproduce(failed.reproduction)
    assert done.returncode == 1
    assert "AssertionError: faulty::wrong_gradient is not its reference: gradient of x" in done.stderr


def reference_of_tests(x: Tensor) -> Tensor:
    return x * x


def test_an_adopted_operators_lines_name_its_functions() -> None:
    tests = str(Path(__file__).parents[1])
    assert setup(adopt(torch.ops.aten.square, reference_of_tests)) == [
        "import sys, torch, opsmith",
        f"sys.path.insert(0, {tests!r})",
        "import checks.test_run",
        "reference = checks.test_run.reference_of_tests",
        "op = opsmith.checks.adopt(torch.ops.aten.square, reference)",
    ]
    unnamed = setup(adopt(torch.ops.aten.square, lambda x: x * x))
    assert any(line.startswith("reference = ...") and "cannot be imported by name" in line for line in unnamed)


def test_an_operator_of_an_installed_package_needs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    adopted = adopt(torch.ops.aten.square, torch.square)
    adopted.reference_home = ("torch.special", "expit")
    assert setup(adopted)[:2] == ["import torch, opsmith", "import torch.special"]


def test_a_module_that_cannot_be_imported_is_run_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, file in {"01-odd": "01-odd.py", "json at /somewhere": "json.py", "colorsys": "colorsys.py"}.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__file__=str(tmp_path / file)))  # type: ignore[arg-type]
        adopted = adopt(torch.ops.aten.square, torch.square)
        adopted.reference_home = (name, "square")
        path = str((tmp_path / file).resolve())
        assert f"runpy.run_path({path!r})" in "\n".join(setup(adopted))


def test_an_op_without_samples_is_refused_unless_items_are_named(fresh: Fresh) -> None:
    @opsmith.op(fresh("bare"))
    def bare(x: Tensor) -> Tensor:
        return x * x

    with pytest.raises(
        SamplesMissingError, match=r"has no samples to run on\.\n  test_run.py:\d+: def bare.*\nGive some:\n    @op"
    ):
        opsmith.check(bare)
    (values,) = opsmith.check(bare, items=["values"]).items
    assert values.status == "failed" and "has no samples to run on" in values.message


def test_an_object_that_is_not_an_op_is_refused() -> None:
    with pytest.raises(NotAnOperatorError, match="adopt takes an operator"):
        adopt(torch.square, torch.square)
    with pytest.raises(NotAnOpError, match=r"A check takes an op, not <OpOverloadPacket.*checks.adopt"):
        opsmith.check(torch.ops.aten.square)


LOST = '''
import torch, opsmith

source = opsmith.cuda_source("""
extern "C" __global__ void far_away(float* x) { x[1LL << 44] = 1; }
""")

def declared(name, kernel):
    @opsmith.op(name)
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    @square.register_samples
    def _(device, dtype):
        yield opsmith.Sample(args=(torch.randn(5, 7, device=device, dtype=dtype),), name="5x7")

    square.register_kernel("cuda", kernel)
    return square

def loses(x):
    source.far_away[1, 1](x.float())
    return x * x

lost = declared("lost_tests::lost", loses)
fine = declared("lost_tests::sound", lambda x: x * x)
'''


@pytest.mark.gpu
def test_a_kernel_that_destroys_the_gpu_context_fails_its_item_only(tmp_path: Path) -> None:
    (tmp_path / "lost_ops.py").write_text(LOST)
    script = (
        "import lost_ops, opsmith\n"
        "report = opsmith.check(lost_ops.lost, device='cuda', items=['values', 'gradients'])\n"
        "print([(item.status, item.message) for item in report.items])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (failed, words), (skipped, reason) = eval(done.stdout)
    assert (failed, skipped) == ("failed", "skipped")
    assert "illegal memory access" in words and "the GPU has not answered since values" in reason


@pytest.mark.gpu
def test_on_the_command_line_the_next_item_has_a_working_gpu(tmp_path: Path) -> None:
    (tmp_path / "lost_ops.py").write_text(LOST)
    written = tmp_path / "report.json"
    options = ["--device", "cuda", "--item", "values", "--item", "gradients", "--json", str(written)]
    done = subprocess.run([sys.executable, "-m", "opsmith.cli", "check", "lost_ops.py", *options], cwd=tmp_path)
    assert done.returncode == 1
    found = {report["op"]: report["items"] for report in json.loads(written.read_text())["reports"]}
    assert [each["status"] for each in found["lost_tests::lost"]] == ["failed", "failed"]
    assert [each["status"] for each in found["lost_tests::sound"]] == ["passed", "passed"]
