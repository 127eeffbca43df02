"""The C++ that a compiler's symbol stands for."""

from __future__ import annotations

import ctypes
import functools
from typing import Any


def demangled(symbol: str) -> str:
    """The C++ that a symbol stands for, by the C++ runtime that torch itself needs."""
    function, free = _demangler()
    status = ctypes.c_int()
    address = function(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        raise ValueError(f"the symbol {symbol!r} cannot be read (status {status.value})")
    try:
        return ctypes.string_at(address).decode()
    finally:
        free(address)


@functools.cache
def _demangler() -> tuple[Any, Any]:
    function = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return function, free


def split_at_commas(text: str) -> list[str]:
    """['float*', 'list<int, bool>'] of 'float*, list<int, bool>': the parts between commas outside of brackets."""
    parts, depth, first = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            parts.append(text[first:position].strip())
            first = position + 1
    last = text[first:].strip()
    return [*parts, last] if last else parts
