"""Packages of an author, built for the Hub and loaded by the real `kernels`."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from opsmith.shipping.hub.layout import Variant, write_hub
from opsmith.shipping.project import ops_of

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

_number = itertools.count()
_TESTS = Path(__file__).parents[2]
_installed: dict[str, ModuleType] = {}

OPS = '''
import torch
from torch import Tensor, nn

import opsmith

from .helpers import centred

LIMIT = 6.0


@opsmith.pointwise("NAME::bent")
def bent(x: Tensor, bias: Tensor, slope: float = 0.5) -> Tensor:
    """y = tanh(x * slope + bias)."""
    return torch.tanh(x * slope + bias)


@opsmith.op("NAME::normed")
def normed(x: Tensor, weight: Tensor, *, mode: str = "mean") -> Tensor:
    return centred(x, mode).clamp(-LIMIT, LIMIT) * weight


@opsmith.op("NAME::halves")
def halves(xs: list[Tensor], scale: Tensor | None = None) -> list[Tensor]:
    return [x / 2 if scale is None else x * scale for x in xs]


@opsmith.op("NAME::shift_", mutates_args=("x",))
def shift_(x: Tensor, by: Tensor) -> None:
    x.add_(by * by)


@opsmith.op("NAME::both")
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.argsort(-1)


@opsmith.op("NAME::matched", autocast="lower")
def matched(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@opsmith.op("NAME::kept")
def kept(x: Tensor, y: Tensor) -> Tensor:
    return x @ y


@opsmith.op("NAME::doubled")
def doubled(x: Tensor) -> Tensor:
    return x * 2


def set_up(ctx, inputs, output):
    ctx.factor = 200.0


doubled.register_autograd(lambda ctx, grad: grad * ctx.factor, setup_context=set_up)


@opsmith.op("NAME::noisy")
def noisy(x: Tensor) -> Tensor:
    return x * torch.rand_like(x)


@noisy.register_samples
def _(device, dtype):
    yield opsmith.Sample((torch.ones(4, device=device, dtype=dtype),))


@opsmith.op("NAME::record")
def record(x: Tensor, package: float = 1.0) -> Tensor:
    """Names that the generated file has, too."""
    return x * package


class Bent(nn.Module):
    """A layer with a bias of its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(size))
        self.slope = 0.25

    def forward(self, x: Tensor) -> Tensor:
        return bent(x, self.bias, self.slope)  # one kernel


class Chained(nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return bent(normed(x, weight), x)


class Reaching(nn.Module):
    def own(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return doubled(self.own(x))


class Logging(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return doubled(x) if isinstance(x, Tensor) else opsmith.Sample((x,))


class Unrelated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x
'''
HELPERS = '''
def centred(x, mode):
    """What the author has for this and other things."""
    return x - (x.mean(-1, keepdim=True) if mode == "mean" else x.amax(-1, keepdim=True))
'''


def package(directory: Path, text: str = OPS) -> ModuleType:
    """A new package of an author, imported; its ops are in a namespace of its own name."""
    name = f"hublib{next(_number)}"
    place = directory / name
    place.mkdir(parents=True)
    (place / "__init__.py").write_text("")
    (place / "ops.py").write_text(text.replace("NAME", name))
    (place / "helpers.py").write_text(HELPERS)
    (place / "written.cpp").write_text("")
    sys.path.insert(0, str(directory))
    try:
        made = importlib.import_module(name)
        importlib.import_module(f"{name}.ops")
    finally:
        sys.path.remove(str(directory))
    return made


def written(directory: Path, of: ModuleType, **options: Any) -> Variant:
    options = {"library": None, "passport": None, **options}
    return write_hub(directory, of, ops_of(of), options.pop("library"), options.pop("passport"), **options)


def passport_of(of: ModuleType, *items: str, only: str = "", **changes: Any) -> dict[str, Any]:
    """A passport that says that these items passed, for every op or only for one."""
    check = {"device": "cpu", "emulated": False, "items": list(items), **changes}
    return {"checks": [{"op": op.name, **check} for op in ops_of(of) if op.name.endswith(only)]}


@contextmanager
def installed_kernels() -> Iterator[Any]:
    """The Hub's package `kernels`. Elsewhere in these tests, the name is that of the tests of opsmith.kernels."""
    path = list(sys.path)
    ours = _taken_out()
    sys.modules.update(_installed)
    sys.path[:] = [each for each in path if Path(each).resolve() != _TESTS]
    try:
        yield importlib.import_module("kernels")
    finally:
        _installed.update(_taken_out())
        sys.modules.update(ours)
        sys.path[:] = path


def _taken_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "kernels"]
    return {name: sys.modules.pop(name) for name in names}
