"""Import the modules and files that declare a user's ops, and say in one message what is wrong with one that fails."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from .. import ops
from ..errors import OpsmithError
from ..operator import child_process
from ._screen import RefusedError

if TYPE_CHECKING:
    from ..operator.op import Op

SHIPPED = "opsmith"
"""The namespace of the shipped ops."""


def declared(sources: Iterable[str] = ()) -> dict[str, Op]:
    """Every op by name: those shipped with opsmith, and those that `sources` (modules' names, files' paths) declare."""
    for name in ops.__all__:
        getattr(ops, name)
    for source in sources:
        load(source)
    from ..operator.registry import registry

    # The template is there to be copied: one that has been imported is no shipped op.
    return {name: op for name, op in sorted(registry.items()) if not name.startswith(f"{SHIPPED}::_")}


def find(name: str, sources: Sequence[str] = (), verb: str = "show") -> Op:
    """The op of that name, with or without its namespace; raises RefusedError with the nearest names."""
    namespace, _, base = name.partition("::")
    if namespace == SHIPPED and base in ops.names():
        shipped: Op = getattr(ops, base)
        return shipped
    found = declared(sources)
    if name in found:
        return found[name]
    same = [known for known in found if known.partition("::")[2] == name]
    if len(same) == 1:
        return found[same[0]]
    near = same or difflib.get_close_matches(name, found, n=1) or _likest(name, found)
    hint = f"Did you mean {' or '.join(near)}?\n" if near else ""
    known = ", ".join(found)
    raise RefusedError(
        f"no op is named {name!r}. {hint}Declared: {known}.\n"
        f"An op of your own is found by the file or module that declares it:  opsmith {verb} {name} --from FILE.py"
    )


def _likest(base: str, names: Iterable[str]) -> list[str]:
    """Of names with their namespaces, the one whose own name is most like one that was given without."""
    bases = {name.partition("::")[2]: name for name in names}
    return [bases[near] for near in difflib.get_close_matches(base, bases, n=1)]


def load(source: str) -> ModuleType:
    """Imports a module by its name ('mylib.ops') or by its file ('examples/mish.py'); raises RefusedError."""
    with child_process.importing():
        return _load_file(Path(source)) if is_file(source) else _load_module(source)


def is_file(source: str) -> bool:
    """Whether a source is meant as a file, be it there or not."""
    path = Path(source)
    return path.suffix == ".py" or os.sep in source or path.is_file()


def look_here() -> None:
    """Modules are found in the current directory, as for `python -m`."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _load_file(path: Path) -> ModuleType:
    if not path.exists():
        raise RefusedError(f"{path}: there is no such file.")
    if path.is_dir() or path.suffix != ".py":
        kind = "a directory" if path.is_dir() else "no Python file (.py)"
        raise RefusedError(f"{path} is {kind}. Give the file that declares the ops, or a module's name: mylib.ops")
    path = path.resolve()
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "__file__", None) == str(path):
            return loaded  # given twice, or imported by another source: its ops are declared
    # A file may be called as a module that is imported already (list.py, 01_mish.py): it must not take its place.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} at {path}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # as Python does for a file it runs: its neighbours can be imported
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RefusedError(_explained(str(path), path, error)) from error
    return module


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise RefusedError(f"{name!r} is neither a module's name (mylib.ops) nor a Python file (examples/mish.py).")
    look_here()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise RefusedError(
                f"there is no module {error.name!r} here. Give one that Python can import from this directory, or a "
                "file's path: examples/mish.py"
            ) from error
        raise RefusedError(_explained(f"module {name}", None, error)) from error


def _explained(source: str, path: Path | None, error: BaseException) -> str:
    """'mish.py:7: NameError: ...' and that line: where the user's own code went wrong, without the frames around it."""
    if isinstance(error, SystemExit):
        return (
            f"{source} ended the program (exit status {error.code}) while it was imported. Put what it does as a "
            'script under:  if __name__ == "__main__":'
        )
    if isinstance(error, SyntaxError):
        return f"{source} cannot be read.\n{_syntax_error(error)}"
    package = Path(__file__).parent.parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if path is not None and frame.filename == str(path)] or [
        frame for frame in frames if package not in Path(frame.filename).parents
    ]
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    line = f"\n    {own[-1].line}" if own and own[-1].line else ""
    said = str(error) if isinstance(error, OpsmithError) else f"{type(error).__name__}: {error}"
    return f"{source} fails when it is imported.\n{where}{said}{line}"


def _syntax_error(error: SyntaxError) -> str:
    place = f"{error.filename}:{error.lineno}: " if error.filename else ""
    said = f"{place}{type(error).__name__}: {error.msg}"
    if not error.text or not error.offset:
        return said
    line = error.text.rstrip()
    indent = len(line) - len(line.lstrip())
    return f"{said}\n    {line.lstrip()}\n    {' ' * (error.offset - 1 - indent)}^"
