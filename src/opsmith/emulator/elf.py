"""What a shared library's ELF tables tell: sections, and symbols with their sizes, also those that are not exported."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

OBJECT, FUNCTION, THREAD_LOCAL = 1, 2, 6
_SYMBOL_TABLE = 2  # SHT_SYMTAB
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_ALLOCATED, _WRITABLE, _EXECUTABLE, _OF_THREADS = 2, 1, 4, 0x400


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


def read(path: Path) -> tuple[list[Section], list[Symbol]]:
    """The sections and the symbols of a 64-bit little-endian ELF file."""
    image = path.read_bytes()
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    raw = [_SECTION.unpack_from(image, table + number * size) for number in range(count)]

    def text(strings: int, position: int) -> str:
        start = raw[strings][4] + position
        return image[start : image.index(b"\0", start)].decode(errors="replace")

    sections = [Section(text(names, r[0]), r[1], r[2], r[3], r[4], r[5], r[6]) for r in raw]
    symbols = []
    for section in sections:
        if section.kind != _SYMBOL_TABLE:
            continue
        data = image[section.offset : section.offset + section.size]
        for name, information, _, index, value, length in _SYMBOL.iter_unpack(data):
            if 0 < index < count and name:
                found = text(section.link, name)
                symbols.append(Symbol(found, information & 15, sections[index].name, value, length))
    return sections, symbols
