"""The command line: `opsmith VERB`, each verb a module beside this file.

A verb is a module with a function `command`; the module's name is the verb's, and the function's docstring is its help.
To add a verb, add that file. Modules whose names begin with an underscore are shared by verbs.

No verb imports torch at its top, so that `opsmith --help` is fast and `opsmith doctor` works where torch is broken.
"""

from __future__ import annotations

import gc
import io
import signal
import sys

from ..operator import child_process


def quick_imports() -> None:
    """Lets Python look for garbage less often: while torch is imported, that is a tenth of the time."""
    gc.set_threshold(5000)


def main() -> None:
    """Runs the command line: the entry point of the script `opsmith`."""
    quick_imports()
    try:
        from . import _processes
        from ._app import create
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        raise SystemExit("The command line of opsmith needs two more packages:  pip install typer rich") from None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # some terminals cannot show a tick
    verb = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    if verb in ("bench", "check", "demo") and child_process.active():
        raise SystemExit(f"opsmith {verb}: {child_process.REASON}")
    if verb in _processes.WATCHED_VERBS:
        _processes.run_watched(lambda: create()(prog_name="opsmith"))
    else:
        # As Ctrl-C does. CI systems send it at their time limit: compilers end, what is half written is removed, and
        # the items of a check that have run are reported.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        create()(prog_name="opsmith")
