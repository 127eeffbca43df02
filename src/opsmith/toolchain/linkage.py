"""What a shared library gives to others and takes from them: its dynamic symbols, with their versions."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_HEADER = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_DYNAMIC, _DYNAMIC_SYMBOLS = 6, 11
_VERSIONS_GIVEN, _VERSIONS_TAKEN, _VERSION_OF_SYMBOL = 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_NEEDED = 1  # DT_NEEDED
_WEAK = 2
_VERSION = re.compile(r"([A-Z]+)_(\d[\d.]*)")
_KINDS = {1: "object", 2: "function", 6: "tls_object", 10: "function"}  # the last is chosen by the loader (IFUNC)


class Symbol(NamedTuple):
    """A dynamic symbol. `library`: which one its version is asked of; for a definition, None."""

    name: str
    version: str | None
    library: str | None
    kind: str
    size: int
    is_weak: bool
    is_default: bool


@dataclass(frozen=True)
class Linkage:
    """`needed`: the libraries that are loaded with it. A symbol may be given in several versions."""

    needed: tuple[str, ...]
    given: tuple[Symbol, ...]
    taken: tuple[Symbol, ...]


class NoLibraryError(ValueError):
    """A file is not a shared library of 64-bit little-endian ELF; the text says what it is instead."""


def read_linkage(path: Path) -> Linkage:
    with path.open("rb") as file:
        if (start := file.read(len(_HEADER))) != _HEADER:
            raise NoLibraryError(f"{path.name} is not a 64-bit ELF file: it starts with {start!r}")
        image = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # torch's libraries are a gigabyte
    try:
        return _read(image)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NoLibraryError(f"{path.name} is a damaged ELF file: {error}") from error


def version_number(version: str) -> tuple[str, tuple[int, ...]] | None:
    """("GLIBC", (2, 28)) of "GLIBC_2.28"; None of a version without a number, such as GLIBC_PRIVATE."""
    found = _VERSION.fullmatch(version)
    return (found[1], tuple(map(int, found[2].split(".")))) if found else None


def _read(image: mmap.mmap) -> Linkage:
    (start,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    sections = [_SECTION.unpack_from(image, start + number * size) for number in range(count)]

    def text(strings: int, position: int) -> str:
        begin = sections[strings][4] + position
        return image[begin : image.find(b"\0", begin)].decode(errors="replace")

    needed: list[str] = []
    versions: dict[int, tuple[str, str | None]] = {}
    of_symbol: tuple[int, ...] = ()
    for _, kind, _, _, offset, length, link, entries, *_ in sections:
        if kind == _DYNAMIC:
            tags = struct.iter_unpack("<qQ", image[offset : offset + length])
            needed += [text(link, value) for tag, value in tags if tag == _NEEDED]
        elif kind == _VERSION_OF_SYMBOL:
            of_symbol = struct.unpack_from(f"<{length // 2}H", image, offset)
        elif kind == _VERSIONS_GIVEN:
            for index, name in _versions_given(image, offset, entries):
                if index > 1:  # 1 is the library's own name
                    versions[index] = text(link, name), None
        elif kind == _VERSIONS_TAKEN:
            for index, name, place in _versions_taken(image, offset, entries):
                versions[index] = text(link, name), text(link, place)
    given: list[Symbol] = []
    taken: list[Symbol] = []
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _DYNAMIC_SYMBOLS:
            continue
        for number, entry in enumerate(_SYMBOL.iter_unpack(image[offset : offset + length])):
            position, information, _, section, _, bytes = entry
            if not position:
                continue
            index = of_symbol[number] if of_symbol else 1
            version, library = versions.get(index & 0x7FFF, (None, None))
            symbol = Symbol(
                text(link, position),
                version,
                library,
                _KINDS.get(information & 15, "object"),
                bytes,
                information >> 4 == _WEAK,
                not index & 0x8000,
            )
            (given if section else taken).append(symbol)
    return Linkage(tuple(needed), tuple(given), tuple(taken))


def _versions_given(image: mmap.mmap, at: int, count: int) -> Iterator[tuple[int, int]]:
    """(index, place of the name) of each Elf64_Verdef."""
    for _ in range(count):
        _, _, index, _, _, first, following = struct.unpack_from("<HHHHIII", image, at)
        (name,) = struct.unpack_from("<I", image, at + first)
        yield index, name
        at += following


def _versions_taken(image: mmap.mmap, at: int, count: int) -> Iterator[tuple[int, int, int]]:
    """(index, place of the name, place of the library's name) of each Elf64_Vernaux."""
    for _ in range(count):
        _, entries, library, first, following = struct.unpack_from("<HHIII", image, at)
        entry = at + first
        for _ in range(entries):
            _, _, index, name, further = struct.unpack_from("<IHHII", image, entry)
            yield index, name, library
            entry += further
        at += following
