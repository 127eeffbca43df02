"""Read which names a shared library defines for others, from its dynamic symbol table."""

from __future__ import annotations

import struct
from pathlib import Path

_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


def defined_symbols(path: Path) -> list[str]:
    """The names in the table that have a definition here, sorted; none where it is no 64-bit ELF file."""
    image = path.read_bytes()
    if image[:6] != b"\x7fELF\x02\x01":
        return []
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [_SECTION.unpack_from(image, table + number * size) for number in range(count)]
    names = []
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind == _DYNAMIC_SYMBOLS:
            strings = sections[link][4]
            for name, _, _, section, _, _ in _SYMBOL.iter_unpack(image[offset : offset + length]):
                if section != 0 and name != 0:
                    names.append(image[strings + name : image.index(b"\0", strings + name)].decode(errors="replace"))
    return sorted(names)
