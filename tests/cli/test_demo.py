"""`opsmith demo`: its table, its training, and how it refuses; on few ops and steps, for the whole takes a minute."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import opsmith
from opsmith.checks import Comparison
from opsmith.cli import demo
from opsmith.cli.demo import measuring, training
from opsmith.errors import ReferenceRunsWarning

from .conftest import Invoke, flat


@pytest.fixture(autouse=True)
def _few_ops_and_short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opsmith.ops, "__all__", ["add_two_", "scale_bias_relu"])
    monkeypatch.setattr(measuring, "ROUNDS", 2)
    monkeypatch.setattr(measuring, "ROUND_SECONDS", 0.001)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_it_builds_checks_times_and_trains(device: str, invoke: Invoke) -> None:
    result = invoke("demo", "--device", device, "--compile-seconds", "0", "--steps", "40")
    assert result.exit_code == 0, result.output
    assert "return torch.relu(x * scale + bias)" in result.output
    assert re.search(r"Building .* 2/2", result.output)
    number = r"\s+[\d.]+"
    assert re.search(rf"scale_bias_relu\s+\d+% ok{number}{number}\s+-{number}{number}\s+-", result.output), (
        result.output
    )
    assert re.search(rf"add_two_\s+\d+% ok{number}{number}\s+-\s+-\s+-\s+-", result.output), result.output
    assert "torch.compile was timed on no op: --compile-seconds 0." in flat(result.output)
    assert re.search(r"Training .* 40/40 loss \d\.\d+ accuracy \d+", result.output)
    assert "Next:" in result.output and "opsmith show polynomial --source" in result.output


@pytest.mark.parametrize("name", opsmith.ops.names())
def test_every_shipped_op_can_be_timed(name: str) -> None:
    """Also with classes among its arguments, and with several results."""
    op = getattr(opsmith.ops, name)
    args = measuring._with_gradients(measuring.timed_sample(op, "cpu").args)
    if not op._families.default.inplace:
        gradients = measuring._with_backward(op.reference, args)()
        assert len(gradients) == sum(isinstance(each, torch.Tensor) and each.is_floating_point() for each in args)


@pytest.mark.parametrize("device", DEVICES)
def test_the_classifier_passes_95_percent(device: str) -> None:
    assert training.train(device, 60) > demo.WANTED


def test_json_has_the_table_and_the_accuracy(invoke: Invoke) -> None:
    result = invoke("demo", "--device", "cpu", "--compile-seconds", "0", "--steps", "40", "--json", "-")
    facts = json.loads(result.stdout)
    assert (facts["device"], facts["steps"]) == ("cpu", 40) and 0 <= facts["accuracy"] <= 1
    assert [row["op"] for row in facts["ops"]] == ["opsmith::add_two_", "opsmith::scale_bias_relu"]
    for row in facts["ops"]:
        assert row["correct"] and row["forward"]["opsmith"] > 0 and row["forward"].keys() == {"opsmith", "eager"}


def test_lines_fit_80_columns(invoke: Invoke) -> None:
    result = invoke("demo", "--device", "cpu", "--compile-seconds", "0", "--steps", "1")
    assert "…" not in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_a_wrong_op_and_a_model_that_does_not_learn_fail(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "train", lambda device, steps: 0.5)
    assert invoke("demo", "--device", "cpu", "--compile-seconds", "0").exit_code == 1
    assert invoke("demo", "--device", "cpu", "--compile-seconds", "0", "--steps", "1").exit_code == 0
    wrong = Comparison("result", False, 2.0, 1.0, "off")
    monkeypatch.setattr(measuring, "compare", lambda *_: [wrong])
    result = invoke("demo", "--device", "cpu", "--compile-seconds", "0", "--steps", "1")
    assert result.exit_code == 1 and "200% wrong" in result.output


def test_where_nothing_can_be_built_the_table_says_so(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepared(op: Any, device: str) -> None:
        warnings.warn(ReferenceRunsWarning("cpu", "no compiler was found"), stacklevel=1)

    monkeypatch.setattr(measuring, "_prepare", prepared)
    result = invoke("demo", "--device", "cpu", "--compile-seconds", "0", "--steps", "1")
    assert result.exit_code == 0, result.output
    assert "no compiler was found" in flat(result.output)


def test_a_device_that_is_not_there_is_refused(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke("demo", "--device", "cuda")
    assert result.exit_code == 2 and "torch sees no GPU here" in flat(result.output)
    assert invoke("demo", "--device", "tpu").exit_code == 2


# --- torch.compile's side of the table --------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """clock(3): compiling takes 3 seconds from now on."""
    now, cost = [0.0], [0.0]

    def compiled(*_: object) -> Callable[..., object]:
        now[0] += cost[0]
        return len

    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(measuring, "_compiled", compiled)
    return lambda seconds: cost.__setitem__(0, seconds)


def test_torch_compile_stops_when_its_time_is_up(clock: Callable[[float], None]) -> None:
    compiler, op = measuring.Compiler(30.0), opsmith.ops.mish
    clock(18.0)  # the first, which imports half of torch
    assert compiler.compiled(op, []) == (len, "")
    clock(4.0)
    assert [compiler.compiled(op, [])[0] for _ in range(4)] == [len, len, len, None]
    assert compiler.compiled(op, [])[1] == "its time limit of 30 s was reached (--compile-seconds)"


def test_a_missing_torch_compile_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object) -> None:
        raise RuntimeError("\nCannot find a working triton installation\nand more")

    monkeypatch.setattr(measuring, "_compiled", compiled)
    compiler = measuring.Compiler(30.0)
    for _ in range(2):
        function, reason = compiler.compiled(opsmith.ops.mish, [])
        assert function is None and reason == "RuntimeError: Cannot find a working triton installation"
    rows = [SimpleNamespace(no_compile=reason)]
    notes = demo.notes(rows, "", load=99.5)  # type: ignore[arg-type]
    said = str([*notes.renderables])
    assert "torch.compile was timed on no op: RuntimeError: Cannot find a working" in said
    assert "Other programs keep this machine busy (load 99.5" in said


def test_three_digits_of_milliseconds() -> None:
    assert [demo._milliseconds(s) for s in (3.123e-5, 3.123e-4, 3.123e-3, 3.123e-2, 0.3123)] == [
        "0.0312", "0.312", "3.12", "31.2", "312",
    ]  # fmt: skip


def test_digits_are_noisy_and_balanced() -> None:
    images, labels = training.batch(1000, "cpu", torch.Generator().manual_seed(0))
    assert images.shape == (1000, 784) and labels.bincount().min() > 50
    assert not torch.equal(images[0], images[1])
