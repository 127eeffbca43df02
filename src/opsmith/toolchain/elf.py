"""Read the tables of a 64-bit ELF file, its sections and its symbols; and the C++ that a symbol stands for."""

from __future__ import annotations

import ctypes
import functools
import struct
from pathlib import Path
from typing import Any, NamedTuple

OBJECT, FUNCTION, THREAD_LOCAL = 1, 2, 6
_ALL_SYMBOLS, _DYNAMIC_SYMBOLS = 2, 11  # SHT_SYMTAB, SHT_DYNSYM
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_WEAK, _UNIQUE = 2, 10  # STB_WEAK, STB_GNU_UNIQUE
_WRITABLE, _ALLOCATED, _EXECUTABLE = 1, 2, 4


class Section(NamedTuple):
    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int

    @property
    def is_constant(self) -> bool:
        return bool(self.flags & _ALLOCATED) and not self.flags & (_WRITABLE | _EXECUTABLE)


class Symbol(NamedTuple):
    name: str
    kind: int  # OBJECT, FUNCTION or THREAD_LOCAL
    section: str
    value: int
    size: int


def defined_symbols(path: Path) -> list[str]:
    """The names that a shared library defines for others, sorted; empty where it is not a 64-bit ELF file."""
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return []
    return sorted(symbol.name for symbol in read(path.read_bytes(), _DYNAMIC_SYMBOLS)[1])


def read(image: bytes, table: int = _ALL_SYMBOLS) -> tuple[list[Section], list[Symbol]]:
    """The sections and the defined symbols of a 64-bit little-endian ELF file, also those that are not exported."""
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    raw = [_SECTION.unpack_from(image, start + number * size) for number in range(count)]

    def text(strings: int, position: int) -> str:
        begin = raw[strings][4] + position
        return image[begin : image.index(b"\0", begin)].decode(errors="replace")

    sections = [Section(text(names, name), *rest[:6]) for name, *rest in raw]
    symbols = []
    for section in sections:
        if section.kind != table:
            continue
        data = image[section.offset : section.offset + section.size]
        for name, information, _, index, value, length in _SYMBOL.iter_unpack(data):
            if index and name:
                place = sections[index].name if index < count else ""  # a symbol may have an absolute value
                symbols.append(Symbol(text(section.link, name), information & 15, place, value, length))
    return sections, symbols


def weaken_unique(image: bytearray) -> None:
    """Makes weak symbols of GNU's unique ones, which no tool makes local."""
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    for number in range(count):
        _, kind, _, _, offset, length, *_ = _SECTION.unpack_from(image, start + number * size)
        if kind != _ALL_SYMBOLS:
            continue
        for place in range(offset + 4, offset + length, _SYMBOL.size):  # the byte of binding and type
            if image[place] >> 4 == _UNIQUE:
                image[place] = _WEAK << 4 | image[place] & 15


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
