"""From the text of a CUDA source to one that a C++ compiler takes: line for line the same, but for few words.

What the emulator's headers cannot give a meaning to is done here: `extern __shared__` becomes a pointer, and what is
not emulated is refused by its name.
"""

from __future__ import annotations

import re

from ..errors import UnsupportedFeatureError
from ..kernels.cuda_source.text import without_comments

_DYNAMIC_SHARED = re.compile(
    r"\bextern\s+(?:__shared__\s+|(?P<before>(?:alignas|__align__)\s*\([^)]*\)\s*)__shared__\s+)"
    r"(?P<type>[^;{}()\[\]=]*?(?:(?:alignas|__align__|__attribute__)\s*\(+[^)]*\)+[^;{}()\[\]=]*?)?)"
    r"\b(?P<name>[A-Za-z_]\w*)\s*\[\s*\]\s*;"
)
_DOUBLY_STATIC = re.compile(r"\bstatic\s+__shared__\s|\b__shared__\s+static\s")
_ALIGNMENT = re.compile(r"(?:alignas|__align__)\s*\([^)]*\)|__attribute__\s*\(\([^)]*\)*\)+")
_SCOPE = re.compile(r'\b(?:namespace(?:\s+[\w:]+)?|extern\s+"C")\s*\{|[{}]')

# Words that no header refuses, with what they are.
_REFUSED = {
    r"\b__asm(?:__)?\b": "inline PTX (asm)",
    r"<<<": "launches with <<<...>>>; opsmith::launch is emulated",
    r"\bnvcuda\s*::\s*wmma\b": "tensor cores (nvcuda::wmma)",
    r"\b__nv_fp8_\w+|\b__nv_fp4_\w+": "8-bit and 4-bit floats",
    r"\bcudaLaunchCooperativeKernel\b|\bthis_grid\s*\(": "barriers of a whole grid (cooperative launches)",
    r"\bthis_cluster\s*\(|\b__cluster_dims__\b": "clusters of blocks",
    r"\btex[123]D\w*\s*[<(]|\bsurf[123]D\w*\s*[<(]": "textures and surfaces",
}


def translated(text: str, label: str) -> tuple[str, list[str]]:
    """The text for the C++ compiler, and the names of the dynamic shared memory that it declares at file scope."""
    text = _DOUBLY_STATIC.sub("__shared__ ", text)
    bare = without_comments(text)
    for pattern, feature in _REFUSED.items():
        if found := re.search(pattern, bare):
            raise UnsupportedFeatureError(label, feature, bare.count("\n", 0, found.start()) + 1)
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


def _at_file_scope(bare: str, position: int) -> bool:
    """Whether nothing but namespaces is open there."""
    open_scopes: list[bool] = []
    for found in _SCOPE.finditer(bare, 0, position):
        if found[0] == "}":
            if open_scopes:
                open_scopes.pop()
        else:
            open_scopes.append(found[0] != "{")
    return all(open_scopes)
