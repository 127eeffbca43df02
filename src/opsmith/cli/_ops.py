"""The ops that a verb works on: given by name, or by the module or file that declares them."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from .. import ops
from .._lazy import import_by_name
from ..errors import OpsmithError
from ..operator import child_process
from ._screen import RefusedError

if TYPE_CHECKING:
    from ..operator.op import Op

SHIPPED = "opsmith"  # the package, and the namespace, of the shipped ops


def selected(names: Sequence[str], sources: Sequence[str], verb: str) -> list[Op]:
    """The ops that the names mean, each once, in that order. Without names: the ops that the sources (modules and
    files) declare; without sources, the shipped ops. Raises RefusedError."""
    from ..operator.registry import registry

    before = set(registry)
    loaded = [load(source) for source in sources]
    if names:
        found = [op for name in names for op in _meant(name, verb)]
    else:
        found = [op for module in loaded for op in _declared_by(module, before, verb)] or _shipped()
    return list({op.name: op for op in found}.values())


def _meant(name: str, verb: str) -> list[Op]:
    """The op of that name, or the ops that a file or module of that name declares."""
    from ..operator.registry import registry

    before = set(registry)
    if is_file(name):
        return _declared_by(load(name), before, verb)
    known = {each.rpartition("::")[2] for each in registry} | {*ops.names()}
    if "::" in name or name in known or not _is_module(name):
        return [_named(name, verb)]
    return _declared_by(load(name), before, verb)


def _named(name: str, verb: str) -> Op:
    """The op of that name, with or without its namespace. Raises RefusedError with the nearest names."""
    namespace, _, base = name.partition("::")
    if namespace == SHIPPED and base in ops.names():
        shipped: Op = getattr(ops, base)
        return shipped
    found = _declared()
    if name in found:
        return found[name]
    same = [known for known in found if known.partition("::")[2] == name]
    if len(same) == 1:
        return found[same[0]]
    near = same or difflib.get_close_matches(name, found, n=1) or _nearest_base(name, found)
    hint = f"Did you mean {' or '.join(near)}?\n" if near else ""
    raise RefusedError(
        f"no op is named {name!r}. {hint}Declared: {', '.join(found)}.\n"
        f"To find an op of your own, give the file or module that declares it:  opsmith {verb} {name} --from FILE.py"
    )


def _declared() -> dict[str, Op]:
    """Every declared op by name: the shipped ones, and those of the sources that have been loaded."""
    for name in ops.__all__:
        getattr(ops, name)
    from ..operator.registry import registry

    # The template, which is there to be copied, is not a shipped op.
    return {name: op for name, op in sorted(registry.items()) if not name.startswith(f"{SHIPPED}::_")}


def _shipped() -> list[Op]:
    return [op for name, op in _declared().items() if name.startswith(f"{SHIPPED}::")]


def _nearest_base(base: str, names: Iterable[str]) -> list[str]:
    """The full name whose part after the namespace is closest to `base`."""
    bases = {name.partition("::")[2]: name for name in names}
    return [bases[near] for near in difflib.get_close_matches(base, bases, n=1)]


def _is_module(name: str) -> bool:
    """Whether it looks like a module's name, and its first part can be imported."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return False
    if len(parts) > 1:
        return True
    _import_from_here()
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _declared_by(module: ModuleType, before: set[str], verb: str) -> list[Op]:
    """The ops that a module, or a module of its package, declares; else those that its import declared elsewhere."""
    from ..operator.registry import registry

    if module.__name__ in (SHIPPED, ops.__name__):
        return _shipped()  # importing the module declares none
    name = module.__name__
    own = [op for op in registry.values() if op.__module__ == name or op.__module__.startswith(f"{name}.")]
    new = [op for op in registry.values() if op.name not in before and not op.name.startswith(f"{SHIPPED}::")]
    if not (own or new):
        where = getattr(module, "__file__", None) or name
        adopt = (
            "\nTo check an operator that was registered without opsmith, give its reference:\n"
            "  opsmith check torch.ops.NAMESPACE.NAME --reference FILE.py:FUNCTION"
        )
        raise RefusedError(f"{where} declares no op.{adopt if verb == 'check' else ''}")
    return own or new


# --- Importing --------------------------------------------------------------------------------------------------------


def load(source: str) -> ModuleType:
    """Imports a module by its name ('mylib.ops') or by its file ('examples/mish.py'). Raises RefusedError."""
    with child_process.importing():
        return _load_file(Path(source)) if is_file(source) else _load_module(source)


def is_file(source: str) -> bool:
    """Whether a source is meant as a file, whether it exists or not."""
    path = Path(source)
    return path.suffix == ".py" or os.sep in source or path.is_file()


def _import_from_here() -> None:
    """Makes modules of the current directory importable, as for `python -m`."""
    if "" not in sys.path:
        sys.path.insert(0, "")


def _load_file(path: Path) -> ModuleType:
    if not path.exists():
        raise RefusedError(f"{path}: there is no such file.")
    if path.is_dir() or path.suffix != ".py":
        kind = "a directory" if path.is_dir() else "not a Python file (.py)"
        raise RefusedError(f"{path} is {kind}. Give the file that declares the ops, or a module's name: mylib.ops")
    path = path.resolve()
    for loaded in list(sys.modules.values()):
        if getattr(loaded, "__file__", None) == str(path):
            return loaded  # given twice, or imported by another source
    # A file may have the name of an imported module (list.py), which it must not replace.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} at {path}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))  # as Python does for a script: files beside it can be imported
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise RefusedError(_explained(str(path), path, error)) from error
    return module


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise RefusedError(f"{name!r} is neither a module's name (mylib.ops) nor a Python file (examples/mish.py).")
    _import_from_here()
    try:
        return import_by_name(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise RefusedError(
                f"there is no module {error.name!r} here. Give one that Python can import from this directory, or a "
                "file's path: examples/mish.py"
            ) from error
        raise RefusedError(_explained(f"module {name}", None, error)) from error


@contextmanager
def explaining(source: str) -> Iterator[None]:
    """Around an import of the author's code: raises RefusedError with the line that fails."""
    try:
        yield
    except OpsmithError:
        raise
    except (Exception, SystemExit) as error:
        raise RefusedError(_explained(source, None, error)) from error


def _explained(source: str, path: Path | None, error: BaseException) -> str:
    """'mish.py:7: NameError: ...' and that line: the failing line of the user's own code."""
    if isinstance(error, SyntaxError):
        return f"{source} cannot be read.\n{_syntax_error(error)}"
    package = Path(__file__).parent.parent
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if path is not None and frame.filename == str(path)] or [
        frame for frame in frames if package not in Path(frame.filename).parents
    ]
    if isinstance(error, SystemExit):
        script = own[-1].filename if path is None and own else source
        return (
            f"{script} ended the program (exit status {error.code}) while it was imported. Put the code of the "
            'script under:  if __name__ == "__main__":'
        )
    where = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    line = f"\n    {own[-1].line}" if own and own[-1].line else ""
    message = str(error) if isinstance(error, OpsmithError) else f"{type(error).__name__}: {error}"
    return f"{source} fails when it is imported.\n{where}{message}{line}"


def _syntax_error(error: SyntaxError) -> str:
    place = f"{error.filename}:{error.lineno}: " if error.filename else ""
    message = f"{place}{type(error).__name__}: {error.msg}"
    if not error.text or not error.offset:
        return message
    line = error.text.rstrip()
    indent = len(line) - len(line.lstrip())
    return f"{message}\n    {line.lstrip()}\n    {' ' * (error.offset - 1 - indent)}^"
