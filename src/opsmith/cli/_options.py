"""Options that mean the same in every verb that has them."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Device(str, enum.Enum):
    cpu = "cpu"
    cuda = "cuda"


OnDevice = Annotated[
    Device | None, typer.Option(help="Where to run; without, the GPU where there is one.", show_default=False)
]
From = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="MODULE|FILE.py", help="What declares the named ops.", show_default=False),
]
OPS = "Ops by name or by what declares them; without, every shipped op."
"""The help of what they are run on."""
