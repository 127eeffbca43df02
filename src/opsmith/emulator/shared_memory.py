"""The static __shared__ variables that a function uses, itself or by what it calls: read from the compiler's assembly,
and stored in a section of the library."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..toolchain import elf

SECTION = "opsmith_shared"

_PLACE = re.compile(r"\t(?:\.section\t(?P<name>[^,\s]+)|(?P<plain>\.(?:text|data|bss))\b)")
_FUNCTION = re.compile(r"^\t\.type\t(?P<name>[^,\s]+), ?[@%]function$", re.MULTILINE)
_LABEL = re.compile(r"(?P<name>[^\s:#\"]+):$")
_WORD = re.compile(r"[A-Za-z_.$][\w.$]*")


def noted(assembly: str) -> str:
    """The assembly with a section that lists, for each function, the variables of a block that it uses."""
    lines = [f"{function} {' '.join(sorted(names))}" for function, names in sorted(_used(assembly).items())]
    if not lines:
        return assembly
    text = "".join(f'\t.ascii\t"{line}\\n"\n' for line in lines)
    return f'{assembly}\t.section\t{SECTION},"",@progbits\n{text}'


def read(image: bytes, sections: Iterable[elf.Section]) -> dict[str, set[str]]:
    """The section that `noted` has put into a library: symbols of variables by those of functions."""
    found: dict[str, set[str]] = {}
    for section in sections:
        if section.name == SECTION:
            for line in image[section.offset : section.offset + section.size].decode().splitlines():
                function, *names = line.split()
                found.setdefault(function, set()).update(names)
    return found


def _used(assembly: str) -> dict[str, set[str]]:
    mentions, variables = _mentions(assembly)
    mentioned_by: dict[str, list[str]] = {}
    for function, names in mentions.items():
        for name in names:
            if name in variables or name in mentions:
                mentioned_by.setdefault(name, []).append(function)
    used: dict[str, set[str]] = {}
    for variable in variables:
        waiting = [variable]  # then the functions that use it, those that call these, and so on
        while waiting:
            for function in mentioned_by.get(waiting.pop(), ()):
                names = used.setdefault(function, set())
                if variable not in names:
                    names.add(variable)
                    waiting.append(function)
    return used


def _mentions(assembly: str) -> tuple[dict[str, set[str]], set[str]]:
    """The identifiers in each function's instructions, and the thread-local variables."""
    functions = set(_FUNCTION.findall(assembly))
    mentions: dict[str, set[str]] = {}
    variables: set[str] = set()
    thread_local, current = False, None
    for line in assembly.splitlines():
        if place := _PLACE.match(line):
            thread_local = (place["name"] or place["plain"]).startswith((".tbss", ".tdata"))
        elif label := _LABEL.match(line):
            if thread_local:
                variables.add(label["name"])
            elif label["name"] in functions:
                current = mentions.setdefault(label["name"], set())
        elif current is not None and not line.startswith("\t."):
            current.update(_WORD.findall(line))
    return mentions, variables
