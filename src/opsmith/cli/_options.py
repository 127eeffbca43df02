"""Arguments and options that mean the same in every verb that has them."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ._screen import RefusedError


def option(*names: str, help: str, **settings: Any) -> Any:
    """An option whose default is not shown."""
    return typer.Option(*names, help=help, show_default=False, **settings)


class Device(str, enum.Enum):
    cpu = "cpu"
    cuda = "cuda"


OPS = "Ops by name (mish, mylib::mish), or modules and files that declare ops (mylib.ops, ops.py)."
Ops = Annotated[
    list[str] | None, typer.Argument(metavar="OP", help=f"{OPS} Default: every shipped op.", show_default=False)
]
From = Annotated[
    list[str] | None, option("--from", metavar="MODULE|FILE.py", help="A module or file that declares the named ops.")
]
Json = Annotated[
    Path | None, option("--json", metavar="FILE", help="Write the result as JSON; - prints it in place of the report.")
]
OnDevice = Annotated[Device | None, option(help="Where to run. Default: the GPU if there is one.")]


def usable_device(given: Device | None) -> str:
    """'cpu' or 'cuda'. Raises RefusedError if there is no GPU."""
    import torch

    if given is Device.cuda and not torch.cuda.is_available():
        raise RefusedError(
            "--device cuda: torch sees no GPU here. Run `opsmith doctor` for details, or use --device cpu."
        )
    return given.value if given else "cuda" if torch.cuda.is_available() else "cpu"
