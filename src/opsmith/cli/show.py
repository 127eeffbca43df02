"""`opsmith show NAME`: the parts of ops, or the source of their generated kernels."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ._ops import selected
from ._options import OPS, Device, From, Json, option
from ._screen import STYLES, RefusedError, output, prepare_json, write_json

if TYPE_CHECKING:
    from ..kernels import Kernel
    from ..operator.op import Op


class Dtype(str, enum.Enum):
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


def command(
    names: Annotated[list[str], typer.Argument(metavar="OP", help=OPS, show_default=False)],
    sources: From = None,
    source: Annotated[Device | None, option(help="Print the source of generated kernels for this device.")] = None,
    backward: Annotated[bool, typer.Option("--backward", help="With --source: the backward kernel.")] = False,
    dtype: Annotated[Dtype, typer.Option(help="With --source: the dtype of the tensors.")] = Dtype.float32,
    json: Json = None,
) -> None:
    """Show the parts of ops: written by the author, generated or derived from the reference, or absent."""
    if source is None and (backward or dtype is not Dtype.float32):
        raise RefusedError(
            "--backward and --dtype choose among generated kernels: give --source cuda or --source cpu too."
        )
    prepare_json(json)
    facts = []
    for number, op in enumerate(selected(names, sources or (), "show")):
        if number:
            output.print()
        if source is None:
            facts.append(_facts(op))
            _print_parts(facts[-1])
        else:
            facts.append({"name": op.name, "source": _source(op, source.value, backward, dtype.value)})
            _print_source(facts[-1]["source"], source.value)
    write_json(json, {"ops": facts})


def _source(op: Op, device: str, backward: bool, dtype: str) -> str:
    import torch

    if not op.is_generated:
        raise RefusedError(
            f"{op.name} has no generated source: it is declared with @opsmith.op, whose kernels are written by hand.\n"
            f"`opsmith show {op.name}` lists them; @opsmith.pointwise and @opsmith.rowwise generate kernels."
        )
    return op.source(device, backward=backward, dtype=getattr(torch, dtype))


def _print_source(text: str, device: str) -> None:
    lexer = "cuda" if device == "cuda" else "cpp"
    # soft_wrap: a source that is piped into a file or a compiler keeps its lines.
    output.print(Syntax("", lexer, theme="ansi_dark").highlight(text.rstrip()), soft_wrap=True, end="")


def _facts(op: Op) -> dict[str, Any]:
    from .. import runtime
    from ..operator import describe

    return {
        "name": op.name,
        "schema": op.schema,
        "parts": [asdict(part) for part in describe.parts(op)],
        "runtime": f"{describe.runtime(op)}: {runtime.reason()}",
        "python_calls": python_calls(op),
        **_shipped(op),
    }


def _shipped(op: Op) -> dict[str, Any]:
    """What the op's package ships, where its kernels on this machine come from, and its passport."""
    from ..errors import calling
    from ..shipping.origin import extensions_of, origins
    from ..shipping.passport import FILE, lines, prebuilt_line
    from ..toolchain.shipped import built_elsewhere, of_package

    names = {op.name, *(name for name, _ in extensions_of(op))}
    other = built_elsewhere(op.__module__)
    unused = f". Those for GPUs are not used: torch is built for CUDA {other.cuda[1]}" if other.cuda else ""
    return {
        "prebuilt": (prebuilt_line(names, of_package(op.__module__)) or "nothing") + unused,
        "built_with": calling.other_version(*other.opsmith) if other.opsmith else "",
        "here": {device: dict(counts) for device, counts in origins(op).items()},
        "passport": [list(line) for line in lines(op.name, of_package(op.__module__, FILE))],
    }


def _print_parts(facts: dict[str, Any]) -> None:
    output.print(Text(facts["schema"], "bold"))
    output.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part in facts["parts"]:
        style = STYLES[part["status"]]
        detail = Text(part["detail"], style if part["status"] == "absent" else "")
        table.add_row(Text(part["name"], style), Text(part["status"], style), detail)
    table.add_row()
    table.add_row("runtime", "", Text(facts["runtime"]))
    for number, call in enumerate(facts["python_calls"]):
        table.add_row("" if number else "Python runs in", "", Text(call))
    table.add_row("prebuilt", "", Text(facts["prebuilt"]))
    if facts["built_with"]:
        table.add_row("", "", Text(facts["built_with"], "yellow"))
    for device, counts in facts["here"].items():
        table.add_row(f"{device} here", "", Text(", ".join(f"{count} {origin}" for origin, count in counts.items())))
    for name, line in facts["passport"]:
        table.add_row(name, "", Text(line))
    output.print(table)


def python_calls(op: Op) -> list[str]:
    """The calls of the op that go through Python, and why; every other call stays in C++."""
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
