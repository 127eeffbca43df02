"""The command line: `opsmith VERB`, each verb a module beside this file.

A verb is a module with a function `command`; the module's name is the verb's, and the function's docstring is its help.
Adding a verb is adding that file. Modules that begin with an underscore hold what verbs share.

No verb imports torch at its top: `opsmith --help` answers at once, and `opsmith doctor` also where torch is broken.
"""

from __future__ import annotations

import io
import sys

from ..operator import child_process


def main() -> None:
    """What the script `opsmith` runs."""
    try:
        from . import _watched
        from ._app import create
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        raise SystemExit("The command line of opsmith needs two more packages:  pip install typer rich") from None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a tick is no reason to fail
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if verb in ("bench", "check", "demo") and child_process.active():
        raise SystemExit(f"opsmith {verb}: {child_process.REASON}")
    if verb in _watched.VERBS:
        _watched.run(lambda: create()(prog_name="opsmith"))
    else:
        create()(prog_name="opsmith")
