"""`opsmith.testing.check_op` in a user's test file: one test per item."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import opsmith
from opsmith.checks.run import items_at
from opsmith.errors import CheckOptionError
from opsmith.testing import check_op

TESTS = str(Path(__file__).parents[1])

USERS_FILE = """
    import sys
    sys.path.insert(0, {tests!r})

    import pytest
    import torch

    import opsmith.testing
    from checks.faulty import wrong_gradient
    from opsmith import ops

    CHOSEN = ["values", "gradients"]
    test_square = opsmith.testing.check_op(ops.square, device="cpu", items=CHOSEN)
    test_faulty = opsmith.testing.check_op(wrong_gradient.op, device="cpu", items=CHOSEN)
    test_lazy = opsmith.testing.check_op(lambda: ops.mish, device="cpu", items=["values"])
    test_emulated = opsmith.testing.check_op(ops.square, emulate=True, items=["values", "side_stream"])
    test_adopted = opsmith.testing.check_op(
        opsmith.checks.adopt(torch.ops.aten.square, lambda x: x * x), device="cpu", items=["values"]
    )
    test_marked = pytest.mark.slow(opsmith.testing.check_op(ops.square, device="cpu", items=["values"]))
    test_no_op = opsmith.testing.check_op(lambda: torch.square, device="cpu", items=["values"])


    class TestOfAClass:
        test_square = opsmith.testing.check_op(ops.square, device="cpu", items=["values"])


    def test_inside():
        opsmith.testing.check_op(ops.square, device="cpu", items=["values"])


    def test_inside_faulty():
        opsmith.testing.check_op(wrong_gradient.op, device="cpu", items=CHOSEN)
"""


@pytest.fixture
def users_file(pytester: pytest.Pytester) -> Path:
    pytester.makeini("[pytest]\nmarkers = slow")
    return pytester.makepyfile(test_mine=USERS_FILE.format(tests=TESTS))


def line_of(file: Path, words: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if words in line)


def test_each_item_is_a_test(pytester: pytest.Pytester, users_file: Path) -> None:
    done = pytester.runpytest_subprocess("-v", "-rs", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=9, failed=3, skipped=1)
    done.stdout.fnmatch_lines_random(
        [
            "test_mine.py::test_square[[]values[]] PASSED*",
            "test_mine.py::test_square[[]gradients[]] PASSED*",
            "test_mine.py::test_faulty[[]values[]] PASSED*",
            "test_mine.py::test_faulty[[]gradients[]] FAILED*",
            "test_mine.py::test_lazy[[]values[]] PASSED*",
            "test_mine.py::test_emulated[[]values[]] PASSED*",
            "test_mine.py::test_adopted[[]values[]] PASSED*",
            "test_mine.py::TestOfAClass::test_square[[]values[]] PASSED*",
            "test_mine.py::test_inside PASSED*",
            "test_mine.py::test_inside_faulty FAILED*",
        ]
    )
    text = done.stdout.str()

    skipped = f"SKIPPED [1] test_mine.py:{line_of(users_file, 'test_emulated =')}: is for cuda, and this is emulated"
    assert skipped in text, "with its reason, at the line of the test"

    failure = text.partition("_ test_faulty[gradients] _")[2].partition("\n____")[0]
    assert "gradient of x" in failure and "To reproduce:\n\nimport sys, torch, opsmith\n" in failure
    assert "opsmith.checks.assert_matches(op, x)\n" in failure
    assert "Traceback" not in failure and "items.py" not in failure and "run.py" not in failure

    inside = text.partition("_ test_inside_faulty _")[2].partition("\n____")[0].partition("====")[0]
    assert re.search(r"^gradients: 5x7, float32: gradient of x", inside, re.MULTILINE)
    assert inside.count("To reproduce:") == 1

    assert "NotAnOpError: A check takes an op, not <built-in method square" in text and "<lambda>" in text


def test_tests_are_selected_by_item_and_mark_and_distributed_over_processes(
    pytester: pytest.Pytester, users_file: Path
) -> None:
    some = pytester.runpytest_subprocess("-k", "gradients or slow", "-n", "2", "-p", "no:cacheprovider", "-v")
    some.assert_outcomes(passed=2, failed=1)
    some.stdout.fnmatch_lines_random(["*PASSED*test_square[[]gradients[]]*", "*PASSED*test_marked[[]values[]]*"])


def test_without_items_there_is_a_test_for_each_that_applies(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine="""
        import opsmith.testing

        def declared():
            raise AssertionError("called while tests were collected")

        test_quick = opsmith.testing.check_op(declared, device="cpu")
        test_full = opsmith.testing.check_op(declared, device="cpu", level="full")
        test_emulated = opsmith.testing.check_op(declared, emulate=True)
        test_cuda = opsmith.testing.check_op(declared, device="cuda")
        """
    )
    collected = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "no:cacheprovider").outlines
    for test, place, level in [
        ("test_quick", "cpu", "quick"),
        ("test_full", "cpu", "full"),
        ("test_emulated", "emulated", "quick"),
        ("test_cuda", "cuda", "quick"),
    ]:
        ids = [line.partition("::")[2] for line in collected if line.startswith(f"test_mine.py::{test}[")]
        assert ids == [f"{test}[{item.name}]" for item in items_at(place, level)]  # type: ignore[arg-type]
        assert f"{test}[values]" in ids


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"items": ["valeus"]}, "no item is called 'valeus'; there are values, "),
        ({"level": "thorough"}, "level is 'quick' or 'full', not 'thorough'"),
        ({"device": "tpu"}, "device is 'cpu' or 'cuda', not 'tpu'"),
        ({"device": "cuda", "emulate": True}, "emulated kernels run on the CPU"),
    ],
)
def test_unknown_options_are_refused_at_collection(
    options: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    with pytest.raises(CheckOptionError, match=re.escape(words)):
        check_op(opsmith.ops.square, **options)  # type: ignore[arg-type]
