"""Shared libraries of packages (`opsmith build --library`) and the same package in Python, in one process.

A library loaded first has defined the operators: Python compares its schemas, keeps the definitions, and takes over the
kernels. A library loaded later finds what Python has declared, and leaves those operators alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

import torch

from ..errors import SchemaDiffersError

_MARK = "_opsmith_library"  # NAMESPACE::_opsmith_library() -> int: the address of the library's interface
_DECLARED = "opsmith-declared"
_VERSION = 1


class _Interface(ctypes.Structure):
    """library.cpp's Interface."""

    version: int
    package: bytes
    _fields_ = (
        ("version", ctypes.c_int64),
        ("package", ctypes.c_char_p),
        ("withdraw", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
    )


def adopt(name: str, schema: str) -> bool:
    """Takes over an operator that a library has defined: whether there was one. Raises SchemaDiffersError."""
    found = _interface(name.partition("::")[0])
    defined = torch._C._jit_get_schemas_for_operator(name) if found is not None else []
    if found is None or not defined:
        return False
    own = torch._C.parse_schema(schema)
    if str(defined[0]) != str(own):
        raise SchemaDiffersError(name, str(own), str(defined[0]), found.package.decode())
    found.withdraw(name.encode())
    return True


def has_defined(name: str) -> bool:
    """Whether a library has defined an operator of this name."""
    return _interface(name.partition("::")[0]) is not None and bool(torch._C._jit_get_schemas_for_operator(name))


def _interface(namespace: str) -> _Interface | None:
    mark = f"{namespace}::{_MARK}"
    if not torch._C._jit_get_schemas_for_operator(mark):
        return None
    address = getattr(getattr(torch.ops, namespace), _MARK).default()
    found = _Interface.from_address(address)
    return found if found.version == _VERSION else None


# --- what Python has declared, for libraries that are loaded later ----------------------------------------------------

_schemas: dict[str, str] = {}
_file: int | None = None  # a file without a place, which libraries find among the process's own by its name


def declared(name: str, schema: str) -> None:
    _schemas[name] = schema
    _publish()


def closed(name: str) -> None:
    _schemas.pop(name, None)
    _publish()


def _publish() -> None:
    global _file
    with contextlib.suppress(OSError):  # a library then finds out when it defines the same operators
        if _file is None:
            _file = os.memfd_create(_DECLARED, os.MFD_CLOEXEC)
        text = "".join(f"{schema}\n" for schema in _schemas.values()).encode()
        os.pwrite(_file, text, 0)
        os.ftruncate(_file, len(text))


def _after_fork() -> None:
    """The parent's file is the child's, too, until the child declares something of its own."""
    global _file
    if _file is not None:
        os.close(_file)
        _file = None
        _publish()


os.register_at_fork(after_in_child=_after_fork)
