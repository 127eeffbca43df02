"""The GPU items as far as they need no GPU: their steps, and the reading of compute-sanitizer's output."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import ZOO, declare

import opsmith
from opsmith import Op
from opsmith.checks.items import (
    graph_replay,
    launch_errors,
    sanitizer,
    second_device,
    side_stream,
    synchronisation,
)
from opsmith.checks.subject import Subject

from .fake_gpu import FakeGpu, outcome

Fresh = Callable[[str], str]
ITEMS = (side_stream, graph_replay, synchronisation, launch_errors)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return FakeGpu().install(monkeypatch)


def doubled(x: Tensor) -> Tensor:
    return 2 * x


def declared(name: str, kernel: Callable[[Tensor], Any]) -> Op:
    op = opsmith.op(name)(doubled)
    op.register_kernel("cpu", kernel)

    @op.register_samples
    def _(device: Any, dtype: torch.dtype) -> Iterator[opsmith.Sample]:
        for name, shape in (("wide", (3, 40)), ("odd", (5, 7)), ("none", (0,))):
            yield opsmith.Sample(args=(torch.randn(shape, device=device, dtype=dtype),), name=name)

    return op


# --- The steps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZOO)
def test_every_kind_of_op_goes_through(fresh: Fresh, gpu: FakeGpu, name: str) -> None:
    op = declare(name, fresh(name))
    for item in (side_stream, graph_replay, synchronisation):
        assert outcome(item, op)[0] == "passed"
    status, said = outcome(launch_errors, op)
    assert status == ("passed" if name.startswith("pointwise") else "skipped"), said
    assert outcome(second_device, op) == ("skipped", "this machine has one GPU")


def test_a_random_op_is_skipped(fresh: Fresh, gpu: FakeGpu) -> None:
    def noisy(x: Tensor) -> Tensor:
        return x + torch.rand_like(x)

    op = opsmith.op(fresh("noisy"))(noisy)
    op.register_samples(lambda device, dtype: iter([opsmith.Sample(args=(torch.zeros(5, dtype=dtype),))]))
    for item in (side_stream, graph_replay):
        status, said = outcome(item, op)
        assert status == "skipped" and "random numbers" in said


def test_an_op_that_inputs_do_not_change_is_skipped(fresh: Fresh, gpu: FakeGpu) -> None:
    op = opsmith.op(fresh("zeros"))(zeros)
    op.register_samples(lambda device, dtype: iter([opsmith.Sample(args=(torch.ones(5, dtype=dtype),))]))
    for item in (side_stream, graph_replay):
        status, said = outcome(item, op)
        assert status == "skipped" and "other inputs give the same results" in said


def zeros(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@pytest.mark.parametrize("busy", [False, True])
def test_work_that_keeps_no_order_is_found(
    fresh: Fresh, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, busy: bool
) -> None:
    if busy:
        monkeypatch.setattr(side_stream._Order, "inputs_written_late", lambda self, seconds, backward_elsewhere: True)
    op = declared(fresh("elsewhere"), lambda x: 2 * x)
    op.register_kernel("cpu", lambda x: x - x if gpu.held else 2 * x, name="early")
    assert outcome(side_stream, op) == ("passed", "on the current stream")
    status, said = outcome(side_stream, op, "full")
    what = "not there yet when" if busy else "computed before the stream it was called on had written its inputs"
    assert status == "failed" and said.startswith(f"kernel 'early': wide, float32: the result was {what}")


def test_an_op_that_waits_is_found(fresh: Fresh, gpu: FakeGpu) -> None:
    def kernel(x: Tensor) -> Tensor:
        torch.cuda.synchronize()
        return 2 * x

    op = declared(fresh("waits"), kernel)
    status, said = outcome(synchronisation, op)
    assert status == "failed" and said.startswith("wide, float32: forward returns only when earlier work")
    assert outcome(side_stream, op) == ("passed", "it waits for the GPU, so that no order shows: see synchronisation")


def test_what_torch_itself_waits_for_is_found(fresh: Fresh, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = [0]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def kernel(x: Tensor) -> Tensor:
        if modes[-1] == synchronisation.ERROR:
            raise RuntimeError("called a synchronizing CUDA operation")
        return 2 * x

    status, said = outcome(synchronisation, declared(fresh("item"), kernel))
    assert status == "failed" and ".item()" in said
    assert modes[-1] == 0, "the mode is as it was"


def test_a_result_that_is_kept_is_found(fresh: Fresh, gpu: FakeGpu) -> None:
    kept: dict[tuple[object, ...], Tensor] = {}

    def kernel(x: Tensor) -> Tensor:
        return kept.setdefault((x.data_ptr(), *x.shape), 2 * x).clone()

    status, said = outcome(graph_replay, declared(fresh("kept"), kernel))
    assert status == "failed" and "a replay with other inputs gives a result that is not theirs" in said


def test_a_call_that_breaks_a_capture_is_reported(fresh: Fresh, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    said_by_driver = iter([(0, "RuntimeError: operation not permitted when stream is capturing"), (3, "")])
    monkeypatch.setattr(graph_replay, "capture", lambda stream, function: next(said_by_driver))
    status, said = outcome(graph_replay, declared(fresh("breaks"), lambda x: 2 * x))
    assert (
        status == "failed" and "cannot be captured in a CUDA graph, after having run: RuntimeError: operation" in said
    )
    monkeypatch.setattr(graph_replay, "capture", lambda stream, function: (0, "no"))
    status, said = outcome(graph_replay, declared(fresh("both"), lambda x: 2 * x))
    assert (status, said) == ("skipped", "its reference cannot be captured in a CUDA graph either: no")


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (lambda gpu, x: (2 * x, gpu.cudaSetDevice(-1))[0], "forward leaves CUDA error 101 behind (invalid device"),
        (lambda gpu, x: (2 * x, gpu.cudaGetLastError())[0], "the error that an earlier CUDA call has left is gone"),
        (
            lambda gpu, x: 2 * x if len(x) <= 65535 else torch.empty_like(x),
            "elements of a result have not been written",
        ),
    ],
)
def test_lost_errors_are_found(
    fresh: Fresh, gpu: FakeGpu, kernel: Callable[[FakeGpu, Tensor], Tensor], words: str
) -> None:
    status, said = outcome(launch_errors, declared(fresh("errors"), lambda x: kernel(gpu, x)))
    assert status == "failed" and words in said


def test_a_size_may_be_refused_and_may_give_nan(fresh: Fresh, gpu: FakeGpu) -> None:
    def refusing(x: Tensor) -> Tensor:
        if x.numel() > 2**16:
            raise ValueError("too large")
        return 2 * x

    assert outcome(launch_errors, declared(fresh("refusing"), refusing))[0] == "passed"

    def root(x: Tensor) -> Tensor:
        return torch.sqrt(x)

    op = opsmith.op(fresh("root"))(root)
    op.register_kernel("cpu", lambda x: torch.sqrt(x))
    op.register_samples(lambda device, dtype: iter([opsmith.Sample(args=(torch.randn(9, 5, dtype=dtype),))]))
    assert outcome(launch_errors, op)[0] == "passed"


def test_a_size_is_changed_in_every_tensor_that_has_it(fresh: Fresh) -> None:
    op = declare("scale_bias_relu", fresh("sizes"))
    subject = Subject(op, "cpu")
    cases = list(launch_errors.odd_cases(subject))
    shapes = [tuple(tuple(tensor.shape) for tensor in case.every_tensor()) for case in cases]
    assert shapes == [((0, 4), (4,)), ((3, 0), (0,)), ((65537, 4), (4,)), ((3, 65537), (65537,))]
    bound: dict[str, Any] = {"torch": torch, "opsmith": opsmith, "op": op}
    exec("\n".join(cases[-1].lines), bound)
    assert torch.equal(bound["x"], cases[-1]["x"]) and torch.equal(bound["bias"], cases[-1]["bias"])


ASKED = "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of 79.10 GiB of which 1.50 MiB is free."


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (ASKED.format("20.00 MiB"), "skipped"),
        (ASKED.format("64.00 GiB"), "skipped"),
        (ASKED.format("80.00 GiB"), "failed"),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", "failed"),
    ],
)
def test_a_full_gpu_is_a_skip_and_an_impossible_request_is_not(fresh: Fresh, words: str, status: str) -> None:
    def kernel(x: Tensor) -> Tensor:
        raise torch.OutOfMemoryError(words)

    (found,) = opsmith.check(declared(fresh("hungry"), kernel), device="cpu", items=["values"]).items
    assert found.status == status and "CUDA out of memory" in found.message


# --- compute-sanitizer ------------------------------------------------------------------------------------------------

MEMCHECK = """\
========= COMPUTE-SANITIZER
opsmith-sample 0
opsmith-sample 1
========= Invalid __global__ write of size 4 bytes
=========     at beyond(const float *, float *, long long)+0x110 in _doubled.py:31
=========     by thread (35,0,0) in block (0,0,0)
=========     Address 0x7f2b4ba0008c is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f2b4ba00000 of size 140 bytes
=========
Traceback (most recent call last):
  File "samples.py", line 9, in <module>
