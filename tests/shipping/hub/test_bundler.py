"""Functions are bundled with everything they refer to, and what cannot be bundled is refused by name."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from opsmith.errors import NotSelfContainedError
from opsmith.shipping.hub.bundler import Bundler

Write = Callable[..., ModuleType]
_number = itertools.count()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """write(text, helpers=text) -> a module of an author's package, with another beside it."""
    name = f"bundled_{next(_number)}"
    monkeypatch.syspath_prepend(tmp_path)

    def written(text: str, **others: str) -> ModuleType:
        package = tmp_path / name
        package.mkdir()
        for module, source in {"__init__": "", "main": text, **others}.items():
            (package / f"{module}.py").write_text(textwrap.dedent(source))
        return importlib.import_module(f"{name}.main")

    yield written
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def bundled(function: Any, ops: dict[str, str] | None = None) -> tuple[str, dict[str, Any]]:
    """The text, and the names that it defines when it runs by itself."""
    bundler = Bundler(ops or {}, (function.__module__.partition(".")[0],))
    name = bundler.bundle(function, "The op mylib::f")
    found: dict[str, Any] = {}
    text = f"from __future__ import annotations\n{bundler.text()}"
    exec(compile(text, "<bundled>", "exec"), found)
    found["f"] = found[name]
    return text, found


def test_helpers_constants_and_imports_are_included(write: Write) -> None:
    module = write(
        """
        import math
        import torch.nn.functional as F
        from torch import Tensor, tanh as bend
        from .helpers import halved

        SCALE = 3.0

        def f(x: Tensor, rest: tuple[float, ...] = (1.0,)) -> Tensor:
            return halved(bend(F.relu(x)) * SCALE) + math.pi + rest[0]  # the author's comment
        """,
        helpers="""
        HALF = 0.5

        def halved(x):
            return x * HALF
        """,
    )
    text, found = bundled(module.f)
    x = torch.randn(5)
    assert torch.equal(found["f"](x), module.f(x))
    assert "bundled_" not in text and "the author's comment" in text


def test_a_module_of_the_authors_is_reached_through_its_attributes(write: Write) -> None:
    module = write(
        """
        from . import helpers

        def f(x):
            return helpers.doubled(x) + helpers.OFFSET
        """,
        helpers="""
        OFFSET = 4

        def doubled(x):
            return 2 * x
        """,
    )
    text, found = bundled(module.f)
    assert found["f"](1) == 6
    assert "helpers" not in text


def test_two_modules_may_use_one_name_for_two_things(write: Write) -> None:
    module = write(
        """
        from .helpers import shifted

        OFFSET = 1

        def f(x):
            return shifted(x) * 10 + OFFSET
        """,
        helpers="""
        OFFSET = 2

        def shifted(x):
            return x + OFFSET
        """,
    )
    assert bundled(module.f)[1]["f"](3) == module.f(3) == 51


def test_functions_in_containers_lambdas_closures_classes_and_partials_are_included(write: Write) -> None:
    module = write(
        """
        import enum
        import functools
        from typing import NamedTuple
        import torch

        class Mode(enum.Enum):
            UP = 1
            DOWN = 2

        class Pair(NamedTuple):
            first: int
            second: int

            def total(self):
                return self.first + self.second

        MODE = Mode.UP
        TABLE = {"none": lambda x: x, "neg": torch.neg}

        @functools.lru_cache
        def offset(n):
            return n + 7

        times = functools.partial(torch.mul, other=3)

        def made(factor):
            def f(x, mode="neg"):
                up = MODE is Mode.UP and isinstance(Pair(1, 2), Pair)
                return times(TABLE[mode](x)) * factor + offset(1) + Pair(1, 2).total() + float(up)
            return f

        f = made(5)
        """
    )
    text, found = bundled(module.f)
    x = torch.randn(4)
    assert torch.equal(found["f"](x), module.f(x)) and torch.equal(found["f"](x, "none"), module.f(x, "none"))
    assert "lru_cache" in text


def test_functions_may_call_each_other(write: Write) -> None:
    module = write(
        """
        def even(n):
            return True if n == 0 else odd(n - 1)

        def odd(n):
            return False if n == 0 else even(n - 1)
        """
    )
    assert bundled(module.even)[1]["f"](10)


def test_an_op_becomes_its_generated_function_and_opsmiths_decorators_go(write: Write) -> None:
    module = write(
        """
        import torch
        import opsmith

        def unchanged(function):
            return function

        @opsmith.op("bundled::inner")
        def inner(x: torch.Tensor) -> torch.Tensor:
            return x + 1

        @opsmith.op(
            "bundled::outer",
        )
        @unchanged
        def outer(x: torch.Tensor) -> torch.Tensor:
            return inner(x) * 2
        """
    )
    bundler = Bundler({"bundled::inner": "inner"}, (module.__name__.partition(".")[0],))
    name = bundler.bundle(module.outer.reference, "The op bundled::outer")
    assert "opsmith" not in bundler.text() and "@unchanged" in bundler.text()
    assert bundler.uses[name] == {"bundled::inner"}


def test_a_string_over_several_lines_keeps_its_margin(write: Write) -> None:
    module = write(
        '''
        def made():
            def f(x):
                text = """a
        b"""
                return text + x
            return f

        f = made()
        '''
    )
    assert bundled(module.f)[1]["f"]("!") == module.f("!")


REFUSED = {
    "a tensor": ("TABLE = torch.ones(3)", "return x * TABLE", r"'TABLE'.*is a Tensor.*\n  main.py:7: return x.*\nMake"),
    "numpy": ("import numpy as np", "return np.abs(x)", r"'np'.*the module numpy\.\n  main.py:7.*\nWrite it"),
    "numpy in the function": ("", "import numpy", "'numpy'.*it is imported"),
    "what numpy has": ("from numpy import linalg", "return linalg.norm(x)", "'linalg'.*the module numpy.linalg"),
    "opsmith": ("import opsmith", "return opsmith.Sample((x,))", "'Sample'.*it is part of opsmith.*\n.*\nUse torch"),
    "an op of another build": ("import opsmith", "return opsmith.ops.mish(x)", "'mish'.*opsmith::mish, which is not"),
    "an object": ("THING = object()", "return THING", r"'THING'.*<class 'object'>.*\n.*\nUse a number"),
    "an instance": ("from .helpers import THING", "return THING", "'THING'.*it is a Thing of bundled_"),
    "nothing": ("", "return missing(x)", "'missing'.*no such variable"),
    "a change outside": ("COUNT = 0", "global COUNT", "'COUNT'.*it changes a variable"),
    "a local of the same name": (
        "from . import helpers",
        "return [helpers.same(x) for helpers in [helpers.THING]] and helpers.same(x)",
        "'helpers'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_self_contained_is_refused(write: Write, what: str) -> None:
    above, body, message = REFUSED[what]
    text = f"import torch\n\n{above}\n\n\ndef f(x):\n    {body}\n"
    module = write(text, helpers="class Thing: ...\n\n\nTHING = [Thing()]\n\n\ndef same(x):\n    return x\n")
    with pytest.raises(NotSelfContainedError, match=message) as caught:
        bundled(module.f)
    assert str(caught.value).startswith("The op mylib::f refers to")


def test_code_without_a_file_is_refused() -> None:
    scope: dict[str, Any] = {"__name__": "mylib.main"}
    exec("def f(x): return x", scope)
    with pytest.raises(NotSelfContainedError, match=r"source cannot be read.*put it into a file"):
        bundled(scope["f"])
