"""Translate a CUDA source to text that a C++ compiler accepts: the same line for line, except for a few words.

This module handles what the emulator's headers cannot: `extern __shared__` becomes a pointer, and features that are not
emulated are refused by name.
"""

from __future__ import annotations

import re

from ..cuda_text.tokens import without_comments
from ..errors import UnsupportedFeatureError
from .refused import INLINE_PTX

_DYNAMIC_SHARED = re.compile(
    r"\bextern\s+(?:__shared__\s+|(?P<before>(?:alignas|__align__)\s*\([^)]*\)\s*)__shared__\s+)"
    r"(?P<type>[^;{}()\[\]=]*?(?:(?:alignas|__align__|__attribute__)\s*\(+[^)]*\)+[^;{}()\[\]=]*?)?)"
    r"\b(?P<name>[A-Za-z_]\w*)\s*\[\s*\]\s*;"
)
_DOUBLY_STATIC = re.compile(r"\bstatic\s+__shared__\s|\b__shared__\s+static\s")
# alignas may come first in a declaration, but not in the middle.
_ALIGNED_LATE = re.compile(r"\b__shared__(?P<between>\s+)(?P<alignas>alignas\s*\((?:[^()]|\([^()]*\))*\))")
_CONDITION = re.compile(r"\s*#\s*(?P<word>ifdef|ifndef|if|elif|else|endif)\b(?P<condition>.*)")
_CONSTANT = re.compile(r"\b__constant__\b")
_ALIGNMENT = re.compile(r"(?:alignas|__align__)\s*\([^)]*\)|__attribute__\s*\(\([^)]*\)*\)+")
_SCOPE = re.compile(r'\b(?:namespace(?:\s+[\w:]+)?|extern\s+"C")\s*\{|[{}]')

# Features that no header refuses, by their spelling.
_ASM = r"\b(?:__asm__|__asm|asm)(?=\s*(?:\(|volatile\b|__volatile__\b|goto\b))"
_REFUSED = {
    _ASM: INLINE_PTX,
    r"<<<": "launches with <<<...>>>; opsmith::launch is emulated",
    r"\bnvcuda\s*::\s*wmma\b": "tensor cores (nvcuda::wmma)",
    r"\b__nv_fp8_\w+|\b__nv_fp4_\w+": "8-bit and 4-bit floats",
    r"\bcudaLaunchCooperativeKernel\b": "barriers of a whole grid (cooperative launches)",
}


def translated(text: str, label: str, first_line: int = 1, is_header: bool = False) -> tuple[str, list[str]]:
    """The text for the C++ compiler, and the names of the dynamic shared memory that it declares at file scope.

    `first_line` is where the text begins in the author's file. PTX in a header is refused where it is used
    (refused.py)."""
    text = _ALIGNED_LATE.sub(r"\g<alignas>\g<between>__shared__", _DOUBLY_STATIC.sub("__shared__ ", text))
    text = _with_sections(text)
    bare = without_comments(text)
    active = _without_other_branches(bare)
    for pattern, feature in _REFUSED.items():
        if not (is_header and pattern == _ASM) and (found := re.search(pattern, active)):
            raise UnsupportedFeatureError(label, feature, active.count("\n", 0, found.start()) + first_line)
    outside: list[str] = []
    pieces, end = [], 0
    for found in _DYNAMIC_SHARED.finditer(bare):
        kind = " ".join(_ALIGNMENT.sub(" ", text[found.start("type") : found.end("type")]).split())
        at_file_scope = _at_file_scope(bare, found.start())
        storage = "static thread_local " if at_file_scope else ""
        if at_file_scope:
            outside.append(found["name"])
        pointer = f"{kind}* const {found['name']}"
        value = f"reinterpret_cast<{kind}*>(opsmith::emulator::opsmith_dynamic_shared());"
        lines = "\n" * text.count("\n", found.start(), found.end())
        pieces += [text[end : found.start()], f"{storage}{pointer} = {value}{lines}"]
        end = found.end()
    return "".join([*pieces, text[end:]]), outside


def _without_other_branches(bare: str) -> str:
    """The text without the lines that `#if` on __CUDA_ARCH__ or OPSMITH_EMULATOR compiles only for a GPU: here the
    former is not defined and the latter is. Both branches of other conditions stay."""
    lines: list[str] = []
    open_ifs: list[tuple[bool, bool]] = []  # whether the present branch is taken, and whether another one has been
    for line in bare.split("\n"):
        if found := _CONDITION.match(line):
            word, condition = found["word"], found["condition"]
            if word.startswith("if"):
                taken = _taken(word, condition)
                open_ifs.append((taken is not False, taken is True))
            elif open_ifs and word == "endif":
                open_ifs.pop()
            elif open_ifs:
                _, before = open_ifs[-1]
                taken = None if word == "else" else _taken("if", condition)
                open_ifs[-1] = (not before and taken is not False, before or taken is True)
        lines.append(line if all(taken for taken, _ in open_ifs) else "")
    return "\n".join(lines)


def _taken(word: str, condition: str) -> bool | None:
    """Whether a branch is compiled; None if unknown."""
    for name, is_defined in (("__CUDA_ARCH__", False), ("OPSMITH_EMULATOR", True)):
        if re.fullmatch(rf"\(?\s*(?:defined\s*\(?\s*)?{name}\b(?:\s*\))*(?:\s*[<>=]+\s*\d+)?\s*\)?", condition.strip()):
            return is_defined != (word == "ifndef")
        if re.fullmatch(rf"!\s*defined\s*\(?\s*{name}\s*\)?", condition.strip()):
            return not is_defined
        if not is_defined and re.match(rf"defined\s*\(?\s*{name}\s*\)?\s*&&", condition.strip()):
            return False
    return None


def _with_sections(text: str) -> str:
    """The text with OPSMITH_CONST_CONSTANT for the __constant__ of const variables, which need a separate section."""
    bare = without_comments(text)
    pieces, end = [], 0
    for found in _CONSTANT.finditer(bare):
        begin = max(bare.rfind(mark, 0, found.start()) for mark in ";{}") + 1
        declaration = re.split(r"[;=\[{]", bare[found.end() :], maxsplit=1)[0]
        whole = bare[begin : found.start()] + declaration
        if re.search(r"\bconstexpr\b", whole) or re.search(r"\bconst\b", whole.rpartition("*")[2]):
            pieces += [text[end : found.start()], "OPSMITH_CONST_CONSTANT"]
            end = found.end()
    return "".join([*pieces, text[end:]])


def _at_file_scope(bare: str, position: int) -> bool:
    """Whether only namespaces are open there."""
    open_scopes: list[bool] = []
    for found in _SCOPE.finditer(bare, 0, position):
        if found[0] == "}":
            if open_scopes:
                open_scopes.pop()
        else:
            open_scopes.append(found[0] != "{")
    return all(open_scopes)
