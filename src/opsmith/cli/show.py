"""`opsmith show NAME`: one op, part by part, or the source of its generated kernels."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ._screen import STYLES, RefusedError, output
from ._sources import find

if TYPE_CHECKING:
    from ..kernels import Kernel
    from ..operator.op import Op


class Language(str, enum.Enum):
    cuda = "cuda"
    cpu = "cpu"


class Dtype(str, enum.Enum):
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


def command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An op's name: mylib::mish", show_default=False)],
    sources: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="MODULE|FILE.py", help="Where it is declared.", show_default=False),
    ] = None,
    source: Annotated[
        Language | None,
        typer.Option("--source", help="Print a pointwise op's generated kernel for that device.", show_default=False),
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="With --source: the kernel of its gradients.")] = False,
    dtype: Annotated[Dtype, typer.Option("--dtype", help="With --source: of its tensors.")] = Dtype.float32,
) -> None:
    """One op, part by part: written by its author, generated or derived from the reference, or absent."""
    if source is None and (backward or dtype is not Dtype.float32):
        raise RefusedError(
            "--backward and --dtype choose among generated kernels: give --source cuda or --source cpu too."
        )
    op = find(name, sources or ())
    if source is None:
        _show_parts(op)
    else:
        _show_source(op, source.value, backward, dtype.value)


def _show_source(op: Op, device: str, backward: bool, dtype: str) -> None:
    import torch

    if not op.is_generated:
        raise RefusedError(
            f"{op.name} has no generated source: it is declared with @opsmith.op, whose kernels are written by hand.\n"
            f"`opsmith show {op.name}` tells which it has; @opsmith.pointwise generates them."
        )
    text = op.source(device, backward=backward, dtype=getattr(torch, dtype))
    lexer = "cuda" if device == "cuda" else "cpp"
    # soft_wrap: what is piped into a file or a compiler keeps its lines.
    output.print(Syntax("", lexer, theme="ansi_dark").highlight(text.rstrip()), soft_wrap=True, end="")


def _show_parts(op: Op) -> None:
    from .. import runtime
    from ..operator import describe

    output.print(Text(op.schema, "bold"))
    output.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part in describe.parts(op):
        style = STYLES[part.status]
        detail = Text(part.detail, style if part.status == "absent" else "")
        table.add_row(Text(part.name, style), Text(part.status, style), detail)
    table.add_row()
    table.add_row("runtime", "", Text(f"{describe.runtime(op)}: {runtime.reason()}"))
    for number, call in enumerate(python_calls(op)):
        table.add_row("" if number else "Python runs in", "", Text(call))
    output.print(table)


def python_calls(op: Op) -> list[str]:
    """The calls of the op that go through Python, and why; one that is not named is C++ throughout."""
    default = op._families.default
    if default.forward.attachment.tier != "native":
        return ["every call (the C++ runtime does not serve this process)"]
    calls = _by_reason("forward", default.forward.kernels, "the reference")
    if default.differentiable.written_gradient is not None:
        calls.append("backward (register_autograd)")
    else:
        calls += _by_reason("backward", default.backward.kernels, "the reference and its vjp")
    return calls or ["no call"]


def _by_reason(call: str, kernels: Mapping[str, Kernel], derived: str) -> list[str]:
    """['forward on cpu and cuda (the reference)']: the devices on which a call goes through Python, and why."""
    from ..kernels import PythonKernel

    devices: dict[str, list[str]] = {}
    for device in ("cpu", "cuda"):
        kernel = kernels.get(device)
        if kernel is None:
            devices.setdefault(derived, []).append(device)
        elif isinstance(kernel, PythonKernel):
            devices.setdefault("a kernel launched from Python", []).append(device)
    return [f"{call} on {' and '.join(where)} ({reason})" for reason, where in devices.items()]