torch.AcceleratorError: CUDA error: unspecified launch failure
========= Target application returned an error
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
opsmith-sample 0
========= Error: Race reported between Write access at racy(const float *, float *, long long)+0x110 in _doubled.py:38
=========     and Read access at racy(const float *, float *, long long)+0x150 in _doubled.py:39 [64 hazards]
=========
========= Warning: Race reported between Write access at mild(float *)+0x10
=========     and Read access at mild(float *)+0x20 [4 hazards]
=========
========= Error: Race reported between Read access at void cub::DeviceReduceKernel<float>(T1 *)+0x10
=========     and Write access at void cub::DeviceReduceKernel<float>(T1 *)+0x20 [4 hazards]
=========
opsmith-sample end
========= RACECHECK SUMMARY: 3 hazards displayed (2 errors, 1 warning)
"""
INITCHECK = """\
========= COMPUTE-SANITIZER
opsmith-sample 0
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T1)+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void unset<float>(const T1 *)+0x70
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void unset<float>(const T1 *)+0x70
=========     by thread (30,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000f8
=========
========= Host API memory access error at host access to 0x7f3c7ec00000 of size 64 bytes
=========     Uninitialized access at 0x7f3c7ec00000 on access by cudaMemcpy source.
=========
opsmith-sample end
========= ERROR SUMMARY: 4 errors
"""
SYNCCHECK = """\
========= COMPUTE-SANITIZER
opsmith-sample 0
opsmith-sample end
========= Barrier error detected. Divergent thread(s) in block.
=========     at divergent(const float *, float *, long long)+0xb0 in _doubled.py:52
=========     by thread (0,0,0) in block (1,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
OLDER = """\
========= COMPUTE-SANITIZER
opsmith-sample 2
========= Invalid __global__ read of size 2 bytes
=========     at 0x160 in scale.cu:6:void scale<__half>(T1 *, int)
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Invalid __global__ atomic of size 4 bytes
=========     at 0xa0 in IncrementTwice(unsigned int*)
=========
========= ERROR SUMMARY: 2 errors
"""
BEGUN = "========= COMPUTE-SANITIZER\nopsmith-sample 0\nopsmith-sample end\n"
CLEAN = {
    "memcheck": f"{BEGUN}========= ERROR SUMMARY: 0 errors\n",
    "racecheck": f"{BEGUN}========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}
REFUSED = """\
========= COMPUTE-SANITIZER
========= Device not supported. Please refer to the "Supported Devices" section of the sanitizer documentation
Traceback (most recent call last):
torch.AcceleratorError: CUDA error: unknown error
========= Target application returned an error
========= ERROR SUMMARY: 0 errors
"""


def read(tool: str, words: str) -> list[tuple[str, str, str, int, int]]:
    found = sanitizer.findings(tool, words)
    return [(each.what, sanitizer.short(each.kernel), each.line, each.sample, each.count) for each in found]


def test_what_memcheck_says_is_read() -> None:
    assert read("memcheck", MEMCHECK) == [
        ("Invalid __global__ write of size 4 bytes", "beyond", "_doubled.py:31", 1, 1)
    ]


def test_what_racecheck_says_is_read_and_warnings_are_not() -> None:
    (own, library) = sanitizer.findings("racecheck", RACECHECK)
    assert str(own) == "racecheck: race with a Write access in racy at _doubled.py:38"
    assert not own.is_of_a_library and library.is_of_a_library


def test_what_initcheck_says_is_read_and_counted() -> None:
    (library, own) = sanitizer.findings("initcheck", INITCHECK)
    assert library.is_of_a_library
    assert str(own) == "initcheck: Uninitialized __global__ memory read of size 4 bytes in unset, 2 times"


def test_what_is_said_after_all_samples_is_of_none() -> None:
    assert read("synccheck", SYNCCHECK) == [
        ("Barrier error detected. Divergent thread(s) in block", "divergent", "_doubled.py:52", -1, 1)
    ]


def test_the_output_of_older_releases_is_read() -> None:
    assert read("memcheck", OLDER) == [
        ("Invalid __global__ read of size 2 bytes", "scale", "scale.cu:6", 2, 1),
        ("Invalid __global__ atomic of size 4 bytes", "IncrementTwice", "", 2, 1),
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (CLEAN["memcheck"], ""),
        (CLEAN["racecheck"], ""),
        (REFUSED, "Device not supported"),
        ("========= Error: Target application terminated before first instrumented API call\n", "Error: Target app"),
        (
            "opsmith-sample 0\nImportError: no such module\n========= ERROR SUMMARY: 0 errors\n",
            "the samples end with Imp",
        ),
        ("", "the samples end with nothing"),
        ("nothing within 55 s", "the samples end with nothing within 55 s"),
        ("opsmith-sample end\n", "it gives no summary"),
    ],
)
def test_a_tool_that_did_not_work_is_not_trusted(words: str, why: str) -> None:
    found = sanitizer.unusable(words)
    assert found.startswith(why) and bool(found) == bool(why)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], Path]:
    """Puts a compute-sanitizer on PATH that says given words for each tool, and keeps what it was asked."""

    def install(words: dict[str, str]) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, text in words.items():
            (folder / name).write_text(text)
        program = folder / sanitizer.NAME
        program.write_text(
            f"#!{sys.executable}\nimport os, pathlib, sys\nhere = pathlib.Path(__file__).parent\n"
            "name = sys.argv[sys.argv.index('--tool') + 1]\n"
            "set_to = [os.environ.get(name, '') for name in ('PYTORCH_NO_CUDA_MEMORY_CACHING', 'OPSMITH_LINE_INFO')]\n"
            "(here / (name + '.asked')).write_text(' '.join(sys.argv[1:]) + chr(10) + ' '.join(set_to))\n"
            "(here / 'samples').write_text(open(sys.argv[-1]).read())\nprint((here / name).read_text(), end='')\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        return folder

    return install


QUIET = {**CLEAN, "initcheck": CLEAN["memcheck"], "synccheck": CLEAN["memcheck"]}


def test_nothing_found_is_a_pass_and_each_sample_was_run(fresh: Fresh, tool: Any) -> None:
    folder = tool(QUIET)
    op = declared(fresh("quiet"), lambda x: 2 * x)
    assert outcome(sanitizer, op, "full") == ("passed", "memcheck, racecheck, initcheck, synccheck over 2 calls")
    asked, set_to = (folder / "memcheck.asked").read_text().splitlines()
    assert asked.startswith("--tool memcheck --padding 256")
    assert set_to == "1 1", "no memory of torch's cache, and kernels with line numbers"
    text = (folder / "samples").read_text()
    compile(text, "samples", "exec")
    assert text.count("opsmith.checks.outputs(op, x)") == 2 and 'print("opsmith-sample end", flush=True)' in text


def test_a_finding_is_reported_with_its_sample(fresh: Fresh, tool: Any) -> None:
    tool({**QUIET, "memcheck": MEMCHECK, "racecheck": RACECHECK, "initcheck": INITCHECK})
    status, said = outcome(sanitizer, declared(fresh("found"), lambda x: 2 * x), "full")
    assert status == "failed"
    assert said.split("; ") == [
        "odd, float32: memcheck: Invalid __global__ write of size 4 bytes in beyond at _doubled.py:31",
        "wide, float32: racecheck: race with a Write access in racy at _doubled.py:38",
        "wide, float32: initcheck: Uninitialized __global__ memory read of size 4 bytes in unset, 2 times",
    ]


def test_a_tool_that_fails_is_reported_and_one_that_works_nowhere_is_a_skip(fresh: Fresh, tool: Any) -> None:
    op = declared(fresh("refused"), lambda x: 2 * x)
    folder = tool({**QUIET, "racecheck": REFUSED})
    status, said = outcome(sanitizer, op, "full")
    assert status == "passed"
    assert said.startswith("memcheck, initcheck, synccheck over 2 calls; not racecheck: Device not supported.")
    for name in sanitizer.TOOLS:
        (folder / name).write_text(REFUSED)
    status, said = outcome(sanitizer, op, "full")
    assert status == "skipped" and said.startswith("compute-sanitizer does not work here: Device not supported")


def test_a_tool_that_does_not_end_is_ended(fresh: Fresh, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tool(QUIET)
    program = folder / sanitizer.NAME
    program.write_text(program.read_text() + "import time; time.sleep(60)\n")
    monkeypatch.setattr(sanitizer, "SECONDS", 0.5)
    status, said = outcome(sanitizer, declared(fresh("hangs"), lambda x: 2 * x), "full")
    assert status == "skipped" and "nothing within" in said


def test_where_it_is_not_installed_the_reason_is_given(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    status, said = outcome(sanitizer, declared(fresh("absent"), lambda x: 2 * x), "full")
    assert (status, said) == ("skipped", "compute-sanitizer is not installed: it comes with the CUDA toolkit")
