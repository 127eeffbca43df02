"""The Typer application: every verb of this package, and the options that belong to none of them."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .._lazy import import_by_name
from ._screen import guarded


def create() -> typer.Typer:
    """The application with every verb."""
    app = typer.Typer(
        name="opsmith",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):
            verb = import_by_name(f"{__package__}.{module.name}")
            app.command(module.name)(guarded(verb.command))
    return app


def _show_version(given: bool) -> None:
    if given:
        print(f"opsmith {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Turn a kernel into a complete PyTorch operator."""
