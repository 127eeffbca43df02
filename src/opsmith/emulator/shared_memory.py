"""Which static __shared__ variables a function uses, itself or by what it calls: read off the compiler's assembly, and
kept in a section of the library for as long as that lives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..toolchain import elf

SECTION = "opsmith_shared"

_PLACE = re.compile(r"\t(?:\.section\t(?P<name>[^,\s]+)|(?P<plain>\.(?:text|data|bss))\b)")
_FUNCTION = re.compile(r"^\t\.type\t(?P<name>[^,\s]+), ?[@%]function$", re.MULTILINE)
_LABEL = re.compile(r"(?P<name>[^\s:#\"]+):$")
_WORD = re.compile(r"[A-Za-z_.$][\w.$]*")


def noted(assembly: str) -> str:
    """The assembly with a section that tells, for each function that uses any, the variables of a block."""
    lines = [f"{function} {' '.join(sorted(names))}" for function, names in sorted(_used(assembly).items())]
    if not lines:
        return assembly
    told = "".join(f'\t.ascii\t"{line}\\n"\n' for line in lines)
    return f'{assembly}\t.section\t{SECTION},"",@progbits\n{told}'


def read(path: Path, sections: Iterable[elf.Section]) -> dict[str, set[str]]:
    """What `noted` has put into a library: symbols of variables by those of functions."""
    found: dict[str, set[str]] = {}
    for section in sections:
        if section.name == SECTION:
            with path.open("rb") as file:
                file.seek(section.offset)
                told = file.read(section.size).decode()
            for line in told.splitlines():
                function, *names = line.split()
                found.setdefault(function, set()).update(names)
    return found


def _used(assembly: str) -> dict[str, set[str]]:
    mentions, variables = _mentions(assembly)
    mentioned_by: dict[str, list[str]] = {}
    for function, words in mentions.items():
        for word in words:
            if word in variables or word in mentions:
                mentioned_by.setdefault(word, []).append(function)
    used: dict[str, set[str]] = {}
    for variable in variables:
        _spread(variable, mentioned_by, used)
    return used


def _spread(variable: str, mentioned_by: Mapping[str, Sequence[str]], used: dict[str, set[str]]) -> None:
    """Notes a variable for the functions that name it, for those that name these, and so on."""
    waiting = [variable]
    while waiting:
        for function in mentioned_by.get(waiting.pop(), ()):
            names = used.setdefault(function, set())
            if variable not in names:
                names.add(variable)
                waiting.append(function)


def _mentions(assembly: str) -> tuple[dict[str, set[str]], set[str]]:
    """The words in each function's instructions, and the variables that threads have of their own."""
    functions = set(_FUNCTION.findall(assembly))
    mentions: dict[str, set[str]] = {}
    variables: set[str] = set()
    of_threads, current = False, None
    for line in assembly.splitlines():
        if place := _PLACE.match(line):
            of_threads = (place["name"] or place["plain"]).startswith((".tbss", ".tdata"))
        elif label := _LABEL.match(line):
            if of_threads:
                variables.add(label["name"])
            elif label["name"] in functions:
                current = mentions.setdefault(label["name"], set())
        elif current is not None and not line.startswith("\t."):
            current.update(_WORD.findall(line))
    return mentions, variables
